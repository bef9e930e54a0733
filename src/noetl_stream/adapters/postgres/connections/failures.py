"""Translates the errors of asyncpg and the operating system into this project's."""

from __future__ import annotations

import contextlib
import errno
import re
import socket
from collections.abc import Iterator
from typing import Final

import asyncpg

from noetl_stream.errors import (
    Fenced,
    JournalConflict,
    LoginRefused,
    NoetlError,
    NotReady,
    PayloadRefused,
    RequestAnswered,
    Unreachable,
)

DRIVER_ERRORS: Final = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""The errors that a call to the database may raise."""

MIGRATE: Final = "run `noetl-stream database migrate`"

_FENCE_STATE: Final = "NF001"
_CHECK_ADDRESS: Final = "check the address in NOETL_POSTGRES_DSN"
_REFUSED_BY_STATE: Final = {
    "28P01": ("wrong password", _CHECK_ADDRESS),
    "28000": ("login is not allowed", "check the user and pg_hba.conf"),
    "3D000": ("the database does not exist", "create it, or " + _CHECK_ADDRESS),
    "53100": ("its disk is full", "free some space; nothing was written"),
    "53300": ("too many connections", "raise max_connections, or close other clients"),
    "57P03": ("it is starting up or shutting down", "try again in a moment"),
    "25006": ("it is read-only", "name the primary, not a standby, in NOETL_POSTGRES_DSN"),
}
_REFUSES_LOGIN: Final = ("28P01", "28000", "3D000")
_LACKS_PRIVILEGE: Final = "42501"


def was_answered(error: BaseException) -> bool:
    """Returns whether the server itself refused the statement, so that it cannot have been committed.

    A fatal message does not count: it ends the connection for other reasons, perhaps just after a commit.
    """
    if isinstance(error, asyncpg.DataError):
        return True  # refused before it was sent
    severity = getattr(error, "severity_en", None) or getattr(error, "severity", None)
    return isinstance(error, asyncpg.PostgresError) and severity == "ERROR"


@contextlib.contextmanager
def translating(address: str) -> Iterator[None]:
    """Raises the errors of the driver during the block as :func:`translate_error` returns them.

    Whatever waits for the driver does so in such a block: a role ends with a traceback for what nobody translates.
    """
    try:
        yield
    except DRIVER_ERRORS as error:
        raise translate_error(error, address) from error


def translate_error(error: BaseException, address: str) -> NoetlError:
    """Returns the error to raise instead of ``error``. ``address`` names the Postgres, without secrets."""
    if isinstance(error, asyncpg.DataError):
        return PayloadRefused(f"cannot send a value to Postgres: {_first_line(error)}")
    if isinstance(error, asyncpg.PostgresError) and error.sqlstate is not None:
        return _refusal(error, error.sqlstate, address)
    return Unreachable(f"cannot reach Postgres at {address}: {_reason(error)}", hint=f"is it running? {_CHECK_ADDRESS}")


def _refusal(error: asyncpg.PostgresError, state: str, address: str) -> NoetlError:
    message = error.message or _first_line(error)
    if state == _FENCE_STATE:
        return Fenced("another server has a partition of this tick, or the tick was committed before")
    if state == "23505" and error.table_name == "request":
        return RequestAnswered(f"request was about to be written twice: {error.detail}")
    if state == "23505":
        return JournalConflict(f"{error.table_name} was about to be written twice: {error.detail}")
    if state in _REFUSED_BY_STATE:
        reason, hint = _REFUSED_BY_STATE[state]
        refusal = LoginRefused if state in _REFUSES_LOGIN else Unreachable
        return refusal(f"Postgres at {address} refuses: {reason} ({message})", hint=hint)
    if state == _LACKS_PRIVILEGE:
        hint = "run `noetl-stream database migrate --roles` as the owner of the schema noetl, or grant it"
        return NotReady(f"Postgres at {address} refuses: the user lacks a privilege ({message})", hint=hint)
    if state in ("42P01", "3F000", "42703", "42883"):
        return NotReady(f"the database at {address} lacks the schema of this version: {message}", hint=MIGRATE)
    if state[:2] in ("21", "22", "23", "54"):
        return PayloadRefused(f"Postgres rejected a row: {message}")
    return Unreachable(f"Postgres at {address} refuses: {message} (SQLSTATE {state})")


def _reason(error: BaseException) -> str:
    # If a host has several addresses, all fail as one plain OSError.
    numbers = set(re.findall(r"\[Errno (\d+)\]", str(error)))
    match error:
        case TimeoutError():
            return "no answer in time"
        case OSError() if numbers == {str(errno.ECONNREFUSED)}:
            return "connection refused"
        case asyncpg.TargetServerAttributeNotMatched():
            return "no host is the primary"
        case FileNotFoundError():
            return "no such socket"
        case socket.gaierror():
            return "unknown host name"
    return _first_line(error)


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
