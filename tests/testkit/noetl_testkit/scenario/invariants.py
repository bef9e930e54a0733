"""Invariants of the engine, checked after every fact (DESIGN §3, PROTOCOL §1, §2)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from noetl_stream.engine.advance import Advanced
from noetl_stream.engine.decide.quiescence import at_quiescence
from noetl_stream.engine.evolve.dispatch import evolve
from noetl_stream.engine.state import Assignment, Execution, RecordedFact
from noetl_stream.model.events import ChildOrdered, Fact, StepEmitted, TimerSet, TokenEnqueued, Wait
from noetl_stream.model.events.composite import expand
from noetl_stream.model.ids import timer_of
from noetl_stream.playbook.plan import Plan
from noetl_stream.template import Budget, ReferenceNeeded

TRACELESS: Final = (TokenEnqueued, TimerSet, ChildOrdered, StepEmitted)
"""Decisions without a lasting trace in the state: only their position keeps them from being repeated."""


class InvariantBroken(AssertionError):
    """The engine broke an invariant; the message names the invariant and the fact."""


def check_invariants(
    plan: Plan, before: Execution | None, recorded: RecordedFact, advanced: Advanced, *, position: int
) -> None:
    """Checks the invariants for one step of an execution.

    Args:
        position: The position of the last journal entry before it.

    Raises:
        InvariantBroken: an invariant does not hold.
    """
    fact, after = recorded.fact, advanced.state
    if not advanced.taken:
        if after is not before or advanced.journal:
            raise InvariantBroken(f"no change, no consequence: {fact} changed nothing, but something followed")
        return
    if after is None:
        raise InvariantBroken(f"{fact} was taken but left no state")
    expected = position + fact.width + sum(one.width for one in advanced.journal)
    if after.position != expected:
        raise InvariantBroken(f"positions have no holes: after {fact} at {after.position} instead of {expected}")
    if any(one.width > 1 for one in (fact, *advanced.journal)) and _by_parts(before, recorded, advanced) != after:
        raise InvariantBroken(
            f"a composite fact does what those do that it stands for: {fact} or what follows does not"
        )
    if missed := missed_decisions(plan, after):
        raise InvariantBroken(f"at quiescence nothing follows: {missed} after {fact}")
    if stuck := _stuck(after):
        raise InvariantBroken(f"every waiting state names what will end it: {stuck} does not, after {fact}")
    for repeated in (recorded, *map(RecordedFact, advanced.journal)):
        if type(repeated.fact) not in TRACELESS and evolve(after, repeated, after.execution_id) is not after:
            raise InvariantBroken(f"a repeated fact changes nothing: {repeated.fact} did")


def _by_parts(before: Execution | None, recorded: RecordedFact, advanced: Advanced) -> Execution | None:
    """The state after the facts that an input and its decisions stand for."""
    after = advanced.state
    assert after is not None
    state, number = before, recorded.number
    for part in expand(after.execution_id, recorded.fact):
        state = evolve(state, replace(recorded, fact=part, number=number), after.execution_id)
        number += 1
    for part in (part for fact in advanced.journal for part in expand(after.execution_id, fact)):
        state = evolve(state, RecordedFact(part), after.execution_id)
    return state


def missed_decisions(plan: Plan, state: Execution) -> Sequence[Fact]:
    """What follows from a state that should be quiescent, whatever its templates cost."""
    unbounded = replace(state, budget=Budget(sys.maxsize))
    try:
        return at_quiescence(plan, unbounded)
    except ReferenceNeeded:
        return ()  # the previous server had the value: its decisions remain


def _stuck(state: Execution) -> str:
    """What is live but can never proceed."""
    if state.ended or state.halted or state.status != "running":
        return ""
    for suspended in state.suspensions.values():
        for wait in suspended.waits.values():
            if not _names_its_end(state, suspended, wait):
                return f"{wait}"
    held = [waiting for waiting in state.tokens.values() if waiting.keeps_alive]
    lacking = [one for one in held if timer_of(one.token.token_id, "admission") not in state.timers]
    if lacking:
        return f"{lacking[0]}"
    if unending := [branch for branch in state.resting if timer_of(branch, "next") not in state.timers]:
        return f"the branch of step run {unending[0]}"
    undoes = bool(state.children) and timer_of(state.execution_id, "compensation") in state.timers
    waits = held or undoes or any(not slot.granted for slot in state.slots.values())
    return "" if state.assignments or state.suspensions or state.resting or waits else "the execution"


def _names_its_end(state: Execution, suspended: Assignment, wait: Wait) -> bool:
    is_timed = timer_of(suspended.command_id, "wait", wait.path) in state.timers
    return (
        is_timed
        or wait.slot_id in state.slots
        or (wait.child is not None and wait.child.execution_id in state.children)
    )
