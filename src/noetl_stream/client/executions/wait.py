"""Waiting until an execution is where it is wanted: NATS says when to look, Postgres is what is looked at."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection
from typing import Final

from noetl_stream.model.ids import partition_of
from noetl_stream.ports import subjects
from noetl_stream.ports.bus import Bus
from noetl_stream.ports.store import ExecutionRow, Store

LOOK_S: Final = 5.0
"""How often Postgres is asked when nothing is heard: what NATS says may be lost."""

_ENDS: Final = (b'"execution.finished"',)
_BEGINS: Final = (b'"execution.started"', *_ENDS)


async def until_ended(store: Store, bus: Bus, execution_id: str, timeout_s: float) -> bool:
    """Whether it has ended when this returns: at its end, or when the time is over."""
    return await _until(store, bus, execution_id, timeout_s, _ENDS, lambda row: row.finished_ms is not None)


async def until_begun(store: Store, bus: Bus, execution_id: str, timeout_s: float) -> bool:
    """Whether it is clear when this returns that it runs, or cannot."""
    return await _until(store, bus, execution_id, timeout_s, _BEGINS, lambda row: row.status != "pending")


async def _until(
    store: Store,
    bus: Bus,
    execution_id: str,
    timeout_s: float,
    news: Collection[bytes],
    holds: Callable[[ExecutionRow], bool],
) -> bool:
    """Whether ``holds`` does, or it was deleted. Postgres is asked at first, and when one of ``news`` is heard."""
    heard = asyncio.Event()

    async def on_decided(_subject: str, body: bytes, _reply: str) -> None:
        if any(name in body for name in news):
            heard.set()

    async def look() -> bool:
        row = await store.execution(execution_id)
        return row is None or holds(row)

    subscription = await bus.listen(subjects.decided(partition_of(execution_id), execution_id), on_decided)
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                heard.clear()
                if await look():
                    return True
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await heard.wait()
    except TimeoutError:
        return await look()
    finally:
        await subscription.close()
