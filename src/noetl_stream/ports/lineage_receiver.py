"""The port of a lineage receiver: a service that stores OpenLineage run events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class LineageReceiver(Protocol):
    async def send(self, event: Mapping[str, Any]) -> None:
        """Sends a run event. The same event may be sent more than once.

        Raises:
            Unreachable: the receiver did not accept the event; a retry may succeed.
            PayloadRefused: the receiver rejects the event for good.
        """

    async def close(self) -> None:
        """Closes the connections."""
