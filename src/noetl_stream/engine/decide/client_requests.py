"""What clients ask of an execution that exists: can it be done, and what a patch makes of ``ctx`` (LANGUAGE §9)."""

from __future__ import annotations

from typing import Any

from noetl_stream.engine.state import Execution
from noetl_stream.model import codec
from noetl_stream.model.events import (
    CancelRequested,
    ClientRequest,
    CtxPatched,
    PauseRequested,
    ResumeRequested,
    SignalReceived,
    TokenInjected,
)
from noetl_stream.model.rejection import Rejection
from noetl_stream.playbook.plan import Plan


def rejection_of(plan: Plan, state: Execution, fact: ClientRequest) -> Rejection | None:
    """Why ``fact`` cannot be done now; ``None`` if it can."""
    execution = f"execution {state.execution_id}"
    if state.ended:
        return Rejection("ended", f"{execution} has ended ({state.status})")
    if state.cancelling and not isinstance(fact, CancelRequested):
        return Rejection("ending", f"{execution} is being cancelled")
    if state.failing is not None:
        return Rejection("ending", f"{execution} has failed and is ending")
    if state.request is not None and not isinstance(fact, CancelRequested):
        return Rejection("not_started", f"{execution} has not started: it is still looking at {state.rerun_of}")
    if isinstance(fact, CtxPatched):
        return _refuse_patch(state, fact)
    if isinstance(fact, TokenInjected):
        return _refuse_token(plan, state, fact)
    if isinstance(fact, SignalReceived):
        return _refuse_signal(state, fact)
    return None


def is_redundant(state: Execution, fact: ClientRequest) -> bool:
    """Whether what is asked is so already: nothing is to be recorded."""
    if isinstance(fact, CancelRequested):
        return bool(state.cancelling)
    if isinstance(fact, PauseRequested):
        return bool(state.paused_at_ms)
    return isinstance(fact, ResumeRequested) and not state.paused_at_ms


def patched(ctx: dict[str, Any], fact: CtxPatched) -> dict[str, Any]:
    """``ctx`` after a patch from outside: whole keys, or a JSON merge patch (RFC 7396)."""
    return merge_patch(ctx, fact.patch) if fact.merge else {**ctx, **fact.patch}


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7396: mappings merge key by key, ``null`` deletes a key, anything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


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
        text = f"{queued} signals wait already (limits.max_queued_signals)"
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
