"""The bounds of texts in requests: those of columns, indexes, subjects and records (PROTOCOL §7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from noetl_stream.model.aggregates import AggregateRequested
from noetl_stream.model.events import ClientFact, ExecutionRequested
from noetl_stream.model.labels import key_fault, label_fault
from noetl_stream.model.priorities import HIGHEST_PRIORITY, LOWEST_PRIORITY, PRIORITIES
from noetl_stream.model.rights import MAX_PATH_CHARS

MAX_CHARS: Final[Mapping[str, int]] = {
    "path": MAX_PATH_CHARS,
    "key": MAX_PATH_CHARS,
    "trace_id": MAX_PATH_CHARS,
    "principal": MAX_PATH_CHARS,
    "reason": 4096,
    "correlation_id": 1024,
    "caller_span": 32,
    "due": 64,
    "signal": 256,
    "step": 256,
    "step_run_id": 128,
}
"""The most characters of a text, by the field of a request, or of the rerun in it."""


def bounds_exceeded(fact: ClientFact | AggregateRequested) -> str:
    """The error of a request with a text that is too long or a number out of range; ``""`` if there is none."""
    if isinstance(fact, ExecutionRequested) and fact.priority is not None and fact.priority not in PRIORITIES:
        return f"its priority is {fact.priority}; the lowest is {LOWEST_PRIORITY}, the highest {HIGHEST_PRIORITY}"
    if isinstance(fact, ExecutionRequested) and (
        fault := label_fault(fact.labels) or key_fault(fact.key, unique=fact.unique)
    ):
        return fault
    for name, value in _texts(fact):
        if len(value) > MAX_CHARS[name]:
            return f"its {name.replace('_', ' ')} has {len(value)} characters; the limit is {MAX_CHARS[name]}"
    return ""


def _texts(fact: ClientFact | AggregateRequested) -> Iterator[tuple[str, str]]:
    parts: list[Any] = [fact]
    if isinstance(fact, ExecutionRequested) and fact.rerun is not None:
        parts.append(fact.rerun)
    for part in parts:
        for name in _bounded(part.__struct_fields__):
            value = getattr(part, name)
            if isinstance(value, str):
                yield name, value


@cache
def _bounded(fields: tuple[str, ...]) -> Sequence[str]:
    return [name for name in fields if name in MAX_CHARS]
