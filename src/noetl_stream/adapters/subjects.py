"""The subjects that messages travel under, for every adapter of the event log and the queue (DESIGN §1).

``noetl.events.<partition>.<execution_id>.reported|decided`` and ``noetl.commands.<pool>.<execution_id>.<command_id>``.
"""

from __future__ import annotations

from functools import lru_cache

from noetl_stream.errors import UsageError
from noetl_stream.model.ids import is_valid_id, partition_of


@lru_cache(maxsize=8192)
def reported_subject(execution_id: str) -> str:
    """Where reports and requests of this execution go; the partition is a function of the id.

    Raises:
        UsageError: the id cannot stand in a subject.
    """
    return f"noetl.events.{partition_of(execution_id)}.{_checked(execution_id)}.reported"


@lru_cache(maxsize=8192)
def decided_subject(partition: int, execution_id: str) -> str:
    """Where the journal records of this execution go, and where a listener hears them live.

    Raises:
        UsageError: the id cannot stand in a subject.
    """
    return f"noetl.events.{partition}.{_checked(execution_id)}.decided"


def command_subject(pool: str, execution_id: str, command_id: str) -> str:
    """The one place in the queue a command can stand in.

    Raises:
        UsageError: one of the ids cannot stand in a subject.
    """
    return f"noetl.commands.{_checked(pool)}.{_checked(execution_id)}.{_checked(command_id)}"


def any_pool_subject(execution_id: str, command_id: str) -> str:
    """Where a command stands, whatever its pool.

    Raises:
        UsageError: one of the ids cannot stand in a subject.
    """
    return f"noetl.commands.*.{_checked(execution_id)}.{_checked(command_id)}"


def _checked(token: str) -> str:
    if not is_valid_id(token):
        raise UsageError(f"{token!r} cannot be an id", hint="ids are 1 to 64 letters, digits, '_' and '-'")
    return token
