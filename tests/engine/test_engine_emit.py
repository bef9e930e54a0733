"""LANGUAGE §7 *Emitted events*: what a step emits when a run of it begins and ends, once in the books."""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import Any

import pytest
from engine_scenarios import started
from journal_laws import check_journal, is_cut_short
from random_playbooks import random_playbook
from random_runs import WEATHERS
from random_workers import RandomRun

from effort import times
from noetl_stream.model.envelope import envelope
from noetl_stream.model.events import (
    EvaluationAwaited,
    ExecutionFailing,
    NextEvaluated,
    ReferenceAwaited,
    StepEmitted,
    StepScheduled,
)
from noetl_stream.model.json import codec
from noetl_stream.model.messages import AGGREGATES_FORMAT
from noetl_stream.playbook.plan import Plan
from noetl_testkit.scenario.scenario import Scenario, rerun


def emitting(*events: str, more: str = "", **request: Any) -> Scenario:
    """A step ``ship`` that emits these, before a step ``last``; started."""
    steps = f"""
- step: ship
  {more}
  spec: {{policy: {{emit: {{events: [{", ".join(events)}]}}}}}}
  tool: {{kind: noop}}
  next: {{arcs: [{{step: last}}]}}
- step: last
  tool: {{kind: noop}}
"""
    return started(steps, **request)


def emitted(scenario: Scenario) -> list[tuple[str, str, dict[str, Any]]]:
    return [(fact.event, fact.on, fact.data) for fact in scenario.facts(StepEmitted)]


def test_a_step_emits_an_event_when_a_run_of_it_has_completed() -> None:
    scenario = emitting(
        '{name: shipped, data: {order: "{{ workload.order }}", parcel: "{{ event.result.id }}", ok: true}}',
        workload={"order": 7},
    )
    assert emitted(scenario) == []
    scenario.done("ship", {"id": "p-1"})
    assert emitted(scenario) == [("shipped", "completed", {"order": 7, "parcel": "p-1", "ok": True})]
    names = scenario.names
    assert names.index("step.done") < names.index("step.emitted") < names.index("next.evaluated")
    scenario.done("last")
    assert scenario.status == "completed"
    assert scenario.replayed() == scenario.execution


def test_an_event_is_emitted_at_the_moments_of_on_if_when_holds() -> None:
    events = (
        '{name: begun, on: [started], data: {said: "{{ event.name }}"}}',
        '{name: gone_wrong, on: [failed], data: {why: "{{ event.error.kind }}"}}',
        '{name: large, when: "{{ event.result.n > 5 }}"}',
        '{name: over, on: [completed, failed], data: {status: "{{ event.status }}"}}',
    )
    scenario = emitting(*events)
    assert emitted(scenario) == [("begun", "started", {"said": "step.started"})]
    assert scenario.names.index("step.emitted") < scenario.names.index("step.scheduled")
    scenario.done("ship", {"n": 3})
    assert emitted(scenario)[1:] == [("over", "completed", {"status": "success"})]
    scenario = emitting(*events)
    scenario.failed("ship")
    assert emitted(scenario)[1:] == [
        ("gone_wrong", "failed", {"why": "exception"}),
        ("over", "failed", {"status": "error"}),
    ]
    assert scenario.status == "failed"


def test_a_step_that_only_routes_and_a_loop_emit_too() -> None:
    both = "{name: both, on: [started, completed]}"
    routing = started(f"- step: go\n  spec: {{policy: {{emit: {{events: [{both}]}}}}}}\n  next: {{arcs: []}}\n")
    assert [on for _, on, _ in emitted(routing)] == ["started", "completed"]
    loop = emitting(both, '{name: count, data: {n: "{{ event.loop.count }}"}}', more="loop: {in: [1, 2], iterator: i}")
    loop.done("ship")
    assert [(name, on) for name, on, _ in emitted(loop)] == [
        ("both", "started"),
        ("both", "completed"),
        ("count", "completed"),
    ]
    assert emitted(loop)[-1][2] == {"n": 2}


@pytest.mark.parametrize(
    "event",
    [
        '{name: bad, data: {n: "{{ event.result.n + 1 }}"}}',
        '{name: bad, when: "{{ event.result.n }}"}',
        '{name: bad, data: {text: "{{ event.result.text }}"}}',
    ],
)
def test_one_that_cannot_be_evaluated_or_is_too_large_fails_the_execution_and_nothing_is_emitted(event: str) -> None:
    scenario = emitting("{name: good}", event)
    scenario.done("ship", {"n": "text", "text": "x" * 300_000})
    assert emitted(scenario) == []
    assert (scenario.status, scenario.error.kind) == ("failed", "expression_error")
    assert "an event of ship" in scenario.error.message
    assert scenario.facts(ExecutionFailing)[0].step == "ship"


def test_one_that_cannot_be_evaluated_at_the_beginning_keeps_the_step_from_running() -> None:
    scenario = emitting('{name: bad, on: [started], data: {n: "{{ workload.n + 1 }}"}}', workload={"n": "text"})
    assert (scenario.status, scenario.error.kind) == ("failed", "expression_error")
    assert scenario.facts(StepScheduled) == []


def test_nothing_is_emitted_of_an_execution_that_is_being_cancelled() -> None:
    scenario = emitting("{name: shipped}")
    run = scenario.take("ship")
    scenario.cancel()
    run.finish()
    assert emitted(scenario) == []


def test_a_pause_holds_it_back_and_it_is_emitted_once() -> None:
    scenario = emitting("{name: shipped}")
    run = scenario.take("ship")
    scenario.pause()
    run.finish()
    assert emitted(scenario) == []
    scenario.resume()
    assert emitted(scenario) == [("shipped", "completed", {})]
    assert scenario.working == [("last", None)]


def test_an_event_waits_for_a_result_that_is_kept_by_reference() -> None:
    scenario = emitting('{name: shipped, data: {n: "{{ ship.n }}"}}')
    scenario.objects.takes = lambda data: True
    scenario.done("ship", {"n": 2})
    assert len(scenario.facts(ReferenceAwaited)) == 1 and emitted(scenario) == []
    scenario.look_into()
    assert emitted(scenario) == [("shipped", "completed", {"n": 2})]
    assert scenario.working == [("last", None)]


@pytest.mark.parametrize("on", ["started", "completed"])
def test_one_that_costs_much_is_evaluated_by_another_process(on: str) -> None:
    scenario = emitting(f'{{name: heavy, on: [{on}], data: {{n: "{{{{ range(20000) | sum }}}}"}}}}')
    if on == "completed":
        scenario.done("ship")
    assert emitted(scenario) == [("heavy", on, {"n": 199990000})]
    assert len(scenario.facts(EvaluationAwaited)) == 1
    scenario.take_over()
    assert scenario.replayed() == scenario.execution


def test_a_branch_that_rests_has_emitted_once() -> None:
    steps = """
- step: ship
  spec: {policy: {emit: {events: [{name: shipped}]}}}
  tool: {kind: noop}
  next: {spec: {wait: {timeout_s: 60}}, arcs: [{step: last, when: "{{ ctx.go }}"}]}
- step: last
  tool: {kind: noop}
"""
    scenario = started(steps)
    scenario.done("ship")
    scenario.patch(other=1)
    scenario.patch(go=True)
    assert emitted(scenario) == [("shipped", "completed", {})]
    assert scenario.working == [("last", None)]


def test_a_rerun_emits_events_of_new_step_runs_and_not_of_reused_ones() -> None:
    scenario = emitting("{name: shipped}")
    scenario.done("ship")
    scenario.done("last")
    again = rerun(scenario, "last")
    again.done("last")
    assert emitted(again) == []
    anew = rerun(scenario, "ship")
    anew.done("ship")
    assert emitted(anew) == [("shipped", "completed", {})]


def test_a_playbook_with_events_is_kept_from_servers_and_workers_that_do_not_know_them() -> None:
    scenario = emitting("{name: shipped}")
    assert isinstance(scenario.plan, Plan) and scenario.plan.newer
    assert scenario.command(scenario.owed("ship")).format == AGGREGATES_FORMAT


def test_an_emitted_event_is_found_by_its_step_run_and_its_name() -> None:
    scenario = emitting("{name: shipped}")
    scenario.done("ship")
    [fact] = scenario.facts(StepEmitted)
    told = envelope(
        execution_id="one",
        position=9,
        name=fact.event_name(),
        source="server",
        at_ms=0,
        step_run_id=None,
        report_id=None,
        data=codec.encode(fact),
    )
    assert (told.entity, told.status, told.entity_id) == ("step", "success", f"{fact.step_run_id}.shipped")


@pytest.mark.parametrize("first", range(0, times(60), 20))
def test_under_any_disturbance_each_step_run_emits_once_at_each_of_its_moments(first: int) -> None:
    events = [{"name": "moment", "on": ["started", "completed", "failed"], "data": {"of": "{{ event.name }}"}}]
    for seed in range(first, first + 20):
        random = Random(seed)
        document = json.loads(random_playbook(random))
        for step in document["workflow"]:
            step.setdefault("spec", {}).setdefault("policy", {})["emit"] = {"events": events}
        scenario = Scenario(json.dumps(document))
        RandomRun(scenario, random, random.choice(WEATHERS)).run()
        check_journal(scenario)
        told = Counter((fact.step_run_id, fact.on) for fact in scenario.facts(StepEmitted))
        assert set(told.values()) <= {1}, f"seed {seed}"
        assert all(fact.data["of"] for fact in scenario.facts(StepEmitted))
        if not is_cut_short(scenario):
            left = {fact.step_run_id: fact.event for fact in scenario.facts(NextEvaluated)}  # the last of a resting one
            ends = {(run, "failed" if event == "step.failed" else "completed") for run, event in left.items()}
            assert {one for one in told if one[1] != "started"} == ends, f"seed {seed}"
            assert {run for run, on in told if on == "started"} == left.keys(), f"seed {seed}"
