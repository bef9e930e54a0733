"""Writes a history while it happens."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Final, TextIO

SHOWN: Final = ("execution_id", "status", "position", "already", "ctx", "result")
"""What the checker reads of the documents of answers."""


class Recorder:
    """Writes each line as it happens.

    Args:
        now_s: The one clock of the history, in seconds.
    """

    def __init__(self, file: TextIO, now_s: Callable[[], float]) -> None:
        self._file = file
        self._now_s = now_s
        self._numbers = count(1)

    def note(self, what: str, *, at: float | None = None, **body: Any) -> None:
        """Writes a line of this kind; what is ``None`` is left out."""
        line = {"at": self._now_s() if at is None else at, "what": what, **body}
        given = {name: value for name, value in line.items() if value is not None}
        self._file.write(json.dumps(given, separators=(",", ":")) + "\n")

    def asked(self, client: str, verb: str, **body: Any) -> int:
        """Notes a call before it is made, and returns its number."""
        number = next(self._numbers)
        self.note("asked", call=number, client=client, verb=verb, **body)
        return number

    def answered(
        self, call: int, outcome: str, document: Mapping[str, Any] | None = None, status: int | None = None
    ) -> None:
        """Notes the answer: ``accepted`` with its document, ``refused`` with its status, or ``unknown``."""
        shown = None if document is None else {name: document[name] for name in SHOWN if name in document}
        self.note("answered", call=call, outcome=outcome, document=shown, status=status)
