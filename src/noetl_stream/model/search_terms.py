"""Search terms of executions: their inputs and labels, failures and durations (LANGUAGE §9 *Finding*).

Each term of an execution is a row, in the order of executions: a search reads no more rows than it shows, whether the
term is rare or frequent, new or old.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, Final, NamedTuple

from noetl_stream.model.labels import label_text

MAX_WORDS: Final = 128
"""The number of words of an error that are indexed, from its beginning."""

MAX_WORD_CHARS: Final = 64
"""The most characters of an indexed word; a longer one is indexed by its beginning."""

MAX_LABEL_CHARS: Final = 256
"""The most characters of an indexed label; a longer one is indexed by its beginning."""

MAX_INPUTS: Final = 32
"""The number of inputs of an execution that are indexed, from the beginning of its workload."""

MAX_INPUT_CHARS: Final = 128
"""The most characters of the path or the value of an indexed input; one with a longer value is not indexed."""

MAX_WORKERS: Final = 32
"""The number of workers that ran steps of an execution that are indexed, the first ones."""

LONGER_THAN_S: Final = (1, 10, 60, 600, 3_600, 21_600, 86_400, 604_800)
"""The durations with a term each: one row for each that an execution exceeded, so none for most."""

_DUE_PARTS: Final = (0, len("2026"), len("2026-12"), len("2026-12-20"))
"""The prefixes of the due time of an execution with a term each."""

_DUE_WRITTEN: Final = (*_DUE_PARTS[1:], len("2026-12-20T02"), len("2026-12-20T02:30"))
_FIRST_TIME: Final = "2026-01-01T00:00"

_WORD: Final = re.compile(r"\w+")


def label_terms(labels: Mapping[str, Any]) -> set[str]:
    """The terms of labels, with values as text: ``{"tier": 1}`` gives ``tier`` and ``"1"``. A null label is absent."""
    given = ((name, label_text(value)) for name, value in labels.items() if value is not None)
    return {f"label:{name}={text}"[:MAX_LABEL_CHARS] for name, text in given}


def key_terms(key: str) -> set[str]:
    """The term of a business key; none if it is empty."""
    return {f"key:{key}"} if key else set()


def indexed_inputs(workload: Mapping[str, Any]) -> dict[str, Any]:
    """The scalars of a workload by path: ``{"order": {"id": 7}}`` has ``{"order.id": 7}``. Lists have none."""
    found: dict[str, Any] = {}
    pending = [("", workload)]
    for prefix, values in pending:
        for name, value in islice(values.items(), MAX_INPUTS):
            path = prefix + name
            if len(path) > MAX_INPUT_CHARS or "=" in path:
                continue
            if isinstance(value, Mapping) and len(pending) < MAX_INPUTS:
                pending.append((f"{path}.", value))
            elif isinstance(value, str | int | float) and len(label_text(value)) <= MAX_INPUT_CHARS:
                found[path] = value
            if len(found) == MAX_INPUTS:
                return found
    return found


def input_terms(inputs: Mapping[str, Any]) -> set[str]:
    """The terms of inputs by path, whose values count as text."""
    return {f"input:{path}={label_text(value)}" for path, value in inputs.items()}


def step_terms(step: str) -> set[str]:
    """The term of the step that failed; none if it is empty."""
    return {f"step:{step}"} if step else set()


def worker_terms(workers: Iterable[str]) -> set[str]:
    """The terms of the workers that ran its steps, by name."""
    return {f"worker:{name}" for name in workers}


class DueRange(NamedTuple):
    """Executions that were due between two times, both included: each is a prefix of a time in its schedule's zone,
    such as ``2026-12`` or ``2026-12-20``; empty for an open end.
    """

    first: str
    last: str

    @property
    def term(self) -> str:
        """The longest term that all these executions have."""
        return f"due:{next(self.first[:part] for part in _DUE_PARTS[::-1] if self.first[:part] == self.last[:part])}"

    def holds(self, due: str) -> bool:
        """Whether the range contains this due time."""
        return bool(due) and self.first <= due[: len(self.first)] and due[: len(self.last)] <= self.last


def due_range(text: str) -> DueRange:
    """Reads a day or another prefix of a time; or two with ``..`` between them, one of which may be empty.

    Raises:
        ValueError: it is none.
    """
    first, dots, last = text.partition("..")
    found = DueRange(first, last if dots else first)
    for part in filter(None, found):
        if len(part) not in _DUE_WRITTEN:
            raise ValueError(f"{part!r} is not a day or time: write 2026-12-20, 2026-12 or 2026-12-20T02:30")
        datetime.fromisoformat(part + _FIRST_TIME[len(part) :])
    if not any(found) or (found.first[: len(found.last)] > found.last[: len(found.first)] and all(found)):
        raise ValueError("the range is empty")
    return found


def due_terms(due: str) -> set[str]:
    """The terms of an execution's due time; none if it is empty."""
    return {f"due:{due[:part]}" for part in _DUE_PARTS} if due else set()


def duration_terms(duration_ms: int) -> set[str]:
    """The terms of an execution's duration; none if it was short."""
    if duration_ms < LONGER_THAN_S[0] * 1000:
        return set()
    return {f"took:{seconds}" for seconds in LONGER_THAN_S if duration_ms >= seconds * 1000}


def error_terms(error: Mapping[str, Any]) -> set[str]:
    """The terms of an error: the words of its kind, code, task and message."""
    return word_terms(" ".join(str(error.get(key) or "") for key in ("kind", "code", "task", "message")))


def word_terms(text: str) -> set[str]:
    """The terms of a text, one per word: letters, digits and `_`, case-insensitive."""
    found: dict[str, None] = {}
    for match in _WORD.finditer(text.lower()):
        found["word:" + match[0][:MAX_WORD_CHARS]] = None
        if len(found) == MAX_WORDS:
            break
    return set(found)
