"""Changes at the end of an execution: what can be undone, and the outcome of undoing it (LANGUAGE §9 *Undoing*)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from noetl_stream.engine.evolve import Rules, with_undoing, without
from noetl_stream.engine.state import Closing, Compensable, Execution, StepRun
from noetl_stream.model import events
from noetl_stream.model.events import Compensation, Token
from noetl_stream.model.ids import undoing_of


def note_end(state: Execution, ended: StepRun) -> Execution:
    """The state after the end of a step run: a compensable one is recorded, a compensation marks its step run as
    undone.
    """
    token, error = ended.token, ended.error
    if token.cause == "compensation":
        undone = state.compensable.get(token.from_step_run_id or "")
        if undone is None:
            return state
        reason = "" if error is None else f"its compensation failed: {error.message}"
        return _with(state, token.from_step_run_id or "", replace(undone, undone=error is None, reason=reason))
    if state.undoing.undoes.get(ended.step) is None or (error is not None and not ended.started_ms):
        return state
    if error is None:
        return _noted(state, ended)
    if error.kind == "cancelled":
        return _noted(state, ended, "it was stopped, and may have had an effect")
    return _noted(state, ended, f"it failed, and may have had an effect: {error.message}")


def _noted(state: Execution, run: StepRun, reason: str = "") -> Execution:
    """Records a step run after all earlier ones. Without its own compensation, only its calls can be undone."""
    before = state.compensable.get(run.step_run_id)
    called = before.called if before is not None else ()
    has_own = state.undoing.undoes[run.step]
    if not has_own and not called and not state.undoing.calls:
        return state
    noted = Compensable(
        run.step,
        run.token.args,
        run.value if has_own and not reason else None,
        run.vars if has_own else {},
        called=called,
        reason=reason if has_own else "",
    )
    others = without(state.compensable, run.step_run_id)
    return with_undoing(state, compensable={**others, run.step_run_id: noted})


def note_begin(state: Execution, token: Token) -> Execution:
    """The state of a closing execution after a token was enqueued."""
    held = state.closing
    if held is None or token.cause == "arc":
        return state
    if token.cause == "finally":
        timers = {key: timer for key, timer in state.timers.items() if timer.purpose != "compensation"}
        return with_undoing(replace(state, timers=timers), closing=replace(held, finally_begun=True))
    undone = state.compensable.get(token.from_step_run_id or "")
    return state if undone is None else _with(state, token.from_step_run_id or "", replace(undone, begun=True))


def seen_by_compensation(state: Execution, run: StepRun) -> StepRun:
    """A new compensation with the result and ``vars`` of the step run that it undoes."""
    undone = state.compensable.get(run.token.from_step_run_id or "")
    if undone is None or undone.value is None:
        return run
    return replace(run, steps={**run.steps, undone.step: undone.value}, vars=undone.vars)


def note_call(state: Execution, step_run_id: str, fact: events.ChildFinished) -> Execution:
    """The state after the end of a child. A completed child can be undone; an undoing one marks its call as undone."""
    run = state.runs.get(step_run_id)
    noted = state.compensable.get(step_run_id)
    call = state.undoing.calls.get(fact.execution_id)
    if call is None:
        return state if noted is None or not noted.begun else _undone_by_child(state, step_run_id, noted, fact)
    state = with_undoing(state, calls=without(state.undoing.calls, fact.execution_id))
    if fact.outcome.status != "ok" or (noted is None and run is None):
        return state
    if noted is None:
        assert run is not None
        noted = Compensable(run.step, run.token.args)
    return _with(state, step_run_id, replace(noted, called=(*noted.called, call)))


def _undone_by_child(state: Execution, step_run_id: str, noted: Compensable, fact: events.ChildFinished) -> Execution:
    if not noted.called or undoing_of(noted.called[-1].execution_id) != fact.execution_id:
        return state
    error = fact.outcome.error
    if error is not None:
        return _with(state, step_run_id, replace(noted, called=(), reason=error.message))
    rest = noted.called[:-1]
    return _with(state, step_run_id, replace(noted, called=rest, begun=bool(rest) and noted.begun, undone=not rest))


def _with(state: Execution, step_run_id: str, noted: Compensable) -> Execution:
    return with_undoing(state, compensable={**state.compensable, step_run_id: noted})


def compensations_of(state: Execution, otherwise: str) -> Sequence[Compensation]:
    """The outcome of each compensable step run, last end first; ``otherwise`` is the reason for those not undone."""
    return [
        Compensation(one.step, step_run_id, one.undone, "" if one.undone else one.reason or otherwise)
        for step_run_id, one in reversed(state.compensable.items())
        if one.step in state.undoing.undoes
        and (one.undone or one.reason or one.called or state.undoing.undoes[one.step])
    ]


def _on_closing(state: Execution, fact: events.ExecutionClosing) -> Execution:
    if state.closing is not None or state.status != "running":
        return state
    for run in state.runs.values():
        if run.started_ms and not run.ended and run.step in state.undoing.undoes:
            state = _noted(state, run, "it was stopped, and may have had an effect")
    state = with_undoing(state, closing=Closing(fact.status, fact.outcome, fact.undoes))
    return replace(
        state,
        failing=None,
        cancelling="",
        broken=None,
        tokens={},
        runs={},
        turns={},
        resting={},
        assignments={},
        suspensions={},
        timers={},
        paused_at_ms=0,
        awaited=None,
        evaluation=None,
        chosen={},
        ctx_notice=None,
    )


RULES: Final[Rules] = {events.ExecutionClosing: _on_closing}
