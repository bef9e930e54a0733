"""The lines of a history, read and put together: calls with their answers, requests with all their calls."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")
ENDED: Final = frozenset({"completed", "failed", "cancelled"})
READS: Final = frozenset({"read", "start"})
"""Verbs whose answer shows an execution."""

FIELDS: Final = {
    "asked": {"call", "client", "verb"},
    "answered": {"call", "outcome"},
    "fed": {"reader", "execution", "position", "event"},
    "effect": {"execution", "key"},
    "fault": {"kind", "until"},
    "due": {"source", "of"},
    "started": {"source", "of", "execution"},
    "skipped": {"source", "of", "reason"},
}
"""What a line of each kind has beside ``at``, in seconds of one clock, and ``what``."""


class BadHistory(ValueError):
    """A line that is none of a history."""


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """A line: its number, from 1, and what it says."""

    number: int
    at: float
    body: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.body.get(name)


class Call(NamedTuple):
    """A call of a client, and its answer if one came."""

    asked: Line
    answered: Line | None

    @property
    def outcome(self) -> str:
        """``accepted``, ``refused`` or ``unknown``."""
        return "unknown" if self.answered is None else str(self.answered["outcome"])

    @property
    def document(self) -> dict[str, Any]:
        """What the answer shows, if it was accepted."""
        return (self.answered["document"] or {}) if self.answered is not None and self.outcome == "accepted" else {}

    @property
    def execution(self) -> str | None:
        found = self.asked["execution"] or self.document.get("execution_id")
        return None if found is None else str(found)

    @property
    def lines(self) -> list[Line]:
        return [self.asked, *([self.answered] if self.answered is not None else [])]


class Request(NamedTuple):
    """A change that was asked for under one key, in one call or more."""

    key: str
    calls: Sequence[Call]

    @property
    def verb(self) -> str:
        return str(self.calls[0].asked["verb"])

    @property
    def expects(self) -> dict[str, Any]:
        """What the client of a start knows of its playbook: ``status``, ``result``, how many ``effects`` each step has,
        ``after`` which steps each comes, ``unless`` which kinds of faults befall it; if ``end`` is ``any``, nothing.
        """
        return self.calls[0].asked["expects"] or {}

    @property
    def accepted(self) -> Call | None:
        """The call that was accepted first."""
        found = [call for call in self.calls if call.outcome == "accepted"]
        return min(found, key=lambda call: call.lines[-1].at, default=None)

    @property
    def is_refused(self) -> bool:
        """Whether every call was."""
        return all(call.outcome == "refused" for call in self.calls)

    @property
    def began(self) -> float:
        return self.calls[0].asked.at

    @property
    def ended(self) -> float:
        """When it was surely done."""
        return float("inf") if self.accepted is None else self.accepted.lines[-1].at

    @property
    def position(self) -> int | None:
        """Where the journal of its execution has it, as the answer says."""
        return None if self.accepted is None or self.verb == "start" else self.accepted.document.get("position")

    @property
    def lines(self) -> list[Line]:
        return (self.accepted or self.calls[0]).lines


class History:
    """A whole history."""

    def __init__(self, texts: Iterable[str]) -> None:
        lines = [_line(number, text) for number, text in enumerate(texts, 1) if text.strip()]
        self._kinds = grouped((line["what"], line) for line in lines)

    def of(self, *kinds: str) -> list[Line]:
        return [line for kind in kinds for line in self._kinds[kind]]

    def faults(self, since: float, until: float) -> list[Line]:
        """Those that had begun by ``until``, and whose consequences had not passed at ``since``."""
        return [line for line in self.of("fault") if line.at <= until and line["until"] >= since]

    @cached_property
    def calls(self) -> list[Call]:
        asked, answers = {line["call"] for line in self.of("asked")}, dict[Any, Line]()
        for line in self.of("answered"):
            if line["call"] not in asked or answers.setdefault(line["call"], line) is not line:
                raise BadHistory(f"line {line.number}: answers a call that nobody made, or that is answered")
        return [Call(line, answers.get(line["call"])) for line in self.of("asked")]

    @cached_property
    def requests(self) -> list[Request]:
        """All that has a key, which is one of its verb and execution."""
        keyed = grouped(((call.asked["verb"], call.asked["execution"], call.asked["key"]), call) for call in self.calls)
        return [Request(key, calls) for (_, _, key), calls in keyed.items() if key is not None]

    @cached_property
    def starts(self) -> dict[str, Request]:
        """By the execution that was accepted."""
        accepted = [one for one in self.requests if one.verb == "start" and one.accepted is not None]
        return {str(one.accepted.execution): one for one in accepted if one.accepted is not None}

    @cached_property
    def changes(self) -> dict[str, list[Request]]:
        """What was asked of executions, by execution."""
        return grouped((str(one.calls[0].execution), one) for one in self.requests if one.verb != "start")

    @cached_property
    def reads(self) -> dict[str, list[Call]]:
        """The calls whose answer shows an execution, by execution, in the order of the answers."""
        shown = [call for call in self.calls if call.asked["verb"] in READS and "status" in call.document]
        shown.sort(key=lambda call: call.lines[-1].at)
        return grouped((str(call.execution), call) for call in shown)

    @cached_property
    def feeds(self) -> dict[str, dict[str, list[Line]]]:
        """What readers were fed, in order, by execution and reader."""
        fed = grouped((line["execution"], line) for line in self.of("fed"))
        return {one: grouped((line["reader"], line) for line in lines) for one, lines in fed.items()}

    @cached_property
    def effects(self) -> dict[str, list[Line]]:
        """What the outside world saw, by execution."""
        return grouped((line["execution"], line) for line in self.of("effect"))


def grouped(pairs: Iterable[tuple[Key, Value]]) -> defaultdict[Key, list[Value]]:
    """The values of each key, in order; an empty list for any other key."""
    found: defaultdict[Key, list[Value]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return found


def _line(number: int, text: str) -> Line:
    try:
        body = json.loads(text)
        at, wanted = float(body["at"]), FIELDS[body["what"]]
    except (ValueError, TypeError, KeyError):
        raise BadHistory(f"line {number}: is no line of a history: {text.strip()[:80]}") from None
    if missing := wanted - body.keys():
        raise BadHistory(f"line {number}: a line of kind {body['what']} lacks {', '.join(sorted(missing))}")
    return Line(number, at, body)
