"""What the outside must do after a decision: closed union, one value an effect.

The engine says what; the server collects it for the tick and does it once that is committed (PROTOCOL §2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from noetl_stream.engine.state import Timer
from noetl_stream.model.messages import InboxMessage, StepCommand, Stop
from noetl_stream.model.reference import Reference


class IssueCommand(NamedTuple):
    command: StepCommand


class WithdrawCommand(NamedTuple):
    """Nobody has begun it: its copy in the queue means nothing any more."""

    command_id: str


class StopWorkers(NamedTuple):
    stop: Stop


class SendMessage(NamedTuple):
    """To another execution, through the inbox. ``position`` is that of the decision that sends it."""

    position: int
    message: InboxMessage


class SetTimer(NamedTuple):
    """Set, or moved."""

    timer_id: str
    timer: Timer


class DropTimer(NamedTuple):
    timer_id: str


class AddTerms(NamedTuple):
    """What the execution can be found by from here on (:mod:`noetl_stream.model.search_terms`)."""

    terms: frozenset[str]


class UseObject(NamedTuple):
    """The journal names a result that another execution keeps."""

    reference: Reference


class AnswerStart(NamedTuple):
    """To whoever asked for the execution: it has started, unless there are ``diagnostics``."""

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
