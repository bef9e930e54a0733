"""Changes by a rerun: how it takes over the facts of its original (LANGUAGE §9 *Rerun*)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec.structs import replace

from noetl_stream.engine.evolve import Rules, tokens, with_run, without
from noetl_stream.engine.evolve.ctx import patch_ctx, reduce_all
from noetl_stream.engine.evolve.step_runs import tolerate
from noetl_stream.engine.state import Execution, LoopState
from noetl_stream.model import events
from noetl_stream.model.json import codec
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.template import ExpressionError


def _on_reused(state: Execution, fact: events.ExecutionReused) -> Execution:
    """Applies the next page of reused facts; after the last one the execution can start."""
    if state.request is None or fact.page != state.reused_pages:
        return state
    for entry in fact.entries:
        state = _ENTRIES[type(entry)](state, entry)
    return replace(
        state,
        reused_pages=fact.page + 1,
        awaited=None if fact.token is not None else state.awaited,
        ctx_bytes=len(codec.encode(state.ctx)),
    )


def _on_refused(state: Execution, fact: events.RerunRefused) -> Execution:
    return state if state.request is None else replace(state, request=None, awaited=None)


def _on_ctx_patched(state: Execution, fact: events.CtxPatched) -> Execution:
    return _set_ctx(state, patch_ctx(state.ctx, fact), fact.patch)


def _on_step_patched(state: Execution, fact: events.StepPatched) -> Execution:
    keys = {*fact.set_ctx, *(key for key, _ in fact.shared)}
    try:
        return _set_ctx(state, reduce_all({**state.ctx, **fact.set_ctx}, fact.shared), keys)
    except ExpressionError as error:
        return replace(state, broken=ErrorInfo("expression_error", str(error)))


def _set_ctx(state: Execution, ctx: dict[str, Any], keys: Iterable[str]) -> Execution:
    at = state.position + 1
    return replace(state, ctx=ctx, ctx_version=at, writers={**state.writers, **dict.fromkeys(keys, ("", at))})


def _on_step_reused(state: Execution, fact: events.StepReused) -> Execution:
    run, counts = state.runs[fact.step_run_id], fact.loop
    loop = None
    if counts is not None:
        loop = LoopState(
            items=[],
            count=counts.count,
            local=True,
            max_in_flight=1,
            ok=counts.ok,
            failed=counts.failed,
            skipped=counts.skipped,
            failed_leaves=counts.failed_leaves,
        )
        if fact.ended == "loop.done":
            state = tolerate(state, run.step, loop)
    value = fact.value
    state = with_run(state, replace(run, ended=fact.ended, value=value, error=fact.error, vars=fact.vars, loop=loop))
    steps = without(state.steps, run.step) if value is None else {**state.steps, run.step: value}
    return replace(state, steps=steps)


_ENTRIES: Final[dict[type, Callable[[Execution, Any], Execution]]] = {
    events.TokenEnqueued: tokens.on_enqueued,
    events.TokenClaimed: tokens.on_claimed,
    events.TokenAbsorbed: tokens.on_absorbed,
    events.TokenDiscarded: tokens.on_discarded,
    events.CtxPatched: _on_ctx_patched,
    events.StepPatched: _on_step_patched,
    events.StepReused: _on_step_reused,
    events.NextEvaluated: tokens.on_next_evaluated,
}

RULES: Final[Rules] = {events.ExecutionReused: _on_reused, events.RerunRefused: _on_refused}
