"""The form of diagnostics, for people and for programs."""

from __future__ import annotations

import pytest
from playbook_building import checked, pipeline, workflow
from playbook_kinds import KINDS

from noetl_stream.errors import NoetlError
from noetl_stream.playbook.compile.compiler import check, compile_playbook
from noetl_stream.playbook.diagnostics import (
    MAX_DIAGNOSTICS,
    BareLocation,
    Diagnostic,
    InvalidPlaybook,
    Position,
    Problems,
    TooManyProblems,
)
from noetl_stream.playbook.suggestions import did_you_mean, nearest


def diagnostic(line: int = 3, column: int = 5, hint: str | None = "try b") -> Diagnostic:
    return Diagnostic(
        severity="error",
        code="unknown_key",
        message="unknown key `a`",
        hint=hint,
        file="flow.yaml",
        line=line,
        column=column,
        pointer="/a",
    )


def test_a_diagnostic_renders_like_a_compiler_message() -> None:
    assert diagnostic().render() == "flow.yaml:3:5: error[unknown_key]: unknown key `a`\n  hint: try b"
    assert diagnostic(hint=None).render() == "flow.yaml:3:5: error[unknown_key]: unknown key `a`"


def test_a_diagnostic_is_plain_json() -> None:
    assert diagnostic().to_json() == {
        "severity": "error",
        "code": "unknown_key",
        "message": "unknown key `a`",
        "hint": "try b",
        "file": "flow.yaml",
        "line": 3,
        "column": 5,
        "pointer": "/a",
        "path": [],
    }


def test_diagnostics_sort_by_position_with_or_without_hints() -> None:
    shuffled = [diagnostic(9, 1), diagnostic(3, 7, None), diagnostic(3, 5), diagnostic(3, 7)]
    assert [(item.line, item.column) for item in sorted(shuffled)] == [(3, 5), (3, 7), (3, 7), (9, 1)]


def test_an_invalid_playbook_is_raised_with_all_its_diagnostics() -> None:
    text = workflow("- step: start\n  toool: 1\n  zzz: 2\n  tool: { kind: noop }")
    with pytest.raises(InvalidPlaybook) as caught:
        compile_playbook(text, KINDS, file="flow.yaml")
    assert isinstance(caught.value, NoetlError)
    assert [item.code for item in caught.value.diagnostics] == ["unknown_key", "unknown_key"]
    assert str(caught.value).startswith("flow.yaml:6:5: error[unknown_key]") and "(and 1 more)" in str(caught.value)


def test_the_same_problem_at_the_same_place_is_kept_once() -> None:
    problems = Problems("flow.yaml")
    for pointer in ("/a", "/b"):
        problems.error("wrong_type", "no", BareLocation(Position(1, 1), pointer))
    assert len(problems.sorted()) == 1


def test_checking_stops_when_the_list_is_full() -> None:
    problems = Problems("a.yaml")
    for line in range(1, MAX_DIAGNOSTICS + 5):
        problems.warn("no_effect", "m", BareLocation(Position(line, 1)))
    with pytest.raises(TooManyProblems):
        problems.error("wrong_type", "m", BareLocation(Position(1, 1)))
    assert problems.sorted()[-1].severity == "error"


def test_an_error_after_very_many_warnings_still_refuses_the_playbook() -> None:
    zeros = ", ".join(f"0{number}" for number in range(MAX_DIAGNOSTICS + 1))
    lost = workflow("- step: start\n  next: { arcs: [ { step: lost } ] }", f"workload: {{ a: [ {zeros} ] }}\n")
    assert not check(lost, KINDS).ok


def test_pointers_escape_what_json_pointers_escape() -> None:
    [problem] = checked(pipeline('- { kind: http, url: a, params: { "a/b~c": "{{ missing }}" } }')).diagnostics
    assert problem.pointer == "/workflow/0/tool/0/params/a~1b~0c"


@pytest.mark.parametrize(
    ("word", "known", "near"),
    [
        ("metdata", ["metadata", "workload"], "metadata"),
        ("maxInFlight", ["max_in_flight", "mode"], "max_in_flight"),
        ("on-unmatched", ["on_unmatched"], "on_unmatched"),
        ("xyz", ["metadata"], None),
    ],
)
def test_the_nearest_word_is_found_in_spite_of_case_and_dashes(word: str, known: list[str], near: str | None) -> None:
    assert nearest(word, known) == near
    assert did_you_mean(word, known) == (f"did you mean `{near}`?" if near else None)
