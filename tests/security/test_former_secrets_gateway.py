"""What a gateway shows and logs of an execution that was given a secret which was changed or deleted since."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import cast

import pytest
from gateway_stage import GatewayStage
from msgspec.structs import replace

from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.memory.stores.credentials import MemoryCredentials
from noetl_stream.operations.access import DirectCredentials
from noetl_stream.operations.executions.redacted import Redacted
from noetl_stream.operations.feed.live import LiveFeed
from noetl_stream.ports.operations.executions import Executions
from noetl_stream.ports.operations.reading.views import Views
from noetl_stream.sealing.keys import KeyRing, new_key, read_key
from noetl_stream.settings.gateway_settings import GatewayLimits
from noetl_stream.storage.used_secrets import UsedSecrets
from noetl_testkit.memory.journals import MemoryFeed

SECRET = "hunter2 hunter2"
ECHO = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: echo, path: tests/echo}
workload: {typed: ""}
workflow:
  - step: start
    tool: {kind: noop, args: {seen: "{{ workload.typed }}"}}
"""


@pytest.fixture
async def credentials() -> MemoryCredentials:
    return MemoryCredentials(SystemClock())


@pytest.fixture
async def stage(credentials: MemoryCredentials) -> AsyncIterator[GatewayStage]:
    made = GatewayStage(GatewayLimits())
    keys = KeyRing(read_key(new_key(), "a test"))
    secrets = UsedSecrets(credentials, keys)
    made.operations = replace(
        made.operations,
        executions=cast(Executions, Redacted(Executions, made.operations.executions, secrets)),
        views=cast(Views, Redacted(Views, made.operations.views, secrets)),
        feed=LiveFeed(made.store, MemoryFeed(made.store, made.clock), made.broker.bus, made.clock, secrets),
        credentials=DirectCredentials(credentials, keys),
    )
    async with made.open():
        yield made


async def everything_of(stage: GatewayStage, execution_id: str) -> str:
    one = f"/api/v1/executions/{execution_id}"
    paths = [
        one,
        *(
            f"{one}/{part}"
            for part in (
                "result",
                "steps",
                "events",
                "ctx",
                "why",
                "state",
                "graph",
                "timeline",
                "ctx/changes",
                "events/stream",
            )
        ),
    ]
    shown = []
    for path in (*paths, "/api/v1/executions"):
        async with stage.client.get(path) as answer:
            assert answer.status == 200, await answer.text()
            shown.append(await answer.text())
    return "\n".join(shown)


@pytest.mark.parametrize("change", ["PUT", "DELETE"])
async def test_a_former_secret_is_hidden_over_http_and_in_the_log(
    stage: GatewayStage, credentials: MemoryCredentials, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="noetl_stream")
    async with stage.client.put("/api/v1/credentials/pg", json={"value": SECRET}) as answer:
        assert answer.status in (200, 201), await answer.text()
    start = {"playbook": ECHO, "workload": {"typed": f"it is {SECRET}"}}
    async with stage.client.post("/api/v1/executions", json=start) as answer:
        execution_id = (await answer.json())["execution_id"]
    async with stage.client.get(f"/api/v1/executions/{execution_id}?wait=60s") as answer:
        assert (await answer.json())["status"] == "completed"
    assert SECRET in await everything_of(stage, execution_id)
    read = await credentials.get("pg")
    assert read is not None and await credentials.record_use(execution_id, read)
    new = {"json": {"value": "another value"}} if change == "PUT" else {}
    async with stage.client.request(change, "/api/v1/credentials/pg", **new) as answer:
        assert answer.ok, await answer.text()
    shown = await everything_of(stage, execution_id)
    assert SECRET not in shown and "it is ***" in shown
    assert SECRET not in caplog.text
