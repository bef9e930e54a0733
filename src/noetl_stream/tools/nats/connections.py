"""Connections of ``kind: nats``: one for each credential, kept while it is used and a minute longer."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import re
from collections.abc import AsyncIterator, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.tools.auth import Auth, bad_credential, text_entry
from noetl_stream.tools.contract import ToolFailure

if TYPE_CHECKING:
    from nats.aio.client import Client

DEFAULT_CONNECT_TIMEOUT_S: Final = 10
IDLE_CONNECTION_S: Final = 60.0
PING_INTERVAL_S: Final = 10
HANG_UPS: Final = 3
_SCHEMES: Final = ("nats", "tls", "ws", "wss")
_WAYS: Final = ({"url"}, {"url", "user", "password"}, {"url", "token"}, {"url", "creds"})
_SHAPES: Final = "give a URL (nats://host:4222), or {url} alone or with {user, password}, {token} or {creds}"
_NOT_PERMITTED: Final = re.compile(r'permissions violation for publish to "(.+)"', re.IGNORECASE)

Options = dict[str, str]
Result = TypeVar("Result")


def options_of(auth: Auth, credential: str | dict[str, Any]) -> Options:
    """What is needed to connect: ``url``, and ``user`` and ``password``, ``token`` or ``creds``.

    Raises:
        ToolFailure: ``credential``, if it is none of a NATS server.
    """
    if isinstance(credential, str):
        credential = {"url": credential}
    if set(credential) not in _WAYS:
        raise bad_credential(auth, f"is none a nats task can use; {_SHAPES}")
    options = {key: text_entry(auth, credential, key) or "" for key in credential}
    for part in options["url"].split(","):
        if urlsplit(part.strip()).scheme not in _SCHEMES:
            raise bad_credential(auth, f"its url must start with nats:// or tls://; {_SHAPES}")
    return options


class Connection:
    """An open connection. ``client`` is the library's. Nothing restores it: who finds it dead gets a new one."""

    def __init__(self) -> None:
        from nats.aio.client import Client

        self.client: Client = Client()
        self._is_open = False
        self._ended = asyncio.Event()
        self._refused: set[str] = set()

    async def open(self, url: str, options: Options) -> None:
        """Connects to one server.

        Raises:
            NatsError, OSError, ImportError: as the library has them; ``ConnectionResetError`` if the server hung up.
        """
        from nats.aio.client import RawCredentials

        creds = options.get("creds")
        if creds is not None:
            importlib.import_module("nkeys")  # the library finds out too late to clean up after itself
        try:
            await self.client.connect(
                url,
                user=options.get("user"),
                password=options.get("password"),
                token=options.get("token"),
                user_credentials=RawCredentials(creds) if creds else None,
                name="noetl-stream",
                allow_reconnect=False,
                connect_timeout=DEFAULT_CONNECT_TIMEOUT_S,
                ping_interval=PING_INTERVAL_S,
                error_cb=self._note,
                closed_cb=self._end,
            )
            if not self.client.is_connected:  # the library takes silence for an answer
                raise ConnectionResetError("the server hung up")
        except BaseException:
            await self.client.close()
            raise
        self._is_open = True

    async def during(self, work: Coroutine[Any, Any, Result]) -> Result:
        """What ``work`` gives, unless the connection ends before: the library would let it wait.

        Raises:
            ConnectionClosedError: it has ended.
        """
        from nats.errors import ConnectionClosedError

        doing, ended = asyncio.create_task(work), asyncio.create_task(self._ended.wait())
        try:
            await asyncio.wait({doing, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                raise ConnectionClosedError
            return doing.result()
        finally:
            doing.cancel()
            ended.cancel()
            await asyncio.gather(doing, ended, return_exceptions=True)

    def take_refusal(self, subject: str) -> bool:
        """Whether the server has said, since it was last asked, that we must not publish to ``subject``.

        It says so beside the exchange, and otherwise lets the message vanish.
        """
        refused = subject.lower() in self._refused
        self._refused.discard(subject.lower())
        return refused

    async def _end(self) -> None:
        self._ended.set()

    async def _note(self, error: Exception) -> None:
        if not self._is_open:
            raise error  # the library would go on trying the same server
        found = _NOT_PERMITTED.search(str(error))
        if found is not None:
            self._refused.add(found[1].lower())


class _Shared:
    def __init__(self, opening: asyncio.Task[Connection]) -> None:
        self.opening = opening
        self.users = 0
        self.ending: asyncio.TimerHandle | None = None

    @property
    def is_dead(self) -> bool:
        if not self.opening.done():
            return False
        return (
            self.opening.cancelled() or self.opening.exception() is not None or self.opening.result().client.is_closed
        )


class Connections:
    """The connections of one worker, each made when it is first asked for."""

    def __init__(self) -> None:
        self._shared: dict[str, _Shared] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def connection(self, auth: Auth, options: Options, timeout_s: float | None) -> AsyncIterator[Connection]:
        """A connection for one task, which others may use at the same time.

        Args:
            timeout_s: How long to wait for it; :data:`DEFAULT_CONNECT_TIMEOUT_S` if ``None``.

        Raises:
            ToolFailure: ``connection``, ``timeout`` or ``credential``.
        """
        key = json.dumps(options, sort_keys=True)
        shared = self._shared.get(key)
        if shared is None or shared.is_dead:
            shared = self._shared[key] = _Shared(asyncio.get_running_loop().create_task(_opened(options)))
            # If it fails after its users have gone, nobody is left to be told.
            shared.opening.add_done_callback(lambda done: done.cancelled() or done.exception())
        shared.users += 1
        if shared.ending is not None:
            shared.ending.cancel()
        try:
            yield await _reached(shared.opening, auth, timeout_s or DEFAULT_CONNECT_TIMEOUT_S)
        finally:
            shared.users -= 1
            if shared.users == 0:
                shared.ending = asyncio.get_running_loop().call_later(IDLE_CONNECTION_S, self._end, key, shared)

    async def close(self) -> None:
        """Closes every connection."""
        for key, shared in list(self._shared.items()):
            if shared.ending is not None:
                shared.ending.cancel()
            self._end(key, shared)
        await asyncio.gather(*self._closing)

    def _end(self, key: str, shared: _Shared) -> None:
        if self._shared.get(key) is shared:
            del self._shared[key]
        task = asyncio.get_running_loop().create_task(_close(shared.opening))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _opened(options: Options) -> Connection:
    """The first of the servers that answers. One that hangs up is asked again: it may not have come to say why."""
    from nats.errors import Error as NatsError

    *others, last = [part.strip() for part in options["url"].split(",")]
    for url in others:
        with contextlib.suppress(NatsError, OSError):
            return await _asked(url, options)
    return await _asked(last, options)


async def _asked(url: str, options: Options) -> Connection:
    for _ in range(HANG_UPS):
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            connection = Connection()
            await connection.open(url, options)
            return connection
    connection = Connection()
    await connection.open(url, options)
    return connection


async def _reached(opening: asyncio.Task[Connection], auth: Auth, timeout_s: float) -> Connection:
    from nats.errors import AuthorizationError
    from nats.errors import Error as NatsError

    try:
        async with asyncio.timeout(timeout_s):
            return await asyncio.shield(opening)
    except TimeoutError:
        error = ErrorInfo(kind="timeout", message=f"no connection to NATS within {timeout_s:g} s", retryable=True)
        raise ToolFailure(error) from None
    except AuthorizationError:
        raise bad_credential(auth, "the NATS server refused it") from None
    except ImportError as error:
        raise bad_credential(auth, f"creds need the Python package {error.name} on the worker") from None
    except (NatsError, OSError) as error:
        if "authorization" in str(error).lower():
            raise bad_credential(auth, "the NATS server refused it") from None
        message = f"NATS cannot be reached: {error}"
        raise ToolFailure(ErrorInfo(kind="connection", message=message, retryable=True)) from None
    except ValueError:
        raise bad_credential(auth, f"cannot be read as the address of a NATS server; {_SHAPES}") from None


async def _close(opening: asyncio.Task[Connection]) -> None:
    opening.cancel()
    await asyncio.wait({opening})
    if not opening.cancelled() and opening.exception() is None:
        await opening.result().client.close()
