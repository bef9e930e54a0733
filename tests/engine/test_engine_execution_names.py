"""``execution``: what templates know of when and by what their execution was started (LANGUAGE §2 *Execution*)."""

from __future__ import annotations

from typing import Any

import pytest
from engine_scenarios import HEAD, given

from noetl_stream.engine.effects import child_message
from noetl_stream.engine.state import RecordedFact
from noetl_stream.model.events import (
    ChildRequested,
    ExecutionRequested,
    ExecutionStarted,
    Origin,
    Parent,
    SlotGranted,
)
from noetl_testkit.scenario.scenario import Scenario, rerun

DUE = "2026-12-20T02:30:00+01:00"
BY_SCHEDULE = Origin("id", "Schedule", "shop/nightly", 7)
EVERYWHERE = (
    HEAD.replace("path: tests/test", "path: tests/test, labels: { day: \"{{ execution.due | date_format('%F') }}\" }")
    + """
executor:
  spec:
    result: "{{ execution }}"
    policy: { concurrency: { key: "{{ execution.origin.path }}", limit: 1 } }
workflow:
- step: start
  spec:
    policy: { admit: { rules: [ { when: "{{ execution.origin.kind == 'schedule' }}", then: { allow: true } } ] } }
  loop: { in: "{{ [execution.due] }}", iterator: day }
  tool:
    name: look
    kind: noop
    args: { day: "{{ day }}", number: "{{ execution.origin.number }}" }
    spec: { policy: { rules: [ { else: { then: { do: continue, set_ctx: { begun: "{{ execution.started }}" } } } } ] } }
  next: { arcs: [ { step: last, when: "{{ execution.due is not none }}", args: { due: "{{ execution.due }}" } } ] }
- step: last
  tool: { kind: noop, args: { due: "{{ args.due }}" } }
"""
)


def asked(scenario: Scenario, **fields: Any) -> Scenario:
    scenario.feed(RecordedFact(ExecutionRequested("request-1", scenario.plan.digest, scenario.plan.path, **fields)))
    return scenario


def test_every_place_that_reads_templates_sees_it_and_a_replay_sees_the_same() -> None:
    scenario = asked(Scenario(EVERYWHERE), due=DUE, origin=BY_SCHEDULE)
    scenario.now_ms += 60_000
    scenario.feed(RecordedFact(SlotGranted("shop/nightly", "")))
    scenario.done("start")
    scenario.done("last")
    seen = {
        "due": DUE,
        "started": "1970-01-01T00:16:40.000+00:00",
        "origin": {"kind": "schedule", "path": "shop/nightly", "number": 7, "execution_id": None},
    }
    state = scenario.execution
    assert (state.execution, scenario.result) == (seen, seen)
    assert state.labels == {"day": "2026-12-20"}
    assert state.ctx == {"begun": seen["started"]}
    assert scenario.replayed() == scenario.state
    assert scenario.decided_again() == scenario.journal


LOOK = """
- step: start
  tool: { kind: noop, args: { x: 1 } }
  next: { arcs: [ { step: look } ] }
- step: look
  tool: { kind: noop, args: { by: "{{ execution.origin }}", due: "{{ execution.due }}" } }
"""


@pytest.mark.parametrize(
    ("fields", "by"),
    [
        ({}, {"kind": "client"}),
        ({"origin": BY_SCHEDULE}, {"kind": "schedule", "path": "shop/nightly", "number": 7}),
        ({"origin": Origin("id", "Trigger", "shop/paid", 3)}, {"kind": "trigger", "path": "shop/paid", "number": 3}),
        ({"parent": Parent("caller", "run", "command")}, {"kind": "call", "execution_id": "caller"}),
    ],
    ids=["a client", "a schedule", "a trigger", "a call"],
)
def test_the_origin_of_an_execution_is_its_starter(fields: dict[str, Any], by: dict[str, Any]) -> None:
    scenario = asked(given(LOOK), **fields)
    scenario.done("start")
    scenario.done("look")
    nothing = dict.fromkeys(("path", "number", "execution_id"))
    assert scenario.result == {"by": nothing | by, "due": None}


def test_a_rerun_is_for_the_day_of_its_original_and_knows_that_it_is_one() -> None:
    first = asked(given(LOOK), due=DUE, origin=BY_SCHEDULE)
    first.done("start")
    first.done("look")
    again = rerun(first, "look")
    again.done("look")
    assert again.result["due"] == DUE
    assert (again.result["by"]["kind"], again.result["by"]["execution_id"]) == ("rerun", "execution-1")
    third = rerun(again, "look")
    assert third.execution.execution["due"] == DUE
    assert again.replayed() == again.state


def test_a_called_execution_is_for_the_day_of_its_caller() -> None:
    caller = asked(given("- step: start\n  tool: { kind: playbook, path: reports/daily }\n"), due=DUE)
    caller.done("start")
    (requested,) = caller.facts(ChildRequested)
    message = child_message(caller.execution, requested, 1)
    assert message is not None and isinstance(message.fact, ExecutionRequested)
    assert (message.fact.due, message.fact.started_by.kind) == (DUE, "call")


def test_only_commands_of_steps_that_read_it_carry_it_and_only_executions_that_do_record_it() -> None:
    scenario = asked(given(LOOK), due=DUE)
    assert scenario.command(scenario.owed("start")).execution == {}
    scenario.done("start")
    assert scenario.command(scenario.owed("look")).execution["due"] == DUE
    plain = asked(given("- step: start\n  tool: { kind: noop }\n"), due=DUE)
    assert [fact.execution for fact in plain.facts(ExecutionStarted)] == [{}]
