"""What happens meanwhile: signals, patches, pauses; and time, which passes by itself where nothing else ends a wait."""

from __future__ import annotations

from pathlib import Path

import pytest
from playbook_test_stage import problems, ran

SIGNALLED = """
    workflow:
      - step: ask
        tool:
          - { name: before, kind: noop, args: { asked: true } }
          - { name: word, kind: wait, signal: go, timeout_s: 86400 }
        next:
          arcs:
            - { step: done, when: "{{ event.name == 'step.done' }}", args: { by: "{{ event.result.by }}" } }
            - { step: late, when: "{{ event.error.kind == 'timeout' }}" }
      - { step: done, tool: { kind: noop, args: { by: "{{ args.by }}" } } }
      - { step: late, tool: { kind: noop, args: { late: true } } }
"""


def test_a_signal_goes_to_what_waits_for_it(tmp_path: Path) -> None:
    tests = """
        - name: said
          when:
            - then: { status: waiting, waits_for: [ask] }
            - { signal: go, payload: { by: ada } }
          then: { result: { by: ada }, path: [ask, done] }
    """
    assert problems(tmp_path, SIGNALLED, tests) == []


def test_time_that_the_test_lets_pass_ends_a_wait(tmp_path: Path) -> None:
    tests = """
        - name: just not
          when: [ { after: 23h, then: { status: waiting } }, { after: 59m, signal: go, payload: { by: eve } } ]
          then: { result: { by: eve } }
        - { name: too late, when: [ { after: 1d } ], then: { result: { late: true } } }
    """
    assert problems(tmp_path, SIGNALLED, tests) == []


def test_a_wait_for_a_person_ends_the_test_with_its_reason(tmp_path: Path) -> None:
    [outcome] = ran(tmp_path, SIGNALLED, "- name: nobody says a word")
    assert [problem.message for problem in outcome.problems] == ["status: expected completed, was waiting at ask"]
    assert "signal `go`" in outcome.why[0]
    assert "Write under `when`: `- { signal: go }` or `- { after: 1d }`." in outcome.why[0]


def test_a_test_may_end_while_it_waits(tmp_path: Path) -> None:
    tests = "- { name: waits, then: { status: waiting, waits_for: [ask], path: [ask] } }"
    assert problems(tmp_path, SIGNALLED, tests) == []


def test_waits_for_time_alone_need_no_action(tmp_path: Path) -> None:
    playbook = """
        workflow:
          - step: rest
            tool:
              - { name: month, kind: wait, for_s: 2592000 }
              - { name: moment, kind: wait, until: "2030-01-01T00:00:00Z" }
            next: { arcs: [ { step: end } ] }
          - { step: end, tool: { kind: noop, args: { rested: true } } }
    """
    assert problems(tmp_path, playbook, "- { name: a, then: { result: { rested: true } } }") == []


def test_calls_take_their_simulated_time(tmp_path: Path) -> None:
    playbook = """
        workflow:
          - step: slow
            tool: { kind: http, url: "https://example.com", spec: { timeout: 60 } }
    """
    tests = """
        - { name: in time, given: { stubs: { slow: { takes: 59s, result: {} } } } }
        - name: too slow
          given: { stubs: { slow: { takes: 61s, result: {} } } }
          then: { error: { kind: timeout, message: 60 s } }
    """
    assert problems(tmp_path, playbook, tests) == []


def test_the_moment_at_which_it_starts_is_given(tmp_path: Path) -> None:
    playbook = """
        workflow:
          - step: rest
            tool: { kind: wait, until: "2030-01-01T00:00:00Z" }
    """
    tests = """
        - name: the day before
          given: { now: "2029-12-31T00:00:00Z" }
          when:
            - { after: 23h, then: { status: waiting } }
            - { after: 1h, then: { status: completed } }
    """
    assert problems(tmp_path, playbook, tests) == []


GATE = """
    workflow:
      - step: gate
        spec:
          policy:
            admit:
              wait: { timeout_s: 3600 }
              rules: [ { when: "{{ ctx.open and ctx.by.name == 'ada' }}", then: { allow: true } } ]
        tool: { kind: noop, args: { by: "{{ ctx.by.name }}" } }
"""


def test_patches_merge_or_replace(tmp_path: Path) -> None:
    tests = """
        - name: merged
          given: { ctx: { by: { name: eve, age: 3 } } }
          when: [ { patch: { open: true } }, { merge: { by: { name: ada } } } ]
          then: { result: { by: ada }, ctx: { by: { name: ada, age: 3 }, other: null } }
        - name: replaced
          given: { ctx: { by: { name: eve, age: 3 } } }
          when: [ { patch: { open: true, by: { name: ada } } } ]
          then: { result: { by: ada }, ctx: { by: { name: ada } } }
    """
    assert problems(tmp_path, GATE, tests) == []


def test_a_token_is_injected_and_an_execution_paused_resumed_and_cancelled(tmp_path: Path) -> None:
    tests = """
        - name: cancelled
          when: [ { cancel: ordered twice } ]
          then: { status: cancelled, path: [] }
        - name: paused
          when:
            - { pause: lunch, then: { status: paused } }
            - { after: 2h, then: { status: paused } }
            - { resume: back }
            - { patch: { open: true, by: { name: ada } } }
          then: { result: { by: ada } }
        - name: twice
          when: [ { inject: gate }, { patch: { open: true, by: { name: ada } } } ]
          then: { path: [gate, gate] }
    """
    assert problems(tmp_path, GATE, tests) == []


def test_an_impossible_expectation_is_reported(tmp_path: Path) -> None:
    playbook = "workflow: [ { step: one, tool: { kind: noop } } ]"
    tests = """
        - name: too late
          when: [ { after: 1h, patch: { a: 1 } } ]
    """
    assert problems(tmp_path, playbook, tests) == ["patch: the execution is completed already"]


@pytest.mark.parametrize("seed", [0, 7])
def test_the_same_seed_gives_the_same_course(tmp_path: Path, seed: int) -> None:
    tests = "- { name: too late, when: [ { after: 1d } ], then: { result: 1 } }"
    first, second = (ran(tmp_path, SIGNALLED, tests, seed) for _ in range(2))
    assert [(one.problems, one.steps, one.why) for one in first] == [
        (one.problems, one.steps, one.why) for one in second
    ]
    assert first[0].journals == second[0].journals


def test_a_task_with_a_limit_takes_its_turns_in_no_time(tmp_path: Path) -> None:
    playbook = """
        workflow:
          - step: each
            loop: { in: "{{ [1, 2, 3] }}", iterator: n, spec: { mode: parallel } }
            tool:
              name: send
              kind: noop
              args: { n: "{{ iter.n }}" }
              spec: { policy: { limit: { key: api, concurrency: 1, rate: { per_s: 0.5 } } } }
    """
    tests = """
        - { name: in turns, then: { status: completed, result: [ { n: 1 }, { n: 2 }, { n: 3 } ] } }
    """
    assert problems(tmp_path, playbook, tests) == []


def test_a_test_says_for_when_the_execution_is_due_and_when_it_starts(tmp_path: Path) -> None:
    playbook = """
        workflow:
          - step: start
            tool: { kind: noop, args: { due: "{{ execution.due }}", day: "{{ execution.started[:10] }}" } }
    """
    tests = """
        - name: of a schedule
          given: { due: 2026-12-20T02:30:00+01:00, now: 2026-12-24T08:00:00Z }
          then: { result: { due: 2026-12-20T02:30:00+01:00, day: 2026-12-24 } }
        - name: of a client
          then: { result: { due: null, day: 2025-06-15 } }
    """
    assert problems(tmp_path, playbook, tests) == []


ORDER = """
    executor: { spec: { policy: { compensation: { on: [failed, cancelled, timeout] }, finally: note } } }
    workflow:
      - step: reserve
        tool: { kind: http, method: POST, url: http://shop/reserve }
        spec:
          policy:
            compensation:
              tool: { kind: http, method: POST, url: "http://shop/release/{{ reserve.data.id }}" }
        next: { arcs: [ { step: ship } ] }
      - { step: ship, tool: { kind: wait, signal: carrier, timeout_s: 60 } }
      - { step: note, tool: { kind: noop, args: { ended: "{{ execution.status }}" } } }
"""


def test_compensations_and_finally_are_steps_of_the_test(tmp_path: Path) -> None:
    tests = """
        - name: nobody ships
          given:
            stubs:
              reserve: { result: { data: { id: r-1 } } }
              reserve__compensation: { result: { status: 204 } }
          when: [ { after: 2m } ]
          then:
            error: { kind: timeout, step: ship }
            path: [reserve, ship, reserve__compensation, note]
            calls: { reserve__compensation: [ { url: http://shop/release/r-1 } ] }
        - name: it is cancelled
          given: { stubs: { reserve: { result: { data: { id: r-2 } } }, reserve__compensation: { result: {} } } }
          when: [ { cancel: enough } ]
          then: { status: cancelled, path: [reserve, ship, reserve__compensation, note] }
        - name: it is shipped
          given: { stubs: { reserve: { result: { data: { id: r-3 } } } } }
          when: [ { signal: carrier } ]
          then: { path: [reserve, ship, note], never: [reserve__compensation] }
    """
    assert problems(tmp_path, ORDER, tests) == []
