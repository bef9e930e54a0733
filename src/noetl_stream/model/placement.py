"""Placement: the labels and resources of worker pools, and those that a step needs (LANGUAGE §15 *Placement*)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from noetl_stream.model.labels import MAX_VALUE_CHARS, label_text

PoolLabels = Mapping[str, Mapping[str, str]]
"""The labels of pools, by pool. Amounts of resources are among them, by the name of the resource."""

RESOURCES: Final = ("memory_mb", "cpu")
"""The resources of a worker, of which a step needs a least amount."""

LABEL: Final = re.compile(r"[A-Za-z0-9_./-]{1,64}")
VALUE: Final = re.compile(rf"[^\s;=]{{1,{MAX_VALUE_CHARS}}}")


class Placement(msgspec.Struct, frozen=True):
    """The pools in which a step may run: those with all ``required`` labels and these amounts of ``resources``; of
    them, the one with the most ``preferred`` labels. With a ``pool``, only that one.
    """

    required: dict[str, str] = {}
    preferred: dict[str, str] = {}
    resources: dict[str, float] = {}
    pool: str | None = None

    def choose(self, default: str, pools: PoolLabels, is_allowed: Callable[[str], bool]) -> str | None:
        """The best pool, ``default`` and then the first by name among equals; ``None`` if none fits."""
        candidates = [self.pool] if self.pool is not None else dict.fromkeys([default, *sorted(pools)])
        fitting = [pool for pool in candidates if is_allowed(pool) and self._fits(pools.get(pool, {}))]
        return max(fitting, key=lambda pool: _count(self.preferred, pools.get(pool, {})), default=None)

    def _fits(self, labels: Mapping[str, str]) -> bool:
        has_labels = _count(self.required, labels) == len(self.required)
        return has_labels and all(_amount(labels, name) >= least for name, least in self.resources.items())

    def __str__(self) -> str:
        needed = [f"{name}={value}" for name, value in self.required.items()]
        needed += [f"{name}>={least:g}" for name, least in self.resources.items()]
        return " ".join(needed)


def _count(wanted: Mapping[str, str], labels: Mapping[str, str]) -> int:
    return sum(labels.get(name) == value for name, value in wanted.items())


def _amount(labels: Mapping[str, str], name: str) -> float:
    try:
        return float(labels.get(name, ""))
    except ValueError:
        return 0.0


def label_value(value: Any) -> str | None:
    """The value of a label of pools as text, ``1`` as ``"1"``; ``None`` if it is invalid."""
    text = label_text(value) if isinstance(value, str | int | float) else ""
    return text if VALUE.fullmatch(text) else None


def shown_pools(pools: PoolLabels) -> str:
    """The pools with their labels, in the syntax of the setting."""
    return "; ".join(f"{pool}: {' '.join(f'{name}={value}' for name, value in pools[pool].items())}" for pool in pools)
