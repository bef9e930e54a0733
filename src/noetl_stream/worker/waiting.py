"""Waiting with the clock that was handed in: for an answer in time, or until something succeeds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from noetl_stream.concurrency import first_done
from noetl_stream.errors import OutcomeUnknown, Unreachable
from noetl_stream.ports.bus import Bus
from noetl_stream.ports.clock import Clock
from noetl_stream.worker.limits import FIRST_PAUSE_S, LONGEST_PAUSE_S, SERVER_ANSWER_S

log = logging.getLogger(__name__)
Value = TypeVar("Value")


async def within(clock: Clock, seconds: float, future: asyncio.Future[Any]) -> bool:
    """Whether ``future`` is done before so many seconds are over. It is not cancelled if it is not."""
    return bool(await first_done([future], clock.sleep(seconds)))


async def persist(clock: Clock, what: str, action: Callable[[], Awaitable[Value]]) -> Value:
    """The value of ``action``, which is tried until the other side can be reached and has answered."""
    try:
        return await action()
    except (OutcomeUnknown, Unreachable) as error:
        log.warning("%s: %s; trying again until it succeeds", what, error)
    pause_s = FIRST_PAUSE_S
    while True:
        await clock.sleep(pause_s)
        pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
        try:
            value = await action()
        except (OutcomeUnknown, Unreachable) as error:
            log.debug("%s: %s", what, error)
        else:
            log.info("%s: succeeded", what)
            return value


CANNOT_SAY: Final = b"null"
"""A server answers this while it cannot reach what it would answer from: another can, or it can itself later."""


async def ask(bus: Bus, clock: Clock, subject: str, question: bytes = b"") -> bytes:
    """What any server answers to the question that ``subject`` and body are; asked again as long as nobody does."""
    while True:
        body = await persist(clock, f"ask {subject}", lambda: bus.ask(subject, question, SERVER_ANSWER_S))
        if body is not None and body != CANNOT_SAY:
            return body
        log.info("no server answers %s, asking again", subject)
        await clock.sleep(LONGEST_PAUSE_S)
