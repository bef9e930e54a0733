"""Whether what people are shown of a journal agrees with the state that the engine folds from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from noetl_stream.engine.replay import replay_entries
from noetl_stream.engine.state import Execution
from noetl_stream.model.events import LoopDone
from noetl_stream.model.json import codec
from noetl_stream.model.traces import trace_of
from noetl_stream.operations.diff.course import Course
from noetl_stream.operations.executions.reading.step_runs import StepRunReader, step_runs, summaries
from noetl_stream.operations.views.arrays import CANCELLED, DONE, FAILED, SKIPPED, STATUSES
from noetl_stream.operations.views.index import ExecutionIndex
from noetl_stream.operations.views.state import state_document, statuses_of
from noetl_stream.ports.stores.store import Store, StoredEntry
from noetl_stream.ports.traces import Span
from noetl_stream.server.traces import JournalReading, TracedExecution
from noetl_stream.storage.journal import events_of, facts_of

COMPARED_EVERY: Final = 25
"""Of so many entries, what is shown after one is compared with itself: that takes longer than to read them."""


async def reader_problems(store: Store, execution_id: str) -> list[str]:
    """How the readers of a journal differ from its state after any entry, or from each other at its end."""
    entries: Sequence[StoredEntry] = (await store.journals({execution_id: 0}))[execution_id]
    index, course = ExecutionIndex(execution_id), Course(execution_id, {})
    traced = TracedExecution(execution_id, trace_of(execution_id, "", ""), "", None, "", "")
    reading, spans = JournalReading(traced, ()), list[Span]()
    shown_runs = StepRunReader(execution_id)
    state: Execution | None = None
    problems: list[str] = []
    for number, entry in enumerate(entries):
        index.take([entry])
        shown_runs.take(events_of(execution_id, [entry]))
        spans += reading.take(facts_of(entry))
        state = replay_entries(execution_id, [entry], state)
        if state is not None:
            problems += _unlike_the_state(index, reading, state)
            if number % COMPARED_EVERY == 0:
                problems += contradictions(state, index, shown_runs)
    course.take(entries)
    shown = {run.step_run_id: run.status for run in await step_runs(store, execution_id, "")}
    numbers = zip(index.runs.ids, index.runs.status, index.runs.ended, strict=True)
    ended = {one: STATUSES[status] for one, status, position in numbers if position}
    problems += _different("ended step runs", ended, {one: shown[one] for one in ended})
    compared = {run.step_run_id: run.status for run in course.runs if run.step_run_id}
    problems += _different("compared step runs", compared, shown)
    of_spans = {str(span.attributes["noetl.step_run.id"]): span for span in spans if span.name.startswith("step ")}
    statuses = {one: span.attributes["noetl.step.status"] for one, span in of_spans.items()}
    problems += _different("spans", statuses, {one: status for one, status in ended.items() if status != "reused"})
    return [f"{execution_id}: {one}" for one in (*problems, *_unlike_the_loops(index, entries))]


def _unlike_the_state(index: ExecutionIndex, reading: JournalReading, state: Execution) -> Iterator[str]:
    goes_on = {run.step_run_id: run.step for run in state.runs.values() if not run.ended}
    indexed = {run: index.step_of(number) for run, number in index.by_id.items() if not index.runs.ended[number]}
    yield from _different(f"open step runs at {state.position}", indexed, goes_on)
    traced = {run.step_run_id: run.step for run in reading.by_id.values()}
    yield from _different(f"open spans at {state.position}", traced, goes_on if not state.ended else traced)
    waiting = {token_id: one.token.step for token_id, one in state.tokens.items()}
    yield from _different(f"tokens at {state.position}", index.tokens, waiting)
    yield from _different(f"the end at {state.position}", index.has_ended, state.ended)


def contradictions(state: Execution, index: ExecutionIndex, reading: StepRunReader) -> Iterator[str]:
    """Statuses and numbers that are shown of an execution at one position and contradict each other."""
    at, statuses = f"at {state.position}", statuses_of(state)
    listed = {one.step: (one.runs, one.status) for one in summaries(reading.by_id.values(), statuses)}
    counts = index.counts_at(state.position, statuses)
    steps = {one.step: one.status for one in state_document(state, None, state.position, counts).statuses}
    shown = {step: (sum(runs.values()), steps[step]) for step, runs in counts.items()}
    yield from _different(f"the steps {at}", shown, listed)
    runs = Counter((run.step, run.shown_status(statuses)) for run in reading.by_id.values())
    counted = {(step, status): count for step, one in counts.items() for status, count in one.items()}
    yield from _different(f"the step runs {at}", counted, dict(runs))
    live = {status for status in steps.values() if status in ("running", "waiting")}
    if state.shown_status == "running" and statuses.places and "running" not in live:
        yield f"it is running {at}, and none of its steps is: {steps}"
    if state.shown_status == "waiting" and live != {"waiting"}:
        yield f"it is waiting {at}, and its steps are {steps}"
    if state.ended and live:
        yield f"it has ended {at}, and its steps are {steps}"


def _unlike_the_loops(index: ExecutionIndex, entries: Sequence[StoredEntry]) -> Iterator[str]:
    """How the iterations of each level differ from what the level says at its end."""
    for event in events_of(index.execution_id, entries):
        fact = codec.decode_fact(event.data)
        if isinstance(fact, LoopDone):
            level = index.levels[index.by_id[fact.step_run_id]][fact.path]
            counts = level.counts(0, level.count)
            found = (counts[DONE], counts[FAILED], counts[SKIPPED] + counts[CANCELLED])
            yield from _different(f"iterations in {fact.path}", found, (fact.ok, fact.failed, fact.skipped))


def _different(what: str, found: object, expected: object) -> Iterator[str]:
    if found != expected:
        yield f"{what}: {found}, not {expected}"
