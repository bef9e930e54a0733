"""What differs is said where it is written, as deep as it can be."""

from __future__ import annotations

from pathlib import Path

from playbook_test_stage import FETCH, problems, ran, runner, written

from noetl_stream.playbook_tests.loading import load

PLAIN = """
    workflow:
      - step: one
        tool: { kind: noop, args: { a: 1, list: [1, { b: true }], text: words } }
"""


def placed(folder: Path, playbook: str, tests: str) -> list[tuple[str, str]]:
    """The problems, each with what stands at its place in the document."""
    [outcome] = ran(folder, playbook, tests)
    lines = (folder / "p.test.yaml").read_text().splitlines()
    return [(lines[one.line - 1][one.column - 1 :].split()[0].rstrip(","), one.message) for one in outcome.problems]


def test_a_result_differs_at_the_value(tmp_path: Path) -> None:
    tests = """
        - name: a
          then:
            result: { a: 2, list: [1, { b: 1 }, 3], gone: x }
    """
    assert placed(tmp_path, PLAIN, tests) == [
        ("2", "result.a: expected 2, was 1"),
        ("1", "result.list[1].b: expected 1, was true"),
        ("[1", 'result.list: expected 3 items, was 2: [1, {"b": true}]'),
        ("x", 'result.gone: expected "x", was not there'),
        ("{", 'result: expected no other keys, was also result.text = "words"'),
    ]


def test_numbers_are_compared_as_json_has_them(tmp_path: Path) -> None:
    assert (
        problems(tmp_path, PLAIN, "- { name: a, then: { result: { a: 1.0, list: [1, { b: true }], text: words } } }")
        == []
    )


def test_status_path_and_steps_differ(tmp_path: Path) -> None:
    tests = """
        - name: a
          then: { status: failed, path: [one, one], never: [one], waits_for: [one], error: timeout }
    """
    assert placed(tmp_path, PLAIN, tests) == [
        ("failed", "status: expected failed, was completed"),
        ("timeout", 'error: expected "timeout", was none'),
        ("[one", "path: expected one → one, was one"),
        ("one]", "never: step one ran"),
        ("[one]", "waits_for: expected one, was nothing"),
    ]


def test_an_error_differs_by_kind_message_and_step(tmp_path: Path) -> None:
    tests = """
        - name: a
          given: { stubs: { fetch: { error: { kind: sql, message: broken } } } }
          then: { error: { kind: timeout, message: whole, step: use } }
    """
    assert placed(tmp_path, FETCH, tests) == [
        ("timeout", "error.kind: expected timeout, was sql: broken"),
        ("whole", 'error.message: expected to contain "whole", was broken'),
        ("use", "error.step: expected use, was fetch"),
    ]


def test_calls_differ_by_number_and_inputs(tmp_path: Path) -> None:
    given = "given: { stubs: { fetch: [ { attempt: 1, error: timeout }, { result: {} } ] } }"
    assert placed(tmp_path, FETCH, f"- {{ name: a, {given}, then: {{ calls: {{ fetch: 1 }} }} }}") == [
        ("1", "calls.fetch: expected 1, was called 2 times")
    ]
    calls = "calls: { fetch: [ { url: x }, { params: 1 }, {} ] }"
    url = "https://example.com/7"
    assert placed(tmp_path, FETCH, f"- {{ name: a, {given}, then: {{ {calls} }} }}") == [
        ("[", f'calls.fetch: expected 3, was called 2 times:\n  1. {{"url": "{url}"}}\n  2. {{"url": "{url}"}}'),
        ("x", f'calls.fetch[0].url: expected "x", was "{url}"'),
        ("1", "calls.fetch[1].params: expected 1, was not given (inputs: url)"),
    ]


def test_a_failure_shows_the_steps_and_why(tmp_path: Path) -> None:
    tests = "- { name: a, given: { stubs: { fetch: { error: { kind: sql, message: broken } } } } }"
    [outcome] = ran(tmp_path, FETCH, tests)
    assert outcome.steps == ("1. fetch (start): step.failed, 1 of 1 task runs failed: sql: broken",)
    assert outcome.why[0].startswith(
        "Task `get` of step `fetch` failed at attempt 1: sql: broken; rule 2 of its policy"
    )
    assert outcome.why[2].startswith("The arc to `mend` (line 21) did not fire:")


def test_a_result_by_reference_is_compared_whole(tmp_path: Path) -> None:
    playbook = """
        workflow:
          - step: big
            tool: { kind: http, url: "https://example.com" }
        executor: { spec: { result: "{{ big.data }}", policy: { results: { reference_first: true } } } }
    """
    text = "x" * 5000
    given = f"given: {{ stubs: {{ big: {{ result: {{ data: {text} }} }} }} }}"
    assert problems(tmp_path, playbook, f"- {{ name: a, {given}, then: {{ result: {text} }} }}") == []


def test_a_playbook_of_another_name_is_tested(tmp_path: Path) -> None:
    document = written(tmp_path, PLAIN, "- { name: a, then: { path: [one] } }")
    moved = tmp_path / "inner" / "other.test.yaml"
    moved.parent.mkdir()
    moved.write_text(document.read_text().replace("tests:", "playbook: ../p.yaml\ntests:"))
    document.unlink()
    [test] = load(moved, runner().compiled.kinds, runner().compiled.limits).tests
    assert runner().run(test).passed
