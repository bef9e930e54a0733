"""The parts of facts: guards, tokens, waits, calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Final, Literal

import msgspec

from noetl_stream.model.outcome import RunWarning

Path = tuple[int, ...]
SharedOperation = Literal["add", "min", "max", "append", "extend", "union", "count", "merge"]
TimerPurpose = Literal["wait", "admission", "next", "step", "deadline", "execution", "grace", "compensation"]
ChildOrder = Literal["cancel", "pause", "resume"]
Source = Literal["client", "server", "worker"]
OnLimit = Literal["queue", "reject", "cancel_running", "discard"]
"""The handling of an execution whose key has no free slot (LANGUAGE §15)."""
OnExceeded = Literal["fail", "warn", "suspend"]
"""The consequence of exceeding a quota."""


Entity = Literal["playbook", "workflow", "step", "task", "loop", "next", "token", "ctx"]
EventStatus = Literal["in_progress", "success", "error", "paused"]
Fields = Mapping[str, Any]


class Kind(msgspec.Struct, frozen=True, gc=False):
    """Properties of all facts of a kind.

    Attributes:
        entity: The entity of the fact, as shown in the envelope (LANGUAGE §13 *Envelope*).
        status: The status shown in the envelope; a function of the fact's fields if it depends on them.
        bounded: Whether items, commands or tokens bound its number, so that it does not count as a decision
            (``limits.max_decisions_per_fact``).
        through_halt: Whether decisions follow even while the execution is paused or waits for a reference.
        ends_halt: Whether decisions skipped during a halt are made after it.
    """

    entity: Entity
    status: EventStatus | Callable[[Fields], EventStatus] = "in_progress"
    bounded: bool = False
    through_halt: bool = False
    ends_halt: bool = False


def status_by_outcome(fields: Fields) -> EventStatus:
    """The status of a fact with an outcome."""
    return "success" if fields["outcome"]["status"] == "ok" else "error"


def status_by_end(fields: Fields) -> EventStatus:
    """The status of a fact about the end of an execution."""
    return "success" if fields["status"] == "completed" else "error"


def status_by_ok(fields: Fields) -> EventStatus:
    """The status of a fact about an accepted or rejected request."""
    return "success" if fields["ok"] else "error"


class Fact(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag_field="name"):
    """Base of all facts. The tag is the event name; ``kind`` holds the properties of all facts with that name."""

    kind: ClassVar[Kind]

    width: ClassVar[int] = 1
    """The number of journal positions of the fact: several for a composite one (``model/events/composite.py``)."""

    @classmethod
    def event_name(cls) -> str:
        """The dotted event name, such as ``token.held`` for :class:`TokenHeld`."""
        return str(cls.__struct_config__.tag)


class EvaluatedGuard(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A guard that was evaluated: its text, its value, and its index (``else`` has no text).

    ``waits_for`` is the key of ``ctx`` that it needs and that is still missing (LANGUAGE §4).
    """

    when: str
    value: bool
    rule: int
    waits_for: str = ""


class Evaluated(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The result of a choice: the values of its guards, in order, as far as evaluated, and the rendered values of those
    that hold. ``error`` is the reason why one cannot be evaluated. ``waits_for`` are the missing keys of ``ctx`` that
    guards need, by the index of the guard.
    """

    guards: list[bool] = []
    values: list[Any] = []
    error: str = ""
    waits_for: dict[int, str] = {}


class Token(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A routing envelope that targets a step (formal specification §1.1, LANGUAGE §13).

    ``waves`` is its lineage for joins: by join step, the last firing it descends from (from 1). ``priority`` is that of
    its step run, ``None`` for the execution's. Runs of the step with the same ``partition`` run one after another.
    """

    token_id: str
    step: str
    cause: Literal["start", "arc", "join", "injected", "rerun", "compensation", "finally"]
    args: dict[str, Any] = {}
    from_step: str | None = None
    from_step_run_id: str | None = None
    waves: dict[str, int] = {}
    priority: int | None = None
    partition: str = ""


class LoopCounts(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The counts of ended iterations of a reused loop, for arcs that read it."""

    count: int
    ok: int = 0
    failed: int = 0
    skipped: int = 0
    failed_leaves: int = 0


class Compensation(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The outcome of undoing a step run at the end, with the reason if it was not undone (LANGUAGE §9 *Undoing*)."""

    step: str
    step_run_id: str
    undone: bool = False
    reason: str = ""


class ToleratedFailures(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The failures in all runs of ``step`` that failed nothing else.

    ``count`` and ``failed`` are iterations of the outermost level in successful loops; ``failed_leaves`` as in
    ``loop.done``. ``runs`` are failed runs of the step.
    """

    step: str
    count: int  # written even if 0: version 0.3 decodes none without it
    failed: int = 0
    failed_leaves: int = 0
    runs: int = 0


class TaskWarning(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The first warning of this kind in the outcomes of ``task``, and the number of its runs with one.

    For requests to the execution, ``step`` is empty and ``task`` names their content.
    """

    step: str
    task: str
    warning: RunWarning
    runs: int = 1


class Quotas(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The quotas of an execution: the most of each that it may use (LANGUAGE §14 *Quotas*)."""

    step_runs: int | None = None
    task_runs: int | None = None
    task_seconds: float | None = None
    bytes: int | None = None
    on_exceeded: OnExceeded = "fail"

    @property
    def amounts(self) -> dict[str, float]:
        """The quotas that are set, by name."""
        every = {name: getattr(self, name) for name in QUOTAS}
        return {name: amount for name, amount in every.items() if amount is not None}


QUOTAS: Final = ("step_runs", "task_runs", "task_seconds", "bytes")
"""The names of quotas."""


class SharedValue(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A contribution of a rule to a ``ctx`` key shared by several iterations (LANGUAGE §6 ``set_shared``)."""

    op: SharedOperation
    value: Any = None


class Rate(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The rate at which slots of a key are granted: ``per_s`` on average, ``burst`` at once after a rest."""

    per_s: float
    burst: int = 1


class KeyScope(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The namespace of the keys that a playbook limits by, except those that match a pattern of ``shared`` (LANGUAGE
    §15). Without a namespace all keys are shared.
    """

    namespace: str = ""
    shared: tuple[str, ...] = ()

    def namespace_of(self, key: str) -> str:
        """The namespace of a key as written in the playbook; empty for a shared key."""
        return "" if any(fnmatchcase(key, pattern) for pattern in self.shared) else self.namespace


ALL_SHARED: Final = KeyScope()
"""A single object, which encoders omit by its identity."""


class ChildCall(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A call of another playbook, pinned to a digest. ``execution_id`` is empty until the server has started the call.

    ``pin`` proves that a server has resolved the playbook for this execution.
    """

    digest: str
    path: str
    version: str | None = None
    workload: dict[str, Any] = {}
    return_step: str | None = None
    execution_id: str = ""
    pin: str = ""


class Wait(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The wait of one iteration's pipeline while no worker holds it (LANGUAGE §8).

    Exactly one of: a delay before the next attempt (``delay_s``), a time (``for_s``, ``until_ms``), a signal, a child,
    a slot of the ``key`` that limits the task. ``timeout_s`` bounds a signal and a child. ``since_ms`` is its start and
    ``slot_id`` the id of the slot; the fold sets both.
    """

    path: Path = ()
    task: str = ""
    delay_s: float | None = None
    for_s: float | None = None
    until_ms: int | None = None
    signal: str | None = None
    child: ChildCall | None = None
    timeout_s: float | None = None
    since_ms: int = 0
    key: str | None = None
    slot_id: str = ""


class Parent(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The caller of the execution: the suspended command and iteration that wait for it; ``depth`` of the call."""

    execution_id: str
    step_run_id: str
    command_id: str
    path: Path = ()
    depth: int = 1
    return_step: str | None = None


StartedByKind = Literal["client", "schedule", "trigger", "call", "rerun"]


class StartedBy(msgspec.Struct, frozen=True):
    """The origin of an execution as templates and documents show it.

    Attributes:
        path: Of the schedule or trigger.
        number: The number of the start in the history of a schedule or trigger.
        execution_id: The calling execution, or the original of a rerun.
    """

    kind: StartedByKind
    path: str | None = None
    number: int | None = None
    execution_id: str | None = None


class Origin(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The aggregate that has started the execution, its kind and path, and the number of the start in its history.

    ``depth`` is the length of the chain of triggers on ends that led to it, ``root`` the execution whose end began the
    chain, and ``left`` how many more may follow from it this way; ``None`` without such a root.
    """

    aggregate_id: str
    kind: str
    path: str
    number: int
    depth: int = 0
    root: str = ""
    left: int | None = None
