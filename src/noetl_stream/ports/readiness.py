"""Whether what a gateway needs is there."""

from __future__ import annotations

from typing import Protocol


class Readiness(Protocol):
    async def missing(self) -> list[str]:
        """What is not there or not prepared, each in one sentence; empty: everything is. Never raises for that."""
        ...
