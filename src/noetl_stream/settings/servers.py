"""The user's own servers: the addresses of Postgres, the spread of the streams over NATS, and its syncs to disk."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs, urlsplit

import msgspec

from noetl_stream.errors import UsageError
from noetl_stream.model.ids import is_valid_id
from noetl_stream.model.placement import LABEL, VALUE
from noetl_stream.model.secrets.urls import split_address, split_url
from noetl_stream.settings.sources.variables import words_of
from noetl_stream.trigger.stream_messages import stream_fault

REPLICAS_VARIABLE: Final = "NOETL_STREAM_REPLICAS"
PLACEMENT_VARIABLE: Final = "NOETL_STREAM_PLACEMENT_TAGS"

SYNC_VARIABLE: Final = "NOETL_NATS_SYNC_INTERVAL"
MONITOR_VARIABLE: Final = "NOETL_NATS_MONITOR"
PAGE_VARIABLE: Final = "NOETL_PAGE_URL"
POOL_LABELS_VARIABLE: Final = "NOETL_POOL_LABELS"

MAX_REPLICAS: Final = 5
MAX_MONITORS: Final = 20
MAX_SYNC_S: Final = 24 * 3600

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


class NatsSync(msgspec.Struct, frozen=True):
    """The known ``sync_interval`` of NATS, which it does not tell its clients.

    Attributes:
        interval_s: The configured interval in seconds, 0 for ``always``; ``None`` if it is not configured.
        monitors: The monitoring addresses of all nats-servers, such as ``http://nats:8222``, which report it.
    """

    interval_s: float | None = None
    monitors: tuple[str, ...] = ()


def read_sync_interval(variable: str, given: Mapping[str, str]) -> float | None:
    """Reads a ``sync_interval`` as nats-server writes it: ``always``, ``10s``, ``2m``; 0.0 for ``always``.

    Raises:
        UsageError: it is none.
    """
    value = given.get(variable)
    if value is None or value == "always":
        return None if value is None else 0.0
    found = re.fullmatch(r"([0-9]{1,6})(s|m|h)", value)
    seconds = 0 if found is None else int(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]
    if not 0 < seconds <= MAX_SYNC_S:
        raise UsageError(f"invalid {variable} {value!r}", hint="write what nats-server's file says: always, 10s, 2m")
    return float(seconds)


def read_monitors(variable: str, given: Mapping[str, str]) -> tuple[str, ...]:
    """Reads monitoring addresses of nats-servers, separated by commas.

    Raises:
        UsageError: there are too many, or one is not an ``http`` address.
    """
    found = words_of(variable, given)
    parts = [split_address(one) for one in found]
    if len(found) > MAX_MONITORS or any(one is None or one.scheme not in ("http", "https") for one in parts):
        hint = f"write http://HOST:8222, at most {MAX_MONITORS} of them, with commas between"
        raise UsageError(f"invalid address in {variable}", hint=hint)
    return tuple(one.rstrip("/") for one in found)


def read_page_url(variable: str, given: Mapping[str, str]) -> str:
    """Reads the address of the page, such as ``https://noetl.example.com``; empty if it is not configured.

    Raises:
        UsageError: it is no ``http`` address.
    """
    value = given.get(variable, "").strip()
    parts = split_address(value)
    if value and (parts is None or parts.scheme not in ("http", "https")):
        raise UsageError(f"invalid address in {variable}", hint="write https://HOST, as people open the page")
    return value.rstrip("/")


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


def read_pool_labels(variable: str, given: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Parses labels of pools, such as ``gpu: accelerator=gpu memory_mb=65536; eu: zone=eu``.

    Raises:
        UsageError: it has another form.
    """
    text = given.get(variable, "").strip()
    found: dict[str, dict[str, str]] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        pool, _, labels = part.partition(":")
        pairs = [label.partition("=") for label in labels.split()]
        is_valid = all(equals and LABEL.fullmatch(name) and VALUE.fullmatch(value) for name, equals, value in pairs)
        if not (is_valid_id(pool.strip()) and pairs and is_valid) or pool.strip() in found:
            hint = "write each pool once, with its labels: gpu: accelerator=gpu memory_mb=65536; eu: zone=eu"
            raise UsageError(f"invalid labels of a pool in {variable}: {part!r}", hint=hint)
        found[pool.strip()] = {name: value for name, _, value in pairs}
    return found


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
POSTGRES_MAX_BYTES_VARIABLE: Final = "NOETL_POSTGRES_MAX_BYTES"

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
    """Reads the address of the primary, like :func:`read_address`.

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
