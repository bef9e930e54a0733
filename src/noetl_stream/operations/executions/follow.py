"""Live updates of an execution over core NATS: decided records as they are published.

A record may be missed during a reconnect. Postgres is the source of truth.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any, Final

from noetl_stream.concurrency import set_within
from noetl_stream.model.events import ExecutionEvaluated, ExecutionFinished, Fact, ReferenceAwaited
from noetl_stream.model.events.composite import expand
from noetl_stream.model.ids import partition_of
from noetl_stream.model.json import codec
from noetl_stream.model.outcome import PLAYBOOK
from noetl_stream.ports.stores.store import ExecutionRow, Store
from noetl_stream.ports.streams.bus import Bus, Subscription
from noetl_stream.protocol import subjects

POLL_S: Final = 5.0
"""The interval at which Postgres is read without a notification, since those of NATS may be lost."""

_ENDS: Final = (b'"execution.finished"',)
_BEGINS: Final = (b'"execution.started"', *_ENDS)


class Follower:
    """Receives the decisions of servers about an execution from :meth:`open` on.

    Attributes:
        refusal: The message and diagnostics of a rejected request.
    """

    def __init__(self, bus: Bus, execution_id: str) -> None:
        self._bus = bus
        self._execution_id = execution_id
        self._subscription: Subscription | None = None
        self._begun = asyncio.Event()
        self._is_parked = False
        self.refusal: tuple[str, list[dict[str, Any]]] | None = None

    async def open(self) -> Follower:
        subject = subjects.decided(partition_of(self._execution_id), self._execution_id)
        self._subscription = await self._bus.listen(subject, self._on_decided)
        return self

    async def close(self) -> None:
        if self._subscription is not None:
            await self._subscription.close()

    async def begun(self, timeout_s: float) -> bool:
        """Whether a journal record of the execution was received in time: its request is committed and evaluated."""
        return await set_within(self._begun, timeout_s)

    async def _on_decided(self, _subject: str, body: bytes, _reply: str) -> None:
        for entry in map(codec.decode_entry, codec.decode_record(body).entries):
            for facts in (entry.facts, entry.decisions):
                for fact, _ in codec.decode_facts(facts):
                    self._hear(fact)
        if not self._is_parked:
            self._begun.set()

    def _hear(self, heard: Fact) -> None:
        for fact in expand(self._execution_id, heard):
            if isinstance(fact, ReferenceAwaited) and fact.reference.store == PLAYBOOK:
                self._is_parked = True
            elif isinstance(fact, ExecutionEvaluated):
                self._is_parked = False
                if not fact.ok:
                    self.refusal = (self.refusal[0] if self.refusal else "refused", fact.diagnostics)
            elif isinstance(fact, ExecutionFinished):
                error = fact.outcome.error
                if self.refusal is not None and error is not None:
                    self.refusal = (error.message, self.refusal[1])
                self._is_parked = False


async def until_ended(store: Store, bus: Bus, execution_id: str, timeout_s: float) -> None:
    """Waits until the execution has ended or was deleted, or for ``timeout_s``."""
    await _until(store, bus, execution_id, timeout_s, _ENDS, lambda row: row.finished_ms is not None)


async def until_begun(store: Store, bus: Bus, execution_id: str, timeout_s: float) -> None:
    """Waits until the execution runs or was rejected, or for ``timeout_s``."""
    await _until(store, bus, execution_id, timeout_s, _BEGINS, lambda row: row.status != "pending")


async def _until(
    store: Store,
    bus: Bus,
    execution_id: str,
    timeout_s: float,
    notifications: Collection[bytes],
    holds: Callable[[ExecutionRow], bool],
) -> None:
    """Waits until ``holds`` returns true. Postgres is read at first, and after each of the ``notifications``."""
    notified = asyncio.Event()

    async def on_decided(_subject: str, body: bytes, _reply: str) -> None:
        if any(name in body for name in notifications):
            notified.set()

    subscription = await bus.listen(subjects.decided(partition_of(execution_id), execution_id), on_decided)
    try:
        async with asyncio.timeout(timeout_s):
            while (row := await store.execution(execution_id)) is not None and not holds(row):
                await set_within(notified, POLL_S)
                notified.clear()
    except TimeoutError:
        return
    finally:
        await subscription.close()
