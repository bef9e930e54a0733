"""Readers of settings from their environment variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

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
