"""Forgetting what the whole feed need not keep, beside the loop: there may be much, and leases are to be renewed."""

from __future__ import annotations

import logging
from typing import Final

from noetl_stream.errors import NoetlError
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.feed import FeedStore

log = logging.getLogger(__name__)

TICKS_AT_ONCE: Final = 5_000
"""How many ticks one transaction forgets: none should be long."""


TRIM_S: Final = 600.0
"""How often every server trims."""


async def trim_feed(feed: FeedStore | None, clock: Clock, keep_s: float) -> None:
    """Trims ``feed`` now and then, for ever; without one there is nothing to do."""
    while feed is not None:
        try:
            while await feed.trim(int(keep_s * 1000), TICKS_AT_ONCE) == TICKS_AT_ONCE:
                pass
        except NoetlError as error:
            log.warning("the feed keeps more than it needs to, for now: %s", error)
        await clock.sleep(TRIM_S)
