"""The worker's side of the proxies of children, one for each: it makes the connections that the egress guard permits.

A child lives in a network namespace of its own, where a socket listens that the worker accepts on. Names are resolved
here, and the connection is made to the address that was checked.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import resource
import socket
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from msgspec.structs import replace

from noetl_stream.errors import UsageError
from noetl_stream.settings.egress import read_allowed
from noetl_stream.settings.tools import HTTP_PROXY_VARIABLE, ToolSettings
from noetl_stream.tools.egress import Egress, ForbiddenAddress, Reach
from noetl_stream.tools.proxy.heads import END, ProxyRefusal, ProxyRequest, is_interim, last_of_connection, read_request

MAX_CONNECTIONS: Final = 64
"""The most connections of one child, with all that it has started."""
MAX_PENDING: Final = 32
"""The additional connections that may be sending their request, or receiving a refusal; further ones wait."""
MAX_RESOLVED: Final = 2
"""The names that are resolved at once for one child: all tools share the threads for it."""
_SHARE_OF_FILES: Final = 8
"""The number of files that the worker may open for each connection of a tool's children."""
MAX_HEAD_BYTES: Final = 32 * 1024
_BUFFER_BYTES: Final = 64 * 1024
"""The most bytes of a connection in memory, in each direction."""
HEAD_S: Final = 30.0
CONNECT_S: Final = 10.0
"""The time in which one address must answer."""
RESOLVE_S: Final = 30.0
IDLE_S: Final = 600.0
LINGER_S: Final = 10.0
"""The lifetime of a connection that its client has closed and on which the server sends nothing."""
_PAUSE_S: Final = 1.0

_HTTP_PORT: Final = 80

Copy = Callable[[socket.socket, socket.socket], Awaitable[None]]


class _Way(NamedTuple):
    """A connection, and the bytes to send first on it."""

    server: socket.socket
    first: bytes


class EgressProxy:
    """Makes the proxies of the children of one tool.

    Args:
        egress: The guard of the connections.
        further: The URL of the operator's own proxy to the public internet, if any.
        idle_s: The lifetime of a connection on which nobody sends.

    Attributes:
        most: The most connections of all children together.
        connections: The present connections.
    """

    def __init__(self, egress: Egress, further: str | None = None, *, idle_s: float = IDLE_S) -> None:
        self.idle_s = idle_s
        self._egress = egress
        self._further = None if further is None else urlsplit(further)
        self.most = max(MAX_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _SHARE_OF_FILES)
        self.connections = 0

    @classmethod
    def configured(cls, settings: ToolSettings) -> EgressProxy | None:
        """Makes it by the operator's settings; ``None`` if children have no proxy.

        Raises:
            UsageError: It cannot use the operator's own proxy.
        """
        if settings.children.network != "proxy":
            return None
        if settings.http_proxy is not None and urlsplit(settings.http_proxy).scheme != "http":
            hint = "name a proxy by http://, or choose another NOETL_CHILD_NETWORK"
            raise UsageError(f"NOETL_CHILD_NETWORK=proxy cannot use an https:// {HTTP_PROXY_VARIABLE}", hint=hint)
        return cls(Egress(settings.egress), settings.http_proxy)

    @classmethod
    def of_index(cls, settings: ToolSettings) -> EgressProxy:
        """Makes the proxy for package installers, which may also reach the operator's index, wherever it is."""
        addresses, rules = settings.python_environments.index_addresses, settings.egress
        of_index = (target for address in addresses for target in read_allowed(address).targets)
        rules = replace(rules, allowed=(*rules.allowed, *of_index))
        is_usable = settings.http_proxy is not None and urlsplit(settings.http_proxy).scheme == "http"
        return cls(Egress(rules), settings.http_proxy if is_usable else None)

    def open(self) -> ChildProxy:
        """Makes the proxy of a new child."""
        return ChildProxy(self)

    async def connect(self, request: ProxyRequest, resolving: asyncio.Semaphore) -> _Way:
        """Connects to the server of a request, or to the operator's own proxy.

        Args:
            resolving: Bounds the names that are resolved at once.

        Raises:
            ProxyRefusal: Tasks may not connect to it, or it cannot be reached.
        """
        place = f"{request.host}:{request.port}"
        try:
            async with asyncio.timeout(RESOLVE_S), resolving:
                further = await self._further_for(request)
                if further is None:
                    addresses, port = await self._egress.addresses(request.host, request.port), request.port
                else:
                    port = further.port or _HTTP_PORT
                    addresses = await self._egress.addresses(further.hostname or "", port, Reach.OWN)
            server = await _connect_to_first(addresses, port)
        except ForbiddenAddress as forbidden:
            raise ProxyRefusal(HTTPStatus.FORBIDDEN, f"{place}: {forbidden}") from None
        except TimeoutError:
            raise ProxyRefusal(HTTPStatus.GATEWAY_TIMEOUT, f"{place} does not answer") from None
        except (OSError, ValueError) as error:
            message = f"{place}: {getattr(error, 'strerror', None) or error}"
            raise ProxyRefusal(HTTPStatus.BAD_GATEWAY, message) from None
        return _Way(server, request.head if further is None else request.for_proxy(_authorization(further)))

    async def _further_for(self, request: ProxyRequest) -> SplitResult | None:
        """Returns the operator's own proxy if the request goes to the internet.

        Raises:
            ForbiddenAddress: It may not.
        """
        if self._further is None or await self._egress.is_inside(request.host, request.port):
            return None
        await self._egress.check_host(request.host, request.port)
        return self._further


class ChildProxy:
    """The proxy of one child.

    Attributes:
        child_end: The socket through which the child sends its listening one. To be closed here once the child has it.
    """

    def __init__(self, proxy: EgressProxy) -> None:
        self._proxy = proxy
        self._loop = asyncio.get_running_loop()
        self._listener, self.child_end = socket.socketpair()
        self._listener.setblocking(False)
        self._loop.add_reader(self._listener, self._take_listener)
        self._serving: set[asyncio.Task[None]] = set()
        self._carried = 0
        self._resolving = asyncio.Semaphore(MAX_RESOLVED)
        self._is_closed = False

    def close(self) -> None:
        """Ends all connections."""
        self._is_closed = True
        self._loop.remove_reader(self._listener)
        self._listener.close()
        self.child_end.close()
        for task in self._serving:
            task.cancel()

    def listen_here(self) -> int:
        """Listens on loopback, for a child in the network of this machine; returns the port."""
        self._loop.remove_reader(self._listener)
        self._listener.close()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self._listen()
        port: int = self._listener.getsockname()[1]
        return port

    def _take_listener(self) -> None:
        _, descriptors, _, _ = socket.recv_fds(self._listener, 1, 1)
        self._loop.remove_reader(self._listener)
        if descriptors:
            self._listener.close()
            self._listener = socket.socket(fileno=descriptors[0])
            self._listener.setblocking(False)
            self._listen()

    def _listen(self) -> None:
        if not self._is_closed and len(self._serving) < MAX_CONNECTIONS + MAX_PENDING:
            self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:  # no file is left
            self._loop.remove_reader(self._listener)
            self._loop.call_later(_PAUSE_S, self._listen)
            return
        client.setblocking(False)
        if self._proxy.connections >= self._proxy.most:
            with client, contextlib.suppress(OSError):
                client.send(_too_many(f"all tasks of this kind have {self._proxy.most} connections").answer())
            return
        self._proxy.connections += 1
        task = self._loop.create_task(self._serve(client))
        self._serving.add(task)
        task.add_done_callback(self._forget)
        if len(self._serving) >= MAX_CONNECTIONS + MAX_PENDING:
            self._loop.remove_reader(self._listener)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._serving.discard(task)
        self._proxy.connections -= 1
        self._listen()

    async def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):  # TimeoutError is one
            try:
                async with asyncio.timeout(HEAD_S):
                    head, more = await _receive_head(self._loop, client)
                await self._connect(client, read_request(head), more)
            except ProxyRefusal as refused:
                await self._loop.sock_sendall(client, refused.answer())
                await self._part(client)

    async def _connect(self, client: socket.socket, request: ProxyRequest, more: bytes) -> None:
        if self._carried >= MAX_CONNECTIONS:
            raise _too_many(f"this task and its processes have {MAX_CONNECTIONS} connections")
        self._carried += 1
        try:
            server, first = await self._proxy.connect(request, self._resolving)
            with server:
                if not first:
                    await self._loop.sock_sendall(client, b"HTTP/1.1 200 Connection established" + END)
                exchange = _Exchange(client, server, self._proxy.idle_s)
                await exchange.run(first + more, exchange.copy_response if request.head else exchange.copy)
        finally:
            self._carried -= 1

    async def _part(self, client: socket.socket) -> None:
        """Reads what a refused client still sends: it would not see the answer if its connection were reset."""
        client.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(LINGER_S):
            while await self._loop.sock_recv(client, _BUFFER_BYTES):
                pass


class _Exchange:
    """The traffic between a client and a server."""

    def __init__(self, client: socket.socket, server: socket.socket, idle_s: float) -> None:
        self._idle_s = idle_s
        self._loop = asyncio.get_running_loop()
        self._client = client
        self._server = server
        self._moved = 0

    async def run(self, first: bytes, copy_back: Copy) -> None:
        """Passes it on, after ``first``, until the server has finished, or both are silent for a while."""
        up = self._loop.create_task(_until_broken(self.copy(self._client, self._server, first)))
        down = self._loop.create_task(_until_broken(copy_back(self._server, self._client)))
        try:
            while not down.done():
                before, wait_s = (self._moved, up.done()), LINGER_S if up.done() else self._idle_s
                running = [task for task in (up, down) if not task.done()]
                await asyncio.wait(running, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
                if (self._moved, up.done()) == before:
                    break
        finally:
            up.cancel()
            down.cancel()
            await asyncio.wait([up, down])

    async def copy(self, source: socket.socket, target: socket.socket, first: bytes = b"") -> None:
        """Passes on what one side sends, and its end."""
        data = first or await self._loop.sock_recv(source, _BUFFER_BYTES)
        while data:
            await self._loop.sock_sendall(target, data)
            self._moved += len(data)
            await asyncio.sleep(0)  # a turn for other tasks: neither call may have waited
            data = await self._loop.sock_recv(source, _BUFFER_BYTES)
        target.shutdown(socket.SHUT_WR)

    async def copy_response(self, source: socket.socket, target: socket.socket) -> None:
        """Passes on a response, after which the connection ends: the next request may be for another server."""
        try:
            head, more = await _receive_head(self._loop, source)
            while is_interim(head):
                await self._loop.sock_sendall(target, head)
                head, more = await _receive_head(self._loop, source, more)
        except ProxyRefusal:
            reason = ProxyRefusal(HTTPStatus.BAD_GATEWAY, "the server did not answer in HTTP/1.1")
            await self._loop.sock_sendall(target, reason.answer())
            target.shutdown(socket.SHUT_WR)
            return
        await self.copy(source, target, last_of_connection(head) + more)


async def _until_broken(copying: Awaitable[None]) -> None:
    with contextlib.suppress(OSError):
        await copying


async def _receive_head(
    loop: asyncio.AbstractEventLoop, source: socket.socket, received: bytes = b""
) -> tuple[bytes, bytes]:
    """Returns the head of a message, and the bytes after it.

    Raises:
        ProxyRefusal: There is none.
    """
    while END not in received:
        data = await loop.sock_recv(source, MAX_HEAD_BYTES)
        if not data or len(received) > MAX_HEAD_BYTES:
            raise ProxyRefusal(HTTPStatus.BAD_REQUEST, f"no head of HTTP within {MAX_HEAD_BYTES} bytes")
        received += data
    head, _, more = received.partition(END)
    return head + END, more


def _too_many(words: str) -> ProxyRefusal:
    return ProxyRefusal(HTTPStatus.SERVICE_UNAVAILABLE, f"{words}, which is the most")


def _authorization(proxy: SplitResult) -> bytes:
    if proxy.username is None:
        return b""
    login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return b"Basic " + base64.b64encode(login.encode())


async def _connect_to_first(addresses: list[str], port: int) -> socket.socket:
    """Connects to the first of these addresses that answers.

    Raises:
        OSError: None does.
    """
    failure = OSError("no address")
    for address in addresses:
        server = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        try:
            server.setblocking(False)
            async with asyncio.timeout(CONNECT_S):
                await asyncio.get_running_loop().sock_connect(server, (address, port))
            return server
        except OSError as error:  # TimeoutError is one
            server.close()
            failure = error
        except BaseException:
            server.close()
            raise
    raise failure
