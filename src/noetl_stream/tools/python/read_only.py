"""Read-only lists and mappings for playbook code (LANGUAGE §12 *python*).

They subclass ``dict`` and ``list``, so that ``isinstance``, ``json.dumps`` and ``copy`` work. Writing raises, since a
write would be lost.
"""

from __future__ import annotations

from typing import Any, NoReturn


def read_only(value: Any) -> Any:
    """A read-only copy of plain JSON."""
    if isinstance(value, dict):
        return ReadOnlyDict({key: read_only(item) for key, item in value.items()})
    if isinstance(value, list):
        return ReadOnlyList([read_only(item) for item in value])
    return value


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError("workload, ctx and iter are read-only; copy them, or set ctx and iter in the task's policy")


class ReadOnlyDict(dict[str, Any]):
    """A mapping whose methods that write raise ``TypeError``. Copies are plain."""

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def copy(self) -> dict[str, Any]:
        return dict(self)

    def __copy__(self) -> dict[str, Any]:
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return {key: _thawed(item) for key, item in self.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return (dict, (dict(self),))


class ReadOnlyList(list[Any]):
    """A list whose methods that write raise ``TypeError``. Copies are plain."""

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def copy(self) -> list[Any]:
        return list(self)

    def __copy__(self) -> list[Any]:
        return list(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return [_thawed(item) for item in self]

    def __reduce__(self) -> tuple[Any, ...]:
        return (list, (list(self),))


def _thawed(value: Any) -> Any:
    if isinstance(value, ReadOnlyDict | ReadOnlyList):
        return value.__deepcopy__({})
    return value
