"""Sentences about what templates see and when they are rendered that no other test shows (LANGUAGE §2, §5, §7)."""

from __future__ import annotations

import pytest
from engine_scenarios import started

from noetl_stream.model.outcome import ErrorInfo


def test_ctx_is_empty_at_the_start() -> None:
    scenario = started("- step: start\n  tool: {kind: noop, args: {all: '{{ ctx }}'}}\n", "workload: {a: 1}\n")
    assert scenario.ctx == {}
    assert scenario.take("start").inputs == {"args": {"all": {}}}


def test_inputs_are_rendered_before_every_attempt() -> None:
    rule = '{when: "{{ outcome.error }}", then: {do: retry, attempts: 3, set_iter: {seen: "{{ _attempt }}"}}}'
    scenario = started(
        f"""
        - step: start
          tool:
            kind: noop
            args: {{attempt: "{{{{ _attempt }}}}", seen: "{{{{ iter.seen | default(0) }}}}"}}
            spec: {{policy: {{rules: [{rule}]}}}}
        """
    )
    run = scenario.take("start")
    seen = []
    for _ in range(3):
        seen.append(run.inputs["args"])
        run.answer(error=ErrorInfo("connection", "it hung up"))
    assert seen == [{"attempt": 1, "seen": 0}, {"attempt": 2, "seen": 1}, {"attempt": 3, "seen": 2}]


def test_the_workload_stays_as_it_is_written() -> None:
    scenario = started(
        "- step: start\n  tool: {kind: noop, args: {text: '{{ workload.text }}'}}\n",
        "workload: {text: '{{ 1 + 1 }}'}\n",
    )
    scenario.done("start")
    assert scenario.result == {"text": "{{ 1 + 1 }}"}


def test_iter_and_vars_end_with_their_step_run() -> None:
    scenario = started(
        """
        - step: start
          tool:
            kind: noop
            spec: {policy: {rules: [{else: {then: {do: continue, set_iter: {a: 1}, set_vars: {b: 2}}}}]}}
          next: {arcs: [{step: after}]}
        - step: after
          tool: {kind: noop, args: {iter: "{{ iter }}", vars: "{{ vars }}"}}
        """
    )
    scenario.done("start")
    assert scenario.take("after").inputs == {"args": {"iter": {}, "vars": {}}}


def test_arcs_read_the_args_of_their_step() -> None:
    scenario = started(
        """
        - step: start
          next: {arcs: [{step: middle, args: {n: 3}}]}
        - step: middle
          tool: {kind: noop}
          next: {arcs: [{step: end, when: "{{ args.n == 3 and n == 3 }}", args: {n: "{{ args.n + 1 }}"}}]}
        - step: end
          tool: {kind: noop}
        """
    )
    scenario.done("middle")
    assert scenario.take("end").command.args == {"n": 4}


@pytest.mark.parametrize("fails", [False, True])
def test_an_arc_for_both_ends_always_routes(fails: bool) -> None:
    scenario = started(
        """
        - step: start
          tool: {kind: noop}
          next: {arcs: [{step: always, when: "{{ event.name in ['step.done', 'step.failed'] }}"}]}
        - step: always
          tool: {kind: noop}
        """
    )
    if fails:
        scenario.failed("start")
    else:
        scenario.done("start")
    assert scenario.working == [("always", None)]
