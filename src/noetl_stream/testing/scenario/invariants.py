"""What must hold of the engine after every fact (DESIGN §3, PROTOCOL §1, §2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noetl_stream.engine.advance import Advanced
from noetl_stream.engine.decide.quiescence import at_quiescence
from noetl_stream.engine.evolve.dispatch import evolve
from noetl_stream.engine.ids import timer_of
from noetl_stream.engine.state import Assignment, Execution, RecordedFact
from noetl_stream.model.events import ChildOrdered, Fact, TimerSet, TokenEnqueued, Wait
from noetl_stream.playbook.plan import Plan
from noetl_stream.template import ReferenceNeeded

TRACELESS: Final = (TokenEnqueued, TimerSet, ChildOrdered)
"""Decisions that leave no trace once what they brought is gone: only their position keeps them from coming back."""


class InvariantBroken(AssertionError):
    """The engine broke one of its own laws; the message says which, and at which fact."""


def hold_against_the_laws(
    plan: Plan, before: Execution | None, recorded: RecordedFact, advanced: Advanced, *, position: int
) -> None:
    """Holds one step of an execution against them.

    Args:
        position: Of the last journal entry before it.

    Raises:
        LawBroken: one does not hold.
    """
    fact, after = recorded.fact, advanced.state
    if not advanced.taken:
        if after is not before or advanced.journal:
            raise InvariantBroken(f"no change, no consequence: {fact} changed nothing and yet something followed")
        return
    if after is None:
        raise InvariantBroken(f"{fact} was taken and left no state")
    expected = position + 1 + len(advanced.journal)
    if after.position != expected:
        raise InvariantBroken(f"positions have no holes: after {fact} at {after.position} instead of {expected}")
    if left_out := _left_out(plan, after):
        raise InvariantBroken(f"at rest nothing follows: {left_out} after {fact}")
    if stuck := _stuck(after):
        raise InvariantBroken(f"every waiting state names what will end it: {stuck} does not, after {fact}")
    for repeated in (recorded, *map(RecordedFact, advanced.journal)):
        if type(repeated.fact) not in TRACELESS and evolve(after, repeated, after.execution_id) is not after:
            raise InvariantBroken(f"a repeated fact changes nothing: {repeated.fact} did")


def _left_out(plan: Plan, state: Execution) -> Sequence[Fact]:
    try:
        return at_quiescence(plan, state)
    except ReferenceNeeded:
        return ()  # a value the server before this one had: what was decided by it stands


def _stuck(state: Execution) -> str:
    """What lives and will never be moved by anything."""
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
    return "" if state.assignments or state.suspensions or held else "the execution"


def _names_its_end(state: Execution, suspended: Assignment, wait: Wait) -> bool:
    is_timed = timer_of(suspended.command_id, "wait", wait.path) in state.timers
    return is_timed or (wait.child is not None and wait.child.execution_id in state.children)
