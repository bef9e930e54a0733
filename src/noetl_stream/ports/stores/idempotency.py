"""What the gateway needs beside the operations: idempotency keys (PROTOCOL §1 *Request rows*), reports, readiness."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from noetl_stream.model.messages import MemoryUse
from noetl_stream.model.status import ExecutionStatus
from noetl_stream.ports.operations.executions import RequestIds
from noetl_stream.ports.stores.dead_letters import LetterSource


class KeptAnswer(msgspec.Struct, frozen=True, gc=False):
    """A stored HTTP answer, returned to repeated calls."""

    status: int
    headers: dict[str, str]
    body: bytes


class ClaimedKey(msgspec.Struct, frozen=True, gc=False):
    """The record of a key.

    Attributes:
        content_hash: Of the first request with the key.
        ids: Drawn by that request, for everything done under the key; without their seed once it is answered.
        answer: ``None`` while it is in progress, or if its process died: then it is repeated with the same ids.
    """

    content_hash: bytes
    ids: RequestIds
    answer: KeptAnswer | None


class Idempotency(Protocol):
    """Keys are scoped to their caller. Any method raises :class:`~noetl_stream.errors.Unreachable` when the database is
    away.
    """

    async def claim(self, key: str, caller: str, content_hash: bytes, ids: RequestIds) -> ClaimedKey:
        """The record of the key, created with these values if the key is new."""

    async def finish(self, key: str, caller: str, answer: KeptAnswer) -> KeptAnswer:
        """The stored answer: the first success, or the first refusal if there is none. The seed is forgotten."""

    async def forget(self, older_than_s: float) -> int:
        """Deletes keys claimed longer ago; returns how many."""


class KeptIndexes(Protocol):
    """Indexes of journals that this process keeps, estimated."""

    @property
    def held_bytes(self) -> int: ...

    @property
    def max_bytes(self) -> int: ...


class Memory(Protocol):
    async def uses(self) -> list[MemoryUse]:
        """What each server and worker that answers in time holds in memory. Does not raise."""


class Living(msgspec.Struct, frozen=True, gc=False):
    """Executions that have not ended: how many by status, and how many of them are stuck; dead letters that wait, by
    source. The last two are counted up to a bound.
    """

    by_status: Mapping[ExecutionStatus, int]
    stuck: int
    dead_letters: Mapping[LetterSource, int]


class LivingExecutions(Protocol):
    async def count(self) -> Living | None:
        """As of a few seconds ago; ``None`` while Postgres does not answer. Does not raise."""


class Readiness(Protocol):
    async def missing(self) -> list[str]:
        """The dependencies that are missing or not set up, one sentence each; empty if ready. Does not raise."""
