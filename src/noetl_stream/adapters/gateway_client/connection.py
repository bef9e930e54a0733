"""HTTP to one gateway: safe requests are repeated, problems become errors."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote

import aiohttp
from yarl import URL

from noetl_stream.errors import (
    NoetlError,
    OutcomeUnknown,
    PayloadRefused,
    PlaybookRefused,
    TooBusy,
    Unreachable,
    UsageError,
)
from noetl_stream.model.ids import uuid7
from noetl_stream.model.json import codec
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations.problems import PROBLEMS, TYPE_PREFIX
from noetl_stream.ports.operations.verbs import API, document_of
from noetl_stream.retries import pauses

JSON: Final = "application/json"
PROBLEM: Final = "application/problem+json"

CONNECT_S: Final = 5.0
ANSWER_S: Final = 60.0
"""The time that an answer may take beyond the request's own ``wait_s``: a gateway waits for half of it."""

FIRST_PAUSE_S: Final = 0.2
REPETITIONS: Final = 3

REPEATED_WITHIN_S: Final = 10.0
"""The time for which to repeat a request that one of the gateway's stores did not answer."""

AWAY: Final = frozenset({502, 503, 504})
"""The answers of proxies for a gateway that is down."""

_KINDS: Final = {kind.name: kind for kind in PROBLEMS}

Query = Sequence[tuple[str, str]]
Answer = TypeVar("Answer")


class _Broken(Exception):
    """No answer came. ``sent``: the gateway may have received and performed the request."""

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.why = why
        self.sent = sent


class GatewayRequest(NamedTuple):
    """A request.

    Attributes:
        parts: The parts of the address below ``/api/v1``, unquoted: they are quoted as needed.
        body: An object, sent as JSON, or bytes of another ``media`` type; ``None`` for none.
        key: The Idempotency-Key, which makes a POST or PATCH safe to repeat.
        wait_s: The time for which it asks the gateway to wait.
    """

    method: str
    parts: tuple[str, ...]
    query: Query = ()
    body: Mapping[str, Any] | bytes | None = None
    media: str = JSON
    headers: Mapping[str, str] = {}
    key: str | None = None
    wait_s: float = 0.0

    @property
    def is_repeatable(self) -> bool:
        return self.method == "GET" or self.key is not None


class GatewayConnection:
    """
    Args:
        url: ``http://`` or ``https://``, with the path of a proxy if there is one.
        token: Sent to this gateway only.
    """

    def __init__(self, url: str, token: str | None, clock: Clock) -> None:
        self.url: Final = url.rstrip("/")
        self.clock: Final = clock
        self._token = token
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def new_key(self) -> str:
        """A new Idempotency-Key."""
        return uuid7(self.clock.now_ms(), self.clock.random_bytes(10))

    async def get(self, kind: type[Answer], *parts: str, query: Query = (), wait_s: float = 0.0) -> Answer:
        return await self.ask(GatewayRequest("GET", parts, query, wait_s=wait_s), kind)

    async def post(
        self,
        kind: type[Answer],
        *parts: str,
        body: Mapping[str, Any] | None = None,
        key: str | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> Answer:
        key = key or self.new_key()
        return await self.ask(GatewayRequest("POST", parts, body=body, key=key, headers=headers), kind)

    async def ask(self, asked: GatewayRequest, kind: type[Answer]) -> Answer:
        """The answer as a document of this kind; ``type(None)`` for an answer without one.

        Raises:
            NoetlError: the error behind the gateway's problem.
            Unreachable: no gateway answers there.
            OutcomeUnknown: it may have been performed: the connection broke, and a retry could repeat it.
            UsageError: what answers there is not a gateway.
        """
        waits, until_s = islice(pauses(FIRST_PAUSE_S), REPETITIONS), self.clock.monotonic_s() + REPEATED_WITHIN_S
        while True:
            try:
                async with self._answer(asked, ANSWER_S + asked.wait_s) as response:
                    return await _document(response, kind)
            except Unreachable:  # a store of the gateway may be failing over
                pause_s = next(waits, None) if self.clock.monotonic_s() < until_s else None
                if pause_s is None or not asked.is_repeatable:
                    raise
                await self.clock.sleep(pause_s)
            except _Broken as broken:
                pause_s = next(waits, None)
                if pause_s is None or (broken.sent and not asked.is_repeatable):
                    raise self._error(broken, asked) from None
                await self.clock.sleep(pause_s)

    @asynccontextmanager
    async def stream(self, asked: GatewayRequest, silence_s: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of an answer as they arrive. Its opening is not repeated.

        Args:
            silence_s: The time without a byte after which the connection counts as broken.

        Raises:
            Unreachable: while it is opened or read: the connection is broken.
        """
        try:
            async with self._answer(asked, silence_s, whole=False) as response:
                if response.status != 200:
                    await _document(response, type(None))
                yield self._chunks(response)
        except _Broken as broken:
            raise self._error(broken, asked) from None

    @asynccontextmanager
    async def _answer(
        self, asked: GatewayRequest, timeout_s: float, *, whole: bool = True
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        url = URL(f"{self.url}{API}/" + "/".join(quote(part, safe="") for part in asked.parts), encoded=True)
        timeout = aiohttp.ClientTimeout(timeout_s if whole else None, sock_connect=CONNECT_S, sock_read=timeout_s)
        headers = dict(asked.headers)
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if asked.key is not None:
            headers["Idempotency-Key"] = asked.key
        body = asked.body if isinstance(asked.body, bytes | None) else codec.encode(asked.body)
        if body is not None:
            headers["Content-Type"] = asked.media
        self._session = self._session or aiohttp.ClientSession()
        try:
            async with self._session.request(
                asked.method,
                url.extend_query(list(asked.query)),
                data=body,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,  # the token is for this address only
            ) as response:
                yield response
        except aiohttp.InvalidURL:
            raise UsageError(f"{self.url!r} is not the address of a gateway") from None
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise _Broken(_words(error), sent=False) from None
        except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
            raise _Broken(_words(error), sent=True) from None

    async def _chunks(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        try:
            async for chunk in response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
            raise Unreachable(f"the connection to {self.url} broke: {_words(error)}") from None

    def _error(self, broken: _Broken, asked: GatewayRequest) -> NoetlError:
        if not broken.sent:
            hint = "is `noetl-stream gateway` running there? --url, NOETL_URL or the context sets the address"
            return Unreachable(f"no gateway answers at {self.url}: {broken.why}", hint=hint)
        if asked.method == "GET":
            return Unreachable(f"the connection to {self.url} broke: {broken.why}")
        text = f"the connection to {self.url} broke before the answer came: {broken.why}"
        return OutcomeUnknown(text, hint="check whether it was done before you retry")


async def _document(response: aiohttp.ClientResponse, kind: type[Answer]) -> Answer:
    data, address = await response.read(), response.url.origin()
    is_json = response.content_type in (JSON, PROBLEM)
    if response.content_type == PROBLEM:
        raise error_of(codec.decode_json(data), _retry_after_s(response))
    if response.status in AWAY:
        raise _Broken(f"it answers {response.status} {response.reason}", sent=True)
    if response.status < 300 and (is_json or not data):
        try:
            found = codec.decode_json(data) if data else None
        except PayloadRefused as error:
            raise _Broken(error.message, sent=True) from None
        try:
            return document_of(found, kind)
        except PayloadRefused as error:
            text = f"{address} answers with something unexpected: {error.message}"
            raise UsageError(text, hint="is it a gateway of this release?") from None
    if 300 <= response.status < 400:
        raise UsageError(f"{address} redirects to {response.headers.get('Location', '?')}", hint="use that address")
    text = f"{address} is not a gateway: it answers {response.status} with {response.content_type}"
    raise UsageError(text, hint="--url, NOETL_URL or the context sets the address")


def _retry_after_s(response: aiohttp.ClientResponse) -> float:
    given = response.headers.get("Retry-After", "")
    return float(given) if given.isascii() and given.isdigit() else 1.0


def _words(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not trusted: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        if isinstance(cause, ConnectionError) and cause.errno is not None:
            return os.strerror(cause.errno)  # asyncio's text repeats the address
        return str(cause.strerror or cause)
    return "it timed out" if isinstance(error, TimeoutError) else str(error) or type(error).__name__


def error_of(problem: Mapping[str, Any], retry_after_s: float) -> NoetlError:
    """The error behind a gateway's problem.

    An unknown type, as from a newer gateway, counts as the first with its status.
    """
    alike = (kind for kind in PROBLEMS if kind.status == problem.get("status"))
    kind = _KINDS.get(str(problem.get("type", "")).rpartition(TYPE_PREFIX)[2]) or next(alike, None)
    detail = str(problem.get("detail") or problem.get("title") or "refused")
    message = "; ".join((detail, *_faults(problem, detail)))
    hint = problem.get("hint")
    if kind is None:
        return NoetlError(message, hint=hint)
    if issubclass(kind.error, PlaybookRefused):
        return kind.error(message, problem.get("diagnostics") or [], hint=hint)
    if issubclass(kind.error, TooBusy):
        return kind.error(message, retry_after_s, hint=hint)
    return kind.error(message, hint=hint)


def _faults(problem: Mapping[str, Any], detail: str) -> list[str]:
    """The faults of a request that the detail does not mention."""
    found = [fault for fault in problem.get("errors") or [] if fault["detail"] not in detail]
    faults = [f"{fault.get('parameter') or fault.get('pointer') or 'the body'}: {fault['detail']}" for fault in found]
    return [*faults, f"and {problem['left_out']} more"] if problem.get("left_out") else faults
