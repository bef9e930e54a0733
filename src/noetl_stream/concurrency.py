"""Waiting for the first of several things, or for a limited time."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


async def first_done(
    futures: Collection[asyncio.Future[Any]], until: Coroutine[Any, Any, object]
) -> set[asyncio.Future[Any]]:
    """Waits until one of ``futures`` is done or ``until`` ends. Only ``until`` is cancelled.

    Returns:
        The futures that are done; empty if ``until`` was first.

    Raises:
        Exception: what ``until`` raises.
    """
    if done := {future for future in futures if future.done()}:
        until.close()
        return done
    end = asyncio.ensure_future(until)
    try:
        done, _ = await asyncio.wait((end, *futures), return_when=asyncio.FIRST_COMPLETED)
    finally:
        end.cancel()
    if end in done:
        end.result()
    return done - {end}


async def result_until(work: Coroutine[Any, Any, Result], until: Coroutine[Any, Any, object]) -> Result | None:
    """The result of ``work``; ``None`` if ``until`` ends first. ``work`` is then cancelled and has ended."""
    task = asyncio.ensure_future(work)
    try:
        done = await first_done([task], until)
        return task.result() if done else None
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])


async def set_within(event: asyncio.Event, timeout_s: float) -> bool:
    """Whether ``event`` is set within ``timeout_s``."""
    # Not `wait_for`: that of Python 3.11 loses a cancellation that arrives together with the event.
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return False
    return True
