"""Messages between a launcher and its zygote: MessagePack after a big-endian length of four bytes.

Neither side ever drops the rest of a message that it has begun to write: the launcher keeps what the socket does not
take, without waiting, and the zygote waits. Neither blocks on the rest of a message that it reads.
"""

from __future__ import annotations

from typing import Final

import msgspec

from noetl_stream.settings.children import ChildSettings
from noetl_stream.tools.children.frames import add_length

ZYGOTE_DIED: Final = -9
"""The exit code of children whose zygote ended, with which they are killed."""

SILENT_S: Final = 20.0
"""The time by which children outlive the last pulse of their worker: as long as its own work continues without NATS."""

PULSES: Final = 4
"""The number of pulses that a worker sends in :data:`SILENT_S`."""

BIND_NOW: Final = "LD_BIND_NOW"
"""The variable that has the zygote's symbols bound at its start: each process that it forks would bind them again."""

START_S: Final = 120.0
"""The time in which a zygote must import the modules of children, on a busy machine."""

ANSWER_S: Final = 20.0
"""The silence of a zygote while an answer is awaited after which it is replaced. Answers take milliseconds."""


class Setup(msgspec.Struct, frozen=True, tag=True):
    """The first message to a zygote: the common settings of all children. The pipe of the worker's pulse comes with it.

    ``server`` is the module whose ``serve(channel_fd, cpu_s)`` children without a program run; its ``prepare()`` is
    called before, in the zygote. ``preload`` are modules that the zygote imports for them. Children are killed
    ``silent_s`` after the last pulse. ``cgroups`` are the folders in which each gets a control group.
    """

    settings: ChildSettings
    server: str | None
    preload: tuple[str, ...] = ()
    silent_s: float = SILENT_S
    cgroups: tuple[str, ...] = ()


class ExternalProgram(msgspec.Struct, frozen=True):
    """A program to execute. ``environment`` is added to that of all children; ``folder`` is by default the child's own.
    ``{name}`` in a word stands for the path of the child's folder of this name. ``is_server``: it limits the CPU time
    of what it runs itself.
    """

    words: list[bytes]
    environment: dict[bytes, bytes]
    folder: bytes | None
    is_server: bool = False


class StartChild(msgspec.Struct, frozen=True, tag=True):
    """Orders a child with this ``number`` and ``home`` as its folder.

    With a program, the descriptors sent along are its input, output and errors, and a pipe for the number of the system
    error if it cannot be executed. Without one, they are the channel that the child serves, and its output. If children
    have a proxy, the last one more is the socket by which the child sends the one that listens for it. ``folders`` are
    those that it can read, by name. Without a program, it imports from ``packages``; a program that is no server has
    the ``files`` in its own folder.
    """

    number: int
    slot: int
    home: str
    program: ExternalProgram | None = None
    folders: dict[str, str] = {}


class ReleaseChild(msgspec.Struct, frozen=True, tag=True):
    """Orders the release of an ended child. Until then its process id stays taken."""

    number: int
    slot: int


class Ping(msgspec.Struct, frozen=True, tag=True):
    """Requests a :class:`Pong` from the zygote."""


class Pong(msgspec.Struct, frozen=True, tag=True):
    """Reports that the zygote works: its first message, after its imports, and the answer to :class:`Ping`."""


class Started(msgspec.Struct, frozen=True, tag=True):
    """Reports that a child was started; ``error`` is the number of the system error if it was not, ``folder`` the one
    that could not be made.
    """

    number: int
    process_id: int = 0
    error: int = 0
    folder: str = ""


class Ended(msgspec.Struct, frozen=True, tag=True):
    """Reports that a child has ended; ``exit_code`` is negative for a signal, as in :mod:`subprocess`."""

    number: int
    exit_code: int


class Vacated(msgspec.Struct, frozen=True, tag=True):
    """Reports that no process is left of the released children that had these slots."""

    slots: list[int]


Order = Setup | StartChild | ReleaseChild | Ping
Event = Started | Ended | Vacated | Pong


def encode_message(message: Order | Event) -> bytes:
    return add_length(msgspec.msgpack.encode(message))
