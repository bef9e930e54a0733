"""All verbs over one connection."""

from __future__ import annotations

from noetl_stream.adapters.gateway.access import GatewayAccess
from noetl_stream.adapters.gateway.cluster import GatewayCluster
from noetl_stream.adapters.gateway.connection import GatewayConnection
from noetl_stream.adapters.gateway.credentials import GatewayCredentials
from noetl_stream.adapters.gateway.executions import GatewayExecutions
from noetl_stream.adapters.gateway.feed import GatewayFeed
from noetl_stream.adapters.gateway.playbooks import GatewayPlaybooks
from noetl_stream.ports.operations import Operations


def gateway_operations(connection: GatewayConnection) -> Operations:
    return Operations(
        GatewayExecutions(connection),
        GatewayFeed(connection),
        GatewayPlaybooks(connection),
        GatewayCredentials(connection),
        GatewayCluster(connection),
        GatewayAccess(connection),
    )
