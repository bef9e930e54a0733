"""The servers of the user's own: the addresses of Postgres, and the spread of the streams over a NATS cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs, urlsplit

import msgspec

from noetl_stream.errors import UsageError
from noetl_stream.model.secrets.urls import split_url
from noetl_stream.settings.sources.variables import words_of
from noetl_stream.trigger.stream_messages import stream_fault

REPLICAS_VARIABLE: Final = "NOETL_STREAM_REPLICAS"
PLACEMENT_VARIABLE: Final = "NOETL_STREAM_PLACEMENT_TAGS"

MAX_REPLICAS: Final = 5

MAX_TRIGGER_STREAMS: Final = 100

_TAG: Final = r"[A-Za-z0-9_:./=-]{1,64}"


class Spread(msgspec.Struct, frozen=True):
    """The spread of the streams over a NATS cluster.

    Attributes:
        replicas: Copies of each stream. Streams that have more keep them.
        tags: The tags that each server with a copy has in its ``server_tags``; none: streams stay where they are.
    """

    replicas: int = 1
    tags: tuple[str, ...] = ()


def read_tags(variable: str, given: Mapping[str, str]) -> tuple[str, ...]:
    """Parses tags of servers, such as ``region:eu,disk:ssd``.

    Raises:
        UsageError: a tag has other characters.
    """
    tags = words_of(variable, given)
    for tag in tags:
        if re.fullmatch(_TAG, tag) is None:
            hint = "write what nats-servers have as server_tags, with commas between: region:eu,disk:ssd"
            raise UsageError(f"invalid tag {tag!r} in {variable}", hint=hint)
    return tags


def read_trigger_streams(variable: str, given: Mapping[str, str]) -> tuple[str, ...]:
    """Parses names of streams, such as ``ORDERS,PAYMENTS``.

    Raises:
        UsageError: there are too many, or one is not a stream name, or is one of the engine's own.
    """
    names = tuple(dict.fromkeys(words_of(variable, given)))
    if len(names) > MAX_TRIGGER_STREAMS:
        raise UsageError(f"{variable} names {len(names)} streams; at most {MAX_TRIGGER_STREAMS} are possible")
    for name in names:
        if fault := stream_fault(name):
            raise UsageError(f"invalid {variable}: {fault}", hint="write names with commas between: ORDERS,PAYMENTS")
    return names


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
