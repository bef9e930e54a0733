"""A pooled connection that knows whom it serves."""

from __future__ import annotations

import asyncpg


class DomainConnection(asyncpg.Connection):
    """A connection of one trust domain (:class:`~noetl_stream.tools.contract.ToolCall`).

    ``DISCARD ALL`` leaves what functions keep in a session: the seed of ``random()``, connections of ``dblink``,
    variables of procedural languages. Only tasks that trust each other may share it.
    """

    _domain: str | None = None

    def serves(self, domain: str) -> bool:
        """Whether it has served no other domain. From now on it belongs to this one."""
        if self._domain is None:
            self._domain = domain
        return self._domain == domain
