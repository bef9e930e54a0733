"""The connections of a gateway: their number, the bounds on their waits, and malformed requests.

Law: a connection without a request under way may be closed at any time, the one that has waited longest first; a
connection whose caller does not send a whole head, or does not read its answer, is closed after a bound.
"""

from __future__ import annotations

import asyncio
import ipaddress
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from logging import Logger
from typing import Final, cast

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from noetl_stream.errors import NoetlError, TooBusy
from noetl_stream.gateway.http import problems
from noetl_stream.gateway.http.problems import HttpProblem, problem_of
from noetl_stream.gateway.metrics import CONNECTIONS, UNKNOWN_ROUTE, Metrics
from noetl_stream.model.json import codec
from noetl_stream.settings.gateway_settings import GatewayLimits

HEAD_S: Final = 10.0
"""The time in which the head of a request must arrive, from its first byte; for the first request, from the connection.
"""

IDLE_S: Final = 75.0
"""The time for which a connection may be idle between two requests: longer than proxies keep theirs."""

SLOW_READER_S: Final = 30.0
LEAST_READ_BYTES: Final = 64 * 1024
"""The least bytes that a reader must take in :data:`SLOW_READER_S`, while more are waiting, to stay connected."""

MAX_LINE_BYTES: Final = 8190
MAX_HEADERS: Final = 128
OTHER_FILES: Final = 128
"""The files that a gateway has open in addition to its connections."""

REFUSED_RETRY_S: Final = 5.0
IPV6_HOST_BITS: Final = 64


@lru_cache(maxsize=4096)
def address_group(remote: str | None) -> str:
    """The unit of quotas by address: an IPv4 address, or the network of an IPv6 address."""
    try:
        address = ipaddress.ip_address((remote or "").partition("%")[0])
    except ValueError:
        return ""
    if address.version == 4:
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, IPV6_HOST_BITS), strict=False))


class HttpConnections:
    """The open connections, bounded in all and for each address.

    When all are in use, the connection that has had no request for the longest time is closed: nobody can keep others
    out by connecting and staying silent.

    Args:
        is_proxy: Returns whether an address is that of a trusted proxy, whose connections carry many clients.

    Attributes:
        closed: The number of connections closed or refused.
        closing: Whether each answer closes its connection, since the gateway is about to stop.
    """

    def __init__(self, limits: GatewayLimits, metrics: Metrics, log: Logger, is_proxy: Callable[[str], bool]) -> None:
        self._limits = limits
        self.is_proxy = is_proxy
        self._metrics = metrics
        self.log = log
        self._most = min(limits.max_connections, _file_limit(limits.max_connections + OTHER_FILES) - OTHER_FILES)
        self._open: dict[HttpConnection, None] = {}
        self._of_address: Counter[str] = Counter()
        self._idle: dict[HttpConnection, None] = {}
        self._ended = False
        self.closed = 0
        self.closing = False
        metrics.watch(CONNECTIONS, lambda: len(self._open))

    def make(self, server: web.Server) -> HttpConnection:
        """A protocol for the next connection."""
        return HttpConnection(self, server)

    def end(self) -> None:
        """Ends all present and future waits of callers: the gateway stops."""
        self._ended = self.closing = True
        for connection in self._open:
            connection.ending.set()

    def admit(self, connection: HttpConnection) -> None:
        """Counts a new connection.

        Raises:
            TooBusy: there is no room, and no connection is idle.
        """
        address, per_address = connection.address, self._limits.max_connections_per_address
        if self._of_address[address] >= per_address and not connection.is_proxy:
            self._make_room(address, "NOETL_GATEWAY_MAX_CONNECTIONS_PER_ADDRESS")
        if len(self._open) >= self._most:
            self._make_room(None, "NOETL_GATEWAY_MAX_CONNECTIONS")
        self._open[connection] = None
        self._of_address[address] += 1
        self._idle[connection] = None
        if self._ended:
            connection.ending.set()

    def begun(self, connection: HttpConnection) -> None:
        """Notes that a request is under way on this connection, until :meth:`answered`."""
        self._idle.pop(connection, None)

    def answered(self, connection: HttpConnection) -> None:
        if connection in self._open:
            self._idle[connection] = None

    def forget(self, connection: HttpConnection) -> None:
        """The connection is lost, or gives way."""
        if connection in self._open:
            del self._open[connection]
            self._idle.pop(connection, None)
            self._of_address[connection.address] -= 1
            if not self._of_address[connection.address]:
                del self._of_address[connection.address]

    def count_closed(self, why: str) -> None:
        """Counts a connection closed or refused here, not by its other end."""
        self.closed += 1
        self._metrics.closed(why)

    def count_malformed(self, status: int) -> None:
        """Counts an answer to a malformed request."""
        self._metrics.answered(UNKNOWN_ROUTE, status, 0.0)

    def _make_room(self, address: str | None, variable: str) -> None:
        idle = next((one for one in self._idle if address in (None, one.address)), None)
        if idle is None:
            raise TooBusy(f"too many connections ({variable})", REFUSED_RETRY_S, hint="use fewer, and keep them open")
        self.forget(idle)
        idle.end("gave-way")


class HttpConnection(web.RequestHandler):
    """A connection, from its first byte to its last.

    Attributes:
        address: The other end, grouped by :func:`address_group`.
        is_proxy: Whether the other end is a trusted proxy.
        ending: Set when the caller has disconnected or the gateway stops: waits end early.
    """

    __slots__ = (
        "_connections",
        "_head_due",
        "_is_busy",
        "_reader_due",
        "_unread_bytes",
        "address",
        "ending",
        "is_proxy",
    )

    def __init__(self, connections: HttpConnections, server: web.Server) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=IDLE_S,
            logger=connections.log,
            access_log=cast(Logger, None),  # aiohttp takes it for "none", despite its annotation
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_LINE_BYTES,
            max_headers=MAX_HEADERS,
            auto_decompress=False,
        )
        self._connections = connections
        self._is_busy = False
        self._head_due: asyncio.TimerHandle | None = None
        self._reader_due: asyncio.TimerHandle | None = None
        self._unread_bytes = 0
        self.address = ""
        self.is_proxy = False
        self.ending = asyncio.Event()

    @property
    def closes(self) -> bool:
        return self._connections.closing

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Marks a request as under way until the end of the block."""
        self._stop_head_clock()
        self._is_busy = True
        self._connections.begun(self)
        try:
            yield
        finally:
            self._is_busy = False
            self._connections.answered(self)

    def end(self, why: str) -> None:
        """Closes it at once, counted under ``why``."""
        self._connections.count_closed(why)
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        remote = str(peer[0]) if isinstance(peer, tuple) else ""
        self.address, self.is_proxy = address_group(remote), self._connections.is_proxy(remote)
        try:
            self._connections.admit(self)
        except TooBusy as error:
            self._connections.count_closed("refused")
            cast(asyncio.Transport, transport).write(_raw_answer(error))
            self.force_close()
        else:
            self._start_head_clock()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_head_clock()
        self._stop_reader_clock()
        self._connections.forget(self)
        self.ending.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._is_busy and data:
            self._start_head_clock()
        super().data_received(data)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_reader_clock()

    def resume_writing(self) -> None:
        self._stop_reader_clock()
        super().resume_writing()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answers a malformed request with a problem. Nothing of it is logged: it may contain a token."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun already")
        problem = problem_of(_malformed(exc) if status == 400 else exc or NoetlError("no answer"), "")
        self._connections.count_malformed(problem.status)
        response = web.Response(body=codec.encode(problem.document), status=problem.status, content_type=problems.MEDIA)
        response.force_close()
        return response

    def _start_head_clock(self) -> None:
        if self._head_due is None:
            self._head_due = asyncio.get_running_loop().call_later(HEAD_S, self.end, "late-head")

    def _stop_head_clock(self) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None

    def _start_reader_clock(self) -> None:
        if self.transport is not None:
            self._unread_bytes = self.transport.get_write_buffer_size()
            self._reader_due = asyncio.get_running_loop().call_later(SLOW_READER_S, self._look_at_reader)

    def _look_at_reader(self) -> None:
        if self.transport is not None:
            if self._unread_bytes - self.transport.get_write_buffer_size() < LEAST_READ_BYTES:
                self.end("slow-reader")
            else:
                self._start_reader_clock()

    def _stop_reader_clock(self) -> None:
        if self._reader_due is not None:
            self._reader_due.cancel()
            self._reader_due = None


def _malformed(error: BaseException | None) -> HttpProblem:
    if isinstance(error, LineTooLong):
        words = f"The address or a header is longer than {MAX_LINE_BYTES} bytes"
        return HttpProblem("invalid-request", words, hint="send less")
    return HttpProblem("invalid-request", "This is not an HTTP request", hint="send HTTP/1.1, without TLS")


def _raw_answer(error: TooBusy) -> bytes:
    """An answer for a connection without a parser."""
    problem = problem_of(error, "")
    body = codec.encode(problem.document)
    fields = {**problem.headers, "Content-Type": problems.MEDIA, "Content-Length": len(body), "Connection": "close"}
    fields |= {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {problem.status} Too Many Requests\r\n{head}\r\n".encode() + body


def _file_limit(wanted: int) -> int:
    """The number of files that this process may open; raises the soft limit for it, as far as the hard one allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    if soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(ValueError, OSError):  # macOS has another, lower limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
    return soft
