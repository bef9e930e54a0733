"""Executions: start them, look at them, intervene (LANGUAGE §9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from noetl_stream.model.events import InterventionFact
from noetl_stream.ports.operations.documents import Document, Page


class RequestIds(NamedTuple):
    """Ids of a new execution and of its request, drawn before: asking again with them starts nothing twice."""

    execution_id: str
    request_id: str


class Start(NamedTuple):
    """What to run: exactly one of ``playbook`` (its YAML text), ``digest``, and ``path`` with an optional version."""

    path: str | None = None
    version: str | None = None
    digest: str | None = None
    playbook: str | None = None
    workload: Mapping[str, Any] = {}
    ctx: Mapping[str, Any] = {}
    reason: str = ""
    correlation_id: str = ""


class RerunOptions(NamedTuple):
    """A new execution from one step of an ended one (LANGUAGE §9).

    Attributes:
        step: Where it begins: the last run of this step; ``None``: a retry of the run that failed.
        step_run_id: Which run of the step, if it had several.
        ctx: Keys of ``ctx`` that are set first.
        args: In place of those the chosen token had; ``None`` keeps them.
    """

    step: str | None = None
    step_run_id: str | None = None
    ctx: Mapping[str, Any] = {}
    args: Mapping[str, Any] | None = None
    reason: str = ""
    correlation_id: str = ""


class ExecutionFilter(NamedTuple):
    """Which executions of a list: all of these hold. Times are ms since the epoch."""

    status: Sequence[str] = ()
    path: str | None = None
    labels: Mapping[str, str] = {}
    started_from_ms: int | None = None
    started_before_ms: int | None = None
    error: str | None = None
    """Words that the error has, in any order."""


class Executions(Protocol):
    """``by`` is the principal that acts: it stands in the events.

    Raises (any method): :class:`~noetl_stream.errors.Unreachable` when a store is away; with an execution id
    :class:`~noetl_stream.errors.NotFound` where there is none.
    """

    async def start(self, wanted: Start, by: str, ids: RequestIds | None = None) -> Document:
        """The execution as :meth:`get` shows it, once the request is committed.

        Raises:
            PlaybookRefused: the playbook has errors, with its diagnostics; nothing was started.
            NotFound: no such path, version or digest.
        """
        ...

    async def page(self, chosen: ExecutionFilter, limit: int, cursor: str | None) -> Page:
        """Newest first."""
        ...

    async def get(self, execution_id: str) -> Document:
        """Everything that is known of it at a glance; a result kept by reference is ``{"$reference": {…}}``.

        ``steps`` (all runs of each together) and ``waits`` are ``None`` where the journal is long.
        """
        ...

    async def wait(self, execution_id: str, timeout_s: float) -> Document:
        """:meth:`get`, as soon as it has ended or the time is over."""
        ...

    async def result(self, execution_id: str) -> Document:
        """``{"execution_id", "status", "result", "error"}``, a result kept by reference loaded unless it is very large.

        Raises:
            Conflict: it has not ended.
        """
        ...

    async def steps(self, execution_id: str) -> list[Document]:
        """Every step run, in the order they began: its token, times, attempts, outcome or error."""
        ...

    async def iterations(self, execution_id: str, step_run_id: str, limit: int, cursor: str | None) -> Page:
        """The iterations of a loop step's run, by path."""
        ...

    async def events(self, execution_id: str, after: int, limit: int) -> list[Document]:
        """The journal by position, as envelopes (LANGUAGE §13)."""
        ...

    async def ctx(self, execution_id: str) -> Document:
        """``{"ctx", "version", "history"}``: every change by position, with who, why and which keys."""
        ...

    async def ask(self, execution_id: str, fact: InterventionFact) -> Document:
        """A patch, token, signal, cancel, pause or resume, answered by the fold: ``{"execution_id", "position"}``, with
        ``"already": true`` where it was so already. The fact's ``principal`` says who.

        Raises:
            Conflict: the execution has ended or is ending, or ``ctx`` has another version.
            UsageError: it cannot take this: an unknown step, a payload over its limit.
        """
        ...

    async def rerun(self, execution_id: str, wanted: RerunOptions, by: str, ids: RequestIds | None = None) -> Document:
        """The new execution as :meth:`get` shows it; its ``rerun_of`` names the original.

        Raises:
            Conflict: the original has not ended, or nothing of it failed (retry).
            UsageError: it has no such step, or never came to it.
        """
        ...

    async def why(self, execution_id: str) -> Document:
        """Why it is where it is, in sentences, and what would move it."""
        ...

    async def delete(self, execution_id: str, by: str) -> None:
        """Forgets an ended execution: its journal, its row, what it alone keeps in the object store.

        Raises:
            Conflict: it, or the execution that has called it, has not ended; or others name what stands in its journal.
        """
        ...
