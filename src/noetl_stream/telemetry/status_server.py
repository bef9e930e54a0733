"""The status address of a role: ``/livez``, ``/readyz`` and ``/metrics``, for probes and Prometheus.

Law: it answers as long as the role's loop turns. A connection serves one request and is closed after :data:`LONGEST_S`
in any case. At most :data:`MAX_CONNECTIONS` are open: the oldest gives way to a new one, so that probes get through.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import accumulate
from typing import Any, Final, cast

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

import noetl_stream
from noetl_stream.concurrency import SharedLoads
from noetl_stream.errors import UsageError
from noetl_stream.telemetry.measures import BOUNDS_S, Durations, Measured, Metric, NotYetRunning, Reading, Role

FAMILIES: Final[Mapping[str, Any]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}
SHOWN_BOUNDS: Final = (*map(str, map(float, BOUNDS_S)), "+Inf")


def exposition(readings: Sequence[Reading], accept: str) -> tuple[bytes, str]:
    """Renders readings, and this process's use of its machine, as text; also returns its content type.

    Args:
        accept: The header ``Accept`` of the scrape.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(readings))
    ProcessCollector(registry=registry)
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class _Collected(Collector):
    def __init__(self, readings: Iterable[Reading]) -> None:
        self._readings = readings

    def collect(self) -> Iterator[Family]:
        return map(_family, self._readings)


def _family(reading: Reading) -> Family:
    metric = reading.metric
    family: Any = FAMILIES[metric.kind](metric.name, metric.help, labels=metric.labels)
    for labels, value in reading.values.items():
        if isinstance(value, Durations):
            family.add_metric(labels, _buckets(value), value.sum_s)
        else:
            family.add_metric(labels, value)
    return cast(Family, family)


def _buckets(durations: Durations) -> list[tuple[Any, ...]]:
    """Yields bounds and counts of a histogram; with exemplars, which only OpenMetrics shows."""
    buckets: list[tuple[Any, ...]] = [*zip(SHOWN_BOUNDS, accumulate(durations.counts), strict=True)]
    for place, (trace_id, span_id, value_s, at_s) in durations.exemplars.items():
        buckets[place] += (Exemplar({"trace_id": trace_id, "span_id": span_id}, value_s, at_s),)
    return buckets


log = logging.getLogger(__name__)

BUILD: Final = Metric(
    "gauge", "noetl_build_info", "1, with the role of the process and its version.", ("role", "version")
)

MAX_CONNECTIONS: Final = 32
LONGEST_S: Final = 10.0
"""How long a connection may last: a head that does not come, an answer that is not read, a scrape that hangs."""

MAX_LINE_BYTES: Final = 8190
MAX_HEADERS: Final = 64
BACKLOG: Final = 32


class StatusAnswers:
    """Answers probes and scrapes of a role, which is not ready until :meth:`attach`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._role: Role = NotYetRunning(name)
        self._parts: Sequence[Measured] = ()
        self._scrapes: SharedLoads[str, Sequence[Reading]] = SharedLoads()

    def attach(self, role: Role, *parts: Measured) -> None:
        """Attaches the ``role`` to ask from now on; its metrics are followed by those of ``parts``."""
        self._role, self._parts = role, parts

    async def answer(self, request: web.BaseRequest) -> web.Response:
        if request.method not in ("GET", "HEAD"):
            return _closing(web.Response(status=405, text="GET only\n", headers={"Allow": "GET, HEAD"}))
        match request.path:
            case "/livez":
                reasons = self._role.reasons_to_replace()
                return _json_response({"status": "dead" if reasons else "alive", "reasons": [*reasons]}, not reasons)
            case "/readyz":
                missing = [*self._role.reasons_to_replace(), *await self._role.reasons_not_ready()]
                return _json_response({"ready": not missing, "missing": missing}, not missing)
            case "/metrics":
                readings = await self._scrapes.get("", self._read)
                body, media = exposition(readings, request.headers.get("Accept", ""))
                return _closing(web.Response(body=body, headers={"Content-Type": media}))
        return _closing(web.Response(status=404, text="there are /livez, /readyz and /metrics\n"))

    async def _read(self) -> Sequence[Reading]:
        build = BUILD.read(1, self._name, noetl_stream.__version__)
        return [build, *await self._role.readings(), *(one for part in self._parts for one in part.readings())]


@asynccontextmanager
async def open_status(host: str, port: int, role: str) -> AsyncIterator[StatusAnswers]:
    """Serves the status address until the end of the block.

    Args:
        port: 0 for any free port.
        role: The name of the role.

    Raises:
        UsageError: the address cannot be listened on.
    """
    status = StatusAnswers(role)
    manager = web.Server(status.answer)
    connections: dict[StatusConnection, None] = {}
    loop = asyncio.get_running_loop()
    try:
        server = await loop.create_server(lambda: StatusConnection(manager, connections), host, port, backlog=BACKLOG)
    except OSError as error:
        reason = error.strerror or str(error)
        hint = "choose another --status-address"
        raise UsageError(f"cannot listen on {host}:{port}: {reason}", hint=hint) from None
    try:
        at, number = server.sockets[0].getsockname()[:2]
        log.info("status at http://%s:%d", f"[{at}]" if ":" in at else at, number)
        yield status
    finally:
        server.close()
        await manager.shutdown()


class StatusConnection(web.RequestHandler):
    """A connection for one request.

    Args:
        connections: The open connections, the oldest first.
    """

    __slots__ = ("_connections", "_end")

    def __init__(self, manager: web.Server, connections: dict[StatusConnection, None]) -> None:
        super().__init__(
            manager,
            loop=asyncio.get_running_loop(),
            logger=log,
            access_log=cast(logging.Logger, None),  # aiohttp takes it for "none", and its annotation does not
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_LINE_BYTES,
            max_headers=MAX_HEADERS,
            auto_decompress=False,
            lingering_time=0,
        )
        self._connections = connections
        self._end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if len(self._connections) >= MAX_CONNECTIONS:
            next(iter(self._connections)).end()
        self._connections[self] = None
        self._end = asyncio.get_running_loop().call_later(LONGEST_S, self.end)

    def end(self) -> None:
        """Closes the connection at once."""
        self._connections.pop(self, None)
        if self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connections.pop(self, None)
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answers invalid requests and defects; logs only the latter."""
        if status >= 500:
            log.error("%s failed", request.path, exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun already")
        text = "this is not an HTTP request\n" if status == 400 else "this role cannot say\n"
        return _closing(web.Response(status=status, text=text))


def _json_response(document: dict[str, Any], good: bool) -> web.Response:
    text = json.dumps(document, ensure_ascii=False) + "\n"
    return _closing(web.Response(status=200 if good else 503, text=text, content_type="application/json"))


def _closing(response: web.Response) -> web.Response:
    response.force_close()
    return response
