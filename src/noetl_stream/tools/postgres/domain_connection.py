"""A pooled connection that serves one trust domain."""

from __future__ import annotations

from typing import Any

import asyncpg

from noetl_stream.tools.postgres.received_bytes import CountedTransport, CountingLoop


class DomainConnection(asyncpg.Connection):
    """A connection of one trust domain (:class:`~noetl_stream.tools.contract.ToolCall`).

    ``DISCARD ALL`` leaves state of functions in a session: the seed of ``random()``, connections of ``dblink``,
    variables of procedural languages. Only tasks that trust each other may share it.

    Attributes:
        received: Counts what the connection receives.
        server: The address of the server, as ``postgres://host:5432``.
    """

    _domain: str | None = None
    server = ""

    def __init__(self, protocol: Any, transport: CountedTransport, loop: CountingLoop, *more: Any) -> None:
        super().__init__(protocol, transport, loop.loop, *more)
        self.received = transport.received

    def serves(self, domain: str) -> bool:
        """Returns whether the connection has served no other domain, and binds it to this one."""
        if self._domain is None:
            self._domain = domain
        return self._domain == domain
