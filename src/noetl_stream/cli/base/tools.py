"""The doors of an agent's tools on this machine: to the stores, or to a gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from noetl_stream.adapters.clock import SystemClock
from noetl_stream.cli.base.process import new_id
from noetl_stream.cli.base.session import Session
from noetl_stream.mcp.answers import plain_object
from noetl_stream.mcp.tools import AgentCall, Door, InnerCall, PerformedTool, Work
from noetl_stream.model.rights import Role
from noetl_stream.ports.operations.executions import RequestIds

if TYPE_CHECKING:  # noetl-stream-cli has no gateway
    from noetl_stream.gateway.http.idempotency import IdempotentCalls


class StoreDoor(NamedTuple):
    """A :class:`~noetl_stream.mcp.tools.Door` to the stores. Events name the actor; request ids are kept for a day."""

    session: Session
    role: Role
    once: IdempotentCalls

    async def perform(self, inner: InnerCall, work: Work) -> PerformedTool:
        """See :meth:`noetl_stream.mcp.tools.Door.perform`."""
        from noetl_stream.gateway.http.serving import kept_tool_answer, performed_tool

        if inner.refusal is not None:
            raise inner.refusal
        if not inner.tool.changes:
            return PerformedTool(plain_object(await work(_call(self.session, self.role, self.once.new_ids()))))
        caller = f"local:{self.session.by}"
        kept = await kept_tool_answer(self.once, caller, inner, lambda ids: work(_call(self.session, self.role, ids)))
        return performed_tool(kept)


class RemoteDoor(NamedTuple):
    """A :class:`~noetl_stream.mcp.tools.Door` to a gateway, which admits and records: the request id is its key."""

    session: Session
    role: Role

    async def perform(self, inner: InnerCall, work: Work) -> PerformedTool:
        """See :meth:`noetl_stream.mcp.tools.Door.perform`."""
        if inner.refusal is not None:
            raise inner.refusal
        ids = RequestIds("", inner.request_id or new_id())
        return PerformedTool(plain_object(await work(_call(self.session, self.role, ids))))


def door_of(session: Session, role: Role) -> Door:
    """The door of a session."""
    if session.idempotency is None:
        return RemoteDoor(session, role)
    from noetl_stream.gateway.http.idempotency import IdempotentCalls

    return StoreDoor(session, role, IdempotentCalls(session.idempotency, SystemClock()))


def _call(session: Session, role: Role, ids: RequestIds) -> AgentCall:
    executions = session.operations.executions
    return AgentCall(session.operations, session.by, role, ids, executions.wait)
