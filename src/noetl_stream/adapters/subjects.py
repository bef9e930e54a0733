"""Where commands stand in the queue, for every adapter: ``noetl.commands.<pool>.<execution_id>.<command_id>``."""

from __future__ import annotations

from noetl_stream.model.ids import checked_id


def command_subject(pool: str, execution_id: str, command_id: str) -> str:
    """The one place in the queue a command can stand in.

    Raises:
        UsageError: one of the ids cannot stand in a subject.
    """
    return f"noetl.commands.{checked_id(pool)}.{checked_id(execution_id)}.{checked_id(command_id)}"


def any_pool_subject(execution_id: str, command_id: str) -> str:
    """Where a command stands, whatever its pool.

    Raises:
        UsageError: one of the ids cannot stand in a subject.
    """
    return f"noetl.commands.*.{checked_id(execution_id)}.{checked_id(command_id)}"
