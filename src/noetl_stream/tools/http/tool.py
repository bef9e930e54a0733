"""``kind: http``: one request and its response (LANGUAGE §12)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, cast

from pydantic import AfterValidator, Field

from noetl_stream import __version__
from noetl_stream.concurrency import beside
from noetl_stream.model.json import pieces
from noetl_stream.model.json.texts import header_text, media_type
from noetl_stream.model.secrets.urls import strip_logins
from noetl_stream.playbook.kinds.spec import KindSpec
from noetl_stream.settings.tools import ToolSettings, check_proxy
from noetl_stream.tools.contract import (
    OWN_TROUBLE,
    SHORTAGE,
    DataStore,
    ToolCall,
    ToolFailure,
    ToolResult,
    WorkerUnfit,
    beginning,
)
from noetl_stream.tools.duckdb.job import COPIES_FOLDER, FileSource
from noetl_stream.tools.egress import Egress, ForbiddenAddress, Reach, is_public
from noetl_stream.tools.http.address import has_user, parse_url, redirect_url, shown
from noetl_stream.tools.http.body import Pieces, size_of
from noetl_stream.tools.http.content import BrokenBody
from noetl_stream.tools.http.download import Download, file_name, unpacked_pieces
from noetl_stream.tools.http.request import HttpInputs, HttpRequest, StreamBounds, request_of
from noetl_stream.tools.http.response import header_mapping, read_body, status_failure
from noetl_stream.tools.http.stream import Stream
from noetl_stream.tools.http.tls import TlsContexts
from noetl_stream.tools.inputs import Knobs, credential_of, invalid_input, validated

if TYPE_CHECKING:  # aiohttp takes an eighth of a second to import; only playbooks with http should pay for it
    import aiohttp
    from yarl import URL

    from noetl_stream.tools.duckdb.tool import DuckdbTool
    from noetl_stream.tools.http.client_session import Response

DEFAULT_CONNECT_TIMEOUT_S: Final = 10.0
DEFAULT_READ_TIMEOUT_S: Final = 60.0
MAX_RESPONSE_BYTES: Final = 16 * 1024 * 1024
MAX_REDIRECTS: Final = 10
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_SAME_ORIGIN_HEADERS: Final = frozenset({"authorization", "cookie", "host", "proxy-authorization"})
_REASON_CHARACTERS: Final = 300
_MESSAGES: Final = "messages.ndjson"
"""The file of the messages of a stream in a scratch folder."""
_READ_BESIDE_BYTES: Final = 256 * 1024
"""The size from which a body is parsed in a thread, so that other tasks continue."""


def _without_password(proxy: str) -> str:
    check_proxy(proxy)
    if has_user(proxy):
        raise ValueError("must not contain a user or password, which the playbook would show")
    return proxy


class HttpKnobs(Knobs):
    """Knobs of ``http``."""

    follow_redirects: bool = Field(default=True, description="Whether to follow redirects, at most ten.")
    verify_tls: bool = Field(default=True, description="Whether an `https://` host must have a valid certificate.")
    max_response_bytes: int = Field(
        default=MAX_RESPONSE_BYTES, gt=0, description="Bytes of the response body, decompressed; more is an error."
    )
    numbers: Literal["double", "text"] = Field(
        default="double",
        description="`text`: numbers of JSON with a fraction or an exponent stay the text that was sent.",
    )
    proxy: Annotated[str, AfterValidator(_without_password)] | None = Field(
        default=None, description="URL of the proxy to use, which tasks must be allowed to reach."
    )


class _Route(NamedTuple):
    """The route of a request: over a session, through a proxy or directly."""

    session: aiohttp.ClientSession
    proxy: URL | None = None


class _Answer(NamedTuple):
    """A response: its body, or ``None`` if it was stored, and the further keys of the result."""

    status: int
    headers: dict[str, str]
    body: bytes | None
    kept: Mapping[str, Any]


class HttpTool:
    """Sends requests over shared sessions, which keep connections but no cookies.

    Args:
        egress: The rules for addresses. Default: the public internet.
        proxy: The operator's proxy to the public internet.
        ca_file: PEM of authorities that the operator trusts in addition to those of the system.
        settings: The operator's bounds of what tables are made with.
    """

    spec = KindSpec(
        kind="http",
        inputs=HttpInputs,
        knobs=HttpKnobs,
        beside={"verify_ssl": "verify_tls", "follow_redirects": "follow_redirects", "timeout": "timeout"},
        helper="http",
        verbatim=frozenset({"stream"}),
        result_keys=frozenset(["status", "headers", "data", "encoding", "file", "table", "stream"]),
    )

    def __init__(
        self,
        egress: Egress | None = None,
        *,
        proxy: str | None = None,
        ca_file: Path | None = None,
        settings: ToolSettings | None = None,
    ) -> None:
        self._egress = egress or Egress()
        self._settings = settings or ToolSettings()
        self._proxy = proxy
        self._contexts = TlsContexts(ca_file)
        self._sessions: dict[tuple[str, Reach], aiohttp.ClientSession] = {}

    @classmethod
    def configured(cls, settings: ToolSettings) -> HttpTool:
        """Makes the tool with the addresses that the operator allows."""
        return cls(Egress(settings.egress), proxy=settings.http_proxy, ca_file=settings.http_ca, settings=settings)

    async def run(self, call: ToolCall) -> ToolResult:
        """Returns ``{status, headers, data}``, with the helper ``http {status, headers}``.

        ``file`` or ``table`` stands in place of ``data``, and ``stream`` beside it, where the inputs say so.

        Raises:
            ToolFailure: ``http_status`` and ``result_not_json`` (keep the result), ``connection``, ``timeout``,
                ``forbidden_address``, ``output_too_large``, ``credential``, ``invalid_input``; with ``into``
                ``limit_exceeded`` and ``checksum_mismatch``; of a stream also ``expression_error`` and ``sql``.
        """
        inputs = validated(HttpInputs, call.inputs)
        knobs = validated(HttpKnobs, call.knobs)
        credential = None if inputs.auth is None else await credential_of(call, inputs.auth)
        make = partial(request_of, inputs, credential, call.idempotency_key, call.traceparent, call.data.reference)
        request = await asyncio.to_thread(make) if pieces.is_long(call.inputs) else make()
        status, headers, body, kept = await self._exchange(request, inputs, knobs, call)
        if request.pieces or body is None:
            url = parse_url(request.url)
            call.data.note(f"{url.scheme}://{url.host}:{url.port}", url.path, written=bool(request.pieces))
        if body is None:
            return _stored(request, status, headers, kept, inputs.checksum)
        content_type = "application/json" if "stream" in kept else headers.get("content-type", "")
        reading = partial(read_body, content_type, body, numbers_as_text=knobs.numbers == "text")
        read = await beside(reading, len(body), _READ_BESIDE_BYTES)
        helper = {"status": status, "headers": headers}
        result = {**helper, **read.fields, **kept}
        if not 200 <= status < 400:
            raise status_failure(request.method, shown(request.url), result, read.warnings)
        if read.error:
            raise ToolFailure.of("result_not_json", read.error, result=result, helper=helper)
        return ToolResult(result, helper=helper, warnings=read.warnings)

    async def close(self) -> None:
        """Closes the connections of the tool."""
        while self._sessions:
            await self._sessions.popitem()[1].close()
        if "_duckdb" in vars(self):
            await self._duckdb.close()

    @cached_property
    def _duckdb(self) -> DuckdbTool:
        """The DuckDB that makes tables; only workers with such tasks start one."""
        from noetl_stream.tools.duckdb.tool import DuckdbTool

        return DuckdbTool(self._settings)

    async def _exchange(self, request: HttpRequest, inputs: HttpInputs, knobs: HttpKnobs, call: ToolCall) -> _Answer:
        import aiohttp

        reach = Reach.ALLOWED
        try:
            for _ in range(MAX_REDIRECTS + 1):
                url = parse_url(request.url)
                call.attributes.update(_attributes_of(request.method, url))
                route = await self._route(url, reach, knobs)
                send = partial(self._send, url=url, route=route, knobs=knobs, call=call)
                async with send(request) as response:
                    target = _target(response) if knobs.follow_redirects else None
                    if target is None:
                        status, headers = response.status, header_mapping(response.raw_headers)
                        most = knobs.max_response_bytes if "max_response_bytes" in knobs.model_fields_set else None
                        bounded = partial(_bounded, max_bytes=most, status=status, headers=headers)
                        if inputs.is_stream and 200 <= status < 300:
                            bounds = inputs.stream or StreamBounds()
                            stream = Stream(request, response, send, bounded, bounds)
                            return _Answer(status, headers, *await self._streamed(stream, inputs.into, call))
                        if inputs.into == "file" and 200 <= status < 300:
                            download = Download(request, response, headers, send)
                            name, kind = file_name(headers, url.path), media_type(headers.get("content-type", ""))
                            saved = await call.data.save(bounded(download.pieces()), name=name, media_type=kind)
                            return _Answer(status, headers, None, {"file": saved})
                        body = await _read(response, headers, knobs.max_response_bytes)
                        return _Answer(status, headers, body, {})
                    request = _redirect_request(request, response.status, target)
                    reach = _reach_after(response, route, reach)
        except (aiohttp.ClientError, OSError, BrokenBody) as error:  # TimeoutError is an OSError
            if isinstance(error.__cause__, ToolFailure):  # of a file that is sent
                raise error.__cause__ from None
            raise _failure_of(error, request) from None
        except ValueError as error:
            raise invalid_input(f"url: {error}") from None
        raise _failure("connection", request, f"redirected more than {MAX_REDIRECTS} times", retryable=False)

    async def _streamed(self, stream: Stream, into: str | None, call: ToolCall) -> tuple[bytes | None, dict[str, Any]]:
        """Returns the last message of a stream, or ``None`` if all are stored as a table, and further keys."""
        if into is None:
            async for _ in stream.batches():
                pass
            return stream.last, {"stream": stream.shown()}
        duckdb = self._duckdb
        async with duckdb.scratch_folders.folder() as scratch:
            path = scratch.folder / _MESSAGES
            with beginning("write the messages of a stream", OWN_TROUBLE), path.open("xb", buffering=0) as file:
                async for lines in stream.batches():
                    data = b"\n".join([*lines, b""])
                    scratch.take(len(data), "the messages of the stream")
                    await asyncio.to_thread(file.write, data)
            table = None  # which would have no columns
            if stream.count:
                source = FileSource(
                    "messages", "stream", "the response", f"{COPIES_FOLDER}/{_MESSAGES}", "ndjson", all_rows=True
                )
                table = await duckdb.save(call, scratch, "from messages", source)
            return None, {"table": table, "stream": stream.shown()}

    def _send(
        self, request: HttpRequest, *, url: URL, route: _Route, knobs: HttpKnobs, call: ToolCall
    ) -> aiohttp.client._RequestContextManager:
        import aiohttp

        timeouts, sent = call.timeouts, request.pieces
        length = {"Content-Length": str(size_of(sent))} if sent else {}
        return route.session.request(
            request.method,
            url,
            headers={**request.headers, **request.secret_headers, **length},
            data=_read_all(sent, call.data) if sent else request.body,
            allow_redirects=False,
            skip_auto_headers=("Content-Type",),
            ssl=self._contexts.get(request.tls, verify=knobs.verify_tls),
            proxy=route.proxy,
            timeout=aiohttp.ClientTimeout(
                total=None,  # the worker enforces it
                sock_connect=timeouts.connect if timeouts.connect is not None else DEFAULT_CONNECT_TIMEOUT_S,
                sock_read=timeouts.read if timeouts.read is not None else DEFAULT_READ_TIMEOUT_S,
            ),
        )

    async def _route(self, url: URL, reach: Reach, knobs: HttpKnobs) -> _Route:
        """Returns the route to ``url``. The operator's proxy leads to the internet, a task's own to any address.

        Raises:
            ForbiddenAddress: a proxy would connect to a forbidden address.
        """
        from yarl import URL

        proxy = knobs.proxy or self._proxy
        host, port = url.raw_host or "", url.port or 0
        if proxy is None or (knobs.proxy is None and await self._egress.is_inside(host, port)):
            return _Route(self._session_for(url, reach))
        await self._egress.check_host(host, port, reach)
        way = URL(proxy)
        return _Route(self._session_for(way, Reach.ALLOWED if knobs.proxy else Reach.OWN), way)

    def _session_for(self, url: URL, reach: Reach) -> aiohttp.ClientSession:
        """Returns the session for one way to check addresses, so that no task uses a connection forbidden to it."""
        from noetl_stream.tools.http.client_session import new_session

        key = (self._egress.allowed_name(url.raw_host or ""), reach)
        if key not in self._sessions:
            self._sessions[key] = new_session(self._egress.sockets(*key), f"noetl-stream/{__version__}")
        return self._sessions[key]


def _attributes_of(method: str, url: URL) -> dict[str, str | int]:
    """Returns the attributes of a request's span, without path and query, which may be secret."""
    address: dict[str, str | int] = {
        "url.scheme": url.scheme,
        "server.address": url.host or "",
        "server.port": url.port or 0,
    }
    return {"http.request.method": method, **address}


async def _read(response: aiohttp.ClientResponse, headers: Mapping[str, str], max_bytes: int) -> bytes:
    """Reads the unpacked body of a response.

    Raises:
        ToolFailure: ``output_too_large``.
        BrokenBody: the body is not packed as its headers say, or cut off.
    """
    body = bytearray()
    unpacked = unpacked_pieces(response.content.iter_any(), headers)
    async for piece in _bounded(unpacked, max_bytes, response.status, headers):
        body += piece
    return bytes(body)


async def _read_all(sent: Pieces, data: DataStore) -> AsyncIterator[bytes]:
    for piece in sent:
        if isinstance(piece, bytes):
            yield piece
        else:
            async for part in data.read(piece):
                yield part


async def _bounded(
    pieces: AsyncIterator[bytes], max_bytes: int | None, status: int, headers: Mapping[str, str]
) -> AsyncIterator[bytes]:
    size = 0
    async for piece in pieces:
        size += len(piece)
        if max_bytes is not None and size > max_bytes:
            message = f"the response exceeds {max_bytes:,} bytes; request less, or raise `spec.max_response_bytes`"
            raise ToolFailure.of("output_too_large", message, helper={"status": status, "headers": headers})
        yield piece


def _stored(
    request: HttpRequest, status: int, headers: dict[str, str], kept: Mapping[str, Any], checksum: str | None
) -> ToolResult:
    """Returns the result of a response that was stored as a file or table.

    Raises:
        ToolFailure: ``checksum_mismatch``.
    """
    helper = {"status": status, "headers": headers}
    result = {**helper, **kept}
    if checksum is not None and (file := kept["file"])["checksum"] != checksum:
        reason = f"{file['size']:,} bytes with the checksum {file['checksum']}, where `checksum` says {checksum}"
        error = _failure("checksum_mismatch", request, reason, retryable=False).error
        raise ToolFailure(error, result=result, helper=helper)
    return ToolResult(result, helper=helper)


def _target(response: aiohttp.ClientResponse) -> bytes | None:
    """Returns the header ``Location`` of a redirect."""
    if response.status not in _REDIRECTS:
        return None
    return next((value for name, value in response.raw_headers if name.lower() == b"location"), None)


def _reach_after(response: aiohttp.ClientResponse, route: _Route, reach: Reach) -> Reach:
    """Returns the reach of a redirect: a server on the internet must not choose an inside address."""
    is_outside = route.proxy is not None or is_public(cast("Response", response).peer)
    return Reach.PUBLIC if is_outside else reach


def _redirect_request(request: HttpRequest, status: int, location: bytes) -> HttpRequest:
    """Returns the request that follows a redirect. Secrets are not sent to another origin."""
    try:
        target = redirect_url(request.url, location)
        is_same = parse_url(target).origin() == parse_url(request.url).origin()
    except ValueError:
        reason = f"redirected to {strip_logins(header_text(location)):.100}, which is not an http URL"
        raise _failure("connection", request, reason, retryable=False) from None
    headers, secret, tls = request.headers, request.secret_headers, request.tls
    if not is_same:
        headers, secret, tls = _without_headers(headers, _SAME_ORIGIN_HEADERS), {}, None
    method, body, sent = request.method, request.body, request.pieces
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        method, body, sent = "GET", None, ()
        headers = _without_headers(headers, frozenset({"content-encoding", "content-type", "idempotency-key"}))
    return replace(
        request, url=target, method=method, headers=headers, secret_headers=secret, body=body, tls=tls, pieces=sent
    )


def _without_headers(headers: dict[str, str], names: frozenset[str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in names}


def _failure_of(error: Exception, request: HttpRequest) -> ToolFailure | WorkerUnfit:
    """Returns the failure for an error of the library, whose own text may show the query of the URL."""
    import aiohttp

    from noetl_stream.tools.http.client_session import MAX_HEADER_BYTES, MAX_HEADERS, exceeds_headers

    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, ForbiddenAddress):
        return _failure("forbidden_address", request, str(cause), retryable=False)
    match error:
        case aiohttp.InvalidURL():
            return invalid_input(f"url: {error.description or 'its host is not valid'}")
        case aiohttp.ConnectionTimeoutError():
            return _failure("timeout", request, "no connection in time (timeout.connect)", retryable=True)
        case TimeoutError():
            return _failure(
                "timeout", request, "the server has been silent for too long (timeout.read)", retryable=True
            )
        case aiohttp.ClientConnectorCertificateError():
            reason = f"its certificate is refused: {error.certificate_error}"
            return _failure("connection", request, reason, retryable=False)
        case aiohttp.ClientConnectorError() if error.os_error.errno in SHORTAGE:
            return WorkerUnfit(f"cannot open a connection: {error.os_error.strerror}")
        case aiohttp.ClientConnectorError():
            number = error.os_error.errno or 0
            words = os.strerror(number) if number > 0 and not isinstance(error, aiohttp.ClientSSLError) else None
            reason = (
                f"cannot connect to {error.host}:{error.port}: {words or error.os_error.strerror or error.os_error}"
            )
            return _failure("connection", request, reason, retryable=not isinstance(error, aiohttp.ClientSSLError))
        case aiohttp.ClientHttpProxyError():
            return _failure("connection", request, f"the proxy answered {error.status} {error.message}", retryable=True)
        case aiohttp.ClientResponseError() if exceeds_headers(error):
            reason = (
                f"a header of the response exceeds {MAX_HEADER_BYTES:,} bytes, or there are over {MAX_HEADERS:,}, "
                "which no setting changes"
            )
            return _failure("output_too_large", request, reason, retryable=False)
        case aiohttp.ClientResponseError():
            reason = f"the response is not HTTP: {' '.join(error.message.split())[:_REASON_CHARACTERS]}"
            return _failure("connection", request, reason, retryable=True)
        case aiohttp.ClientPayloadError():
            reason = f"the response broke off: {getattr(error.__cause__, 'message', error)}"
            return _failure("connection", request, reason, retryable=True)
    return _failure("connection", request, str(error) or type(error).__name__, retryable=True)


def _failure(kind: str, request: HttpRequest, reason: str, *, retryable: bool) -> ToolFailure:
    return ToolFailure.of(kind, f"{request.method} {shown(request.url)}: {reason}", retryable=retryable)
