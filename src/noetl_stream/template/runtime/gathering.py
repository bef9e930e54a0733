"""Values of which some must be loaded first: a rendering finds all of these, not only the first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from noetl_stream.template.failures import ValueNeeded

T = TypeVar("T")


def gathered(values: Iterator[T]) -> list[T]:
    """The values, each of which is needed whatever the others are.

    Args:
        values: A :class:`map`, which continues with the next one after an exception.

    Raises:
        ValueNeeded: One of them must be loaded first. It has those after it that must be loaded too.
    """
    try:
        return list(values)
    except ValueNeeded as needed:
        searching = True
        while searching:
            try:
                searching = next(values, _END) is not _END
            except ValueNeeded as other:
                needed.more.update((one.name, one) for one in other.all if one.name != needed.name)
            except Exception:
                break
        raise


_END = object()
