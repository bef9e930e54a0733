"""Whether the system is well, check by check."""

from __future__ import annotations

from typing import Literal, Protocol

from noetl_stream.ports.operations.documents import Document, list_of
from noetl_stream.ports.operations.verbs import verb

Verdict = Literal["ok", "warning", "wrong", "skipped"]


class CheckDocument(Document, frozen=True):
    """``says`` is a sentence: what was found; of a skipped check, why nobody could look. ``mend`` is the command that
    mends it, or what to do; empty if there is nothing to do.
    """

    check: str
    verdict: Verdict
    says: str
    mend: str = ""


Store = Literal["stream", "objects", "account", "table", "database"]


class StoredDocument(Document, frozen=True):
    """What takes room. ``items`` are the messages or rows in it, those of a table as Postgres estimates them; null
    where nobody counts. ``max_bytes`` is its bound; null without one. ``account`` is all that NATS stores, ``objects``
    the stream with large results, ``database`` all of the database; a ``table`` has its indexes and partitions.
    """

    store: Store
    name: str
    bytes: int
    max_bytes: int | None
    items: int | None


class Diagnosis(Protocol):
    @verb(
        "GET",
        "/doctor",
        "examine",
        "admin",
        denied="look into the whole system",
        document=list_of("Checks", CheckDocument),
    )
    async def examine(self) -> list[CheckDocument]:
        """Look for what is wrong with the system, check by check, with what mends it.

        All checks, in a fixed order. What the caller may not see, or does not answer, is skipped and says why.
        """

    @verb(
        "GET",
        "/storage",
        "listStorage",
        "admin",
        denied="look into the whole system",
        document=list_of("Storage", StoredDocument),
    )
    async def storage(self) -> list[StoredDocument]:
        """List what streams and tables take on disk.

        By store, the largest first.

        Raises:
            Unreachable: NATS or Postgres does not answer.
        """
