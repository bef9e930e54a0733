"""What executions are found by: a term is a label, or a word of the error (LANGUAGE §1).

Each term of an execution is a row of its own, in the order of executions: what is rare and what is frequent, new and
old, is found by reading as many rows as are shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from noetl_stream.model import codec

MAX_WORDS: Final = 128
"""Words of one error that it can be found by, from its beginning."""

MAX_WORD_CHARS: Final = 64
"""A longer word counts with its beginning."""

MAX_LABEL_CHARS: Final = 256
"""A longer label counts with its beginning."""

_WORD: Final = re.compile(r"\w+")


def label_terms(labels: Mapping[str, Any]) -> set[str]:
    """Values as their text: ``{"tier": 1}`` is found by ``tier`` and ``"1"``. A label that is null is none."""
    return {_label(name, _text(value)) for name, value in labels.items() if value is not None}


def error_terms(error: Mapping[str, Any]) -> set[str]:
    """The words of an error's kind, code, task and message."""
    return word_terms(" ".join(str(error.get(key) or "") for key in ("kind", "code", "task", "message")))


def word_terms(text: str) -> set[str]:
    """A term for each word: letters, digits and `_`, upper and lower case alike."""
    found: dict[str, None] = {}
    for match in _WORD.finditer(text.lower()):
        found["word:" + match[0][:MAX_WORD_CHARS]] = None
        if len(found) == MAX_WORDS:
            break
    return set(found)


def _label(name: str, value: str) -> str:
    return f"label:{name}={value}"[:MAX_LABEL_CHARS]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else codec.encode(value).decode()
