"""Sentences about pipelines and policies that no other test shows (LANGUAGE §5; v10 §4, §7.5; formal §6, §12)."""

from __future__ import annotations

from typing import Any

import pytest
from engine_scenarios import started

from noetl_stream.model.events import LoopIterationDone, LoopIterationFailed, LoopStarted, TaskProcessed, TaskStarted
from noetl_testkit.scenario.scenario import Scenario


def ruled(rules: str, *, loop: str = "", more: str = "", root: str = "", **request: dict[str, Any]) -> Scenario:
    """A step of the task ``work`` with these rules, the tasks ``more`` after it; started."""
    first = f"{{name: work, kind: noop, spec: {{policy: {{rules: [{rules}]}}}}}}"
    return started(f"- step: start\n{loop}  tool: [{first}{more}]\n", root, **request)


def loop(spec: str) -> str:
    return f"  loop: {{in: [1, 2, 3], iterator: item, spec: {{{spec}}}}}\n"


def test_break_ends_one_iteration_as_successful_and_no_other() -> None:
    rules = '{when: "{{ item == 2 }}", then: {do: break}}'
    scenario = ruled(rules, loop=loop("mode: sequential"), more=", {name: after, kind: noop}")
    scenario.done("start", "done")
    assert [fact.task for fact in scenario.facts(TaskProcessed)] == ["work", "after", "work", "work", "after"]
    assert [fact.path for fact in scenario.facts(LoopIterationDone)] == [(0,), (1,), (2,)]
    assert scenario.status == "completed"


def test_fail_ends_one_iteration_as_failed() -> None:
    rules = '{when: "{{ item == 2 }}", then: {do: fail}}'
    scenario = ruled(rules, loop=loop("mode: sequential, policy: {failure: {mode: best_effort}}"))
    scenario.done("start", "done")
    assert [fact.path for fact in scenario.facts(LoopIterationFailed)] == [(1,)]
    assert scenario.result == ["done", None, "done"]


@pytest.mark.parametrize("spec", ["mode: parallel", "mode: parallel, exec: local"])
def test_parallel_iterations_write_iter_without_meeting_each_other(spec: str) -> None:
    rules = '{else: {then: {do: continue, set_iter: {seen: "{{ iter.seen | default(0) + item }}"}}}}'
    more = ', {name: show, kind: noop, args: {seen: "{{ iter.seen }}"}}'
    scenario = ruled(rules, loop=loop(spec), more=more)
    for index in range(3) if spec == "mode: parallel" else [None]:
        scenario.done("start", index=index)
    assert scenario.result == [{"seen": 1}, {"seen": 2}, {"seen": 3}]
    assert scenario.ctx == {}


@pytest.mark.parametrize(
    "guard",
    [
        "outcome.status == 'ok' and outcome.result.n == 2",
        "_prev.n == 1",
        "_task == 'last'",
        "_attempt == 1",
        "iter.seen == 1",
        "ctx.seen == 1",
        "vars.seen == 1",
        "workload.limit == 3",
        "args == {}",
        "results.first.n == 1 and first.n == 1",
        "start is none and steps.start is none",
        "execution_id == 'execution-1'",
    ],
)
def test_a_task_guard_reads(guard: str) -> None:
    write = "set_ctx: {seen: 1}, set_iter: {seen: 1}, set_vars: {seen: 1}"
    scenario = started(
        f"""
        - step: start
          tool:
          - name: first
            kind: noop
            spec: {{policy: {{rules: [{{else: {{then: {{do: continue, {write}}}}}}}]}}}}
          - name: last
            kind: noop
            spec: {{policy: {{rules: [{{when: "{{{{ {guard} }}}}", then: {{do: break}}}}]}}}}
        """,
        "workload: {limit: 3}\n",
    )
    run = scenario.take("start")
    run.answer({"n": 1})
    run.answer({"n": 2})
    assert [fact.do for fact in scenario.facts(TaskProcessed)] == ["continue", "break"]


def test_attempt_in_a_policy_is_the_attempt_that_just_finished() -> None:
    rules = (
        '{when: "{{ _attempt == 1 }}", then: {do: retry, attempts: 9}},{when: "{{ _attempt == 2 }}", then: {do: break}}'
    )
    scenario = ruled(rules)
    scenario.done("start", "done")
    assert [(fact.attempt, fact.do) for fact in scenario.facts(TaskProcessed)] == [(1, "retry"), (2, "break")]


PREV_IN_ATTEMPTS = """
- step: start
  tool:
  - {name: submit, kind: noop}
  - name: poll
    kind: noop
    args: {seen: "{{ _prev.id | default('nothing') }}"}
    spec:
      policy:
        rules:
        - {when: "{{ _attempt < 3 }}", then: {do: retry, attempts: 3, set_ctx: {policy: "{{ _prev.id }}"}}}
        - {when: "{{ iter.again is not defined }}", then: {do: jump, to: poll, set_iter: {again: true}}}
"""


def test_all_attempts_of_a_visit_see_the_result_of_the_task_before_it_and_a_jump_begins_a_visit() -> None:
    scenario = started(PREV_IN_ATTEMPTS)
    run = scenario.take("start")
    run.answer({"id": "job-1"})
    seen = []
    for attempt in range(6):
        seen.append(run.inputs["args"]["seen"])
        run.answer({"id": f"poll-{attempt}"})
    assert seen == ["job-1"] * 3 + ["poll-2"] * 3
    assert (scenario.ctx, scenario.status) == ({"policy": "poll-2"}, "completed")


def test_a_run_that_takes_over_between_attempts_sees_the_same_prev() -> None:
    scenario = started(PREV_IN_ATTEMPTS)
    run = scenario.take("start")
    run.answer({"id": "job-1"})
    run.answer({"id": "poll-0"})
    again = scenario.take("start")
    scenario.claim(again)
    assert again.inputs["args"] == {"seen": "job-1"}


def test_the_first_task_has_no_prev_in_any_attempt() -> None:
    scenario = ruled('{when: "{{ _attempt == 1 and _prev is none }}", then: {do: retry, attempts: 2}}')
    scenario.done("start", "done")
    assert [(fact.attempt, fact.do) for fact in scenario.facts(TaskProcessed)] == [(1, "retry"), (2, "continue")]


def test_a_patch_replaces_the_whole_key() -> None:
    rules = "{else: {then: {do: continue, set_ctx: {page: {next: 2}}}}}"
    scenario = ruled(rules, ctx={"page": {"next": 1, "total": 9}, "other": {"kept": True}})
    scenario.done("start")
    assert scenario.ctx == {"page": {"next": 2}, "other": {"kept": True}}


def test_a_reference_of_the_author_is_plain_data_in_ctx() -> None:
    reference = {"store": "postgres.table", "key": "results", "range": "id:100-150", "size": 7, "checksum": "x"}
    scenario = ruled('{else: {then: {do: continue, set_ctx: {stored: "{{ outcome.result }}"}}}}')
    scenario.done("start", reference)
    assert scenario.ctx == {"stored": reference}


def test_polling_is_a_jump_that_repeats_until_the_answer_is_ready() -> None:
    rules = '{when: "{{ not outcome.result.ready }}", then: {do: jump, to: work}}, {else: {then: {do: continue}}}'
    scenario = ruled(rules)
    run = scenario.take("start")
    for ready in (False, False, True):
        run.answer({"ready": ready})
    assert (scenario.status, scenario.result) == ("completed", {"ready": True})
    assert [fact.attempt for fact in scenario.facts(TaskProcessed)] == [1, 1, 1]


def test_synthetic_names_are_those_of_jumps_events_and_results() -> None:
    scenario = started(
        """
        - step: start
          tool:
          - kind: noop
          - kind: noop
            args: {first: "{{ task_0.data.n }}"}
            spec: {policy: {rules: [{when: "{{ task_1.first < 2 }}", then: {do: jump, to: task_0}}]}}
        """
    )
    run = scenario.take("start")
    run.answer({"n": 1})
    run.answer()
    run.answer({"n": 2})
    run.answer()
    assert [fact.task for fact in scenario.facts(TaskStarted)] == ["task_0", "task_1"] * 2
    assert scenario.result == {"first": 2}


def retried_after(delay: str, wait: str) -> Scenario:
    """A task that has failed once, with a retry after ``delay``; ``wait`` is the workload."""
    rule = f'{{when: "{{{{ outcome.error }}}}", then: {{do: retry, attempts: 2, delay: "{delay}"}}}}'
    scenario = started(
        f"- step: start\n  tool: {{kind: noop, spec: {{policy: {{rules: [{rule}]}}}}}}\n",
        f"workload: {{wait: {wait}}}\n",
    )
    scenario.failed("start")
    return scenario


@pytest.mark.parametrize(
    ("text", "least_s"), [("1", 1), ("007", 7), (" 2 ", 2), ("0.5", 0.5), ("+3", 3), ("1e1", 10), ("0", 0)]
)
def test_text_that_is_a_number_is_that_number(text: str, least_s: float) -> None:
    processed = retried_after("{{ workload.wait }}", f"'{text}'").facts(TaskProcessed)[0]
    assert processed.do == "retry"
    assert least_s <= processed.delay_s <= 1.1 * least_s


@pytest.mark.parametrize("width", ["'2'", "2"])
def test_a_width_from_text_is_that_number(width: str) -> None:
    spec = '{mode: parallel, max_in_flight: "{{ workload.width }}"}'
    step = f"- step: start\n  loop: {{in: [1, 2, 3], iterator: n, spec: {spec}}}\n  tool: {{kind: noop}}\n"
    scenario = started(step, f"workload: {{width: {width}}}\n")
    assert scenario.facts(LoopStarted)[0].max_in_flight == 2


@pytest.mark.parametrize("text", ["soon", "1 2", "-1", "1e999", "NaN", "0x10", "Wed, 21 Oct 2026 07:28:00 GMT", ""])
def test_a_number_that_is_other_text_is_an_error_that_shows_it(text: str) -> None:
    scenario = retried_after("{{ workload.wait }}", f"'{text}'")
    shown = "-1" if text == "-1" else repr(text)
    assert scenario.error.kind == "expression_error"
    assert f"delay is {shown}, not a number of seconds" in scenario.error.message
    assert "(the task itself ended with exception: it broke)" in scenario.error.message


def test_a_template_that_renders_no_number_is_an_error() -> None:
    scenario = retried_after("{{ 'soon' }}", "soon")
    assert scenario.error.kind == "expression_error" and "'soon'" in scenario.error.message
