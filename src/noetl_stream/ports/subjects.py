"""Subjects shared by several roles (DESIGN §1, PROTOCOL §1, §4)."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from noetl_stream.model.ids import checked_id, partition_of

EVENTS: Final = "EVENTS"
COMMANDS: Final = "COMMANDS"
LOGS: Final = "LOGS"
RESULTS_BUCKET: Final = "noetl-results"
RESULTS: Final = f"OBJ_{RESULTS_BUCKET}"
"""The streams, and the bucket of the object store that RESULTS is."""

STOP: Final = "noetl.stop"
"""Server → workers: :class:`~noetl_stream.model.messages.Stop`."""

SERVERS: Final = "noetl.servers"
"""Server → servers: presence; the body is the owner's name."""

INBOX: Final = "noetl.inbox"
"""Server → servers: partitions with new inbox messages, as a JSON list."""

ANSWERED: Final = "noetl.answered"
"""Server → client: the answer to a request, once it is committed."""

PING: Final = "noetl.ask.ping"
"""Anyone → any server: is one alive?"""

ASK_REQUEST: Final = "noetl.ask.request"
ASK_PLAYBOOK: Final = "noetl.ask.playbook"
ASK_RESULT: Final = "noetl.ask.result"
"""Anyone → any server: the gathered result of a loop, as a reference into the object store. The key of the loop's
reference follows: execution and step run.
"""

ASK_CATALOG: Final = "noetl.ask.catalog"
"""Worker → any server: which playbook has this path and version? Both are in the body, since paths have slashes."""

ASK_WORKERS: Final = "noetl.ask.workers"
"""Anyone → every worker, which answers with its :class:`~noetl_stream.model.messages.WorkerPresence`."""

ASK_SECRET: Final = "noetl.ask.secret"
"""Worker → any server: :class:`~noetl_stream.model.messages.SecretQuestion`."""


def ask_request(execution_id: str, request_id: str) -> str:
    """Was this request folded, and what is its answer?"""
    return f"{ASK_REQUEST}.{execution_id}.{request_id}"


def answered(execution_id: str, request_id: str) -> str:
    """The subject of the answer to a request, sent once it is committed; :func:`ask_request` returns the same later."""
    return f"{ANSWERED}.{execution_id}.{request_id}"


ALL_DECIDED: Final = "noetl.events.*.*.decided"
"""The journal records of all servers."""


@lru_cache(maxsize=8192)
def reported(execution_id: str) -> str:
    """The subject of reports and requests for this execution; the partition is a function of the id.

    Raises:
        UsageError: the id is not valid in a subject.
    """
    return f"noetl.events.{partition_of(execution_id)}.{checked_id(execution_id)}.reported"


@lru_cache(maxsize=8192)
def decided(partition: int, execution_id: str) -> str:
    """The subject of this execution's journal records, stored and live.

    Raises:
        UsageError: the id is not valid in a subject.
    """
    return f"noetl.events.{partition}.{checked_id(execution_id)}.decided"


def playbook_key(digest: str) -> str:
    """The object store key of a playbook's source, until the fold has copied it."""
    return f"playbook/{digest}"


def command_subject(pool: str, execution_id: str, command_id: str) -> str:
    """The subject of a command, unique in the queue.

    Raises:
        UsageError: an id is not valid in a subject.
    """
    return f"noetl.commands.{checked_id(pool)}.{checked_id(execution_id)}.{checked_id(command_id)}"


def any_pool_subject(execution_id: str, command_id: str) -> str:
    """The subject of a command in any pool.

    Raises:
        UsageError: an id is not valid in a subject.
    """
    return f"noetl.commands.*.{checked_id(execution_id)}.{checked_id(command_id)}"
