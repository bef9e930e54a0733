"""Pages of items that this worker has read lately: iterations that follow each other share them (LANGUAGE §6)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakValueDictionary

from noetl_stream.lru import LruCache
from noetl_stream.model.outcome import Reference
from noetl_stream.worker.limits import MAX_PAGES_KEPT_BYTES

Read = Callable[[Reference], Awaitable[Any]]


class Pages:
    """Pages by the key of their reference. All runs of one worker share them."""

    def __init__(self) -> None:
        self._kept: LruCache[str, tuple[Any, int]] = LruCache(MAX_PAGES_KEPT_BYTES, size_of=lambda kept: kept[1])
        self._reading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def page(self, reference: Reference, read: Read) -> Any:
        """The page, by ``read`` if it is not here; whoever wants it meanwhile waits for that."""
        reading = self._reading.setdefault(reference.key, asyncio.Lock())
        async with reading:
            kept = self._kept.get(reference.key)
            if kept is None:
                kept = await read(reference), reference.size
                self._kept.put(reference.key, kept)
        return kept[0]
