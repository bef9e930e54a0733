"""Access tokens by OAuth 2.0 client credentials (RFC 6749 §4.4; LANGUAGE §11)."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote_plus

import msgspec

from noetl_stream.playbook.kinds.keychain import OauthSettings
from noetl_stream.playbook.plan import Timeouts
from noetl_stream.tools.contract import Tool, ToolCall, ToolFailure

FETCH_TIMEOUT_S: Final = 30.0
CONNECT_TIMEOUT_S: Final = 10.0
MAX_RESPONSE_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class AccessToken:
    """An access token; ``lives_s`` is its lifetime in seconds, ``None`` if unknown."""

    value: str = field(repr=False)
    type: str
    lives_s: float | None


async def fetch_token(http: Tool, settings: OauthSettings, client_id: str, client_secret: str) -> AccessToken:
    """Requests a token from ``settings.token_url``, without retries.

    Args:
        http: The worker's ``http`` tool, whose network permissions apply.

    Raises:
        ToolFailure: kind ``credential``; ``retryable`` if a retry may succeed.
    """
    url = settings.token_url.partition("?")[0]
    try:
        async with asyncio.timeout(FETCH_TIMEOUT_S):
            result = (await http.run(_call(settings, client_id, client_secret))).result
    except TimeoutError:
        raise _token_failure(url, f"no response within {FETCH_TIMEOUT_S:g} s", retryable=True) from None
    except ToolFailure as failure:
        error = failure.error
        if (reason := _bound_exceeded(failure)) is not None:
            raise _token_failure(url, reason, retryable=error.retryable) from None
        raise ToolFailure(
            msgspec.structs.replace(error, kind="credential", message=f"no token: {error.message}")
        ) from None
    data = result["data"]
    value = data.get("access_token") if isinstance(data, Mapping) else None
    if not isinstance(data, Mapping) or not isinstance(value, str) or not value:
        raise _token_failure(url, f"the response ({result['status']}) has no access_token")
    lives_s = str(data.get("expires_in"))  # some servers send the number as text
    is_number = lives_s.replace(".", "", 1).isdecimal()
    return AccessToken(value, str(data.get("token_type", "Bearer")), float(lives_s) if is_number else None)


def _bound_exceeded(failure: ToolFailure) -> str | None:
    """The exceeded bound of a token request, if any: the tool's own message names the settings of a task."""
    match failure.error.kind:
        case "timeout":
            return f"no connection within {CONNECT_TIMEOUT_S:g} s"
        case "output_too_large" if failure.helper:  # a body; that of headers is the tool's own
            return f"the response exceeds {MAX_RESPONSE_BYTES:,} bytes, which no setting changes"
    return None


def _call(settings: OauthSettings, client_id: str, client_secret: str) -> ToolCall:
    form = {"grant_type": "client_credentials"}
    if settings.scopes:
        form["scope"] = " ".join(settings.scopes)
    if settings.audience is not None:
        form["audience"] = settings.audience
    inputs: dict[str, Any] = {"method": "POST", "url": settings.token_url, "headers": {"Accept": "application/json"}}
    if settings.auth_method == "client_secret_post":
        form |= {"client_id": client_id, "client_secret": client_secret}
    else:
        inputs["auth"] = {"username": quote_plus(client_id), "password": quote_plus(client_secret)}
    return ToolCall(
        inputs={**inputs, "form": form},
        # No redirects: the client's secret is for this address only.
        knobs={"follow_redirects": False, "max_response_bytes": MAX_RESPONSE_BYTES},
        timeouts=Timeouts(connect=CONNECT_TIMEOUT_S, read=2 * FETCH_TIMEOUT_S),
        idempotency_key=secrets.token_hex(),
        execution_id="",
        step="",
        task="",
        attempt=1,
        trust_domain="",
        scope={},
        credential=_no_credential,
    )


async def _no_credential(name: str) -> str:
    raise _token_failure(name, "the client's credential must be inline")


def _token_failure(source: str, reason: str, *, retryable: bool = False) -> ToolFailure:
    return ToolFailure.of("credential", f"no token from {source}: {reason}", retryable=retryable)
