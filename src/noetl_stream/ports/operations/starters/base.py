"""What :mod:`~noetl_stream.ports.operations.starters.schedules` and
:mod:`~noetl_stream.ports.operations.starters.triggers` have in common: registered documents that start executions by
themselves.
"""

from __future__ import annotations

from typing import Any, Protocol

from noetl_stream.ports.operations.documents import DocumentPage
from noetl_stream.ports.operations.executions import RequestIds


class Starters(Protocol):
    """A starter begins when its document is registered (:meth:`.Playbooks.register`).

    Raises (any method but :meth:`page`): :class:`~noetl_stream.errors.NotFound` if none is registered there.
    """

    async def page(self, prefix: str, limit: int, cursor: str | None) -> DocumentPage[Any]:
        """Starters by path."""

    async def get(self, path: str) -> Any:
        """A starter as it is."""

    async def pause(self, path: str, by: str, reason: str = "", ids: RequestIds | None = None) -> Any:
        """From now on it starts nothing. What runs goes on."""

    async def resume(self, path: str, by: str, reason: str = "", ids: RequestIds | None = None) -> Any:
        """From now on it starts again.

        Raises:
            Forbidden: whoever registered it may no longer start the playbook.
        """

    async def history(self, path: str, limit: int, cursor: str | None, status: Any = None) -> DocumentPage[Any]:
        """What became of its starts, newest first."""

    async def delete(self, path: str, by: str, reason: str = "") -> None:
        """Deletes it, its history and all versions of its document. What it has started goes on."""
