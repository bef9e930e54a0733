"""The catalog as people use it (LANGUAGE §9, §12 *playbook*)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from noetl_stream.ports.operations.documents import Document, Page


class Playbooks(Protocol):
    """A version of a playbook is named by ``metadata.version``, by its revision, or by ``None`` for the latest."""

    async def check(self, source: bytes, name: str) -> Document:
        """``{"ok", "path", "version", "digest", "diagnostics"}``; nothing is stored.

        Args:
            name: What diagnostics call the text.
        """
        ...

    async def register(self, source: bytes, name: str, by: str) -> Document:
        """The entry, with ``"created"``: whether it is new.

        Raises:
            PlaybookRefused: it has errors.
            Conflict: the version is registered with another text.
        """
        ...

    async def page(self, prefix: str, labels: Mapping[str, str], limit: int, cursor: str | None) -> Page:
        """The latest entry of each path, by path."""
        ...

    async def get(self, path: str, version: str | None) -> Document:
        """The entry with its ``source``.

        Raises:
            NotFound: nothing is registered there; the hint says what is.
        """
        ...

    async def versions(self, path: str) -> list[Document]:
        """Every entry of a path, newest first."""
        ...

    async def plan(self, path: str, version: str | None) -> Document:
        """What it compiles to (``playbook show --compiled``)."""
        ...

    async def graph(self, path: str, version: str | None) -> Document:
        """``{"steps": […], "arcs": [{"from", "to", "when"}]}``."""
        ...

    async def delete(self, path: str, version: str | None, by: str) -> None:
        """Takes a version, or with ``None`` all of them, out of the catalog. Executions keep their text."""
        ...
