"""Results: the outcome envelope of a tool run (formal specification §5, LANGUAGE §5), and references.

Large values are kept in the object store, and events refer to them (LANGUAGE §10).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, Literal

import msgspec

from noetl_stream.sealing.data_references import DataReference

EMPTY: msgspec.Raw = msgspec.Raw(b"null")

EXECUTION = "execution"
PLAYBOOK = "playbook"
"""The ``store`` of a reference to a whole execution, which a rerun awaits; ``key`` is its id. Payloads never use it."""


class Reference(msgspec.Struct, frozen=True, omit_defaults=True):
    """A reference to a value that is too large for an event.

    ``size`` counts bytes of JSON; ``checksum`` is ``sha256:<hex>`` over those bytes. ``store`` is ``nats`` for an
    object, ``journal`` for a loop result that is gathered from the journal's iteration results when read, ``head`` for
    the first rows of a ``table``. ``has_data``: the value has references to files or tables.
    """

    store: str
    key: str
    size: int
    checksum: str = ""
    schema_hint: str = ""
    preview: str = ""
    has_data: bool = False
    table: DataReference | None = None

    @property
    def execution_id(self) -> str:
        """The execution that the result belongs to: every key begins with its id (PROTOCOL §3 *Object keys*)."""
        return self.key.partition("." if self.store == "journal" else "/")[0]


class Payload(msgspec.Struct, frozen=True, omit_defaults=True):
    """A result: JSON bytes inline, or a reference, never both.

    The reference is a field outside the JSON value: a tool's answer that looks like a reference remains data.
    """

    value: msgspec.Raw = EMPTY
    reference: Reference | None = None


class Page(msgspec.Struct, frozen=True, array_like=True):
    """A page of a list: ``count`` items from index ``first`` of the whole list, stored behind ``reference``."""

    first: int
    count: int
    reference: Reference


class ItemPosition(msgspec.Struct, frozen=True):
    """The place of one item: ``index`` in the list behind ``page``."""

    page: Reference
    index: int


def place_of(pages: Sequence[Page], index: int) -> ItemPosition:
    """The place of the item at ``index`` of the whole list."""
    page = pages[bisect_right(pages, index, key=attrgetter("first")) - 1]
    return ItemPosition(page.reference, index - page.first)


NOT_UNDONE: Final = "not_undone"
"""The error kind of an execution that undoes another one and could not undo all of it."""

ERROR_KINDS: dict[str, str] = {
    "exception": "the Python code raised an exception",
    "syntax": "the Python code, SQL or input text does not parse",
    "invalid_input": "a rendered tool input has the wrong type or is missing",
    "timeout": "the task, or something it waited for, exceeded its timeout",
    "connection": "the remote end could not be reached or closed the connection",
    "http_status": "the response status was 400 or above, or below 200",
    "sql": "the database rejected a statement",
    "result_not_json": "the result holds something JSON cannot represent",
    "schema_mismatch": "the result does not match its schema (`code` is the JSON pointer), or its table the columns",
    "schema_unavailable": "the schema of the result could not be loaded",
    "checksum_mismatch": "a file does not have the checksum that the task asks for",
    "result_too_large": "the result exceeds a limit",
    "output_too_large": "a response exceeds its limit; the message has the limit and what sets it",
    "credential": "a credential is missing or unusable",
    "environment": "the environment that the task requires cannot be made here",
    "bundle_lost": "the packages of the playbook can no longer be read",
    "crashed": "the child process that ran the code died",
    "disk_full": "the disk of the worker has no room left for what the task keeps there",
    "memory": "processes of the task were killed, since they used all the memory that the operator allows",
    "exit_status": "the command ended with an exit status other than 0",
    "not_found": "what the task names does not exist on the remote end",
    "conflict": "it was changed by someone else since it was read",
    "refused": "the remote end refused the operation",
    "forbidden_address": "the address is not public, and the operator has not allowed it, or has denied it",
    "not_allowed": "the worker's operator does not allow it",
    "not_installed": "the worker has no tool of the task's kind",
    "cancelled": "the run was cancelled",
    "expression_error": "a template or guard could not be evaluated",
    "retries_exhausted": "a retry rule matched after its last attempt",
    "policy_fail": "a policy rule failed the task",
    "limit_exceeded": "a named limit of the engine was reached",
    "quota_exceeded": "the execution used more than a quota of its playbook; `code` is the quota",
    "lease_exhausted": "the command was delivered too often without ending",
    "worker_unfit": "workers could not begin the task, for want of processes, memory or files",
    "command_lost": "the queue lost the command too often before a worker took it",
    "admission_timeout": "a token exceeded admit.wait at its step's admission",
    "routing_timeout": "no arc fired within next.spec.wait of its step",
    "too_many_failures": "more iterations of a loop failed than failure.tolerated allows",
    "join_unsatisfied": "fewer tokens can still arrive than the join needs",
    "child_failed": "the called playbook failed or was cancelled",
    "result_lost": "a result kept in the object store can no longer be read",
    NOT_UNDONE: "what a called playbook has done could not all be undone",
    "quarantined": "the execution was set aside before it could begin",
    "rerun_refused": "the rerun does not match its original",
    "invalid_playbook": "the requested playbook is unknown here, or has errors",
    "limit_reached": "no slot of a limit by key was free, and the playbook does not wait for one",
    "key_taken": "another execution of the playbook has the unique key",
    "invalid_workload": "the workload does not match the playbook's schema of it; `code` is the JSON pointer",
    "internal": "a defect in this project",
}
"""The stable error kinds, with their meanings. A playbook may compare ``outcome.error.kind`` with any of them."""


class ErrorInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """The error of a task, a step or an execution. ``kind`` is one of :data:`ERROR_KINDS` or a plugin's own."""

    kind: str
    message: str
    retryable: bool = False
    retry_after_s: float | None = None
    task: str | None = None
    index: int | None = None
    code: str | None = None


MAX_WARNINGS: Final = 100
"""The most warnings of its tasks that an execution keeps; warnings of one kind of one task count as one."""

MAX_WARNING_CHARACTERS: Final = 4_000


class RunWarning(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A warning about an outcome that may not be what its author meant. ``kind`` is stable: ``digits_lost``."""

    kind: str
    message: str


class Meta(msgspec.Struct, frozen=True, omit_defaults=True):
    """Metadata of one task run. Times are the worker's own, shown but never used in decisions (PROTOCOL §2)."""

    attempt: int = 1
    started_at: str = ""
    ended_at: str = ""
    duration_s: float = 0.0
    worker: str = ""
    trace_id: str = ""


@lru_cache(maxsize=2)  # under load many tasks begin and end in one millisecond
def shown_time(unix_ms: int) -> str:
    """A time in ISO 8601, UTC, to the millisecond."""
    seconds, milliseconds = divmod(unix_ms, 1000)
    return f"{_show_second(seconds)}.{milliseconds:03}Z"


@lru_cache(maxsize=2)
def _show_second(unix_s: int) -> str:
    return datetime.fromtimestamp(unix_s, UTC).replace(tzinfo=None).isoformat()


@lru_cache(maxsize=2)
def parse_shown_time(text: str) -> int:
    """Parses a :func:`shown_time` into milliseconds since the epoch.

    Raises:
        ValueError: it shows no time like this.
    """
    unix_ms = _parse_second(text[:19]) * 1000 + int(text[20:23])
    if shown_time(unix_ms) != text:
        raise ValueError(f"{text!r} is not a time to the millisecond")
    return unix_ms


@lru_cache(maxsize=2)
def _parse_second(text: str) -> int:
    return round(datetime.fromisoformat(f"{text}Z").timestamp())


class Dataset(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Data elsewhere that a task has read or ``written``, by the names of OpenLineage: ``postgres://host:5432`` and
    ``sales.public.orders``. ``columns`` are those that were loaded, where the tool knows them.
    """

    namespace: str
    name: str
    written: bool = False
    columns: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The dataset as lists show it."""
        return f"{self.namespace}/{self.name.lstrip('/')}"


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The envelope of one tool run.

    ``helper`` is the block specific to the task's kind: ``http {status, headers}``, ``pg {code, sqlstate, message}`` or
    ``py {exception_type, traceback}``; templates read it as ``outcome.http`` and so on. ``output`` is captured text.
    ``warnings`` are shown with the execution (LANGUAGE §14). ``stored_bytes`` are those of the files and tables
    that the run has stored, with unfinished ones; ``written`` are references to the finished ones, ``read`` to
    those that it has read, both without seals; ``datasets`` is the data in other systems.
    """

    status: Literal["ok", "error"]
    result: Payload = Payload()
    error: ErrorInfo | None = None
    meta: Meta = Meta()
    helper: dict[str, Any] = {}
    output: str = ""
    warnings: tuple[RunWarning, ...] = ()
    stored_bytes: int = 0
    written: tuple[DataReference, ...] = ()
    read: tuple[DataReference, ...] = ()
    datasets: tuple[Dataset, ...] = ()


class StepValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value of a step for later templates: the outcomes of its last and its named tasks (LANGUAGE §2 *Results*)."""

    outcome: Outcome
    results: dict[str, Outcome] = {}
