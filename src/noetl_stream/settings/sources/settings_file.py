"""Settings from files: a settings file, as written by ``noetl-stream setup``, and files of one secret each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
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
        UsageError: a line is not a setting. The message names ``where`` and the line, and shows nothing of it.
    """
    found = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        parts = _LINE.fullmatch(line.strip())
        if parts is None:
            raise UsageError(f"{where}, line {number}: not a setting", hint="write NAME=VALUE, or # before a comment")
        name, value = parts.groups()
        is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in _QUOTES
        found[name] = value[1:-1] if is_quoted else value
    return found


def settings_text(text: str, wanted: Mapping[str, str]) -> str:
    """Writes these values into the ``text`` of a settings file, in the lines of their variables, else at its end. Other
    lines stay; an empty value has no line.
    """
    left, lines = {name: value for name, value in wanted.items() if value}, []
    for line in text.splitlines():
        parts = _LINE.fullmatch(line.strip())
        if parts is None or parts[1] not in wanted:
            lines.append(line)
        elif value := left.pop(parts[1], ""):
            lines.append(f"{parts[1]}={value}")
    return "\n".join([*lines, *(f"{name}={value}" for name, value in left.items()), ""])


FILE_SUFFIX: Final = "_FILE"
MAX_BYTES: Final = 64 * 1024


def with_files(given: Mapping[str, str], variables: Iterable[str]) -> dict[str, str]:
    """``given``, with each variable that names a file replaced by its content.

    Raises:
        UsageError: A file cannot be read, is empty or over 64 KiB, or its variable is set as well.
    """
    found = dict(given)
    for variable in variables:
        path = found.pop(variable + FILE_SUFFIX, None)
        if path is None:
            continue
        if variable in found:
            raise UsageError(f"{variable} and {variable}{FILE_SUFFIX} are both set", hint="remove one of them")
        found[variable] = _read(variable + FILE_SUFFIX, Path(path))
    return found


def _read(variable: str, path: Path) -> str:
    try:
        if path.exists() and not path.is_file():  # reading a pipe may not end
            raise UsageError(f"{variable} names {path}, which is not a file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        text = content.decode().strip()
    except OSError as error:
        hint = "this process has to be able to read it"
        raise UsageError(f"{variable} names {path}: {error.strerror}", hint=hint) from None
    except ValueError:
        raise UsageError(f"{variable} names {path}, which is not UTF-8 text") from None
    if not text or len(content) > MAX_BYTES:
        extent = "is empty" if not text else f"has more than {MAX_BYTES} bytes"
        raise UsageError(f"{variable} names {path}, which {extent}", hint="write the value of the setting into it")
    return text
