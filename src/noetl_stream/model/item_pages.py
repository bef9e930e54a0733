"""Long lists of items stand in the object store, page by page (LANGUAGE §6)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

import msgspec

from noetl_stream.model.reference import Reference


class Page(msgspec.Struct, frozen=True, array_like=True):
    """``count`` items from the one at index ``first`` of the whole list on: the list that ``reference`` leads to."""

    first: int
    count: int
    reference: Reference


class ItemPosition(msgspec.Struct, frozen=True):
    """Where one item stands: in the list that ``page`` leads to, at ``index``."""

    page: Reference
    index: int


def place_of(pages: Sequence[Page], index: int) -> ItemPosition:
    """Where the item at ``index`` of the whole list stands."""
    page = pages[bisect_right(pages, index, key=attrgetter("first")) - 1]
    return ItemPosition(page.reference, index - page.first)
