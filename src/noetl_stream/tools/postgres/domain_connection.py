"""A pooled connection that serves one trust domain."""

from __future__ import annotations

import asyncpg


class DomainConnection(asyncpg.Connection):
    """A connection of one trust domain (:class:`~noetl_stream.tools.contract.ToolCall`).

    ``DISCARD ALL`` leaves state of functions in a session: the seed of ``random()``, connections of ``dblink``,
    variables of procedural languages. Only tasks that trust each other may share it.
    """

    _domain: str | None = None

    def serves(self, domain: str) -> bool:
        """Returns whether the connection has served no other domain, and binds it to this one."""
        if self._domain is None:
            self._domain = domain
        return self._domain == domain
