"""``kind: nats``: messages, key-value buckets and object stores on a NATS server (LANGUAGE §12).

``docs/reference/tools.md`` lists the inputs of each action.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from pydantic import Field

from noetl_stream.model.json import pieces
from noetl_stream.playbook.kinds.spec import KindSpec
from noetl_stream.settings.tools import ToolSettings
from noetl_stream.tools.contract import ToolCall, ToolResult
from noetl_stream.tools.egress import Egress
from noetl_stream.tools.http.request import check_headers
from noetl_stream.tools.inputs import Knobs, validated
from noetl_stream.tools.nats.inputs import NatsInputs

DEFAULT_READ_TIMEOUT_S: Final = 10.0
MAX_OBJECT_BYTES: Final = 16 * 1024 * 1024


class NatsKnobs(Knobs):
    """Knobs of ``nats``."""

    max_object_bytes: int = Field(
        default=MAX_OBJECT_BYTES,
        gt=0,
        description="Size of an object that object_get reads; a larger one is an error.",
    )


class NatsTool:
    """Runs actions on NATS over shared connections.

    Args:
        egress: The rules for addresses. Default: the public internet.
    """

    spec = KindSpec(kind="nats", inputs=NatsInputs, knobs=NatsKnobs)

    def __init__(self, egress: Egress | None = None) -> None:
        # Imported here, like the exchange: checking a playbook should not pay for the library.
        from noetl_stream.tools.nats.connections import Connections

        self._connections = Connections(egress)

    @classmethod
    def configured(cls, settings: ToolSettings) -> NatsTool:
        """Makes the tool with the addresses that the operator allows."""
        return cls(Egress(settings.egress))

    async def run(self, call: ToolCall) -> ToolResult:
        """Returns the action's result: ``{subject}``, ``{stream, seq, duplicate}``, ``{data, headers, subject}``,
        ``{value, revision}``, ``{revision}``, ``{data, size, digest}`` or ``{size, digest}``.

        Raises:
            ToolFailure: ``not_found``, ``conflict``, ``refused``, ``connection``, ``timeout``, ``credential``,
                ``forbidden_address``, ``output_too_large``, ``result_not_json``, ``invalid_input``.
        """
        from noetl_stream.tools.nats.exchange import Exchange, payload_bytes

        inputs = validated(NatsInputs, call.inputs)
        knobs = validated(NatsKnobs, call.knobs)
        check_headers(inputs.headers or {})
        make = partial(payload_bytes, inputs)
        payload = await asyncio.to_thread(make) if pieces.is_long(call.inputs) else make()
        timeout_s = DEFAULT_READ_TIMEOUT_S if call.timeouts.read is None else call.timeouts.read
        async with self._connections.connection(call, inputs.auth) as connection:
            exchange = Exchange(inputs, payload, connection, timeout_s, call.idempotency_key)
            with exchange.failures_translated():
                result = await connection.run(exchange.result(knobs.max_object_bytes))
                return ToolResult(result, warnings=exchange.warnings)

    async def close(self) -> None:
        await self._connections.close()
