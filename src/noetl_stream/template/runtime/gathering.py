"""Values of which some must be loaded first: a rendering finds all of these, not only the first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from noetl_stream.template.failures import ValueNeeded

_END: Final = object()


def add_needed(needed: ValueNeeded, following: Iterator[Any]) -> None:
    """Adds to ``needed`` the values that must be loaded for what follows it in a rendering.

    Args:
        following: A :class:`map`, which continues with the next value after an exception. Each is needed whatever the
            other values are.
    """
    while True:
        try:
            if next(following, _END) is _END:
                return
        except ValueNeeded as other:
            needed.more.update((one.name, one) for one in other.all if one.name != needed.name)
        except Exception:
            return
