"""The findings of checks, and their words."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from noetl_stream.ports.operations.cluster import Verdict

NAMED: Final = 5
"""The most things that a sentence lists."""


class Finding(NamedTuple):
    """The finding of a check; the fields are those of :class:`~noetl_stream.ports.operations.cluster.CheckDocument`."""

    verdict: Verdict
    says: str
    mend: str = ""


def ok(says: str) -> Finding:
    return Finding("ok", says)


def warning(says: str, mend: str) -> Finding:
    return Finding("warning", says, mend)


def wrong(says: str, mend: str) -> Finding:
    return Finding("wrong", says, mend)


def named(names: Iterable[object]) -> str:
    """The first few of them."""
    shown = [str(name) for name in names]
    more = len(shown) - NAMED
    return ", ".join(shown[:NAMED]) + (f" and {more} more" if more > 0 else "")


def counted(things: Collection[object] | int, one: str, most: int | None = None) -> str:
    """``1 stream``, ``3 streams``; from ``most`` on, ``100 streams or more``."""
    number = things if isinstance(things, int) else len(things)
    return f"{number} {one}{'' if number == 1 else 's'}" + (" or more" if number == most else "")


def size(count: int) -> str:
    """Bytes for people: ``3.4 GiB``."""
    amount, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.3g} {unit}"
