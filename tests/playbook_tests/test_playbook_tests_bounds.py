"""No test hangs, reaches outside, or gives another outcome when it runs again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import psutil
import pytest
from playbook_test_stage import FETCH, problems, ran, written

from noetl_stream.playbook_tests.loading import load
from noetl_stream.playbook_tests.run import TestRunner
from noetl_stream.playbook_tests.suite import find_documents
from noetl_stream.tools.registry import load_tools

ENDLESS = """
    workflow:
      - step: turn
        tool: { name: rest, kind: wait, for_s: 30000000 }
        next: { arcs: [ { step: turn } ] }
"""


def test_simulated_time_has_an_end(tmp_path: Path) -> None:
    [outcome] = ran(tmp_path, ENDLESS, "- { name: a }")
    [problem] = outcome.problems
    assert problem.message == "more than 100 years of simulated time: a loop of the playbook does not end"
    assert outcome.steps[0] == "1. turn (start): step.done"
    assert outcome.steps[25] == "… 57 more"
    assert outcome.steps[-1] == "107. turn (arc from turn): not ended"


def test_calls_without_end_name_the_task(tmp_path: Path) -> None:
    playbook = """
        workflow:
          - step: turn
            loop: { in: "{{ range(10001) }}", iterator: n }
            tool: { name: ask, kind: http, url: "https://example.com" }
    """
    [found] = problems(tmp_path, playbook, "- { name: a, given: { stubs: { turn: { result: {} } } } }")
    assert found.startswith("more than 10,000 calls, 10,001 of them of task `ask` of step `turn`")


def test_code_that_never_ends_ends_the_test(tmp_path: Path) -> None:
    playbook = """
        workflow:
          - step: spin
            tool: { kind: python, code: "while True: pass" }
    """
    document = written(tmp_path, playbook, "- { name: a, given: { real: [python] } }")
    hasty = TestRunner(load_tools(), real_work_s=0.5)
    [test] = load(document, hasty.compiled.kinds, hasty.compiled.limits).tests
    [problem] = hasty.run(test).problems
    assert problem.message == "nothing was heard of a thread or process for 0.5 s"


def test_a_playbook_that_is_not_given_is_named(tmp_path: Path) -> None:
    playbook = """
        workflow:
          - step: call
            tool: { kind: playbook, path: tests/other }
    """
    [outcome] = ran(tmp_path, playbook, "- { name: a }")
    assert "invalid_playbook: no playbook tests/other in the catalog" in outcome.problems[0].message
    assert outcome.notes == ("a called playbook is not given: name its file under `given: { catalog: { FILE: } }`",)


def test_duckdb_does_not_reach_postgres_by_attach(tmp_path: Path) -> None:
    playbook = """
        workflow:
          - step: read
            tool: { name: sums, kind: duckdb, attach: { db: { auth: mine, tables: [t] } }, query: SELECT 1 }
    """
    [found] = problems(tmp_path, playbook, "- { name: a, given: { real: [duckdb] } }")
    assert "task `sums` of step `read` (kind duckdb): no stub" in found
    assert "or let it run" not in found


def test_a_stub_must_match_the_schema_of_its_task(tmp_path: Path) -> None:
    (tmp_path / "price.yaml").write_text(
        dedent("""
            apiVersion: noetl.io/v2
            kind: Schema
            metadata: { name: price, path: schemas/price }
            spec: { type: object, properties: { status: { const: 200 } }, required: [status] }
        """)
    )
    playbook = """
        workflow:
          - step: ask
            tool: { kind: http, url: "https://example.com", spec: { result: { schema: { path: schemas/price } } } }
    """
    tests = """
        given: { catalog: { price.yaml: } }
        tests:
          - { name: as it says, given: { stubs: { ask: { result: {} } } } }
          - name: otherwise
            given: { stubs: { ask: { result: { status: 201 } } } }
            then: { error: schema_mismatch }
    """
    assert problems(tmp_path, playbook, tests) == []


def test_a_secrets_task_opens_what_is_given(tmp_path: Path) -> None:
    playbook = """
        workflow:
          - step: ask
            tool:
              - { name: api, kind: secrets, credential: api }
              - { name: get, kind: http, url: "https://example.com/{{ keychain.api.key }}" }
    """
    tests = """
        - name: a
          given: { keychain: { api: { key: key-1 } }, stubs: { ask: { result: {} } } }
          then: { calls: { ask.get: [ { url: "https://example.com/key-1" } ] } }
    """
    assert problems(tmp_path, playbook, tests) == []


def test_pools_have_workers(tmp_path: Path) -> None:
    playbook = """
        workflow:
          - { step: one, spec: { pool: gpu }, tool: { kind: noop }, next: { arcs: [ { step: two } ] } }
          - { step: two, tool: { kind: noop, args: { a: 1 } } }
    """
    assert problems(tmp_path, playbook, "- { name: a, then: { path: [one, two], result: { a: 1 } } }") == []


def test_a_misspelt_key_of_the_workload_is_noted(tmp_path: Path) -> None:
    tests = "- { name: a, given: { workload: { idd: 1 }, stubs: { fetch: { result: {} } } } }"
    [outcome] = ran(tmp_path, FETCH, tests)
    assert outcome.notes == ("`workload.idd` is not declared by the playbook; did you mean `workload.id`?",)


def test_tests_of_something_else_are_not_found_in_folders(tmp_path: Path) -> None:
    mine = written(tmp_path, FETCH, "- { name: a }")
    (tmp_path / "other.test.yaml").write_text("tests: [ { request: GET / } ]\n")
    assert find_documents([tmp_path]) == [mine]


@pytest.mark.verify
def test_another_process_prints_the_same() -> None:
    playbook = Path(__file__).resolve().parents[2] / "playbooks" / "paginate_to_postgres.yaml"
    command = [sys.executable, "-m", "noetl_stream", "playbook", "test", playbook, "-o", "json"]
    printed = {
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


def test_nothing_is_left_running(tmp_path: Path) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    playbook = "workflow: [ { step: one, tool: { kind: python, code: result = 1 } } ]"
    assert problems(tmp_path, playbook, "- { name: a, given: { real: [python] }, then: { result: 1 } }") == []
    assert {child.pid for child in psutil.Process().children(recursive=True)} - before == set()
