"""Waits for stores that start at the same time as a role, or are away when it starts."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from noetl_stream.errors import LoginRefused, NotReady, Unreachable
from noetl_stream.ports.clock import Clock
from noetl_stream.retries import pauses

log = logging.getLogger(__name__)
Value = TypeVar("Value")

FIRST_PAUSE_S: Final = 0.25
LONGEST_PAUSE_S: Final = 5.0


async def until_reached(
    clock: Clock, action: Callable[[], Awaitable[Value]], waits: Callable[[str], object] = lambda why: None
) -> Value:
    """Returns the value of ``action``, which is retried while a store does not answer.

    Args:
        waits: Receives, like the log, each change of what is waited for.

    Raises:
        LoginRefused, NotReady: Somebody must act on the password, the database, the schema or the streams.
    """
    said, seconds = "", pauses(FIRST_PAUSE_S, LONGEST_PAUSE_S)
    while True:
        try:
            value = await action()
        except (LoginRefused, NotReady):
            raise
        except Unreachable as error:
            if said != error.message:
                log.warning("waiting: %s", error)
                waits(error.message)
                said = error.message
        else:
            if said:
                log.info("no longer waiting: what did not answer does")
            return value
        await clock.sleep(next(seconds))
