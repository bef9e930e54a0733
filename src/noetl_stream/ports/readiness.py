"""Readiness of a gateway's dependencies."""

from __future__ import annotations

from typing import Protocol


class Readiness(Protocol):
    async def missing(self) -> list[str]:
        """The dependencies that are missing or not set up, one sentence each; empty if ready. Never raises for that."""
        ...
