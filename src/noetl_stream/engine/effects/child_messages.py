"""Messages between parent and child executions, sent through the inbox (PROTOCOL §1 *Inbox*)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from noetl_stream.engine.state import Execution
from noetl_stream.model.events import (
    CancelRequested,
    ChildFinished,
    ChildOrder,
    ChildOrdered,
    ChildRequested,
    ExecutionFinished,
    ExecutionRequested,
    Fact,
    Parent,
    PauseRequested,
    ResumeRequested,
)
from noetl_stream.model.ids import derive
from noetl_stream.model.messages import InboxMessage
from noetl_stream.model.outcome import ErrorInfo, Outcome

_Order = type[CancelRequested | PauseRequested | ResumeRequested]
_ORDERS: Final[Mapping[ChildOrder, _Order]] = {
    "cancel": CancelRequested,
    "pause": PauseRequested,
    "resume": ResumeRequested,
}


def child_message(state: Execution, fact: Fact, position: int) -> InboxMessage | None:
    """The message to a child or the parent that a decision of ``state``, at ``position``, sends, if any."""
    if isinstance(fact, ChildRequested):
        return InboxMessage(fact.execution_id, _request(state, fact))
    if isinstance(fact, ChildOrdered):
        request_id = derive(state.execution_id, "order", position)
        order = _ORDERS[fact.order](request_id, "", fact.reason)
        return InboxMessage(fact.execution_id, order)
    if isinstance(fact, ExecutionFinished) and state.parent is not None:
        parent = state.parent
        finished = ChildFinished(state.execution_id, parent.command_id, _outcome(state, fact), parent.path)
        return InboxMessage(parent.execution_id, finished)
    return None


def _request(state: Execution, fact: ChildRequested) -> ExecutionRequested:
    call = fact.call
    depth = (state.parent.depth if state.parent is not None else 0) + 1
    parent = Parent(state.execution_id, fact.step_run_id, fact.command_id, fact.path, depth, call.return_step)
    request_id = derive(fact.execution_id, "request")
    return ExecutionRequested(request_id, call.digest, call.path, call.workload, trace_id=state.trace_id, parent=parent)


def _outcome(state: Execution, fact: ExecutionFinished) -> Outcome:
    if fact.outcome.error is None:
        return Outcome("ok", fact.outcome.result)
    error = fact.outcome.error
    message = f"playbook {state.path} ({state.execution_id}) {fact.status}: {error.message}"
    return Outcome("error", error=ErrorInfo("child_failed", message, code=error.kind))
