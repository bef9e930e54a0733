"""Waiting for conditions and errors in tests: no fixed sleeps, and a bound on every wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

Raised = TypeVar("Raised", bound=Exception)

POLL_S = 0.001
"""Between two checks: the awaited work needs the processor more."""

TIMEOUT_S = 60.0
"""Far beyond what anything here needs; only a failing test takes this long."""


async def until(condition: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
    """Runs the other tasks until ``condition`` holds.

    Raises:
        TimeoutError: it never did.
    """
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110  what is waited for has no event to hang on to
            await asyncio.sleep(POLL_S)


async def until_it_is(expected: object, read: Callable[[], Awaitable[object]], timeout_s: float = TIMEOUT_S) -> None:
    """Reads repeatedly until the answer is ``expected``.

    Raises:
        TimeoutError: it never was.
    """
    async with asyncio.timeout(timeout_s):
        while await read() != expected:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)


async def expect_error(kind: type[Raised], work: Awaitable[object]) -> Raised:
    """The error of this kind that ``work`` raises; fails if it raises none."""
    try:
        await work
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__} was raised")
