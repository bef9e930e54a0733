"""The outputs of a command runner: facts to report, and actions that its driver carries out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeAlias

import msgspec

from noetl_stream.engine.runner.scope import Iteration
from noetl_stream.model.events import Fact, Wait
from noetl_stream.model.messages import Progress
from noetl_stream.model.outcome import ErrorInfo, Outcome, Reference
from noetl_stream.playbook.plan import TaskPlan

Accepted: TypeAlias = tuple[type, ...]


class ReportFacts(msgspec.Struct, frozen=True):
    """Report these facts, in this order. Facts of one report reach the journal together or not at all."""

    facts: tuple[Fact, ...]


class RunTask(msgspec.Struct, frozen=True):
    """Run this task once, in the pipeline of ``iteration`` at ``progress``.

    With an ``answer`` the task has waited, and this is its outcome: the driver only adds its
    :class:`~noetl_stream.model.outcome.Meta`.
    """

    accepts: ClassVar[Accepted] = (Outcome, Wait)
    id: int
    task: TaskPlan
    progress: Progress
    iteration: Iteration
    answer: Outcome | None = None


class LoadReference(msgspec.Struct, frozen=True):
    """Make the value of this reference readable for templates."""

    accepts: ClassVar[Accepted] = (type(None), ErrorInfo)
    id: int
    reference: Reference


class LoadPage(msgspec.Struct, frozen=True):
    """Read this page of a loop's items."""

    accepts: ClassVar[Accepted] = (list, ErrorInfo)
    id: int
    page: Reference


class StorePage(msgspec.Struct, frozen=True):
    """Store these items of a loop as a page."""

    accepts: ClassVar[Accepted] = (Reference,)
    id: int
    items: list[Any]


class Worked(NamedTuple):
    """The result of work in templates."""

    value: Any


class Evaluate(msgspec.Struct, frozen=True):
    """Evaluate templates where it blocks nothing else. The work is bounded by the limits of a rendering."""

    accepts: ClassVar[Accepted] = (Worked, list)
    id: int
    work: Callable[[], Worked | list[Reference]]


class Sleep(msgspec.Struct, frozen=True):
    """Wait before the next action; 0 s only lets other lanes have their turn."""

    accepts: ClassVar[Accepted] = (type(None),)
    id: int
    seconds: float


class Withdraw(msgspec.Struct, frozen=True):
    """End these actions: their results are no longer wanted.

    Until this is completed, one of them that ends on its own may still be completed; it has no effect. Another
    :class:`Withdraw` may be among them, along with those it names that have not ended.
    """

    accepts: ClassVar[Accepted] = (type(None),)
    id: int
    ids: tuple[int, ...]


Action = RunTask | LoadReference | LoadPage | StorePage | Evaluate | Sleep | Withdraw
Output = ReportFacts | Action
