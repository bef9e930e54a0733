"""The straight path hands out what the general runner does, for every step that takes it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl_stream.engine.runner.lanes import IllegalInput, Output, ReportFacts, RunTask
from noetl_stream.engine.runner.runner import CommandRunner
from noetl_stream.engine.runner.straight import FROM_THE_START, Runner, StraightRunner, is_straight, runner_of
from noetl_stream.model.events import Fact, Wait
from noetl_stream.model.json.codec import payload_of
from noetl_stream.model.limits import Limits
from noetl_stream.model.messages import Go, LoopProgress, Progress, StepCommand
from noetl_stream.model.outcome import ErrorInfo, Meta, Outcome
from noetl_stream.playbook.compile.compiler import compile_playbook
from noetl_stream.playbook.plan import Plan
from noetl_stream.template import render
from noetl_testkit.scenario.scenario import installed_kinds

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: { name: test, path: tests/straight }\nworkflow:\n"
ONE_TASK = "- step: start\n  tool: { name: act, kind: noop, args: { n: '{{ vars }}', ctx: '{{ ctx }}' } }\n"
TWO_TASKS = "- step: start\n  tool: [{ name: act, kind: noop }, { name: more, kind: noop }]\n"
RULES = "rules: [{ else: { then: { do: continue } } }]"
WITH_POLICY = f"- step: start\n  tool: {{ name: act, kind: noop, spec: {{ policy: {{ {RULES} }} }} }}\n"
WAITING = "- step: start\n  tool: { name: act, kind: wait, for_s: 1 }\n"
IN_A_LOOP = "- step: start\n  loop: { in: [1], iterator: n, spec: { MODE } }\n  tool: { name: act, kind: noop }\n"
LOCAL = IN_A_LOOP.replace("MODE", "mode: sequential")
DISTRIBUTED = IN_A_LOOP.replace("MODE", "mode: parallel")

KINDS = installed_kinds()
PLAN = compile_playbook(HEAD + ONE_TASK, KINDS)

texts, numbers = st.text(max_size=8), st.integers(-9, 9)
values = st.recursive(numbers | texts | st.none(), lambda inner: st.lists(inner, max_size=3), max_leaves=4)
namespaces = st.dictionaries(texts, values, max_size=3)
errors = st.builds(ErrorInfo, texts, texts, st.booleans(), retry_after_s=st.none() | st.floats(0, 9), task=texts)
outcomes = st.builds(
    Outcome,
    st.sampled_from(["ok", "error"]),
    values.map(payload_of),
    st.none() | errors,
    st.builds(Meta, numbers, texts),
    namespaces,
    texts,
)


def command_of(plan: Plan, **changes: Any) -> StepCommand:
    given = {"command_id": "command-1", "execution_id": "execution-1", "partition": 0, "step_run_id": "run-1"}
    given |= {"step": "start", "digest": plan.digest, "pool": "default"}
    return StepCommand(**{**given, **changes})


def runners(command: StepCommand) -> tuple[StraightRunner, CommandRunner]:
    straight = runner_of(PLAN, command, FROM_THE_START, kinds=KINDS, worker="worker-1", references={})
    assert isinstance(straight, StraightRunner)
    return straight, CommandRunner(PLAN, command, Go(), kinds=KINDS, worker="worker-1", references={})


def parts(outputs: list[Output]) -> tuple[list[Fact], list[Output]]:
    """The facts to report, in order, and the actions."""
    facts = [fact for output in outputs if isinstance(output, ReportFacts) for fact in output.facts]
    return facts, [output for output in outputs if not isinstance(output, ReportFacts)]


def inputs_of(runner: Runner, run: RunTask) -> Any:
    return render(run.task.inputs, runner.scope.for_inputs(run.task, run.progress, run.iteration))


@given(outcomes, namespaces, namespaces, st.integers(1, 3), st.booleans())
def test_both_paths_hand_out_the_same_actions(outcome: Outcome, seen: Any, ctx: Any, most: int, pauses: bool) -> None:
    command = command_of(PLAN, vars=seen, ctx=ctx, limits=Limits(max_task_runs=most))
    straight, general = runners(command)
    facts, (run,) = parts(straight.begin())
    assert (facts, [run]) == parts(general.begin())
    assert isinstance(run, RunTask) and inputs_of(straight, run) == inputs_of(general, run)
    if pauses:
        straight.pause()
        general.pause()
    assert (straight.over, general.over) == (False, False)
    assert straight.complete(run.id, outcome) == general.complete(run.id, outcome)
    assert (straight.over, general.over) == (True, True)


def test_both_paths_refuse_the_same_answers() -> None:
    for runner in runners(command_of(PLAN)):
        with pytest.raises(IllegalInput, match="no action 1 is under way"):
            runner.complete(1, Outcome("ok"))
        runner.begin()
        with pytest.raises(IllegalInput, match="the run has begun"):
            runner.begin()
        with pytest.raises(IllegalInput, match="no action 2 is under way"):
            runner.complete(2, Outcome("ok"))
        with pytest.raises(IllegalInput, match="cannot be completed with None"):
            runner.complete(1, None)
        runner.complete(1, Outcome("ok"))
        with pytest.raises(IllegalInput, match="no action 1 is under way"):
            runner.complete(1, Outcome("ok"))


@pytest.mark.parametrize("steps", [TWO_TASKS, WITH_POLICY, WAITING])
def test_a_pipeline_that_can_take_turns_takes_the_general_path(steps: str) -> None:
    plan = compile_playbook(HEAD + steps, KINDS)
    assert not is_straight(plan, command_of(plan), FROM_THE_START)


@pytest.mark.parametrize(
    ("steps", "changes"),
    [
        (LOCAL, {"items": [1]}),
        (LOCAL, {"paging": True}),
        (DISTRIBUTED, {"path": (0,), "chain": [1], "counts": [1]}),
    ],
)
def test_loops_take_the_general_path(steps: str, changes: dict[str, Any]) -> None:
    plan = compile_playbook(HEAD + steps, KINDS)
    assert not is_straight(plan, command_of(plan, **changes), FROM_THE_START)


@pytest.mark.parametrize(
    "go",
    [
        Go(progress={"": Progress("act", attempt=2, runs=1)}),
        Go(answers={"": Outcome("ok")}),
        Go(waits={"": Wait(task="act", for_s=1.0)}),
        Go(ctx={"n": 1}),
        Go(vars={"n": 1}),
        Go(loop=LoopProgress()),
    ],
)
def test_a_run_that_takes_over_takes_the_general_path(go: Go) -> None:
    assert not is_straight(PLAN, command_of(PLAN), go)


def test_a_claimed_run_that_starts_again_takes_the_straight_path() -> None:
    assert is_straight(PLAN, command_of(PLAN), Go())
