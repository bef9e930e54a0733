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
"""The time for which an unnamed bundle is kept: it may just have been stored, or be about to be used by an execution.
"""


class BundleSweeper:
    """Deletes unnamed bundles. Several servers may do so at once.

    Between the two writes of a deletion nobody may store the bundle; later writers find no object.
    """

    def __init__(self, catalog: Catalog, blobs: Blobs, clock: Clock) -> None:
        self._catalog = catalog
        self._blobs = blobs
        self._clock = clock

    async def sweep(self) -> int:
        """Deletes unnamed bundles, and those whose deletion was interrupted; returns how many.

        Raises:
            Unreachable: a store is unreachable; the next sweep continues.
        """
        now_ms = self._clock.now_ms()
        names = await self._catalog.unwanted_bundles(now_ms, now_ms - KEPT_MS)
        for name in names:
            await self._blobs.delete(bundle_key(name))
            await self._catalog.forget_bundle(name)
            log.info("deleted the bundle %s, which nothing names", name)
        return len(names)
