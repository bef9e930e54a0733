"""How a request becomes an answer: admitted, authenticated, read, performed once, written. Every route passes here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, aclosing, nullcontext
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler

from noetl_stream.errors import NoetlError
from noetl_stream.gateway.access.credentials import require_own_page
from noetl_stream.gateway.access.guard import ADMISSION, CALLER, AccessGuard
from noetl_stream.gateway.access.network import host_of
from noetl_stream.gateway.access.scoped import Scopes
from noetl_stream.gateway.access.sessions import SignIns
from noetl_stream.gateway.http import problems
from noetl_stream.gateway.http.bodies import read_body
from noetl_stream.gateway.http.idempotency import HEADER, IdempotentCalls
from noetl_stream.gateway.http.parameters import read_parameters
from noetl_stream.gateway.http.pressure import Pressure
from noetl_stream.gateway.http.problems import HttpProblem, problem_of
from noetl_stream.gateway.http.routes import AnyRoute, Call, Reply
from noetl_stream.gateway.metrics import UNKNOWN_ROUTE, Metrics
from noetl_stream.model import codec
from noetl_stream.ports.access import Caller
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.gateway import Ingest, KeptAnswer
from noetl_stream.ports.operations import Operations
from noetl_stream.ports.operations.executions import RequestIds
from noetl_stream.settings.environment import GatewayLimits

log = logging.getLogger(__name__)

OPERATION: Final = web.RequestKey("operation", str)
CONTENT_TYPE: Final = "Content-Type"
NOBODY: Final = Caller("", "viewer")
"""The caller of a public route."""

SLOW_READER_S: Final = 30.0
"""A reader of a stream that takes nothing for this long is disconnected; it can resume where it was."""

NOT_KEPT: Final = frozenset({401, 403, 429})
"""Refusals that a retry may overcome; so may every error of 500 and above."""


@dataclass(frozen=True, slots=True)
class Serving:
    """What all routes share. ``ending`` is set when the gateway stops."""

    operations: Operations
    ingest: Ingest
    sign_ins: SignIns
    scopes: Scopes
    guard: AccessGuard
    once: IdempotentCalls
    pressure: Pressure
    metrics: Metrics
    limits: GatewayLimits
    clock: Clock
    ending: asyncio.Event

    def handler(self, route: AnyRoute) -> Handler:
        """The aiohttp handler of a route."""

        async def answer(request: web.Request) -> web.StreamResponse:
            return await self._answer(route, request)

        async def handle(request: web.Request) -> web.StreamResponse:
            request[OPERATION] = route.operation
            if route.role is None:
                return await self._answer_anyone(route, request)
            changes = route.method != "GET" and not route.reads
            with self._counted(route):
                return await self.guard.handle(
                    request, answer, least=route.role, operation=route.operation, changes=changes
                )

        return handle

    @web.middleware
    async def problems(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turns errors into problems, and counts every answer."""
        began_s = self.clock.monotonic_s()
        try:
            response = await handler(request)
        except Exception as error:
            problem = problem_of(_refused_by_router(error), request.path)
            body = codec.encode(problem.document)
            response = web.Response(body=body, status=problem.status, headers=problem.headers)
            response.headers[CONTENT_TYPE] = problems.MEDIA
        operation = request.get(OPERATION, UNKNOWN_ROUTE)
        self.metrics.answered(operation, response.status, self.clock.monotonic_s() - began_s)
        return response

    def _counted(self, route: AnyRoute) -> AbstractContextManager[None]:
        if route.uncounted:
            return nullcontext()
        return self.pressure.stream() if route.streams else self.pressure.request()

    async def _answer_anyone(self, route: AnyRoute, request: web.Request) -> web.StreamResponse:
        if route.anywhere:
            return await self._answer(route, request)
        self.guard.network.admit(request)
        if route.method != "GET":
            require_own_page(request)
        with self._counted(route):
            return await self._answer(route, request)

    async def _answer(self, route: AnyRoute, request: web.Request) -> web.StreamResponse:
        parameters = read_parameters(route.parameters, request.match_info, request.query, request.headers)
        data, media = await read_body(route.body, request, self.limits)
        body = route.body.read(data, media)
        if route.adds_work:
            self.pressure.admit_work()
        caller = request.get(CALLER, NOBODY)

        async def perform(ids: RequestIds) -> Reply:
            operations = self.scopes(self.operations, caller.paths)
            call = Call(
                operations=operations,
                ingest=self.ingest,
                sign_ins=self.sign_ins,
                caller=caller,
                parameters=parameters,
                body=body,
                ids=ids,
                address=request.rel_url,
                host=host_of(request),
                ending=self.ending,
            )
            return await route.reply(call)

        key = request.headers.get(HEADER) if route.takes_key else None
        if key is None:
            return await _written(request, await perform(self.once.new_ids()))

        async def perform_kept(ids: RequestIds) -> KeptAnswer:
            try:
                return _kept(await perform(ids))
            except NoetlError as error:
                problem = problem_of(error, request.path)
                if problem.status >= 500 or problem.status in NOT_KEPT:
                    raise
                headers = {**problem.headers, CONTENT_TYPE: problems.MEDIA}
                return KeptAnswer(problem.status, headers, codec.encode(problem.document))

        content = (request.method.encode(), request.raw_path.encode(), media.encode(), data)
        answer = await self.once.perform(key, caller.id, content, perform_kept, lambda b: _without(b, route))
        return web.Response(body=answer.body, status=answer.status, headers=answer.headers)


def _refused_by_router(error: Exception) -> Exception:
    """An error of the router as one of ours."""
    if isinstance(error, web.HTTPNotFound):
        return HttpProblem("not-found", "No such address", hint="/openapi.json lists all addresses")
    if isinstance(error, web.HTTPMethodNotAllowed):
        allow = ", ".join(sorted(error.allowed_methods))
        return HttpProblem(
            "method-not-allowed", f"{error.method} is not allowed here", hint=f"allowed: {allow}", allow=allow
        )
    if isinstance(error, web.HTTPException):
        return HttpProblem("invalid-request", error.reason)
    return error


def _kept(reply: Reply) -> KeptAnswer:
    headers = dict(reply.headers)
    if reply.body is None:
        return KeptAnswer(reply.status, headers, b"")
    assert not isinstance(reply.body, AsyncIterator)
    body = reply.body if isinstance(reply.body, bytes) else codec.encode(reply.body)
    return KeptAnswer(reply.status, {**headers, CONTENT_TYPE: reply.media}, body)


def _without(body: bytes, route: AnyRoute) -> bytes:
    if not route.unkept:
        return body
    document: dict[str, Any] = codec.decode_json(body)
    return codec.encode({name: value for name, value in document.items() if name not in route.unkept})


async def _written(request: web.Request, reply: Reply) -> web.StreamResponse:
    if not isinstance(reply.body, AsyncIterator):
        status, headers, body = _kept(reply)
        return web.Response(body=body, status=status, headers=headers)
    response = web.StreamResponse(status=reply.status, headers={**reply.headers, CONTENT_TYPE: reply.media})
    await response.prepare(request)
    async with aclosing(reply.body) as chunks:  # type: ignore[type-var]
        try:
            async for chunk in chunks:
                await request[ADMISSION].look_again()
                async with asyncio.timeout(SLOW_READER_S):
                    await response.write(chunk)
            await response.write_eof()
        except NoetlError as error:
            log.warning("a stream of %s ended: %s", request.path, error)
        except (ConnectionError, TimeoutError):
            log.debug("a reader of %s is gone or too slow", request.path)
            response.force_close()
    return response
