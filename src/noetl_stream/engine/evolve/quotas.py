"""The use of an execution's quotas (LANGUAGE §14 *Quotas*), counted from the task reports of workers."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from noetl_stream.engine.evolve import Rules
from noetl_stream.engine.state import LATEST_MS, Execution, Usage
from noetl_stream.model import events
from noetl_stream.model.events import Fact
from noetl_stream.model.events.composite import StepRan
from noetl_stream.model.json import codec
from noetl_stream.model.outcome import Payload


def count(state: Execution, usage: Usage, fact: Fact) -> Execution:
    """The usage after a worker's fact about tasks."""
    if isinstance(fact, StepRan):
        for one in fact.tasks:
            usage = _with_run(usage, one.duration_s, _bytes_of(one.result, one.output))
    elif isinstance(fact, events.TaskProcessed):
        written = [one for one in (fact.set_ctx, fact.set_vars, fact.set_iter, fact.set_shared) if one]
        size = _bytes_of(fact.outcome.result, fact.outcome.output) + sum(len(codec.encode(one)) for one in written)
        usage = _with_run(usage, fact.outcome.meta.duration_s, size)
    else:
        return state
    return replace(state, usage=usage)


def _with_run(usage: Usage, seconds: float, size: int) -> Usage:
    seconds = min(max(seconds, 0.0), LATEST_MS)  # a worker may report anything
    return replace(
        usage, task_runs=usage.task_runs + 1, task_seconds=usage.task_seconds + seconds, bytes=usage.bytes + size
    )


def _bytes_of(result: Payload, output: str) -> int:
    return (len(result.value) if result.reference is None else 0) + len(output.encode())


def _on_exceeded(state: Execution, fact: events.QuotaExceeded) -> Execution:
    usage = state.usage
    used = fact.used - (fact.quota == "step_runs")  # the excess step run has not begun
    if usage is None or usage.exceeded.get(fact.quota, -1.0) >= used:
        return state
    return replace(state, usage=replace(usage, exceeded={**usage.exceeded, fact.quota: used}))


RULES: Final[Rules] = {events.QuotaExceeded: _on_exceeded}
