"""A list over as many pages as it takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from noetl_stream.ports.operations.documents import DocumentPage

Item = TypeVar("Item")
PAGE: Final = 1000


async def collect(
    read: Callable[[int, str | None], Awaitable[DocumentPage[Item]]], limit: int | None = None
) -> list[Item]:
    """The first ``limit`` of them, or all.

    Args:
        read: A page: how many at most, and its cursor.
    """
    found: list[Item] = []
    cursor: str | None = None
    while limit is None or len(found) < limit:
        page = await read(PAGE if limit is None else min(PAGE, limit - len(found)), cursor)
        found += page.items
        cursor = page.next
        if cursor is None:
            break
    return found
