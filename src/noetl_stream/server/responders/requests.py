"""Answers requests, playbooks and gathered results from Postgres and caches, on any server (PROTOCOL §4)."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from noetl_stream.errors import BlobMissing, NoetlError
from noetl_stream.model import codec
from noetl_stream.model.outcome import Reference
from noetl_stream.ports import subjects
from noetl_stream.ports.blobs import Blobs
from noetl_stream.ports.bus import Bus, Subscription
from noetl_stream.ports.gathering import gather_iterations
from noetl_stream.ports.store import Store
from noetl_stream.server.plan_cache import PlanCache
from noetl_stream.server.responders.catalog import CatalogResponder
from noetl_stream.server.responders.secrets import SecretsResponder

log = logging.getLogger(__name__)
GROUP = "noetl-servers"


class RequestResponder:
    """Listens in one queue group with all servers; each request is answered by one of them."""

    def __init__(
        self,
        bus: Bus,
        store: Store,
        blobs: Blobs,
        plans: PlanCache,
        owner: str,
        catalog: CatalogResponder,
        secrets: SecretsResponder | None = None,
    ) -> None:
        self._bus = bus
        self._store = store
        self._blobs = blobs
        self._plans = plans
        self._owner = owner
        self._catalog = catalog
        self._secrets = secrets
        self._subscriptions: list[Subscription] = []

    async def open(self) -> None:
        """Starts answering."""
        for subject, answer in (
            (subjects.PING, self._ping),
            (f"{subjects.ASK_REQUEST}.*.*", self._request),
            (f"{subjects.ASK_PLAYBOOK}.*", self._playbook),
            (f"{subjects.ASK_RESULT}.*.*", self._result),
        ):
            self._subscriptions.append(await self._bus.listen(subject, self._answering(answer), GROUP))
        self._subscriptions.append(await self._catalog.listen(self._bus, GROUP))
        if self._secrets is not None:
            self._subscriptions.append(await self._secrets.listen(self._bus, GROUP))

    async def close(self) -> None:
        """Stops answering, until it is opened again."""
        subscriptions, self._subscriptions = self._subscriptions, []
        for subscription in subscriptions:
            await subscription.close()

    def _answering(self, answer: Callable[[list[str]], Awaitable[Any]]) -> Callable[[str, bytes, str], Awaitable[None]]:
        async def handle(subject: str, body: bytes, reply: str) -> None:
            if not reply:
                return
            try:
                found = await answer(subject.split(".")[3:])
            except NoetlError as error:
                log.warning("cannot answer %s: %s", subject, error)
                found = None
            self._bus.send(reply, codec.encode(found))

        return handle

    async def _ping(self, names: list[str]) -> dict[str, Any]:
        return {"server": self._owner}

    async def _request(self, names: list[str]) -> dict[str, Any]:
        execution_id, request_id = names
        row = await self._store.request(execution_id, request_id)
        if row is None:
            return {"known": False}
        return {"known": True, "answer": codec.decode_json(row.answer), "position": row.position}

    async def _playbook(self, names: list[str]) -> dict[str, Any]:
        known = await self._plans.load(names[0])
        if known.row is None:
            return {"known": False}
        return {"known": True, "source": known.row.source, "path": known.row.path}

    async def _result(self, names: list[str]) -> Reference | dict[str, Any]:
        execution_id, step_run_id = names
        try:
            data = await gather_iterations(self._store, self._blobs, execution_id, step_run_id)
        except BlobMissing as error:
            return {"lost": error.message}
        reference = Reference(
            "nats", f"{execution_id}/{step_run_id}/loop", len(data), "sha256:" + hashlib.sha256(data).hexdigest()
        )
        await self._blobs.put(reference.key, data)
        return reference
