"""Server-Sent Events of one execution or of all, from any event on (PROTOCOL §4); and the output of tasks, as pages,
lines, text, or a stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Final

from pydantic import Field

from noetl_stream.concurrency import end_tasks
from noetl_stream.gateway.http import inputs
from noetl_stream.gateway.http.routes import Answer, Call, Reply, Routes
from noetl_stream.model.json import codec
from noetl_stream.ports.operations.reading import events as documents
from noetl_stream.ports.operations.verbs import API
from noetl_stream.telemetry.terminal import shown

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


class ExecutionStream(inputs.ExecutionAt):
    after: Annotated[Position, Field(description="A position: from the event after it.")] = 0
    last_event_id: Annotated[
        Position | None, inputs.InHeader("Last-Event-ID"), Field(description="`after`, as browsers send it.")
    ] = None


class FeedStream(inputs.Parameters):
    after: Annotated[FeedId | None, Field(description="The id of an event: from the one after it.")] = None
    last_event_id: Annotated[
        FeedId | None, inputs.InHeader("Last-Event-ID"), Field(description="`after`, as browsers send it.")
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
    if last and last[0].name == documents.LAST_EVENT:
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
        feed = (documents.only(some, lambda event: event.name in names) async for some in feed)
    return Reply(kept_alive(_frames(feed), call.ending), headers=HEADERS, media=MEDIA)


async def kept_alive(frames: AsyncIterator[bytes], ending: asyncio.Event) -> AsyncIterator[bytes]:
    """The bytes of a stream, until it or the gateway ends; a comment after a while without a frame."""
    ended = asyncio.ensure_future(ending.wait())
    coming: asyncio.Future[bytes] | None = None
    try:
        yield OPENING
        while True:
            coming = coming or asyncio.ensure_future(anext(frames))
            await asyncio.wait((coming, ended), timeout=KEEP_ALIVE_S, return_when=asyncio.FIRST_COMPLETED)
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


async def _frames(feed: AsyncIterator[list[documents.FeedEvent]]) -> AsyncIterator[bytes]:
    async for events in feed:
        yield b"".join(map(_frame, events))


def _frame(event: documents.FeedEvent) -> bytes:
    if event.event is None:
        return f"id: {event.id}\n\n".encode()
    return f"id: {event.id}\nevent: {event.name}\ndata: {event.json}\n\n".encode()


LOGS: Final = f"{API}/executions/{{execution_id}}/logs"

TEXT: Final = "text/plain"
LINES: Final = "application/x-ndjson"

LISTED: Final = {
    200: Answer("OK; as JSON lines or text if `Accept` says so", documents.LogPage, ("Link",), also=(LINES, TEXT))
}
STREAMED: Final = {200: Answer("Server-Sent Events; ends with the execution", media=MEDIA)}

STREAM_PAGE: Final = 200


LogPlace = Annotated[str, Field(pattern=f"^{documents.LOG_PLACE}$")]


class LogsOf(inputs.ExecutionAt):
    step: Annotated[inputs.Name | None, Field(description="Only lines of this step.")] = None
    task: Annotated[inputs.Name | None, Field(description="Only lines of this task.")] = None
    iteration: inputs.Iteration | None = None
    since: inputs.Moment | None = None
    grep: Annotated[
        str | None,
        Field(min_length=1, max_length=documents.MAX_GREP, description="A text that the lines contain, no pattern."),
    ] = None
    after: Annotated[LogPlace, Field(description="The id of a line: from the one after it.")] = documents.FROM_THE_START

    def chosen(self) -> documents.LogFilter:
        """The filter as the operations take it."""
        return documents.LogFilter(self.step, self.task, self.iteration, inputs.ms_of(self.since), self.grep)


class LogsListed(LogsOf):
    limit: inputs.Limit = 100
    accept: Annotated[
        str, inputs.InHeader("Accept"), Field(max_length=1024, description=f"`{LINES}` or `{TEXT}` in place of JSON.")
    ] = ""


class LogsStreamed(LogsOf):
    last_event_id: Annotated[
        LogPlace | None, inputs.InHeader("Last-Event-ID"), Field(description="`after`, as browsers send it.")
    ] = None


@routes("GET", LOGS, "listLogs", "viewer", LISTED)
async def logs(call: Call[LogsListed, None]) -> Reply:
    """List what its tasks have written.

    Lines are searched as they are shown. A page may be empty and have a `next` page.
    """
    given = call.parameters
    page = await call.operations.executions.logs(given.execution_id, given.chosen(), given.after, given.limit)
    headers = call.link_to(after=page.next if page.state == "more" else None)
    if LINES in given.accept:
        return Reply(b"".join(codec.encode(line) + b"\n" for line in page.items), headers=headers, media=LINES)
    if TEXT in given.accept:
        text = "".join(f"{shown(documents.text_of(line))}\n" for line in page.items)
        return Reply(text.encode(), headers=headers, media=f"{TEXT}; charset=utf-8")
    return Reply(page, headers=headers)


@routes("GET", f"{LOGS}/stream", "streamLogs", "viewer", STREAMED, streams=True)
async def logs_stream(call: Call[LogsStreamed, None]) -> Reply:
    """Follow what its tasks write.

    Each line once, as an event `line`, what was written before first. `id` is that of the line.
    """
    given = call.parameters
    after = given.after if given.last_event_id is None else given.last_event_id

    async def read(after: str) -> documents.LogPage:
        return await call.operations.executions.logs(given.execution_id, given.chosen(), after, STREAM_PAGE)

    await call.operations.executions.get(given.execution_id)  # an error is answered before the stream begins
    frames = _line_frames(documents.followed(read, after, asyncio.sleep), after)
    return Reply(kept_alive(frames, call.ending), headers=HEADERS, media=MEDIA)


async def _line_frames(pages: AsyncIterator[documents.LogPage], after: str) -> AsyncIterator[bytes]:
    async for page in pages:
        frames = [b"id: %b\nevent: line\ndata: %b\n\n" % (one.id.encode(), codec.encode(one)) for one in page.items]
        if page.next != (page.items[-1].id if page.items else after):
            frames.append(b"id: %b\n\n" % page.next.encode())  # where to resume, though no line there was chosen
        after = page.next
        if frames:
            yield b"".join(frames)
