"""Reuse: a rerun keeps all of its original but the chosen step run and its descendants (LANGUAGE §9 *Rerun*).

A step run that never ended, or that failed the execution, starts again with the same token. Tokens that no reused step
run
has consumed stay in place, and ask for admission or join again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from noetl_stream.engine.decide.executions import no_step
from noetl_stream.engine.decide.loops import split_pages
from noetl_stream.engine.evolve.dispatch import evolve
from noetl_stream.engine.evolve.step_runs import contributions_of
from noetl_stream.engine.replay import JournalRow, recorded_facts
from noetl_stream.engine.state import Execution, LoopState, RecordedFact
from noetl_stream.model import events
from noetl_stream.model.events import Fact, Rerun, ReusedFact, Token
from noetl_stream.model.ids import derive
from noetl_stream.model.json import codec
from noetl_stream.model.priorities import DEFAULT_PRIORITY
from noetl_stream.model.status import RejectionCode
from noetl_stream.playbook.plan import Plan

MOST_BYTES_OF_AN_ENTRY: Final = 2 * 1024 * 1024
"""The most facts of a reusable step run: a journal entry is published as one message."""


class _Refused(Exception):
    def __init__(self, code: RejectionCode, text: str) -> None:
        super().__init__(code, text)


class _StartingPoint(NamedTuple):
    """The starting point of a rerun: a token, and the step run that consumed it (``""`` if none has)."""

    token: Token
    step_run_id: str = ""


def reuse(
    plan: Plan, execution_id: str, request: events.ExecutionRequested, original: JournalSummary
) -> Sequence[Fact]:
    """The inputs that start the rerun ``execution_id``: pages of ``execution.reused``, or one ``rerun.refused``."""
    rerun = request.rerun
    assert rerun is not None
    try:
        if rerun.undoes:
            return tuple(_undoing_pages(plan, request, original))
        return tuple(_pages(plan, execution_id, rerun, request.digest, original))
    except _Refused as refused:
        return (events.RerunRefused(*refused.args),)


def _pages(
    plan: Plan, execution_id: str, rerun: Rerun, digest: str, original: JournalSummary
) -> Iterator[events.ExecutionReused]:
    _check_digest(rerun, digest, original)
    if original.undoes:
        text = f"execution {rerun.of} has undone another, and ran nothing itself: rerun that one"
        raise _Refused("undone", text)
    lineage = _Lineage(original.facts)
    chosen = _choose(plan, rerun, original, lineage)
    kept = lineage.drop_descendants(chosen)
    _check_undone(plan, original, lineage, kept)
    pages = list(_split_pages(kept, rerun.of, plan.limits.max_reused_bytes)) or [[]]
    token = chosen.token
    joined = lineage.enqueued[token.token_id].joined
    args = token.args if rerun.args is None else rerun.args
    token = replace(token, token_id=derive(execution_id, "rerun"), cause="rerun", args=args)
    yield from _numbered(rerun.of, pages, original, token=token, joined=joined)


def _undoing_pages(
    plan: Plan, request: events.ExecutionRequested, original: JournalSummary
) -> Iterator[events.ExecutionReused]:
    """The inputs of an execution that undoes the rest of the original."""
    rerun = request.rerun
    assert rerun is not None
    _check_digest(rerun, request.digest, original)
    facts = [
        replace(fact, undone=True)
        if isinstance(fact, events.StepReused) and fact.step_run_id in original.undone
        else fact
        for fact in original.facts
    ]
    steps = _Lineage(facts).runs
    left = [
        fact
        for fact in facts
        if isinstance(fact, events.StepReused) and fact.outcome is not None and not fact.undone
        if plan.undoes.get(steps[fact.step_run_id].step) or fact.called
    ]
    if request.parent is None and original.status == "completed" and not original.undoes:
        text = f"execution {rerun.of} has completed: only one that failed or was cancelled is undone"
        raise _Refused("not_failed", text)
    if request.parent is None and not left:
        raise _Refused("nothing_to_undo", f"nothing is left to undo of execution {rerun.of}")
    pages = list(_split_pages(facts, rerun.of, plan.limits.max_reused_bytes)) or [[]]
    yield from _numbered(rerun.of, pages, original, undoes=True)


def _check_digest(rerun: Rerun, digest: str, original: JournalSummary) -> None:
    if original.digest != digest:
        text = f"execution {rerun.of} ran the playbook {original.digest}, not {digest}"
        raise _Refused("version_mismatch", text)


def _check_undone(plan: Plan, original: JournalSummary, lineage: _Lineage, kept: list[ReusedFact]) -> None:
    """Raises a refusal if a reused step run was undone."""
    undone = [
        lineage.runs[fact.step_run_id].step
        for fact in kept
        if isinstance(fact, events.StepReused)
        if fact.step_run_id in original.undone
        or (original.undone_by and (fact.called or plan.undoes.get(lineage.runs[fact.step_run_id].step)))
    ]
    if undone:
        by = f" by execution {original.undone_by}" if original.undone_by else ""
        names = ", ".join(dict.fromkeys(undone))
        text = f"step runs that would be reused were undone{by}: rerun from {undone[0]}, or before; undone: {names}"
        raise _Refused("undone", text)


def _numbered(
    of: str, pages: list[list[ReusedFact]], original: JournalSummary, **last: Any
) -> Iterator[events.ExecutionReused]:
    pinned: dict[str, Any] = {"workload": original.workload, "schemas": original.schemas, "priority": original.priority}
    pinned |= {"due": original.due}
    for number, page in enumerate(pages):
        more = {**pinned, **last} if number == len(pages) - 1 else {}
        yield events.ExecutionReused(of, page, number, **more)


class _Lineage:
    """Tokens and step runs of the original, with their descent."""

    def __init__(self, facts: Sequence[ReusedFact]) -> None:
        self.facts = facts
        self.enqueued = {fact.token.token_id: fact for fact in facts if isinstance(fact, events.TokenEnqueued)}
        claims = [fact for fact in facts if isinstance(fact, events.TokenClaimed)]
        self.runs = {fact.step_run_id: self.enqueued[fact.token_id].token for fact in claims}
        self.claimed = {fact.token_id for fact in claims}
        reused = [fact for fact in facts if isinstance(fact, events.StepReused)]
        routed = {fact.step_run_id for fact in facts if isinstance(fact, events.NextEvaluated)}
        self.ended = {fact.step_run_id for fact in reused if fact.outcome is not None or fact.step_run_id in routed}

    def drop_descendants(self, chosen: _StartingPoint) -> list[ReusedFact]:
        """The facts without the chosen token, its descendants and the step runs that start again."""
        gone = {chosen.token.token_id, chosen.step_run_id}
        waves: dict[str, int] = {}
        kept: list[ReusedFact] = []
        discarded: list[ReusedFact] = []
        for fact in self.facts:
            reused = self._is_reused(fact, gone, waves)
            if isinstance(fact, events.TokenDiscarded):
                discarded += [fact] if reused else []
                continue
            join = fact.token.token_id if isinstance(fact, events.TokenEnqueued) and fact.joined else ""
            if reused or join in ("", chosen.token.token_id):  # a discard that let a join fire goes with the join
                kept += discarded
            discarded = []
            kept += [fact] if reused else []
        return kept + discarded

    def _is_reused(self, fact: ReusedFact, gone: set[str], waves: dict[str, int]) -> bool:
        """Whether ``fact`` is reused; if not, ``gone`` and ``waves`` record what is dropped with it."""
        if isinstance(fact, events.CtxPatched):
            return True
        if isinstance(fact, events.TokenEnqueued):
            token = fact.token
            if token.token_id in gone:
                return False
            if token.from_step_run_id in gone or not gone.isdisjoint(fact.joined):
                gone.add(token.token_id)
                return False
            if fact.joined:
                waves[token.step] = token.waves[token.step]
            return True
        if isinstance(fact, events.TokenClaimed):
            reused = fact.token_id not in gone and fact.step_run_id in self.ended
            if not reused:
                gone.add(fact.step_run_id)
            return reused
        if isinstance(fact, events.TokenAbsorbed):
            token = self.enqueued[fact.token_id].token
            return fact.token_id not in gone and token.waves.get(token.step, 0) < waves.get(token.step, 0)
        if isinstance(fact, events.TokenDiscarded):
            return fact.token_id not in gone
        return fact.step_run_id not in gone


def _choose(plan: Plan, rerun: Rerun, original: JournalSummary, lineage: _Lineage) -> _StartingPoint:
    if rerun.step_run_id is not None:
        return _choose_run(rerun, rerun.step_run_id, lineage)
    if rerun.step is None:
        return _choose_failed(rerun, original, lineage)
    if rerun.step not in plan.steps:
        missing = no_step(plan, rerun.step)
        raise _Refused(missing.code, missing.text)
    for step_run_id, token in reversed(lineage.runs.items()):
        if token.step == rerun.step:
            return _StartingPoint(token, step_run_id)
    for token_id, fact in reversed(lineage.enqueued.items()):
        is_waiting = token_id not in lineage.claimed and (plan.steps[rerun.step].join is None or bool(fact.joined))
        if fact.token.step == rerun.step and is_waiting:
            return _StartingPoint(fact.token)
    raise _Refused("never_ran", f"execution {rerun.of} never reached step {rerun.step}")


def _choose_run(rerun: Rerun, step_run_id: str, lineage: _Lineage) -> _StartingPoint:
    token = lineage.runs.get(step_run_id)
    if token is None or rerun.step not in (None, token.step):
        step = f" of step {rerun.step}" if rerun.step is not None else ""
        raise _Refused("unknown_step", f"execution {rerun.of} has no run {step_run_id}{step}")
    return _StartingPoint(token, step_run_id)


def _choose_failed(rerun: Rerun, original: JournalSummary, lineage: _Lineage) -> _StartingPoint:
    failing = original.failing
    if original.status != "failed":
        raise _Refused("not_failed", f"execution {rerun.of} has not failed: its status is {original.status}")
    if failing is not None and failing.failed_run in lineage.runs:
        return _StartingPoint(lineage.runs[failing.failed_run], failing.failed_run)
    if failing is not None and failing.failed_token in lineage.enqueued:
        return _StartingPoint(lineage.enqueued[failing.failed_token].token)
    text = f"no step run failed execution {rerun.of}: name the step to rerun from"
    raise _Refused("not_failed", text)


def _split_pages(facts: list[ReusedFact], original: str, most_bytes: int) -> Iterator[list[ReusedFact]]:
    sizes = [len(codec.encode(fact)) + 1 for fact in facts]
    largest, total = max(sizes, default=0), sum(sizes)
    if largest > MOST_BYTES_OF_AN_ENTRY:
        text = f"a step run of execution {original} has {largest} bytes to reuse; the most is {MOST_BYTES_OF_AN_ENTRY}"
        raise _Refused("too_large", text)
    if total > most_bytes:
        text = f"the reused part of execution {original} exceeds limits.max_reused_bytes ({most_bytes})"
        raise _Refused("too_large", text)
    return split_pages(facts, total)


CONTRIBUTIONS_AT_ONCE: Final = 500
"""The most contributions to shared keys in one entry."""


_Ending = events.ExecutionFailing | events.CancelRequested | events.ExecutionClosing | events.ExecutionFinished


class JournalSummary:
    """A summary of one execution's journal.

    Attributes:
        facts: The reusable facts, in order; their step runs may be unfinished.
        status: ``None`` if the execution has not ended.
        failing: The fact that failed the execution, if any.
        workload: The workload it started with, defaults included.
        schemas: The digests of the schemas it started with, by address.
        due: The time it was due, for an occurrence of a schedule; else empty.
        undone: The step runs that it has undone.
        undoes: Whether it only undid another execution.
        undone_by: The execution that undid it.

    Raises:
        NotReady: if the journal was written by a newer format.
    """

    def __init__(self, execution_id: str, journal: Iterable[JournalRow], undone_by: str = "") -> None:
        self.execution_id = execution_id
        self.facts: list[ReusedFact] = []
        self.digest = ""
        self.status: str | None = None
        self.failing: events.ExecutionFailing | None = None
        self.workload: dict[str, Any] = {}
        self.schemas: dict[str, str] = {}
        self.priority = DEFAULT_PRIORITY
        self.due = ""
        self.undone: frozenset[str] = frozenset()
        self.undoes = False
        self.undone_by = undone_by
        self._state: Execution | None = None
        self._is_ending = False
        self._discarded: list[events.TokenDiscarded] = []
        for recorded in recorded_facts(execution_id, journal):
            self._record(recorded)

    def _record(self, recorded: RecordedFact) -> None:
        fact = recorded.fact
        if isinstance(fact, _Ending):
            self._end(fact)
            return
        if self._is_ending and (recorded.run is None or isinstance(fact, events.StepFailed)):
            return  # work counts that succeeded before the stop reached its worker
        before = self._state
        after = self._state = evolve(before, recorded, self.execution_id)
        if after is before or after is None:
            return
        if isinstance(fact, events.ExecutionRequested):
            self.digest = fact.digest
            self.undoes = fact.rerun is not None and fact.rerun.undoes
        elif isinstance(fact, events.ExecutionStarted):
            self.workload, self.schemas, self.priority = fact.workload, fact.schemas, fact.priority
            self.due = after.due
        elif before is not None:
            self.facts += self._reusable(before, after, recorded)

    def _end(self, fact: _Ending) -> None:
        if isinstance(fact, events.ExecutionFinished):
            self.status = fact.status
            self.undone = frozenset(one.step_run_id for one in fact.compensations if one.undone)
        elif isinstance(fact, events.ExecutionFailing) and not self._is_ending:
            self.failing = fact
            last = self.facts[-1] if self.facts else None
            if isinstance(last, events.NextEvaluated) and last.step_run_id == fact.failed_run:
                self.facts.pop()  # this routing had no handler and failed the execution
        self._is_ending = True

    def _reusable(self, before: Execution, after: Execution, recorded: RecordedFact) -> Iterator[ReusedFact]:
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
            yield from _patch_facts(before, before.assignments[recorded.run.command_id].step_run_id, fact)
        elif isinstance(fact, events.StepDone | events.StepFailed | events.LoopDone):
            yield from _end_facts(before, after, fact)
        elif isinstance(fact, events.ExecutionReused):
            yield from fact.entries


def _patch_facts(before: Execution, step_run_id: str, fact: events.TaskProcessed) -> Iterator[ReusedFact]:
    at_once = list(fact.set_shared.items()) if before.runs[step_run_id].loop is None else []
    if fact.set_ctx or at_once:
        yield events.StepPatched(step_run_id, fact.set_ctx, at_once)


def _end_facts(
    before: Execution, after: Execution, fact: events.StepDone | events.StepFailed | events.LoopDone
) -> Iterator[ReusedFact]:
    run = after.runs[fact.step_run_id]
    if not run.ended:
        return  # an inner loop, not the step
    contributions = iter(contributions_of(before.runs[fact.step_run_id]))
    while some := list(islice(contributions, CONTRIBUTIONS_AT_ONCE)):
        yield events.StepPatched(run.step_run_id, shared=some)
    value = after.steps[run.step] if run.error is None else None
    outcome, results = (value.outcome, value.results) if value is not None else (None, {})
    last = next((task for task, each in results.items() if each is outcome), "")
    loop, noted = run.loop, after.compensable.get(run.step_run_id)
    name: Any = run.ended
    yield events.StepReused(
        step_run_id=run.step_run_id,
        ended=name,
        outcome=outcome,
        task=last,
        others={task: each for task, each in results.items() if task != last},
        error=run.error,
        vars=run.vars,
        loop=None if loop is None else _counts(loop),
        called=[] if noted is None else list(noted.called),
    )


def _counts(loop: LoopState) -> events.LoopCounts:
    return events.LoopCounts(loop.count, loop.ok, loop.failed, loop.skipped, loop.failed_leaves)
