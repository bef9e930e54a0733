"""``kind: http``: one request and its response (LANGUAGE §12)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urljoin

from pydantic import Field

from noetl_stream import __version__
from noetl_stream.playbook.kinds.spec import KindSpec
from noetl_stream.playbook.plan import Timeouts
from noetl_stream.settings.tools import ToolSettings
from noetl_stream.tools.contract import ToolCall, ToolFailure, ToolResult
from noetl_stream.tools.egress import Egress, ForbiddenAddress, Reach, is_public
from noetl_stream.tools.http.request import HttpInputs, HttpRequest, request_of
from noetl_stream.tools.http.response import header_mapping, result_of, status_failure
from noetl_stream.tools.inputs import Knobs, credential_of, invalid_input, validated

if TYPE_CHECKING:  # aiohttp takes an eighth of a second to import; only playbooks with http should pay for it
    import aiohttp
    from yarl import URL

    from noetl_stream.tools.http.session import Response

DEFAULT_CONNECT_TIMEOUT_S: Final = 10.0
DEFAULT_READ_TIMEOUT_S: Final = 60.0
MAX_RESPONSE_BYTES: Final = 16 * 1024 * 1024
MAX_REDIRECTS: Final = 10
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_SAME_ORIGIN_HEADERS: Final = frozenset({"authorization", "cookie", "proxy-authorization"})


class HttpKnobs(Knobs):
    """Knobs of ``http``."""

    follow_redirects: bool = Field(default=True, description="Whether to follow redirects, at most ten.")
    verify_tls: bool = Field(default=True, description="Whether an `https://` host must have a valid certificate.")
    max_response_bytes: int = Field(
        default=MAX_RESPONSE_BYTES, gt=0, description="Bytes of the response body, decompressed; more is an error."
    )


class HttpTool:
    """Sends requests over shared sessions, which keep connections but no cookies.

    Args:
        egress: What may be reached. Default: the public internet.
    """

    spec = KindSpec(
        kind="http",
        inputs=HttpInputs,
        knobs=HttpKnobs,
        beside={"verify_ssl": "verify_tls", "follow_redirects": "follow_redirects", "timeout": "timeout"},
        helper="http",
    )

    def __init__(self, egress: Egress | None = None) -> None:
        self._egress = egress or Egress()
        self._sessions: dict[tuple[str, Reach], aiohttp.ClientSession] = {}

    @classmethod
    def configured(cls, settings: ToolSettings) -> HttpTool:
        """The tool with the addresses that the operator allows."""
        return cls(Egress(settings.egress))

    async def run(self, call: ToolCall) -> ToolResult:
        """Returns ``{status, headers, data}`` with the helper ``http {status, headers}``.

        Raises:
            ToolFailure: ``http_status`` (keeps the result), ``connection``, ``timeout``, ``forbidden_address``,
                ``output_too_large``, ``result_not_json``, ``credential``, ``invalid_input``.
        """
        inputs = validated(HttpInputs, call.inputs)
        knobs = validated(HttpKnobs, call.knobs)
        credential = None if inputs.auth is None else await credential_of(call, inputs.auth)
        request = request_of(inputs, credential, call.idempotency_key, call.traceparent)
        status, headers, body = await self._exchange(request, knobs, call.timeouts)
        helper = {"status": status, "headers": headers}
        try:
            result = result_of(status, headers, body)
        except ToolFailure as failure:
            raise ToolFailure(failure.error, helper=helper) from None
        if status >= 400:
            raise status_failure(request.method, request.url.partition("?")[0], result)
        return ToolResult(result, helper=helper)

    async def close(self) -> None:
        """Closes the connections."""
        while self._sessions:
            await self._sessions.popitem()[1].close()

    async def _exchange(
        self, request: HttpRequest, knobs: HttpKnobs, timeouts: Timeouts
    ) -> tuple[int, dict[str, str], bytes]:
        import aiohttp
        from yarl import URL

        try:
            url = URL(request.url).extend_query(request.params)
        except ValueError as error:
            raise invalid_input(f"url: {error}") from None
        reach = Reach.ALLOWED
        try:
            for _ in range(MAX_REDIRECTS + 1):
                async with self._send(request, url, reach, knobs, timeouts) as response:
                    target = response.headers.get("Location") if response.status in _REDIRECTS else None
                    if target is None or not knobs.follow_redirects:
                        headers = header_mapping(response.headers.items())
                        return response.status, headers, await _read(response, headers, knobs.max_response_bytes)
                    request, url = _redirected(request, url, response.status, target)
                    reach = _reach_after(response, reach)
        except TimeoutError as error:
            raise _failed("timeout", request, url, str(error) or "timed out", retryable=True) from None
        except aiohttp.InvalidURL as error:
            raise invalid_input(f"url: {error}") from None
        except aiohttp.ClientSSLError as error:
            raise _failed("connection", request, url, str(error), retryable=False) from None
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, ForbiddenAddress):
                raise _forbidden(request, url, error.os_error) from None
            raise _failed("connection", request, url, str(error) or type(error).__name__, retryable=True) from None
        raise _failed("connection", request, url, f"redirected more than {MAX_REDIRECTS} times", retryable=False)

    def _send(
        self, request: HttpRequest, url: URL, reach: Reach, knobs: HttpKnobs, timeouts: Timeouts
    ) -> aiohttp.client._RequestContextManager:
        import aiohttp

        return self._session_for(url, reach).request(
            request.method,
            url,
            headers={**request.headers, **request.secret_headers},
            data=request.body,
            allow_redirects=False,
            skip_auto_headers=("Content-Type",),
            ssl=knobs.verify_tls,
            timeout=aiohttp.ClientTimeout(
                total=None,  # the worker enforces it
                sock_connect=timeouts.connect if timeouts.connect is not None else DEFAULT_CONNECT_TIMEOUT_S,
                sock_read=timeouts.read if timeouts.read is not None else DEFAULT_READ_TIMEOUT_S,
            ),
        )

    def _session_for(self, url: URL, reach: Reach) -> aiohttp.ClientSession:
        """One session per way to check addresses, so that none uses a connection only allowed to another."""
        from noetl_stream.tools.http.session import new_session

        key = (self._egress.allowed_name(url.raw_host or ""), reach)
        if key not in self._sessions:
            self._sessions[key] = new_session(self._egress.sockets(*key), f"noetl-stream/{__version__}")
        return self._sessions[key]


async def _read(response: aiohttp.ClientResponse, headers: Mapping[str, str], max_bytes: int) -> bytes:
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > max_bytes:
            message = f"the response exceeds max_response_bytes ({max_bytes:,}); request less, or raise it"
            helper = {"status": response.status, "headers": headers}
            raise ToolFailure.of("output_too_large", message, helper=helper)
    return bytes(body)


def _reach_after(response: aiohttp.ClientResponse, reach: Reach) -> Reach:
    """How far a redirect may go: a server on the internet must not choose what is reached inside."""
    return Reach.PUBLIC if is_public(cast("Response", response).peer) else reach


def _redirected(request: HttpRequest, url: URL, status: int, location: str) -> tuple[HttpRequest, URL]:
    """The request and URL to follow a redirect with. Secrets are not sent to another origin."""
    target = type(url)(urljoin(str(url), location))
    if target.scheme not in ("http", "https") or not target.host:
        raise _failed(
            "connection", request, url, f"redirected to {location!r:.100}, which is not an http URL", retryable=False
        )
    headers, secret = request.headers, request.secret_headers
    if target.origin() != url.origin():
        headers = _without(headers, _SAME_ORIGIN_HEADERS)
        secret = {}
    method, body = request.method, request.body
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        method, body = "GET", None
        headers = _without(headers, frozenset({"content-type", "idempotency-key"}))
    return replace(request, method=method, headers=headers, secret_headers=secret, body=body), target


def _without(headers: dict[str, str], names: frozenset[str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in names}


def _forbidden(request: HttpRequest, url: URL, error: ForbiddenAddress) -> ToolFailure:
    return _failed("forbidden_address", request, url, str(error), retryable=False)


def _failed(kind: str, request: HttpRequest, url: Any, reason: str, *, retryable: bool) -> ToolFailure:
    # Without the query, which may contain a key.
    shown = url.with_query(None).with_fragment(None)
    return ToolFailure.of(kind, f"{request.method} {shown}: {reason}", retryable=retryable)
