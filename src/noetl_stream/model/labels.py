"""Labels and business keys of executions, and their bounds (LANGUAGE §1 *labels*)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from noetl_stream.model.json import codec

MAX_LABELS: Final = 64
"""The most labels of an execution."""

MAX_NAME_CHARS: Final = 64
"""The most characters of the name of a label."""

MAX_KEY_CHARS: Final = 256
"""The most characters of a business key."""

MAX_UNIQUE_BYTES: Final = 512
"""The most bytes of a unique key, which with the path of the playbook must fit into an index."""

LOST_AFTER_S: Final = 600.0
"""The time after the claim of a unique key in which its execution must be stored; then another may take the key."""

MAX_VALUE_CHARS: Final = 180
"""The most characters of the value of a label as text, so that it is indexed whole."""

_UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")
"""Characters that Postgres cannot store in text."""


def label_text(value: Any) -> str:
    """The value of a label as text, as filters compare it: ``1`` is ``"1"``, ``true`` is ``"true"``."""
    return value if isinstance(value, str) else codec.encode(value).decode()


KEY_FORM: Final = f"`key` must be text or a whole number of 1 to {MAX_KEY_CHARS} characters, none of them NUL"


def key_text(value: Any) -> str:
    """A rendered business key as text; ``""`` if it does not match :data:`KEY_FORM`."""
    text = value if isinstance(value, str) else codec.encode(value).decode() if isinstance(value, int) else ""
    return "" if len(text) > MAX_KEY_CHARS or _UNSTORABLE.search(text) else text


def key_fault(key: str, *, unique: bool) -> str:
    """The error of a business key in words; ``""`` if it is valid. An empty key is no key."""
    if unique and not key:
        return "a unique start needs a key"
    if _UNSTORABLE.search(key):
        return "its key has a character that cannot be stored"
    if len(key) > MAX_KEY_CHARS:
        return f"its key has {len(key)} characters; the limit is {MAX_KEY_CHARS}"
    if unique and len(key.encode()) > MAX_UNIQUE_BYTES:
        return f"its unique key has {len(key.encode())} bytes of UTF-8; the limit is {MAX_UNIQUE_BYTES}"
    return ""


def with_labels(labels: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """``labels`` with ``more`` over them, up to the bound of names."""
    merged = {**labels, **more}
    return merged if len(merged) <= MAX_LABELS else dict(islice(merged.items(), MAX_LABELS))


def label_fault(labels: Mapping[str, Any]) -> str:
    """The error of labels in words; ``""`` if they are valid."""
    if len(labels) > MAX_LABELS:
        return f"there are {len(labels)} labels; the limit is {MAX_LABELS}"
    for name, value in labels.items():
        if not name or "=" in name or len(name) > MAX_NAME_CHARS:
            return f"the name of label `{name[:MAX_NAME_CHARS]}` must have 1 to {MAX_NAME_CHARS} characters, and no `=`"
        if value is not None and not isinstance(value, str | int | float):
            return f"label `{name}` must be a text, a number, a boolean or null"
        if _UNSTORABLE.search(name) or (isinstance(value, str) and _UNSTORABLE.search(value)):
            return f"label `{name}` has a character that cannot be stored"
        if len(label_text(value)) > MAX_VALUE_CHARS:
            return f"label `{name}` has {len(label_text(value))} characters; the limit is {MAX_VALUE_CHARS}"
    return ""
