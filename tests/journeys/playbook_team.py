"""A team's own use of NATS, which the playbooks join: a bucket of settings, and a subscription to their changes."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.kv import KeyValue

from nats_client import flush
from noetl_stream.local.binaries import find_nats_server
from noetl_stream.local.processes import choose_port

FIRST_TRIES = 100
BUCKET = "settings"
SUBJECT = "settings.changed"


@contextmanager
def team_nats() -> Iterator[str]:
    """The address of a NATS that is the team's own: that of the engine is for the engine alone."""
    port = choose_port()
    with tempfile.TemporaryDirectory(prefix="noetl-team-") as folder:
        command = [str(find_nats_server()), "-js", "-sd", folder, "-a", "127.0.0.1", "-p", str(port)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield f"nats://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


class Team:
    """``told`` is every message on ``settings.changed`` about the setting ``shop``."""

    def __init__(self, client: Client, bucket: KeyValue) -> None:
        self._client = client
        self._bucket = bucket
        self.notifications: list[dict[str, Any]] = []

    @classmethod
    async def meet(cls, nats_url: str) -> Team:
        client = await nats.connect(nats_url, max_reconnect_attempts=FIRST_TRIES, reconnect_time_wait=0.1)
        bucket = await client.jetstream().create_key_value(bucket=BUCKET)
        await bucket.put("shop", b'{"currency": "EUR", "discount_percent": 5}')
        team = cls(client, bucket)
        await client.subscribe(SUBJECT, cb=team._receive)
        await flush(client)
        return team

    async def part(self) -> None:
        """Deletes what the team has stored."""
        await self._client.jetstream().delete_key_value(BUCKET)
        await self._client.close()

    async def setting(self, key: str) -> Any:
        return json.loads((await self._bucket.get(key)).value or b"null")

    async def _receive(self, message: Msg) -> None:
        notification = json.loads(message.data)
        if notification["key"] == "shop":
            self.notifications.append(notification)
