"""The link that signs a browser in."""

from __future__ import annotations

from noetl_stream.adapters.gateway_client.connection import GatewayConnection, GatewayRequest
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations.access import SignInCodeDocument


async def sign_in_link(url: str, token: str | None, clock: Clock) -> str:
    """A link to the gateway at ``url`` that signs one browser in with the rights of the token, once.

    Its code is in the fragment, which browsers keep to themselves.

    Raises:
        NoetlError: as of :meth:`~noetl_stream.adapters.gateway_client.connection.GatewayConnection.ask`.
    """
    connection = GatewayConnection(url, token, clock)
    try:
        made = await connection.ask(GatewayRequest("POST", ("session", "codes")), SignInCodeDocument)
    finally:
        await connection.close()
    return f"{connection.url}/#code={made.code}"
