"""Long journals are read in pieces, with turns for others between them, and not again from the beginning."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest
from operations_stage import OperationsStage

from noetl_stream.operations.executions import direct
from noetl_stream.operations.why import journal as why_journal
from noetl_stream.ports.operations.executions import ExecutionDocument
from noetl_stream.ports.stores.store import StoredEvent
from noetl_stream.storage import journal as journals
from noetl_testkit.simulation.work import playbook, then, work

STEPS = 6
CHAIN = playbook(
    "chain",
    [
        {"step": f"s{n}", "tool": work(n), **({"next": then(f"s{n + 1}")} if n < STEPS else {})}
        for n in range(STEPS + 1)
    ],
)
AT_ONCE = 5


class Read(NamedTuple):
    """A read of a journal. ``turns`` is how often others had gone on before it."""

    after: int
    limit: int | None
    turns: int


class Reads:
    """The reads of journals from a store, beside a task that counts its turns."""

    def __init__(self, stage: OperationsStage, monkeypatch: pytest.MonkeyPatch) -> None:
        self.all: list[Read] = []
        self._turns = 0
        journal = stage.store.journal

        async def noted(execution_id: str, after: int = 0, limit: int | None = None) -> list[StoredEvent]:
            self.all.append(Read(after, limit, self._turns))
            return await journal(execution_id, after, limit)

        monkeypatch.setattr(stage.store, "journal", noted)
        self._task = asyncio.create_task(self._count())

    async def _count(self) -> None:
        while True:
            self._turns += 1
            await asyncio.sleep(0)

    def in_pieces(self) -> bool:
        """Whether the reads were small, and each left others a turn before the next one."""
        limits = [one.limit for one in self.all]
        turns = [one.turns for one in self.all]
        return all(limit is not None and limit <= AT_ONCE for limit in limits) and turns == sorted(set(turns))

    def end(self) -> None:
        self._task.cancel()


@pytest.fixture
async def ended(stage: OperationsStage, monkeypatch: pytest.MonkeyPatch) -> ExecutionDocument:
    """An execution whose journal counts as long."""
    monkeypatch.setattr(direct, "DESCRIBED_EVENTS", 1)
    monkeypatch.setattr(why_journal, "LONG_EVENTS", 1)
    monkeypatch.setattr(journals, "EVENTS_AT_ONCE", AT_ONCE)
    return await stage.run(CHAIN)


@pytest.mark.parametrize("verb", ["why", "get", "ctx", "steps"])
async def test_other_calls_continue_while_a_long_journal_is_read(
    stage: OperationsStage, ended: ExecutionDocument, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    executions = stage.fresh_executions()
    reads = Reads(stage, monkeypatch)
    await getattr(executions, verb)(ended.execution_id)
    assert len(reads.all) > ended.position / AT_ONCE
    assert reads.in_pieces()
    reads.end()


async def test_why_reads_of_a_long_journal_what_it_has_grown_by(
    stage: OperationsStage, ended: ExecutionDocument, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await stage.executions.why(ended.execution_id)
    reads = Reads(stage, monkeypatch)
    assert await stage.executions.why(ended.execution_id) == first
    assert [one.after for one in reads.all] == [ended.position]
    reads.end()
