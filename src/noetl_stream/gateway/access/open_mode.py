"""Whether a gateway lets everybody in: decided once, when it starts, and said."""

from __future__ import annotations

import ipaddress
from typing import Literal, NamedTuple

from noetl_stream.errors import UsageError
from noetl_stream.ports.access import Tokens

Wish = Literal["open", "required"]
"""``NOETL_GATEWAY_AUTH``: ``open`` lets everybody in as admin, ``required`` asks for a token on any address."""


class OpenMode(NamedTuple):
    """``sentence`` says it, to be shown when the gateway starts."""

    open_to_all: bool
    sentence: str


async def decide_open_mode(host: str, wish: Wish | None, tokens: Tokens, now_ms: int, *, provider: bool) -> OpenMode:
    """On a loopback address a gateway is open unless something says otherwise; on any other it is closed.

    Args:
        host: What it listens on; empty: every address.
        wish: What the operator has said, if anything.
        provider: Whether an identity provider is configured: who does that wants callers to be known.

    Raises:
        UsageError: nobody could come in, and it was not said that everybody may.
    """
    if wish == "open" or (wish is None and not provider and _is_loopback(host)):
        warning = "" if _is_loopback(host) else ": whoever reaches this address may do everything"
        return OpenMode(True, f"open: callers without a token are admin `local`{warning}")
    if provider:
        return OpenMode(False, "closed: callers show a token, of this gateway or of the identity provider")
    if any(token.role == "admin" and token.holds(now_ms) for token in await tokens.list_all()):
        return OpenMode(False, "closed: callers show a token")
    raise UsageError(
        f"a gateway on {host or 'every address'} is closed, and there is no admin's token to open it",
        hint="make one: `noetl-stream token create NAME --role admin`; or configure NOETL_OIDC_ISSUER; or, where "
        "whoever reaches it may do everything, say NOETL_GATEWAY_AUTH=open",
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
