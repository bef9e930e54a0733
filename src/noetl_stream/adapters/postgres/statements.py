"""The named SQL files of ``queries/``."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def statement(name: str) -> str:
    """The text of ``queries/<name>.sql``."""
    return (files(__package__) / "queries" / f"{name}.sql").read_text(encoding="utf-8")
