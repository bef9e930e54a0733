"""Executions with very long journals, written straight into the store of a stage: a short one that has really run is
made longer between its beginning and its end, in the form in which servers write. It takes seconds.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from gateway_stage import GatewayStage
from msgspec.structs import replace

from noetl_stream.engine.replay import replay
from noetl_stream.engine.snapshot import SNAPSHOT_FORMAT, digest_of_snapshot, encode_state
from noetl_stream.model import codec
from noetl_stream.model.composite import StepRan, TaskRan, TokenPassed
from noetl_stream.model.events import (
    CtxPatched,
    Fact,
    LoopDone,
    LoopIterationDone,
    LoopIterationFailed,
    LoopIterationStarted,
    LoopStarted,
    StepScheduled,
)
from noetl_stream.model.ids import command_of, step_run_of
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.ports.journal import EVENTS_AT_ONCE
from noetl_stream.ports.operations.executions import Start
from noetl_stream.ports.store import EntryRow, SnapshotRow

LAPS: Final = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: laps, path: tests/page/laps}
workflow:
  - step: begin
    tool: {kind: noop, args: {lap: 0}}
    next: {arcs: [{step: lap}]}
  - step: lap
    tool: {kind: noop, args: {lap: 1}}
    next: {arcs: [{step: end, when: "{{ ctx.on is not defined }}"}, {step: lap}]}
  - step: end
    tool: {kind: noop}
"""
EACH: Final = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: each, path: tests/page/each}
workflow:
  - step: each
    loop: {in: [1, 2], iterator: item, spec: {mode: parallel, max_in_flight: 2}}
    tool: {kind: noop, args: {seen: "{{ iter.item }}"}}
    next: {arcs: [{step: after}]}
  - step: after
    tool: {kind: noop}
"""
WORKER: Final = "worker-1"
PATCHED_EVERY: Final = 500
"""After so many laps somebody sets a key of ``ctx``."""

PAUSE_MS: Final = 9_000
"""Now and then nothing goes on for so long."""

FAILED_EVERY: Final = 97
SNAPSHOT_EVERY: Final = 2_000


class _Journal:
    """The journal of an execution that is made longer, from ``entries`` on.

    Attributes:
        position: Where the next entry goes.
    """

    def __init__(self, execution_id: str, entries: dict[int, EntryRow], at_ms: int) -> None:
        self.execution_id = execution_id
        self.rows: dict[int, EntryRow] = {}
        self.position = 1
        self.at_ms = at_ms
        for row in entries.values():
            self.add(row)

    def add(self, row: EntryRow, after_ms: int = 0) -> None:
        """A row, behind the others."""
        self.at_ms += after_ms
        self.rows[self.position] = replace(row, position=self.position, at_ms=self.at_ms)
        facts = [*codec.decode_facts(row.data), *(codec.decode_facts(row.decisions) if row.decisions else ())]
        self.position += sum(getattr(fact, "width", 1) for fact, _ in facts)

    def reported(self, run: str, command: str, facts: list[Fact], decisions: list[Fact], after_ms: int) -> None:
        """What a worker has reported."""
        row = EntryRow(
            execution_id=self.execution_id,
            position=0,
            source="worker",
            at_ms=0,
            step_run_id=run,
            report_id=f"{command}.1.1.000000000000.0",
            number=0,
            data=_encoded(facts),
            decisions=_encoded(decisions) if decisions else None,
        )
        self.add(row, after_ms)


def _encoded(facts: list[Fact]) -> bytes:
    return codec.encode_facts([codec.encode(fact) for fact in facts])


class LongRun(NamedTuple):
    execution_id: str
    position: int


async def _short(stage: GatewayStage, text: str) -> tuple[str, list[EntryRow]]:
    """An execution that has run, and its entries."""
    started = await stage.operations.executions.start(Start(playbook=text), "token:local")

    async def has_ended() -> bool:
        row = await stage.store.execution(started.execution_id)
        return row is not None and row.finished_ms is not None

    await stage.until(has_ended)
    return started.execution_id, [row for _, row in sorted(stage.store.tables.journals[started.execution_id].items())]


async def _written(stage: GatewayStage, journal: _Journal, snapshot_every: int) -> LongRun:
    """Puts the journal in place of the short one, with snapshots as a server makes them."""
    tables, one = stage.store.tables, journal.execution_id
    tables.journals[one] = journal.rows
    last = journal.position - 1
    tables.executions[one] = replace(
        tables.executions[one], position=last, updated_ms=journal.at_ms, finished_ms=journal.at_ms
    )
    state, due = None, snapshot_every
    for after in range(0, last, EVENTS_AT_ONCE):
        state = replay(one, await stage.store.journal(one, after, EVENTS_AT_ONCE), state)
        if state is not None and state.position >= due:
            body = encode_state(state)
            digest = digest_of_snapshot(one, state.position, body)
            tables.snapshots[one, state.position] = SnapshotRow(
                execution_id=one, position=state.position, format=SNAPSHOT_FORMAT, digest=digest, body=body
            )
            due = state.position + snapshot_every
    return LongRun(one, last)


async def long_laps(stage: GatewayStage, laps: int) -> LongRun:
    """A step that ran so many times, one run after the other: 8 events each."""
    one, entries = await _short(stage, LAPS)
    journal = _Journal(one, dict(enumerate(entries[:2])), entries[0].at_ms)
    [(passed, _)] = codec.decode_facts(entries[1].decisions or b"")
    assert isinstance(passed, TokenPassed)
    begun_ms = journal.at_ms
    for lap in range(laps):
        run = step_run_of(one, passed.token_id)
        task = TaskRan("lap_task", codec.payload_of({"lap": lap}), begun_ms, begun_ms + 1, 0.001)
        passed = TokenPassed(run, "lap", "lap" if lap < laps - 1 else "end", int(lap < laps - 1))
        after_ms = PAUSE_MS if lap % 1000 == 0 else 20
        journal.reported(run, command_of(run), [StepRan(run, WORKER, [task])], [passed], after_ms)
        if lap % PATCHED_EVERY == 0:
            patch = CtxPatched(f"patch-{lap}", "token:ada", "to see how far it is", patch={"lap": lap})
            row = EntryRow(execution_id=one, position=0, source="client", at_ms=0, data=_encoded([patch]))
            journal.add(row, after_ms=1)
    run = step_run_of(one, passed.token_id)
    [(ran, _)] = codec.decode_facts(entries[-1].data)
    [*decisions] = [fact for fact, _ in codec.decode_facts(entries[-1].decisions or b"")]
    decisions[0] = replace(decisions[0], step_run_id=run)
    journal.reported(run, command_of(run), [replace(ran, step_run_id=run)], decisions, after_ms=20)
    return await _written(stage, journal, SNAPSHOT_EVERY)


async def long_loop(stage: GatewayStage, count: int) -> LongRun:
    """A loop with so many iterations, of which some failed."""
    one, entries = await _short(stage, EACH)
    first = entries[0]
    decisions = [fact for fact, _ in codec.decode_facts(first.decisions or b"")]
    loop = next(fact for fact in decisions if isinstance(fact, LoopStarted))
    decisions[decisions.index(loop)] = replace(loop, count=count, items=list(range(count)))
    journal = _Journal(one, {0: replace(first, decisions=_encoded(decisions))}, first.at_ms)
    run = loop.step_run_id
    failed = 0
    for index in range(count):
        path = (index,)
        is_bad = index % FAILED_EVERY == 1
        failed += is_bad
        ended: Fact = LoopIterationDone(path)
        if is_bad:
            ended = LoopIterationFailed(path, ErrorInfo("http_error", "the answer was 503"))
        scheduled: list[Fact] = []
        if index + 2 < count:
            scheduled = [StepScheduled(run, command_of(run, (index + 2,)), path=(index + 2,))]
        elif index == count - 1:
            rest = next(row for row in entries if b"loop.done" in (row.decisions or b""))
            scheduled = [fact for fact, _ in codec.decode_facts(rest.decisions or b"")]
            done = next(fact for fact in scheduled if isinstance(fact, LoopDone))
            scheduled = scheduled[scheduled.index(done) :]
            scheduled[0] = replace(done, count=count, ok=count - failed, failed=failed, failed_leaves=failed)
        facts = [LoopIterationStarted(path, WORKER), ended]
        journal.reported(run, command_of(run, path), facts, scheduled, after_ms=2)
    journal.add(entries[-1], after_ms=2)
    return await _written(stage, journal, journal.position // 2)
