"""Retention: how long finished executions are kept, and the bounds of EVENTS, LOGS and the object store."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from noetl_stream.errors import UsageError
from noetl_stream.model.rights import covers
from noetl_stream.model.status import ENDED
from noetl_stream.sealing.file_keys import FileKeys
from noetl_stream.settings.places import Place, read_place
from noetl_stream.settings.sources.variables import Read, measure, words_of
from noetl_stream.settings.tools import size_bytes

RETENTION_VARIABLE: Final = "NOETL_RETENTION"
ARCHIVE_VARIABLE: Final = "NOETL_ARCHIVE"
EVENTS_MAX_BYTES_VARIABLE: Final = "NOETL_EVENTS_MAX_BYTES"
EVENTS_MAX_AGE_VARIABLE: Final = "NOETL_EVENTS_MAX_AGE"
LOGS_MAX_BYTES_VARIABLE: Final = "NOETL_LOGS_MAX_BYTES"
LOGS_MAX_AGE_VARIABLE: Final = "NOETL_LOGS_MAX_AGE"
STORED_VARIABLE: Final = "NOETL_NAMESPACE_MAX_STORED_BYTES"
DEFAULT_EVENTS_MAX_BYTES: Final = "256MiB"
DEFAULT_EVENTS_MAX_AGE: Final = "1d"

NEVER: Final = "never"
LEAST_KEPT_S: Final = 86_400.0
"""The shortest time that executions are kept: a feed that resumes within a day finds all events."""

LEAST_STREAM_AGE_S: Final = 600.0
LEAST_STREAM_BYTES: Final = 1024 * 1024
MAX_RULES: Final = 100

_NEWEST: Final = r"newest +([1-9][0-9]{0,5})"
_AGE: Final = r"([0-9]{1,6})([mhdw])"
_SECONDS: Final = {"m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}


class RetentionRule(msgspec.Struct, frozen=True, gc=False):
    """A rule of retention: the time for which executions of playbooks at or below ``path``, which ended with
    ``status``, are kept after their end.

    Without a path or status it applies to all. With ``newest``, that many are kept, and all for ``keep_s``; without
    either, they are kept for ever.
    """

    path: str
    status: str
    keep_s: float | None
    newest: int | None = None

    def __str__(self) -> str:
        """The rule as written."""
        status = f":{self.status}" if self.status else ""
        which = f"{self.path}{status}=" if self.path or status else ""
        return which + (f"newest {self.newest}" if self.newest is not None else _age_text(self.keep_s))

    def is_for(self, path: str, status: str) -> bool:
        return self.status in ("", status) and (not self.path or covers((self.path,), path))


class RetentionSettings(msgspec.Struct, frozen=True):
    """The settings of retention.

    Attributes:
        rules: The rules; the first that applies to an execution determines how long it is kept. Without one: forever.
        archive: The place where executions are archived before they are deleted; ``None``: they are not.
        events_max_bytes, events_max_age_s: Above one of these, EVENTS is trimmed to half of it.
        logs_max_bytes, logs_max_age_s: Above one of these, LOGS loses its oldest lines. ``None``: those of the stream.
        namespace_max_stored_bytes: The most bytes of a namespace's executions in the object store; ``None``: no bound.
        archive_keys: The keys of the archive. Servers only.
    """

    rules: tuple[RetentionRule, ...] = ()
    archive: Place | None = None
    events_max_bytes: int = 256 * 1024 * 1024
    events_max_age_s: float = 86_400.0
    logs_max_bytes: int | None = None
    logs_max_age_s: float | None = None
    namespace_max_stored_bytes: int | None = None
    archive_keys: FileKeys = FileKeys()


def read_retention(variable: str, given: Mapping[str, str]) -> tuple[RetentionRule, ...]:
    """Parses retention rules, such as ``team/report:failed=90d, team/audit=newest 100, 30d``.

    Raises:
        UsageError: a rule is not ``[[PATH][:STATUS]=]AGE``, or ``newest COUNT`` in place of the age.
    """
    texts = words_of(variable, given)
    if len(texts) > MAX_RULES:
        raise UsageError(f"{variable} has {len(texts)} rules", hint=f"use at most {MAX_RULES}")
    return tuple(_rule(variable, text) for text in texts)


def read_archive(variable: str, given: Mapping[str, str]) -> Place | None:
    """Reads the place of the archive, if the variable has a value.

    Raises:
        UsageError: it is neither an absolute path nor an address of object storage.
    """
    if variable not in given:
        return None
    place = read_place(variable, given[variable])
    if isinstance(place, Path) and not place.is_absolute():
        raise UsageError(f"{variable} is not an absolute path: {given[variable]!r}", hint="all servers write there")
    return place


def stream_size(default: str | None) -> Read:
    """Makes the reader of the size of a stream in bytes."""
    return measure(size_bytes, default, LEAST_STREAM_BYTES, "write a size from 1MiB on, such as 512MB or 4GiB")


def stream_age(default: str | None) -> Read:
    """Makes the reader of the age of a stream in seconds."""
    return measure(_age_s, default, LEAST_STREAM_AGE_S, "write an age from 10m on, such as 12h or 7d")


def _rule(variable: str, text: str) -> RetentionRule:
    which, _, age = text.rpartition("=")
    path, colon, status = which.partition(":")
    count = re.fullmatch(_NEWEST, age.strip())
    newest = int(count[1]) if count is not None else None
    keep_s = LEAST_KEPT_S if newest is not None else None if age == NEVER else _age_s(age)
    if age != NEVER and (keep_s is None or keep_s < LEAST_KEPT_S):
        hint = "write an age from 1d on, such as 30d; never; or a number, such as newest 100"
        raise UsageError(f"invalid age in {variable}: {text!r}", hint=hint)
    if colon and status not in ENDED:
        raise UsageError(f"invalid status in {variable}: {text!r}", hint=f"use one of {', '.join(ENDED)}")
    return RetentionRule(path.strip("/ "), status, keep_s, newest)


def _age_text(age_s: float | None) -> str:
    if age_s is None:
        return NEVER
    unit = next(one for one in ("w", "d", "h", "m") if not age_s % _SECONDS[one])
    return f"{age_s / _SECONDS[unit]:g}{unit}"


def _age_s(text: str) -> float | None:
    found = re.fullmatch(_AGE, text.strip())
    return float(found[1]) * _SECONDS[found[2]] if found is not None else None
