"""What facts are made of: guards, tokens, waits, calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec

Path = tuple[int, ...]
SharedOperation = Literal["add", "min", "max", "append", "extend", "union", "count", "merge"]
TimerPurpose = Literal["wait", "admission", "step", "deadline", "execution", "grace"]
ChildOrder = Literal["cancel", "pause", "resume"]
Source = Literal["client", "server", "worker"]


Entity = Literal["playbook", "workflow", "step", "task", "loop", "next", "token", "ctx"]
EventStatus = Literal["in_progress", "success", "error", "paused"]
Fields = Mapping[str, Any]


class Kind(NamedTuple):
    """What is true of every fact of a kind.

    Attributes:
        entity: What it is about, as the envelope says it (LANGUAGE §13 *Envelope*).
        status: As the envelope says it; a function of the fact's fields where it depends on them.
        bounded: There are only as many as there are items, commands or tokens: it does not count as a decision
            (``limits.max_decisions_per_fact``).
        through_halt: Something follows from it even while the execution is paused or looks into a reference.
        ends_halt: After it, decisions that were left out are made up for.
    """

    entity: Entity
    status: EventStatus | Callable[[Fields], EventStatus] = "in_progress"
    bounded: bool = False
    through_halt: bool = False
    ends_halt: bool = False


def by_outcome(fields: Fields) -> EventStatus:
    """The status of a fact with an outcome."""
    return "success" if fields["outcome"]["status"] == "ok" else "error"


def by_status(fields: Fields) -> EventStatus:
    """The status of a fact about how an execution ended."""
    return "success" if fields["status"] == "completed" else "error"


def by_ok(fields: Fields) -> EventStatus:
    """The status of a fact about a request that was accepted or refused."""
    return "success" if fields["ok"] else "error"


class Fact(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag_field="name"):
    """Base of all facts. The tag is the event's name; ``kind`` says what is true of all facts with that name."""

    kind: ClassVar[Kind]

    @classmethod
    def event_name(cls) -> str:
        """``token.held`` of :class:`TokenHeld`."""
        return str(cls.__struct_config__.tag)


class EvaluatedGuard(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A guard that was evaluated: its text, what it gave, and where it stands (``else`` has no text)."""

    when: str
    value: bool
    rule: int


class Token(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A routing envelope that targets a step (formal specification §1.1, LANGUAGE §13).

    ``waves`` is its lineage as joins ask for it: by join step, the last firing it descends from (from 1).
    """

    token_id: str
    step: str
    cause: Literal["start", "arc", "join", "injected", "rerun"]
    args: dict[str, Any] = {}
    from_step: str | None = None
    from_step_run_id: str | None = None
    waves: dict[str, int] = {}


class SharedValue(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a rule contributes to a ``ctx`` key that several iterations share (LANGUAGE §6 ``set_shared``)."""

    op: SharedOperation
    value: Any = None


class ChildCall(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A call of another playbook, pinned to a digest. ``execution_id`` is empty until the server has started it."""

    digest: str
    path: str
    version: str | None = None
    workload: dict[str, Any] = {}
    return_step: str | None = None
    execution_id: str = ""


class Wait(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What the pipeline of one iteration waits for while no worker holds it (LANGUAGE §8).

    Exactly one of: a delay before the next attempt (``delay_s``), a time (``for_s``, ``until_ms``), a signal, a child.
    ``timeout_s`` bounds the last two. ``since_ms`` is when it began, by the fold: 0 until the server has noted it.
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


class Parent(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Who called this execution: the suspended command and iteration that wait for it; ``depth`` of the call."""

    execution_id: str
    step_run_id: str
    command_id: str
    path: Path = ()
    depth: int = 1
    return_step: str | None = None
