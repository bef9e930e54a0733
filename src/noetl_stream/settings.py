"""The environment's settings: read once, here and nowhere else. ``docs/settings.md`` has the same table for people."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Self, TypeVar
from urllib.parse import urlsplit

from noetl_stream.errors import UsageError

LogFormat = Literal["text", "json"]
Choice = TypeVar("Choice", bound=str)

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS: tuple[LogFormat, ...] = ("text", "json")
NATS_SCHEMES = ("nats", "tls", "ws", "wss")
POSTGRES_SCHEMES = ("postgres", "postgresql")

DEFAULT_HOME = "~/.noetl"
DEFAULT_POOL = "default"
DEFAULT_SLOTS = 64
MAX_SLOTS = 10_000
DEFAULT_LOG_LEVEL = "info"
DEFAULT_LOG_FORMAT: LogFormat = "text"
POOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""A pool is one token of a NATS subject, and part of its consumer's name."""

CREDENTIAL_PREFIX = "NOETL_CREDENTIAL_"
CREDENTIAL_VARIABLE = "NOETL_CREDENTIAL_<NAME>"


def _from(variable: str, default: str) -> dict[str, str]:
    """Where a field comes from, and its default in words: what the table in the documentation is tested against."""
    return {"variable": variable, "default": default}


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment says, checked.

    Attributes:
        nats_url: One or more ``nats://`` addresses with commas between, or ``None`` for the embedded NATS.
        postgres_dsn: A ``postgresql://`` address, or ``None`` for the embedded Postgres. Both are given, or neither.
        home_folder: Where the embedded servers live, absolute; ``None`` if nothing says where. Read :attr:`home`.
        pool: The worker pool that ``worker`` serves.
        slots: Tasks a worker runs at the same time.
        log_level: ``debug``, ``info``, ``warning`` or ``error``.
        log_format: ``text`` or ``json``, one line a record either way.
        credentials: By lower-case name, a DSN or JSON text (LANGUAGE §11).
        no_color: Whether output stays without colours (https://no-color.org).
    """

    nats_url: str | None = field(default=None, repr=False, metadata=_from("NOETL_NATS_URL", "the embedded NATS"))
    postgres_dsn: str | None = field(
        default=None, repr=False, metadata=_from("NOETL_POSTGRES_DSN", "the embedded Postgres")
    )
    home_folder: Path | None = field(default=None, metadata=_from("NOETL_HOME", DEFAULT_HOME))
    pool: str = field(default=DEFAULT_POOL, metadata=_from("NOETL_POOL", DEFAULT_POOL))
    slots: int = field(default=DEFAULT_SLOTS, metadata=_from("NOETL_SLOTS", str(DEFAULT_SLOTS)))
    log_level: str = field(default=DEFAULT_LOG_LEVEL, metadata=_from("NOETL_LOG_LEVEL", DEFAULT_LOG_LEVEL))
    log_format: LogFormat = field(default=DEFAULT_LOG_FORMAT, metadata=_from("NOETL_LOG_FORMAT", DEFAULT_LOG_FORMAT))
    credentials: Mapping[str, str] = field(
        default_factory=dict, repr=False, metadata=_from(CREDENTIAL_VARIABLE, "none")
    )
    no_color: bool = field(default=False, metadata=_from("NO_COLOR", "colours on a terminal"))

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Reads ``environ``, by default the process' own. A variable set to nothing counts as not set.

        Raises:
            UsageError: a value cannot be; the message names its variable and never shows an address or credential.
        """
        given = {name: value for name, value in (os.environ if environ is None else environ).items() if value}
        nats_url = _address(given, "NOETL_NATS_URL", NATS_SCHEMES)
        postgres_dsn = _address(given, "NOETL_POSTGRES_DSN", POSTGRES_SCHEMES)
        _check_both_or_neither(nats_url, postgres_dsn)
        return cls(
            nats_url=nats_url,
            postgres_dsn=postgres_dsn,
            home_folder=_home(given),
            pool=_pool(given),
            slots=_slots(given),
            log_level=_choice(given, "NOETL_LOG_LEVEL", LOG_LEVELS, DEFAULT_LOG_LEVEL),
            log_format=_choice(given, "NOETL_LOG_FORMAT", LOG_FORMATS, DEFAULT_LOG_FORMAT),
            credentials=MappingProxyType(_credentials(given)),
            no_color="NO_COLOR" in given,
        )

    @property
    def home(self) -> Path:
        """The home folder, absolute.

        Raises:
            UsageError: neither ``NOETL_HOME`` nor ``HOME`` is set. Asked only here, because a role with servers of
                its own needs no home.
        """
        if self.home_folder is None:
            raise UsageError(
                "neither NOETL_HOME nor HOME is set", hint="set NOETL_HOME to a folder for the local stack"
            )
        return self.home_folder


def _address(given: Mapping[str, str], variable: str, schemes: tuple[str, ...]) -> str | None:
    value = given.get(variable)
    if value is None:
        return None
    for part in value.split(",") if schemes is NATS_SCHEMES else [value]:
        if urlsplit(part.strip()).scheme not in schemes:
            raise UsageError(f"{variable} is not an address", hint=f"it begins with {schemes[0]}://")
    return value


def _check_both_or_neither(nats_url: str | None, postgres_dsn: str | None) -> None:
    if (nats_url is None) == (postgres_dsn is None):
        return
    present, absent = "NOETL_NATS_URL", "NOETL_POSTGRES_DSN"
    if nats_url is None:
        present, absent = absent, present
    raise UsageError(f"{present} is set and {absent} is not", hint="set both for your own servers, or neither")


def _home(given: Mapping[str, str]) -> Path | None:
    value = given.get("NOETL_HOME", DEFAULT_HOME)
    if value == "~" or value.startswith("~/"):
        own = given.get("HOME")
        return None if own is None else Path(own, value[2:]).absolute()
    if value.startswith("~"):
        raise UsageError("NOETL_HOME cannot name another user's folder by ~", hint="write the whole path")
    return Path(value).absolute()


def _pool(given: Mapping[str, str]) -> str:
    value = given.get("NOETL_POOL", DEFAULT_POOL)
    if POOL_NAME.fullmatch(value) is None:
        raise UsageError(f"NOETL_POOL is {value!r}", hint="a pool has 1 to 64 letters, digits, _ and -")
    return value


def _slots(given: Mapping[str, str]) -> int:
    value = given.get("NOETL_SLOTS", str(DEFAULT_SLOTS))
    if not (value.isascii() and value.isdigit() and 1 <= int(value) <= MAX_SLOTS):
        raise UsageError(f"NOETL_SLOTS is {value!r}", hint=f"a whole number from 1 to {MAX_SLOTS}")
    return int(value)


def _choice(given: Mapping[str, str], variable: str, choices: tuple[Choice, ...], default: Choice) -> Choice:
    value = given.get(variable, default).lower()
    for choice in choices:
        if value == choice:
            return choice
    raise UsageError(f"{variable} is {value!r}", hint=f"one of {', '.join(choices)}")


def _credentials(given: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for variable, value in given.items():
        name = variable.removeprefix(CREDENTIAL_PREFIX).lower()
        if not variable.startswith(CREDENTIAL_PREFIX) or not name:
            continue
        if found.get(name, value) != value:
            raise UsageError(f"{variable} gives the credential {name!r} a second value", hint="names ignore case")
        found[name] = value
    return found


def child_environment(nats_url: str, postgres_dsn: str, credentials: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child process that is to work in the same place as this one."""
    found = dict(os.environ)
    found |= {"NOETL_NATS_URL": nats_url, "NOETL_POSTGRES_DSN": postgres_dsn}
    return found | {CREDENTIAL_PREFIX + name.upper(): value for name, value in credentials.items()}
