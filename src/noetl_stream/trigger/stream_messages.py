"""Messages of streams on NATS that triggers read (LANGUAGE §15 *Trigger*)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

MAX_MESSAGE_BYTES: Final = 256 * 1024
"""The most bytes of the data and the headers of a message, together. A larger message starts nothing and is not kept.
"""

STREAMS_VARIABLE: Final = "NOETL_TRIGGER_STREAMS"
"""The variable that names the streams that triggers may read."""

CONSUMER_PREFIX: Final = "noetl-"
"""The prefix of the names of triggers' consumers on NATS."""

MAX_SUBJECT_CHARS: Final = 255
_STREAM: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OWN_STREAM: Final = re.compile(r"EVENTS|COMMANDS|LOGS|OBJ_noetl-.*|KV_noetl-.*")
_TOKEN: Final = re.compile(r"[^\s.*>\x00-\x1f\x7f]+|\*", re.ASCII)


class TriggerMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as a stream holds it.

    Attributes:
        headers: The headers as they were sent; of a repeated one the last.
        size: The size of its data and headers, in bytes. Above :data:`MAX_MESSAGE_BYTES` both are empty here.
        at_ms: The time at which the stream stored the message.
    """

    stream: str
    sequence: int
    subject: str
    at_ms: int
    size: int
    body: bytes = b""
    headers: Mapping[str, str] = {}


def stream_fault(name: str) -> str:
    """The reason why a stream of this name cannot be read by triggers; empty if it can."""
    if not _STREAM.fullmatch(name):
        return f"`{name}` is not the name of a stream: use 1 to 64 letters, digits, `_` and `-`"
    if _OWN_STREAM.fullmatch(name):
        return f"stream `{name}` is the engine's own"
    return ""


def is_subject_pattern(text: str) -> bool:
    """Whether a text is a valid pattern of NATS subjects: ``orders.*.paid``, ``orders.>``."""
    *first, last = text.split(".")
    return len(text) <= MAX_SUBJECT_CHARS and all(map(_TOKEN.fullmatch, [*first, last.replace(">", "*")]))


def subject_matches(pattern: str, subject: str) -> bool:
    wanted, tokens = pattern.split("."), subject.split(".")
    if wanted[-1] == ">" and len(tokens) >= len(wanted):
        wanted, tokens = wanted[:-1], tokens[: len(wanted) - 1]
    return len(wanted) == len(tokens) and all(one in ("*", token) for one, token in zip(wanted, tokens, strict=True))
