"""LANGUAGE §7 *Join*: which tokens merge into one, when, and what becomes of those that come too late or too few."""

from __future__ import annotations

from itertools import permutations

import pytest
from engine_scenarios import BEST_EFFORT, given, limits, started

from noetl_stream.model.events import (
    NextEvaluated,
    StepFailed,
    TokenAbsorbed,
    TokenClaimed,
    TokenDiscarded,
    TokenEnqueued,
    TokenJoined,
)
from noetl_testkit.scenario.scenario import Scenario

FAN = "next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}, {step: c}]}"


def three(join: str, *, arcs: str = "{step: j}", tail: str = "", root: str = "") -> Scenario:
    """``start`` fans out to ``a``, ``b`` and ``c``, which lead to the join ``j``, which leads to ``end``."""
    branches = "".join(
        f"- step: {name}\n  tool: {{kind: noop}}\n  next: {{arcs: [{arcs.replace('NAME', name)}]}}\n" for name in "abc"
    )
    return started(
        f"- step: start\n  {FAN}\n"
        + branches
        + f"- step: j\n  spec: {{join: {join}}}\n  tool: {{kind: noop}}\n  next: {{arcs: [{{step: end}}]}}\n"
        + "- step: end\n  tool: {kind: noop}\n"
        + tail,
        root,
    )


def merged(scenario: Scenario) -> list[dict[str, object]]:
    """The args of what joins have merged, in order."""
    return [fact.token.args for fact in scenario.facts(TokenEnqueued) if fact.joined]


# --- all --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(permutations("abc")))
def test_all_fires_once_when_every_branch_has_arrived_in_any_order(order: tuple[str, ...]) -> None:
    scenario = three("all")
    for step in order[:2]:
        scenario.done(step)
        assert ("j", None) not in scenario.working
    scenario.done(order[2])
    assert scenario.working == [("j", None)]
    scenario.done("j")
    scenario.done("end", "good")
    assert (scenario.status, scenario.result) == ("completed", "good")
    assert len(scenario.facts(TokenClaimed)) == 6


def test_without_a_join_each_branch_runs_the_step() -> None:
    scenario = started(
        f"- step: start\n  {FAN}\n"
        + "".join(f"- step: {name}\n  next: {{arcs: [{{step: j}}]}}\n" for name in "abc")
        + "- step: j\n  tool: {kind: noop}\n"
    )
    assert scenario.working == [("j", None)] * 3


def test_all_needs_no_second_token_after_exclusive_routing() -> None:
    """The XOR merge: only one of several branches was taken."""
    scenario = started(
        """
        - step: start
          tool: {kind: noop}
          next: {arcs: [{step: a, when: "{{ event.result == 1 }}"}, {step: b}]}
        - step: a
          tool: {kind: noop}
          next: {arcs: [{step: j, args: {from_a: true}}]}
        - step: b
          tool: {kind: noop}
          next: {arcs: [{step: j}]}
        - step: j
          spec: {join: all}
          tool: {kind: noop}
        """
    )
    scenario.done("start", 1)
    scenario.done("a")
    assert scenario.working == [("j", None)]
    assert scenario.take("j").command.args["by_step"] == {"a": {"from_a": True}}


def test_a_branch_that_ends_before_the_join_is_not_waited_for() -> None:
    guard = "{step: j, when: \"{{ event.step != 'b' }}\"}"
    scenario = three("all", arcs=guard)
    for step in "acb":
        scenario.done(step)
    assert scenario.working == [("j", None)]
    assert [arrival["step"] for arrival in scenario.take("j").command.args["arrivals"]] == ["a", "c"]


def test_a_branch_that_has_not_even_begun_is_waited_for() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: short}, {step: one}]}
        - step: short
          next: {arcs: [{step: j}]}
        - step: one
          tool: {kind: noop}
          next: {arcs: [{step: two}]}
        - step: two
          tool: {kind: noop}
          next: {arcs: [{step: j}]}
        - step: j
          spec: {join: all}
          tool: {kind: noop}
        """
    )
    assert scenario.working == [("one", None)]
    scenario.done("one")
    assert scenario.working == [("two", None)]
    scenario.done("two")
    assert scenario.working == [("j", None)]


def test_guards_are_ignored_when_asking_who_can_still_arrive() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: never}]}
        - step: a
          tool: {kind: noop}
          next: {arcs: [{step: j}]}
        - step: never
          tool: {kind: noop}
          next: {arcs: [{step: j, when: false}]}
        - step: j
          spec: {join: all}
          tool: {kind: noop}
        """
    )
    scenario.done("a")
    assert scenario.working == [("never", None)]
    scenario.done("never")
    assert scenario.working == [("j", None)]


def test_a_failed_branch_fails_the_execution_and_what_had_joined_is_discarded() -> None:
    scenario = three("all")
    scenario.done("a")
    scenario.failed("b")
    assert scenario.status == "failed"
    assert len(scenario.facts(TokenDiscarded)) == 1
    assert merged(scenario) == []


def test_under_best_effort_a_failed_branch_is_not_waited_for() -> None:
    scenario = three("all", root=BEST_EFFORT)
    scenario.done("a")
    scenario.done("c")
    scenario.failed("b")
    assert scenario.working == [("j", None)]
    assert len(scenario.take("j").command.args["arrivals"]) == 2


def test_a_failure_that_is_routed_to_the_join_arrives_like_any_token() -> None:
    arcs = "{step: j, when: \"{{ event.name in ['step.done', 'step.failed'] }}\", args: {NAME: \"{{ event.status }}\"}}"
    scenario = three("all", arcs=arcs)
    scenario.done("a")
    scenario.failed("b")
    scenario.done("c")
    args = scenario.take("j").command.args
    assert (args["a"], args["b"], args["c"]) == ("success", "error", "success")


def test_a_branch_through_a_deep_diamond_is_waited_for() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: left}, {step: right}]}
        - step: left
          next: {spec: {mode: inclusive}, arcs: [{step: l1}, {step: l2}]}
        - step: l1
          tool: {kind: noop}
          next: {arcs: [{step: inner}]}
        - step: l2
          tool: {kind: noop}
          next: {arcs: [{step: inner}]}
        - step: inner
          spec: {join: all}
          tool: {kind: noop}
          next: {arcs: [{step: outer, args: {inner: "{{ args.by_step | length }}"}}]}
        - step: right
          tool: {kind: noop}
          next: {arcs: [{step: outer, args: {right: 1}}]}
        - step: outer
          spec: {join: all}
          tool: {kind: noop}
        """
    )
    scenario.done("right")
    scenario.done("l1")
    assert scenario.working == [("l2", None)]
    scenario.done("l2")
    assert scenario.working == [("inner", None)]
    scenario.done("inner")
    args = scenario.take("outer").command.args
    assert (args["inner"], args["right"]) == (2, 1)


def test_a_join_of_tool_less_steps_alone_completes_at_once() -> None:
    scenario = started(
        f"- step: start\n  {FAN}\n"
        + "".join(f"- step: {name}\n  next: {{arcs: [{{step: j}}]}}\n" for name in "abc")
        + "- step: j\n  spec: {join: all}\n  next: {arcs: [{step: end}]}\n- step: end\n  tool: {kind: noop}\n"
    )
    assert scenario.working == [("end", None)]
    assert len(merged(scenario)) == 1


def test_the_entry_step_may_join() -> None:
    scenario = started("- step: start\n  spec: {join: all}\n  tool: {kind: noop}\n")
    assert scenario.working == [("start", None)]
    assert scenario.take("start").command.args == {"by_step": {}, "arrivals": [{"step": None, "args": {}}]}


# --- cycles and waves -------------------------------------------------------------------------------------------------

CYCLE = """
- step: start
  next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}
- step: a
  tool: {kind: noop}
  next: {arcs: [{step: j, args: {n: 1}}]}
- step: b
  tool: {kind: noop}
  next: {arcs: [{step: j}]}
- step: j
  spec: {join: JOIN}
  tool: {kind: noop}
  next:
    arcs:
    - {step: again, when: "{{ event.result == 'again' }}"}
    - {step: end}
- step: again
  next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}
- step: end
  tool: {kind: noop}
"""


def test_a_cycle_through_a_join_begins_the_next_wave() -> None:
    scenario = started(CYCLE.replace("JOIN", "all"))
    for verdict in ("again", "again", "enough"):
        scenario.done("b")
        assert scenario.working == [("a", None)]
        scenario.done("a")
        assert scenario.working == [("j", None)]
        scenario.done("j", verdict)
    assert scenario.working == [("end", None)]
    assert scenario.execution.waves == {"j": 3}


@pytest.mark.parametrize("join", ["any", "1"])
def test_a_join_of_any_fires_on_the_first_arrival_and_absorbs_the_rest_of_its_wave(join: str) -> None:
    scenario = three(join)
    scenario.done("b")
    assert scenario.working == [("a", None), ("c", None), ("j", None)]
    scenario.done("a")
    scenario.done("j")
    scenario.done("c")
    assert scenario.working == [("end", None)]
    absorbed = scenario.facts(TokenAbsorbed)
    assert len(absorbed) == 2 and "fired without it" in absorbed[0].reason
    assert [arrival["step"] for arrival in merged(scenario)[0]["arrivals"]] == ["b"]  # type: ignore[attr-defined]


def test_a_number_fires_on_that_arrival_and_absorbs_the_rest() -> None:
    scenario = three("2")
    scenario.done("c")
    assert scenario.working == [("a", None), ("b", None)]
    scenario.done("a")
    assert scenario.working == [("b", None), ("j", None)]
    scenario.done("b")
    assert len(scenario.facts(TokenAbsorbed)) == 1
    scenario.done("j")
    scenario.done("end")
    assert scenario.status == "completed"


def test_descendants_of_a_firing_belong_to_the_next_wave_and_latecomers_of_the_first_wave_to_none() -> None:
    scenario = started(CYCLE.replace("JOIN", "any"))
    scenario.done("a")
    scenario.done("j", "again")  # wave 1 fired without b, whose run is still there
    assert scenario.working == [("b", None), ("a", None), ("b", None)]
    scenario.done("b")
    assert len(scenario.facts(TokenAbsorbed)) == 1, "the first b comes too late"
    scenario.done("a")
    assert scenario.working == [("b", None), ("j", None)], "a of the second wave fires it again"
    scenario.done("j", "enough")
    scenario.done("b")
    scenario.done("end")
    assert scenario.status == "completed"
    assert len(scenario.facts(TokenAbsorbed)) == 2


def test_two_waves_of_a_number_do_not_mix() -> None:
    scenario = started(CYCLE.replace("JOIN", "2"))
    scenario.done("a")
    scenario.done("b")
    scenario.done("j", "again")
    scenario.done("b")
    assert scenario.working == [("a", None)]
    scenario.done("a")
    scenario.done("j", "enough")
    scenario.done("end")
    assert scenario.execution.waves == {"j": 2}
    assert scenario.facts(TokenAbsorbed) == []


def test_two_waves_in_flight_stay_apart_for_a_step_behind_both() -> None:
    """What descends from a later firing does not go back into an earlier one."""
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}
        - step: a
          tool: {kind: noop}
          next: {arcs: [{step: first}]}
        - step: b
          tool: {kind: noop}
          next: {arcs: [{step: first}]}
        - step: first
          spec: {join: any}
          tool: {kind: noop}
          next: {spec: {mode: inclusive}, arcs: [{step: c}, {step: d}]}
        - step: c
          tool: {kind: noop}
          next: {arcs: [{step: second}]}
        - step: d
          tool: {kind: noop}
          next: {arcs: [{step: second}]}
        - step: second
          spec: {join: 2}
          tool: {kind: noop}
        """
    )
    scenario.done("a")
    scenario.done("first")
    scenario.done("c")
    scenario.done("b")
    assert len(scenario.facts(TokenAbsorbed)) == 1
    scenario.done("d")
    assert scenario.working == [("second", None)]


# --- too few ----------------------------------------------------------------------------------------------------------


def test_fewer_tokens_than_required_fail_the_step_with_their_number() -> None:
    scenario = three("3", arcs="{step: j, when: \"{{ event.step != 'b' }}\"}")
    for step in "abc":
        scenario.done(step)
    assert (scenario.status, scenario.error.kind) == ("failed", "join_unsatisfied")
    assert "2 of the 3 tokens that step j joins" in scenario.error.message
    assert [fact.event for fact in scenario.facts(NextEvaluated)][-1] == "step.failed"


def test_an_unsatisfied_join_is_routed_like_any_failure() -> None:
    scenario = started(
        """
        - step: start
          next: {arcs: [{step: j}]}
        - step: j
          spec: {join: 2}
          tool: {kind: noop}
          next: {arcs: [{step: rescue, when: "{{ event.error.kind == 'join_unsatisfied' }}"}]}
        - step: rescue
          tool: {kind: noop}
        """
    )
    assert scenario.working == [("rescue", None)]


def test_an_unsatisfied_join_asks_no_admission() -> None:
    scenario = started(
        """
        - step: start
          next: {arcs: [{step: j}]}
        - step: j
          spec:
            join: 2
            policy: {admit: {rules: [{when: "{{ ctx.never > 1 }}", then: {allow: true}}], wait: {timeout_s: 9}}}
          tool: {kind: noop}
          next: {arcs: [{step: rescue, when: "{{ event.error.kind == 'join_unsatisfied' }}"}]}
        - step: rescue
          tool: {kind: noop}
        """
    )
    assert scenario.working == [("rescue", None)]
    assert scenario.execution.timers == {}


# --- standstill -------------------------------------------------------------------------------------------------------

WAITING_FOR_EACH_OTHER = """
- step: start
  next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}
- step: a
  tool: {kind: noop}
  next: {arcs: [{step: one}]}
- step: b
  tool: {kind: noop}
  next: {arcs: [{step: two}]}
- step: one
  spec: {join: all}
  tool: {kind: noop}
  next: {arcs: [{step: two, when: "{{ event.result == 'on' }}"}]}
- step: two
  spec: {join: all}
  tool: {kind: noop}
  next: {arcs: [{step: one, when: "{{ event.result == 'on' }}"}]}
"""


@pytest.mark.parametrize(("first", "then", "join", "other"), [("a", "b", "one", "two"), ("b", "a", "two", "one")])
def test_the_deadlocked_join_with_the_oldest_token_fires(first: str, then: str, join: str, other: str) -> None:
    scenario = started(WAITING_FOR_EACH_OTHER)
    scenario.done(first)
    scenario.done(then)
    assert scenario.working == [(join, None)]
    scenario.done(join, "on")
    assert scenario.working == [(other, None)]
    assert len(scenario.take(other).command.args["arrivals"]) == 2


def test_a_held_token_that_can_reach_a_join_delays_it_until_nothing_else_lives() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: shut}, {step: slow}]}
        - step: a
          tool: {kind: noop}
          next: {arcs: [{step: j}]}
        - step: shut
          spec: {policy: {admit: {rules: [{when: "{{ ctx.open is defined }}", then: {allow: true}}]}}}
          tool: {kind: noop}
          next: {arcs: [{step: j}]}
        - step: slow
          tool: {kind: noop}
        - step: j
          spec: {join: all}
          tool: {kind: noop}
        """
    )
    scenario.done("a")
    assert scenario.working == [("slow", None)]
    scenario.done("slow")
    assert scenario.working == [("j", None)]
    (discarded,) = scenario.facts(TokenDiscarded)
    assert "a join waits for this token" in discarded.reason
    scenario.done("j")
    assert (scenario.status, scenario.execution.discarded) == ("completed", 1)


def test_a_held_token_that_cannot_reach_the_join_does_not_hold_it_up() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: j}, {step: shut}]}
        - step: shut
          spec: {policy: {admit: {rules: [{when: "{{ j is not none }}", then: {allow: true}}]}}}
          tool: {kind: noop}
        - step: j
          spec: {join: all}
          tool: {kind: noop}
        """
    )
    assert scenario.working == [("j", None)]
    scenario.done("j")
    assert scenario.working == [("shut", None)]


def test_a_token_that_may_wait_for_its_admission_holds_the_join_up_as_long_as_it_does() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: j}, {step: gate}]}
        - step: gate
          spec:
            policy:
              admit:
                rules: [{when: "{{ ctx.ok is defined }}", then: {allow: true}}]
                wait: {timeout_s: 60, on_timeout: discard}
          next: {arcs: [{step: j}]}
        - step: j
          spec: {join: all}
          tool: {kind: noop}
        """
    )
    assert (scenario.working, scenario.execution.shown_status) == ([], "waiting")
    scenario.wait(59)
    assert scenario.working == []
    scenario.wait(1)
    assert scenario.working == [("j", None)]
    assert len(scenario.take("j").command.args["arrivals"]) == 1


# --- with everything else ---------------------------------------------------------------------------------------------


def test_the_merged_token_is_asked_for_admission_once_it_is_merged() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: j, args: {n: 1}}, {step: b}]}
        - step: b
          tool: {kind: noop}
          next: {arcs: [{step: j, args: {m: 2}}]}
        - step: j
          spec:
            join: all
            policy: {admit: {rules: [{when: "{{ args.n + args.m == ctx.wanted and token.cause == 'join' }}",
                                      then: {allow: true}}], wait: {timeout_s: 60}}}
          tool: {kind: noop}
        """,
        ctx={"wanted": 0},
    )
    scenario.done("b")
    assert scenario.held == ["j"]
    scenario.patch(wanted=3)
    assert scenario.working == [("j", None)]


def test_merged_args_are_laid_over_each_other_in_the_order_of_the_file() -> None:
    scenario = three("all", arcs="{step: j, args: {who: NAME, NAME: 1}}")
    for step in "cab":
        scenario.done(step)
    args = scenario.take("j").command.args
    assert (args["who"], args["a"], args["b"], args["c"]) == ("c", 1, 1, 1)
    assert args["by_step"] == {name: {"who": name, name: 1} for name in "abc"}
    assert [arrival["step"] for arrival in args["arrivals"]] == ["c", "a", "b"]
    assert args["arrivals"][0]["args"] == {"who": "c", "c": 1}


def test_by_step_holds_the_last_arrival_of_a_step_and_arrivals_holds_both() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: a, args: {n: 1}}, {step: a, args: {n: 2}}]}
        - step: a
          tool: {kind: noop}
          next: {arcs: [{step: j, args: {n: "{{ args.n }}"}}]}
        - step: j
          spec: {join: all}
          tool: {kind: noop}
        """
    )
    scenario.done("a")
    scenario.done("a")
    args = scenario.take("j").command.args
    assert args["by_step"] == {"a": {"n": 2}}
    assert [arrival["args"]["n"] for arrival in args["arrivals"]] == [1, 2]


def test_a_step_that_joins_may_loop() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: j, args: {x: 1}}, {step: j, args: {y: 2}}]}
        - step: j
          spec: {join: all}
          loop: {in: "{{ args.arrivals }}", iterator: one, spec: {mode: parallel}}
          tool: {kind: noop, args: {got: "{{ one.args }}"}}
        """
    )
    assert scenario.working == [("j", 0), ("j", 1)]
    scenario.done("j", index=1)
    scenario.done("j", index=0)
    assert scenario.result == [{"got": {"x": 1}}, {"got": {"y": 2}}]


def test_a_token_injected_at_a_join_arrives_there() -> None:
    scenario = three("all", arcs="{step: j, args: {who: NAME}}")
    scenario.inject("j", extra=True)
    for step in "abc":
        scenario.done(step)
    args = scenario.take("j").command.args
    assert args["extra"] is True and len(args["arrivals"]) == 4
    assert list(args["by_step"]) == ["a", "b", "c"]


def test_a_suspended_branch_lives_and_is_waited_for() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: j}, {step: nap}]}
        - step: nap
          tool: {kind: wait, for_s: 60}
          next: {arcs: [{step: j}]}
        - step: j
          spec: {join: all}
          tool: {kind: noop}
        """
    )
    scenario.done("nap")
    assert (scenario.suspended, scenario.working) == ([("nap", None)], [])
    scenario.wait(60)
    scenario.done("nap")
    assert scenario.working == [("j", None)]


def test_the_deadlines_of_joined_tokens_are_forgotten_with_them() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: j}, {step: j}, {step: b}]}
        - step: b
          tool: {kind: noop}
          next: {arcs: [{step: j}]}
        - step: j
          spec: {join: all, policy: {lifecycle: {deadline_s: 60}}}
          tool: {kind: noop}
        """
    )
    assert len(scenario.execution.timers) == 2
    scenario.done("b")
    assert [timer.purpose for timer in scenario.execution.timers.values()] == ["deadline"]
    assert scenario.working == [("j", None)]
    scenario.wait(60)
    assert scenario.error.kind == "timeout"


def test_args_that_are_too_large_together_fail_the_step_with_the_limit_named() -> None:
    scenario = three("all", arcs='{step: j, args: {text: "{{ event.result }}"}}', root=limits(max_ctx_bytes=400))
    for step in "abc":
        scenario.done(step, step * 100)
    assert (scenario.status, scenario.error.kind) == ("failed", "limit_exceeded")
    assert "limits.max_ctx_bytes (400)" in scenario.error.message
    assert scenario.facts(StepFailed)


def test_an_arriving_token_is_recorded_as_joined() -> None:
    scenario = three("all")
    scenario.done("a")
    assert [fact.token_id for fact in scenario.facts(TokenJoined)] == [
        waiting.token.token_id for waiting in scenario.execution.tokens.values()
    ]


def test_the_playbook_is_checked_for_its_joins() -> None:
    assert given("- step: start\n  spec: {join: 3}\n  tool: {kind: noop}\n").plan.steps["start"].join == 3


@pytest.mark.parametrize("join", ["any", "2"])
def test_tokens_that_arrive_at_one_moment_are_ordered(join: str) -> None:
    arcs = ", ".join(f"{{step: j, args: {{n: {n}}}}}" for n in range(3))
    scenario = started(
        f"- step: start\n  next: {{spec: {{mode: inclusive}}, arcs: [{arcs}]}}\n"
        f"- step: j\n  spec: {{join: {join}}}\n  tool: {{kind: noop}}\n"
    )
    assert scenario.working == [("j", None)]
    wanted = 1 if join == "any" else 2
    assert [arrival["args"]["n"] for arrival in scenario.take("j").command.args["arrivals"]] == list(range(wanted))
    assert len(scenario.facts(TokenAbsorbed)) == 3 - wanted
    scenario.done("j")
    assert scenario.status == "completed"


def test_a_token_merged_by_several_joins_descends_from_all_their_firings() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: first}, {step: slow}]}
        - step: slow
          tool: {kind: noop}
          next: {arcs: [{step: first}]}
        - step: first
          spec: {join: any}
          next: {spec: {mode: inclusive}, arcs: [{step: x, when: "{{ args.again is undefined }}"}, {step: y}]}
        - step: x
          tool: {kind: noop}
          next: {arcs: [{step: both}]}
        - step: y
          tool: {kind: noop}
          next: {arcs: [{step: both, when: "{{ ctx.stop is undefined }}"}]}
        - step: both
          spec: {join: 2}
          next: {arcs: [{step: first, args: {again: true}}]}
        """
    )
    scenario.done("x")
    scenario.done("y")
    assert scenario.execution.waves == {"first": 2, "both": 1}, "it descends from the first firing, and fires again"
    scenario.done("slow")
    assert len(scenario.facts(TokenAbsorbed)) == 1
