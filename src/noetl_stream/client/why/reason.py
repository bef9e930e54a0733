"""One thing that an execution waits for, or one reason for its end, as the answer shows it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from noetl_stream.model.envelope import iso, iso_or_none
from noetl_stream.ports.operations.executions import ReasonDocument

SHOWN_CHARS: Final = 160


@dataclass(frozen=True, slots=True)
class Reason:
    """``kind`` is stable; ``sentence`` says what is, ``moves`` what would move it; ``since_ms`` is 0 if unknown."""

    kind: str
    sentence: str
    moves: str
    since_ms: int = 0
    step: str | None = None
    task: str | None = None
    iteration: Sequence[int] = ()
    until_ms: int | None = None
    details: dict[str, Any] = field(default_factory=dict)

    def document(self) -> ReasonDocument:
        """As it is shown."""
        return ReasonDocument(
            kind=self.kind,
            sentence=self.sentence,
            moves=self.moves,
            since=iso(self.since_ms) if self.since_ms else None,
            until=iso_or_none(self.until_ms),
            step=self.step,
            task=self.task,
            iteration=list(self.iteration),
            details=self.details,
        )


def shown(value: Any) -> str:
    """A value in a sentence: JSON, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def counted(count: int, noun: str) -> str:
    """``1 worker``, ``2 workers``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def seconds(milliseconds: int) -> str:
    """How long, for people: ``0.4 s``, ``3 min``, ``2 h``, ``5 days``."""
    value = max(0, milliseconds) / 1000
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if value >= 2 * size:
            return f"{value / size:.0f} {unit}"
    return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
