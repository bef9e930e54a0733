"""Decides whether a legal history explains what clients saw: ``python -m noetl_testkit.history.check FILE``.

A history is a file with one JSON object a line (:mod:`~noetl_testkit.history.lines`): what clients asked and were
answered, events that feeds gave them, effects that the outside world saw. Each violation of a rule is printed with the
lines that prove it; the exit code is then 1. No code of the system is imported: its mistakes are not repeated here.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from noetl_testkit.history.lines import ENDED, BadHistory, Call, History, Line, Request, grouped
from noetl_testkit.history.registers import Operation, register_problems

LAST: Final = "playbook.processed"
"""The last event of every journal."""

PROCESSED: Final = "task.processed"
NOT_FOUND: Final = 404

Found = Iterator[tuple[str, Sequence[Line]]]


class Violation(NamedTuple):
    """What no legal history explains: the rule, what is wrong, and the lines that prove it."""

    rule: str
    text: str
    lines: Sequence[Line]

    def __str__(self) -> str:
        shown = (f"  line {line.number}: {json.dumps(line.body)}" for line in self.lines)
        return "\n".join([f"{self.rule}: {self.text}", *shown])


def violations(texts: Iterable[str]) -> list[Violation]:
    """What is wrong with the history of these lines.

    Raises:
        BadHistory: it is none.
    """
    history = History(texts)
    return [Violation(name, text, lines) for name, rule in RULES.items() for text, lines in rule(history)]


def start_problems(history: History) -> Found:
    """One request starts one execution, and no other request starts that one."""
    seen: dict[str, Call] = {}
    for request in (one for one in history.requests if one.verb == "start"):
        accepted = [call for call in request.calls if call.outcome == "accepted"]
        for call in accepted:
            first = accepted[0]
            if call.execution != first.execution:
                yield f"the request {request.key} started two executions", [*first.lines, *call.lines]
            elif call.asked["wanted"] != first.asked["wanted"]:
                yield f"the key {request.key} was accepted for another request", [*first.lines, *call.lines]
        if accepted and (other := seen.setdefault(str(accepted[0].execution), accepted[0])) is not accepted[0]:
            yield f"two requests started the execution {other.execution}", [*other.lines, *accepted[0].lines]


def end_problems(history: History) -> Found:
    """What was accepted ends, and as its client expects."""
    for execution, start in history.starts.items():
        reads = history.reads[execution]
        if start.expects.get("end") == "any":
            continue
        if not reads or reads[-1].document["status"] not in ENDED:
            yield f"the execution {execution} has not ended", [*start.lines, *(reads[-1].lines if reads else [])]
            continue
        expected, shown = start.expects, reads[-1].document
        if _is_excused(history, start, reads[-1]):
            continue
        if wrong := [name for name in ("status", "result") if name in expected and expected[name] != shown.get(name)]:
            text = ", ".join(f"{name} {shown.get(name)!r}, not {expected[name]!r}" for name in wrong)
            yield f"the execution {execution} ended with {text}", [*start.lines, *reads[-1].lines]


def _is_excused(history: History, start: Request, last: Call) -> bool:
    """Whether a fault befell it that its client knows to change its end."""
    kinds = start.expects.get("unless", ())
    return len(kinds) > 0 and any(one["kind"] in kinds for one in history.faults(start.began, last.lines[-1].at))


def status_problems(history: History) -> Found:
    """Each client sees an execution go forward; an end is final for all; what was answered is seen later."""
    for execution, reads in history.reads.items():
        ends = [call for call in reads if call.document["status"] in ENDED]
        for call in ends[1:]:
            if call.document["status"] != ends[0].document["status"]:
                yield f"the execution {execution} has two ends", [*ends[0].lines, *call.lines]
        sessions = grouped((call.asked["client"], call) for call in sorted(reads, key=lambda call: call.asked.at))
        for earlier, later in (pair for calls in sessions.values() for pair in pairwise(calls)):
            if _reached(earlier) > _reached(later):
                yield f"a client saw the execution {execution} go back", [*earlier.lines, *later.lines]
        for change in history.changes[execution]:
            for call in reads:
                shown = call.document.get("position", float("inf"))
                if change.ended < call.asked.at and (change.position or 0) > shown:
                    yield f"the {change.verb} {change.key} is not in a later read", [*change.lines, *call.lines]
    for call in history.calls:
        start = history.starts.get(str(call.asked["execution"]))
        is_missing = call.answered is not None and call.answered["status"] == NOT_FOUND
        if start is not None and is_missing and start.ended < call.asked.at:
            yield f"the execution {call.execution} was accepted and is not found", [*start.lines, *call.lines]


def _reached(call: Call) -> tuple[int, int]:
    """How far an execution was when it was read."""
    status = call.document["status"]
    return 2 if status in ENDED else int(status != "pending"), call.document.get("position") or 0


def ctx_problems(history: History) -> Found:
    """Patches and reads of ``ctx`` have one order in which each read sees the patches before it."""
    for execution, changes in history.changes.items():
        patches = [
            Operation(one.began, one.ended, one.lines, one.calls[0].asked["values"], None, one.position, one.is_refused)
            for one in changes
            if one.calls[0].asked["values"]
        ]
        shown = [call for call in history.reads[execution] if "ctx" in call.document] if patches else []
        reads = [Operation(one.asked.at, one.lines[-1].at, one.lines, sees=one.document["ctx"]) for one in shown]
        for text, lines in register_problems([*patches, *reads]):
            yield f"{text} (execution {execution})", lines


def cancel_problems(history: History) -> Found:
    """An execution that was cancelled ends so, and takes no other change, but for what its start says it ``takes``."""
    for execution, changes in history.changes.items():
        start = history.starts.get(execution)
        taken = ("cancel", "cancel now", *(start.expects.get("takes", ()) if start is not None else ()))
        for cancel in (one for one in changes if one.verb == "cancel" and _counts(one)):
            for call in history.reads[execution]:
                if call.document["status"] in ENDED - {"cancelled"}:
                    yield f"{execution} was cancelled and {call.document['status']}", [*cancel.lines, *call.lines]
            for other in changes:
                if other.verb not in taken and _counts(other) and other.began > cancel.ended:
                    yield f"a {other.verb} was accepted after a cancel", [*cancel.lines, *other.lines]


def _counts(change: Request) -> bool:
    """Whether it was accepted and changed something."""
    return change.accepted is not None and not change.accepted.document.get("already")


def feed_problems(history: History) -> Found:
    """A feed has each event once, in order and without gaps; all readers are fed the same; the end is the last."""
    for execution, readers in history.feeds.items():
        told: dict[int, Line] = {}
        for reader, lines in readers.items():
            if lines[0]["position"] != (lines[0]["after"] or 0) + 1:
                yield f"the feed of {reader} begins at {lines[0]['position']}", lines[:1]
            for one, other in pairwise(lines):
                if other["position"] != one["position"] + 1:
                    yield f"the feed of {reader} has {other['position']} after {one['position']}", [one, other]
                if one["event"] == LAST:
                    yield f"the feed of {reader} goes on after the last event", [one, other]
            for line in lines:
                first = told.setdefault(line["position"], line)
                if any(first[name] != line[name] for name in ("event", "of", "mark")):
                    yield f"two readers were fed different events of {execution}", [first, line]


def book_problems(history: History) -> Found:
    """What is done once is once in the books: task runs, and each change that was accepted; none that was refused."""
    for execution, readers in history.feeds.items():
        for lines in readers.values():
            booked: dict[tuple[str, str], Line] = {}
            for line in (line for line in lines if line["of"] is not None):
                first = booked.setdefault((line["event"], line["of"]), line)
                if first is not line and first["position"] != line["position"]:
                    yield f"{line['event']} of {line['of']} is twice in the books", [first, line]
            for change in history.changes[execution]:
                yield from _booked_problems(change, lines)
            start = history.starts.get(execution)
            if start is not None and lines[-1]["event"] == LAST and _as_expected(history, execution, start):
                counted = Counter(line["step"] for line in lines if line["event"] == PROCESSED)
                for step, count in start.expects.get("effects", {}).items():
                    if counted[step] != count:
                        yield f"{counted[step]} runs of {step} are in the books, not {count}", [*start.lines, lines[-1]]


def _booked_problems(change: Request, lines: Sequence[Line]) -> Found:
    """Whether a feed has a change as often as its answer says; a feed that goes on may yet get it."""
    found = [line for line in lines if line["mark"] == change.key]
    if found and change.is_refused:
        yield f"the {change.verb} {change.key} was refused and is in the books", [*change.lines, *found]
    if len(found) > 1:
        yield f"the {change.verb} {change.key} is {len(found)} times in the books", [*change.lines, *found]
    if change.position is None or not _counts(change):
        return
    if not found and lines[-1]["position"] >= change.position:
        yield f"the {change.verb} {change.key} was accepted and is not in the books", [*change.lines, lines[-1]]
    if found and found[0]["position"] != change.position:
        yield f"the {change.verb} {change.key} is not where its answer says", [*change.lines, *found]


def effect_problems(history: History) -> Found:
    """Effects happen at least once, in the order of their steps, and again only beside a fault that explains it."""
    starts = {one.key: one for one in history.requests if one.verb == "start"}
    is_unsure = any(one.accepted is None and not one.is_refused for one in starts.values())
    of_key: dict[str, Line] = {}
    for execution, effects in history.effects.items():
        start = starts.get(effects[0]["start"]) or history.starts.get(execution)
        if start is None and not is_unsure:
            yield f"an effect of {execution}, which nobody started", effects[:1]
        elif start is not None and start.is_refused:
            yield f"the request {start.key} was refused and has an effect", [*start.lines, effects[0]]
        elif start is not None:
            first = of_key.setdefault(start.key, effects[0])
            if first["execution"] != execution:
                yield f"the request {start.key} has effects of two executions", [*start.lines, first, effects[0]]
        yield from _repeated(history, effects)
    for execution, start in history.starts.items():
        if _as_expected(history, execution, start):
            yield from _missing(start, history.effects[execution])


def _as_expected(history: History, execution: str, start: Request) -> bool:
    """Whether it ended with the status that its client expects."""
    reads = history.reads[execution]
    return bool(reads) and reads[-1].document["status"] == start.expects.get("status")


def _repeated(history: History, effects: Sequence[Line]) -> Found:
    for (key, _), lines in grouped(((line["key"], line["attempt"]), line) for line in effects).items():
        if len(lines) > 1 and not history.faults(lines[0].at, lines[-1].at):
            yield f"the effect {key} happened {len(lines)} times, and no fault explains it", lines


def _missing(start: Request, effects: Sequence[Line]) -> Found:
    """Whether each effect of each step happened, after all those of the steps that it follows."""
    firsts: dict[str, dict[str, Line]] = defaultdict(dict)
    for line in effects:
        firsts[line["step"]].setdefault(line["key"], line)
    for step, count in start.expects.get("effects", {}).items():
        if len(firsts[step]) != count:
            yield f"{len(firsts[step])} effects of {step}, not {count}", [*start.lines, *firsts[step].values()]
    for step, before in start.expects.get("after", {}).items():
        for one in firsts[step].values():
            for other in (line for name in before for line in firsts[name].values() if line.at > one.at):
                yield f"the effect of {step} came before that of {other['step']}, which it follows", [one, other]


def due_problems(history: History) -> Found:
    """Each occurrence of a schedule and each event of a trigger starts one execution, or is skipped with a reason."""
    due = {(line["source"], line["of"]): line for line in history.of("due")}
    decided, executions = history.of("started", "skipped"), dict[str, Line]()
    became = grouped(((line["source"], line["of"]), line) for line in decided)
    for line in decided:
        if (execution := line["execution"]) and (first := executions.setdefault(execution, line)) is not line:
            yield f"{execution} was started for two occurrences", [first, line]
        if line["what"] == "skipped" and not line["reason"]:
            yield f"{line['of']} of {line['source']} was skipped without a reason", [line]
    for (source, of), line in due.items():
        found = became[source, of]
        if len(found) > 1 or not (found or line["maybe"]):
            yield f"{of} of {source} was due and decided {len(found)} times", [line, *found]
    for (source, of), lines in became.items():
        if (source, of) not in due:
            yield f"{of} of {source} was decided and never due", lines


RULES: Final[dict[str, Callable[[History], Found]]] = {
    "starts": start_problems,
    "ends": end_problems,
    "statuses": status_problems,
    "ctx": ctx_problems,
    "cancels": cancel_problems,
    "feeds": feed_problems,
    "books": book_problems,
    "effects": effect_problems,
    "dues": due_problems,
}


def main(paths: Sequence[str]) -> int:
    if not paths:
        print("give the files of histories: python -m noetl_testkit.history.check FILE", file=sys.stderr)
        return 2
    status = 0
    for path in paths:
        try:
            found = violations(Path(path).read_text().splitlines())
        except (OSError, BadHistory) as error:
            print(f"{path}: {error}", file=sys.stderr)
            return 2
        print(*found, f"{path}: {len(found)} violations", sep="\n")
        status |= bool(found)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
