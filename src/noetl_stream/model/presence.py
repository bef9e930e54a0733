"""What a worker says of itself to whoever asks (:data:`~noetl_stream.ports.subjects.ASK_WORKERS`)."""

from __future__ import annotations

import msgspec


class RunningCommand(msgspec.Struct, frozen=True, omit_defaults=True):
    """A command that a worker holds now. ``delivered`` counts its deliveries since it was issued, this one included."""

    execution_id: str
    command_id: str
    step: str
    delivered: int = 1


class WorkerPresence(msgspec.Struct, frozen=True, omit_defaults=True):
    """A living worker. ``busy`` of its ``slots`` hold a command; ``since_ms`` is when it started, by its own clock.

    ``kinds`` are the tool kinds it has. One that is ``draining`` takes nothing new. ``running`` names the commands it
    has held longest, not more than a bounded number of them.
    """

    name: str
    pool: str
    slots: int
    busy: int
    since_ms: int
    kinds: list[str]
    version: str
    draining: bool = False
    running: list[RunningCommand] = []
