"""Objects are deleted by servers: it purges a stream, which nobody else may."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noetl_stream.errors import Unreachable
from noetl_stream.model.json import codec
from noetl_stream.ports.streams.bus import Bus
from noetl_stream.protocol import subjects

KEYS_AT_ONCE: Final = 100
PURGE_WAIT_S: Final = 30.0
"""How long a server may take to delete these objects."""


async def delete_by_server(bus: Bus, keys: Sequence[str]) -> None:
    """Has a server delete the objects with these keys.

    Raises:
        Unreachable: no server has done it; objects that were deleted are simply missing the next time.
    """
    for at in range(0, len(keys), KEYS_AT_ONCE):
        answer = await bus.ask(subjects.PURGE, codec.encode(keys[at : at + KEYS_AT_ONCE]), PURGE_WAIT_S)
        if answer is None or codec.decode_json(answer) is None:
            raise Unreachable("no server has deleted the objects of this execution", hint="try again with a server")
