"""What is asked of the gateway itself: does it live, can it work, what has it done, what can be called."""

from __future__ import annotations

from typing import Any

from noetl_stream.gateway.http.parameters import Nothing
from noetl_stream.gateway.http.routes import Answer, AnyRoute, Call, Reply, Route
from noetl_stream.gateway.metrics import MEDIA, Metrics
from noetl_stream.ports.gateway import Readiness
from noetl_stream.ports.operations.documents import Document


class Liveness(Document, frozen=True):
    status: str


class ReadinessReport(Document, frozen=True):
    """``missing`` says what the gateway cannot work without, each in one sentence."""

    ready: bool
    missing: list[str]


async def live(call: Call[Nothing, None]) -> Reply:
    return Reply(Liveness("alive"))


def health_routes(readiness: Readiness, metrics: Metrics) -> tuple[AnyRoute, ...]:
    async def ready(call: Call[Nothing, None]) -> Reply:
        missing = await readiness.missing()
        return Reply(ReadinessReport(not missing, missing), 503 if missing else 200)

    async def measured(call: Call[Nothing, None]) -> Reply:
        return Reply(metrics.text(), media=MEDIA)

    routes: tuple[Route[Any, Any], ...] = (
        Route(
            "GET",
            "/livez",
            "live",
            "Whether this process lives; it looks at nothing else",
            role=None,
            handler=live,
            answers={200: Answer("It does", Liveness)},
        ),
        Route(
            "GET",
            "/readyz",
            "ready",
            "Whether it can work: NATS, Postgres, the schema, a living server",
            role=None,
            handler=ready,
            answers={200: Answer("It can", ReadinessReport), 503: Answer("Something is missing", ReadinessReport)},
        ),
        Route(
            "GET",
            "/metrics",
            "metrics",
            "What Prometheus reads",
            role=None,
            handler=measured,
            answers={200: Answer("Prometheus' text form", media=MEDIA)},
        ),
    )
    return routes
