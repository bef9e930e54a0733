"""A credential that was handed out for an execution shows in nothing of it, whoever wrote it there."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from client_stage import BY, ClientStage

from noetl_stream.adapters.memory.access import MemoryCredentials
from noetl_stream.adapters.memory.store import MemoryFeed
from noetl_stream.client.credentials import DirectCredentials
from noetl_stream.client.executions.redacted import RedactedExecutions, UsedSecrets
from noetl_stream.client.feed.live import LiveFeed
from noetl_stream.model import codec
from noetl_stream.model.events import CtxPatched
from noetl_stream.ports.operations.executions import ExecutionFilter, Start
from noetl_stream.sealing.keys import key_ring, new_key
from noetl_stream.testing.simulation.work import playbook, work

SECRET = "hunter2 hunter2"
ECHO = playbook(
    "echo", [{"step": "say", "tool": {"name": "tell", **work("{{ workload.typed }}")}}], workload={"typed": ""}
)
WAITS = playbook("waits", [{"step": "ear", "tool": {"name": "hear", "kind": "wait", "signal": "go", "timeout_s": 60}}])


class Showing:
    """Executions on a stage, shown as a gateway shows them."""

    def __init__(self, stage: ClientStage) -> None:
        self.stage = stage
        self.credentials = MemoryCredentials(stage.clock)
        self.keys = key_ring((new_key(),), "a key")
        self.secrets = UsedSecrets(self.credentials, self.keys)
        self.executions = RedactedExecutions(stage.executions, self.secrets)
        store = stage.store
        self.feed = LiveFeed(store, MemoryFeed(store, stage.clock), stage.broker.bus, stage.clock, self.secrets)

    async def run(self) -> str:
        started = await self.executions.start(Start(playbook=ECHO, workload={"typed": f"it is {SECRET}"}), BY)
        await self.executions.wait(started.execution_id, 60)
        return started.execution_id

    async def everything_of(self, execution_id: str) -> str:
        """Everything an API shows of an execution, as text."""
        one = self.executions
        shown = [
            await one.get(execution_id),
            await one.result(execution_id),
            await one.steps(execution_id),
            await one.events(execution_id, 0, 100),
            await one.ctx(execution_id),
            await one.why(execution_id),
            await one.page(ExecutionFilter(), 10, None),
        ]
        followed = [event.json async for batch in await self.feed.execution(execution_id, 0) for event in batch]
        return " ".join([codec.encode(shown).decode(), *followed])


@pytest.fixture
async def showing(stage: ClientStage) -> AsyncIterator[Showing]:
    made = Showing(stage)
    await DirectCredentials(made.credentials, made.keys).put("pg", SECRET, "ann")
    yield made


async def test_what_somebody_typed_is_hidden_once_the_execution_was_given_it(showing: Showing) -> None:
    execution_id = await showing.run()
    assert SECRET in await showing.everything_of(execution_id)
    await showing.credentials.record_use(execution_id, "pg")
    shown = await showing.everything_of(execution_id)
    assert SECRET not in shown and "it is ***" in shown


async def test_another_execution_shows_what_is_no_secret_of_it(showing: Showing) -> None:
    given, other = await showing.run(), await showing.run()
    await showing.credentials.record_use(given, "pg")
    assert SECRET in await showing.everything_of(other)


async def test_a_patch_is_hidden_in_ctx_and_its_history(showing: Showing) -> None:
    started = await showing.executions.start(Start(playbook=WAITS), BY)
    await showing.credentials.record_use(started.execution_id, "pg")
    await showing.stage.ask(started.execution_id, CtxPatched, patch={"note": SECRET})
    ctx = await showing.executions.ctx(started.execution_id)
    assert ctx.ctx == {"note": "***"}


async def test_a_value_set_after_its_name_was_deleted_is_hidden_too(showing: Showing) -> None:
    credentials = DirectCredentials(showing.credentials, showing.keys)
    execution_id = await showing.run()
    await showing.credentials.record_use(execution_id, "pg")
    for value in ("another value", SECRET):
        await credentials.delete("pg", "ann")
        await credentials.put("pg", value, "ann")
        assert (SECRET in await showing.everything_of(execution_id)) is (value != SECRET)


async def test_a_new_value_is_hidden_from_then_on(showing: Showing) -> None:
    execution_id = await showing.run()
    await showing.credentials.record_use(execution_id, "pg")
    await DirectCredentials(showing.credentials, showing.keys).put("pg", "another value", "ann")
    assert SECRET in await showing.everything_of(execution_id)
    await DirectCredentials(showing.credentials, showing.keys).put("pg", SECRET, "ann")
    assert SECRET not in await showing.everything_of(execution_id)
