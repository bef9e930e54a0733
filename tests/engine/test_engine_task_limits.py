"""Limits of tasks: each attempt has a slot, asked for where the pipeline is; no worker waits with it (LANGUAGE §15)."""

from __future__ import annotations

import pytest
from tests.engine.engine_scenarios import started
from tests.engine.test_engine_slots import names, told

from noetl_stream.engine.advance import Advanced
from noetl_stream.engine.effects import child_message
from noetl_stream.engine.evolve.worker_facts import form_fault
from noetl_stream.engine.state import RecordedFact
from noetl_stream.model import events
from noetl_stream.model.aggregates import SlotAsked, SlotReturned
from noetl_stream.model.events import Parent, Rate, StepSuspended, Wait
from noetl_stream.model.messages import AGGREGATES_FORMAT, FORMAT
from noetl_stream.model.outcome import ErrorInfo
from noetl_testkit.scenario.scenario import Scenario

PIPELINE = """
- step: call
  tool:
    - { name: find, kind: noop }
    - name: send
      kind: noop
      spec: { policy: { limit: { key: "api-{{ find.customer }}", concurrency: 2, rate: { per_s: 5, burst: 3 } } } }
    - { name: done, kind: noop }
"""

RETRIED = """
- step: call
  tool:
    name: send
    kind: noop
    spec:
      policy:
        limit: { key: api, concurrency: 1 }
        rules: [ { when: "{{ outcome.status == 'error' }}", then: { do: retry, attempts: 3, delay: 60 } } ]
"""


def each(*, mode: str = "parallel", exec: str = "distributed", key: str = "api", failure: str = "fail_fast") -> str:
    return f"""
    - step: call
      loop:
        in: "{{{{ [10, 20, 30] }}}}"
        iterator: one
        spec: {{ mode: {mode}, exec: {exec}, policy: {{ failure: {{ mode: {failure} }} }} }}
      tool:
        name: send
        kind: noop
        args: {{ one: "{{{{ iter.one }}}}" }}
        spec: {{ policy: {{ limit: {{ key: "{key}", concurrency: 1 }} }} }}
    """


def come(scenario: Scenario, index: int | None = None) -> None:
    """The worker comes to the task, and stops there."""
    run = scenario.take("call", index=index)
    run.begin()
    assert run.over, "no worker waits for a slot"


def grant(scenario: Scenario, *path: int) -> Advanced:
    """The limit gives the slot that the task in this iteration waits for."""
    slots = scenario.execution.slots.items()
    ((holder, slot),) = [(id, one) for id, one in slots if one.task and one.path == path and not one.granted]
    return scenario.feed(RecordedFact(events.SlotGranted(slot.key, slot.step_run_id, slot_id=holder)))


def said(scenario: Scenario) -> str:
    """What the limits were told: ``+`` for each slot asked for, ``-`` for each given back."""
    return "".join("+" if isinstance(one, SlotAsked) else "-" for one in told(scenario))


def test_a_task_asks_when_the_pipeline_comes_to_it_and_no_worker_waits() -> None:
    scenario = started(PIPELINE)
    run = scenario.take("call")
    run.answer({"customer": "acme"})
    assert run.over and not scenario.working and scenario.execution.shown_status == "waiting"
    assert scenario.names[-3:] == ["task.processed", "step.suspended", "slot.requested"]
    ((holder, slot),) = scenario.execution.slots.items()
    of = {"step_run_id": slot.step_run_id, "slot_id": holder}
    (asked,) = told(scenario)
    assert asked == SlotAsked(
        "api-acme", "execution-1", **of, path="tests/test", step="call", task="send", concurrency=2, rate=Rate(5.0, 3)
    )
    assert names(grant(scenario).journal) == ["step.resumed", "step.scheduled"]
    scenario.take("call").finish("done")
    assert scenario.status == "completed"
    assert told(scenario)[1:] == [SlotReturned("api-acme", "execution-1", **of)]


def test_the_slot_is_given_back_before_the_next_task_begins() -> None:
    scenario = started(PIPELINE)
    scenario.take("call").answer({"customer": "acme"})
    grant(scenario)
    run = scenario.take("call")
    run.answer("sent")
    assert not run.over and run.task == "done"
    assert scenario.names[-1] == "slot.released" and not scenario.execution.slots


def test_each_attempt_has_a_slot_of_its_own_and_none_is_held_between_them() -> None:
    scenario = started(RETRIED)
    come(scenario)
    grant(scenario)
    scenario.take("call").answer(error=ErrorInfo("exception", "busy"))
    assert said(scenario) == "+-" and not scenario.execution.slots, "the delay is not limited"
    scenario.wait(70)
    come(scenario)
    assert said(scenario) == "+-+"
    grant(scenario)
    scenario.take("call").finish("sent")
    assert scenario.status == "completed" and said(scenario) == "+-+-"
    first, _, second, _ = told(scenario)
    assert first.slot_id != second.slot_id, "a grant for the one is none for the other"


def test_a_pipeline_with_two_limited_tasks_asks_for_their_slots_in_turn() -> None:
    steps = """
    - step: call
      tool:
        - { name: one, kind: noop, spec: { policy: { limit: { key: a, concurrency: 1 } } } }
        - { name: two, kind: noop, spec: { policy: { limit: { key: b, concurrency: 1 } } } }
    """
    scenario = started(steps)
    for key in ("a", "b"):
        if key == "a":
            come(scenario)
        assert [slot.key for slot in scenario.execution.slots.values()] == [key]
        grant(scenario)
        scenario.take("call").answer(key)
    assert scenario.status == "completed" and said(scenario) == "+-+-"


def test_iterations_on_any_worker_ask_each_with_a_key_of_its_own() -> None:
    scenario = started(each(key="api-{{ iter.one }}"))
    for index in range(3):
        come(scenario, index)
    assert [slot.key for slot in scenario.execution.slots.values()] == ["api-10", "api-20", "api-30"]
    for index in (2, 0, 1):
        grant(scenario, index)
        scenario.take("call", index=index).finish(index)
    assert scenario.status == "completed" and scenario.result == [0, 1, 2] and said(scenario) == "+++---"


def test_a_local_loop_in_order_asks_for_the_next_iteration_when_it_comes_to_it() -> None:
    scenario = started(each(mode="sequential", exec="local"))
    come(scenario)
    for index in range(3):
        grant(scenario, index)
        scenario.take("call").answer(index)
    assert scenario.status == "completed" and said(scenario) == "+-+-+-"


def test_a_local_loop_goes_on_with_those_that_have_their_slot_and_keeps_one_that_comes_meanwhile() -> None:
    scenario = started(each(exec="local"))
    come(scenario)
    assert said(scenario) == "+++"
    grant(scenario, 1)
    run = scenario.take("call")
    assert run.ready == [(1,)]
    assert not grant(scenario, 2).journal, "a worker runs the command: its turn comes when that suspends"
    run.answer("b")
    assert run.over and [slot.path for slot in scenario.execution.slots.values() if slot.granted] == [(2,)]
    scenario.take("call").finish("c")
    grant(scenario, 0)
    scenario.take("call").finish("a")
    assert scenario.result == ["a", "b", "c"] and said(scenario) == "+++---"


@pytest.mark.parametrize("exec", ["distributed", "local"])
def test_the_run_that_takes_over_has_the_slot_and_does_not_ask(exec: str) -> None:
    scenario, index = started(each(exec=exec)), 0 if exec == "distributed" else None
    come(scenario, index)
    grant(scenario, 0)
    dead = scenario.take("call", index=index)
    dead.begin()
    scenario.take_over()
    alive = scenario.take("call", index=index)
    scenario.claim(alive)
    assert alive.next_attempt((0,)) == ("send", 1)
    alive.answer("sent", path=(0,))
    assert len([one for one in told(scenario) if isinstance(one, SlotReturned)]) == 1
    assert {slot.path for slot in scenario.execution.slots.values()} <= {(1,), (2,)}


def test_the_run_that_takes_over_in_the_queue_of_the_pool_has_the_slot() -> None:
    scenario = started(RETRIED)
    come(scenario)
    grant(scenario)
    scenario.issue_again(scenario.owed("call"))
    again = scenario.take("call")
    assert again.ready == [()]
    again.finish("sent")
    assert scenario.status == "completed" and said(scenario) == "+-"


@pytest.mark.parametrize("is_granted", [False, True], ids=["waiting", "holding"])
def test_a_cancelled_execution_gives_the_slots_of_its_tasks_back(is_granted: bool) -> None:
    scenario = started(RETRIED)
    come(scenario)
    run = None
    if is_granted:
        grant(scenario)
        run = scenario.take("call")
        run.begin()
    scenario.cancel()
    if run is not None:
        assert said(scenario) == "+", "it works until it has answered"
        run.stop()
    assert scenario.status == "cancelled" and said(scenario) == "+-"


def test_a_slot_that_comes_after_the_end_changes_nothing() -> None:
    scenario = started(RETRIED)
    come(scenario)
    ((holder, slot),) = scenario.execution.slots.items()
    scenario.cancel()
    assert not scenario.feed(RecordedFact(events.SlotGranted(slot.key, slot.step_run_id, slot_id=holder))).taken


def test_iterations_that_are_stopped_because_another_failed_leave_the_queue() -> None:
    scenario = started(each())
    for index in range(3):
        come(scenario, index)
    grant(scenario, 1)
    scenario.failed("call", index=1)
    assert scenario.status == "failed" and said(scenario) == "+++---"


def test_iterations_of_a_local_loop_that_are_stopped_give_their_slots_back() -> None:
    scenario = started(each(exec="local"))
    come(scenario)
    grant(scenario, 0)
    scenario.take("call").fail()
    assert scenario.status == "failed" and said(scenario) == "+++---"


def test_a_step_that_is_timed_out_while_its_task_waits_leaves_the_queue() -> None:
    steps = """
    - step: call
      spec: { policy: { lifecycle: { timeout_s: 10 } } }
      tool: { name: send, kind: noop, spec: { policy: { limit: { key: api, concurrency: 1 } } } }
      next: { arcs: [ { step: late, when: "{{ event.name == 'step.failed' }}" } ] }
    - step: late
      tool: { kind: noop }
    """
    scenario = started(steps)
    come(scenario)
    scenario.wait(11)
    assert [step for step, _ in scenario.working] == ["late"] and said(scenario) == "+-"


def test_a_paused_execution_keeps_the_slots_of_its_tasks_and_takes_those_that_come() -> None:
    scenario = started(each())
    for index in range(3):
        come(scenario, index)
    grant(scenario, 0)
    run = scenario.take("call", index=0)
    run.begin()
    scenario.pause()
    run.finish("a")
    grant(scenario, 1)
    assert said(scenario) == "+++" and not scenario.working
    scenario.resume()
    assert said(scenario) == "+++-" and scenario.working == [("call", 1)]


def test_the_time_in_the_queue_is_no_part_of_an_attempt() -> None:
    steps = """
    - step: call
      tool:
        name: rest
        kind: wait
        for_s: 30
        spec: { timeout: 60, policy: { limit: { key: api, concurrency: 1 } } }
    """
    scenario = started(steps)
    come(scenario)
    scenario.wait(3600)
    grant(scenario)
    scenario.take("call").finish()
    assert not scenario.working and said(scenario) == "+", "it keeps its slot while it waits for its time"
    scenario.wait(31)
    scenario.take("call").finish()
    assert scenario.status == "completed" and said(scenario) == "+-"


def test_a_task_shares_what_its_step_its_execution_and_its_caller_hold() -> None:
    steps = RETRIED.replace("  tool:", "  spec: { policy: { limit: { key: KEY, concurrency: 1 } } }\n  tool:")
    step = started(steps.replace("KEY", "api"))
    (run_id,) = step.execution.slots
    step.feed(RecordedFact(events.SlotGranted("api", run_id)))
    step.take("call").finish()
    assert step.status == "completed" and said(step) == "+-"

    whole = started(RETRIED, "executor: { spec: { policy: { concurrency: { key: api, limit: 1 } } } }\n")
    whole.feed(RecordedFact(events.SlotGranted("api")))
    whole.take("call").finish()
    assert whole.status == "completed" and said(whole) == "+-"

    called = Scenario(step.plan, execution_id="child")
    parent = Parent("execution-1", "run", "command")
    called.feed(RecordedFact(events.ExecutionRequested("r", step.plan.digest, parent=parent, shared_keys=["api"])))
    called.take("call").finish()
    assert called.status == "completed" and not told(called)


def test_a_playbook_that_a_limited_task_calls_shares_its_slot() -> None:
    steps = """
    - step: call
      tool: { name: send, kind: playbook, path: tests/child, spec: { policy: { limit: { key: api, concurrency: 1 } } } }
    """
    scenario = started(steps)
    come(scenario)
    grant(scenario)
    scenario.take("call").finish()
    (requested,) = scenario.facts(events.ChildRequested)
    message = child_message(scenario.execution, requested, 1)
    assert message is not None and isinstance(message.fact, events.ExecutionRequested)
    assert message.fact.shared_keys == ["api"] and said(scenario) == "+"
    scenario.child_ended("sent")
    scenario.take("call").finish()
    assert scenario.status == "completed" and said(scenario) == "+-"


def test_a_key_that_cannot_be_evaluated_is_an_error_of_the_task_for_its_policy() -> None:
    steps = """
    - step: call
      tool:
        name: send
        kind: noop
        spec:
          policy:
            limit: { key: "{{ workload.customer }}", concurrency: 1 }
            rules: [ { when: "{{ outcome.error.kind == 'expression_error' }}", then: { do: continue } } ]
    """
    scenario = started(steps, "workload: { customer: [1] }\n")
    scenario.take("call").finish()
    (processed,) = scenario.facts(events.TaskProcessed)
    assert processed.outcome.error is not None
    assert "the limit of task send: the key must be text or a number, not [1]" in processed.outcome.error.message
    assert scenario.status == "completed" and not told(scenario)


def test_commands_of_limited_tasks_are_for_workers_that_know_limits_and_all_others_as_before() -> None:
    scenario = started(f"{PIPELINE}  next: {{ arcs: [ {{ step: b }} ] }}\n- step: b\n  tool: {{ kind: noop }}\n")
    assert scenario.command(scenario.owed("call")).format == AGGREGATES_FORMAT
    assert scenario.plan.has_limits
    scenario.take("call").answer({"customer": "acme"})
    grant(scenario)
    scenario.done("call")
    assert scenario.command(scenario.owed("b")).format == FORMAT


@pytest.mark.parametrize("key", ["", " ", "x" * 201, "a\0"])
def test_a_worker_cannot_wait_for_what_is_no_key(key: str) -> None:
    assert form_fault(StepSuspended([Wait((), "send", key=key)])) == "step.suspended has a wait without an end"
    assert not form_fault(StepSuspended([Wait((), "send", key="api")]))


def test_a_worker_that_asks_for_a_task_without_limit_gets_what_limits_nothing() -> None:
    scenario = started("- step: call\n  tool: { name: send, kind: noop }\n")
    run = scenario.take("call")
    run.report(events.StepStarted("w"))
    run.report(StepSuspended([Wait((), "send", key="api")]))
    (asked,) = told(scenario)
    assert isinstance(asked, SlotAsked) and (asked.concurrency, asked.rate) == (None, None)


def test_replay_and_deciding_again_give_the_same_state_and_journal() -> None:
    scenario = started(each(exec="local"))
    scenario.take_over()
    come(scenario)
    for index in range(3):
        scenario.take_over()
        grant(scenario, index)
        scenario.take_over()
        scenario.take("call").answer(index)
    assert scenario.status == "completed"
    assert scenario.replayed() == scenario.execution
    assert scenario.decided_again() == scenario.journal
