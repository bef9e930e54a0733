"""The checker of histories: what is legal is accepted, and its smallest change to what is not is rejected in words."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noetl_testkit.history
from noetl_testkit.history.check import RULES, main, violations
from noetl_testkit.history.lines import BadHistory

Lines = list[dict[str, Any]]
CHECKER = Path(noetl_testkit.history.__path__[0])


def called(lines: Lines, verb: str, outcome: str = "accepted", *, client: str = "ann", **body: Any) -> None:
    """Adds a call and its answer; ``document`` and ``status`` are the answer's."""
    answer = {name: body.pop(name) for name in ("document", "status") if name in body}
    number = len(lines)
    lines.append({"what": "asked", "call": number, "client": client, "verb": verb, **body})
    lines.append({"what": "answered", "call": number, "outcome": outcome, **answer})


def read(lines: Lines, status: str, position: int, ctx: dict[str, Any], client: str = "ann", **shown: Any) -> None:
    shown = {"execution_id": "e1", "status": status, "position": position, "ctx": ctx, **shown}
    called(lines, "read", client=client, execution="e1", document=shown)


def legal() -> Lines:
    """An execution of two steps that a client patches and signals, another that one cancels, and a schedule."""
    expects = {"status": "completed", "result": 2, "effects": {"one": 1, "two": 1}, "after": {"two": ["one"]}}
    wanted = {"playbook": "p"}
    lines: Lines = []
    called(lines, "start", "unknown", key="k1", wanted=wanted, expects=expects)
    called(lines, "start", key="k1", wanted=wanted, expects=expects, document={"execution_id": "e1"})
    called(lines, "start", "refused", key="k2", wanted=wanted, status=429)
    read(lines, "running", 2, {})
    called(lines, "patch", key="p1", execution="e1", values={"a": 1}, document={"position": 3})
    read(lines, "running", 3, {"a": 1}, "bob")
    lines.append({"what": "effect", "execution": "e1", "key": "i1", "step": "one", "start": "k1"})
    called(lines, "patch", key="p2", execution="e1", values={"a": 2, "b": 2}, document={"position": 5})
    called(lines, "patch", "refused", key="p3", execution="e1", values={"a": 3}, status=412)
    called(lines, "signal", key="s1", execution="e1", document={"position": 6})
    read(lines, "running", 6, {"a": 2, "b": 2})
    lines.append({"what": "effect", "execution": "e1", "key": "i2", "step": "two", "start": "k1"})
    read(lines, "completed", 9, {"a": 2, "b": 2}, result=2)
    read(lines, "completed", 9, {"a": 2, "b": 2}, "bob", result=2)
    for reader in ("ann", "bob"):
        lines.extend(fed(reader))
    called(lines, "start", key="k4", wanted=wanted, document={"execution_id": "e2"})
    called(lines, "cancel", key="c1", execution="e2", document={"position": 2})
    called(lines, "patch", "refused", key="p4", execution="e2", values={"a": 9}, status=409)
    called(lines, "read", execution="e2", document={"execution_id": "e2", "status": "cancelled", "position": 4})
    for hour, execution in enumerate(("e3", "e4")):
        lines.append({"what": "due", "source": "hourly", "of": f"{hour}:00"})
        lines.append({"what": "started", "source": "hourly", "of": f"{hour}:00", "execution": execution})
    lines.append({"what": "due", "source": "hourly", "of": "2:00"})
    lines.append({"what": "skipped", "source": "hourly", "of": "2:00", "reason": "the last one runs"})
    return [{"at": float(at), **line} for at, line in enumerate(lines)]


def fed(reader: str) -> Lines:
    """The whole journal of ``e1`` as a reader is fed it."""
    told: list[dict[str, Any]] = [
        {"event": "execution.requested"},
        {"event": "execution.started"},
        {"event": "ctx.patched", "mark": "p1"},
        {"event": "task.processed", "step": "one", "of": "one/0/1"},
        {"event": "ctx.patched", "mark": "p2"},
        {"event": "signal.received", "mark": "s1"},
        {"event": "task.processed", "step": "two", "of": "two/0/1"},
        {"event": "step.done", "step": "two", "of": "two"},
        {"event": "playbook.processed"},
    ]
    at = count(1)
    return [{"what": "fed", "reader": reader, "execution": "e1", "position": next(at), **one} for one in told]


def found(lines: Lines) -> list[str]:
    return [f"{one.rule}: {one.text}" for one in violations(map(json.dumps, lines))]


def only(lines: Lines, **fields: Any) -> dict[str, Any]:
    """The first line with these fields."""
    return next(line for line in lines if fields.items() <= line.items())


def answer_of(lines: Lines, **fields: Any) -> dict[str, Any]:
    return only(lines, what="answered", call=only(lines, **fields)["call"])


Mutation = Callable[[Lines], Any]


def changed(**fields: Any) -> Callable[..., Mutation]:
    return lambda **to: lambda lines: only(lines, **fields).update(to)


def answered(**fields: Any) -> Callable[..., Mutation]:
    return lambda **to: lambda lines: answer_of(lines, **fields)["document"].update(to)


def dropped(**fields: Any) -> Mutation:
    return lambda lines: lines.remove(only(lines, **fields))


def moved(at: float, **fields: Any) -> Mutation:
    return lambda lines: only(lines, **fields).update(at=at)


def again(to: dict[str, Any], **fields: Any) -> Mutation:
    """The same line once more, with these fields."""
    return lambda lines: lines.append({**only(lines, **fields), **to})


def later(verb: str, outcome: str = "accepted", **body: Any) -> Mutation:
    """One more call, after all others."""

    def add(lines: Lines) -> None:
        made: Lines = [{} for _ in lines]
        called(made, verb, outcome, **body)
        lines += [{"at": 1_000.0, **line} for line in made[len(lines) :]]

    return add


def seen(status: str, position: int, ctx: dict[str, Any]) -> Mutation:
    return later("read", execution="e1", document={"status": status, "position": position, "ctx": ctx})


def accepted(key: str, **document: Any) -> Mutation:
    """What was refused was accepted."""
    return lambda lines: answer_of(lines, key=key).update(outcome="accepted", document=document)


ANN = {"what": "fed", "reader": "ann"}
BOB = {"what": "fed", "reader": "bob"}
STARTED_AGAIN = {"key": "k1", "wanted": {"playbook": "p"}, "document": {"execution_id": "e9"}}
MUTATIONS: dict[str, list[tuple[str, Mutation]]] = {
    "starts": [
        ("the request k1 started two executions", later("start", **STARTED_AGAIN)),
        (
            "the key k1 was accepted for another request",
            later("start", **STARTED_AGAIN | {"wanted": {}, "document": {"execution_id": "e1"}}),
        ),
        ("two requests started the execution e1", answered(key="k4")(execution_id="e1")),
    ],
    "ends": [
        ("the execution e1 has not ended", seen("running", 10, {"a": 2, "b": 2})),
        ("the execution e9 has not ended", accepted("k2", execution_id="e9")),
        ("the execution e1 ended with result 3, not 2", lambda lines: [_result(one) for one in lines]),
    ],
    "statuses": [
        ("the execution e1 has two ends", seen("failed", 9, {"a": 2, "b": 2})),
        ("a client saw the execution e1 go back", seen("running", 9, {"a": 2, "b": 2})),
        ("a client saw the execution e1 go back", seen("completed", 8, {"a": 2, "b": 2})),
        ("the signal s1 is not in a later read", answered(verb="signal")(position=8)),
        ("the execution e1 was accepted and is not found", later("read", "refused", execution="e1", status=404)),
    ],
    "ctx": [
        ("a read sees a value of a that nobody wrote", seen("completed", 9, {"a": 7, "b": 2})),
        ("a read sees a value of a whose patch was refused", seen("completed", 9, {"a": 3, "b": 2})),
        ("no order explains that the patch of line 14 is seen by the read", seen("completed", 9, {"a": 1, "b": 2})),
        ("no order explains that the patch of line 14 is seen by the read", seen("completed", 9, {"a": 2})),
        ("no order explains that the patch of line 9 was answered before the patch", answered(key="p1")(position=7)),
    ],
    "cancels": [
        ("e2 was cancelled and completed", answered(verb="read", execution="e2")(status="completed")),
        ("a patch was accepted after a cancel", accepted("p4", position=3)),
    ],
    "feeds": [
        ("the feed of ann has 6 after 4", dropped(**ANN, position=5)),
        ("the feed of bob begins at 2", dropped(**BOB, position=1)),
        ("the feed of bob has 9 after 9", again({}, **BOB, position=9)),
        (
            "the feed of ann goes on after the last event",
            again({"position": 10, "event": "step.done"}, **ANN, position=9),
        ),
        ("two readers were fed different events of e1", changed(**BOB, position=8)(of="one")),
    ],
    "books": [
        ("task.processed of one/0/1 is twice in the books", changed(**ANN, position=7)(of="one/0/1")),
        ("0 runs of two are in the books, not 1", changed(**ANN, position=7)(event="task.failed")),
        ("the signal s1 was accepted and is not in the books", lambda lines: only(lines, mark="s1").pop("mark")),
        ("the signal s1 is 2 times in the books", changed(**ANN, position=8)(mark="s1")),
        ("the signal s1 is not where its answer says", answered(verb="signal")(position=5)),
        ("the patch p3 was refused and is in the books", changed(**ANN, position=8)(mark="p3")),
    ],
    "effects": [
        ("0 effects of two, not 1", dropped(what="effect", step="two")),
        ("the effect i2 happened 2 times, and no fault explains it", again({}, what="effect", step="two")),
        ("the effect of two came before that of one, which it follows", moved(1.5, what="effect", step="two")),
        ("an effect of e9, which nobody started", again({"execution": "e9", "start": None}, what="effect")),
        ("the request k2 was refused and has an effect", again({"execution": "e9", "start": "k2"}, what="effect")),
        ("the request k1 has effects of two executions", again({"execution": "e9"}, what="effect")),
    ],
    "dues": [
        ("0:00 of hourly was due and decided 0 times", dropped(what="started", of="0:00")),
        ("0:00 of hourly was due and decided 2 times", again({"execution": "e9"}, what="started", of="0:00")),
        ("e3 was started for two occurrences", changed(what="started", of="1:00")(execution="e3")),
        ("1:00 of hourly was decided and never due", dropped(what="due", of="1:00")),
        ("2:00 of hourly was skipped without a reason", changed(what="skipped")(reason="")),
    ],
}


def _result(line: dict[str, Any]) -> None:
    if "result" in line.get("document", {}):
        line["document"]["result"] = 3


def test_a_legal_history_is_accepted() -> None:
    assert found(legal()) == []


@pytest.mark.parametrize(
    ("rule", "words", "mutate"), [(rule, *one) for rule, listed in MUTATIONS.items() for one in listed]
)
def test_its_smallest_change_is_rejected_in_words_that_name_the_rule(rule: str, words: str, mutate: Mutation) -> None:
    lines = legal()
    mutate(lines)
    assert any(text.startswith(f"{rule}: {words}") for text in found(lines)), found(lines)


def test_every_rule_has_a_change_that_breaks_it() -> None:
    assert MUTATIONS.keys() == RULES.keys()


def test_the_documentation_says_which_promise_each_rule_shows() -> None:
    page = (Path(__file__).parents[2] / "docs/explanation/reliability.md").read_text()
    rows = [line.split(" | ")[1] for line in page.splitlines() if line.startswith("| ") and line.count(" | ") == 2]
    assert {name for name in RULES if any(f"`{name}`" in row for row in rows)} == RULES.keys()


def test_a_fault_explains_a_repeated_effect_and_an_end_that_its_client_expects() -> None:
    lines = legal()
    again({"at": 60.0}, what="effect", step="two")(lines)
    lines.append({"what": "fault", "kind": "worker killed", "at": 50.0, "until": 90.0})
    assert found(lines) == []
    lines[-1]["at"] = 61.0
    assert found(lines) == ["effects: the effect i2 happened 2 times, and no fault explains it"]


def test_an_execution_may_fail_beside_a_fault_that_its_client_knows_to_break_it() -> None:
    lines = legal()
    for line in lines:
        if line.get("document", {}).get("result"):
            line["document"].update(status="failed", result=None)
    lines.append({"what": "fault", "kind": "objects deleted", "at": 0.5, "until": 2.0})
    assert [text.partition(":")[0] for text in found(lines)] == ["ends"]
    for line in lines:
        if "expects" in line:
            line["expects"]["unless"] = ["objects deleted"]
    assert found(lines) == []


def test_a_client_may_not_care_how_an_execution_ends() -> None:
    lines = legal()
    accepted("k2", execution_id="e9")(lines)
    only(lines, key="k2")["expects"] = {"end": "any"}
    assert found(lines) == []


def test_an_answer_that_did_not_come_allows_either() -> None:
    for is_done in (False, True):
        lines = legal()
        answer_of(lines, key="p2")["outcome"] = "unknown"
        if not is_done:
            for line in lines:
                if line.get("document", {}).get("ctx") == {"a": 2, "b": 2}:
                    line["document"]["ctx"] = {"a": 1}
                if line.get("mark") == "p2":
                    line.update(event="timer.fired", mark=None)
        assert found(lines) == []


def test_each_violation_shows_the_lines_that_prove_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = legal()
    dropped(**ANN, position=5)(lines)
    file = tmp_path / "history.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    assert main([str(file)]) == 1
    (after, before) = (lines.index(only(lines, **ANN, position=at)) + 1 for at in (6, 4))
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "feeds: the feed of ann has 6 after 4"
    assert [text.partition(":")[0].strip() for text in printed[1:3]] == [f"line {before}", f"line {after}"]
    file.write_text("\n".join(map(json.dumps, legal())))
    assert main([str(file)]) == 0


def test_a_text_that_is_no_history_is_refused_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadHistory, match="line 2: a line of kind due lacks of"):
        violations(['{"at": 1, "what": "due", "source": "a", "of": "b"}', '{"at": 1, "what": "due", "source": "a"}'])
    with pytest.raises(BadHistory, match="line 1: is no line of a history"):
        violations(["nonsense"])
    with pytest.raises(BadHistory, match="line 1: answers a call that nobody made"):
        violations(['{"at": 1, "what": "answered", "call": 1, "outcome": "unknown"}'])
    with pytest.raises(BadHistory, match="answers a call that nobody made, or that is answered"):
        found([*legal(), answer_of(legal(), key="p1")])
    lines = legal()
    only(lines, key="p2")["values"]["a"] = 1
    with pytest.raises(BadHistory, match="line 14: a patch writes a value of a for a second time"):
        found(lines)
    assert main([str(tmp_path / "missing")]) == main([]) == 2
    assert "missing" in capsys.readouterr().err


def test_the_checker_shares_no_code_with_the_product() -> None:
    named = set[str]()
    for file in CHECKER.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            named |= {alias.name for alias in node.names} if isinstance(node, ast.Import) else set()
            named |= {str(node.module)} if isinstance(node, ast.ImportFrom) else set()
    own = {name for name in named if name.startswith("noetl_testkit.history.")}
    assert {name.partition(".")[0] for name in named - own} <= sys.stdlib_module_names


class Model:
    """A legal system: one execution whose ``ctx`` clients patch and read. Each call takes effect at a moment between
    its question and its answer, which may be lost, before or after that moment.
    """

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.ctx: dict[str, int] = {}
        self.position = 1
        self.events: list[tuple[float, dict[str, Any]]] = [
            (0.0, {"what": "asked", "call": 0, "client": "ann", "verb": "start", "key": "k"}),
            (0.1, {"what": "answered", "call": 0, "outcome": "accepted", "document": {"execution_id": "e"}}),
        ]
        self.journal: list[str | None] = [None]

    def lives(self, clients: int, calls: int) -> Lines:
        planned = []
        for client in range(clients):
            at = 1.0
            for _ in range(calls):
                begins, acts, ends = sorted(self.dice.uniform(at, at + 3) for _ in range(3))
                planned.append((acts, begins, ends, f"client {client}"))
                at = ends + 0.01
        for number, (_, begins, ends, client) in enumerate(sorted(planned), 1):
            self._call(number, begins, ends, client)
        last = {"execution_id": "e", "status": "completed", "position": self.position + 1, "ctx": dict(self.ctx)}
        self._add(900, 901, {"call": -1, "client": "ann", "verb": "read", "execution": "e"}, "accepted", last)
        marks = [*self.journal, None]
        for place, mark in enumerate(marks, 1):
            event = "playbook.processed" if place == len(marks) else "a fact"
            told = {"what": "fed", "reader": "r", "execution": "e", "position": place, "event": event, "mark": mark}
            self.events.append((902 + place, told))
        return [{"at": at, **line} for at, line in sorted(self.events, key=lambda one: one[0])]

    def _call(self, number: int, begins: float, ends: float, client: str) -> None:
        asked: dict[str, Any] = {"call": number, "client": client, "execution": "e"}
        outcome = self.dice.choice(["accepted", "accepted", "accepted", "refused", "unknown"])
        if self.dice.random() < 0.5:
            shown = {"execution_id": "e", "status": "running", "position": self.position, "ctx": dict(self.ctx)}
            self._add(begins, ends, {**asked, "verb": "read"}, outcome, shown)
            return
        values = dict.fromkeys(self.dice.sample("abc", self.dice.randint(1, 2)), number)
        if outcome == "accepted" or (outcome == "unknown" and self.dice.random() < 0.5):
            self.position += 1
            self.ctx |= values
            self.journal.append(f"p{number}")
        patch = {**asked, "verb": "patch", "key": f"p{number}", "values": values}
        self._add(begins, ends, patch, outcome, {"position": self.position})

    def _add(self, begins: float, ends: float, asked: dict[str, Any], outcome: str, shown: dict[str, Any]) -> None:
        self.events.append((begins, {"what": "asked", **asked}))
        document = shown if outcome == "accepted" else None
        answer = {"what": "answered", "call": asked["call"], "outcome": outcome, "document": document}
        self.events.append((ends, answer))


@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 8))
def test_every_answer_of_a_legal_system_is_accepted(seed: int, clients: int, calls: int) -> None:
    assert found(Model(seed).lives(clients, calls)) == []


@given(st.integers(0, 2**32))
def test_a_read_of_an_older_state_than_an_earlier_answer_is_rejected(seed: int) -> None:
    lines = Model(seed).lives(3, 6)
    patched = [one for one in lines if one["what"] == "asked" and one["verb"] == "patch"]
    done = [one for one in patched if answer_of(lines, call=one["call"])["outcome"] == "accepted"]
    stale = {"status": "completed", "position": 10_000, "ctx": {}}
    later("read", client="old", execution="e", document=stale)(lines)
    assert any("no order explains" in text for text in found(lines)) == bool(done)
