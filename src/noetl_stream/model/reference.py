"""Large values live in the object store; events carry a reference to them (LANGUAGE §10)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

import msgspec

EMPTY: msgspec.Raw = msgspec.Raw(b"null")

EXECUTION = "execution"
"""As a reference's ``store``, which no payload has: a rerun looks into a whole execution; the ``key`` is its id."""


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
        """Whose result it is: every key begins with the execution that made it (PROTOCOL §3 *Object keys*)."""
        return self.key.partition("/" if self.store == "nats" else ".")[0]


class Payload(msgspec.Struct, frozen=True, omit_defaults=True):
    """A result: JSON bytes inline, or a reference, never both.

    The mark that says "reference" stands outside the JSON value: a tool's answer that looks like one is data.
    """

    value: msgspec.Raw = EMPTY
    reference: Reference | None = None


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
