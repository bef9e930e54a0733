"""The route table, whole, and the web application that serves it."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from aiohttp import web

from noetl_stream import __version__
from noetl_stream.gateway.http.openapi import openapi_of
from noetl_stream.gateway.http.routes import AnyRoute
from noetl_stream.gateway.http.serving import Serving
from noetl_stream.gateway.http.verbs import routes_of
from noetl_stream.gateway.page_files import ASSET, VIEWS, read_page
from noetl_stream.gateway.resources import (
    agents,
    bulk,
    ctx,
    executions,
    interventions,
    logs,
    playbooks,
    session,
    streams,
    tokens,
    triggers,
)
from noetl_stream.gateway.resources.system import system_routes
from noetl_stream.gateway.status_report import GatewayStatus
from noetl_stream.ports.stores.idempotency import Readiness

RESOURCES: Final[tuple[AnyRoute, ...]] = (
    *executions.routes,
    *routes_of("views"),
    *interventions.routes,
    *bulk.routes,
    *ctx.routes,
    *playbooks.routes,
    *routes_of("schedules"),
    *routes_of("credentials"),
    *routes_of("cluster"),
    *routes_of("diagnosis"),
    *streams.routes,
    *logs.routes,
    *tokens.routes,
    *triggers.routes,
    *session.routes,
    *agents.routes,
)
"""What is served under ``/api``, and ``/mcp``."""


def make_application(serving: Serving, readiness: Readiness, status: GatewayStatus) -> web.Application:
    @cache  # made when it is first asked for: it takes longer than all else here
    def document() -> dict[str, Any]:
        return openapi_of(table, __version__)

    table = (*RESOURCES, *system_routes(readiness, status, document))
    application = web.Application(middlewares=[serving.problems])
    application.on_response_prepare.append(_keep_to_caller)
    for route in table:
        application.router.add_route(route.method, route.pattern, serving.handler(route))
    page = read_page()
    application.router.add_get(VIEWS, serving.page_handler(page.index))
    application.router.add_get(ASSET, serving.page_handler(page.asset))
    return application


async def _keep_to_caller(request: web.Request, response: web.StreamResponse) -> None:
    """Keeps an answer out of caches, unless it says otherwise, and from being taken for a script or a page."""
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
