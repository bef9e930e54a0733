"""Dead letter rows, written by the tick that skips the message (PROTOCOL §1 *Partition row*, §3)."""

from __future__ import annotations

import logging

from noetl_stream.model import codec
from noetl_stream.model.messages import StepCommand
from noetl_stream.ports.dead_letters import DeadLetterRow, dead_letter
from noetl_stream.ports.event_log import ReportedMessage
from noetl_stream.ports.store import InboxItem

log = logging.getLogger(__name__)


def message_letter(message: ReportedMessage, reason: str) -> DeadLetterRow:
    """A dead letter for a message of EVENTS, identified by sequence and stored time: the stream may lose its tail."""
    place = {"sequence": message.sequence, "execution": message.execution_id}
    log.error("dead letter in EVENTS: %s", reason, extra=place)
    return dead_letter(
        id=f"events-{message.sequence}-{message.at_ms}",
        at_ms=message.at_ms,
        source="events",
        partition=message.partition,
        execution_id=message.execution_id,
        subject=f"noetl.events.{message.partition}.{message.execution_id}.reported",
        reason=reason,
        body=message.body,
        source_seq=message.sequence,
    )


def inbox_letter(item: InboxItem, at_ms: int, reason: str) -> DeadLetterRow:
    """A dead letter for a message between executions."""
    log.error("dead letter in the inbox: %s", reason, extra={"execution": item.execution_id})
    return dead_letter(
        id=f"inbox-{item.seq}",
        at_ms=at_ms,
        source="inbox",
        partition=item.partition,
        execution_id=item.execution_id,
        subject="inbox",
        reason=reason,
        body=item.body,
        source_seq=item.seq,
    )


def command_letter(command: StepCommand, at_ms: int, reason: str) -> DeadLetterRow:
    """A dead letter for a command that was given up; its step run has failed."""
    place = {"execution": command.execution_id, "command": command.command_id}
    log.error("dead letter in COMMANDS: %s", reason, extra=place)
    return dead_letter(
        id=f"command-{command.command_id}-{command.issue}",
        at_ms=at_ms,
        source="command",
        partition=command.partition,
        execution_id=command.execution_id,
        subject=f"noetl.commands.{command.pool}.{command.execution_id}.{command.command_id}",
        reason=reason,
        body=codec.encode(command),
    )
