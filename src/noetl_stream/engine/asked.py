"""What clients ask of an execution that exists: can it be done, and what a patch makes of ``ctx`` (LANGUAGE §9)."""

from __future__ import annotations

from typing import Any

from noetl_stream.engine.state import Execution
from noetl_stream.model import codec
from noetl_stream.model.events import (
    Asked,
    CancelRequested,
    CtxPatched,
    PauseRequested,
    ResumeRequested,
    SignalReceived,
    TokenInjected,
)
from noetl_stream.playbook.plan import Plan


def refusal(plan: Plan, state: Execution, fact: Asked) -> str:
    """Why ``fact`` cannot be done now, for people; ``""`` if it can."""
    if state.ended:
        return f"execution {state.execution_id} has ended ({state.status})"
    if state.cancelling and not isinstance(fact, CancelRequested):
        return f"execution {state.execution_id} is being cancelled"
    if state.failing is not None:
        return f"execution {state.execution_id} has failed and is ending"
    if isinstance(fact, CtxPatched):
        return _refuse_patch(state, fact)
    if isinstance(fact, TokenInjected):
        return _refuse_token(plan, state, fact)
    if isinstance(fact, SignalReceived):
        return _refuse_signal(state, fact)
    return ""


def is_so_already(state: Execution, fact: Asked) -> bool:
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


def _refuse_patch(state: Execution, fact: CtxPatched) -> str:
    if fact.expected_version is not None and fact.expected_version != state.ctx_version:
        return f"ctx is at version {state.ctx_version}, not {fact.expected_version}: read it again"
    size, at_most = len(codec.encode(patched(state.ctx, fact))), state.limits.max_ctx_bytes
    return "" if size <= at_most else f"ctx would have {size} bytes; limits.max_ctx_bytes is {at_most}"


def _refuse_signal(state: Execution, fact: SignalReceived) -> str:
    queued, limits = len(state.signals.get(fact.signal, ())), state.limits
    if queued >= limits.max_queued_signals:
        return f"{queued} signals {fact.signal} wait already (limits.max_queued_signals)"
    size, at_most = len(codec.encode(fact.payload)), limits.max_inline_bytes
    return "" if size <= at_most else f"the payload has {size} bytes; limits.max_inline_bytes is {at_most}"


def _refuse_token(plan: Plan, state: Execution, fact: TokenInjected) -> str:
    if fact.step not in plan.steps:
        return f"playbook {plan.path} has no step {fact.step}; it has {', '.join(plan.steps)}"
    size, at_most = len(codec.encode(fact.args)), state.limits.max_ctx_bytes
    return "" if size <= at_most else f"args have {size} bytes; limits.max_ctx_bytes is {at_most}"
