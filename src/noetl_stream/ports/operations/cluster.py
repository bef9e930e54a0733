"""What runs the executions: workers, their pools, partitions, and letters that could not be delivered."""

from __future__ import annotations

from typing import Protocol

from noetl_stream.ports.operations.documents import Document, Page


class Cluster(Protocol):
    async def workers(self) -> list[Document]:
        """Those alive: ``{"name", "pool", "slots", "busy", "since", "kinds", "draining"}``."""
        ...

    async def pools(self) -> list[Document]:
        """``{"pool", "workers", "slots", "busy", "queued", "running"}``: commands waiting, and given to workers."""
        ...

    async def partitions(self) -> list[Document]:
        """``{"partition", "owner", "epoch", "live", "folded", "behind"}``: messages of EVENTS not folded yet."""
        ...

    async def dead_letters(self, limit: int, cursor: str | None) -> Page:
        """Newest first, without their bodies."""
        ...

    async def dead_letter(self, letter_id: str) -> Document:
        """With its body, as text where it is some."""
        ...

    async def requeue(self, letter_id: str, by: str) -> Document:
        """Publishes it again where it came from, and takes it off the list."""
        ...

    async def discard(self, letter_id: str, by: str) -> None:
        """Takes it off the list for good."""
        ...
