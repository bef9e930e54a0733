"""The gateway itself: liveness, readiness, metrics, the OpenAPI document, who calls, and a page for each problem."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

from pydantic import Field

from noetl_stream.errors import NotFound
from noetl_stream.gateway.http.inputs import InPath, Nothing, Parameters
from noetl_stream.gateway.http.problems import KINDS, page_of
from noetl_stream.gateway.http.routes import Answer, Call, Reply, Routes
from noetl_stream.gateway.resources.session import CallerDocument, caller_document
from noetl_stream.gateway.status_report import GatewayStatus
from noetl_stream.ports.operations.problems import TYPE_PREFIX
from noetl_stream.ports.operations.verbs import API, Document, OpenDocument
from noetl_stream.telemetry.measures import MEDIA

HTML: Final = "text/html"


class Liveness(Document, frozen=True):
    status: str


class ReadinessReport(Document, frozen=True):
    """``missing`` names what the gateway needs and lacks, each in one sentence."""

    ready: bool
    missing: list[str]


class Described(OpenDocument, frozen=True):
    """An OpenAPI 3.1 document."""

    openapi: str
    paths: dict[str, Any]


class ProblemAt(Parameters):
    name: Annotated[str, InPath(), Field(max_length=64)]


MEASURED: Final = {200: Answer("Prometheus' text form", media=MEDIA)}
READY: Final = {200: Answer("Ready", ReadinessReport), 503: Answer("Something is missing", ReadinessReport)}


def system_routes(status: GatewayStatus, document: Callable[[], dict[str, Any]]) -> Routes:
    """
    Args:
        document: Returns the OpenAPI document; called once the whole table is known, since the document describes
            itself too.
    """
    routes = Routes()

    @routes("GET", "/livez", "live", None, anywhere=True)
    async def live(call: Call[Nothing, None]) -> Liveness:
        """Whether this process lives; checks nothing else."""
        return Liveness("alive")

    @routes("GET", "/readyz", "ready", None, READY, anywhere=True)
    async def ready(call: Call[Nothing, None]) -> Reply:
        """Whether it can work: NATS, Postgres, the schema, a living server; and does not stop."""
        missing = [*await status.reasons_not_ready()]
        return Reply(ReadinessReport(not missing, missing), 503 if missing else 200)

    @routes("GET", "/metrics", "metrics", "viewer", MEASURED, uncounted=True)
    async def measured(call: Call[Nothing, None]) -> Reply:
        """Metrics for Prometheus."""
        from noetl_stream.telemetry.status_server import exposition  # loaded on the first scrape

        text, media = exposition(await status.shown_to(call.caller), "")
        return Reply(text, media=media)

    @routes("GET", "/openapi.json", "openapi", "viewer", {200: Answer("OpenAPI 3.1", Described)})
    async def described(call: Call[Nothing, None]) -> Reply:
        """This description."""
        return Reply(document())

    @routes("GET", f"{API}/me", "me", "viewer")
    async def me(call: Call[Nothing, None]) -> CallerDocument:
        """Who the caller is, and what it may do."""
        return caller_document(call.caller, document())

    @routes("GET", TYPE_PREFIX + "{name}", "problem", None, {200: Answer("A page for people", media=HTML)})
    async def problem(call: Call[ProblemAt, None]) -> Reply:
        """What a kind of problem means."""
        kind = KINDS.get(call.parameters.name)
        if kind is None:
            raise NotFound(f"no such problem: {call.parameters.name!r}", hint=f"problems are {', '.join(KINDS)}")
        return Reply(page_of(kind).encode(), media=f"{HTML}; charset=utf-8")

    return routes
