"""How a long list of items is cut into pages (LANGUAGE §6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from noetl_stream.model import codec

PAGE_BYTES: Final = 256 * 1024
"""How much of a long list of items stands in one page; an item that is larger is a page of its own."""


def in_pages(items: list[Any], size: int) -> Iterator[list[Any]]:
    """The items, page by page; an empty list has no page.

    Args:
        size: How many bytes of JSON all items together are.
    """
    if size <= PAGE_BYTES:
        if items:
            yield items
        return
    page: list[Any] = []
    room = PAGE_BYTES
    for item in items:
        needed = len(codec.encode(item)) + 1
        if needed > room and page:
            yield page
            page, room = [], PAGE_BYTES
        page.append(item)
        room -= needed
    yield page
