"""What follows once nothing else does: loops move, held tokens are tried again, an execution ends (LANGUAGE §4, §9)."""

from __future__ import annotations

from collections.abc import Sequence

from noetl_stream.engine.admission import admit, expression_failure, too_large
from noetl_stream.engine.looping import move_loop
from noetl_stream.engine.scope import result_scope
from noetl_stream.engine.state import Execution
from noetl_stream.model import codec
from noetl_stream.model.events import ExecutionFinished, Fact, TokenDiscarded
from noetl_stream.model.outcome import ErrorInfo, Outcome
from noetl_stream.model.reference import Payload
from noetl_stream.playbook.plan import Plan
from noetl_stream.template import ExpressionError, ReferenceNeeded, render


def at_rest(plan: Plan, state: Execution) -> Sequence[Fact]:
    """The next facts of a state in which no fact is pending; nothing if it truly waits or has ended.

    Whatever this returns changes the state, so asking again until it returns nothing ends (tested after every fact).
    """
    if state.ended or state.status == "pending":
        return ()
    if state.failing is not None:
        if state.assignments:
            return ()
        return (ExecutionFinished("failed", Outcome("error", error=state.failing), state.discarded),)
    for run in state.runs.values():
        if run.loop is not None and (moved := move_loop(plan, state, run)):
            return moved
    if (follows := retry_held(plan, state)) is not None:
        return (follows,)
    if state.runs or any(not waiting.held for waiting in state.tokens.values()):
        return ()
    if state.tokens:
        reason = "nothing is left that could change its admission"
        return tuple(TokenDiscarded(token_id, reason) for token_id in state.tokens)
    return (_finish(plan, state),)


def retry_held(plan: Plan, state: Execution) -> Fact | None:
    """What follows for the first held token, in order of arrival, that need not stay held (LANGUAGE §4)."""
    if state.failing is not None or state.ended:
        return None
    again = (admit(plan, state, waiting) for waiting in state.tokens.values() if waiting.held)
    return next((follows for follows in again if follows is not None), None)


def _finish(plan: Plan, state: Execution) -> Fact:
    if plan.result is None:
        return ExecutionFinished("completed", Outcome("ok", _last_end(plan, state)), state.discarded)
    try:
        result = codec.payload_of(render(plan.result, result_scope(plan, state)))
    except ReferenceNeeded as needed:
        return _broken(state, expression_failure("executor.spec.result", too_large(str(plan.result.source), needed)))
    except ExpressionError as error:
        return _broken(state, expression_failure("executor.spec.result", error))
    if len(result.value) > state.limits.max_inline_bytes:
        text = f"the result has {len(result.value)} bytes; limits.max_inline_bytes is {state.limits.max_inline_bytes}"
        return _broken(state, ErrorInfo("result_too_large", text))
    return ExecutionFinished("completed", Outcome("ok", result), state.discarded)


def _broken(state: Execution, error: ErrorInfo) -> Fact:
    return ExecutionFinished("failed", Outcome("error", error=error), state.discarded)


def _last_end(plan: Plan, state: Execution) -> Payload:
    """Of the successful step runs that fired no arc, the result of the one whose step stands last in the file."""
    return next((state.ends[name] for name in reversed(list(plan.steps)) if name in state.ends), Payload())
