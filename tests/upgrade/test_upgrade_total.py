"""LANGUAGE §16: nothing of an older playbook is dropped in silence."""

from __future__ import annotations

from functools import cache

import pytest
from upgrade_pairs import upgraded, whole

from effort import first_in_gate
from noetl_stream.playbook.diagnostics import InvalidPlaybook
from noetl_stream.playbook.upgrade.rules.case_entries import ACTIONS

EVENTS = ("step.enter", "call.done", "step.exit", "step.failed")
VALUES = {
    "call": "{ params: { page: 2 } }",
    "retry": "{ max_attempts: 3 }",
    "collect": "{ from: response.items, into: items }",
    "sink": "{ tool: { kind: noop } }",
    "save": "{ tool: { kind: noop } }",
    "set": "{ ctx: { other: 1 } }",
    "result": "{ from: response }",
    "next": "[ { step: end } ]",
    "fail": "{ message: no }",
    "skip": "true",
    "vars": "{ other: 1 }",
}
"""One value of each action."""


def playbook(*entries: str) -> str:
    case = "".join(f"\n    - {entry}" for entry in entries)
    tool = "{ kind: http, method: GET, endpoint: http://127.0.0.1, params: { page: 1 } }"
    return whole(f"- step: start\n  tool: {tool}\n  case:{case}\n- step: end\n")


def entry(event: str, condition: str, *actions: str) -> str:
    then = ", ".join(f"{word}: {VALUES[word]}" if word in VALUES else word for word in actions)
    return f"{{ when: \"{{{{ event.name == '{event}'{condition} }}}}\", then: {{ {then} }} }}"


@cache
def outcome(text: str) -> tuple[str, list[str]]:
    """What a person gets: the playbook, and the notes about what is not the same."""
    found = upgraded(text)
    return found.text, [note.message for note in found.notes if note.kind != "changed"]


@pytest.mark.parametrize("condition", first_in_gate([" and workload.open", ""]))
@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("word", sorted(ACTIONS))
def test_each_action_of_an_entry_is_written_or_noted(word: str, event: str, condition: str) -> None:
    base = "set: { ctx: { base: 1 } }"
    assert outcome(playbook(entry(event, condition, word))) != outcome(playbook(entry(event, condition)))
    if word != "set":
        with_it, without = entry(event, condition, base, word), entry(event, condition, base)
        assert outcome(playbook(with_it)) != outcome(playbook(without))


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("word", sorted(ACTIONS))
def test_the_condition_of_an_entry_is_written_or_noted(word: str, event: str) -> None:
    conditional, always = (playbook(entry(event, condition, word)) for condition in (" and workload.open", ""))
    assert outcome(conditional) != outcome(always)


@pytest.mark.parametrize(
    ("first", "second"), [("call.done", "step.exit"), ("step.exit", "call.done"), ("call.done", "call.done")]
)
@pytest.mark.parametrize("word", sorted(ACTIONS))
def test_a_second_entry_is_written_or_noted(word: str, first: str, second: str) -> None:
    one, other = entry(first, "", "set: { ctx: { base: 1 } }"), entry(second, "", word)
    assert outcome(playbook(one, other)) != outcome(playbook(one))


def test_a_key_that_is_there_twice_with_one_value_is_written_once() -> None:
    text = whole(
        "workload:\n  a: 1\n  b: text\n\n  a: 1\n  b: 'text'\nworkflow:\n- step: start\n  next: end\n- step: end\n"
    )
    found = upgraded(text)
    assert "workload:\n  a: 1\n  b: text\n\nworkflow:" in found.text
    lines = {note.line: note.message for note in found.notes if note.rule == "repeated_key"}
    assert lines == {8: "`a: 1` is there twice", 9: "`b: 'text'` is there twice"}
    assert [note.line for note in found.notes if note.rule == "next_shape"] == [12, 12]


@pytest.mark.parametrize("other", ["a: true", "a: 2", "a: 1 # comment", "a:\n    - 1"])
def test_a_key_that_is_there_twice_otherwise_is_not_upgraded(other: str) -> None:
    with pytest.raises(InvalidPlaybook, match="duplicate key `a`"):
        upgraded(whole(f"workload:\n  a: 1\n  {other}\nworkflow:\n- step: start\n  next: end\n- step: end\n"))


def test_the_message_of_a_failure_is_noted() -> None:
    _, notes = outcome(playbook(entry("call.done", " and response.bad", "fail: { message: too many users }")))
    assert "a rule that ends a step has no message of its own; it was: too many users" in notes


def test_two_results_of_one_task_are_left_to_a_person() -> None:
    two = playbook(entry("call.done", " and response.a", "result"), entry("call.done", " and response.b", "result"))
    assert upgraded(two).is_done is False


def test_two_actions_under_one_condition_that_fit_no_rule_are_left_to_a_person() -> None:
    two = playbook(entry("call.done", " and response.a", "set"), entry("call.done", " and response.a", "vars"))
    assert any("write both in one rule" in note for note in outcome(two)[1])
