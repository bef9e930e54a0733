"""nats-py's client, without a bug that ends its reading for good."""

from __future__ import annotations

import asyncio

from nats.aio.client import Client


class PatientClient(Client):
    """A client that keeps reading when a PONG arrives after its waiter has given up.

    nats-py sets the result of a cancelled future then: its reader ends with ``InvalidStateError``, and the connection
    is deaf until its own pings are overdue.
    """

    async def _process_pong(self) -> None:
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()
