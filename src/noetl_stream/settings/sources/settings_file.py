"""A file of settings, as ``noetl-stream setup`` writes it: lines of ``NAME=VALUE``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from noetl_stream.errors import UsageError

SETTINGS_VARIABLE: Final = "NOETL_SETTINGS"
SETTINGS_FILE: Final = "settings.env"

_LINE: Final = re.compile(r"(?:export )?([A-Za-z_][A-Za-z0-9_]*)=(.*)")
_QUOTES: Final = ("'", '"')


def parse_settings(text: str, where: object) -> dict[str, str]:
    """Parses the variables of a settings file. Blank lines and lines that begin with ``#`` are skipped; a value may be
    in quotes.

    Raises:
        UsageError: a line is no setting. The message names ``where`` and the line, and shows nothing of it.
    """
    found = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        parts = _LINE.fullmatch(line.strip())
        if parts is None:
            raise UsageError(f"{where}, line {number}: not a setting", hint="write NAME=VALUE, or # before a comment")
        found[parts[1]] = _unquote(parts[2])
    return found


def settings_text(text: str, wanted: Mapping[str, str]) -> str:
    """Writes these values into the ``text`` of a settings file, in the lines of their variables, else at its end. Other
    lines stay, and an empty value has none.
    """
    left, lines = {name: value for name, value in wanted.items() if value}, []
    for line in text.splitlines():
        parts = _LINE.fullmatch(line.strip())
        if parts is None or parts[1] not in wanted:
            lines.append(line)
        elif value := left.pop(parts[1], ""):
            lines.append(f"{parts[1]}={value}")
    return "\n".join([*lines, *(f"{name}={value}" for name, value in left.items()), ""])


def _unquote(value: str) -> str:
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in _QUOTES
    return value[1:-1] if is_quoted else value
