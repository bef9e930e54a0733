"""Connections of ``kind: nats``: one for each credential, closed after a minute without use."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from nats.aio.client import RawCredentials
from nats.errors import AuthorizationError, ConnectionClosedError, ProtocolError
from nats.errors import Error as NatsError
from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser

from noetl_stream.concurrency import end_tasks, first_done, start_among
from noetl_stream.model.secrets.urls import split_address
from noetl_stream.nats_client import PatientClient
from noetl_stream.settings.egress import NATS_PORT
from noetl_stream.tools.contract import ToolCall, ToolFailure, beginning
from noetl_stream.tools.egress import Egress, ForbiddenAddress, Reach, reach_of
from noetl_stream.tools.inputs import Auth, bad_credential, credential_of, text_entry

DEFAULT_CONNECT_TIMEOUT_S: Final = 10
IDLE_CONNECTION_S: Final = 60.0
PING_INTERVAL_S: Final = 10
HANG_UP_RETRIES: Final = 10
_SCHEMES: Final = ("nats", "tls")
_CREDENTIAL_KEYS: Final = ({"url"}, {"url", "user", "password"}, {"url", "token"}, {"url", "creds"})
_SHAPES: Final = "must be a URL (nats://host:4222), or {url} alone or with {user, password}, {token} or {creds}"
_NOT_PERMITTED: Final = re.compile(r'permissions violation for publish to "(.+)"', re.IGNORECASE)
Options = dict[str, str]
Result = TypeVar("Result")


MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of a message: the largest that nats-server can be configured for."""
_MAX_LINE_BYTES: Final = 1024 * 1024
"""The most bytes of a line of the protocol, which the library searches again for each part that arrives."""


class BoundedParser(Parser):
    """A parser that ends its connection at a message or line above the bounds.

    Attributes:
        has_exceeded: Whether a bound was exceeded.
    """

    has_exceeded = False

    async def parse(self, data: bytes = b"") -> None:
        most = _MAX_LINE_BYTES if self.state == AWAITING_CONTROL_LINE else MAX_MESSAGE_BYTES
        if len(self.buf) + len(data) > most:
            self.has_exceeded = True
            raise ProtocolError
        await super().parse(data)


def options_of(auth: Auth, credential: str | dict[str, Any]) -> Options:
    """Returns the options to connect: ``url``, and ``user`` and ``password``, ``token`` or ``creds``.

    Raises:
        ToolFailure: ``credential`` if it is not for a NATS server.
    """
    if isinstance(credential, str):
        credential = {"url": credential}
    if set(credential) not in _CREDENTIAL_KEYS:
        raise bad_credential(auth, f"cannot be used by nats; {_SHAPES}")
    options = {key: text_entry(auth, credential, key) or "" for key in credential}
    for part in options["url"].split(","):
        parts = split_address(part.strip())
        if parts is None or parts.scheme not in _SCHEMES:
            raise bad_credential(auth, f"url must start with nats:// or tls://; {_SHAPES}")
    return options


class MessageTooLong(NatsError):
    """The server sent a message, or a line of the protocol, above the bound, which ended the connection."""


class Connection:
    """An open connection with the library's ``client``. It does not reconnect: a closed one is replaced."""

    def __init__(self) -> None:
        self.client = PatientClient()
        self._parser = self.client._ps = BoundedParser(self.client)  # noqa: SLF001
        self._is_open = False
        self._closed = asyncio.Event()
        self._denied: Counter[str] = Counter()

    @classmethod
    async def open(cls, url: str, host: str, options: Options) -> Connection:
        """Connects to one server, and to none of the others that it may advertise.

        Args:
            url: The URL with the server's address.
            host: The name required in the server's certificate.

        Raises:
            NatsError, OSError, ImportError: From the library; ``ConnectionResetError`` if the server hung up.
        """
        creds = options.get("creds")
        if creds is not None:
            importlib.import_module("nkeys")  # the library would fail too late to clean up
        connection = cls()
        try:
            await connection.client.connect(
                url,
                user=options.get("user"),
                password=options.get("password"),
                token=options.get("token"),
                user_credentials=RawCredentials(creds) if creds else None,
                name="noetl-stream",
                tls_hostname=host,
                # Never to another server than this: neither after a failure nor when the server advertises others.
                allow_reconnect=False,
                connect_timeout=DEFAULT_CONNECT_TIMEOUT_S,
                ping_interval=PING_INTERVAL_S,
                error_cb=connection._note,
                closed_cb=connection._close,
            )
            if not connection.client.is_connected:  # the library takes a hang-up for success
                raise ConnectionResetError("the server hung up")
        except BaseException:
            await connection.client.close()
            raise
        connection._is_open = True
        return connection

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs ``work``, and fails if the connection closes meanwhile, where the library would keep waiting.

        Raises:
            ConnectionClosedError: The connection closed.
            MessageTooLong: The connection closed for this reason.
        """
        task = asyncio.create_task(work)
        try:
            if not await first_done([task], self._closed.wait()):
                raise MessageTooLong if self._parser.has_exceeded else ConnectionClosedError
            return task.result()
        finally:
            await end_tasks([task])

    def take_denied(self, subject: str) -> bool:
        """Returns whether the server has denied more publishes to ``subject`` than earlier calls have returned.

        The server reports this asynchronously and drops the message. Denials are counted, since other tasks that share
        the connection may publish there at the same time.
        """
        denied = self._denied[subject.lower()] > 0
        self._denied -= Counter([subject.lower()])
        return denied

    async def _close(self) -> None:
        self._closed.set()

    async def _note(self, error: Exception) -> None:
        if not self._is_open:
            raise error  # the library would keep trying the same server
        found = _NOT_PERMITTED.search(str(error))
        if found is not None:
            self._denied[found[1].lower()] += 1


class _SharedConnection:
    def __init__(self, opening: asyncio.Task[Connection]) -> None:
        self.opening = opening
        self.users = 0
        self.idle_timer: asyncio.TimerHandle | None = None

    @property
    def is_dead(self) -> bool:
        if not self.opening.done():
            return False
        return (
            self.opening.cancelled() or self.opening.exception() is not None or self.opening.result().client.is_closed
        )


class Connections:
    """The connections of one worker, opened on first use.

    Args:
        egress: The rules for addresses. Default: the public internet.
    """

    def __init__(self, egress: Egress | None = None) -> None:
        self._egress = egress or Egress()
        self._shared: dict[str, _SharedConnection] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def connection(self, call: ToolCall, auth: Auth) -> AsyncIterator[Connection]:
        """Yields a connection for one task, shared with other tasks.

        Raises:
            ToolFailure: ``connection``, ``forbidden_address``, ``timeout`` or ``credential``.
        """
        options, reach = options_of(auth, await credential_of(call, auth)), await reach_of(call, auth)
        key = json.dumps([options, reach.value], sort_keys=True)
        shared = self._shared.get(key)
        if shared is None or shared.is_dead:
            opening = asyncio.get_running_loop().create_task(_open(options, self._egress, reach))
            shared = self._shared[key] = _SharedConnection(opening)
            # Retrieves the exception, in case it fails after its last user left.
            shared.opening.add_done_callback(lambda done: done.cancelled() or done.exception())
        shared.users += 1
        if shared.idle_timer is not None:
            shared.idle_timer.cancel()
        try:
            yield await _wait_for(shared.opening, auth, call.timeouts.connect or DEFAULT_CONNECT_TIMEOUT_S)
        finally:
            shared.users -= 1
            if shared.users == 0:
                shared.idle_timer = asyncio.get_running_loop().call_later(IDLE_CONNECTION_S, self._drop, key, shared)

    async def close(self) -> None:
        for key, shared in list(self._shared.items()):
            if shared.idle_timer is not None:
                shared.idle_timer.cancel()
            self._drop(key, shared)
        await asyncio.gather(*self._closing)

    def _drop(self, key: str, shared: _SharedConnection) -> None:
        if self._shared.get(key) is shared:
            del self._shared[key]
        start_among(self._closing, _close(shared.opening))


async def _open(options: Options, egress: Egress, reach: Reach) -> Connection:
    """Opens a connection to the first server that answers."""
    *others, last = [part.strip() for part in options["url"].split(",")]
    for url in others:
        with contextlib.suppress(NatsError, OSError):
            return await _connect(url, options, egress, reach)
    return await _connect(last, options, egress, reach)


async def _connect(url: str, options: Options, egress: Egress, reach: Reach) -> Connection:
    """Connects to one server, at the first of its checked addresses that answers."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or NATS_PORT
    login, at, _ = parts.netloc.rpartition("@")
    *others, last = [
        f"{parts.scheme}://{login}{at}{f'[{address}]' if ':' in address else address}:{port}"
        for address in await egress.addresses(host, port, reach)
    ]
    for place in others:
        with contextlib.suppress(OSError):
            return await _connect_to(place, host, options)
    return await _connect_to(last, host, options)


async def _connect_to(url: str, host: str, options: Options) -> Connection:
    """Connects to one address. Retries if the server hangs up, which it may do before it sends the reason."""
    for _ in range(HANG_UP_RETRIES):
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            return await Connection.open(url, host, options)
    return await Connection.open(url, host, options)


async def _wait_for(opening: asyncio.Task[Connection], auth: Auth, timeout_s: float) -> Connection:
    try:
        async with asyncio.timeout(timeout_s):
            with beginning("open a connection"):
                return await asyncio.shield(opening)
    except TimeoutError:
        raise ToolFailure.of("timeout", f"no connection to NATS within {timeout_s:g} s", retryable=True) from None
    except AuthorizationError:
        raise bad_credential(auth, "rejected by the NATS server") from None
    except ImportError as error:
        raise bad_credential(auth, f"creds need the Python package {error.name}; install it on the worker") from None
    except ForbiddenAddress as error:
        raise ToolFailure.of("forbidden_address", f"cannot reach NATS: {error}") from None
    except (NatsError, OSError) as error:
        if "authorization" in str(error).lower():
            raise bad_credential(auth, "rejected by the NATS server") from None
        raise ToolFailure.of("connection", f"cannot reach NATS: {error}", retryable=True) from None
    except ValueError:
        raise bad_credential(auth, f"is not a valid NATS address; {_SHAPES}") from None


async def _close(opening: asyncio.Task[Connection]) -> None:
    opening.cancel()
    await asyncio.wait({opening})
    if not opening.cancelled() and opening.exception() is None:
        await opening.result().client.close()
