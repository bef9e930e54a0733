"""A stage of a server whose triggers read a stream of NATS."""

from __future__ import annotations

from typing import Any

from server_stage import ONE_STEP, Stage

from noetl_stream.engine.aggregates.triggers import TriggerState
from noetl_stream.model.aggregates import (
    RequestedFact,
    StreamFilter,
    TriggerRegistered,
    TriggerTerms,
    aggregate_id,
)
from noetl_stream.model.events import ExecutionRequested
from noetl_stream.model.json import codec
from noetl_stream.operations.executions.submit import RequestRefused, ask_aggregate

PATH, STREAM = "tests/orders", "ORDERS"
ID = aggregate_id("starter", PATH)


class Streams:
    """A stage with a stream that triggers may read, and its users."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.broker = stage.broker.trigger_streams
        stage.open_streams = (STREAM,)
        self.broker.make(STREAM)
        self._asked = 0

    async def asked(self, kind: Any, **fields: Any) -> dict[str, Any] | str:
        """The answer to a request, or the code with which it is refused."""
        self._asked += 1
        fact: RequestedFact = kind(f"ask-{self._asked}", fields.pop("key", PATH), **fields)
        try:
            broker = self.stage.broker
            return await ask_aggregate(self.stage.requests, broker.bus, self.stage.clock, "starter", fact)
        except RequestRefused as refused:
            return refused.code

    async def register(self, revision: int = 1, key: str | None = None, **of: Any) -> dict[str, Any] | str:
        playbook = await self.stage.register(ONE_STEP)
        nats = StreamFilter(**{"stream": STREAM, "from_ms": 0, **of})
        terms = TriggerTerms(playbook=playbook, nats=nats, workload={"n": "{{ event.data.n }}"}, key=key)
        return await self.asked(TriggerRegistered, terms=terms, revision=revision)

    def publish(self, *numbers: int, subject: str = "orders.paid") -> None:
        for number in numbers:
            self.broker.publish(STREAM, subject, b'{"n":%d}' % number)

    async def history(self) -> list[tuple[str, str]]:
        """Oldest first: status and reason."""
        rows = await self.stage.store.real.aggregate_history(ID, 10_000, None)
        return [(row.status, codec.decode_json(row.body).get("reason", "")) for row in reversed(rows)]

    async def started(self) -> list[int]:
        """The numbers that executions were started with, in the order of the events."""
        rows = await self.stage.store.real.aggregate_history(ID, 10_000, None)
        found = []
        for row in reversed(rows):
            if row.status == "started" and row.execution_id is not None:
                fact = (await self.stage.facts(row.execution_id))[0]
                assert isinstance(fact, ExecutionRequested)
                found.append(fact.workload["n"])
        return found

    async def state(self) -> TriggerState:
        row = (await self.stage.store.real.aggregates({ID}))[ID]
        return codec.decode_as(TriggerState, row.state)

    async def until_folded(self, count: int) -> None:
        await self.stage.until(lambda: len(self.stage.tables.aggregates.histories.get(ID, {})) >= count)
        await self.stage.pass_time(5)
