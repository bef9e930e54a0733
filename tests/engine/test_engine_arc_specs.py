"""LANGUAGE §7 *Keys and priority of arcs*: which tokens an arc sends, and how."""

from __future__ import annotations

from engine_scenarios import HEAD, given, started

from noetl_stream.engine.advance import advance
from noetl_stream.engine.effects import SendMessage, build_command, child_message
from noetl_stream.engine.snapshot import decode_state, encode_state
from noetl_stream.engine.state import RecordedFact
from noetl_stream.model.events import ChildRequested, ExecutionRequested, NextEvaluated, SlotGranted, TokenEnqueued
from noetl_testkit.scenario.scenario import Scenario, rerun

ROUND = """
- step: start
  tool: {kind: noop}
  next:
    spec: {mode: inclusive}
    arcs:
      - {step: work, args: {n: "{{ args.n | default(0) }}"}, spec: {dedupe: "{{ (args.n | default(0)) // 2 }}"}}
      - {step: start, when: "{{ (args.n | default(0)) < 4 }}", args: {n: "{{ (args.n | default(0)) + 1 }}"}}
- step: work
  tool: {kind: noop, args: {n: "{{ args.n }}"}}
"""
"""Five rounds, of which the second and the fourth have the keys of those before."""


def rounds(scenario: Scenario, count: int = 5) -> Scenario:
    for _ in range(count):
        scenario.done("start")
    return scenario


def worked(scenario: Scenario) -> list[int]:
    return [one.token.args["n"] for one in scenario.facts(TokenEnqueued) if one.token.step == "work"]


def test_of_the_tokens_with_one_key_an_arc_sends_the_first() -> None:
    scenario = rounds(started(ROUND))
    assert worked(scenario) == [0, 2, 4]
    assert scenario.replayed() == scenario.state
    assert scenario.decided_again() == scenario.journal


def test_the_journal_says_by_which_key_an_arc_sent_nothing() -> None:
    scenario = rounds(started(ROUND))
    assert [(one.keys, one.fired) for one in scenario.facts(NextEvaluated) if one.guards] == [
        ({0: "0"}, [0, 1]),
        ({0: "0"}, [1]),
        ({0: "1"}, [0, 1]),
        ({0: "1"}, [1]),
        ({0: "2"}, [0]),
    ]


def test_a_snapshot_remembers_what_was_sent() -> None:
    scenario = rounds(started(ROUND), 3)
    assert decode_state(encode_state(scenario.execution)) == scenario.execution
    assert sum(map(len, scenario.execution.sent.values())) == 2


def test_each_arc_of_each_execution_has_keys_of_its_own() -> None:
    both = """
    - step: start
      tool: {kind: noop}
      next: {spec: {mode: inclusive, policy: {dedupe: once}}, arcs: [{step: a}, {step: b}, {step: start}]}
    - step: a
      tool: {kind: noop}
    - step: b
      tool: {kind: noop}
    """
    for scenario in (started(both), started(both)):
        rounds(scenario, 2)
        assert [one.fired for one in scenario.facts(NextEvaluated)] == [[0, 1, 2], []]


def test_an_exclusive_arc_that_sends_nothing_again_does_not_leave_the_token_to_the_next() -> None:
    scenario = started(
        """
        - step: start
          tool: {kind: noop}
          next: {arcs: [{step: again, spec: {dedupe: once}}, {step: other, when: "{{ true }}"}]}
        - step: again
          tool: {kind: noop}
          next: {arcs: [{step: start}]}
        - step: other
          tool: {kind: noop}
        """
    )
    for step in ("start", "again", "start"):
        scenario.done(step)
    assert (scenario.status, [one.fired for one in scenario.facts(NextEvaluated)]) == ("completed", [[0], [0], []])


def test_a_failure_that_an_arc_handles_is_handled_although_it_sends_nothing_again() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: work}, {step: work}]}
        - step: work
          tool: {kind: noop}
          next: {arcs: [{step: alarm, when: "{{ event.status == 'error' }}", spec: {dedupe: "{{ event.error.kind }}"}}]}
        - step: alarm
          tool: {kind: noop}
        """
    )
    scenario.failed("work", "boom")
    scenario.failed("work", "boom")
    scenario.done("alarm")
    assert (scenario.status, scenario.execution.step_runs) == ("completed", 4)


def test_a_branch_whose_arc_sends_nothing_again_does_not_rest() -> None:
    scenario = started(
        """
        - step: start
          tool: {kind: noop}
          next:
            spec: {mode: inclusive, wait: {timeout_s: 60}}
            arcs: [{step: start, when: "{{ true }}", spec: {dedupe: once}}]
        """
    )
    rounds(scenario, 2)
    assert scenario.status == "completed"


def test_a_key_that_is_no_text_or_number_fails_the_execution() -> None:
    scenario = started(
        """
        - step: start
          tool: {kind: noop}
          next: {arcs: [{step: start, spec: {dedupe: "{{ [1] }}"}}]}
        """
    )
    scenario.done("start")
    assert scenario.error.kind == "expression_error"
    assert "an arc of start" in scenario.error.message and "must be text or a number" in scenario.error.message


def test_a_rerun_sends_again_only_what_it_does_not_reuse() -> None:
    scenario = rounds(started(ROUND))
    for _ in range(3):
        scenario.done("work")
    assert scenario.status == "completed"
    again = rerun(scenario, "start")  # its last run, which sent the key 2
    again.done("start")
    assert [one.keys for one in again.facts(NextEvaluated)] == [{0: "2"}]
    again.done("work")
    assert again.status == "completed"


URGENT = """
- step: start
  next:
    spec: {mode: inclusive, policy: {priority: 3}}
    arcs: [{step: usual}, {step: urgent, spec: {priority: 9}}]
- step: usual
  tool: {kind: noop}
  next: {arcs: [{step: last}]}
- step: urgent
  tool: {kind: playbook, path: other/one}
  next: {arcs: [{step: last, spec: {priority: 7}}]}
- step: last
  spec: {join: all}
  tool: {kind: noop}
"""


def priority_of(scenario: Scenario, step: str) -> int:
    return build_command(scenario.plan, scenario.execution, scenario.owed(step)).priority


def test_the_step_run_that_an_arc_starts_has_its_priority_and_so_has_what_that_calls() -> None:
    scenario = started(URGENT)
    assert (priority_of(scenario, "usual"), priority_of(scenario, "urgent")) == (3, 9)
    scenario.done("urgent")
    (requested,) = scenario.facts(ChildRequested)
    message = child_message(scenario.execution, requested, 9)
    assert message is not None and isinstance(message.fact, ExecutionRequested)
    assert message.fact.priority == 9
    scenario.child_ended({})
    scenario.done("urgent")
    scenario.done("usual")
    assert priority_of(scenario, "last") == 7
    assert scenario.replayed() == scenario.state
    assert scenario.decided_again() == scenario.journal


def test_a_token_that_is_passed_on_at_once_keeps_the_priority_of_its_arc() -> None:
    scenario = started(
        """
        - step: start
          tool: {kind: noop}
          next: {arcs: [{step: next, spec: {priority: 0}}]}
        - step: next
          tool: {kind: noop}
          next: {arcs: [{step: last}]}
        - step: last
          tool: {kind: noop}
        """
    )
    assert priority_of(scenario, "start") == 5
    scenario.done("start")
    assert priority_of(scenario, "next") == 0
    scenario.done("next")
    assert priority_of(scenario, "last") == 5
    assert scenario.replayed() == scenario.state


PARTITIONED = """
workload: {orders: [a, b, a, a, b]}
workflow:
- step: start
  next: {arcs: [{step: each, args: {left: "{{ workload.orders }}"}}]}
- step: each
  next:
    spec: {mode: inclusive}
    arcs:
      - {step: work, args: {n: "{{ args.left | length }}"}, spec: {partition: "{{ args.left[0] }}"}}
      - {step: each, when: "{{ args.left | length > 1 }}", args: {left: "{{ args.left[1:] }}"}}
- step: work
  tool: {kind: noop, args: {n: "{{ args.n }}"}}
"""


def partitioned(text: str = PARTITIONED) -> Scenario:
    scenario = Scenario(HEAD + text.lstrip())
    scenario.start()
    return scenario


def running(scenario: Scenario) -> list[int]:
    """The args of the runs of ``work`` that a worker has, in order of their commands."""
    state = scenario.execution
    return [state.runs[one.step_run_id].token.args["n"] for one in state.assignments.values()]


def test_step_runs_with_one_key_run_one_after_another_and_those_with_others_at_once() -> None:
    scenario = partitioned()
    seen = [running(scenario)]
    while scenario.working:
        scenario.done("work")
        seen.append(running(scenario))
    assert seen == [[5, 4], [4, 3], [3, 1], [1, 2], [2], []]
    assert scenario.status == "completed"
    assert scenario.replayed() == scenario.state
    assert scenario.decided_again() == scenario.journal


def test_a_step_run_begins_also_if_the_one_before_it_fails() -> None:
    scenario = partitioned("executor: {spec: {policy: {failure: {mode: best_effort}}}}" + PARTITIONED)
    scenario.failed("work", "boom")
    assert running(scenario) == [4, 3]


def test_a_waiting_step_run_has_no_command_and_asks_no_limit() -> None:
    scenario = partitioned()
    state = scenario.execution
    assert [(slot.key, slot.granted) for slot in state.slots.values()] == [("a", False), ("a", False), ("b", False)]
    assert sorted(state.run_statuses().values()) == ["running", "running", "waiting", "waiting", "waiting"]
    while scenario.working:
        scenario.done("work")
    state, sent = None, []
    for recorded in scenario.inputs:
        advanced = advance(scenario.plan, state, recorded, scenario.execution_id)
        state = advanced.state
        sent += [effect for effect in advanced.effects if isinstance(effect, SendMessage)]
    assert sent == []
    assert (scenario.names.count("slot.requested"), scenario.names.count("slot.released")) == (3, 3)


def test_a_step_run_that_waits_for_its_turn_survives_a_pause_and_a_snapshot() -> None:
    scenario = partitioned()
    scenario.pause()
    scenario.done("work")
    scenario.done("work")
    assert running(scenario) == []
    assert decode_state(encode_state(scenario.execution)) == scenario.execution
    scenario.resume()
    assert running(scenario) == [3, 1]


def test_a_deadline_ends_the_wait_for_a_turn() -> None:
    late = PARTITIONED.replace("- step: work\n", "- step: work\n  spec: {policy: {lifecycle: {deadline_s: 10}}}\n")
    scenario = partitioned("executor: {spec: {policy: {failure: {mode: best_effort}}}}" + late)
    scenario.wait(10)
    assert (scenario.status, scenario.execution.slots) == ("completed", {})


def test_a_cancel_leaves_no_turn_behind() -> None:
    scenario = partitioned()
    advanced = scenario.cancel()
    assert scenario.status == "cancelled"
    assert not any(isinstance(effect, SendMessage) for effect in advanced.effects)


def test_a_step_run_asks_for_the_slot_of_its_limit_when_it_has_its_turn() -> None:
    limit = "  spec: {policy: {limit: {key: api, concurrency: 9}}}\n"
    scenario = partitioned(PARTITIONED.replace("- step: work\n", f"- step: work\n{limit}"))
    slots = scenario.execution.slots
    assert [slot.key for slot in slots.values() if not slot.partition] == ["api", "api"]
    for holder, slot in slots.items():
        if not slot.partition:
            scenario.feed(RecordedFact(SlotGranted("api", holder)))
    scenario.done("work")
    assert [slot.key for slot in scenario.execution.slots.values() if not slot.partition] == ["api", "api"]
    assert running(scenario) == [4]
    assert scenario.replayed() == scenario.state


def test_the_token_of_a_join_is_in_the_partition_of_the_last_that_has_one() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: both, spec: {partition: a}}, {step: both}]}
        - step: both
          spec: {join: all}
          tool: {kind: noop}
        """
    )
    (run,) = scenario.execution.runs.values()
    assert run.token.partition == "a"


def test_playbooks_without_any_are_not_kept_from_older_servers() -> None:
    plain = given(
        "- step: start\n  tool: {kind: noop}\n  next: {spec: {policy: {}}, arcs: [{step: start, spec: {}}]}\n"
    )
    assert (plain.plan.newer, bool(given(ROUND).plan.newer)) == ("", True)
