"""Effects: what the server must do after a decision. A closed union, one type per effect.

The engine returns them; the server collects them in the tick and acts once it is committed (PROTOCOL §2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from noetl_stream.engine.state import Timer
from noetl_stream.model.messages import InboxMessage, StepCommand, Stop
from noetl_stream.model.outcome import Reference


class IssueCommand(NamedTuple):
    command: StepCommand


class WithdrawCommand(NamedTuple):
    """Remove a command no worker has started from the queue."""

    command_id: str


class StopWorkers(NamedTuple):
    stop: Stop


class SendMessage(NamedTuple):
    """Send to another execution through the inbox. ``position`` is that of the decision that sends it."""

    position: int
    message: InboxMessage


class SetTimer(NamedTuple):
    """Set or move a timer."""

    timer_id: str
    timer: Timer


class DropTimer(NamedTuple):
    timer_id: str


class AddTerms(NamedTuple):
    """Make the execution searchable by these terms (:mod:`noetl_stream.model.search_terms`)."""

    terms: frozenset[str]


class UseObject(NamedTuple):
    """Record that the journal references a result stored by another execution."""

    reference: Reference


class AnswerStart(NamedTuple):
    """Tell the client that the execution has started, unless there are ``diagnostics``."""

    diagnostics: Sequence[dict[str, Any]]


Effect = (
    IssueCommand
    | WithdrawCommand
    | StopWorkers
    | SendMessage
    | SetTimer
    | DropTimer
    | AddTerms
    | UseObject
    | AnswerStart
)
