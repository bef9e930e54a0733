"""Stubs stand for tasks: results, errors, by attempt, iteration, call and inputs; what has none is said."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from playbook_test_stage import FETCH, loaded, problems, ran

LOOP = """
    workflow:
      - step: cities
        loop:
          in: "{{ workload.cities }}"
          iterator: city
          spec: { mode: parallel, policy: { failure: { mode: best_effort } } }
        tool: { name: price, kind: http, url: "https://example.com/{{ iter.city }}" }
    workload: { cities: [oslo, quito, perth] }
"""


def test_a_stub_stands_for_a_response(tmp_path: Path) -> None:
    tests = """
        - name: found
          given: { stubs: { fetch: { result: { data: { a: 1 } } } } }
          then:
            result: { got: { a: 1 } }
            path: [fetch, use]
            calls: { fetch: [ { url: "https://example.com/7" } ] }
    """
    assert problems(tmp_path, FETCH, tests) == []


def test_a_status_of_an_error_is_the_error_that_the_tool_gives(tmp_path: Path) -> None:
    tests = """
        - name: gone
          given: { stubs: { fetch.get: { result: { status: 404, data: nope } } } }
          then: { result: { mended: 404 }, path: [fetch, mend], calls: { fetch.get: 1 } }
        - name: down, then up
          given:
            stubs:
              fetch.get:
                - { attempt: 1, result: { status: 503 } }
                - { attempt: 2, error: timeout }
                - { result: { data: here } }
          then: { result: { got: here }, calls: { fetch.get: 3 } }
        - name: down
          given: { stubs: { fetch: { result: { status: 503 } } } }
          then: { result: { mended: 503 }, never: [use], calls: { fetch: 4 } }
    """
    assert problems(tmp_path, FETCH, tests) == []


def test_backoff_takes_no_real_time_and_takes_its_simulated_time(tmp_path: Path) -> None:
    tests = """
        - name: waits 10 s and more
          given: { stubs: { fetch: [ { attempt: 1, error: timeout }, { result: { data: 1 } } ] } }
          when:
            - { after: 9s, then: { status: waiting, calls: { fetch: 1 } } }
            - { after: 3s, then: { status: completed, calls: { fetch: 2 } } }
    """
    assert problems(tmp_path, FETCH, tests) == []


def test_a_stub_is_chosen_by_iteration_call_and_inputs(tmp_path: Path) -> None:
    tests = """
        - name: by iteration
          given:
            stubs:
              cities:
                - { iteration: 1, error: { kind: connection, message: no line } }
                - { inputs: { url: "https://example.com/perth" }, result: { data: { price: 3 } } }
                - { call: 1, result: { data: { price: 1 } } }
          then:
            result:
              - { status: 200, headers: {}, data: { price: 1 } }
              - null
              - { status: 200, headers: {}, data: { price: 3 } }
    """
    assert problems(tmp_path, LOOP, tests) == []


def test_iterations_of_inner_loops_are_named_from_the_outermost(tmp_path: Path) -> None:
    playbook = """
        workflow:
          - step: grid
            loop: { in: [a, b], iterator: row, loop: { in: [1, 2], iterator: cell } }
            tool: { name: look, kind: http, url: "https://example.com/{{ iter.parent.row }}/{{ iter.cell }}" }
            next: { arcs: [ { step: end } ] }
          - { step: end, tool: { kind: noop, args: { one: "{{ grid[1][0].data }}", other: "{{ grid[0][1].data }}" } } }
    """
    tests = """
        - name: one cell
          given: { stubs: { grid: [ { iteration: [1, 0], result: { data: here } }, { result: { data: there } } ] } }
          then: { calls: { grid: 4 }, path: [grid, end], result: { one: here, other: there } }
    """
    assert problems(tmp_path, playbook, tests) == []


def test_a_task_without_a_stub_ends_the_test_with_what_to_write(tmp_path: Path) -> None:
    [outcome] = ran(tmp_path, FETCH, "- name: nothing is given")
    [problem] = outcome.problems
    assert (
        f"{tmp_path / 'p.yaml'}:8: task `get` of step `fetch` (kind http): no stub (attempt 1, call 1)"
        in problem.message
    )
    assert problem.message.endswith("given:\n    stubs:\n      fetch.get: { result: { status: 200, data: {} } }")


def test_the_stub_advised_for_a_missing_one_passes(tmp_path: Path) -> None:
    [outcome] = ran(tmp_path, FETCH, "- name: nothing is given")
    advice = "\n".join(outcome.problems[0].message.splitlines()[1:])
    tests = f"- name: as advised\n{advice}"
    assert problems(tmp_path, FETCH, tests) == []


def test_stubs_that_do_not_fit_a_call_are_reported(tmp_path: Path) -> None:
    tests = "- { name: one, given: { stubs: { fetch: { attempt: 9, result: {} } } } }"
    [outcome] = ran(tmp_path, FETCH, tests)
    assert "none of its 1 stubs fits the call (attempt 1, call 1)" in outcome.problems[0].message
    assert outcome.notes == ("unused stubs: fetch",)


def test_python_runs_only_where_the_test_allows_it(tmp_path: Path) -> None:
    playbook = """
        workflow:
          - step: add
            tool: { name: sum, kind: python, args: { a: 2 }, code: "result = a + 3" }
    """
    tests = """
        - { name: alone }
        - { name: real, given: { real: [python] }, then: { result: 5 } }
        - { name: as stub, given: { stubs: { add: { real: true } } }, then: { result: 5 } }
        - { name: stubbed, given: { real: [python], stubs: { add: { result: 6 } } }, then: { result: 6 } }
    """
    found = problems(tmp_path, playbook, tests)
    assert len(found) == 1
    assert "or let it run: `given: { real: [python] }`" in found[0]


def test_duckdb_runs_in_memory(tmp_path: Path) -> None:
    playbook = """
        workflow:
          - step: add
            tool: { kind: duckdb, tables: { t: [ { n: 1 }, { n: 2 } ] }, query: SELECT sum(n)::int AS n FROM t }
            next: { arcs: [ { step: end } ] }
          - { step: end, tool: { kind: noop, args: { n: "{{ add.rows[0].n }}" } } }
    """
    tests = """
        - { name: real, given: { real: [duckdb] }, then: { result: { n: 3 } } }
        - { name: stubbed, given: { stubs: { add: { result: { rows: [ { n: 9 } ] } } } }, then: { result: { n: 9 } } }
    """
    assert problems(tmp_path, playbook, tests) == []


def test_no_other_kind_runs(tmp_path: Path) -> None:
    for tests in (
        "- { name: a, given: { real: [http] } }",
        "- { name: a, given: { stubs: { fetch: { real: true } } } }",
    ):
        [found] = loaded(tmp_path, FETCH, tests).diagnostics
        assert (found.code, "does not run in a test" in found.message or "do not run" in found.message) == (
            "not_real",
            True,
        )


def test_secrets_are_given_or_read_as_their_name(tmp_path: Path) -> None:
    playbook = """
        keychain: [ { name: api, kind: env, variable: HOME } ]
        workflow:
          - step: ask
            tool: { kind: http, url: "https://example.com", headers: { x-key: "{{ keychain.api }}" } }
    """
    tests = """
        - name: by its name
          given: { stubs: { ask: { result: {} } } }
          then: { calls: { ask: [ { headers: { x-key: <keychain.api> } } ] } }
        - name: as given
          given: { keychain: { api: s3cret }, stubs: { ask: { result: {} } } }
          then: { calls: { ask: [ { headers: { x-key: s3cret } } ] } }
    """
    assert problems(tmp_path, playbook, tests) == []


def test_called_playbooks_have_stubs_of_their_own(tmp_path: Path) -> None:
    child = """
        apiVersion: noetl.io/v2
        kind: Playbook
        metadata: { name: child, path: tests/child }
        workload: { n: 0 }
        workflow:
          - step: ask
            tool: { name: look, kind: postgres, auth: db, command: SELECT 1 }
            next: { arcs: [ { step: end } ] }
          - { step: end, tool: { kind: noop, args: { n: "{{ workload.n + ask.rows[0].one }}" } } }
    """
    (tmp_path / "child.yaml").write_text(dedent(child))
    playbook = """
        workflow:
          - step: call
            loop: { in: [1, 2], iterator: n }
            tool: { kind: playbook, path: tests/child, args: { n: "{{ iter.n }}" } }
    """
    tests = """
        - name: both
          given: { catalog: { child.yaml: { stubs: { ask: { result: { rows: [ { one: 10 } ] } } } } } }
          then: { result: [ { n: 11 }, { n: 12 } ] }
        - name: without its stub
          given: { catalog: { child.yaml: } }
    """
    [both, without] = ran(tmp_path, playbook, tests)
    assert both.problems == ()
    assert "child.yaml" in without.problems[0].message
    assert "ask.look: { result: { rows: [] } }" in without.problems[0].message


def test_a_loop_that_stubs_never_end_meets_the_limit_of_the_language(tmp_path: Path) -> None:
    playbook = """
        workflow:
          - step: poll
            tool:
              - name: ask
                kind: http
                url: https://example.com
                spec: { policy: { rules: [ { else: { then: { do: jump, to: ask } } } ] } }
        executor: { spec: { policy: { limits: { max_task_runs: 1000 } } } }
    """
    given = "given: { stubs: { poll: { result: {} } } }"
    assert problems(tmp_path, playbook, f"- {{ name: a, {given}, then: {{ error: limit_exceeded }} }}") == []
