"""What the commands that ask something of an execution do: a place, a server, the question, its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from noetl_stream.cli.running import ensure_server
from noetl_stream.client.asking import ask_of
from noetl_stream.errors import UsageError
from noetl_stream.hosting import connected_to, open_place, prepare_embedded
from noetl_stream.model.events import AskedFact
from noetl_stream.model.ids import uuid7
from noetl_stream.processes import Background
from noetl_stream.settings import Settings
from noetl_stream.wiring import make_client


def no_execution(execution_id: str) -> UsageError:
    """The error for an id that names none."""
    return UsageError(f"no execution {execution_id}", hint="`noetl-stream execution list` shows those there are")


async def ask(settings: Settings, execution_id: str, make: Callable[[str], AskedFact]) -> dict[str, Any]:
    """The fold's answer (:func:`~noetl_stream.client.asking.ask_of`); a server is started where none runs.

    Raises:
        UsageError: there is no such execution.
        RequestRefused: the fold said no.
    """
    with open_place(settings) as place:
        await prepare_embedded(place)
        async with connected_to(place, "noetl-cli") as connected:
            await connected.store.verify()
            await connected.log.verify()
            if await connected.store.execution(execution_id) is None:
                raise no_execution(execution_id)
            clock, client = connected.clock, make_client(connected)
            background = Background(settings, place)

            async def there_is_a_server() -> None:
                await ensure_server(connected, client, background)

            await there_is_a_server()
            fact = make(uuid7(clock.now_ms(), clock.random_bytes(10)))
            return await ask_of(connected.log, connected.bus, clock, execution_id, fact, there_is_a_server)
