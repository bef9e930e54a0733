"""Tokens for a client by OAuth 2.0 client credentials (RFC 6749 §4.4; LANGUAGE §11)."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote_plus, urlencode

import msgspec

from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.keychain_kinds import OauthSettings
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.http_response import RETRYABLE_STATUSES

FETCH_TIMEOUT_S: Final = 30.0
CONNECT_TIMEOUT_S: Final = 10.0
MAX_ANSWER_BYTES: Final = 256 * 1024
_SHOWN_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class Token:
    """A token; ``lives_s`` is ``None`` if the other side does not say how long it is good for."""

    value: str = field(repr=False)
    type: str
    lives_s: float | None


async def fetch_token(settings: OauthSettings, client_id: str, client_secret: str) -> Token:
    """Asks ``settings.token_url`` for a token, once.

    Raises:
        ToolFailure: kind ``credential``; ``retryable`` if another try may help.
    """
    import aiohttp

    form = {"grant_type": "client_credentials"}
    if settings.scopes:
        form["scope"] = " ".join(settings.scopes)
    if settings.audience is not None:
        form["audience"] = settings.audience
    headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
    if settings.auth_method == "client_secret_post":
        form |= {"client_id": client_id, "client_secret": client_secret}
    else:
        pair = f"{quote_plus(client_id)}:{quote_plus(client_secret)}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    timeout = aiohttp.ClientTimeout(total=FETCH_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session,
            # Not to where it may redirect: the client's secret is for this address.
            session.post(settings.token_url, data=urlencode(form), headers=headers, allow_redirects=False) as response,
        ):
            body = await response.content.read(MAX_ANSWER_BYTES)
            return _token_of(settings.token_url, response.status, body)
    except TimeoutError:
        raise _failed(settings.token_url, "took too long", retryable=True) from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise _failed(settings.token_url, str(error) or type(error).__name__, retryable=True) from None


def _token_of(url: str, status: int, body: bytes) -> Token:
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        answer = None
    said: dict[str, Any] = answer if isinstance(answer, dict) else {}
    if status != 200:
        reason = " ".join(str(said[key]) for key in ("error", "error_description") if said.get(key))
        shown = f"answered {status}{': ' if reason else ''}{reason[:_SHOWN_CHARACTERS]}"
        raise _failed(url, shown, retryable=status in RETRYABLE_STATUSES)
    value, kind, lives_s = said.get("access_token"), said.get("token_type", "Bearer"), said.get("expires_in")
    if not isinstance(value, str) or not value:
        raise _failed(url, "gave no access_token", retryable=False)
    # Some servers write the number as text.
    text = str(lives_s)
    return Token(value, str(kind), float(text) if text.replace(".", "", 1).isdecimal() else None)


def _failed(url: str, reason: str, *, retryable: bool) -> ToolFailure:
    place = url.partition("?")[0]
    return ToolFailure(ErrorInfo("credential", f"no token from {place}: {reason}", retryable=retryable))
