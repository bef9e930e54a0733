"""A response whose messages are read one after the other, until a bound is reached or a condition holds.

If the connection breaks, server-sent events resume after the last event, provided that the server gave it an id.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

import msgspec

from noetl_stream.model.json.texts import media_type
from noetl_stream.model.limits import DEFAULT_LIMITS
from noetl_stream.retries import pauses
from noetl_stream.template import Budget, ExpressionError, OverBudget, Scope
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.http.content import BrokenBody
from noetl_stream.tools.http.download import RESUMES, Send, unpacked_pieces
from noetl_stream.tools.http.message_readers import MEDIA_TYPES, JsonLines, ServerSentEvents, compiled_until
from noetl_stream.tools.http.request import HttpRequest, StreamBounds
from noetl_stream.tools.inputs import invalid_input

if TYPE_CHECKING:
    import aiohttp

_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 30.0
_OK: Final = 200
_NO_CONTENT: Final = 204
"""The HTTP status of a server that has no further events."""

Ended = Literal["until", "end", "messages", "seconds"]


class Stream:
    """The messages of a response, and of the responses that resume it.

    Args:
        send: Sends another request to the same URL.
        bounded: Limits the size of a response.

    Attributes:
        count: The number of messages read.
        last: The last message, as JSON; empty if there was none.
        ended: The reason why the stream ended.
    """

    def __init__(
        self,
        request: HttpRequest,
        response: aiohttp.ClientResponse,
        send: Send,
        bounded: Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]],
        bounds: StreamBounds,
    ) -> None:
        content_type = media_type(response.headers.get("Content-Type", ""))
        form = bounds.format or MEDIA_TYPES.get(content_type)
        if form is None:
            what = f"the response is {content_type}" if content_type else "the response does not say its content type"
            raise invalid_input(f"{what}; write stream: {{ format: ndjson }} or sse, or read it with `into: file`")
        self.count = 0
        self.last = b""
        self.ended: Ended = "end"
        self._request = request
        self._response = response
        self._send = send
        self._bounded = bounded
        self._bounds = bounds
        self._until = None if bounds.until is None else compiled_until(bounds.until)
        self._is_sse = form == "sse"
        self._reader = ServerSentEvents() if self._is_sse else JsonLines()

    def shown(self) -> dict[str, Any]:
        """The summary of the stream, as templates read it."""
        last_id = msgspec.json.decode(self.last)["id"] if self.last and self._is_sse else ""
        return {"messages": self.count, "ended": self.ended, "last_id": last_id}

    async def batches(self) -> AsyncIterator[list[bytes]]:
        """Yields the messages, each as JSON on one line.

        Raises:
            ToolFailure: ``timeout``, ``limit_exceeded``, ``connection``: ``until`` never held; ``expression_error``:
                ``until`` cannot be evaluated; ``output_too_large``.
            BrokenBody, aiohttp.ClientError, OSError: the connection broke and cannot be resumed.
        """
        deadline = asyncio.get_running_loop().time() + self._bounds.seconds
        async with aclosing(self._resumed()) as found:
            while self.ended == "end":
                try:
                    async with asyncio.timeout_at(deadline) as clock:
                        lines = await anext(found, None)
                except TimeoutError:
                    if not clock.expired():
                        raise
                    self.ended = "seconds"
                    break
                if lines is None:
                    break
                if taken := self._taken(lines):
                    self.last = taken[-1]
                    yield taken
        self._response.close()
        if self._until is not None and self.ended != "until":
            self._fail()

    def _taken(self, lines: list[bytes]) -> list[bytes]:
        """Counts messages; drops those after the last one to read."""
        left = self._bounds.messages - self.count
        lines = lines[:left]
        for number, line in enumerate(lines if self._until is not None else (), 1):
            if self._holds(line, self.count + number):
                self.count, self.ended = self.count + number, "until"
                return lines[:number]
        self.count += len(lines)
        if self.count == self._bounds.messages:
            self.ended = "messages"
        return lines

    def _holds(self, line: bytes, number: int) -> bool:
        from noetl_stream.template import holds

        assert self._until is not None
        try:
            message = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ToolFailure.of("result_not_json", f"message {number:,} of the stream is not JSON: {error}") from None
        scope = Scope({"message": message}, limits=DEFAULT_LIMITS, budget=Budget(DEFAULT_LIMITS.max_inline_operations))
        try:
            return holds(self._until, scope)
        except (ExpressionError, OverBudget) as error:
            raise ToolFailure.of(
                "expression_error", f"stream.until, message {number:,} of the stream: {error}"
            ) from None

    def _fail(self) -> NoReturn:
        so_far = f"`stream.until` held for none of {self.count:,} messages"
        if self.ended == "seconds":
            message = f"{so_far} within {self._bounds.seconds:g} seconds (stream.seconds)"
            raise ToolFailure.of("timeout", message, retryable=True)
        if self.ended == "messages":
            raise ToolFailure.of("limit_exceeded", f"{so_far}, the most that are read (stream.messages)")
        raise ToolFailure.of("connection", f"{so_far} when the stream ended", retryable=True)

    async def _resumed(self) -> AsyncGenerator[list[bytes], None]:
        """Yields the messages of the response; if it breaks off, resumes after the last event."""
        import aiohttp

        failures, waits = 0, pauses(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        opening: AbstractAsyncContextManager[aiohttp.ClientResponse] = nullcontext(self._response)
        while True:
            before = self.count
            try:
                async with opening as response:
                    if response is not self._response and response.status != _OK:
                        if response.status == _NO_CONTENT:
                            return
                        raise BrokenBody(f"the server answers {response.status} when it is asked for further events")
                    async for lines in self._of(response):
                        yield lines
                is_pending = self._until is not None and self._resumes
            except (aiohttp.ClientError, OSError, BrokenBody):
                is_pending = self._resumes and (self.count > before or failures < RESUMES)
                if not is_pending:
                    raise
            if self.count > before:
                failures, waits = 0, pauses(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
            if not is_pending or failures == RESUMES:
                return
            self._reader.finish()
            failures += 1
            asked_s = self._reader.retry_s or 0.0
            await asyncio.sleep(min(max(next(waits), asked_s), _LONGEST_PAUSE_S))
            behind = {"Last-Event-ID": self._reader.last_id} if self._reader.last_id else {}
            opening = self._send(replace(self._request, headers={**self._request.headers, **behind}))

    @property
    def _resumes(self) -> bool:
        last_id = self._reader.last_id
        is_repeatable = self._is_sse and self._request.method == "GET"
        has_place = bool(last_id) or not self.count  # otherwise events would be repeated or lost
        return is_repeatable and has_place and last_id.isascii() and last_id.isprintable()

    async def _of(self, response: aiohttp.ClientResponse) -> AsyncIterator[list[bytes]]:
        packing = {"content-encoding": response.headers.get("Content-Encoding", "")}
        async for piece in self._bounded(unpacked_pieces(response.content.iter_any(), packing)):
            yield self._reader.feed(piece)
        yield self._reader.finish()
