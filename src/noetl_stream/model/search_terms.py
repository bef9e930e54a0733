"""Search terms of executions: labels, and words of the error (LANGUAGE §1).

Each term of an execution is a row, in the order of executions: a search reads no more rows than it shows, however
rare, frequent, new or old the term is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from noetl_stream.model.labels import label_text

MAX_WORDS: Final = 128
"""How many words of an error are indexed, from its beginning."""

MAX_WORD_CHARS: Final = 64
"""The most characters of an indexed word; a longer one is indexed by its beginning."""

MAX_LABEL_CHARS: Final = 256
"""The most characters of an indexed label; a longer one is indexed by its beginning."""

_WORD: Final = re.compile(r"\w+")


def label_terms(labels: Mapping[str, Any]) -> set[str]:
    """The terms of labels, whose values count as text: ``{"tier": 1}`` is found by ``tier`` and ``"1"``. A null label
    counts as absent.
    """
    given = ((name, label_text(value)) for name, value in labels.items() if value is not None)
    return {f"label:{name}={text}"[:MAX_LABEL_CHARS] for name, text in given}


def key_terms(key: str) -> set[str]:
    """The term of a business key; none if it is empty."""
    return {f"key:{key}"} if key else set()


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
