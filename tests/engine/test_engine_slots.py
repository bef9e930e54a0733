"""Limits by key, from the side of an execution: it waits for its slot, shares it with its children, gives it back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from textwrap import dedent
from typing import Any

import pytest
from tests.engine.engine_scenarios import given, started

from noetl_stream.engine.advance import Advanced, advance
from noetl_stream.engine.effects import IssueCommand, SendMessage
from noetl_stream.engine.snapshot import encode_state
from noetl_stream.engine.state import RecordedFact
from noetl_stream.model import events
from noetl_stream.model.aggregates import SlotAsked, SlotReturned, StartedEnded
from noetl_stream.model.events import Fact, Parent, Rate
from noetl_stream.model.json import codec
from noetl_stream.model.messages import AggregateMessage, InboxMessage
from noetl_testkit.scenario.scenario import AskRefused, Scenario, rerun

ONE_AT_A_TIME = """
executor: { spec: { policy: { concurrency: { key: "{{ workload.customer }}", limit: 1 } } } }
workload: { customer: acme }
"""

LIMITED_STEP = """
- step: call
  spec: { policy: { limit: { key: "api-{{ workload.customer }}", concurrency: 2, rate: { per_s: 5, burst: 3 } } } }
  tool: { kind: noop }
  next: { arcs: [ { step: after } ] }
- step: after
  tool: { kind: noop }
"""

CUSTOMER = "workload: { customer: acme }\n"


def grant(scenario: Scenario, step: str = "") -> Advanced:
    """The limit gives the slot that the execution, or its step, waits for."""
    run_id = next((run.step_run_id for run in scenario.execution.runs.values() if run.step == step), "")
    return scenario.feed(RecordedFact(events.SlotGranted(scenario.execution.slots[run_id].key, run_id)))


def refuse(scenario: Scenario, reason: str = "no slot left") -> Advanced:
    return scenario.feed(RecordedFact(events.SlotRefused("acme", reason)))


def messages(scenario: Scenario) -> Iterator[InboxMessage | AggregateMessage]:
    """All that the execution has told others."""
    state = None
    for recorded in scenario.inputs:
        advanced = advance(scenario.plan, state, recorded, scenario.execution_id)
        state = advanced.state
        yield from (effect.message for effect in advanced.effects if isinstance(effect, SendMessage))


def told(scenario: Scenario) -> list[SlotAsked | SlotReturned]:
    """All that the execution has told limits, each told the limit of its key."""
    found = []
    for message in messages(scenario):
        if isinstance(message.fact, SlotAsked | SlotReturned):
            assert message.execution_id == message.fact.limit_id
            found.append(message.fact)
    return found


def ends_told(scenario: Scenario) -> list[StartedEnded]:
    """What whoever started the execution was told of its end."""
    return [message.fact for message in messages(scenario) if isinstance(message.fact, StartedEnded)]


def names(facts: Sequence[Fact]) -> list[str]:
    return [fact.event_name() for fact in facts]


def test_an_execution_with_a_key_starts_and_waits_for_its_slot_before_its_first_step() -> None:
    scenario = started("- step: work\n  tool: { kind: noop }\n", ONE_AT_A_TIME)
    assert scenario.names == [
        "execution.requested", "execution.evaluated", "execution.started", "slot.requested", "token.enqueued",
    ]  # fmt: skip
    assert scenario.execution.shown_status == "waiting" and not scenario.working
    assert told(scenario) == [SlotAsked("acme", "execution-1", path="tests/test", concurrency=1)]
    assert names(grant(scenario).journal) == ["token.claimed", "step.scheduled"]
    scenario.done("work")
    assert scenario.status == "completed"
    assert told(scenario)[1:] == [SlotReturned("acme", "execution-1")]


def test_an_execution_without_limits_records_and_sends_no_slots() -> None:
    scenario = started("- step: work\n  tool: { kind: noop }\n")
    scenario.done("work")
    assert not [name for name in scenario.names if name.startswith("slot.")] and not told(scenario)


def test_without_limits_every_stored_byte_equals_that_of_0_3() -> None:
    """Of the journal, the commands and the snapshots of a playbook that has none: the digest is that of 0.3.0."""
    steps = """
    - step: start
      tool: { kind: noop }
      next: { arcs: [ { step: each, args: { of: "{{ start }}" } } ] }
    - step: each
      loop: { in: "{{ workload.items }}", iterator: one, spec: { mode: parallel } }
      tool: { kind: noop, args: { one: "{{ iter.one }}" } }
      next: { arcs: [ { step: call } ] }
    - step: call
      tool: { kind: playbook, path: tests/child }
    """
    scenario = started(steps, "workload: { items: [1, 2] }\n")
    scenario.done("start", {"a": 1})
    scenario.done("each", 1, index=0)
    scenario.done("each", 2, index=1)
    written, state = sha256(), None
    for recorded in scenario.inputs:
        advanced = advance(scenario.plan, state, recorded, scenario.execution_id)
        state = advanced.state
        assert state is not None
        written.update(codec.encode(advanced.journal))
        written.update(encode_state(state))
        for effect in advanced.effects:
            if isinstance(effect, IssueCommand):
                written.update(codec.encode(effect.command))
    assert written.hexdigest() == "798d4a55c550dabe3c914e66c97230135494bd0feb44164436664b83d39f20ef"


def test_inputs_of_a_waiting_execution_are_kept_until_it_has_its_slot() -> None:
    scenario = started("- step: work\n  tool: { kind: noop }\n- step: other\n  tool: { kind: noop }\n", ONE_AT_A_TIME)
    scenario.patch(seen=1)
    scenario.inject("other", x=1)
    scenario.pause()
    assert scenario.execution.shown_status == "paused"
    grant(scenario)
    assert not scenario.working
    scenario.resume()
    assert [step for step, _ in scenario.working] == ["work", "other"]
    assert scenario.ctx == {"seen": 1}


def test_the_time_in_the_queue_does_not_count_towards_the_timeout() -> None:
    root = ONE_AT_A_TIME.replace("spec: { policy", "spec: { timeout_s: 60, policy")
    scenario = started("- step: work\n  tool: { kind: noop }\n", root)
    scenario.wait(3600)
    grant(scenario)
    scenario.wait(59)
    assert scenario.status == "running"
    scenario.wait(2)
    assert scenario.execution.failing is not None and scenario.execution.failing.kind == "timeout"


@pytest.mark.parametrize("is_granted", [False, True], ids=["waiting", "holding"])
def test_a_cancelled_execution_gives_its_place_back(is_granted: bool) -> None:
    scenario = started("- step: work\n  tool: { kind: noop }\n", ONE_AT_A_TIME)
    if is_granted:
        grant(scenario)
    scenario.cancel()
    assert scenario.status == "cancelled"
    assert told(scenario)[1:] == [SlotReturned("acme", "execution-1")]


WORK_AND_NOTE = "- step: work\n  tool: { kind: noop }\n- step: note\n  tool: { kind: noop }\n"
FINALLY_NOTES = ONE_AT_A_TIME.replace("policy: {", "policy: { finally: note,")


@pytest.mark.parametrize("end", [Scenario.cancel, refuse])
def test_an_execution_that_never_had_its_slot_runs_no_finally(end: Callable[[Scenario], object]) -> None:
    root = FINALLY_NOTES.replace("limit: 1", "limit: 1, on_limit: reject")
    scenario = started(WORK_AND_NOTE, root)
    end(scenario)
    assert scenario.execution.ended and scenario.execution.outcome is not None
    assert not scenario.names.count("execution.closing") and not scenario.names.count("step.scheduled")


def test_an_execution_that_had_its_slot_runs_finally() -> None:
    scenario = started(WORK_AND_NOTE, FINALLY_NOTES)
    grant(scenario)
    scenario.cancel()
    scenario.wait(30)
    assert scenario.working == [("note", None)]


def test_an_execution_that_undoes_keeps_its_slot_and_whoever_started_it_waits_until_it_has_ended() -> None:
    compensated = (
        "- step: work\n  tool: { kind: noop }\n  spec: { policy: { compensation: { tool: { kind: noop } } } }\n"
    )
    hold = "  next: { arcs: [ { step: hold } ] }\n- step: hold\n  tool: { kind: wait, signal: go, timeout_s: 60 }\n"
    scenario = given(compensated + hold, ONE_AT_A_TIME)
    origin = events.Origin("starter-1", "Schedule", "shop/nightly", 3)
    digest, path = scenario.plan.digest, scenario.plan.path
    scenario.feed(RecordedFact(events.ExecutionRequested("request-1", digest, path, origin=origin)))
    grant(scenario)
    scenario.done("work")
    scenario.done("hold")
    scenario.cancel()
    assert scenario.execution.shown_status == "compensating"
    assert (told(scenario)[1:], ends_told(scenario)) == ([], [])
    scenario.done("work__compensation")
    assert told(scenario)[1:] == [SlotReturned("acme", "execution-1")]
    assert [(fact.number, fact.status) for fact in ends_told(scenario)] == [(3, "cancelled")]


def test_a_slot_granted_twice_or_after_the_end_changes_nothing() -> None:
    scenario = started("- step: work\n  tool: { kind: noop }\n", ONE_AT_A_TIME)
    again = RecordedFact(events.SlotGranted("acme"))
    assert grant(scenario).taken and not scenario.feed(again).taken
    scenario.cancel()
    assert not scenario.feed(again).taken


def test_an_execution_that_is_rejected_fails_and_one_that_is_discarded_ends_as_cancelled() -> None:
    for on_limit, status, kind in [("reject", "failed", "limit_reached"), ("discard", "cancelled", "cancelled")]:
        root = ONE_AT_A_TIME.replace("limit: 1", f"limit: 1, on_limit: {on_limit}")
        scenario = started("- step: work\n  tool: { kind: noop }\n", root)
        refuse(scenario, "acme is taken")
        assert (scenario.status, scenario.error.kind, scenario.error.message) == (status, kind, "acme is taken")
        assert not told(scenario)[1:], "nothing is given back that was never had"


@pytest.mark.parametrize(
    ("customer", "says"),
    [(None, "not null"), ("", "is empty"), ([1], "not [1]"), ("x" * 201, "201 characters"), (True, "not true")],
)
def test_an_invalid_key_refuses_the_start(customer: Any, says: str) -> None:
    scenario = given("- step: work\n  tool: { kind: noop }\n", ONE_AT_A_TIME)
    scenario.start(workload={"customer": customer})
    assert scenario.status == "failed" and scenario.error.kind == "expression_error"
    assert says in scenario.error.message and "concurrency" in scenario.error.message


def test_a_number_is_a_key() -> None:
    scenario = given("- step: work\n  tool: { kind: noop }\n", ONE_AT_A_TIME)
    scenario.start(workload={"customer": 42})
    assert [slot.key for slot in scenario.execution.slots.values()] == ["42"]


def test_a_step_with_a_limit_has_no_command_before_its_slot_and_gives_it_back_at_its_end() -> None:
    scenario = started(LIMITED_STEP, CUSTOMER)
    assert scenario.execution.shown_status == "waiting" and not scenario.working
    (asked,) = told(scenario)
    (run,) = scenario.execution.runs.values()
    assert asked == SlotAsked(
        "api-acme", "execution-1", run.step_run_id, path="tests/test", step="call", concurrency=2, rate=Rate(5.0, 3)
    )
    assert names(grant(scenario, "call").journal) == ["step.scheduled"]
    assert "slot.released" in names(scenario.done("call"))
    assert told(scenario)[1:] == [SlotReturned("api-acme", "execution-1", run.step_run_id)]
    scenario.done("after")
    assert scenario.status == "completed" and len(told(scenario)) == 2


def test_a_step_after_another_asks_for_its_slot_when_its_token_arrives() -> None:
    steps = "- step: first\n  tool: { kind: noop }\n  next: { arcs: [ { step: call } ] }\n" + dedent(LIMITED_STEP)
    scenario = started(steps, CUSTOMER)
    scenario.done("first")
    assert not scenario.working and scenario.names[-2:] == ["token.claimed", "slot.requested"]
    scenario.take_over()
    grant(scenario, "call")
    scenario.done("call")
    scenario.done("after")
    assert scenario.status == "completed"


def test_a_loop_holds_one_slot_from_its_first_item_to_its_last() -> None:
    steps = """
    - step: call
      spec: { policy: { limit: { key: api, concurrency: 1 } } }
      loop: { in: "{{ [1, 2] }}", iterator: one, spec: { mode: parallel } }
      tool: { kind: noop }
    """
    scenario = started(steps)
    assert not scenario.working
    grant(scenario, "call")
    scenario.done("call", index=0)
    assert len(told(scenario)) == 1
    scenario.done("call", index=1)
    assert scenario.status == "completed" and len(told(scenario)) == 2


def test_a_step_that_is_timed_out_in_the_queue_leaves_it() -> None:
    steps = """
    - step: call
      spec: { policy: { limit: { key: api, concurrency: 1 }, lifecycle: { deadline_s: 10 } } }
      tool: { kind: noop }
      next: { arcs: [ { step: late, when: "{{ event.name == 'step.failed' }}" } ] }
    - step: late
      tool: { kind: noop }
    """
    scenario = started(steps)
    scenario.wait(11)
    assert [step for step, _ in scenario.working] == ["late"]
    assert [type(one) for one in told(scenario)] == [SlotAsked, SlotReturned]


def test_a_step_that_takes_over_has_the_slot_of_the_run_before() -> None:
    scenario = started(LIMITED_STEP, CUSTOMER)
    grant(scenario, "call")
    scenario.claim(scenario.take("call"))
    scenario.issue_again(scenario.owed("call"))
    scenario.done("call")
    assert [type(one) for one in told(scenario)] == [SlotAsked, SlotReturned]


def test_a_paused_execution_keeps_the_slots_of_its_steps() -> None:
    scenario = started(LIMITED_STEP, CUSTOMER)
    grant(scenario, "call")
    scenario.pause()
    scenario.done("call")
    assert len(told(scenario)) == 1
    scenario.resume()
    assert len(told(scenario)) == 2


def test_a_key_that_cannot_be_evaluated_fails_its_step() -> None:
    steps = """
    - step: call
      spec: { policy: { limit: { key: "{{ args.customer }}", concurrency: 1 } } }
      tool: { kind: noop }
      next: { arcs: [ { step: late, when: "{{ event.name == 'step.failed' }}" } ] }
    - step: late
      tool: { kind: noop }
    """
    scenario = started(steps)
    (failed,) = scenario.facts(events.StepFailed)
    assert failed.error.kind == "expression_error" and "limit" in failed.error.message


def test_a_child_shares_the_slots_of_its_callers() -> None:
    steps = """
    - step: call
      spec: { policy: { limit: { key: api, concurrency: 1 } } }
      tool: { kind: playbook, path: tests/child }
    """
    scenario = started(steps, ONE_AT_A_TIME)
    grant(scenario)
    grant(scenario, "call")
    parent = Parent("execution-1", "run", "command")
    request = events.ExecutionRequested(
        "request-1", scenario.plan.digest, workload={"customer": "acme"}, parent=parent, shared_keys=["acme", "api"]
    )
    child = Scenario(scenario.plan, execution_id="child")
    child.feed(RecordedFact(request))
    assert [step for step, _ in child.working] == ["call"] and not told(child)


def test_steps_share_the_slots_of_their_execution() -> None:
    steps = "- step: call\n  spec: { policy: { limit: { key: acme, concurrency: 1 } } }\n  tool: { kind: noop }\n"
    scenario = started(steps, ONE_AT_A_TIME)
    grant(scenario)
    assert [step for step, _ in scenario.working] == ["call"]


def test_a_rerun_waits_for_a_slot_of_its_own() -> None:
    scenario = started(LIMITED_STEP, ONE_AT_A_TIME)
    grant(scenario)
    grant(scenario, "call")
    scenario.failed("call")
    assert scenario.status == "failed"
    again = rerun(scenario)
    assert again.execution.shown_status == "waiting" and not again.working
    grant(again)
    grant(again, "call")
    again.done("call")
    again.done("after")
    assert again.status == "completed"


def test_a_rerun_of_what_never_ran_is_refused() -> None:
    scenario = started(LIMITED_STEP, ONE_AT_A_TIME)
    scenario.cancel()
    with pytest.raises(AskRefused):
        rerun(scenario, "after")


def test_replay_and_deciding_again_give_the_same_state_and_journal() -> None:
    scenario = started(LIMITED_STEP, ONE_AT_A_TIME)
    scenario.take_over()
    grant(scenario)
    scenario.take_over()
    grant(scenario, "call")
    scenario.take_over()
    scenario.done("call")
    scenario.done("after")
    assert scenario.replayed() == scenario.execution
    assert scenario.decided_again() == scenario.journal
