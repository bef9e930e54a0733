"""A walk through the runner: what it hands out, what completes that, and what a driver cannot do to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from noetl_stream.engine.runner.lanes import (
    Action,
    Evaluate,
    IllegalInput,
    LoadPage,
    LoadReference,
    Output,
    ReportFacts,
    RunTask,
    Sleep,
    StorePage,
    Withdraw,
    Worked,
)
from noetl_stream.engine.runner.runner import MAX_WAITS_BYTES, CommandRunner
from noetl_stream.model.events import (
    ChildCall,
    Fact,
    LoopDone,
    LoopIterationDone,
    LoopIterationFailed,
    LoopIterationStarted,
    LoopPagedOut,
    LoopStarted,
    StepDone,
    StepFailed,
    StepStarted,
    StepSuspended,
    TaskProcessed,
    TaskStarted,
    Wait,
)
from noetl_stream.model.json.codec import payload_of
from noetl_stream.model.limits import Limits
from noetl_stream.model.messages import Go, LoopProgress, Progress, StepCommand
from noetl_stream.model.outcome import ErrorInfo, ItemPosition, Outcome, Page, Payload, Reference, StepValue
from noetl_stream.playbook.compile.compiler import compile_playbook
from noetl_stream.template import render
from noetl_testkit.scenario.scenario import installed_kinds

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: { name: test, path: tests/runner }\nworkflow:\n"
OK = Outcome("ok", payload_of({"n": 1}))
BROKE = ErrorInfo("exception", "it broke")
FAILED = Outcome("error", error=BROKE)
FAR = Reference("nats", "far/away", 100)

ONE_TASK = "- step: start\n  tool: { name: act, kind: noop }\n"
RETRYING = """
- step: start
  tool:
  - name: act
    kind: noop
    spec: { policy: { rules: [{ when: "{{ outcome.error }}", then: { do: retry, attempts: 2, delay: DELAY } }] } }
"""
WAITING = """
- step: start
  tool:
  - { name: rest, kind: wait, signal: go, timeout_s: 60 }
  - { name: after, kind: noop, args: { by: "{{ rest.n }}" } }
"""
LOOP = """
- step: start
  spec: { policy: { failure: { mode: fail_fast } } }
  loop: { in: [1], iterator: item, spec: { MODE } }
  tool: { name: act, kind: noop, args: { item: "{{ item }}" } }
"""
IN_ORDER = LOOP.replace("MODE", "mode: sequential")
AT_ONCE = LOOP.replace("MODE", "mode: parallel, exec: local")
NESTED = """
- step: start
  loop:
    in: [1]
    iterator: row
    spec: { mode: parallel, exec: local }
    loop: { in: "{{ row }}", iterator: cell, spec: { mode: parallel, exec: local, max_in_flight: 2 } }
  tool: { name: act, kind: noop }
"""


FROM_THE_START = Go()


class Watched:
    """A runner, and what it has handed out: facts in order, and the actions that are under way."""

    def __init__(self, text: str, go: Go = FROM_THE_START, **changes: Any) -> None:
        plan = compile_playbook(HEAD + text.lstrip("\n"), installed_kinds())
        given = {"command_id": "command-1", "execution_id": "execution-1", "partition": 0, "step_run_id": "run-1"}
        given |= {"step": "start", "digest": plan.digest, "pool": "default"}
        command = StepCommand(**{**given, **changes})
        kinds, self.references = installed_kinds(), dict[str, Any]()
        self.runner = CommandRunner(plan, command, go, kinds=kinds, worker="worker-1", references=self.references)
        self.facts: list[Fact] = []
        self.under_way: dict[int, Action] = {}

    def begin(self) -> list[Output]:
        return self._seen(self.runner.begin())

    def complete(self, action: Action, result: Any = None) -> list[Output]:
        self.under_way.pop(action.id, None)
        return self._seen(self.runner.complete(action.id, result))

    def _seen(self, outputs: list[Output]) -> list[Output]:
        for output in outputs:
            if isinstance(output, ReportFacts):
                self.facts += output.facts
            else:
                self.under_way[output.id] = output
        return outputs

    @property
    def actions(self) -> list[Any]:
        return list(self.under_way.values())

    @property
    def paths(self) -> list[tuple[int, ...]]:
        """The iterations whose tasks are under way."""
        return [action.iteration.path for action in self.actions if isinstance(action, RunTask)]

    def at(self, *path: int) -> RunTask:
        (found,) = [one for one in self.actions if isinstance(one, RunTask) and one.iteration.path == path]
        return found


def begun(text: str, go: Go = FROM_THE_START, **changes: Any) -> Watched:
    watched = Watched(text, go, **changes)
    watched.begin()
    return watched


def names(facts: Sequence[Fact]) -> list[str]:
    return [fact.event_name() for fact in facts]


# --- a pipeline -------------------------------------------------------------------------------------------------------


def test_a_step_of_one_task() -> None:
    watched = Watched(ONE_TASK)
    started, task_started, run = watched.begin()
    assert started == ReportFacts((StepStarted("worker-1"),))
    assert task_started == ReportFacts((TaskStarted("act"),))
    assert isinstance(run, RunTask) and (run.task.name, run.progress, run.answer) == ("act", Progress(), None)
    assert not watched.runner.over

    (end,) = watched.complete(run, OK)
    assert end == ReportFacts((TaskProcessed("act", 1, OK, "continue"), StepDone("run-1")))
    assert watched.runner.over and watched.actions == []


def test_a_failure_ends_the_step_with_its_error() -> None:
    watched = begun(ONE_TASK)
    watched.complete(*watched.actions, FAILED)
    last = watched.facts[-1]
    assert isinstance(last, StepFailed) and (last.error.kind, last.error.task) == ("exception", "act")


def test_a_short_delay_is_slept_before_the_next_attempt() -> None:
    watched = begun(RETRYING.replace("DELAY", "2"))
    (sleep,) = watched.complete(*watched.actions, FAILED)[1:]
    assert isinstance(sleep, Sleep) and 2.0 <= sleep.seconds <= 2.2
    (_, again) = watched.complete(sleep)
    assert isinstance(again, RunTask) and again.progress.attempt == 2
    watched.complete(again, OK)
    assert names(watched.facts) == ["step.started", *["task.started", "task.processed"] * 2, "step.done"]


def test_a_long_delay_ends_the_command_and_is_not_slept_again() -> None:
    steps = RETRYING.replace("DELAY", "20")
    watched = begun(steps)
    watched.complete(*watched.actions, FAILED)
    suspended = watched.facts[-1]
    assert isinstance(suspended, StepSuspended) and watched.runner.over
    (wait,) = suspended.waits
    assert wait.task == "act" and wait.delay_s is not None and 20 <= wait.delay_s <= 22

    remaining = Progress(task="act", attempt=2, delay_s=wait.delay_s, runs=1)
    resumed = begun(steps, Go(progress={"": remaining}, answers={"": None}))
    (run,) = resumed.actions
    assert isinstance(run, RunTask) and run.progress.attempt == 2


def test_a_task_that_waits_ends_the_command_and_is_answered_in_the_next() -> None:
    wait = Wait(task="rest", signal="go", timeout_s=60)
    watched = begun(WAITING)
    assert watched.complete(*watched.actions, wait) == [ReportFacts((StepSuspended([wait]),))]
    assert watched.runner.over

    resumed = begun(WAITING, Go(answers={"": OK}))
    (answered,) = resumed.actions
    assert (answered.task.name, answered.answer) == ("rest", OK)
    assert names(resumed.facts) == ["step.started"], "the task has started in the segment before"
    _, _, after = resumed.complete(answered, OK)
    assert isinstance(after, RunTask)
    scope = resumed.runner.scope.for_inputs(after.task, after.progress, after.iteration)
    assert render(after.task.inputs, scope) == {"args": {"by": 1}}


def calls_for(path: tuple[int, ...], size: int) -> Wait:
    return Wait(path, "rest", child=ChildCall("digest", "a/path", workload={"text": "x" * size}))


def test_a_wait_that_fits_no_event_fails() -> None:
    remaining = Progress(task="rest", attempt=2, delay_s=1.0, runs=1)
    watched = begun(WAITING, Go(progress={"": remaining}))
    (sleep,) = watched.actions
    watched.complete(sleep)
    (run,) = watched.complete(*watched.actions, calls_for((), MAX_WAITS_BYTES))
    assert isinstance(run, RunTask) and run.answer is not None and run.answer.error is not None
    assert run.answer.error.kind == "limit_exceeded"
    watched.complete(run, run.answer)
    assert names(watched.facts) == ["step.started", "task.started", "task.processed", "step.failed"]


def test_waits_of_iterations_fit_one_event_together() -> None:
    steps = WAITING.replace(
        "- step: start\n", "- step: start\n  loop: { in: [1], iterator: n, spec: { mode: parallel } }\n"
    )
    watched = begun(steps, items=[1, 2], max_in_flight=2)
    assert watched.complete(watched.at(0), calls_for((0,), MAX_WAITS_BYTES // 2)) == []
    (run,) = watched.complete(watched.at(1), calls_for((1,), MAX_WAITS_BYTES // 2))
    assert isinstance(run, RunTask) and run.answer is not None


def test_a_pipeline_that_waits_while_the_execution_is_paused_is_not_paused_itself() -> None:
    watched = begun(WAITING)
    watched.runner.pause()
    wait = Wait(task="rest", signal="go", timeout_s=60)
    watched.complete(*watched.actions, wait)
    assert watched.facts[-1] == StepSuspended([wait], paused=False)


def test_values_set_by_a_rule_are_seen_by_the_next_task() -> None:
    steps = """
- step: start
  tool:
  - name: set
    kind: noop
    spec:
      policy:
        rules: [{ else: { then: { do: continue, set_ctx: { a: 1 }, set_iter: { b: 2 }, set_vars: { c: 3 } } } }]
  - { name: read, kind: noop, args: { all: "{{ [ctx.a, iter.b, vars.c] }}" } }
"""
    watched = begun(steps)
    watched.complete(*watched.actions, OK)
    (read,) = watched.actions
    scope = watched.runner.scope.for_inputs(read.task, read.progress, read.iteration)
    assert render(read.task.inputs, scope) == {"args": {"all": [1, 2, 3]}}


READING = """
- step: start
  tool:
  - name: act
    kind: noop
    spec: { policy: { rules: [{ when: "{{ other.go }}", then: { do: break } }, { else: { then: { do: fail } } }] } }
  next: { arcs: [{ step: other }] }
- step: other
  tool: { kind: noop }
"""
KEEPING = """
- step: start
  tool:
    name: act
    kind: noop
    spec: { policy: { rules: [{ else: { then: { do: continue, set_ctx: { a: "{{ s0 }}", b: "{{ s1 }}" } } } }] } }
  next: { spec: { mode: inclusive }, arcs: [{ step: s0 }, { step: s1 }] }
- step: s0
  tool: { kind: noop }
- step: s1
  tool: { kind: noop }
"""
OTHER = {"other": StepValue(Outcome("ok", Payload(reference=FAR)))}


HEAVY = """
- step: start
  tool:
    name: act
    kind: noop
    spec: { policy: { rules: [{ when: "{{ range(20000) | sum > 0 and GUARD }}", then: { do: fail } }] } }
"""


def test_a_policy_that_costs_much_is_evaluated_by_the_driver() -> None:
    watched = begun(HEAVY.replace("GUARD", "outcome.result.n == 1"))
    (evaluate,) = watched.complete(*watched.actions, OK)
    assert isinstance(evaluate, Evaluate)
    worked = evaluate.work()
    assert isinstance(worked, Worked)
    watched.complete(evaluate, worked)
    last = watched.facts[-1]
    assert isinstance(last, StepFailed) and last.error.kind == "policy_fail"


def test_templates_of_the_driver_may_read_a_result_by_reference() -> None:
    watched = begun(HEAVY.replace("GUARD", "outcome.result.n == 1"))
    (evaluate,) = watched.complete(*watched.actions, Outcome("ok", Payload(reference=FAR)))
    needed = evaluate.work()
    assert needed == [FAR]
    (load,) = watched.complete(evaluate, needed)
    assert isinstance(load, LoadReference) and load.reference == FAR
    watched.references[FAR.key] = {"n": 2}
    (again,) = watched.complete(load)
    assert isinstance(again, Evaluate)
    watched.complete(again, again.work())
    assert names(watched.facts)[-1] == "step.done"


def test_a_result_by_reference_is_loaded_when_a_policy_reads_it() -> None:
    watched = begun(READING, steps=OTHER)
    (load,) = watched.complete(*watched.actions, OK)
    assert isinstance(load, LoadReference) and load.reference == FAR
    watched.references[FAR.key] = {"go": True}
    watched.complete(load)
    assert watched.facts[-1] == StepDone("run-1")


def test_all_results_that_a_policy_reads_are_loaded_before_it_is_evaluated_again() -> None:
    far = [Reference("nats", key, 9) for key in ("far/1", "far/2")]
    steps = {f"s{n}": StepValue(Outcome("ok", Payload(reference=one))) for n, one in enumerate(far)}
    watched = begun(KEEPING, steps=steps)
    (first,) = watched.complete(*watched.actions, OK)
    (second,) = watched.complete(first)
    assert [load.reference for load in (first, second) if isinstance(load, LoadReference)] == far
    watched.references.update({"far/1": 1, "far/2": 2})
    watched.complete(second)
    assert [fact.set_ctx for fact in watched.facts if isinstance(fact, TaskProcessed)] == [{"a": 1, "b": 2}]


def test_a_result_that_is_lost_fails_the_task_that_reads_it() -> None:
    watched = begun(READING, steps=OTHER)
    (load,) = watched.complete(*watched.actions, OK)
    assert isinstance(load, LoadReference)
    watched.complete(load, ErrorInfo("result_lost", "it is gone"))
    error = ErrorInfo("result_lost", "the policy of task act: it is gone", task="act")
    assert watched.facts[-1] == StepFailed("run-1", error)


# --- loops ------------------------------------------------------------------------------------------------------------


def test_a_sequential_loop_has_one_action_in_progress() -> None:
    watched = begun(IN_ORDER, items=["a", "b"])
    assert watched.facts == [
        LoopStarted("run-1", 2, local=True),
        LoopIterationStarted((0,), "worker-1"),
        TaskStarted("act", path=(0,)),
    ]
    assert watched.paths == [(0,)]
    first, second, third = watched.complete(watched.at(0), OK)[:3]
    assert first == ReportFacts((TaskProcessed("act", 1, OK, "continue", (0,)), LoopIterationDone((0,))))
    assert [second, third] == [
        ReportFacts((LoopIterationStarted((1,), "worker-1"),)),
        ReportFacts((TaskStarted("act", path=(1,)),)),
    ]
    watched.complete(watched.at(1), OK)
    assert watched.facts[-1] == LoopDone("run-1", 2, 2, 0, 0)
    assert watched.runner.over


def test_a_window_is_full_and_its_actions_end_in_any_order() -> None:
    watched = begun(AT_ONCE, items=["a", "b", "c", "d"], max_in_flight=2)
    assert watched.paths == [(0,), (1,)]
    watched.complete(watched.at(1), OK)
    assert watched.paths == [(0,), (2,)]
    watched.complete(watched.at(2), OK)
    watched.complete(watched.at(3), OK)
    assert watched.paths == [(0,)]
    assert not watched.runner.over
    watched.complete(watched.at(0), OK)
    assert watched.facts[-1] == LoopDone("run-1", 4, 4, 0, 0)


def test_the_first_failure_withdraws_what_runs_beside_it_and_is_reported_when_that_has_ended() -> None:
    watched = begun(AT_ONCE, items=["a", "b", "c", "d"], max_in_flight=3)
    first, third = watched.at(0), watched.at(2)
    _, withdraw = watched.complete(watched.at(1), FAILED)
    assert isinstance(withdraw, Withdraw) and withdraw.ids == (first.id, third.id)
    assert names(watched.facts)[-2:] == ["task.processed", "loop.iteration.failed"]

    assert watched.complete(third, OK) == [], "it ended by itself before it could be ended: nobody wants it"
    watched.complete(withdraw)
    failed = watched.facts[-1]
    assert isinstance(failed, StepFailed) and failed.error.index == 1
    assert watched.runner.over


def test_a_withdrawal_is_withdrawn_by_the_level_around_it() -> None:
    watched = Watched(NESTED, items=[["a", "b"], ["c"]], max_in_flight=2)
    for opening in [output for output in watched.begin() if isinstance(output, Sleep)]:
        watched.complete(opening)
    assert watched.paths == [(0, 0), (0, 1), (1, 0)]
    beside = watched.at(0, 1)
    (*_, inner) = watched.complete(watched.at(0, 0), FAILED)
    assert isinstance(inner, Withdraw) and inner.ids == (beside.id,)
    (*_, outer) = watched.complete(watched.at(1, 0), FAILED)
    assert isinstance(outer, Withdraw) and outer.ids == (beside.id, inner.id)
    assert LoopIterationFailed((0,), BROKE) not in watched.facts

    assert watched.complete(inner) == []
    watched.complete(outer)
    failed = watched.facts[-1]
    assert isinstance(failed, StepFailed) and failed.error.index == 1


def test_a_loop_suspends_when_all_that_is_left_waits() -> None:
    steps = AT_ONCE.replace("name: act, kind: noop", "name: act, kind: wait, signal: go, timeout_s: 9").replace(
        ', args: { item: "{{ item }}" }', ""
    )
    watched = begun(steps, items=["a", "b", "c"], max_in_flight=2)
    waits = [Wait((index,), "act", signal="go", timeout_s=9) for index in (0, 1)]
    assert watched.complete(watched.at(1), waits[1]) == []
    watched.complete(watched.at(0), waits[0])
    assert watched.facts[-1] == StepSuspended([waits[1], waits[0]]), "what waits stays in flight"
    assert watched.runner.over

    resumed = begun(
        steps, Go(loop=LoopProgress(), waits={"0": waits[0]}, answers={"1": OK}), items=["a"] * 3, max_in_flight=2
    )
    assert [(one.iteration.path, one.answer) for one in resumed.actions] == [((1,), OK)]


def test_a_paused_loop_ends_what_has_begun_and_begins_nothing() -> None:
    watched = begun(AT_ONCE, items=["a", "b", "c"], max_in_flight=2)
    watched.runner.pause()
    watched.complete(watched.at(0), OK)
    assert watched.paths == [(1,)]
    watched.complete(watched.at(1), OK)
    assert watched.facts[-1] == StepSuspended([], paused=True)
    assert watched.runner.over


def test_a_level_inside_opens_after_others_had_their_turn() -> None:
    watched = Watched(NESTED, items=[["a"], []], max_in_flight=1)
    (*_, opening) = watched.begin()
    assert isinstance(opening, Sleep) and opening.seconds == 0.0
    assert watched.complete(opening)[0] == ReportFacts((LoopStarted("run-1", 1, ["a"], 2, True, (0,)),))
    (*_, following) = watched.complete(watched.at(0, 0), OK)
    assert isinstance(following, Sleep)
    watched.complete(following)
    empty = [LoopStarted("run-1", 0, [], 2, True, (1,)), LoopDone("run-1", 0, 0, 0, 0, (1,))]
    assert watched.facts[-3:] == [*empty, LoopDone("run-1", 2, 2, 0, 0)]


def test_items_that_were_paged_out_are_read_from_their_pages() -> None:
    watched = begun(IN_ORDER, items=[], pages=[Page(0, 1, FAR), Page(1, 1, FAR)])
    (load,) = watched.actions
    assert isinstance(load, LoadPage) and load.page == FAR
    watched.complete(load, ["a"])
    assert watched.at(0).iteration.names == {"item": "a", "index": 0, "count": 2}
    watched.complete(watched.at(0), OK)
    (load,) = watched.actions
    watched.complete(load, ErrorInfo("result_lost", "it is gone"))
    assert watched.facts[-2:] == [
        LoopIterationFailed((1,), ErrorInfo("result_lost", "loop: it is gone")),
        StepFailed("run-1", ErrorInfo("result_lost", "loop: it is gone", index=1)),
    ]


def test_a_command_that_pages_out_stores_the_items_and_runs_nothing() -> None:
    steps = IN_ORDER.replace("in: [1]", "in: [1, 2]")
    watched = begun(steps, paging=True)
    (opening,) = watched.actions
    (store,) = watched.complete(opening)
    assert isinstance(store, StorePage) and store.items == [1, 2]
    watched.complete(store, FAR)
    assert watched.facts[-1] == LoopPagedOut(2, [Page(0, 2, FAR)])
    assert watched.runner.over


def test_an_iteration_of_a_distributed_loop_ends_under_its_own_path() -> None:
    watched = begun(IN_ORDER, path=(3,), chain=[None], counts=[9], places={0: ItemPosition(FAR, 1)})
    (load,) = watched.actions
    watched.complete(load, ["a", "b"])
    assert watched.at(3).iteration.names == {"item": "b", "index": 3, "count": 9}
    watched.complete(watched.at(3), OK)
    assert watched.facts[-1] == LoopIterationDone((3,))


# --- what a driver cannot do ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "misuse",
    [
        lambda runner: runner.begin(),
        lambda runner: runner.complete(99, OK),
        lambda runner: runner.complete(1, None),
        lambda runner: runner.complete(1, "an outcome"),
        lambda runner: runner.complete(2, BROKE),
    ],
    ids=["begins twice", "unknown id", "no outcome", "no outcome either", "another's result"],
)
def test_an_illegal_input_raises_and_changes_nothing(misuse: Callable[[CommandRunner], Any]) -> None:
    watched, undisturbed = (begun(AT_ONCE, items=["a", "b", "c"], max_in_flight=2) for _ in range(2))
    with pytest.raises(IllegalInput):
        misuse(watched.runner)
    for each in (watched, undisturbed):
        while each.actions:
            each.complete(each.actions[0], OK)
    assert watched.runner.over
    assert watched.facts == undisturbed.facts


def test_an_action_is_completed_once() -> None:
    watched = begun(AT_ONCE, items=["a", "b"], max_in_flight=2)
    action = watched.at(0)
    watched.complete(action, OK)
    with pytest.raises(IllegalInput, match=f"no action {action.id} is under way"):
        watched.complete(action, OK)
    assert watched.paths == [(1,)]


def test_a_withdrawn_command_is_completed_once_and_not_after_its_end() -> None:
    watched = begun(AT_ONCE, items=["a", "b", "c"], max_in_flight=3)
    beside, third = watched.at(1), watched.at(2)
    (*_, withdraw) = watched.complete(watched.at(0), FAILED)
    assert isinstance(withdraw, Withdraw)
    watched.complete(beside, OK)
    with pytest.raises(IllegalInput):
        watched.complete(beside, OK)
    watched.complete(withdraw)
    with pytest.raises(IllegalInput):
        watched.complete(third, OK)


def test_an_ended_run_accepts_nothing_more() -> None:
    watched = begun(ONE_TASK)
    (action,) = watched.actions
    watched.complete(action, OK)
    for misuse in (watched.begin, lambda: watched.complete(action, OK)):
        with pytest.raises(IllegalInput):
            misuse()


# --- in any order -----------------------------------------------------------------------------------------------------

MODES = ["fail_fast", "best_effort"]
ENDS = StepDone | StepFailed | StepSuspended | LoopDone


def played(seed: int) -> tuple[list[Fact], list[str]]:
    """A nested loop whose actions end in any order, some badly, with a pause now and then; held against the law."""
    random = Random(seed)
    rows = [["x"] * random.randint(0, 3) for _ in range(random.randint(1, 5))]
    window, limits = random.randint(1, 3), Limits(max_loop_items_bytes=random.choice([2, 99]))
    outer, inner = (f"policy: {{ failure: {{ mode: {random.choice(MODES)} }} }}" for _ in range(2))
    steps = NESTED.replace("exec: local }", f"exec: local, {outer} }}").replace("flight: 2", f"flight: 2, {inner}")
    watched = Watched(steps, items=rows, max_in_flight=window, limits=limits)
    outputs, kinds = watched.begin(), []
    while watched.actions:
        assert not watched.runner.over
        assert len(watched.paths) <= 2 * window
        action = random.choice(watched.actions)
        if isinstance(action, Withdraw):
            for number in action.ids:
                watched.under_way.pop(number, None)
        outputs = watched.complete(action, result_of(action, random))
        withdrawn = {number for output in outputs if isinstance(output, Withdraw) for number in output.ids}
        assert withdrawn <= watched.under_way.keys()
        kinds += [type(output).__name__ for output in outputs]
        if random.random() < 0.02:
            watched.runner.pause()
    assert watched.runner.over, "nothing is under way, and it has not ended"
    return watched.facts, kinds


def result_of(action: Action, random: Random) -> Any:
    match action:
        case RunTask():
            wait = Wait(action.iteration.path, "act", signal="go", timeout_s=9)
            return random.choice([OK, OK, OK, FAILED, wait])
        case StorePage():
            return FAR
        case LoadPage():
            return random.choice([["x"] * 3, BROKE])
    return None


def test_a_run_keeps_its_law_in_any_order_and_repeats_exactly_in_the_same_order() -> None:
    for seed in range(300):
        facts, kinds = played(seed)
        assert isinstance(facts[-1], ENDS), f"seed {seed}"
        ends = [fact for fact in facts if isinstance(fact, ENDS) and not getattr(fact, "path", ())]
        assert len(ends) == 1, f"seed {seed}: it ends once"
        started = [fact.path for fact in facts if isinstance(fact, TaskStarted)]
        assert len(started) == len(set(started)), f"seed {seed}: each iteration runs once"
        assert (facts, kinds) == played(seed), f"seed {seed}"
