"""How long the texts of a request may be: what columns, indexes, subjects and records hold (PROTOCOL §7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from noetl_stream.model.aggregates import AggregateRequested
from noetl_stream.model.events import ClientFact, ExecutionRequested
from noetl_stream.model.paths import MAX_PATH_CHARS

MAX_CHARS: Final[Mapping[str, int]] = {
    "path": MAX_PATH_CHARS,
    "key": MAX_PATH_CHARS,
    "trace_id": MAX_PATH_CHARS,
    "principal": MAX_PATH_CHARS,
    "reason": 4096,
    "correlation_id": 1024,
    "caller_span": 32,
    "signal": 256,
    "step": 256,
    "step_run_id": 128,
}
"""By the field of a request, or of the rerun in it."""


def too_long(fact: ClientFact | AggregateRequested) -> str:
    """What about a request is too long, in words; ``""`` if nothing is."""
    for name, value in _texts(fact):
        if len(value) > MAX_CHARS[name]:
            return f"its {name.replace('_', ' ')} has {len(value)} characters; the limit is {MAX_CHARS[name]}"
    return ""


def _texts(fact: ClientFact | AggregateRequested) -> Iterator[tuple[str, str]]:
    parts: list[Any] = [fact]
    if isinstance(fact, ExecutionRequested) and fact.rerun is not None:
        parts.append(fact.rerun)
    for part in parts:
        for name in part.__struct_fields__:
            value = getattr(part, name) if name in MAX_CHARS else None
            if isinstance(value, str):
                yield name, value
