"""Triggers, asked of a gateway."""

from __future__ import annotations

from urllib.parse import parse_qsl

from noetl_stream.adapters.gateway_client.connection import GatewayConnection, GatewayRequest
from noetl_stream.adapters.gateway_client.verbs import GatewayVerbs
from noetl_stream.ports.operations.executions import RequestIds
from noetl_stream.ports.operations.starters.triggers import DeliveredDocument, Triggers
from noetl_stream.trigger.signatures import WebhookDelivery


class GatewayTriggers(GatewayVerbs):
    """:class:`~noetl_stream.ports.operations.starters.triggers.Triggers`."""

    def __init__(self, connection: GatewayConnection) -> None:
        super().__init__(Triggers, connection)

    async def deliver(self, path: str, delivery: WebhookDelivery, ids: RequestIds) -> DeliveredDocument:
        """Not repeated: only its sender knows whether it may be."""
        media = delivery.headers.get("content-type", "application/octet-stream")
        headers = {name: text for name, text in delivery.headers.items() if name != "content-type"}
        asked = GatewayRequest(
            "POST", ("hooks", path), parse_qsl(delivery.query), delivery.body, media, headers=headers
        )
        return await self._connection.ask(asked, DeliveredDocument)
