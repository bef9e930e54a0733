"""Decisions about quotas: the consequences of exceeding one (LANGUAGE §14 *Quotas*)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from noetl_stream.engine.state import Execution, Usage
from noetl_stream.model import events
from noetl_stream.model.events import Fact, QuotaExceeded
from noetl_stream.model.outcome import ErrorInfo

QUOTA_EXCEEDED: Final = "quota_exceeded"
"""The error kind of an execution that has exceeded a quota."""


def exceeded(state: Execution, step_runs: int = 0) -> Sequence[QuotaExceeded]:
    """The quotas that the execution exceeds, or would exceed with this many more ``step_runs``.

    Compensations and ``finally`` exceed none. A quota that only warns is exceeded once; one that suspended the
    execution allows
    the same amount again.
    """
    usage = state.usage
    if usage is None or state.halted or state.ending or state.closing is not None:
        return ()
    return list(_exceeded(state, usage, step_runs))


def _exceeded(state: Execution, usage: Usage, step_runs: int) -> Iterator[QuotaExceeded]:
    on_exceeded = usage.quotas.on_exceeded
    used = {
        "step_runs": state.step_runs - usage.reused + step_runs,
        "task_runs": usage.task_runs,
        "task_seconds": usage.task_seconds,
        "bytes": usage.bytes + state.stored_bytes,
    }
    for quota, amount in usage.quotas.amounts.items():
        before = usage.exceeded.get(quota)
        if before is None or on_exceeded == "suspend":
            amount += before or 0
            if used[quota] > amount:
                yield QuotaExceeded(quota, amount, used[quota], on_exceeded)


def on_exceeded(state: Execution, quotas: Sequence[QuotaExceeded]) -> Sequence[Fact]:
    """The decisions for exceeded quotas: the execution fails, continues, or is paused with its children."""
    first = quotas[0]
    if first.on_exceeded == "fail":
        return (events.ExecutionFailing(failure_of(first)),)
    if first.on_exceeded == "warn":
        return quotas
    orders = (events.ChildOrdered(child_id, "pause", first.text) for child_id in state.children)
    return (*quotas, events.ExecutionPaused(first.text), *orders)


def failure_of(quota: QuotaExceeded) -> ErrorInfo:
    """The error of an execution that has exceeded this quota."""
    return ErrorInfo(QUOTA_EXCEEDED, quota.text, code=quota.quota)
