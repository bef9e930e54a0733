"""What follows from a change of ``ctx`` (LANGUAGE §5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noetl_stream.engine.decide import NOTHING, Rules
from noetl_stream.engine.state import Execution
from noetl_stream.model import events
from noetl_stream.model.events import ExecutionFailing, Fact
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.plan import Plan


def on_ctx(state: Execution) -> Sequence[Fact]:
    """What follows from a change of ``ctx``: a warning about overwritten keys; failure if it is too large."""
    if state.ending:
        return ()
    if state.broken is not None and not state.halted:
        return (ExecutionFailing(state.broken),)
    if state.ctx_bytes > state.limits.max_ctx_bytes and not state.halted:
        text = f"ctx has {state.ctx_bytes} bytes; limits.max_ctx_bytes is {state.limits.max_ctx_bytes}"
        return (ExecutionFailing(ErrorInfo("limit_exceeded", text)),)
    return () if state.overwrote is None else (state.overwrote,)


def _patched(plan: Plan, state: Execution, fact: events.CtxPatched) -> Sequence[events.Fact]:
    return on_ctx(state)


def _task_processed(plan: Plan, state: Execution, fact: events.TaskProcessed) -> Sequence[events.Fact]:
    return on_ctx(state) if fact.set_ctx or fact.set_shared else NOTHING


RULES: Final[Rules] = {events.CtxPatched: _patched, events.TaskProcessed: _task_processed}
