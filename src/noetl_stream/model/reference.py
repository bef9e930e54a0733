"""References: large values are kept in the object store, and events refer to them (LANGUAGE §10)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

import msgspec

EMPTY: msgspec.Raw = msgspec.Raw(b"null")

EXECUTION = "execution"
"""The ``store`` of a reference to a whole execution, which a rerun awaits; ``key`` is its id. No payload has it."""


class Reference(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a value too large for an event is kept.

    ``size`` counts bytes of JSON; ``checksum`` is ``sha256:<hex>`` over those bytes. ``store`` is ``nats`` for an
    object, ``journal`` for a loop result that is gathered from the journal's iteration results when read.
    """

    store: str
    key: str
    size: int
    checksum: str = ""
    schema_hint: str = ""
    preview: str = ""

    @property
    def execution_id(self) -> str:
        """The execution whose result it is: every key begins with its id (PROTOCOL §3 *Object keys*)."""
        return self.key.partition("/" if self.store == "nats" else ".")[0]


class Payload(msgspec.Struct, frozen=True, omit_defaults=True):
    """A result: JSON bytes inline, or a reference, never both.

    The reference is a field outside the JSON value: a tool's answer that looks like a reference remains data.
    """

    value: msgspec.Raw = EMPTY
    reference: Reference | None = None


class Page(msgspec.Struct, frozen=True, array_like=True):
    """``count`` items starting at index ``first`` of the whole list, stored as the list that ``reference`` leads to."""

    first: int
    count: int
    reference: Reference


class ItemPosition(msgspec.Struct, frozen=True):
    """The place of one item: ``index`` in the list that ``page`` leads to."""

    page: Reference
    index: int


def place_of(pages: Sequence[Page], index: int) -> ItemPosition:
    """The place of the item at ``index`` of the whole list."""
    page = pages[bisect_right(pages, index, key=attrgetter("first")) - 1]
    return ItemPosition(page.reference, index - page.first)
