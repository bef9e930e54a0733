"""The body of a response as a file: in pieces, and resumed if the server supports it (RFC 9110 §14)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from email.message import Message
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from noetl_stream.retries import pauses
from noetl_stream.tools.http.content import BrokenBody, unpacker
from noetl_stream.tools.http.request import HttpRequest

if TYPE_CHECKING:
    import aiohttp

RESUMES: Final = 5
"""The number of times a broken response is resumed before the attempt of the task fails."""
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 8.0
_MAX_NAME_CHARACTERS: Final = 200

Send = Callable[[HttpRequest], AbstractAsyncContextManager["aiohttp.ClientResponse"]]


class Download:
    """The body of a response.

    Args:
        send: Sends a request to the same place again.
    """

    def __init__(
        self, request: HttpRequest, response: aiohttp.ClientResponse, headers: Mapping[str, str], send: Send
    ) -> None:
        self._request = request
        self._response = response
        self._headers = headers
        self._send = send
        self._received = 0

    def pieces(self) -> AsyncIterator[bytes]:
        """Yields the unpacked bytes.

        Raises:
            BrokenBody: the body is not packed as its headers say, cut off, or another one when it is resumed.
            aiohttp.ClientError, OSError: the connection broke, and cannot be resumed.
        """
        return unpacked_pieces(self._resumed(), self._headers)

    async def _resumed(self) -> AsyncIterator[bytes]:
        import aiohttp

        version = _version_of(self._headers)
        try:
            async for piece in self._counted(self._response):
                yield piece
            return
        except (aiohttp.ClientError, OSError):
            if not version:
                raise
        waits = pauses(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        for resume in range(RESUMES):
            await asyncio.sleep(next(waits))
            rest = {"Range": f"bytes={self._received}-", "If-Range": version}
            try:
                async with self._send(replace(self._request, headers={**self._request.headers, **rest})) as response:
                    if not self._continues(response):
                        raise BrokenBody(f"the file changed after {self._received:,} bytes, when it was resumed")
                    async for piece in self._counted(response):
                        yield piece
                    return
            except (aiohttp.ClientError, OSError):
                if resume == RESUMES - 1:
                    raise

    async def _counted(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        async for piece, _ in response.content.iter_chunks():
            self._received += len(piece)
            yield piece

    def _continues(self, response: aiohttp.ClientResponse) -> bool:
        given = response.headers.get("Content-Range", "")
        return response.status == 206 and given.startswith(f"bytes {self._received}-")


async def unpacked_pieces(pieces: AsyncIterator[bytes], headers: Mapping[str, str]) -> AsyncIterator[bytes]:
    """Yields the unpacked bytes of a body with these headers.

    Raises:
        BrokenBody: the body is not packed as its headers say, or cut off.
    """
    unpack = unpacker(headers.get("content-encoding", ""))
    if unpack is None:
        async for piece in pieces:
            yield piece
        return
    async for packed in pieces:
        for piece in unpack.feed(packed):
            yield piece
            await asyncio.sleep(0)  # a turn for other tasks: a small packed piece may be long
    unpack.finish()


def file_name(headers: Mapping[str, str], path: str) -> str:
    """Returns the name of the file: of ``Content-Disposition``, else the last part of the URL's path."""
    given = Message()
    given["Content-Disposition"] = headers.get("content-disposition", "")
    name = given.get_filename() or unquote(path.rstrip("/"))
    name = "".join(sign for sign in name.replace("\\", "/").rpartition("/")[2] if sign.isprintable())
    return name.strip(". ")[:_MAX_NAME_CHARACTERS] or "download"


def _version_of(headers: Mapping[str, str]) -> str:
    """Returns the validator of a resumed response, its ``ETag`` or ``Last-Modified``; empty if it cannot be resumed."""
    if headers.get("accept-ranges", "").strip().lower() != "bytes" or "content-encoding" in headers:
        return ""
    tag = headers.get("etag", "")
    return tag if tag and not tag.startswith("W/") else headers.get("last-modified", "")
