"""Diagnostics: the problems of a playbook, their places, and how to fix them (LANGUAGE §0 *The first rule*)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import msgspec
from msgspec.structs import asdict, replace

from noetl_stream.errors import NoetlError

if TYPE_CHECKING:  # it needs templates, which some readers of diagnostics do not load
    from noetl_stream.playbook.codes import Code

Severity = Literal["error", "warning"]

MAX_DIAGNOSTICS: Final = 100
"""The most problems listed for one file; a last entry announces more."""


OLDER_FORMS: Final = frozenset(
    ["legacy_syntax", "root_vars", "step_when", "next_shape", "policy_shape", "control_outside_policy", "misplaced_key"]
)
"""Codes of diagnostics about forms of an older dialect, which ``playbook upgrade`` rewrites (LANGUAGE §16)."""


class Position(msgspec.Struct, frozen=True, order=True):
    """A place in a text. Both numbers start at 1; columns count characters."""

    line: int
    column: int


class Location(Protocol):
    """Anything with a place in a playbook: a node, a key."""

    @property
    def mark(self) -> Position: ...

    @property
    def pointer(self) -> str: ...


class BareLocation(msgspec.Struct, frozen=True):
    """A :class:`Location` that is no node or key."""

    mark: Position
    pointer: str = ""


_IN_TEMPLATE: Final = re.compile(r"`[^`]*`|(?<![\"'])\{\{[^{}]*\}\}(?!\")")
"""The parts of a hint within a template: their quotes differ from those of the surrounding text."""


class Firing(msgspec.Struct, frozen=True):
    """One firing on a path that shows a problem: how a run of a step ended, and where tokens went.

    Attributes:
        step: The step.
        event: ``step.done``, ``loop.done``, ``step.failed``, ``next.timed_out``, or ``token.joined`` for its join.
        line: Of the step.
        to: The steps that got a token.
        repeats: Whether it belongs to the part of the path that may repeat for ever.
    """

    step: str
    event: str
    line: int
    to: tuple[str, ...]
    repeats: bool = False


class Diagnostic(msgspec.Struct, frozen=True):
    """One problem of one file. ``line`` and ``column`` start at 1; ``pointer`` is a JSON pointer into the document.

    ``path`` is a shortest sequence of firings that shows the problem, where one does.
    """

    severity: Severity
    code: str
    message: str
    hint: str | None
    file: str
    line: int
    column: int
    pointer: str
    path: tuple[Firing, ...] = ()

    @classmethod
    def warning(cls, code: str, message: str, hint: str, file: str, at: Location) -> Diagnostic:
        """Makes a warning about a place in a file."""
        mark = at.mark
        return cls("warning", code, message, hint, file, line=mark.line, column=mark.column, pointer=at.pointer)

    def to_json(self) -> dict[str, Any]:
        """The diagnostic as a plain mapping, keyed by attribute name."""
        path = [{**asdict(firing), "to": list(firing.to)} for firing in self.path]
        return {name: getattr(self, name) for name in self.__struct_fields__} | {"path": path}

    def render(self) -> str:
        """The diagnostic as text: ``file:line:column: error[code]: message``, then lines with the hint and the path."""
        text = f"{self.file}:{self.line}:{self.column}: {self.severity}[{self.code}]: {self.message}"
        hint = f"\n  hint: {self.hint}" if self.hint else ""
        return f"{text}{hint}\n  path: {path_text(self.path)}" if self.path else f"{text}{hint}"

    def __lt__(self, other: Diagnostic) -> bool:
        return self._rank < other._rank

    @property
    def _rank(self) -> tuple[str, bool, int, int, str, str, str]:
        return (
            self.file,
            self.code == "too_many_problems",
            self.line,
            self.column,
            self.severity,
            self.code,
            self.message,
        )


def path_text(path: Iterable[Firing]) -> str:
    """A path of firings on one line: ``start → a, b; a → end; again and again: …``."""
    parts = {repeats: [_firing_text(one) for one in path if one.repeats is repeats] for repeats in (False, True)}
    again = f"again and again: {'; '.join(parts[True])}" if parts[True] else ""
    return "; ".join(filter(None, (*parts[False], again)))


def _firing_text(firing: Firing) -> str:
    if firing.event == "token.joined":
        return f"{firing.step} joins"
    event = {"step.failed": " fails", "next.timed_out": " times out"}.get(firing.event, "")
    return f"{firing.step}{event} → {', '.join(firing.to)}" if firing.to else f"{firing.step}{event or ' ends'}"


class InvalidPlaybook(NoetlError):
    """A playbook that cannot run. ``diagnostics`` holds every problem in the file, warnings included."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        errors = [item for item in self.diagnostics if item.severity == "error"]
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        super().__init__(f"{errors[0].render()}{more}" if errors else "invalid playbook")


class TooManyProblems(Exception):
    """Raised when the list of diagnostics is full and holds an error: checking stops."""


class Problems:
    """Collects the diagnostics of one file without duplicates, up to :data:`MAX_DIAGNOSTICS`.

    Beyond that, ``is_truncated`` is set, and :class:`TooManyProblems` is raised as soon as there is an error.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self.has_errors = False
        self._found: dict[tuple[str, int, int, str], Diagnostic] = {}
        self._unreadable: set[str] = set()
        self.is_truncated = False

    def error(self, code: Code, message: str, at: Location, hint: str | None = None) -> None:
        self._add("error", code, message, at, hint)

    def warn(
        self, code: Code, message: str, at: Location, hint: str | None = None, path: Iterable[Firing] = ()
    ) -> None:
        self._add("warning", code, message, at, hint, tuple(path))

    def has_error_on(self, line: int) -> bool:
        return any(one.severity == "error" and one.line == line for one in self._found.values())

    def has_error_at(self, pointer: str, code: Code | None = None) -> bool:
        """Whether an error, of this code if one is given, was reported about the value at a pointer."""
        found = (one for one in self._found.values() if one.severity == "error" and one.pointer == pointer)
        return any(code in (None, one.code) for one in found)

    def has_error_within(self, pointer: str) -> bool:
        """Whether an error was reported about a part of the value at a pointer."""
        return any(one.severity == "error" and one.pointer.startswith(f"{pointer}/") for one in self._found.values())

    def has_said(self, code: Code, line: int) -> bool:
        return any(one.code == code and one.line == line for one in self._found.values())

    def mark_unreadable(self, pointer: str) -> None:
        """Marks the value at a pointer as unreadable and drops later problems at it: they would be consequences."""
        self._unreadable.add(pointer)

    def retract(self, code: Code, after: Position) -> None:
        """Drops the problems with ``code`` after a position: they proved to be consequences of another error."""
        self._found = {
            key: one for key, one in self._found.items() if one.code != code or Position(one.line, one.column) <= after
        }

    def sorted(self) -> tuple[Diagnostic, ...]:
        """All diagnostics, in file order."""
        found = sorted(self._found.values())
        if self.is_truncated:
            severity: Severity = "error" if self.has_errors else "warning"
            message = f"more than {MAX_DIAGNOSTICS} problems (max_diagnostics); the rest are not listed"
            last = replace(
                found[-1], severity=severity, code="too_many_problems", message=message, hint=None, pointer=""
            )
            found.append(last)
        return tuple(found)

    def _add(
        self,
        severity: Severity,
        code: Code,
        message: str,
        at: Location,
        hint: str | None,
        path: tuple[Firing, ...] = (),
    ) -> None:
        if at.pointer in self._unreadable and not code.startswith("yaml_"):
            return
        self.has_errors = self.has_errors or severity == "error"
        if len(self._found) >= MAX_DIAGNOSTICS:
            self.is_truncated = True
            if self.has_errors:
                raise TooManyProblems
            return
        mark = at.mark
        line, column = mark.line, mark.column
        if hint and "'" in hint and getattr(at, "style", "") == "'":
            hint = _IN_TEMPLATE.sub(lambda found: found[0].replace("'", '"'), hint)
        found = Diagnostic(
            severity, code, message, hint, file=self.file, line=line, column=column, pointer=at.pointer, path=path
        )
        # An aliased part is read once per alias, but is in the file once.
        self._found.setdefault((code, line, column, message), found)
