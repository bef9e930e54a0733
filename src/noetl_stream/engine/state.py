"""The folded state of one execution: an immutable value, cheap to copy, keyed by token and step run (DESIGN §3)."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from noetl_stream.model.events import EvaluatedGuard, Fact, Path, Token
from noetl_stream.model.ids import RunId
from noetl_stream.model.limits import Limits
from noetl_stream.model.messages import Progress
from noetl_stream.model.outcome import ErrorInfo, Outcome, StepValue
from noetl_stream.model.reference import Payload

Status = Literal["pending", "running", "completed", "failed", "cancelled"]
ENDED: frozenset[str] = frozenset({"completed", "failed", "cancelled"})


class Occurrence(NamedTuple):
    """A fact with what the fold must know of how it came: the run and number of a worker's event, else ``None``."""

    fact: Fact
    run: RunId | None = None
    number: int = 0


class WaitingToken(msgspec.Struct, frozen=True, gc=False):
    """A token that no step run has consumed yet. Held: admission has said no, with these guards."""

    token: Token
    held: bool = False
    guards: tuple[EvaluatedGuard, ...] = ()


class Loop(msgspec.Struct, frozen=True, gc=False):
    """A loop in counts and a window (DESIGN §3): never an entry per iteration, but for results while they are small.

    ``done`` is a bitmap of ended iterations at and above ``low``; everything below ``low`` has ended. ``results`` is a
    linked list ``(index, payload, rest)`` of at most ``limits.max_inline_bytes``; ``None`` and ``spilled`` above that.
    """

    items: list[Any]
    count: int
    local: bool
    max_in_flight: int
    next_index: int = 0
    low: int = 0
    done: int = 0
    ok: int = 0
    failed: int = 0
    skipped: int = 0
    first_error: ErrorInfo | None = None
    results: tuple[Any, ...] | None = None
    results_bytes: int = 2
    spilled: bool = False

    def has_ended(self, index: int) -> bool:
        return index < self.low or bool(self.done >> (index - self.low) & 1)

    @property
    def ended(self) -> int:
        return self.ok + self.failed + self.skipped


class Assignment(msgspec.Struct, frozen=True, gc=False):
    """A command that is owed an end. ``run`` is the run it is bound to, ``next_number`` that run's next event.

    ``progress`` holds the pipelines that have begun, by iteration index (0 outside loops); ``failures`` the failed
    iterations of a local loop; ``cancelling`` why the server no longer wants it.
    """

    command_id: str
    step_run_id: str
    path: Path = ()
    issue: int = 1
    run: RunId | None = None
    next_number: int = 0
    cancelling: str = ""
    progress: dict[int, Progress] = {}
    failures: dict[int, ErrorInfo] = {}


class StepRun(msgspec.Struct, frozen=True, gc=False):
    """One consumption of a token. ``ctx`` and ``steps`` are what was there when it was claimed (LANGUAGE §5).

    ``patches`` are the ``ctx`` keys it has set itself. ``ended`` is the name of the event it ended with, until that is
    routed, ``error`` that of a failure.
    """

    step_run_id: str
    step: str
    token: Token
    ctx: dict[str, Any]
    steps: dict[str, StepValue]
    loop: Loop | None = None
    vars: dict[str, Any] = {}
    patches: dict[str, Any] = {}
    ended: str = ""
    error: ErrorInfo | None = None


class Execution(msgspec.Struct, frozen=True, gc=False):
    """The state of one execution after the entry at ``position``."""

    execution_id: str
    request_id: str
    digest: str
    status: Status = "pending"
    position: int = 1
    path: str = ""
    version: str | None = None
    trace_id: str = ""
    limits: Limits = Limits()
    workload: dict[str, Any] = {}
    ctx: dict[str, Any] = {}
    ctx_bytes: int = 2
    steps: dict[str, StepValue] = {}
    ends: dict[str, Payload] = {}
    tokens: dict[str, WaitingToken] = {}
    runs: dict[str, StepRun] = {}
    assignments: dict[str, Assignment] = {}
    step_runs: int = 0
    discarded: int = 0
    evaluated: bool = False
    refused: list[dict[str, Any]] = []
    failing: ErrorInfo | None = None
    outcome: Outcome | None = None
    processed: bool = False

    @property
    def ended(self) -> bool:
        return self.status in ENDED
