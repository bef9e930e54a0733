"""The route table, whole, and the web application that serves it."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

from noetl_stream import __version__
from noetl_stream.gateway.http.openapi import openapi_of
from noetl_stream.gateway.http.routes import AnyRoute
from noetl_stream.gateway.http.serving import Serving
from noetl_stream.gateway.metrics import Metrics
from noetl_stream.gateway.resources.cluster import CLUSTER_ROUTES
from noetl_stream.gateway.resources.credentials import CREDENTIAL_ROUTES
from noetl_stream.gateway.resources.ctx import CTX_ROUTES
from noetl_stream.gateway.resources.executions import EXECUTION_ROUTES
from noetl_stream.gateway.resources.health import health_routes
from noetl_stream.gateway.resources.ingest import INGEST_ROUTES
from noetl_stream.gateway.resources.interventions import INTERVENTION_ROUTES
from noetl_stream.gateway.resources.pages import page_routes
from noetl_stream.gateway.resources.playbooks import PLAYBOOK_ROUTES
from noetl_stream.gateway.resources.streams import STREAM_ROUTES
from noetl_stream.gateway.resources.tokens import ACCESS_ROUTES
from noetl_stream.ports.gateway import Readiness

RESOURCES: Final[tuple[AnyRoute, ...]] = (
    *EXECUTION_ROUTES,
    *INTERVENTION_ROUTES,
    *CTX_ROUTES,
    *PLAYBOOK_ROUTES,
    *CREDENTIAL_ROUTES,
    *CLUSTER_ROUTES,
    *INGEST_ROUTES,
    *STREAM_ROUTES,
    *ACCESS_ROUTES,
)
"""What is served under ``/api``."""


def route_table(readiness: Readiness, metrics: Metrics) -> tuple[AnyRoute, ...]:
    """Every route there is."""
    routes = (*RESOURCES, *health_routes(readiness, metrics))
    document: dict[str, Any] = {}
    routes += page_routes(document)
    document.update(openapi_of(routes, __version__))
    return routes


def make_application(serving: Serving, readiness: Readiness) -> web.Application:
    application = web.Application(middlewares=[serving.problems])
    for route in route_table(readiness, serving.metrics):
        application.router.add_route(route.method, route.path, serving.handler(route))
    return application
