"""The addresses of Postgres: of the primary, by its users, and of a replica for reading."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs, urlsplit

from noetl_stream.errors import UsageError
from noetl_stream.model.secrets.urls import split_url

POSTGRES_VARIABLE: Final = "NOETL_POSTGRES_DSN"
SERVER_POSTGRES_VARIABLE: Final = "NOETL_POSTGRES_SERVER_DSN"
GATEWAY_POSTGRES_VARIABLE: Final = "NOETL_POSTGRES_GATEWAY_DSN"
READ_VARIABLE: Final = "NOETL_POSTGRES_READ_DSN"

_SCHEMES: Final = ("postgres", "postgresql")
_PRIMARY: Final = ("read-write", "primary")


def read_address(variable: str, given: Mapping[str, str]) -> str | None:
    """Reads the address of a Postgres, if the variable has a value.

    Raises:
        UsageError: the address is not a Postgres URL.
    """
    value = given.get(variable)
    parts = None if value is None else split_url(value)
    if value is not None and (parts is None or parts.scheme not in _SCHEMES):
        raise UsageError(f"invalid address in {variable}", hint="it must start with postgres://")
    return value


def read_primary(variable: str, given: Mapping[str, str]) -> str | None:
    """Reads the address of the primary, as :func:`read_address` does.

    Raises:
        UsageError: also if the address names several hosts without asking for the writable one.
    """
    value = read_address(variable, given)
    if value is not None:
        parts = urlsplit(value)
        options = parse_qs(parts.query)
        several = any("," in hosts for hosts in (parts.netloc.rpartition("@")[2], *options.get("host", [])))
        if several and options.get("target_session_attrs", [""])[-1] not in _PRIMARY:
            hint = "add ?target_session_attrs=read-write, so that the primary is found among them"
            raise UsageError(f"{variable} names several hosts", hint=hint)
    return value
