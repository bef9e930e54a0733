"""The playbook that a schedule with `files` runs: the marker is written before anything starts."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from playbook_test_stage import TESTS, runner

from noetl_stream.playbook.compile.compiler import check_document
from noetl_stream.playbook_tests.loading import load

LOOK = """
apiVersion: noetl.io/v2
kind: Schedule
metadata: { name: orders, path: shop/orders_arrived }
spec:
  playbook: shop/load
  every: 1m
  files: { list: s3://orders/in, marker: s3://orders/state.json }
  workload: { path: "{{ file.path }}" }
"""
CALLED = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: load, path: shop/load }
workload: { path: null }
workflow: [ { step: load, tool: { name: load, kind: shell, command: [ load, "{{ workload.path }}" ] } } ]
"""
GIVEN = """
given:
  catalog: { load.yaml: { stubs: { load: [ %s, { result: { exit_status: 0 } } ] } } }
  stubs:
    arrived: { result: { files: [%s], more: false, marker: { since: now } } }
tests:
"""


def look(folder: Path, then: str, *, files: list[str], first: str = "{ call: 9, result: {} }") -> int:
    """Runs a look that finds these files; returns how many executions it has started."""
    compiled = runner().compiled
    schedule = check_document(LOOK, compiled.kinds).schedule
    assert schedule is not None and schedule.arrivals_text is not None
    (folder / "look.yaml").write_text(schedule.arrivals_text)
    (folder / "load.yaml").write_text(CALLED)
    given = GIVEN % (first, ", ".join(f"{{ path: s3://orders/in/{name} }}" for name in files))
    (folder / "look.test.yaml").write_text(TESTS + given + dedent(then))
    document = load(folder / "look.test.yaml", compiled.kinds, compiled.limits)
    assert document.diagnostics == (), [one.render() for one in document.diagnostics]
    [outcome] = [runner().run(test) for test in document.tests]
    assert outcome.problems == (), [one.message for one in outcome.problems]
    return len(outcome.journals) - 1


def test_each_file_is_called_for_once_the_marker_is_written(tmp_path: Path) -> None:
    then = """
    - name: arrivals
      given: { stubs: { mark: { result: {} } } }
      then:
        path: [arrived, mark, each]
        result: { files: [ s3://orders/in/a, s3://orders/in/b ], more: false }
        calls: { mark: [ { marker: { since: now } } ] }
    """
    assert look(tmp_path, then, files=["a", "b"]) == 2


def test_a_look_that_finds_nothing_writes_no_marker(tmp_path: Path) -> None:
    then = "- { name: nothing, then: { result: { files: [], more: false }, calls: { mark: 0 } } }"
    assert look(tmp_path, then, files=[]) == 0


def test_a_look_whose_marker_another_one_has_written_starts_nothing(tmp_path: Path) -> None:
    then = """
    - name: second
      given: { stubs: { mark: { error: conflict } } }
      then: { error: conflict, never: [each] }
    """
    assert look(tmp_path, then, files=["a"]) == 0


def test_a_file_that_cannot_be_processed_delays_no_other(tmp_path: Path) -> None:
    then = """
    - name: one of two
      given: { stubs: { mark: { result: {} } } }
      then: { error: { kind: too_many_failures, step: each } }
    """
    assert look(tmp_path, then, files=["a", "b"], first="{ call: 1, error: exit_status }") == 2
