"""Translates the errors of asyncpg and the operating system into this project's."""

from __future__ import annotations

import contextlib
import errno
import re
import socket
from collections.abc import Iterator, Mapping
from typing import Final

import asyncpg

from noetl_stream.adapters.treatments import CodeRule, Treatment
from noetl_stream.errors import (
    Fenced,
    JournalConflict,
    LoginRefused,
    NoetlError,
    NotReady,
    PayloadRefused,
    RequestAnswered,
    Unreachable,
    page,
)

DRIVER_ERRORS: Final = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""The errors that a call to the database may raise."""

MIGRATE: Final = "run `noetl-stream database migrate`"

_FENCE_STATE: Final = "NF001"
_TAKEN: Final = "23505"
_REFUSES_LOGIN: Final = ("28", "3D000")
_CHECK_ADDRESS: Final = "check the address in NOETL_POSTGRES_DSN"
_ROLES: Final = "run `noetl-stream database migrate --roles` as the owner of the schema noetl, or grant it"
_DAMAGED: Final = f"look at the log of Postgres and at its disk; {page('how-to/disaster')} says how to go on without it"
_SOON: Final = "try again in a moment"

_HANDLED, _AGAIN, _WAITED, _STOPS = Treatment

RULES: Final[Mapping[str, CodeRule]] = {
    _FENCE_STATE: CodeRule(_HANDLED, "another server has a partition of the tick, or it was committed before"),
    "08": CodeRule(_WAITED, "the connection failed", f"is it running? {_CHECK_ADDRESS}"),
    "21": CodeRule(_HANDLED, "it rejects a row"),
    "22": CodeRule(_HANDLED, "it rejects a row"),
    "23": CodeRule(_HANDLED, "it rejects a row"),
    _TAKEN: CodeRule(_STOPS, "a row was about to be written twice: a defect, unless a request was answered before"),
    "25006": CodeRule(_WAITED, "it is read-only", "name the primary, not a standby, in NOETL_POSTGRES_DSN"),
    "25P03": CodeRule(
        _WAITED, "it ended a transaction that a process held for too long", "is the process short of CPU?"
    ),
    "28": CodeRule(_STOPS, "login is not allowed", "check the user and pg_hba.conf"),
    "28P01": CodeRule(_STOPS, "wrong password", _CHECK_ADDRESS),
    "3D000": CodeRule(_STOPS, "the database does not exist", f"create it, or {_CHECK_ADDRESS}"),
    "40001": CodeRule(_AGAIN, "two transactions wrote the same rows", _SOON),
    "40P01": CodeRule(_AGAIN, "two transactions waited for each other", _SOON),
    "42501": CodeRule(_STOPS, "the user lacks a privilege", _ROLES),
    **dict.fromkeys(
        ("3F000", "42703", "42704", "42883", "42P01"),
        CodeRule(_STOPS, "the database lacks the schema of this version", MIGRATE),
    ),
    "53": CodeRule(_WAITED, "it is short of resources", "look at its log, its memory and its disk"),
    "53100": CodeRule(_WAITED, "its disk is full", "free some space; nothing was written"),
    "53200": CodeRule(_WAITED, "it is out of memory", "give it more, or lower work_mem; nothing was written"),
    "53300": CodeRule(_WAITED, "too many connections", "raise max_connections, or close other clients"),
    "54": CodeRule(_HANDLED, "it rejects a row"),
    "55": CodeRule(_WAITED, "it cannot do that in its present state", "look at its log"),
    "55P03": CodeRule(_AGAIN, "another transaction holds a lock", _SOON),
    "57": CodeRule(_WAITED, "somebody ended the connection", _SOON),
    "57014": CodeRule(_WAITED, "it cancelled a statement", "is statement_timeout set for this user?"),
    "57P01": CodeRule(_WAITED, "it is shutting down", _SOON),
    "57P03": CodeRule(_WAITED, "it is starting up or shutting down", _SOON),
    "58": CodeRule(_WAITED, "it cannot use its files", _DAMAGED),
    "XX": CodeRule(_WAITED, "it has an internal error", "look at its log"),
    "XX001": CodeRule(_WAITED, "its data are damaged", _DAMAGED),
    "XX002": CodeRule(_WAITED, "an index of it is damaged", "`REINDEX DATABASE` makes its indexes again"),
}
"""The rules by SQLSTATE, or by class, its first two characters."""

_UNKNOWN: Final = CodeRule(_WAITED, "")


def rule_of(state: str) -> CodeRule:
    """Returns the treatment of a SQLSTATE; for one that is not in the table, to wait."""
    return RULES.get(state) or RULES.get(state[:2], _UNKNOWN)


def was_answered(error: BaseException) -> bool:
    """Returns whether the server itself refused the statement, so that it cannot have been committed.

    A fatal message does not count: it ends the connection for other reasons, perhaps just after a commit.
    """
    if isinstance(error, asyncpg.DataError):
        return True  # refused before it was sent
    severity = getattr(error, "severity_en", None) or getattr(error, "severity", None)
    return isinstance(error, asyncpg.PostgresError) and severity == "ERROR"


def is_to_repeat(error: BaseException) -> bool:
    """Returns whether the server has rolled the statement back, and may accept it the next time."""
    state = getattr(error, "sqlstate", None) or ""
    return was_answered(error) and rule_of(state).treatment is Treatment.AGAIN


@contextlib.contextmanager
def translating(address: str) -> Iterator[None]:
    """Raises the errors of the driver during the block as :func:`translate_error` returns them.

    Every wait for the driver is in such a block: an untranslated error would end a role with a traceback.
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
    if state == _TAKEN:
        refusal = RequestAnswered if error.table_name == "request" else JournalConflict
        return refusal(f"{error.table_name} was about to be written twice: {error.detail}")
    rule = rule_of(state)
    if rule.treatment is Treatment.HANDLED:
        return PayloadRefused(f"Postgres rejected a row: {message}")
    why = f"{rule.meaning} ({message})" if rule.meaning else f"{message} (SQLSTATE {state})"
    stops = LoginRefused if state.startswith(_REFUSES_LOGIN) else NotReady
    kind = stops if rule.treatment is Treatment.STOPS else Unreachable
    return kind(f"Postgres at {address} refuses: {why}", hint=rule.hint)


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
