"""A divergence in full: the facts on both sides, the deciding values, and where a token waits."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from noetl_stream.engine.scope import admission_scope, arc_scope
from noetl_stream.engine.state import Execution, StepRun
from noetl_stream.errors import NotFound
from noetl_stream.model import events
from noetl_stream.model.envelope import iso
from noetl_stream.model.events import Fact
from noetl_stream.model.json import codec
from noetl_stream.model.secrets.credential import Redactor
from noetl_stream.model.status import ENDED
from noetl_stream.operations.diff.alignment import NONE, Alignment, Difference
from noetl_stream.operations.diff.course import KINDS, Course, CourseRun, Parts, Targets, differences, parts_of
from noetl_stream.operations.diff.sentences import Subject, Told, sentence
from noetl_stream.operations.executions.reading.states import AscendingStates
from noetl_stream.operations.views.state import state_document
from noetl_stream.operations.waiting_on import GUARD_OPERATIONS, guard_document
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.operations.reading.diffs import VALUES_SHOWN, DivergenceDocument, DivergenceSideDocument
from noetl_stream.ports.operations.reading.views import PlacedTokenDocument
from noetl_stream.ports.operations.waits import GuardDocument
from noetl_stream.ports.stores.store import ExecutionRow, Store, StoredEvent
from noetl_stream.storage.used_secrets import Shown, hidden
from noetl_stream.template import Budget, Scope
from noetl_stream.template.runtime.scope import outcome_view

MOST_REPLAYED: Final = 5_000
"""The number of events that are replayed for the values of guards."""

ROW_VALUES: Final = 3
"""The number of values that are shown of an unexplained divergence."""

NOTHING_DONE: Final = DivergenceSideDocument(
    position=None, at=None, event=None, step_run_id=None, guards=[], place=None, waiting_on=None
)


class ComparedSide(msgspec.Struct, frozen=True):
    """One of the two executions, with its state as far as compared; ``plan`` only if its playbook compiles here."""

    name: str
    row: ExecutionRow
    plan: Plan | None
    course: Course
    state: Execution


class _Found(msgspec.Struct, frozen=True):
    event: StoredEvent
    fact: Fact
    parts: Parts


def targets_of(plan: Plan | None) -> Targets:
    """The targets of each step's arcs."""
    return {} if plan is None else {name: [arc.step for arc in step.arcs] for name, step in plan.steps.items()}


class Divergences:
    """
    Args:
        redactors: Hide secrets before a sentence cuts values off: a part of a secret is not found.
    """

    def __init__(
        self, store: Store, alignment: Alignment, a: ComparedSide, b: ComparedSide, redactors: Collection[Redactor]
    ) -> None:
        self._store = store
        self._redactors = redactors
        self._alignment = alignment
        self._sides = (a, b)

    async def document(self, one: Difference, *, explained: bool) -> DivergenceDocument:
        """
        Args:
            explained: Whether to include the values of guards, which must be replayed, and the waits.
        """
        (side_a, side_b), (run_a, run_b) = self._sides, self._alignment.pairs[one.pair]
        found_a, found_b = await self._fact(side_a, one.a), await self._fact(side_b, one.b)
        a = await self._side(side_a, found_a, run_a, explained)
        b = await self._side(side_b, found_b, run_b, explained)
        facts = [found for found in (found_a, found_b) if found is not None]
        most = VALUES_SHOWN if explained else ROW_VALUES
        like_a, like_b = side_a.course.like, side_b.course.like
        values = await asyncio.to_thread(differences, _values(found_a), _values(found_b), like_a, like_b, most)
        subject = Subject(facts[0].parts.kind, self._alignment.step_of(one.pair), _task(facts), _path(facts[0]))
        told = (_told(side_a, found_a, a), _told(side_b, found_b, b))
        return DivergenceDocument(
            kind=subject.kind,
            text=sentence(subject, *told, values),
            step=subject.step or None,
            task=subject.task,
            iteration=list(subject.iteration) or None,
            a=a,
            b=b,
            differences=values,
        )

    async def _fact(self, side: ComparedSide, number: int) -> _Found | None:
        """A fact of a course, read again from the journal."""
        if number == NONE:
            return None
        course, position = side.course, side.course.position_of[number]
        for event in await self._store.journal(course.execution_id, position - 1, 1):
            found = await asyncio.to_thread(self._found, side, number, event)  # results may be large
            if found is not None:
                return found
        raise NotFound(f"execution {course.execution_id} is being deleted")

    def _found(self, side: ComparedSide, number: int, event: StoredEvent) -> _Found | None:
        """The fact of a course in this event; ``None`` if the event has another."""
        course = side.course
        run = course.runs[course.run[number]]
        kind, data = KINDS[course.kind[number]], course.data[number]
        for fact in _held(codec.decode_fact(event.data)):
            if isinstance(fact, events.LoopDone) and kind == "end":
                fact = events.StepDone(fact.step_run_id)
            parts = parts_of(fact, run.step, side.course.targets)
            about = getattr(fact, "step_run_id", "") or run.step_run_id
            is_it = parts is not None and parts.kind == kind and about == run.step_run_id
            if parts and is_it and course.like.digest(parts.data) == data:
                return _Found(event, fact, parts._replace(data=self._hidden(parts.data)))
        return None

    async def _side(
        self, side: ComparedSide, found: _Found | None, number: int, explained: bool
    ) -> DivergenceSideDocument:
        run = None if number == NONE else side.course.runs[number]
        if found is None:
            waits = None if run is None or not explained else _waiting(side, run)
            if waits is None:
                return NOTHING_DONE
            waiting_on = await asyncio.to_thread(self._hidden, waits.waiting_on)
            return replace(NOTHING_DONE, place=waits.place, waiting_on=waiting_on)
        return DivergenceSideDocument(
            position=found.event.position,
            at=iso(found.event.at_ms),
            event=found.event.name,
            step_run_id=(run and run.step_run_id) or None,
            guards=await self._guards(side, found, run.step_run_id if run else "") if explained else [],
            place=None,
            waiting_on=None,
        )

    async def _guards(self, side: ComparedSide, found: _Found, step_run_id: str) -> list[GuardDocument]:
        """The guards that were evaluated there, with the values they read."""
        fact, plan = found.fact, side.plan
        recorded: list[events.EvaluatedGuard] = getattr(fact, "guards", [])
        if not recorded or plan is None:
            return []
        states = AscendingStates(self._store, side.row.execution_id, MOST_REPLAYED)
        if not await states.reach(found.event.position - 1) or states.state is None:
            return []
        state = replace(states.state, budget=Budget(GUARD_OPERATIONS))
        guards, scope = _guards_at(plan, state, fact, step_run_id)
        shown = []
        for one in recorded:
            guard, to = guards.get(one.rule, (None, None))
            if guard is None or scope is None:
                continue
            document = replace(guard_document(guard, scope, to=to), holds=one.value)
            document = await asyncio.to_thread(self._hidden, document)
            of_task = isinstance(fact, events.TaskProcessed)  # a journal lacks some of the values that its policy read
            shown.append(replace(document, missing=[]) if of_task else document)
        return shown

    def _hidden(self, value: Shown) -> Shown:
        for redactor in self._redactors:
            value = hidden(redactor, value)
        return value


def _held(fact: Fact) -> Iterator[Fact]:
    """The fact, or those that a rerun has taken over with it."""
    if not isinstance(fact, events.ExecutionReused):
        yield fact
        return
    yield from fact.entries
    if fact.token is not None:
        yield events.TokenEnqueued(fact.token, fact.joined)


def _told(side: ComparedSide, found: _Found | None, document: DivergenceSideDocument) -> Told:
    parts = None if found is None else found.parts
    return Told(side.name, parts, document, side.row.status if side.row.status in ENDED else "")


def _task(found: Sequence[_Found]) -> str | None:
    """The task of all these facts, if it is the same."""
    tasks = {one.fact.task if isinstance(one.fact, events.TaskProcessed) else None for one in found}
    return tasks.pop() if len(tasks) == 1 else None


def _path(found: _Found) -> events.Path:
    path: events.Path = getattr(found.fact, "path", ())
    return path


def _values(found: _Found | None) -> dict[str, Any]:
    return {} if found is None else {**found.parts.choice, **found.parts.data}


def _waiting(side: ComparedSide, run: CourseRun) -> PlacedTokenDocument | None:
    """The place of a run's token, or of its step run."""
    if side.row.status in ENDED:
        return None
    tokens = state_document(side.state, side.plan, side.row.position, None).tokens
    ids = {run.token_id, run.step_run_id or run.token_id}
    return next((one for one in tokens if one.token_id in ids or one.step_run_id in ids), None)


def _guards_at(
    plan: Plan, state: Execution, fact: Fact, step_run_id: str
) -> tuple[Mapping[int, tuple[Any, str | None]], Scope | None]:
    """The guards of a choice by number, each with its target step; and the values they read."""
    run = state.runs.get(step_run_id)
    if isinstance(fact, events.TokenClaimed) and fact.token_id in state.tokens:
        token = state.tokens[fact.token_id].token
        admit = plan.steps[token.step].admit
        rules = () if admit is None else admit.rules
        return {number: (rule.guard, None) for number, rule in enumerate(rules)}, admission_scope(plan, state, token)
    if run is None:
        return {}, None
    step = plan.steps[run.step]
    if isinstance(fact, events.NextEvaluated):
        return {number: (arc.guard, arc.step) for number, arc in enumerate(step.arcs)}, arc_scope(plan, state, run)
    if isinstance(fact, events.TaskProcessed):
        policy = next((task.policy for task in step.tasks if task.name == fact.task), None)
        judging = () if policy is None else policy.rules
        return {number: (rule.guard, None) for number, rule in enumerate(judging)}, _policy_scope(state, run, fact)
    return {}, None


def _policy_scope(state: Execution, run: StepRun, fact: events.TaskProcessed) -> Scope:
    """The values that the policy of a task read, as far as a journal has them."""
    known = {
        "workload": state.workload,
        "ctx": {**run.ctx, **run.patches},
        "args": run.token.args,
        "execution_id": state.execution_id,
        "execution": state.execution,
        "outcome": outcome_view(fact.outcome, None),
        "_task": fact.task,
        "_attempt": fact.attempt,
    }
    return Scope(known, state.resolved, state.limits, state.budget)
