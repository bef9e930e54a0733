"""Hints for the error of a missing key: the key that its author may have meant, and the keys that exist.

Keys are data. Only those that look like names are shown, each as a whole: a truncated secret could no longer be
recognized and hidden.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from noetl_stream.template.failures import closest, shorten
from noetl_stream.template.runtime.scope import Carried

KEYS_SHOWN: Final = 8
_KEYS_READ: Final = 100
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,31}")
_PART_CHARS: Final = 60


def missing_key_hint(value: Mapping[Any, Any], path: tuple[Any, ...]) -> str | None:
    """The hint for ``path``, whose last key the mapping ``value`` does not have."""
    *parents, key = path
    carried = isinstance(value, Carried)
    there = {**dict.fromkeys(value.others), **value} if isinstance(value, Carried) else value
    names = (name for name in there if isinstance(name, str))
    close = closest(key, names) if isinstance(key, str) else None
    meant = f"did you mean `{written_path((*parents, close))}`?" if close else None
    if parents == ["ctx"]:
        wait = "let a guard wait for it with `next.spec.wait` or `admit.wait`"
        absent = f"nothing has set it: write `{written_path(path)} | default(…)`, or {wait}"
        return f"{meant} If not, {absent}" if meant else absent
    if meant is None and parents[:1] != ["keychain"]:
        return "; ".join(_keys_text(there, parents, key, may_be_empty=not carried)) or None
    return meant


def _keys_text(value: Mapping[Any, Any], parents: list[Any], key: Any, *, may_be_empty: bool) -> Iterator[str]:
    """Lists the keys of ``value``, and where the missing key is, if one level below."""
    names = [name for name in islice(value, _KEYS_READ) if isinstance(name, str) and _NAME.fullmatch(name)]
    shown = names[:KEYS_SHOWN]
    if shown:
        more = f" and {len(value) - len(shown)} more" if len(value) > len(shown) else ""
        yield f"it has {', '.join(f'`{name}`' for name in shown)}{more}"
    elif not value and may_be_empty:
        yield "it is empty"
    below = (name for name in names if isinstance(inner := value[name], Mapping) and key in inner)
    if (name := next(below, None)) is not None:
        yield f"did you mean `{written_path((*parents, name, key))}`?"


def written_path(parts: Iterable[Any]) -> str:
    """Writes a path as text: ``ctx.rows[0].name``."""
    text = ""
    for part in parts:
        if type(part) is str and len(part) > _PART_CHARS:
            part = shorten(part, _PART_CHARS)
        if type(part) is str and (part.isidentifier() or not text):
            text = f"{text}.{part}" if text else part
        else:
            text = f"{text}[{part!r}]"
    return text
