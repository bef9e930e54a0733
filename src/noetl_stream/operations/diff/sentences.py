"""A divergence in a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from noetl_stream.model.json import codec
from noetl_stream.operations.diff.course import Parts
from noetl_stream.ports.operations.reading.diffs import DivergenceKind, DivergenceSideDocument, ValueDifferencesDocument
from noetl_stream.ports.operations.waits import GuardDocument, WaitingOnDocument

VALUE_CHARS: Final = 120
"""A longer value is cut off in a sentence."""

NAMES_SHOWN: Final = 5


class Subject(NamedTuple):
    """The subject of a divergence."""

    kind: DivergenceKind
    step: str
    task: str | None
    iteration: Sequence[int]

    def __str__(self) -> str:
        if not self.step:
            return "the execution"
        name = f"step `{self.step}`" if self.task is None else f"task `{self.task}` of step `{self.step}`"
        return f"{name}, iteration {'.'.join(map(str, self.iteration))}" if self.iteration else name


class Told(NamedTuple):
    """The act of one execution; ``parts`` is ``None`` without one. ``status`` is its end, empty if it has not ended."""

    name: str
    parts: Parts | None
    side: DivergenceSideDocument
    status: str


def sentence(subject: Subject, a: Told, b: Told, differences: ValueDifferencesDocument) -> str:
    """The sentence on where two executions diverge, and what decided in each."""
    if a.parts is None or b.parts is None:
        there, missing = (a, b) if b.parts is None else (b, a)
        return f"{_done_by(subject, there)} only in {there.name}: {missing.name} {_instead(missing)}"
    if a.parts.choice != b.parts.choice:
        return _choices(subject, a, b)
    differing = DIFFERING.get(subject.kind, "{} ends differently:").format(subject)
    return f"{differing} {_of_value(differences)}"


def _done_by(subject: Subject, told: Told) -> str:
    parts = told.parts
    assert parts is not None
    match subject.kind:
        case "patch":
            return f"ctx is patched ({_names(parts.data['patch'])})"
        case "signal":
            return f"the signal `{parts.data['signal']}` arrives"
        case "cancel":
            return "the execution is cancelled"
        case "finish":
            return f"the execution has ended ({parts.choice['status']})"
        case "token":
            return f"{subject} is reached"
        case "arc":
            return f"{subject} goes on {_to(parts)}"
        case "loop":
            return f"the loop of {subject} begins, with {_count(parts.choice['count'], 'item')},"
        case _:
            return f"{subject} {_outcome(subject.kind, parts)}"


def _instead(told: Told) -> str:
    if told.status:
        return f"has ended ({told.status}) without it"
    place = told.side.place
    return "is not so far" if place is None else f"{PLACES.get(place, place)}{_for(told.side.waiting_on)}"


PLACES: Final[Mapping[str, str]] = {
    "token": "is about to look at it",
    "held": "holds its token at the admission",
    "admission": "waits at the admission",
    "join": "waits at the join",
    "claimed": "is about to run it",
    "queued": "waits for a worker",
    "running": "is still running it",
    "signal": "waits for a signal",
    "child": "waits for the execution it has called",
    "retry": "waits for the next attempt",
    "timer": "waits for a timer",
    "suspended": "is between two iterations",
    "next": "waits for an arc to fire",
    "routing": "is about to choose its arcs",
}


def _for(on: WaitingOnDocument | None) -> str:
    if on is None:
        return ""
    if on.signal is not None:
        return f" (`{on.signal}`)"
    return f": {'; '.join(map(_read, on.guards))}" if on.guards else ""


def _choices(subject: Subject, a: Told, b: Told) -> str:
    assert a.parts is not None and b.parts is not None
    if subject.kind == "arc":
        text = f"{subject} goes on {_to(a.parts)} in A and {_to(b.parts)} in B"
    elif subject.kind == "loop":
        items = _count(a.parts.choice["count"], "item")
        text = f"the loop of {subject} has {items} in A and {b.parts.choice['count']} in B"
    elif a.parts.choice.get("task") != b.parts.choice.get("task"):
        text = f"{subject} runs task `{a.parts.choice['task']}` in A and `{b.parts.choice['task']}` in B"
    else:
        here, there = _outcome(subject.kind, a.parts), _outcome(subject.kind, b.parts)
        text = f"{subject} {here} in A and {there} in B"
    decided = _decided(a.side.guards, b.side.guards)
    return f"{text}: {decided}" if decided else text


def _outcome(kind: DivergenceKind, parts: Parts) -> str:
    choice, message = parts.choice, parts.data.get("message")
    error = "" if choice.get("error") is None else f" ({_cut(': '.join(filter(None, (choice['error'], message))))})"
    match kind:
        case "finish":
            return f"ends {choice['status']}{error}"
        case "admission":
            return f"has its token {choice['token']}{error}"
        case "iteration":
            return f"fails{error}"
        case "loop_end":
            return f"ends with {choice['ok']} iterations done, {choice['failed']} failed, {choice['skipped']} skipped"
        case "task":
            ended = f"fails{error}" if choice["status"] == "error" else "succeeds"
            return ended if choice["do"] == "continue" else f"{ended} and its policy says {choice['do']}{_jump(choice)}"
        case _:
            return f"fails{error}" if choice.get("failed") else "ends well"


def _jump(choice: Mapping[str, Any]) -> str:
    return f" to `{choice['to']}`" if choice["do"] == "jump" else ""


def _to(parts: Parts) -> str:
    arcs = parts.choice["arcs"]
    return f"to {' and '.join(f'`{arc}`' for arc in arcs)}" if arcs else "nowhere"


DIFFERING: Final[Mapping[str, str]] = {
    "workload": "the workloads differ:",
    "patch": "other patches of ctx:",
    "signal": "other signals:",
    "token": "{} begins with other arguments:",
    "loop": "the loop of {} has other items:",
    "task": "{} ends with something else:",
}


def _of_value(differences: ValueDifferencesDocument) -> str:
    one = next((one for one in differences.items if not one.is_volatile), None)
    if one is None:
        return "in what is not shown here"
    a, b = (_value(value) if there else "nothing" for there, value in ((one.in_a, one.a), (one.in_b, one.b)))
    return f"{one.pointer} is {a} in A and {b} in B"


def _decided(a: Sequence[GuardDocument], b: Sequence[GuardDocument]) -> str:
    """The first guard that held in only one, with the values it read in each."""
    in_b = {guard.when: guard for guard in b}
    for guard in a:
        other = in_b.get(guard.when)
        if other is not None and other.holds != guard.holds:
            return f"`{guard.when}` read {_values(guard)} in A and {_values(other)} in B"
    alone = [f"{_read(guard)} in {name}" for name, guards in (("A", a), ("B", b)) for guard in guards if guard.holds]
    return "; ".join(alone[:2])


def _read(guard: GuardDocument) -> str:
    return f"`{guard.when}` reads {_values(guard)}"


def _values(guard: GuardDocument) -> str:
    known = [f"{path} = {_value(value)}" for path, value in guard.values.items()]
    return ", ".join([*known, *(f"no {path}" for path in guard.missing)]) or "nothing"


def _value(value: Any) -> str:
    return _cut(codec.encode(value).decode())


def _cut(text: str) -> str:
    return text if len(text) <= VALUE_CHARS else f"{text[:VALUE_CHARS]}…"


def _names(keys: Mapping[str, Any]) -> str:
    names = [f"`{key}`" for key in keys]
    return ", ".join([*names[:NAMES_SHOWN], *(["…"] if len(names) > NAMES_SHOWN else [])])


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
