"""nats-py's client without the bug that ends reading, with TLS where addresses ask for it, and renewed certificates."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from nats.errors import Error as NatsError


class PatientClient(Client):
    """A client that keeps reading when a PONG arrives after its waiter has given up.

    nats-py sets the result of a cancelled future then: its reader ends with ``InvalidStateError``, and the connection
    is deaf until its own pings are overdue.

    Args:
        certificate: A folder with the client's certificate, ``tls.crt``, and its key, ``tls.key``.
    """

    def __init__(self, certificate: Path | None = None) -> None:
        super().__init__()
        self._certificate = certificate

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """The TLS context, made for each attempt to connect: certificates and authorities may have been renewed."""
        context = super().ssl_context
        if self._certificate is not None:
            context.load_cert_chain(self._certificate / "tls.crt", self._certificate / "tls.key")
        return context

    @property
    def verifies_clients(self) -> bool:
        """Whether the server that answered last verifies its clients."""
        return bool(self._server_info.get("tls_verify"))

    @property
    def is_ungreeted(self) -> bool:
        """Whether something accepted the last connection without the greeting that NATS begins with."""
        accepted = self._transport is not None and getattr(self._transport, "_io_reader", None) is not None
        return accepted and not self._server_info

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """Processes the greeting of a server before anything is sent to it.

        nats-py leaves encryption to the server: one without TLS, or somebody in between, would read what an address
        with ``tls://`` is to protect.
        """
        await super()._process_info(info, initial_connection)
        server = self._current_server
        if initial_connection and server is not None and server.uri.scheme == "tls":
            if not (info.get("tls_required") or info.get("tls_available")):
                raise NatsError("it offers no TLS, which tls:// asks for")
            info["tls_required"] = True

    async def _process_pong(self) -> None:
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()
