"""Text from data in a form that is safe for a terminal.

A terminal interprets control characters: they move the cursor, change the title, or answer into the input, and
bidirectional ones make text look like another. Data comes from anybody who can start an execution, so no such character
is printed.
"""

from __future__ import annotations

import re
from typing import Any, Final

UNSAFE: Final = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 except tab and line feed, delete, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidirectional
    "\u2028\u2029\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"  # separators, annotations, surrogates, tags
)


def shown(text: str) -> str:
    """Escapes each unsafe character of a text as Python does: ``\\x1b``. Tabs and line feeds stay."""
    if text.isprintable():  # true of nearly all: the regular expression costs time
        return text
    return re.sub(UNSAFE, lambda found: found[0].encode("unicode_escape").decode(), text)


def shown_json(text: str) -> str:
    """Rewrites JSON without unsafe characters, with the same meaning."""
    return re.sub(UNSAFE, lambda found: _json(found[0])[1:-1], text)


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Encodes plain values as JSON without unsafe characters; other objects stay as they are."""
    return shown_json(_json(value, ensure_ascii=False, indent=indent, default=str))


def _json(value: Any, **form: Any) -> str:
    import json  # tables contain none

    return json.dumps(value, **form)
