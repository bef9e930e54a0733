"""The contract of tools. A kind is a class with a :class:`KindSpec` and an async ``run`` (LANGUAGE §12)."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, Protocol, Self, TypeAlias, runtime_checkable

import msgspec

from noetl_stream.model.outcome import ErrorInfo, RunWarning
from noetl_stream.model.task_log import LogStream
from noetl_stream.playbook.kinds.spec import KindSpec
from noetl_stream.playbook.plan import TablePlan, Timeouts
from noetl_stream.sealing.data_references import Column, DataReference


class ToolFailure(Exception):
    """A failed tool run, which becomes an error outcome. ``result`` is kept with it (http keeps the response)."""

    def __init__(
        self,
        error: ErrorInfo,
        *,
        result: Any = None,
        helper: Mapping[str, Any] | None = None,
        output: str = "",
        warnings: tuple[RunWarning, ...] = (),
    ) -> None:
        super().__init__(error.message)
        self.error = error
        self.result = result
        self.helper = dict(helper or {})
        self.output = output
        self.warnings = warnings

    @classmethod
    def of(
        cls,
        kind: str,
        message: str,
        *,
        retryable: bool = False,
        code: str | None = None,
        result: Any = None,
        helper: Mapping[str, Any] | None = None,
        output: str = "",
    ) -> Self:
        """Makes a failure of this error kind."""
        error = ErrorInfo(kind, message, retryable=retryable, code=code)
        return cls(error, result=result, helper=helper, output=output)


class WorkerUnfit(Exception):
    """This worker could not begin the task. Its command goes back to the queue, a few times (PROTOCOL §3).

    Attributes:
        for_good: Whether the worker cannot recover, and ends, so that its supervisor starts another one.
    """

    def __init__(self, reason: str, *, for_good: bool = False) -> None:
        super().__init__(reason)
        self.for_good = for_good


SHORTAGE: Final = frozenset({errno.ENOMEM, errno.EMFILE, errno.ENFILE})
"""The errors of a worker that is out of memory or descriptors, independent of the task."""
OWN_TROUBLE: Final = SHORTAGE | {errno.EAGAIN, errno.ENOSPC, errno.EDQUOT}
"""The errors of a worker that cannot start a process, or write a file of its own."""


@contextmanager
def beginning(what: str, errors: Collection[int] = SHORTAGE) -> Iterator[None]:
    """Distinguishes a worker's own trouble from errors of a task that has not begun: ``cannot <what>: <why>``.

    Raises:
        WorkerUnfit: The context raised an ``OSError`` with one of these numbers.
    """
    try:
        yield
    except OSError as error:
        if (unfit := unfit_for(what, error, errors)) is not None:
            raise unfit from None
        raise


def unfit_for(what: str, error: OSError, errors: Collection[int] = SHORTAGE) -> WorkerUnfit | None:
    """The worker's own trouble, if the error has one of these numbers."""
    return WorkerUnfit(f"cannot {what}: {error.strerror or error}") if error.errno in errors else None


class ToolResult(msgspec.Struct, frozen=True):
    """A successful tool run: plain JSON ``result``, the kind's block in ``outcome``, captured output, warnings."""

    result: Any
    helper: Mapping[str, Any] = {}
    output: str = ""
    warnings: tuple[RunWarning, ...] = ()


async def describe_name_only(name: str) -> dict[str, Any]:
    """Describes a credential by its name, without a credential store."""
    return {"name": name, "version": None, "expires_at": None}


Write: TypeAlias = Callable[[LogStream, bytes], None]
"""A consumer of a task's output, ``stdout`` or ``stderr``, in arbitrary pieces of bytes."""


def ignore_output(stream: LogStream, data: bytes) -> None:
    """Ignores a task's output, for :attr:`ToolCall.write` without a log."""


def ignore_heartbeat(details: Any) -> None:
    """Ignores a heartbeat, for :attr:`ToolCall.beat` without a server."""


async def no_operator_credential(name: str) -> bool:
    """Returns ``False``, for :attr:`ToolCall.is_operators` where the operator has no credentials."""
    return False


class DataStore(Protocol):
    """The files and tables of one attempt: none is ever in memory as a whole (LANGUAGE §10 *Files and tables*)."""

    async def save(
        self,
        pieces: AsyncIterator[bytes],
        *,
        name: str = "",
        media_type: str = "",
        columns: Sequence[Column] | None = None,
        rows: int | None = None,
        head: Sequence[Any] = (),
    ) -> dict[str, Any]:
        """Stores a file, or a table with ``columns`` and ``rows`` as a Parquet file; returns the reference to it as a
        value of the language. An error of ``pieces`` ends the writing.

        Args:
            head: The first rows of a table as plain JSON. Templates may read those within the size limit.

        Raises:
            ToolFailure: ``limit_exceeded``: the execution may store no more.
        """
        ...

    def reference(self, value: Any) -> DataReference | None:
        """Returns the reference in a rendered value, if this task may open it; ``None`` if the value is data."""
        ...

    def read(self, reference: DataReference) -> AsyncIterator[bytes]:
        """Yields the bytes of a file or table that :meth:`reference` returned, in order.

        The call itself is recorded as a reading.

        Raises:
            ToolFailure: ``result_lost``: it is gone or damaged, which may only be detected at its end.
        """
        ...

    def note(self, namespace: str, name: str, *, written: bool, columns: Sequence[str] = ()) -> None:
        """Notes a dataset in another system that the task has read or written, by its OpenLineage names.

        Args:
            columns: The columns that were loaded, each from the one of that name in the table that the task has read.
        """
        ...


class NoData:
    """:class:`DataStore` for :attr:`ToolCall.data` without an object store."""

    async def save(self, pieces: AsyncIterator[bytes], **about: Any) -> dict[str, Any]:
        raise ToolFailure.of("not_allowed", "there is no object store here")

    def reference(self, value: Any) -> DataReference | None:
        return None

    def read(self, reference: DataReference) -> AsyncIterator[bytes]:
        raise ToolFailure.of("not_allowed", "there is no object store here")

    def note(self, namespace: str, name: str, *, written: bool, columns: Sequence[str] = ()) -> None:
        """Does nothing."""


async def no_bundle() -> bytes:
    """Fails, for :attr:`ToolCall.read_bundle` without a store."""
    raise ToolFailure.of("bundle_lost", "there is no store of packages here")


class ToolCall(msgspec.Struct, frozen=True):
    """One attempt of a task, fully rendered.

    Attributes:
        inputs: The rendered inputs and the verbatim ones, not yet validated.
        knobs: The kind's own keys in the effective ``spec``.
        timeouts: The task's timeouts in seconds. The worker itself enforces ``total``.
        idempotency_key: The same for every redelivery of this attempt (DESIGN §2 promise).
        trust_domain: The same for runs of one playbook, in one version, for one principal. Runs of different domains
            must not share a process.
        namespace: The namespace of the execution: tasks of one wait for those of another at no bound that they share
            longer than their turn takes. Empty if unknown.
        scope: Read-only ``workload``, ``ctx``, ``iter``, ``execution_id`` for kinds with ``reads_scope``.
        credential: Resolves a credential name to text, such as a DSN, or a JSON mapping. Raises :class:`ToolFailure`
            with kind ``credential``.
        describe_credential: Resolves a credential name to ``{name, version, expires_at}``, without its value.
        is_operators: Whether the credential of that name was configured by the operator for this installation, and not
            stored by somebody: such a credential may reach a host on a private network. Raises like ``credential``.
        traceparent: The W3C header for calls: HTTP requests send it, processes have it as ``TRACEPARENT``. Empty if the
            execution belongs to no trace.
        attributes: Filled by the tool, for the span of the attempt: the target of its call, by the semantic conventions
            of OpenTelemetry, and nothing that may be secret, such as the path or query of a URL.
        queued: A context that shows what the task waits for at its worker before it begins.
        bundle: The name of the packages that the task's Python code can import; else empty.
        data: The files and tables that the task may read, and the store for its own.
        read_bundle: Returns the bytes of that bundle. Raises :class:`ToolFailure` with kind ``bundle_lost``.
        write: Adds to the log of the attempt, at once, from the event loop only. Secrets are removed.
        beat: Reports the progress of the attempt, as JSON, from the event loop only. Secrets are removed.
        previous_details: The last report of the task's previous attempt, or of this one before its command was
            redelivered; ``None`` without one.
    """

    inputs: Mapping[str, Any]
    knobs: Mapping[str, Any]
    timeouts: Timeouts
    idempotency_key: str
    execution_id: str
    step: str
    task: str
    attempt: int
    trust_domain: str
    scope: Mapping[str, Any]
    credential: Callable[[str], Awaitable[str | dict[str, Any]]]
    describe_credential: Callable[[str], Awaitable[dict[str, Any]]] = describe_name_only
    is_operators: Callable[[str], Awaitable[bool]] = no_operator_credential
    write: Write = ignore_output
    beat: Callable[[Any], None] = ignore_heartbeat
    previous_details: Any = None
    queued: Callable[[str], AbstractContextManager[None]] = lambda _what: nullcontext()
    traceparent: str = ""
    attributes: dict[str, str | int] = {}
    data: DataStore = NoData()
    bundle: str = ""
    namespace: str = ""
    read_bundle: Callable[[], Awaitable[bytes]] = no_bundle


class Tool(Protocol):
    """A tool. A worker has one instance per kind; ``run`` may be called concurrently.

    Cancelling ``run`` must end the work itself: the HTTP call, the statement, the child process.
    """

    spec: KindSpec

    async def run(self, call: ToolCall) -> ToolResult:
        """Runs the task once.

        Raises:
            ToolFailure: The error outcome. Any other exception is a bug and becomes kind ``internal``.
            WorkerUnfit: The task has not begun. An ``OSError`` of :data:`SHORTAGE` counts as one.
        """
        ...

    async def close(self) -> None:
        """Releases sessions, pools and child processes."""
        ...


@runtime_checkable
class Debugged(Protocol):
    """A tool whose code a person may debug where it raises. Its runs have no timeout then.

    Attributes:
        debugger: The descriptor of a socket to a terminal; ``None``: nobody debugs.
    """

    debugger: int | None


class BadRows(msgspec.Struct, frozen=True):
    """The number of rows that break the rules of a table, and descriptions of the first ones."""

    count: int
    first: Sequence[str] = ()

    def __str__(self) -> str:
        return "; ".join([*self.first, *(["…"] if self.count > len(self.first) else [])])


@runtime_checkable
class ChecksTables(Protocol):
    """A tool that can also check tables for its worker."""

    async def bad_rows(self, call: ToolCall, table: Any, plan: TablePlan) -> BadRows:
        """Returns the rows of a table by reference that break the rules of ``plan``.

        Raises:
            ToolFailure: As of a task of the kind.
            WorkerUnfit: As of a task of the kind.
        """
        ...


@runtime_checkable
class SelfTested(Protocol):
    """A tool that can test whether its tasks can begin."""

    async def self_test(self) -> None:
        """Begins something that a task needs, such as a process, and ends it.

        Raises:
            WorkerUnfit: A task could not begin.
        """
        ...
