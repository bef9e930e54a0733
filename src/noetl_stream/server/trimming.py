"""Forgetting what the whole feed need not keep, beside the loop: there may be much of it, and leases are to be renewed."""

from __future__ import annotations

import logging
from typing import Final

from noetl_stream.errors import NoetlError
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.feed import FeedStore

log = logging.getLogger(__name__)

TICKS_AT_ONCE: Final = 5_000
"""How many ticks one transaction forgets: none should be long."""


async def trim_feed(feed: FeedStore, clock: Clock, keep_s: float, every_s: float) -> None:
    """Trims ``feed`` now and then, for ever. Every server does."""
    while True:
        try:
            while await feed.trim(int(keep_s * 1000), TICKS_AT_ONCE) == TICKS_AT_ONCE:
                pass
        except NoetlError as error:
            log.warning("the feed keeps more than it need for now: %s", error)
        await clock.sleep(every_s)
