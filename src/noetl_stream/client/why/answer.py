"""The whole answer: one sentence in front, then every reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from noetl_stream.client.why.ended import why_ended
from noetl_stream.client.why.environment import Environment
from noetl_stream.client.why.execution import the_whole
from noetl_stream.client.why.journal import JournalHistory, read_past
from noetl_stream.client.why.reason import Reason
from noetl_stream.client.why.tokens import halted_tokens, held_tokens, joins
from noetl_stream.client.why.work import commands, suspended
from noetl_stream.engine.state import Execution
from noetl_stream.errors import NotFound
from noetl_stream.model.envelope import iso
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.operations.executions import WhyDocument
from noetl_stream.ports.store import StoredEvent

REASONS_SHOWN: Final = 50


def explain(execution_id: str, journal: Iterable[StoredEvent], plan: Plan | None, around: Environment) -> WhyDocument:
    """The reasons in order of weight.

    Args:
        journal: Whole.
        plan: ``None`` if the playbook does not compile here: guards and joins are then named without their values.

    Raises:
        NotFound: the journal is empty.
    """
    history = read_past(execution_id, journal)
    state = history.state
    if state is None:
        raise NotFound(f"no execution {execution_id}")
    reasons = why_ended(history, state, plan) if state.ended else _why_not_ended(history, state, plan, around)
    since = max((reason.since_ms for reason in reasons[:1]), default=0) or history.begun_ms
    return WhyDocument(
        execution_id=execution_id,
        status=state.shown_status,
        summary=_summary(state, reasons),
        since=iso(since),
        reasons=[reason.document() for reason in reasons[:REASONS_SHOWN]],
        more=max(0, len(reasons) - REASONS_SHOWN),
    )


def _why_not_ended(
    history: JournalHistory, state: Execution, plan: Plan | None, around: Environment
) -> Sequence[Reason]:
    reasons = [
        *the_whole(history, state, around),
        *commands(history, state, plan, around),
        *suspended(history, state, around),
    ]
    if state.halted:
        reasons += halted_tokens(history, state)
    reasons += joins(history, state, plan)
    reasons += held_tokens(history, state, plan)
    if reasons:
        return reasons
    text = "nothing that it could wait for is recorded: this is a defect of the engine, or its events are on their way"
    return [Reason("unknown", text, "ask again in a second; if this stays, report it with the journal")]


def _summary(state: Execution, reasons: Sequence[Reason]) -> str:
    first = reasons[0].sentence if reasons else f"It is {state.shown_status}."
    return first if len(reasons) < 2 else f"{first} (and {len(reasons) - 1} more)"
