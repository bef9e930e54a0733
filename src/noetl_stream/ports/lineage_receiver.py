"""Where lineage is told: to a program that keeps run events of OpenLineage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class LineageReceiver(Protocol):
    async def send(self, event: Mapping[str, Any]) -> None:
        """Sends a run event. One that is sent twice is the same run.

        Raises:
            Unreachable: it was not taken, and may be later.
            PayloadRefused: it will never be taken.
        """

    async def close(self) -> None:
        """Ends the connections."""
