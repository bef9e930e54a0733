"""Which requests were made with which Idempotency-Key, and how they were answered (PROTOCOL §1 *Request rows*)."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from noetl_stream.ports.operations.executions import RequestIds


class KeptAnswer(NamedTuple):
    """An HTTP answer as it is kept: what a repeated call is answered with."""

    status: int
    headers: dict[str, str]
    body: bytes


class ClaimedKey(NamedTuple):
    """What stands under a key.

    Attributes:
        content_hash: Of the request that came first with it.
        ids: Drawn by that one, for everything that is done under the key.
        answer: ``None`` while it goes on, or if whoever did it died over it: it is done again with the same ids.
    """

    content_hash: bytes
    ids: RequestIds
    answer: KeptAnswer | None


class Idempotency(Protocol):
    """Keys belong to their caller. Any method raises :class:`~noetl_stream.errors.Unreachable` when the database is
    away.
    """

    async def claim(self, key: str, caller: str, content_hash: bytes, ids: RequestIds) -> ClaimedKey:
        """What stands there by now: these values, if the key is new."""
        ...

    async def finish(self, key: str, caller: str, answer: KeptAnswer) -> KeptAnswer:
        """The answer that stands: the first one stays."""
        ...

    async def forget(self, older_than_s: float) -> int:
        """Forgets keys that were claimed longer ago; how many."""
        ...
