"""Deletes bundles that nothing has named for a day (PROTOCOL §5 *Retention*)."""

from __future__ import annotations

import logging
from typing import Final

from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.catalog import Catalog
from noetl_stream.ports.streams.blobs import Blobs
from noetl_stream.protocol.subjects import bundle_key

log = logging.getLogger(__name__)

KEPT_MS: Final = 86_400_000
"""How long a bundle stays that nothing names: it was stored just now, or an execution of its text is about to start."""


class BundleSweeper:
    """Deletes bundles that nothing names. Several servers may do so at once.

    Between the two writes of a deletion nobody may store the bundle, and whoever does after them finds no object.
    """

    def __init__(self, catalog: Catalog, blobs: Blobs, clock: Clock) -> None:
        self._catalog = catalog
        self._blobs = blobs
        self._clock = clock

    async def sweep(self) -> int:
        """Deletes them, and those whose deletion was interrupted; returns how many.

        Raises:
            Unreachable: a store is unreachable; the next sweep goes on.
        """
        now_ms = self._clock.now_ms()
        names = await self._catalog.unwanted_bundles(now_ms, now_ms - KEPT_MS)
        for name in names:
            await self._blobs.delete(bundle_key(name))
            await self._catalog.forget_bundle(name)
            log.info("deleted the bundle %s, which nothing names", name)
        return len(names)
