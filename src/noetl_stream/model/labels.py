"""Labels and business keys that executions are given, and their bounds (LANGUAGE §1 *labels*)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noetl_stream.model.json import codec

MAX_LABELS: Final = 64
"""The most labels of an execution."""

MAX_NAME_CHARS: Final = 64
"""The most characters of the name of a label."""

MAX_KEY_CHARS: Final = 256
"""The most characters of a business key."""

MAX_VALUE_CHARS: Final = 180
"""The most characters of the value of a label as text, so that it is indexed whole."""


def label_text(value: Any) -> str:
    """The value of a label as text, as filters compare it: ``1`` is ``"1"``, ``true`` is ``"true"``."""
    return value if isinstance(value, str) else codec.encode(value).decode()


def key_fault(key: str, *, unique: bool) -> str:
    """Why an execution cannot have this business key, in words; ``""`` if it can. An empty one is none."""
    if unique and not key:
        return "a unique start needs a key"
    return f"its key has {len(key)} characters; the limit is {MAX_KEY_CHARS}" if len(key) > MAX_KEY_CHARS else ""


def label_fault(labels: Mapping[str, Any]) -> str:
    """Why an execution cannot have these labels, in words; ``""`` if it can."""
    if len(labels) > MAX_LABELS:
        return f"there are {len(labels)} labels; the limit is {MAX_LABELS}"
    for name, value in labels.items():
        if not name or "=" in name or len(name) > MAX_NAME_CHARS:
            return f"the name of label `{name[:MAX_NAME_CHARS]}` must have 1 to {MAX_NAME_CHARS} characters, and no `=`"
        if isinstance(value, Mapping | list):
            return f"label `{name}` must be a text, a number, a boolean or null"
        if len(label_text(value)) > MAX_VALUE_CHARS:
            return f"label `{name}` has {len(label_text(value))} characters; the limit is {MAX_VALUE_CHARS}"
    return ""
