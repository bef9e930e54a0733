"""A cache that keeps the most recently used entries."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, ItemsView, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class LruCache(Generic[Key, Value]):
    """A mapping of limited size; when it is full, the least recently used entry is dropped.

    :meth:`get` and :meth:`put` use an entry; ``in`` and iteration do not. Values are never ``None``.

    Args:
        max_size: The most entries; with ``size_of``, the most total size.
        size_of: Returns the size of a value, which must not change while it is cached.
    """

    def __init__(self, max_size: int, size_of: Callable[[Value], int] = lambda _value: 1) -> None:
        self._max_size = max_size
        self._size_of = size_of
        self._size = 0
        self._entries: OrderedDict[Key, Value] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        """The value of ``key``, or ``None``."""
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def put(self, key: Key, value: Value) -> None:
        """Stores ``value``. A value larger than the whole cache leaves it empty."""
        before = self._entries.get(key)
        self._entries[key] = value
        self._entries.move_to_end(key)
        self._size += self._size_of(value) - (0 if before is None else self._size_of(before))
        while self._size > self._max_size:
            _, oldest = self._entries.popitem(last=False)
            self._size -= self._size_of(oldest)

    def drop(self, key: Key) -> None:
        value = self._entries.pop(key, None)
        if value is not None:
            self._size -= self._size_of(value)

    @property
    def size(self) -> int:
        """The size of the cache: the number of entries, or with ``size_of`` the sum of their sizes."""
        return self._size

    def clear(self) -> None:
        self._entries.clear()
        self._size = 0

    def items(self) -> ItemsView[Key, Value]:
        """All entries, the least recently used first."""
        return self._entries.items()

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)
