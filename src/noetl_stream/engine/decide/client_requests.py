"""Client requests to an existing execution: whether it accepts them, and what follows (LANGUAGE §9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noetl_stream.engine.decide import NOTHING, Rules
from noetl_stream.engine.decide.termination import cancel
from noetl_stream.engine.evolve.ctx import patched
from noetl_stream.engine.state import Execution
from noetl_stream.model import codec, events
from noetl_stream.model.events import (
    CancelRequested,
    ClientRequest,
    CtxPatched,
    PauseRequested,
    ResumeRequested,
    SignalReceived,
    TokenInjected,
)
from noetl_stream.model.ids import derive
from noetl_stream.model.status import Rejection
from noetl_stream.playbook.plan import Plan


def rejection_of(plan: Plan, state: Execution, fact: ClientRequest) -> Rejection | None:
    """Why the execution rejects ``fact`` now; ``None`` if it accepts it."""
    execution = f"execution {state.execution_id}"
    if state.ended:
        return Rejection("ended", f"{execution} has ended ({state.status})")
    if state.cancelling and not isinstance(fact, CancelRequested):
        return Rejection("ending", f"{execution} is being cancelled")
    if state.failing is not None:
        return Rejection("ending", f"{execution} has failed and is ending")
    if state.request is not None and not isinstance(fact, CancelRequested):
        text = f"{execution} has not started: it is still reading its original {state.rerun_of}"
        return Rejection("not_started", text)
    if isinstance(fact, CtxPatched):
        return _refuse_patch(state, fact)
    if isinstance(fact, TokenInjected):
        return _refuse_token(plan, state, fact)
    if isinstance(fact, SignalReceived):
        return _refuse_signal(state, fact)
    return None


def is_redundant(state: Execution, fact: ClientRequest) -> bool:
    """Whether the request asks for what is already so, and need not be recorded."""
    if isinstance(fact, CancelRequested):
        return bool(state.cancelling)
    if isinstance(fact, PauseRequested):
        return bool(state.paused_at_ms)
    return isinstance(fact, ResumeRequested) and not state.paused_at_ms


def no_step(plan: Plan, step: str) -> Rejection:
    return Rejection("unknown_step", f"playbook {plan.path} has no step {step}; it has {', '.join(plan.steps)}")


def _refuse_patch(state: Execution, fact: CtxPatched) -> Rejection | None:
    if fact.expected_version is not None and fact.expected_version != state.ctx_version:
        text = f"ctx is at version {state.ctx_version}, not {fact.expected_version}: read it again"
        return Rejection("version_mismatch", text)
    size = len(codec.encode(patched(state.ctx, fact)))
    return _refuse_size("ctx would have", size, "max_ctx_bytes", state.limits.max_ctx_bytes)


def _refuse_signal(state: Execution, fact: SignalReceived) -> Rejection | None:
    queued, limits = sum(map(len, state.signals.values())), state.limits
    if queued >= limits.max_queued_signals:
        text = f"{queued} signals are already queued (limits.max_queued_signals)"
        return Rejection("too_many_signals", text)
    size = len(codec.encode(fact.payload))
    return _refuse_size("the payload has", size, "max_inline_bytes", limits.max_inline_bytes)


def _refuse_token(plan: Plan, state: Execution, fact: TokenInjected) -> Rejection | None:
    if fact.step not in plan.steps:
        return no_step(plan, fact.step)
    return _refuse_size("args have", len(codec.encode(fact.args)), "max_ctx_bytes", state.limits.max_ctx_bytes)


def _refuse_size(what: str, size: int, limit: str, at_most: int) -> Rejection | None:
    if size <= at_most:
        return None
    return Rejection("too_large", f"{what} {size} bytes; limits.{limit} is {at_most}")


def _injected(plan: Plan, state: Execution, fact: events.TokenInjected) -> Sequence[events.Fact]:
    token_id = derive(state.execution_id, "injected", fact.request_id)
    return (events.TokenEnqueued(events.Token(token_id, fact.step, "injected", fact.args)),)


def _cancel_requested(plan: Plan, state: Execution, fact: events.CancelRequested) -> Sequence[events.Fact]:
    return cancel(state)


def _pause_requested(plan: Plan, state: Execution, fact: events.PauseRequested) -> Sequence[events.Fact]:
    if state.paused_at_ms or state.ending:
        return NOTHING
    children = (events.ChildOrdered(child_id, "pause", fact.reason) for child_id in state.children)
    return (events.ExecutionPaused(fact.reason), *children)


def _resume_requested(plan: Plan, state: Execution, fact: events.ResumeRequested) -> Sequence[events.Fact]:
    if not state.paused_at_ms:
        return NOTHING
    children = (events.ChildOrdered(child_id, "resume", fact.reason) for child_id in state.children)
    return (events.ExecutionResumed(max(state.at_ms - state.paused_at_ms, 0)), *children)


RULES: Final[Rules] = {
    events.TokenInjected: _injected,
    events.CancelRequested: _cancel_requested,
    events.PauseRequested: _pause_requested,
    events.ResumeRequested: _resume_requested,
}
