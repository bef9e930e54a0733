"""Server-Sent Events: one execution's, or everybody's, from any event on (PROTOCOL §4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

from pydantic import Field

from noetl_stream.concurrency import end_tasks
from noetl_stream.gateway.http.parameters import ExecutionAt, InHeader, Parameters
from noetl_stream.gateway.http.routes import Answer, Call, Reply, Routes
from noetl_stream.ports.operations.reading.feed import LAST_EVENT, FeedEvent, only
from noetl_stream.ports.operations.verbs import API

MEDIA: Final = "text/event-stream"
HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
OPENING: Final = b"retry: 2000\n\n"
KEEP_ALIVE: Final = b": nothing new\n\n"
KEEP_ALIVE_S: Final = 15.0

ONE: Final = {
    200: Answer("Server-Sent Events; ends with the execution", media=MEDIA),
    204: Answer("That was the last event; browsers ask no more then"),
}
ALL: Final = {200: Answer("Server-Sent Events, without an end", media=MEDIA)}
ONE_PATH: Final = f"{API}/executions/{{execution_id}}/events/stream"

routes = Routes()

Position = Annotated[int, Field(ge=0, le=2**31 - 1)]
FeedId = Annotated[str, Field(min_length=1, max_length=1024)]


class ExecutionStream(ExecutionAt):
    after: Annotated[Position, Field(description="A position: from the event after it.")] = 0
    last_event_id: Annotated[
        Position | None, InHeader("Last-Event-ID"), Field(description="`after`, as browsers send it.")
    ] = None


class FeedStream(Parameters):
    after: Annotated[FeedId | None, Field(description="The id of an event: from the one after it.")] = None
    last_event_id: Annotated[
        FeedId | None, InHeader("Last-Event-ID"), Field(description="`after`, as browsers send it.")
    ] = None
    name: Annotated[tuple[str, ...], Field(description="Only events of these names.")] = ()


@routes("GET", ONE_PATH, "streamExecutionEvents", "viewer", ONE, refuses=("not-found",), streams=True)
async def execution_stream(call: Call[ExecutionStream, None]) -> Reply:
    """Follow the events of one execution.

    Each event once and in order, history first. `id` is the position in the journal.
    """
    given = call.parameters
    after = given.after if given.last_event_id is None else given.last_event_id
    last = await call.operations.executions.events(given.execution_id, after - 1, 1) if after else []
    if last and last[0].name == LAST_EVENT:
        return Reply(None, 204)
    feed = await call.operations.feed.execution(given.execution_id, after)
    return Reply(kept_alive(_frames(feed), call.ending), headers=HEADERS, media=MEDIA)


@routes("GET", f"{API}/events/stream", "streamEvents", "viewer", ALL, streams=True)
async def feed_stream(call: Call[FeedStream, None]) -> Reply:
    """Follow the events of all executions.

    From now on, or from the event after `after`. Events of one execution come in their order.
    """
    given = call.parameters
    feed = await call.operations.feed.everything(given.last_event_id or given.after)
    names = frozenset(given.name)
    if names:
        feed = (only(some, lambda event: event.name in names) async for some in feed)
    return Reply(kept_alive(_frames(feed), call.ending), headers=HEADERS, media=MEDIA)


async def kept_alive(frames: AsyncIterator[bytes], ending: asyncio.Event) -> AsyncIterator[bytes]:
    """The bytes of a stream, until it or the gateway ends; a comment when there is nothing for a while."""
    ended = asyncio.ensure_future(ending.wait())
    coming: asyncio.Future[bytes] | None = None
    try:
        yield OPENING
        while True:
            coming = coming or asyncio.ensure_future(anext(frames))
            either: set[asyncio.Future[Any]] = {coming, ended}
            await asyncio.wait(either, timeout=KEEP_ALIVE_S, return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                try:
                    some = coming.result()
                except StopAsyncIteration:
                    return
                coming = None
                yield some
            elif ended.done():
                return
            else:
                yield KEEP_ALIVE
    finally:
        await end_tasks([ended] if coming is None else [ended, coming])


async def _frames(feed: AsyncIterator[list[FeedEvent]]) -> AsyncIterator[bytes]:
    async for events in feed:
        yield b"".join(map(_frame, events))


def _frame(event: FeedEvent) -> bytes:
    if event.event is None:
        return f"id: {event.id}\n\n".encode()
    return f"id: {event.id}\nevent: {event.name}\ndata: {event.json}\n\n".encode()
