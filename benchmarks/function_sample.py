"""The function that ``python_cost.py`` runs as a task."""

from __future__ import annotations


def increase(n: int) -> int:
    return n + 1
