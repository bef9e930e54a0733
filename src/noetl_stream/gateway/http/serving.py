"""The path of a request, and of each tool call within one: admitted, authenticated, read, performed once, answered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from aiohttp import web
from aiohttp.typedefs import Handler
from msgspec.structs import replace

from noetl_stream.concurrency import result_until
from noetl_stream.errors import NoetlError, UsageError
from noetl_stream.gateway.access.audit import Auditor
from noetl_stream.gateway.access.authentication import SignIns, client_of, host_of
from noetl_stream.gateway.access.guard import ADMISSION, CALLER, AccessGuard
from noetl_stream.gateway.access.scoped import Scopes
from noetl_stream.gateway.http import problems
from noetl_stream.gateway.http.connections import HttpConnection, address_group
from noetl_stream.gateway.http.idempotency import HEADER, NOT_KEPT, IdempotentCalls
from noetl_stream.gateway.http.inputs import BodyReader, Parameters, is_large, most_bytes, read_body, read_parameters
from noetl_stream.gateway.http.pressure import Gate, Pressure
from noetl_stream.gateway.http.problems import HttpProblem, kind_of, problem_of
from noetl_stream.gateway.http.routes import JSON, AnyRoute, Call, Reply
from noetl_stream.gateway.metrics import UNKNOWN_ROUTE, Metrics
from noetl_stream.mcp.answers import ToolAnswer, error_document, plain_object
from noetl_stream.mcp.tools import AgentCall, InnerCall, PerformedTool, Work
from noetl_stream.model.json import codec
from noetl_stream.model.json.texts import header_text
from noetl_stream.model.rights import namespace_of
from noetl_stream.model.traces import read_traceparent
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations import PORTS, Operations, port_of
from noetl_stream.ports.operations.executions import ExecutionDocument, Executions, RequestIds
from noetl_stream.ports.operations.verbs import is_verb, verb_of
from noetl_stream.ports.stores.idempotency import KeptAnswer
from noetl_stream.ports.stores.identities import AuditedAnswer, AuditedCall, Caller, audit_text
from noetl_stream.ports.streams.blobs import encoded
from noetl_stream.ports.traces import OwnSpan, Span, Tracing, span_within
from noetl_stream.settings.gateway_settings import AgentAccess, GatewayLimits
from noetl_stream.telemetry.structured_logs import TRACE_ID

TRACEPARENT: Final = web.RequestKey("traceparent", str)
"""The caller's ``traceparent`` for executions that a request starts; if unset, the request's own."""

_READS: Final = frozenset({"GET", "HEAD"})


class BegunSpan(NamedTuple):
    own: OwnSpan
    began_ms: int


class RequestTraces:
    """Records the spans of requests.

    Args:
        tracing: The exporter of spans; ``None``: executions belong to the caller's own span.
    """

    def __init__(self, tracing: Tracing | None, clock: Clock) -> None:
        self._tracing = tracing
        self._clock = clock

    def begin(self, request: web.Request) -> BegunSpan | None:
        """Begins the span of a request, and names its trace in log lines; ``None`` if no span is recorded."""
        given = request.headers.get("traceparent", "")
        caller = read_traceparent(given)
        TRACE_ID.set(caller.trace_id if caller is not None else "")
        if self._tracing is None or (caller is None and request.method in _READS):
            return None
        own = span_within(self._tracing, given, self._clock.random_bytes)
        TRACE_ID.set(own.trace.trace_id)
        request[TRACEPARENT] = own.traceparent
        return BegunSpan(own, self._clock.now_ms()) if own.is_sampled else None

    def end(self, begun: BegunSpan | None, request: web.Request, status: int) -> None:
        """Records the span of an answered request, unless its caller is unknown: anybody could make spans."""
        if self._tracing is None or begun is None or CALLER not in request:
            return
        method, resource = request.method, request.match_info.route.resource
        route = resource.canonical if resource is not None else ""
        self._tracing.record(
            Span(
                trace_id=begun.own.trace.trace_id,
                span_id=begun.own.span_id,
                parent_id=begun.own.trace.caller,
                name=f"{method} {route}",
                started_ms=begun.began_ms,
                ended_ms=self._clock.now_ms(),
                attributes={"http.request.method": method, "http.route": route, "http.response.status_code": status},
                error=str(status) if status >= 500 else "",
                kind="server",
            )
        )


CHECKS: Final = frozenset({"checkPlaybook"})
"""Operations that take much processor time."""

HEAVY: Final = frozenset(
    {
        *("listSteps", "getCtx", "getResult", "getFile"),
        *CHECKS,
        *(
            verb_of(asked).operation
            for noun in PORTS
            for asked in vars(port_of(noun)).values()
            if is_verb(asked) and verb_of(asked).heavy
        ),
    }
)
"""Operations with possibly long answers, or that take much processor time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayDoor:
    """A :class:`~noetl_stream.mcp.tools.Door` for one request.

    Args:
        operations: The operations that the caller may use.
        ending: Set when the caller has disconnected or the gateway stops.
    """

    operations: Operations
    caller: Caller
    request: web.Request
    ending: asyncio.Event
    auditor: Auditor
    pressure: Pressure
    once: IdempotentCalls

    async def perform(self, inner: InnerCall, work: Work) -> PerformedTool:
        """See :meth:`noetl_stream.mcp.tools.Door.perform`."""
        attempt = self._attempt(inner)
        with ExitStack() as under_way:
            try:
                if inner.refusal is not None:
                    raise inner.refusal
                self._admit(inner, under_way)
                if not inner.tool.changes:
                    return PerformedTool(plain_object(await self._read(inner, work)))
            except NoetlError as error:
                await self.auditor.refused_attempt(attempt, error)
                raise
            return await self.auditor.performed(attempt, lambda: self._recorded(inner, work))

    async def _read(self, inner: InnerCall, work: Work) -> ToolAnswer:
        call = self._call(self.once.new_ids())
        if inner.tool.operation not in HEAVY:
            return await work(call)
        async with self.pressure.turns.taken(self.caller.principal, self.ending):
            return await work(call)

    def _admit(self, inner: InnerCall, under_way: ExitStack) -> None:
        if inner.tool.adds_work:
            self.pressure.admit_work(self.caller.principal)
        gate: Gate | None = self.pressure.waits if inner.waits else None
        if inner.tool.operation in CHECKS:
            gate = self.pressure.checks
        if gate is not None:  # the request itself counts already
            under_way.enter_context(gate.entered(self.caller, address_group(client_of(self.request))))

    async def _recorded(self, inner: InnerCall, work: Work) -> tuple[PerformedTool, AuditedAnswer]:
        kept = await kept_tool_answer(self.once, self.caller.id, inner, lambda ids: work(self._call(ids)))
        performed = performed_tool(kept)
        data = performed.document.get("data")
        made = str(data.get("execution_id", "")) if isinstance(data, dict) else ""
        return performed, AuditedAnswer(kept.status, audit_text(inner.reason), audit_text(made))

    def _call(self, ids: RequestIds) -> AgentCall:
        ended = partial(waited, self.operations.executions, self.ending)
        return AgentCall(self.operations, self.caller.principal, self.caller.role, ids, ended)

    def _attempt(self, inner: InnerCall) -> AuditedCall:
        attempt = self.auditor.attempt(self.request, inner.tool.operation, self.caller)
        key, target = audit_text(inner.request_id), audit_text(inner.target)
        return replace(attempt, method="MCP", target=target, idempotency_key=key)


async def waited(executions: Executions, ending: asyncio.Event, execution_id: str, wait_s: float) -> ExecutionDocument:
    """The execution, once it has ended, the time has passed, or ``ending`` is set."""
    found = await result_until(executions.wait(execution_id, wait_s), ending.wait()) if wait_s else None
    return found if found is not None else await executions.get(execution_id)


async def kept_tool_answer(
    once: IdempotentCalls, caller: str, inner: InnerCall, work: Callable[[RequestIds], Awaitable[ToolAnswer]]
) -> KeptAnswer:
    """Returns the answer of ``work``, or the answer or error given for the call's request id before.

    Raises:
        UsageError: another call used the request id.
        NoetlError: an error that a repeated call may not have.
    """

    async def perform(ids: RequestIds) -> KeptAnswer:
        try:
            return KeptAnswer(200, {}, codec.encode(await work(ids)))
        except NoetlError as error:
            status = kind_of(error).status
            if status >= 500 or status in NOT_KEPT:
                raise
            return KeptAnswer(status, {}, codec.encode(error_document(error)))

    try:
        return await once.perform(inner.request_id, caller, (b"mcp", inner.content), perform, lambda body: body)
    except HttpProblem as problem:
        if problem.kind.name != "key-reused":
            raise
        hint = "take a new request_id for each change, and the same one only to repeat it"
        raise UsageError(f"request_id {inner.request_id!r} was used for another call", hint=hint) from None


def performed_tool(kept: KeptAnswer) -> PerformedTool:
    document: dict[str, Any] = codec.decode_json(kept.body)
    return PerformedTool(document, is_error=kept.status >= 400)


log = logging.getLogger(__name__)

OPERATION: Final = web.RequestKey("operation", str)
CONTENT_TYPE: Final = "Content-Type"
CONTENT_LENGTH: Final = "Content-Length"
PAGE: Final = "page"
"""The operation of a file of the page in metrics and the audit, since it is none of the API."""

NOBODY: Final = Caller("", "viewer")
"""The caller of a public route."""


class _Read(NamedTuple):
    """A validated request. ``data`` is its body as sent."""

    parameters: Parameters
    data: bytes
    media: str
    body: Any


@dataclass(frozen=True, slots=True)
class Serving:
    """The state shared by all routes."""

    operations: Operations
    sign_ins: SignIns
    scopes: Scopes
    guard: AccessGuard
    once: IdempotentCalls
    bodies: BodyReader
    auditor: Auditor
    pressure: Pressure
    metrics: Metrics
    limits: GatewayLimits
    clock: Clock
    agents: AgentAccess
    traces: RequestTraces

    def handler(self, route: AnyRoute) -> Handler:
        async def prepare(request: web.Request) -> Handler:
            return partial(self._answer, route, await self._read(route, request))

        async def handle(request: web.Request) -> web.StreamResponse:
            request[OPERATION] = route.operation
            if route.role is None:
                return await self._answer_anyone(route, request)
            return await self.guard.handle(
                request,
                prepare,
                least=route.role,
                operation=route.operation,
                changes=route.changes,
                admitted=lambda caller: self._admitted(route, request, caller),
            )

        return handle

    def page_handler(self, answer: Handler) -> Handler:
        """The aiohttp handler of a file of the page: open to anybody, counted as a request of the address."""

        async def admitted(request: web.Request) -> web.StreamResponse:
            address = address_group(client_of(request))
            with self.pressure.requests.entered(replace(NOBODY, principal=address), address):
                return await answer(request)

        async def handle(request: web.Request) -> web.StreamResponse:
            request[OPERATION] = PAGE
            return await self.guard.handle_public(request, admitted, operation=PAGE, changes=False)

        return handle

    @web.middleware
    async def problems(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turns errors into problems, and counts and traces every answer."""
        began_s, span = self.clock.monotonic_s(), self.traces.begin(request)
        try:
            with connection_of(request).busy():
                response = await self.pressure.pace.kept(
                    _coroutine(handler(request)), lambda: request.get(CALLER, NOBODY).principal
                )
        except Exception as error:
            problem = problem_of(_refused_by_router(error, request.path), request.path)
            body = codec.encode(problem.document)
            response = web.Response(body=body, status=problem.status, headers=problem.headers)
            response.headers[CONTENT_TYPE] = problems.MEDIA
        operation = request.get(OPERATION, UNKNOWN_ROUTE)
        self.metrics.answered(operation, response.status, self.clock.monotonic_s() - began_s)
        self.traces.end(span, request, response.status)
        return response

    async def _answer_anyone(self, route: AnyRoute, request: web.Request) -> web.StreamResponse:
        async def answer(request: web.Request) -> web.StreamResponse:
            with self._admitted(route, request, NOBODY):
                return await self._answer(route, await self._read(route, request), request)

        changes = route.changes and not route.by_programs
        if route.anywhere:
            return await self._answer(route, await self._read(route, request), request)
        return await self.guard.handle_public(request, answer, operation=route.operation, changes=changes)

    @contextmanager
    def _admitted(self, route: AnyRoute, request: web.Request, caller: Caller) -> Iterator[None]:
        if route.uncounted:
            yield
            return
        address = address_group(client_of(request))
        who = caller if caller.principal else replace(caller, principal=address)  # unknown, but with an address
        if route.by_programs:
            self.pressure.admit_event(address)
        if route.adds_work:
            self.pressure.admit_work(_asker(route, request, who))
        if route.changes:
            self.pressure.admit_change(caller)
        if caller.principal and (route.checks or not route.changes):
            self.pressure.admit_read(caller)
        size = most_bytes(route.body, request, self.limits)
        with self._gate(route, request).entered(who, address), self.pressure.held.reserved(size, who):
            yield

    def _gate(self, route: AnyRoute, request: web.Request) -> Gate:
        if route.streams:
            return self.pressure.streams
        if route.checks:
            return self.pressure.checks
        if is_large(request):
            return self.pressure.large_bodies
        return self.pressure.waits if "wait" in request.query else self.pressure.requests

    async def _read(self, route: AnyRoute, request: web.Request) -> _Read:
        parameters = read_parameters(route.parameters, request.match_info, request.query, request.headers)
        data, media = await read_body(route.body, request, self.limits)
        return _Read(parameters, data, media, await self.bodies.read(route.body, data, media))

    async def _answer(self, route: AnyRoute, read: _Read, request: web.Request) -> web.StreamResponse:
        """Performs a request and writes its answer, at the cost of the caller. Streams are bounded by their number."""
        caller = request.get(CALLER, NOBODY)
        perform = partial(self._performed, route, read, request, caller)
        if route.streams or not caller.principal:
            return await perform()
        is_long = route.heavy or route.checks or (is_large(request) and "wait" not in request.query)
        if not is_long:
            return await self.pressure.charged(caller, perform(), changes=route.changes)
        async with self.pressure.turns.taken(caller.principal, connection_of(request).ending):
            return await self.pressure.charged(caller, perform(), changes=route.changes)

    async def _performed(
        self, route: AnyRoute, read: _Read, request: web.Request, caller: Caller
    ) -> web.StreamResponse:
        async def perform(ids: RequestIds) -> Reply:
            operations, ending = self.scopes(self.operations, caller.paths), connection_of(request).ending
            door = GatewayDoor(
                operations=operations,
                caller=caller,
                request=request,
                ending=ending,
                auditor=self.auditor,
                pressure=self.pressure,
                once=self.once,
            )
            call = Call(
                operations=operations,
                sign_ins=self.sign_ins,
                caller=caller,
                parameters=read.parameters,
                body=read.body,
                ids=ids,
                address=request.rel_url,
                host=host_of(request),
                ending=ending,
                door=door,
                agents=self.agents,
                traceparent=request.get(TRACEPARENT, ""),
                headers={header_text(name).lower(): header_text(value) for name, value in request.raw_headers},
            )
            return await route.reply(call)

        key = request.headers.get(HEADER) if route.takes_key else None
        if key is None:
            return await self._written(request, await perform(self.once.new_ids()))

        async def perform_kept(ids: RequestIds) -> KeptAnswer:
            try:
                return await kept_answer(await perform(ids))
            except NoetlError as error:
                problem = problem_of(error, request.path)
                if problem.status >= 500 or problem.status in NOT_KEPT:
                    raise
                headers = {**problem.headers, CONTENT_TYPE: problems.MEDIA}
                return KeptAnswer(problem.status, headers, codec.encode(problem.document))

        content = (request.method.encode(), request.raw_path.encode(), read.media.encode(), read.data)
        answer = await self.once.perform(key, caller.id, content, perform_kept, lambda b: _without(b, route))
        return web.Response(body=answer.body, status=answer.status, headers=answer.headers)

    async def _written(self, request: web.Request, reply: Reply) -> web.StreamResponse:
        if isinstance(reply.body, AsyncIterator) and reply.media == JSON:
            reply = reply._replace(body=await _whole_if_short(reply.body))
        if not isinstance(reply.body, AsyncIterator):
            answer = await kept_answer(reply)
            if len(answer.body) > PIECE_BYTES:
                return await self._written_in_pieces(request, answer)
            written = web.Response(body=answer.body, status=answer.status, headers=answer.headers)
            compress(written, len(answer.body), request)
            return written
        response = web.StreamResponse(status=reply.status, headers={**reply.headers, CONTENT_TYPE: reply.media})
        if reply.media == JSON:
            compress(response, COMPRESSED_BYTES, request)
        await response.prepare(request)
        async with aclosing(reply.body) as chunks:  # type: ignore[type-var]
            try:
                async for chunk in chunks:
                    await request[ADMISSION].look_again()
                    with self.pressure.held.counted(len(chunk), request[CALLER].principal):
                        await response.write(chunk)
                await response.write_eof()
            except NoetlError as error:
                log.warning("a stream of %s ended: %s", request.path, error)
                # No reader may take a part for the whole answer.
                if reply.media == JSON or CONTENT_LENGTH in reply.headers:
                    connection_of(request).end("broken-off")
            except ConnectionError:
                log.debug("a reader of %s is gone", request.path)
        return response

    async def _written_in_pieces(self, request: web.Request, answer: KeptAnswer) -> web.StreamResponse:
        """Writes a long answer as fast as it is read. Until then it counts as held, and its request as under way."""
        written = web.StreamResponse(status=answer.status, headers=answer.headers)
        compress(written, len(answer.body), request)
        if not written.compression:
            written.content_length = len(answer.body)
        body = memoryview(answer.body)
        with self.pressure.held.counted(len(body), request.get(CALLER, NOBODY).principal):
            try:
                await written.prepare(request)
                for first in range(0, len(body), PIECE_BYTES):
                    await written.write(body[first : first + PIECE_BYTES])
                await written.write_eof()
            except ConnectionError:
                log.debug("a reader of %s is gone", request.path)
        return written


async def _coroutine(answering: Awaitable[web.StreamResponse]) -> web.StreamResponse:
    return await answering


def connection_of(request: web.Request) -> HttpConnection:
    assert isinstance(request.protocol, HttpConnection)
    return request.protocol


def _asker(route: AnyRoute, request: web.Request, who: Caller) -> str:
    """Returns the quota key for new work: the caller, for an event with its namespace, since many share an address."""
    if not route.by_programs:
        return who.principal
    return f"{who.principal} {namespace_of(request.match_info['path'])[:ASKER_CHARACTERS]}"


def _refused_by_router(error: Exception, path: str) -> Exception:
    if isinstance(error, web.HTTPNotFound):
        return HttpProblem(
            "not-found", f"{path} is not an address of a gateway", hint="/openapi.json lists all addresses"
        )
    if isinstance(error, web.HTTPMethodNotAllowed):
        allow = ", ".join(sorted(error.allowed_methods))
        return HttpProblem(
            "method-not-allowed", f"{error.method} is not allowed here", hint=f"allowed: {allow}", allow=allow
        )
    if isinstance(error, web.HTTPException):
        return HttpProblem("invalid-request", error.reason)
    return error


async def kept_answer(reply: Reply) -> KeptAnswer:
    """An answer as bytes, which can be sent, and sent again for a call with the same key."""
    headers = dict(reply.headers)
    if reply.body is None:
        return KeptAnswer(reply.status, headers, b"")
    assert not isinstance(reply.body, AsyncIterator)
    body = reply.body if isinstance(reply.body, bytes) else await encoded(reply.body)
    return KeptAnswer(reply.status, {**headers, CONTENT_TYPE: reply.media}, body)


async def _whole_if_short(pieces: AsyncIterator[bytes]) -> bytes | AsyncIterator[bytes]:
    """A document in one piece as bytes, a longer one unchanged. Failures up to there are answered with a problem."""
    first, second = await anext(pieces), await anext(pieces, None)
    if second is None:
        return first

    async def every() -> AsyncIterator[bytes]:
        async with aclosing(pieces):  # type: ignore[type-var]
            yield first
            yield second
            async for piece in pieces:
                yield piece

    return every()


def _without(body: bytes, route: AnyRoute) -> bytes:
    if not route.unkept:
        return body
    document: dict[str, Any] = codec.decode_json(body)
    return codec.encode({name: value for name, value in document.items() if name not in route.unkept})


ASKER_CHARACTERS: Final = 100
"""The part of a namespace's name that distinguishes quotas: anybody may name one, and the memory for each is bounded.
"""

PIECE_BYTES: Final = 256 * 1024
"""The size of the pieces in which longer answers are written."""

VARIES: Final = {"Vary": "Accept-Encoding"}
COMPRESSED_BYTES: Final = 4 * 1024
"""Smaller answers take few packets either way."""


def takes_gzip(request: web.Request) -> bool:
    return "gzip" in request.headers.get("Accept-Encoding", "")


def compress(response: web.StreamResponse, size: int, request: web.Request) -> None:
    """Compresses the answer to a GET in another thread. Answers to changes stay uncompressed: some hold secrets beside
    what the caller sent, and their compressed lengths would reveal them.

    Args:
        size: Of the body, bytes.
    """
    if request.method != "GET" or size < COMPRESSED_BYTES:
        return
    response.headers.update(VARIES)
    if takes_gzip(request):
        response.enable_compression(web.ContentCoding.gzip)
