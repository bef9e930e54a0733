"""What facts are made of: guards, tokens, waits, calls."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Path = tuple[int, ...]
SharedOperation = Literal["add", "min", "max", "append", "extend", "union", "count", "merge"]
TimerPurpose = Literal["wait", "admission", "step", "deadline", "execution", "grace"]
ChildOrder = Literal["cancel", "pause", "resume"]
Source = Literal["client", "server", "worker"]


class Fact(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag_field="name"):
    """Base of all facts. The tag is the event's name."""


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
