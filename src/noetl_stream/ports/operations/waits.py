"""The waits of executions (LANGUAGE §9)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from noetl_stream.model.envelope import Time
from noetl_stream.ports.operations.cluster import AwaitedSlotDocument
from noetl_stream.ports.operations.verbs import Document


class GuardDocument(Document, frozen=True):
    """A guard that would end a wait, with what it reads now: ``values`` by path, and the paths that are ``missing``.

    ``holds`` is null if it cannot be evaluated, or only at too high a cost. ``to`` is the step that an arc leads to.
    """

    when: str
    holds: bool | None
    values: dict[str, Any]
    missing: list[str]
    to: str | None


class TimerDocument(Document, frozen=True):
    """A timer that would end a wait. ``on_timeout``: what follows at an admission or a ``next``."""

    purpose: Literal["wait", "admission", "next", "step", "deadline", "execution", "grace", "compensation"]
    due: Time
    on_timeout: Literal["fail", "discard"] | None


class AwaitedChildDocument(Document, frozen=True):
    """A called execution; ``status`` is null where it was not asked for."""

    execution_id: str
    path: str
    status: str | None


class AwaitedJoinDocument(Document, frozen=True):
    """The steps whose tokens have ``arrived`` at a join, and what can still reach it."""

    tokens: Literal["all", "any"] | int | None
    arrived: list[str]
    coming: list[str]


class AwaitedPoolDocument(Document, frozen=True):
    """The workers of the pool of a command, how many commands are ``queued`` there, and how many of them are ``ahead``
    with a higher ``priority`` than its own; null where it was not asked for.
    """

    pool: str
    workers: int | None = None
    slots: int | None = None
    busy: int | None = None
    queued: int | None = None
    priority: int | None = None
    ahead: int | None = None


class ExpectedValueDocument(Document, frozen=True, omit_defaults=True):
    """A value that a guard compares with. ``moves``: whether it would end the wait; null in a payload. ``to``: the
    steps that would follow.
    """

    value: Any
    moves: bool | None = None
    to: list[str] = msgspec.field(default_factory=list)


class ExpectedKeyDocument(Document, frozen=True, omit_defaults=True):
    """A key of ``ctx``, or of the payload of a signal, that the playbook reads. ``path`` is there for a key inside
    another: the keys that lead to it, for a merge patch; ``key`` has them joined by dots.
    """

    key: str
    values: list[ExpectedValueDocument]
    path: list[str] = msgspec.field(default_factory=list)


class WaitingOnDocument(Document, frozen=True, omit_defaults=True):
    """What would end a wait; only what applies is there. ``ctx`` and ``steps`` are the keys and steps that the guards
    read, ``commands`` the commands that have to end, ``request`` what someone has to ask for, ``choices`` the tokens
    and step runs whose templates are evaluated by another process. Only ``why`` has ``expects``, the answers that the
    playbook knows, and ``schema``, the JSON Schema of a signal's payload. ``slot`` is that of a key.
    """

    guards: list[GuardDocument] = msgspec.field(default_factory=list)
    ctx: list[str] = msgspec.field(default_factory=list)
    steps: list[str] = msgspec.field(default_factory=list)
    timer: TimerDocument | None = None
    signal: str | None = None
    child: AwaitedChildDocument | None = None
    join: AwaitedJoinDocument | None = None
    commands: list[str] = msgspec.field(default_factory=list)
    worker: str | None = None
    pool: AwaitedPoolDocument | None = None
    request: Literal["resume"] | None = None
    reference: str | None = None
    choices: list[str] = msgspec.field(default_factory=list)
    execution: str | None = None
    partition: int | None = None
    expects: list[ExpectedKeyDocument] = msgspec.field(default_factory=list)
    schema: Any = None
    slot: AwaitedSlotDocument | None = None


class WaitDocument(Document, frozen=True):
    """Something it waits for. ``until``: when the wait times out."""

    step: str
    task: str | None
    iteration: list[int]
    what: str = msgspec.field(name="for")
    until: Time | None
    waiting_on: WaitingOnDocument = WaitingOnDocument()
