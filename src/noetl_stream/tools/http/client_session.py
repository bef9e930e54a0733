"""Sessions of ``kind: http``: the library's, with checked sockets. A separate module, since importing it is slow."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

import aiohttp
from aiohttp.connector import Connection

from noetl_stream.tools.egress import AddressInfo
from noetl_stream.tools.http.content import ACCEPTED

MAX_HEADER_BYTES: Final = 65_536
"""The most bytes of one header of a response, or of its first line."""

MAX_HEADERS: Final = 1_000


class Response(aiohttp.ClientResponse):
    """A response that still has its peer after its connection was released.

    Attributes:
        peer: The address of the connection.
    """

    peer: str

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        assert connection.transport is not None
        self.peer = str(connection.transport.get_extra_info("peername")[0])
        return await super().start(connection)


def new_session(socket_for: Callable[[AddressInfo], socket.socket], agent: str) -> aiohttp.ClientSession:
    """Makes a session without cookies that connects over sockets of ``socket_for`` and leaves bodies packed."""
    return aiohttp.ClientSession(
        # No limit here: the worker's slots bound the number of requests.
        connector=aiohttp.TCPConnector(limit=0, socket_factory=socket_for),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": agent, "Accept-Encoding": ACCEPTED},
        response_class=Response,
        auto_decompress=False,
        max_line_size=MAX_HEADER_BYTES,
        max_field_size=MAX_HEADER_BYTES,
        max_headers=MAX_HEADERS,
    )


def exceeds_headers(error: aiohttp.ClientResponseError) -> bool:
    """Returns whether a response was refused for the size or the number of its headers, by the text of the error."""
    return error.message.startswith(("Got more than", "Too many headers"))
