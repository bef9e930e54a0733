"""What runs the executions: workers, their pools, partitions, and letters that could not be delivered."""

from __future__ import annotations

from typing import Protocol

from noetl_stream.ports.operations.documents import Document, Page


class Cluster(Protocol):
    """Raises (any method): :class:`~noetl_stream.errors.Unreachable` when a store is away; with a letter's id
    :class:`~noetl_stream.errors.NotFound` where there is none.
    """

    async def workers(self) -> list[Document]:
        """Those alive, by pool and name: ``{"name", "pool", "slots", "busy", "since", "kinds", "draining", "version",
        "running"}``.

        ``busy`` counts the slots that hold a command; ``running`` names them, not more than a bounded number:
        ``{"execution_id", "command_id", "step", "delivered"}``, how often that issue was given to a worker.
        """
        ...

    async def pools(self) -> list[Document]:
        """``{"pool", "workers", "slots", "busy", "queued", "running", "again"}``, by name.

        Of the commands of a pool ``queued`` wait and ``running`` are given to a worker: one that has died keeps its own
        until their lease is over. ``again`` of these are not given for the first time. A pool that has commands and no
        worker has ``workers: 0``.
        """
        ...

    async def partitions(self) -> list[Document]:
        """``{"partition", "owner", "epoch", "live", "folded", "behind"}``.

        ``folded`` is the cursor that Postgres has committed; ``behind`` counts the reports and requests of this
        partition that EVENTS holds above it: neither decided records nor what others fold. Asked each second.
        """
        ...

    async def dead_letters(self, limit: int, cursor: str | None) -> Page:
        """Those that wait, newest first, without their bodies: ``{"id", "at", "source", "partition", "execution_id",
        "subject", "reason", "size", "sequence", "state", "settled_at", "settled_by"}``.

        ``source`` is ``events``, ``inbox`` or ``command``; ``state`` is ``waiting``, ``requeued`` or ``discarded``.
        """
        ...

    async def dead_letter(self, letter_id: str) -> Document:
        """One, settled or not, with ``body`` and its ``encoding``: ``text``, or ``base64`` where it is none."""
        ...

    async def requeue(self, letter_id: str, by: str) -> Document:
        """Publishes it again where it came from, and takes it off the list; who did so, and when, stays on record.

        Raises:
            Conflict: it is settled already; it is of a command, whose step run has failed; or it was not kept whole.
        """
        ...

    async def discard(self, letter_id: str, by: str) -> None:
        """Takes it off the list for good and forgets its body; who did so, and when, stays on record.

        Raises:
            Conflict: it is settled already.
        """
        ...
