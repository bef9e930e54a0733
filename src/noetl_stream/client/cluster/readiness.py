"""Whether NATS, Postgres, the schema, the streams and a server are there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

from noetl_stream.errors import NoetlError, NotReady
from noetl_stream.ports import subjects
from noetl_stream.ports.bus import Bus
from noetl_stream.ports.event_log import EventLog
from noetl_stream.ports.store import Store

LOOK_S: Final = 2.0
"""How long each may take to answer: probes are impatient."""


class DirectReadiness:
    """A :class:`~noetl_stream.ports.gateway.Readiness`. Whoever asks may be a stranger: no address is said."""

    def __init__(self, log: EventLog, store: Store, bus: Bus) -> None:
        self._log = log
        self._store = store
        self._bus = bus

    async def missing(self) -> list[str]:
        """See :meth:`noetl_stream.ports.gateway.Readiness.missing`."""
        looks = (
            _fault("NATS", self._log.verify()),
            _fault("Postgres", self._store.verify()),
            self._server(),
        )
        return [fault for fault in await asyncio.gather(*looks) if fault is not None]

    async def _server(self) -> str | None:
        try:
            alive = await self._bus.ask(subjects.PING, b"", LOOK_S) is not None
        except NoetlError:
            alive = False
        return None if alive else "no server answers: start one with `noetl-stream server`"


async def _fault(name: str, look: Awaitable[object]) -> str | None:
    try:
        await asyncio.wait_for(look, LOOK_S)
    except TimeoutError:
        return f"{name} does not answer within {LOOK_S:g} s"
    except NotReady as error:
        return f"{name} is not prepared" + (f": {error.hint}" if error.hint else "")
    except NoetlError:
        return f"{name} does not answer"
    return None
