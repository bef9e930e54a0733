"""All verbs over one connection."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, cast

from noetl_stream.adapters.gateway_client.connection import GatewayConnection
from noetl_stream.adapters.gateway_client.verbs import GatewayVerbs
from noetl_stream.ports.operations import Operations, port_of

OWN: Final[Mapping[str, str]] = {
    "access": "GatewayAccess",
    "executions": "GatewayExecutions",
    "feed": "GatewayFeed",
    "selections": "GatewaySelections",
    "triggers": "GatewayTriggers",
}
"""Classes of ports that have verbs of their own, by noun, which is also the name of the module."""


def gateway_operations(connection: GatewayConnection) -> Operations:
    return cast(Operations, GatewayOperations(connection))


class GatewayOperations:
    """The operations, asked of a gateway. A part is imported when it is first used."""

    def __init__(self, connection: GatewayConnection) -> None:
        self._connection = connection

    def __getattr__(self, noun: str) -> Any:
        if noun in OWN:
            module = import_module(f"noetl_stream.adapters.gateway_client.{noun}")
            found = getattr(module, OWN[noun])(self._connection)
        else:
            found = GatewayVerbs(port_of(noun), self._connection)
        setattr(self, noun, found)
        return found
