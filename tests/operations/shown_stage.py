"""Executions on a stage, shown as a gateway shows them: with the credentials hidden that they were given."""

from __future__ import annotations

from typing import Any

from operations_stage import BY, OperationsStage

from noetl_stream.adapters.memory.stores.credentials import MemoryCredentials
from noetl_stream.model.json import codec
from noetl_stream.operations.cluster import DirectCluster
from noetl_stream.operations.executions.redacted import Redacted
from noetl_stream.operations.feed.live import LiveFeed
from noetl_stream.ports.operations.executions import ExecutionFilter, Executions, Start, StepRunRange
from noetl_stream.ports.operations.reading.events import EventFilter
from noetl_stream.ports.operations.reading.timelines import TimeRange
from noetl_stream.ports.operations.reading.views import Views
from noetl_stream.sealing.keys import KeyRing, new_key, read_key
from noetl_stream.storage.used_secrets import UsedSecrets
from noetl_testkit.memory.journals import MemoryFeed
from noetl_testkit.simulation.work import playbook, work

SECRET = "hunter2 hunter2"
ECHO = playbook(
    "echo", [{"step": "say", "tool": {"name": "tell", **work("{{ workload.typed }}")}}], workload={"typed": ""}
)


class Showing:
    """Executions on a stage, shown as a gateway shows them."""

    def __init__(self, stage: OperationsStage) -> None:
        self.stage = stage
        self.credentials = MemoryCredentials(stage.clock)
        self._other: str | None = None
        self.use(KeyRing(read_key(new_key(), "a test")))

    def use(self, keys: KeyRing) -> None:
        """From now on credentials are encrypted and hidden with these keys."""
        stage, store = self.stage, self.stage.store
        self.keys = keys
        self.secrets = UsedSecrets(self.credentials, keys)
        self.executions: Any = Redacted(Executions, stage.executions, self.secrets)
        self.views: Any = Redacted(Views, stage.views, self.secrets)
        self.cluster = DirectCluster(stage.cluster_ports, self.secrets)
        self.feed = LiveFeed(store, MemoryFeed(store, stage.clock), stage.broker.bus, stage.clock, self.secrets)

    async def run(self) -> str:
        started = await self.executions.start(Start(playbook=ECHO, workload={"typed": f"it is {SECRET}"}), BY)
        await self.executions.wait(started.execution_id, 60)
        return started.execution_id

    async def other(self) -> str:
        """An execution that has not seen the secret, to compare others with."""
        self._other = self._other or (await self.stage.run(ECHO)).execution_id
        return self._other

    async def give(self, execution_id: str, name: str = "pg") -> None:
        """What a server does that hands the stored credential out for it."""
        read = await self.credentials.get(name)
        assert read is not None and await self.credentials.record_use(execution_id, read)

    async def everything_of(self, execution_id: str) -> str:
        """Everything an API shows of an execution, as text."""
        one = self.executions
        shown = [
            await one.get(execution_id),
            await one.result(execution_id),
            await one.steps(execution_id),
            await one.runs(execution_id, StepRunRange()),
            *[await one.run_result(execution_id, run.step_run_id) for run in await one.steps(execution_id)],
            await one.events(execution_id, 0, 100),
            await one.ctx(execution_id),
            await one.why(execution_id),
            await one.page(ExecutionFilter(), 10, None),
            await self.views.state(execution_id, None),
            await self.views.graph(execution_id),
            await self.views.changes(execution_id, None, 100, None),
            await self.views.timeline(execution_id, TimeRange()),
            await self.views.events(execution_id, EventFilter(), 100),
            await self.views.diff(execution_id, await self.other(), "all", 100, None),
            await self.views.diff(await self.other(), execution_id, "all", 100, None),
        ]
        followed = [event.json async for batch in await self.feed.execution(execution_id, 0) for event in batch]
        pieces = [piece.decode() async for piece in await one.result_pieces(execution_id)]
        return " ".join([codec.encode(shown).decode(), *followed, *pieces])
