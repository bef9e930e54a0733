"""``evolve``: the state after a fact. Total and guarded (DESIGN §3).

A late, repeated or stale fact returns the same value, and therefore has no consequences. Worker facts go through
:mod:`.worker_facts`, client requests through ``take_once``, all others through the tables below.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import force_setattr, replace

from noetl_stream.engine.evolve import Rules, closing, executions, loops, quotas, step_runs, suspensions, tokens
from noetl_stream.engine.evolve.worker_facts import evolve_reported
from noetl_stream.engine.state import Execution, RecordedFact
from noetl_stream.model import events
from noetl_stream.model.events import Fact
from noetl_stream.model.outcome import EXECUTION, Reference

SERVER_RULES: Final[Rules] = {
    **executions.RULES,
    **closing.RULES,
    **quotas.RULES,
    **tokens.RULES,
    **step_runs.RULES,
    **loops.RULES,
    **suspensions.RULES,
}
"""The rules for the server's own facts: its decisions and its inputs."""


def evolve(state: Execution | None, recorded: RecordedFact, execution_id: str) -> Execution | None:
    """The state after ``recorded``, at its last position; the same value if it changes nothing.

    Args:
        state: ``None`` before ``execution.requested``.
        execution_id: The execution the state belongs to.
    """
    if state is None:
        return _begin(recorded, execution_id)
    if state.ended and type(recorded.fact) is not events.PlaybookProcessed:
        return state
    before = state if recorded.at_ms <= state.at_ms else replace(state, at_ms=recorded.at_ms)
    after = evolve_reported(before, recorded) if recorded.run is not None else _apply(before, recorded)
    if after is before:
        return state
    force_setattr(after, "position", state.position + recorded.fact.width)  # a rule has just made it: needs no copy
    return after


def evolve_decision(state: Execution, fact: Fact) -> Execution:
    """The state after a decision of the server; the same value if it changes nothing."""
    if state.ended and type(fact) is not events.PlaybookProcessed:
        return state
    after = _apply_own(state, fact)
    if after is not state:
        force_setattr(after, "position", state.position + fact.width)  # as above
    return after


def _apply(state: Execution, recorded: RecordedFact) -> Execution:
    fact = recorded.fact
    if isinstance(fact, events.ReferenceResolved):
        return executions.on_reference_resolved(state, fact, recorded.value)
    return _apply_own(state, fact)


def _apply_own(state: Execution, fact: Fact) -> Execution:
    if (rule := SERVER_RULES.get(type(fact))) is not None:
        return rule(state, fact)
    return executions.take_once(state, fact) if isinstance(fact, events.ClientRequest) else state


def _begin(recorded: RecordedFact, execution_id: str) -> Execution | None:
    fact = recorded.fact
    if not isinstance(fact, events.ExecutionRequested):
        return None
    state = Execution(
        execution_id,
        fact.request_id,
        fact.digest,
        path=fact.path,
        workload=fact.workload,
        trace_id=fact.trace_id,
        principal=fact.principal,
        at_ms=recorded.at_ms,
        parent=fact.parent,
        request=fact,
        caller_span=fact.caller_span,
        origin=fact.origin,
        shared_keys=tuple(fact.shared_keys),
        caller_keys=tuple(fact.caller_keys),
        due=fact.due,
        requested_ms=recorded.at_ms,
    )
    if fact.rerun is None:
        return state
    original = fact.rerun.of
    return replace(state, rerun_of=original, awaited=Reference(EXECUTION, original, 0))
