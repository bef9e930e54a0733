"""Named limits of the engine (LANGUAGE §14, PROTOCOL §2 *Decide*): what they end, and that the error names them."""

from __future__ import annotations

import pytest
from engine_scenarios import given, limits, started

from noetl_stream.model.events import ExecutionFailing, TokenClaimed

PING_PONG = """
- step: ping
  next: {arcs: [{step: pong}]}
- step: pong
  next: {arcs: [{step: ping}]}
"""


def test_two_steps_without_tool_that_route_to_each_other_end_with_the_named_limit() -> None:
    scenario = started(PING_PONG)
    assert (scenario.status, scenario.error.kind) == ("failed", "limit_exceeded")
    assert "limits.max_decisions_per_fact (1000)" in scenario.error.message
    assert len(scenario.journal) <= 1_010


def test_a_lower_limit_ends_the_steps_sooner() -> None:
    scenario = started(PING_PONG, limits(max_decisions_per_fact=50))
    assert "limits.max_decisions_per_fact (50)" in scenario.error.message
    assert len(scenario.journal) <= 60


@pytest.mark.parametrize("length", range(1, 14))
def test_a_chain_that_ends_exactly_at_the_limit_completes(length: int) -> None:
    """Whether the limit meets the end of the execution, its beginning or a step: the journal is never cut off."""
    chain = "".join(f"- step: s{n}\n  next: {{arcs: [{{step: s{n + 1}}}]}}\n" for n in range(length))
    scenario = started(chain + f"- step: s{length}\n  tool: {{kind: noop}}\n", limits(max_decisions_per_fact=40))
    if scenario.status == "running":
        scenario.done(f"s{length}")
    assert scenario.names[-2:] == ["execution.finished", "playbook.processed"]
    assert scenario.execution.processed


@pytest.mark.parametrize("at_most", range(3, 12))
def test_an_execution_ends_completely_wherever_the_limit_falls(at_most: int) -> None:
    scenario = started(
        "- step: start\n  next: {arcs: [{step: end, when: false}]}\n- step: end\n  tool: {kind: noop}\n",
        limits(max_decisions_per_fact=at_most),
    )
    assert scenario.names[-2:] == ["execution.finished", "playbook.processed"]
    expected = "failed" if at_most <= 6 else "completed"
    assert scenario.status == expected


def test_commands_of_a_wide_loop_are_not_counted_as_decisions() -> None:
    scenario = started(
        """
        - step: start
          loop: {in: "{{ range(200) | list }}", iterator: n, spec: {mode: parallel, max_in_flight: 200}}
          tool: {kind: noop}
        """,
        limits(max_decisions_per_fact=50),
    )
    assert len(scenario.working) == 200


def test_a_cycle_of_steps_ends_with_the_named_limit() -> None:
    steps = "- step: start\n  tool: {kind: noop}\n  next: {arcs: [{step: start}]}\n"
    scenario = started(steps, limits(max_step_runs=5))
    for _ in range(5):
        assert scenario.status == "running"
        scenario.done("start")
    assert (scenario.status, scenario.error.kind) == ("failed", "limit_exceeded")
    assert scenario.error.message == "limits.max_step_runs (5) reached"
    assert len(scenario.facts(TokenClaimed)) == 5
    assert scenario.facts(ExecutionFailing)[0].step == "start"


def test_a_workload_above_its_limit_is_refused_with_the_limit_named() -> None:
    scenario = given("- step: start\n  tool: {kind: noop}\n", limits(max_workload_bytes=30))
    scenario.start({"text": "x" * 40})
    assert scenario.status == "failed"
    assert "limits.max_workload_bytes is 30" in scenario.error.message
    assert scenario.execution.refused[0]["code"] == "too_large"
    assert "execution.started" not in scenario.names


def test_a_requests_ctx_above_its_limit_is_refused_with_the_limit_named() -> None:
    scenario = given("- step: start\n  tool: {kind: noop}\n", limits(max_ctx_bytes=30))
    scenario.start(ctx={"text": "x" * 40})
    assert (scenario.status, scenario.names[-1]) == ("failed", "playbook.processed")
    assert "ctx has 51 bytes; limits.max_ctx_bytes is 30" in scenario.error.message


def test_a_ctx_that_grows_above_its_limit_fails_the_execution_with_the_limit_named() -> None:
    policy = '{policy: {rules: [{else: {then: {do: continue, set_ctx: {b: "{{ outcome.result }}"}}}}]}}'
    scenario = started(
        f"- step: start\n  tool: [{{name: one, kind: noop, spec: {policy}}}, {{name: two, kind: noop}}]\n",
        limits(max_ctx_bytes=60),
        ctx={"a": "x" * 40},
    )
    run = scenario.take("start")
    run.answer("y" * 20)
    assert scenario.execution.failing is not None
    assert "limits.max_ctx_bytes is 60" in scenario.execution.failing.message
    run.stop()
    assert (scenario.status, scenario.error.kind) == ("failed", "limit_exceeded")


def test_a_result_above_its_limit_fails_the_execution_with_the_limit_named() -> None:
    root = """
    executor: {spec: {result: ["{{ start }}", "{{ start }}"], policy: {limits: {max_inline_bytes: 60}}}}
    """
    scenario = started("- step: start\n  tool: {kind: noop}\n", root)
    scenario.done("start", "x" * 40)
    assert (scenario.status, scenario.error.kind) == ("failed", "result_too_large")
    assert "limits.max_inline_bytes is 60" in scenario.error.message


def test_a_pipeline_that_jumps_for_ever_ends_with_the_named_limit() -> None:
    steps = """
    - step: start
      tool: {name: again, kind: noop, spec: {policy: {rules: [{else: {then: {do: jump, to: again}}}]}}}
    """
    scenario = started(steps, limits(max_task_runs=7))
    scenario.done("start")
    assert "limits.max_task_runs" in scenario.error.message
    assert scenario.names.count("task.processed") == 7
