"""The spread of the streams over a NATS cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from noetl_stream.errors import UsageError
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
    tags = tuple(tag.strip() for tag in given.get(variable, "").split(",") if tag.strip())
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
    names = tuple(dict.fromkeys(name.strip() for name in given.get(variable, "").split(",") if name.strip()))
    if len(names) > MAX_TRIGGER_STREAMS:
        raise UsageError(f"{variable} names {len(names)} streams; at most {MAX_TRIGGER_STREAMS} are possible")
    for name in names:
        if fault := stream_fault(name):
            raise UsageError(f"invalid {variable}: {fault}", hint="write names with commas between: ORDERS,PAYMENTS")
    return names
