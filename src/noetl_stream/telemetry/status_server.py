"""The status address of a role: ``/livez``, ``/readyz`` and ``/metrics``, for probes and Prometheus.

Law: it answers from a thread and a loop of its own, and asks the role's loop. A busy loop is not waited for: its last
answer holds for a while, and a loop that has not turned for long is reported. A connection serves one request and is
closed after :data:`LONGEST_S` in any case. At most :data:`MAX_CONNECTIONS` are open; a new one replaces the oldest, so
that probes get through.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial
from itertools import accumulate
from typing import Any, Final, NamedTuple, TypeVar, cast

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
from noetl_stream.telemetry.measures import Durations, Measured, Metric, NotYetRunning, Reading, Role

Result = TypeVar("Result")

FAMILIES: Final[Mapping[str, Any]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


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
    shown = (*map(str, durations.bounds_s), "+Inf")
    buckets: list[tuple[Any, ...]] = [*zip(shown, accumulate(durations.counts), strict=True)]
    for place, (trace_id, span_id, value_s, at_s) in durations.exemplars.items():
        buckets[place] += (Exemplar({"trace_id": trace_id, "span_id": span_id}, value_s, at_s),)
    return buckets


log = logging.getLogger(__name__)

BUILD: Final = Metric(
    "gauge", "noetl_build_info", "1, with the role of the process and its version.", ("role", "version")
)

MAX_CONNECTIONS: Final = 32
LONGEST_S: Final = 10.0
"""The longest time of a connection: a head may not come, an answer may not be read, a scrape may hang."""

MAX_LINE_BYTES: Final = 8190
MAX_HEADERS: Final = 64
BACKLOG: Final = 32


ANSWER_S: Final = 1.0
"""The time in which the role's loop must answer a probe; then its last answer holds."""
KEPT_S: Final = 30.0
"""The time for which the last answer holds."""
STUCK_S: Final = 60.0
"""The time without a turn of its loop after which a process should be replaced."""


class _Said(NamedTuple):
    reasons: Sequence[str]
    at_s: float


class StatusAnswers:
    """Answers probes and scrapes of a role, which is not ready until :meth:`attach`. Made on the role's loop;
    :meth:`answer` is called on another one.

    Args:
        monotonic_s: The time by which the role's loop is late.
    """

    def __init__(self, name: str, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._role: Role = NotYetRunning(name)
        self._parts: Sequence[Measured] = ()
        self._loop = asyncio.get_running_loop()
        self._monotonic_s = monotonic_s
        self._silent_since_s: float | None = None
        self._said: dict[str, _Said] = {}
        self._questions: SharedLoads[str, Sequence[str]] = SharedLoads()
        self._scrapes: SharedLoads[str, Sequence[Reading]] = SharedLoads()

    def attach(self, role: Role, *parts: Measured) -> None:
        """Attaches the ``role`` to ask from now on; its metrics are followed by those of ``parts``."""
        self._role, self._parts = role, parts
        self._said.clear()

    async def answer(self, request: web.BaseRequest) -> web.Response:
        if request.method not in ("GET", "HEAD"):
            return _closing(web.Response(status=405, text="GET only\n", headers={"Allow": "GET, HEAD"}))
        match request.path:
            case "/livez":
                reasons = [*(await self._asked("alive", self._reasons_to_replace) or ()), *self._late(STUCK_S)]
                return _json_response({"status": "dead" if reasons else "alive", "reasons": reasons}, not reasons)
            case "/readyz":
                said = await self._asked("ready", self._reasons_not_ready)
                missing = [f"it has not said within {ANSWER_S:g} s what it lacks"] if said is None else [*said]
                missing += self._late(KEPT_S)
                return _json_response({"ready": not missing, "missing": missing}, not missing)
            case "/metrics":
                readings = await asyncio.wrap_future(self._on_its_loop(self._scrapes.get("", self._read)))
                body, media = exposition(readings, request.headers.get("Accept", ""))
                return _closing(web.Response(body=body, headers={"Content-Type": media}))
        return _closing(web.Response(status=404, text="there are /livez, /readyz and /metrics\n"))

    async def _asked(self, what: str, ask: Callable[[], Coroutine[Any, Any, Sequence[str]]]) -> Sequence[str] | None:
        """The role's answer, or its last one; ``None`` if that is too old."""
        asked = asyncio.wrap_future(self._on_its_loop(self._questions.get(what, partial(self._learn, what, ask))))
        await asyncio.wait({asked}, timeout=ANSWER_S)
        if asked.done():
            return asked.result()
        said = self._said.get(what)
        return said.reasons if said is not None and self._monotonic_s() - said.at_s < KEPT_S else None

    def _on_its_loop(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Starts work on the role's loop, and notes for how long that does not turn."""
        if self._silent_since_s is None:
            self._silent_since_s = self._monotonic_s()
        self._loop.call_soon_threadsafe(self._turned)
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _turned(self) -> None:
        self._silent_since_s = None

    def _late(self, most_s: float) -> Iterator[str]:
        since_s = self._silent_since_s
        if since_s is not None and (silent_s := self._monotonic_s() - since_s) > most_s:
            yield f"the loop of its process has not turned for {silent_s:.0f} s"

    async def _learn(self, what: str, ask: Callable[[], Coroutine[Any, Any, Sequence[str]]]) -> Sequence[str]:
        reasons = await ask()
        self._said[what] = _Said(reasons, self._monotonic_s())
        return reasons

    async def _reasons_to_replace(self) -> Sequence[str]:
        return [*self._role.reasons_to_replace()]

    async def _reasons_not_ready(self) -> Sequence[str]:
        return [*self._role.reasons_to_replace(), *await self._role.reasons_not_ready()]

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
    thread = _StatusThread(status, host, port)
    thread.start()
    try:
        at, number = await asyncio.wrap_future(thread.listening)
    except OSError as error:
        reason = error.strerror or str(error)
        hint = "choose another --status-address"
        raise UsageError(f"cannot listen on {host}:{port}: {reason}", hint=hint) from None
    try:
        log.info("status at http://%s:%d", f"[{at}]" if ":" in at else at, number)
        yield status
    finally:
        await asyncio.to_thread(thread.end)  # its answers may wait for this loop


class _StatusThread(threading.Thread):
    """Serves a status address on a loop of its own.

    Attributes:
        listening: Resolves to the address and port, or the error.
    """

    def __init__(self, status: StatusAnswers, host: str, port: int) -> None:
        super().__init__(name="noetl-status", daemon=True)
        self._status = status
        self._host = host
        self._port = port
        self._ends: Callable[[], object] = bool
        self.listening: Future[tuple[str, int]] = Future()

    def run(self) -> None:
        asyncio.run(self._serve())

    def end(self) -> None:
        self._ends()
        self.join()

    async def _serve(self) -> None:
        manager, connections = web.Server(self._status.answer), dict[StatusConnection, None]()
        loop, end = asyncio.get_running_loop(), asyncio.Event()
        try:
            server = await loop.create_server(
                lambda: StatusConnection(manager, connections), self._host, self._port, backlog=BACKLOG
            )
        except OSError as error:
            self.listening.set_exception(error)
            return
        self._ends = partial(loop.call_soon_threadsafe, end.set)
        try:
            self.listening.set_result(server.sockets[0].getsockname()[:2])
            await end.wait()
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
            access_log=cast(logging.Logger, None),  # aiohttp takes it for "none", despite its annotation
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
