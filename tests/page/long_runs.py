"""Executions with very long journals, written straight into the store of a stage: a short one that has really run is
made longer between its beginning and its end, in the form in which servers write. It takes seconds.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from gateway_stage import GatewayStage
from msgspec.structs import replace

from noetl_stream.engine.replay import replay
from noetl_stream.engine.snapshot import SNAPSHOT_FORMAT, digest_of_snapshot, encode_state
from noetl_stream.model.events import (
    CtxPatched,
    ExecutionFinished,
    Fact,
    LoopDone,
    LoopIterationDone,
    LoopIterationFailed,
    LoopIterationStarted,
    LoopStarted,
    NextEvaluated,
    TokenClaimed,
)
from noetl_stream.model.events.composite import StepRan, TaskRan, TokenPassed
from noetl_stream.model.ids import command_of, step_run_of
from noetl_stream.model.json import codec
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.ports.operations.executions import Start
from noetl_stream.ports.stores.store import EntryRow, SnapshotRow
from noetl_stream.storage.journal import EVENTS_AT_ONCE

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
    loop: {in: [1, 2], iterator: item}
    tool: {kind: noop, args: {seen: "{{ iter.item }}"}}
"""
WORKER: Final = "worker-1"
PATCHED_EVERY: Final = 500
"""After so many laps somebody sets a key of ``ctx``."""

PAUSE_MS: Final = 9_000
"""Now and then nothing goes on for so long."""

FAILED_EVERY: Final = 97
REPORTED_AT_ONCE: Final = 250
"""Iterations of a loop."""

SNAPSHOT_EVERY: Final = 2_000


class _Journal:
    """The journal of an execution that is made longer, from its first entry on.

    Attributes:
        position: Where the next entry goes.
    """

    def __init__(self, first: EntryRow) -> None:
        self.execution_id = first.execution_id
        self.rows: dict[int, EntryRow] = {}
        self.position = 1
        self.at_ms = first.at_ms
        self.add(first)

    def add(self, row: EntryRow, after_ms: int = 0) -> None:
        """A row, behind the others."""
        self.at_ms += after_ms
        self.rows[self.position] = replace(row, position=self.position, at_ms=self.at_ms)
        self.position += sum(getattr(fact, "width", 1) for fact in _facts(row))

    def reported(self, run: str, facts: list[Fact], decisions: list[Fact], after_ms: int, number: int = 0) -> None:
        """What a worker has reported; ``number`` is that of its first fact."""
        row = EntryRow(
            execution_id=self.execution_id,
            position=0,
            source="worker",
            at_ms=0,
            step_run_id=run,
            report_id=f"{command_of(run)}.1.1.000000000000.0",
            number=number,
            data=_encoded(facts),
            decisions=_encoded(decisions) if decisions else None,
        )
        self.add(row, after_ms)


def _encoded(facts: list[Fact]) -> bytes:
    return codec.encode_facts([codec.encode(fact) for fact in facts])


class LongRun(NamedTuple):
    execution_id: str
    position: int


async def _begun(stage: GatewayStage, text: str) -> tuple[_Journal, str, list[Fact]]:
    """The journal of an execution that has run, up to the first step run; that; and what its end decided."""
    started = await stage.operations.executions.start(Start(playbook=text), "token:local")
    one = started.execution_id

    async def has_ended() -> bool:
        row = await stage.store.execution(one)
        return row is not None and row.finished_ms is not None

    await stage.until(has_ended)
    entries = [row for _, row in sorted(stage.store.tables.journals[one].items())]
    journal, runs = _Journal(entries[0]), _claimed(entries[0])
    for row in entries[1:]:  # a busy machine claims the first step later
        if runs:
            break
        journal.add(row)
        runs = _claimed(row)
    decided = [fact for row in entries for fact in _facts(row)]
    finished = next(number for number, fact in enumerate(decided) if isinstance(fact, ExecutionFinished))
    return journal, runs[0], decided[finished:]


def _facts(row: EntryRow) -> list[Fact]:
    return [fact for part in (row.data, row.decisions) if part for fact, _ in codec.decode_facts(part)]


def _claimed(row: EntryRow) -> list[str]:
    return [fact.step_run_id for fact in _facts(row) if isinstance(fact, TokenClaimed)]


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
    journal, run, end = await _begun(stage, LAPS)
    one, step, begun_ms = journal.execution_id, "begin", journal.at_ms
    for lap in range(laps + 1):
        task = TaskRan(f"{step}_task", codec.payload_of({"lap": lap}), begun_ms, begun_ms + 1, 0.001)
        passed = TokenPassed(run, step, "lap" if lap < laps else "end", int(step == "lap" and lap < laps))
        after_ms = PAUSE_MS if lap % 1000 == 1 else 20
        journal.reported(run, [StepRan(run, WORKER, [task])], [passed], after_ms)
        run, step = step_run_of(one, passed.token_id), passed.step
        if lap % PATCHED_EVERY == 1:
            patch = CtxPatched(f"patch-{lap}", "token:ada", "to see how far it is", patch={"lap": lap})
            row = EntryRow(execution_id=one, position=0, source="client", at_ms=0, data=_encoded([patch]))
            journal.add(row, after_ms=1)
    task = TaskRan("end_task", codec.payload_of({}), begun_ms, begun_ms + 1, 0.001)
    journal.reported(run, [StepRan(run, WORKER, [task])], [NextEvaluated(run, "step.done"), *end], after_ms=20)
    return await _written(stage, journal, SNAPSHOT_EVERY)


async def long_loop(stage: GatewayStage, count: int) -> LongRun:
    """A loop with so many iterations, of which some failed."""
    journal, run, end = await _begun(stage, EACH)
    facts: list[Fact] = [LoopStarted(run, count, local=True)]
    number = failed = 0
    for index in range(count):
        ended: Fact = LoopIterationDone((index,))
        if index % FAILED_EVERY == 1:
            failed += 1
            ended = LoopIterationFailed((index,), ErrorInfo("http_error", "the answer was 503"))
        facts += [LoopIterationStarted((index,), WORKER), ended]
        if index % REPORTED_AT_ONCE == REPORTED_AT_ONCE - 1:
            journal.reported(run, facts, [], after_ms=50, number=number)
            number, facts = number + len(facts), []
    facts.append(LoopDone(run, count, ok=count - failed, failed=failed, skipped=0, failed_leaves=failed))
    journal.reported(run, facts, [NextEvaluated(run, "loop.done"), *end], after_ms=50, number=number)
    return await _written(stage, journal, journal.position - 2 * EVENTS_AT_ONCE)
