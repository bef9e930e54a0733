"""``/api/v1/executions/{execution_id}/logs``: what its tasks have written, as pages, lines, text, or as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Final

from pydantic import Field

from noetl_stream.gateway.http.parameters import ExecutionAt, InHeader, Iteration, Limit, Moment, Name, ms_of
from noetl_stream.gateway.http.routes import Answer, Call, Reply, Routes
from noetl_stream.gateway.resources.streams import HEADERS, MEDIA, kept_alive
from noetl_stream.model.json import codec
from noetl_stream.ports.operations.reading.logs import (
    FROM_THE_START,
    LOG_PLACE,
    MAX_GREP,
    LogFilter,
    LogPage,
    followed,
    text_of,
)
from noetl_stream.ports.operations.verbs import API
from noetl_stream.telemetry.terminal import shown

LOGS: Final = f"{API}/executions/{{execution_id}}/logs"

TEXT: Final = "text/plain"
LINES: Final = "application/x-ndjson"

LISTED: Final = {200: Answer("OK; as JSON lines or text if `Accept` says so", LogPage, ("Link",), also=(LINES, TEXT))}
STREAMED: Final = {200: Answer("Server-Sent Events; ends with the execution", media=MEDIA)}

STREAM_PAGE: Final = 200

routes = Routes()


LogPlace = Annotated[str, Field(pattern=f"^{LOG_PLACE}$")]


class LogsOf(ExecutionAt):
    step: Annotated[Name | None, Field(description="Only lines of this step.")] = None
    task: Annotated[Name | None, Field(description="Only lines of this task.")] = None
    iteration: Iteration | None = None
    since: Moment | None = None
    grep: Annotated[
        str | None, Field(min_length=1, max_length=MAX_GREP, description="A text that the lines contain, no pattern.")
    ] = None
    after: Annotated[LogPlace, Field(description="The id of a line: from the one after it.")] = FROM_THE_START

    def chosen(self) -> LogFilter:
        """The filter as the operations take it."""
        return LogFilter(self.step, self.task, self.iteration, ms_of(self.since), self.grep)


class LogsListed(LogsOf):
    limit: Limit = 100
    accept: Annotated[
        str, InHeader("Accept"), Field(max_length=1024, description=f"`{LINES}` or `{TEXT}` in place of JSON.")
    ] = ""


class LogsStreamed(LogsOf):
    last_event_id: Annotated[
        LogPlace | None, InHeader("Last-Event-ID"), Field(description="`after`, as browsers send it.")
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
        text = "".join(f"{shown(text_of(line))}\n" for line in page.items)
        return Reply(text.encode(), headers=headers, media=f"{TEXT}; charset=utf-8")
    return Reply(page, headers=headers)


@routes("GET", f"{LOGS}/stream", "streamLogs", "viewer", STREAMED, streams=True)
async def logs_stream(call: Call[LogsStreamed, None]) -> Reply:
    """Follow what its tasks write.

    Each line once, as an event `line`, what was written before first. `id` is that of the line.
    """
    given = call.parameters
    after = given.after if given.last_event_id is None else given.last_event_id

    async def read(after: str) -> LogPage:
        return await call.operations.executions.logs(given.execution_id, given.chosen(), after, STREAM_PAGE)

    await call.operations.executions.get(given.execution_id)  # an error is answered before the stream begins
    frames = _frames(followed(read, after, asyncio.sleep), after)
    return Reply(kept_alive(frames, call.ending), headers=HEADERS, media=MEDIA)


async def _frames(pages: AsyncIterator[LogPage], after: str) -> AsyncIterator[bytes]:
    async for page in pages:
        frames = [b"id: %b\nevent: line\ndata: %b\n\n" % (one.id.encode(), codec.encode(one)) for one in page.items]
        if page.next != (page.items[-1].id if page.items else after):
            frames.append(b"id: %b\n\n" % page.next.encode())  # where to resume, though nothing there was chosen
        after = page.next
        if frames:
            yield b"".join(frames)
