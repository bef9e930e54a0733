"""The effects of an input and its decisions, derived from the states before and after."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from noetl_stream.engine.effects import (
    AddTerms,
    AnswerStart,
    DropTimer,
    Effect,
    IssueCommand,
    SendMessage,
    SetTimer,
    StopWorkers,
    UseObject,
    WithdrawCommand,
)
from noetl_stream.engine.effects.child_messages import child_message
from noetl_stream.engine.effects.commands import build_command
from noetl_stream.engine.state import Execution
from noetl_stream.model import events
from noetl_stream.model.messages import Stop
from noetl_stream.model.outcome import Outcome
from noetl_stream.model.search_terms import error_terms, label_terms
from noetl_stream.playbook.plan import Plan

Rule = Callable[[Plan | None, Execution, Any, int], Iterable[Effect]]


def effects_of(
    plan: Plan | None, before: Execution | None, after: Execution, facts: Sequence[events.Fact]
) -> Sequence[Effect]:
    """The effects of ``facts``, an input and its decisions, that led from ``before`` to ``after``.

    A command that is scheduled and cancelled by the same facts is never issued.

    Args:
        plan: ``None`` if the playbook cannot run.
    """
    effects: list[Effect] = []
    for position, fact in enumerate(facts, after.position - len(facts) + 1):
        rule = _RULES.get(type(fact))
        if rule is not None:
            effects += rule(plan, after, fact, position)
    if before is None or before.timers is not after.timers:
        effects += _timers(before, after)
    if (before is None or before.request is not None) and after.request is None and after.parent is None:
        # A rerun is answered once it is clear whether it can start.
        effects.append(AnswerStart(after.refused))
    return effects


def _timers(before: Execution | None, after: Execution) -> Iterator[Effect]:
    had = before.timers if before is not None else {}
    yield from map(DropTimer, had.keys() - after.timers.keys())
    for timer_id, timer in after.timers.items():
        if had.get(timer_id) is not timer:
            yield SetTimer(timer_id, timer)


def _scheduled(plan: Plan | None, state: Execution, fact: events.StepScheduled, _position: int) -> Iterator[Effect]:
    assignment = state.assignments.get(fact.command_id)
    if plan is not None and assignment is not None and assignment.issue == fact.issue:
        yield IssueCommand(build_command(plan, state, assignment))


def _cancelled(_plan: Plan | None, state: Execution, fact: events.StepCancelled, _position: int) -> Iterator[Effect]:
    if fact.command_id not in state.assignments:
        yield WithdrawCommand(fact.command_id)
    yield StopWorkers(Stop(state.execution_id, [fact.command_id], fact.reason))


def _paused(_plan: Plan | None, state: Execution, _fact: events.ExecutionPaused, _position: int) -> Iterator[Effect]:
    if state.assignments:
        yield StopWorkers(Stop(state.execution_id, list(state.assignments), "paused", pausing=True))


def _started(plan: Plan | None, _state: Execution, _fact: events.ExecutionStarted, _position: int) -> Iterator[Effect]:
    if plan is not None and plan.labels:
        yield AddTerms(frozenset(label_terms(plan.labels)))


def _finished(plan: Plan | None, state: Execution, fact: events.ExecutionFinished, position: int) -> Iterator[Effect]:
    if fact.outcome.error is not None:
        yield AddTerms(frozenset(error_terms(msgspec.structs.asdict(fact.outcome.error))))
    yield from _message(plan, state, fact, position)


def _message(_plan: Plan | None, state: Execution, fact: events.Fact, position: int) -> Iterator[Effect]:
    message = child_message(state, fact, position)
    if message is not None:
        yield SendMessage(position, message)


def _child_finished(
    _plan: Plan | None, state: Execution, fact: events.ChildFinished, _position: int
) -> Iterator[Effect]:
    return _used(state, (fact.outcome,))


def _reused(_plan: Plan | None, state: Execution, fact: events.ExecutionReused, _position: int) -> Iterator[Effect]:
    for entry in fact.entries:
        if isinstance(entry, events.StepReused):
            yield from _used(state, (entry.outcome, *entry.others.values()))


def _used(state: Execution, outcomes: Iterable[Outcome | None]) -> Iterator[Effect]:
    """Results of other executions enter the journal only here: workloads, patches and args are plain values, and
    workers store results of their own.
    """
    for outcome in outcomes:
        reference = outcome.result.reference if outcome is not None else None
        if reference is not None and reference.execution_id != state.execution_id:
            yield UseObject(reference)


_RULES: Final[dict[type[events.Fact], Rule]] = {
    events.StepScheduled: _scheduled,
    events.StepCancelled: _cancelled,
    events.ExecutionPaused: _paused,
    events.ExecutionStarted: _started,
    events.ExecutionFinished: _finished,
    events.ChildRequested: _message,
    events.ChildOrdered: _message,
    events.ChildFinished: _child_finished,
    events.ExecutionReused: _reused,
}
