"""Readers of settings from their environment variables, and the file that holds these."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from noetl_stream.errors import UsageError
from noetl_stream.model.secrets.urls import split_address

Given = Mapping[str, str]
"""The variables that are set and not empty."""

Read = Callable[[str, Given], Any]
"""A reader of a setting, given its variable."""


class EnvironmentVariable(msgspec.Struct, frozen=True):
    """The variable of a setting, its default in words, and its reader. Calling it gives the default.

    ``docs/reference/settings.md`` has names and defaults; a test compares them.
    """

    name: str
    default: str
    read: Read
    is_secret: bool

    def __call__(self) -> Any:
        return self.read(self.name, {})


def setting(variable: str, default: str, read: Read, *, is_secret: bool = False) -> Any:
    return msgspec.field(default_factory=EnvironmentVariable(variable, default, read, is_secret))


secret = partial(setting, is_secret=True)
"""Makes a setting that nothing shows."""


def number_setting(variable: str, default: int, most: int, least: int = 1) -> Any:
    return setting(variable, str(default), number(default, most, least))


def words_of(variable: str, given: Given) -> tuple[str, ...]:
    """The parts of a list with commas between."""
    return tuple(part.strip() for part in given.get(variable, "").split(",") if part.strip())


def parse_with(parse: Callable[[str], Any]) -> Read:
    return lambda variable, given: parse(given[variable]) if variable in given else None


def number(default: int, most: int, least: int = 1) -> Read:
    def read(variable: str, given: Given) -> int:
        value = given.get(variable, str(default))
        if not (value.isascii() and value.isdigit() and least <= int(value) <= most):
            raise UsageError(f"invalid {variable} {value!r}", hint=f"use a whole number from {least} to {most}")
        return int(value)

    return read


def measure(parse: Callable[[str], float | None], default: str | None, least: float, hint: str) -> Read:
    """Makes the reader of a size or a time; ``None`` without a value and a default."""

    def read(variable: str, given: Given) -> float | None:
        text = given.get(variable, default)
        found = None if text is None else parse(text)
        if text is not None and (found is None or found < least):
            raise UsageError(f"invalid {variable} {text!r}", hint=hint)
        return found

    return read


def choice(choices: tuple[str, ...], default: str | None) -> Read:
    def read(variable: str, given: Given) -> str | None:
        value = given.get(variable, default)
        if value is not None and value.lower() not in choices:
            raise UsageError(f"invalid {variable} {value!r}", hint=f"use one of {', '.join(choices)}")
        return value and value.lower()

    return read


def address(schemes: tuple[str, ...], *, several: bool = False) -> Read:
    """Makes the reader of an address with one of these schemes; ``several``: separated by commas."""

    def read(variable: str, given: Given) -> str | None:
        value = given.get(variable)
        parts = [] if value is None else value.split(",") if several else [value]
        found = [split_address(part.strip()) for part in parts]
        if any(one is None or one.scheme not in schemes for one in found):
            raise UsageError(f"invalid address in {variable}", hint=f"it must start with {schemes[0]}://")
        return value

    return read


def is_set(variable: str, given: Given) -> bool:
    return variable in given


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
