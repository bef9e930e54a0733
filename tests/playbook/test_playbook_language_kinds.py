"""LANGUAGE §8, §12: kinds that no tool runs: ``wait``, ``playbook``, ``workbook``."""

from __future__ import annotations

from typing import Any

import pytest
from playbook_building import HEAD, codes, found, pipeline, task_of
from pydantic import ValidationError

from noetl_stream.playbook.compile.compiler import check
from noetl_stream.playbook.kinds.spec import LANGUAGE_KINDS, PlaybookInputs, WaitInputs


def wait(written: str) -> list[str]:
    return codes(pipeline(f"- {{ kind: wait, {written} }}"))


@pytest.mark.parametrize(
    "written",
    [
        "for_s: 5",
        "for_s: 0",
        "for_s: 0.5",
        "until: 2030-01-31T09:00:00Z",
        "until: '2030-01-31 09:00+02:00'",
        "until: 1900000000",
        "until: 1900000000.25",
        "signal: approved, timeout_s: 60",
        'for_s: "{{ workload.pause_s }}"',
        'until: "{{ workload.day }}T09:00:00Z"',
        'signal: "{{ workload.signal }}", timeout_s: "{{ workload.timeout_s }}"',
        "for_s: 5, until: null",
    ],
)
def test_a_wait_has_one_end(written: str) -> None:
    assert wait(written) == []


@pytest.mark.parametrize(
    ("written", "word"),
    [
        ("spec: {}", "exactly one"),
        ("for_s: 5, signal: go, timeout_s: 5", "exactly one"),
        ('for_s: "{{ workload.a }}", until: "{{ workload.b }}"', "exactly one"),
        ("signal: go", "`signal` needs `timeout_s`"),
        ('signal: "{{ workload.a }}"', "`signal` needs `timeout_s`"),
        ("for_s: 5, timeout_s: 9", "`timeout_s` goes with `signal` only"),
        ("until: 2030-01-31T09:00:00", "needs an offset"),
        ("until: 2030-01-31", "needs an offset"),
        ("until: soon", "must be a time"),
        ("until: 1900000000000", "not milliseconds"),
        ("until: true", "must be text or a number"),
    ],
)
def test_a_wait_without_a_clear_end_is_refused(written: str, word: str) -> None:
    [problem] = found(pipeline(f"- {{ kind: wait, {written} }}"), "invalid_value")
    assert word in problem.message


@pytest.mark.parametrize(
    ("until", "milliseconds"),
    [
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01T02:00:01.5+02:00", 1_500),
        (1.25, 1_250),
        (1900000000, 1_900_000_000_000),
        (0, 0),
    ],
)
def test_until_is_a_moment_in_any_form(until: str | float, milliseconds: int) -> None:
    assert WaitInputs(until=until).until_ms == milliseconds


def test_a_wait_without_until_has_no_moment() -> None:
    assert WaitInputs(for_s=1).until_ms is None


@pytest.mark.parametrize(
    "values", [{}, {"for_s": 1, "until": 2}, {"signal": "go"}, {"for_s": float("inf")}, {"for_s": "5"}]
)
def test_rendered_inputs_of_a_wait_keep_the_same_rules(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        WaitInputs.model_validate(values)


def test_a_playbook_is_called_by_its_path() -> None:
    written = "path: a/b, version: '2', args: { x: 1 }, return_step: end"
    task = task_of(pipeline(f"- {{ kind: playbook, {written} }}"))
    assert (task.kind, task.inputs.source) == (
        "playbook",
        {"path": "a/b", "version": "2", "args": {"x": 1}, "return_step": "end"},
    )


def test_the_version_of_a_called_playbook_is_a_separate_input() -> None:
    [problem] = found(pipeline("- { kind: playbook, path: library/child@2 }"), "invalid_value")
    assert problem.message == "`path`: must not contain `@`: give the version separately, as in `version: '1.0'`"
    assert codes(pipeline("- { kind: playbook, path: library/child, version: '2' }")) == []


def test_payload_is_another_name_of_args() -> None:
    assert PlaybookInputs.model_validate({"path": "a", "payload": {"x": 1}}).args == {"x": 1}
    assert codes(pipeline("- { kind: playbook, path: a, payload: { x: 1 } }")) == []
    assert codes(pipeline("- { kind: playbook, path: a, payload: {}, args: {} }")) == ["conflicting_keys"]


def test_a_call_of_a_playbook_takes_the_timeout_of_every_task() -> None:
    text = "- { kind: playbook, path: a, spec: { timeout: 60 } }"
    assert task_of(pipeline(text)).timeouts.total == 60.0


@pytest.mark.parametrize("kind", sorted(LANGUAGE_KINDS))
def test_the_kinds_of_the_language_are_always_known(kind: str) -> None:
    text = f"{HEAD}workflow: [ {{ step: start, tool: {{ name: a, kind: {kind} }} }} ]\n"
    assert "unknown_kind" not in {item.code for item in check(text, {}).diagnostics}


def test_a_misspelt_kind_of_the_language_is_recognised() -> None:
    [problem] = found(pipeline("- { kind: wiat }"), "unknown_kind")
    assert problem.hint == "did you mean `wait`?"


def test_the_kinds_of_the_language_have_no_outcome_block_of_their_own() -> None:
    rule = '{ when: "{{ outcome.http.status == 1 }}", then: { do: fail } }'
    text = f"- {{ kind: wait, for_s: 1, spec: {{ policy: {{ on_unmatched: fail, rules: [ {rule} ] }} }} }}"
    assert codes(pipeline(text)) == ["foreign_helper"]
