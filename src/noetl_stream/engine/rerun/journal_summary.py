"""The journal summary of an execution, from which a rerun reuses facts (LANGUAGE §9 *Rerun*).

It holds the tokens, which step runs consumed them, the changes of ``ctx``, and how step runs ended. The termination is
left out: work that was stopped or discarded because of it counts as not done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from msgspec.structs import replace

from noetl_stream.engine.evolve.dispatch import evolve
from noetl_stream.engine.evolve.step_runs import contributions_of
from noetl_stream.engine.replay import JournalRow, recorded_facts
from noetl_stream.engine.state import Execution, RecordedFact, StepRun
from noetl_stream.model import events
from noetl_stream.model.events import LoopCounts, ReusedFact, StepPatched, StepReused
from noetl_stream.model.outcome import Outcome, StepValue

CONTRIBUTIONS_AT_ONCE: Final = 500
"""How many contributions to shared keys one entry holds."""


class JournalSummary:
    """A summary of one execution's journal.

    Attributes:
        facts: What happened, in order. Step runs in it may not have ended.
        status: ``None`` if the execution has not ended.
        failing: The fact that failed it, if any.
        workload: The workload it started with, defaults included.

    Raises:
        NotReady: if the journal was written by a newer format.
    """

    def __init__(self, execution_id: str, journal: Iterable[JournalRow]) -> None:
        self.execution_id = execution_id
        self.facts: list[ReusedFact] = []
        self.digest = ""
        self.status: str | None = None
        self.failing: events.ExecutionFailing | None = None
        self.workload: dict[str, Any] = {}
        self._state: Execution | None = None
        self._is_ending = False
        self._discarded: list[events.TokenDiscarded] = []
        for recorded in recorded_facts(execution_id, journal):
            self._record(recorded)

    def _record(self, recorded: RecordedFact) -> None:
        fact = recorded.fact
        if isinstance(fact, events.ExecutionFailing | events.CancelRequested | events.ExecutionFinished):
            self._end(fact)
            return
        if self._is_ending and (recorded.run is None or isinstance(fact, events.StepFailed)):
            return  # work that succeeded before the stop reached its worker counts
        before = self._state
        after = self._state = evolve(before, recorded, self.execution_id)
        if after is before or after is None:
            return
        if isinstance(fact, events.ExecutionRequested):
            self.digest = fact.digest
        elif isinstance(fact, events.ExecutionStarted):
            self.workload = fact.workload
        elif before is not None:
            self.facts += self._done(before, after, recorded)

    def _end(self, fact: events.ExecutionFailing | events.CancelRequested | events.ExecutionFinished) -> None:
        if isinstance(fact, events.ExecutionFinished):
            self.status = fact.status
        elif isinstance(fact, events.ExecutionFailing) and not self._is_ending:
            self.failing = fact
            last = self.facts[-1] if self.facts else None
            if isinstance(last, events.NextEvaluated) and last.step_run_id == fact.failed_run:
                self.facts.pop()  # this routing had no handler: it failed the execution
        self._is_ending = True

    def _done(self, before: Execution, after: Execution, recorded: RecordedFact) -> Iterator[ReusedFact]:
        fact = recorded.fact
        discarded, self._discarded = self._discarded, []
        if isinstance(fact, events.TokenEnqueued):
            if fact.joined:
                yield from discarded  # discarded so that this join could fire
            yield fact
        elif isinstance(fact, events.TokenClaimed | events.NextEvaluated):
            yield replace(fact, guards=[])
        elif isinstance(fact, events.TokenDiscarded):
            if before.tokens[fact.token_id].keeps_alive:  # its admission timed out
                yield fact
            else:
                self._discarded = [*discarded, fact]
        elif isinstance(fact, events.TokenAbsorbed | events.CtxPatched):
            yield fact
        elif isinstance(fact, events.TaskProcessed) and recorded.run is not None:
            yield from _patched(before, before.assignments[recorded.run.command_id].step_run_id, fact)
        elif isinstance(fact, events.StepDone | events.StepFailed | events.LoopDone):
            yield from _ended(before, after, fact)
        elif isinstance(fact, events.ExecutionReused):
            yield from fact.entries


def _patched(before: Execution, step_run_id: str, fact: events.TaskProcessed) -> Iterator[ReusedFact]:
    at_once = list(fact.set_shared.items()) if before.runs[step_run_id].loop is None else []
    if fact.set_ctx or at_once:
        yield StepPatched(step_run_id, fact.set_ctx, at_once)


def _ended(
    before: Execution, after: Execution, fact: events.StepDone | events.StepFailed | events.LoopDone
) -> Iterator[ReusedFact]:
    run = after.runs[fact.step_run_id]
    if not run.ended:
        return  # an inner loop, not the step
    contributions = iter(contributions_of(before.runs[fact.step_run_id]))
    while some := list(islice(contributions, CONTRIBUTIONS_AT_ONCE)):
        yield StepPatched(run.step_run_id, shared=some)
    value = after.steps[run.step] if run.error is None else None
    last, others = _last(value) if value is not None else ("", {})
    outcome = None if value is None else value.outcome
    name: Any = run.ended
    yield StepReused(
        step_run_id=run.step_run_id,
        ended=name,
        outcome=outcome,
        task=last,
        others=others,
        error=run.error,
        vars=run.vars,
        loop=_counts(run),
    )


def _last(value: StepValue) -> tuple[str, dict[str, Outcome]]:
    """The task whose outcome is the step's (``""`` for a loop), and the outcomes of the other tasks."""
    last = next((task for task, outcome in value.results.items() if outcome is value.outcome), "")
    return last, {task: outcome for task, outcome in value.results.items() if task != last}


def _counts(run: StepRun) -> LoopCounts | None:
    loop = run.loop
    return None if loop is None else LoopCounts(loop.count, loop.ok, loop.failed, loop.skipped)
