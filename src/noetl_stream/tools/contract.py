"""What a tool is. A kind is one class with a :class:`KindSpec` and an async ``run`` (LANGUAGE §12)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.kinds.spec import KindSpec
from noetl_stream.playbook.plan import Timeouts


class ToolFailure(Exception):
    """A tool run that ended in an error outcome. ``result`` is kept with it (http keeps the answer's body)."""

    def __init__(
        self, error: ErrorInfo, *, result: Any = None, helper: Mapping[str, Any] | None = None, output: str = ""
    ) -> None:
        super().__init__(error.message)
        self.error = error
        self.result = result
        self.helper = dict(helper or {})
        self.output = output


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A tool run that went well: plain JSON ``result``, the kind's helper block, captured output text."""

    result: Any
    helper: Mapping[str, Any] = field(default_factory=dict)
    output: str = ""


async def undescribed(name: str) -> dict[str, Any]:
    """All that can be said of a credential where nobody keeps any."""
    return {"name": name, "version": None, "expires_at": None}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One attempt of a task, fully rendered.

    Attributes:
        inputs: Rendered inputs beside ``kind``, not yet validated; verbatim inputs included.
        knobs: The kind's own keys of the effective ``spec``.
        timeouts: Seconds; the worker itself enforces ``total``.
        idempotency_key: The same over redeliveries of this task attempt's step run (DESIGN §2 promise).
        scope: Read-only ``workload``, ``ctx``, ``iter``, ``execution_id`` for kinds with ``reads_scope``.
        credential: Resolves an ``auth`` name to a DSN string or a JSON mapping, or raises :class:`ToolFailure`
            with kind ``credential``.
        describe_credential: What may be shown of it, once its value can be had: ``{name, version, expires_at}``.
    """

    inputs: Mapping[str, Any]
    knobs: Mapping[str, Any]
    timeouts: Timeouts
    idempotency_key: str
    execution_id: str
    step: str
    task: str
    attempt: int
    scope: Mapping[str, Any]
    credential: Callable[[str], Awaitable[str | dict[str, Any]]]
    describe_credential: Callable[[str], Awaitable[dict[str, Any]]] = undescribed


class Tool(Protocol):
    """A tool kind at work. One instance a worker; ``run`` may be called many times at once.

    Cancelling the task that awaits ``run`` must end the work itself: the HTTP call, the statement, the child process.
    """

    spec: KindSpec

    async def run(self, call: ToolCall) -> ToolResult:
        """Does the work once.

        Raises:
            ToolFailure: the error outcome. Anything else that escapes is a defect and becomes kind ``internal``.
        """
        ...

    async def close(self) -> None:
        """Frees sessions, pools and child processes."""
        ...
