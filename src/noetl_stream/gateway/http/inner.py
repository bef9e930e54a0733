"""Tool calls within a request: each is admitted, recorded and performed once, like a request of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from aiohttp import web
from msgspec.structs import replace

from noetl_stream.concurrency import result_until
from noetl_stream.errors import NoetlError, UsageError
from noetl_stream.gateway.access.audit import Auditor
from noetl_stream.gateway.access.network import client_of
from noetl_stream.gateway.http.connections import address_group
from noetl_stream.gateway.http.idempotency import NOT_KEPT, IdempotentCalls
from noetl_stream.gateway.http.pressure import Gate, Pressure
from noetl_stream.gateway.http.problems import HttpProblem, kind_of
from noetl_stream.mcp.answers import ToolAnswer, error_document, plain_object
from noetl_stream.mcp.tools import AgentCall, InnerCall, PerformedTool, Work
from noetl_stream.model.json import codec
from noetl_stream.ports.operations import PORTS, Operations, port_of
from noetl_stream.ports.operations.executions import ExecutionDocument, Executions, RequestIds
from noetl_stream.ports.operations.verbs import is_verb, verb_of
from noetl_stream.ports.stores.idempotency import KeptAnswer
from noetl_stream.ports.stores.identities import AuditedAnswer, AuditedCall, Caller, audit_text

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
    """The execution, once it has ended, the time is over, or ``ending`` is set."""
    found = await result_until(executions.wait(execution_id, wait_s), ending.wait())
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
