"""Modules loaded on first use, so that programs that import the client but do not use it start fast."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class LazyModule:
    """A module that is loaded on the first access to an attribute."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)
