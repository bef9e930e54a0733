"""Messages between a launcher and its zygote: MessagePack behind a big-endian length of four bytes."""

from __future__ import annotations

from typing import Final

import msgspec

from noetl_stream.settings.children import ChildSettings

HEADER_BYTES: Final = 4
ZYGOTE_DIED: Final = -9
"""The exit code of children whose zygote ended: they are killed with it."""

SILENT_S: Final = 20.0
"""How long children outlive the last pulse of their worker: as long as its own work goes on without NATS."""

PULSES: Final = 4
"""How many pulses there are in that time."""


class Setup(msgspec.Struct, frozen=True, tag=True):
    """The first message: what holds for all children. It comes with the pipe of the worker's pulse.

    ``server`` is the module whose ``serve(channel_fd, cpu_s)`` children without a program run; ``preload`` are modules
    that the zygote imports for them. Children are killed ``silent_s`` after the last pulse.
    """

    settings: ChildSettings
    server: str | None
    preload: tuple[str, ...] = ()
    silent_s: float = SILENT_S


class ExternalProgram(msgspec.Struct, frozen=True):
    """A program to execute. ``environment`` is added to that of all children; ``folder``: default, the child's own."""

    words: list[bytes]
    environment: dict[bytes, bytes]
    folder: bytes | None


class StartChild(msgspec.Struct, frozen=True, tag=True):
    """Start child ``number`` with ``home`` as its folder.

    With a program, the descriptors sent along are its input, output and errors, and a pipe for the number of the system
    error if it cannot be executed. Without one, they are the channel that the child serves, and its output.
    """

    number: int
    slot: int
    home: str
    program: ExternalProgram | None = None


class ReleaseChild(msgspec.Struct, frozen=True, tag=True):
    """Forget child ``number``, which has ended. Until then its process id stays taken."""

    number: int
    slot: int


class Started(msgspec.Struct, frozen=True, tag=True):
    """``error`` is the number of the system error if there is no such process."""

    number: int
    process_id: int = 0
    error: int = 0


class Ended(msgspec.Struct, frozen=True, tag=True):
    """``exit_code`` is negative for a signal, as in :mod:`subprocess`."""

    number: int
    exit_code: int


class Vacated(msgspec.Struct, frozen=True, tag=True):
    """No process is left of the released children that had these slots."""

    slots: list[int]


Order = Setup | StartChild | ReleaseChild
Event = Started | Ended | Vacated


def framed(message: Order | Event) -> bytes:
    """The message with its length."""
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(HEADER_BYTES, "big") + body
