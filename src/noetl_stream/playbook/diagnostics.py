"""What is wrong in a playbook, where, and how to write it instead (LANGUAGE, first rule: nothing is silent)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, Final, Literal, Protocol

from noetl_stream.errors import NoetlError

Severity = Literal["error", "warning"]

MAX_DIAGNOSTICS: Final = 200
"""Problems of one file that are listed; of more, the last entry says so."""
MAX_COMPARED: Final = 500
MAX_LISTED: Final = 20


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a text; both numbers start at 1 and columns count characters."""

    line: int
    column: int


class Location(Protocol):
    """Anything that stands somewhere in a playbook: a node, a key."""

    @property
    def mark(self) -> Position: ...

    @property
    def pointer(self) -> str: ...


@dataclass(frozen=True, slots=True)
class BareLocation:
    """A bare :class:`Location`."""

    mark: Position
    pointer: str = ""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One problem of one file. ``line`` and ``column`` start at 1; ``pointer`` is a JSON pointer into the document."""

    severity: Severity
    code: str
    message: str
    hint: str | None
    file: str
    line: int
    column: int
    pointer: str

    def to_json(self) -> dict[str, Any]:
        """The diagnostic as a plain mapping with the attributes' names as keys."""
        return {name: getattr(self, name) for name in self.__slots__}

    def render(self) -> str:
        """``file:line:column: error[code]: message`` and, on a line of its own, the hint."""
        text = f"{self.file}:{self.line}:{self.column}: {self.severity}[{self.code}]: {self.message}"
        return f"{text}\n  hint: {self.hint}" if self.hint else text

    def __lt__(self, other: Diagnostic) -> bool:
        return self._rank < other._rank

    @property
    def _rank(self) -> tuple[str, int, int, str, str, str]:
        return (self.file, self.line, self.column, self.severity, self.code, self.message)


class InvalidPlaybook(NoetlError):
    """A playbook that cannot run. ``diagnostics`` holds every problem of the file, warnings included."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        errors = [item for item in self.diagnostics if item.severity == "error"]
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        super().__init__(f"{errors[0].render()}{more}" if errors else "this playbook is not valid")


class ListIsFull(Exception):
    """More is wrong than is listed: nothing that further looking finds would be shown, nor is there a plan."""


class Problems:
    """Collects the diagnostics of one file, at most :data:`MAX_DIAGNOSTICS`; the same one at the same place once.

    ``is_full``: there were more. An error among more of them raises :class:`ListIsFull`.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self.has_errors = False
        self._found: dict[tuple[str, int, int, str], Diagnostic] = {}
        self._spoiled: set[str] = set()
        self.is_full = False

    def error(self, code: str, message: str, at: Location, hint: str | None = None) -> None:
        self._add("error", code, message, at, hint)

    def warn(self, code: str, message: str, at: Location, hint: str | None = None) -> None:
        self._add("warning", code, message, at, hint)

    def spoil(self, pointer: str) -> None:
        """Says that the value there could not be read whole: what else seems wrong with it follows from that."""
        self._spoiled.add(pointer)

    def sorted(self) -> tuple[Diagnostic, ...]:
        """All diagnostics in the order of the file."""
        found = sorted(self._found.values())
        if self.is_full:
            severity: Severity = "error" if self.has_errors else "warning"
            message = f"more than max_diagnostics, {MAX_DIAGNOSTICS} problems: the others are not listed"
            last = found[-1]
            found.append(
                Diagnostic(
                    severity=severity,
                    code="too_many_problems",
                    message=message,
                    hint=None,
                    file=self.file,
                    line=last.line,
                    column=last.column,
                    pointer="",
                )
            )
        return tuple(found)

    def _add(self, severity: Severity, code: str, message: str, at: Location, hint: str | None) -> None:
        if at.pointer in self._spoiled and not code.startswith("yaml_"):
            return
        self.has_errors = self.has_errors or severity == "error"
        if len(self._found) >= MAX_DIAGNOSTICS:
            self.is_full = True
            if self.has_errors:
                raise ListIsFull
            return
        mark = at.mark
        found = Diagnostic(
            severity=severity,
            code=code,
            message=message,
            hint=hint,
            file=self.file,
            line=mark.line,
            column=mark.column,
            pointer=at.pointer,
        )
        # An aliased part is read once for each alias, but a person sees its text once.
        self._found.setdefault((code, mark.line, mark.column, message), found)


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """``did you mean `x`?`` for the nearest known word, or ``None``."""
    near = nearest(word, known)
    return f"did you mean `{near}`?" if near else None


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word most like ``word``, if one is like it at all; case, ``-`` and ``_`` do not count.

    Comparing takes a while: of many known words the first :data:`MAX_COMPARED` are looked at.
    """
    return _nearest(word, tuple(islice(known, MAX_COMPARED)))


@lru_cache(maxsize=MAX_DIAGNOSTICS)
def _nearest(word: str, known: tuple[str, ...]) -> str | None:
    folded = {name.lower().replace("-", "_"): name for name in known}
    close = difflib.get_close_matches(word.lower().replace("-", "_"), folded, n=1, cutoff=0.6)
    return folded[close[0]] if close else None


def listed(names: Iterable[str]) -> str:
    """Names as people read them: `` `a`, `b` ``; of many the first :data:`MAX_LISTED`."""
    shown = [f"`{name}`" for name in names]
    return ", ".join(shown[:MAX_LISTED]) + (f" and {len(shown) - MAX_LISTED} more" if len(shown) > MAX_LISTED else "")
