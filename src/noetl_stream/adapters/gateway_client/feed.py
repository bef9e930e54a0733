"""Live events over Server-Sent Events; a broken stream is reopened (PROTOCOL §4)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, aclosing
from typing import Any, Final, NamedTuple

from noetl_stream.adapters.gateway_client.connection import GatewayConnection, GatewayRequest
from noetl_stream.adapters.gateway_client.verbs import GatewayVerbs
from noetl_stream.errors import TooBusy, Unreachable
from noetl_stream.model.envelope import EventDocument
from noetl_stream.model.json import codec
from noetl_stream.model.status import ENDED
from noetl_stream.ports.operations.executions import ExecutionDocument
from noetl_stream.ports.operations.reading.events import LAST_EVENT, FeedEvent
from noetl_stream.ports.operations.verbs import document_of
from noetl_stream.retries import pauses

SILENCE_S: Final = 45.0
"""The longest silence of a gateway, which sends at least three times in it."""

PATIENCE_S: Final = 60.0
"""The time for which a broken connection is retried."""

RETRY_S: Final = 2.0
LONGEST_RETRY_S: Final = 15.0


class Frame(NamedTuple):
    """An event of a stream. ``data`` is its JSON, decoded."""

    id: str
    data: Any


class Frames:
    """Parses bytes into frames as they arrive (HTML Living Standard §9.2.6). ``last_id`` is that of the last complete
    frame, with data or without; ``retry_s`` is the wait before reopening a broken stream.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._id = ""
        self.last_id = ""
        self._data: list[str] = []
        self.retry_s = RETRY_S

    def take(self, chunk: bytes) -> Iterator[Frame]:
        """The frames that these bytes complete."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            field, _, value = line.decode().rstrip("\r").partition(":")
            value = value.removeprefix(" ")
            if not field and not value:
                self.last_id = self._id
                if self._data:
                    yield Frame(self._id, codec.decode_json("\n".join(self._data).encode()))
                self._data = []
            elif field == "data":
                self._data.append(value)
            elif field == "id":
                self._id = value
            elif field == "retry" and value.isdigit():
                self.retry_s = int(value) / 1000


class GatewayFeed(GatewayVerbs):
    """:class:`~noetl_stream.ports.operations.reading.events.Feed`. A stream does not name the playbook of an event:
    :attr:`~noetl_stream.ports.operations.reading.events.FeedEvent.path` is empty.
    """

    async def execution(self, execution_id: str, after: int) -> AsyncIterator[list[FeedEvent]]:
        async def has_more(last: str | None) -> bool:
            """Whether a closed stream had more events: gateways stop, too."""
            try:
                found = await self._connection.get(ExecutionDocument, "executions", execution_id)
            except Unreachable:
                return True
            return found.status not in ENDED or found.position > int(last or 0)

        at = ("executions", execution_id, "events", "stream")
        return _to_the_end(await _Stream(self._connection, at, str(after), has_more).open())

    async def everything(self, after: str | None) -> AsyncIterator[list[FeedEvent]]:
        """Raises, while it is read: Unreachable: the connection cannot be reopened, or broke before the gateway had
        sent the beginning of the feed.
        """
        return await _Stream(self._connection, ("events", "stream"), after, _always).open()


class _Stream:
    """One stream over as many connections as needed."""

    def __init__(
        self,
        connection: GatewayConnection,
        parts: tuple[str, ...],
        last: str | None,
        has_more: Callable[[str | None], Awaitable[bool]],
    ) -> None:
        self._connection = connection
        self._parts = parts
        self._last = last
        self._has_more = has_more
        self._open = AsyncExitStack()
        self._retry_s = RETRY_S

    async def open(self) -> AsyncIterator[list[FeedEvent]]:
        return self._events(await self._connect())

    async def _connect(self) -> AsyncIterator[bytes]:
        headers = {} if self._last is None else {"Last-Event-ID": self._last}
        asked = GatewayRequest("GET", self._parts, headers=headers)
        return await self._open.enter_async_context(self._connection.stream(asked, SILENCE_S))

    async def _events(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[list[FeedEvent]]:
        try:
            while True:
                async for events in self._read(chunks):
                    yield events
                if not await self._has_more(self._last):
                    return
                chunks = await self._reconnect()
        finally:
            await self._open.aclose()

    async def _read(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[list[FeedEvent]]:
        """Reads until the connection ends, for any reason."""
        frames = Frames()
        try:
            async for chunk in chunks:
                some = [FeedEvent(one.id, document_of(one.data, EventDocument), "") for one in frames.take(chunk)]
                self._last = frames.last_id or self._last
                self._retry_s = frames.retry_s
                if some:
                    yield some
        except Unreachable:
            return

    async def _reconnect(self) -> AsyncIterator[bytes]:
        await self._open.aclose()
        if self._last is None:
            text = f"the connection to {self._connection.url} broke before the first event"
            raise Unreachable(text, hint="events may have been missed: start again")
        clock = self._connection.clock
        until_s, waits = clock.monotonic_s() + PATIENCE_S, pauses(self._retry_s, LONGEST_RETRY_S)
        while True:
            await clock.sleep(next(waits))
            try:
                return await self._connect()
            except (Unreachable, TooBusy):
                if clock.monotonic_s() >= until_s:
                    raise


async def _to_the_end(feed: AsyncIterator[list[FeedEvent]]) -> AsyncIterator[list[FeedEvent]]:
    async with aclosing(feed):  # type: ignore[type-var]
        async for events in feed:
            yield events
            if events[-1].name == LAST_EVENT:
                return


async def _always(last: str | None) -> bool:
    return True
