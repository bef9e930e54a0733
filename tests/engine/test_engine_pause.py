"""LANGUAGE §9 *Pause*: facts are folded, nothing is decided; on resume, everything that is owed, once."""

from __future__ import annotations

import pytest
from engine_scenarios import BEST_EFFORT, limits, started

from noetl_stream.engine.state import RecordedFact
from noetl_stream.model.events import (
    CtxOverwrote,
    ExecutionPaused,
    ExecutionResumed,
    StepScheduled,
    StepSuspended,
    TimerFired,
    TokenClaimed,
)
from noetl_testkit.scenario.scenario import Scenario

FAN = """
- step: start
  next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}, {step: many}]}
- step: a
  tool: {kind: noop}
  next: {arcs: [{step: a2}]}
- step: b
  tool: {kind: noop}
  next: {arcs: [{step: b2}]}
- step: many
  loop: {in: [1, 2, 3, 4], iterator: n, spec: {mode: parallel, max_in_flight: 2}}
  tool: {kind: noop}
- step: a2
  tool: {kind: noop}
- step: b2
  tool: {kind: noop}
"""


def test_nothing_is_ordered_while_paused_and_everything_on_resume() -> None:
    scenario = started(FAN)
    scenario.pause()
    assert scenario.execution.shown_status == "paused"
    scenario.done("a")
    scenario.done("b")
    scenario.done("many", index=0)
    assert scenario.working == [("many", 1)]
    assert len(scenario.facts(StepScheduled)) == 4
    scenario.resume()
    assert scenario.execution.shown_status == "running"
    assert scenario.working == [("many", 1), ("a2", None), ("b2", None), ("many", 2)]


def test_running_tasks_finish_during_a_pause_and_their_facts_are_folded() -> None:
    scenario = started(FAN)
    run = scenario.take("a")
    run.begin()
    scenario.pause()
    run.finish("done in spite of it")
    assert "a" in scenario.execution.steps
    assert scenario.status == "running"


def test_pausing_and_resuming_are_events_once_each() -> None:
    scenario = started(FAN)
    scenario.pause()
    scenario.wait(5)
    scenario.resume()
    assert len(scenario.facts(ExecutionPaused)) == 1
    assert scenario.facts(ExecutionResumed) == [ExecutionResumed(5_000)]


def test_an_execution_may_end_by_the_resume_alone() -> None:
    scenario = started("- step: start\n  tool: {kind: noop}\n")
    scenario.pause()
    scenario.done("start", "result")
    assert scenario.status == "running"
    scenario.resume()
    assert (scenario.status, scenario.result) == ("completed", "result")


def test_a_failure_acts_on_resume() -> None:
    scenario = started(FAN)
    scenario.pause()
    scenario.failed("a", "connection")
    assert scenario.execution.failing is None
    scenario.resume()
    assert (scenario.status, scenario.error.kind) == ("failed", "connection")


def test_a_patch_while_paused_lets_held_tokens_in_on_resume() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: shut}, {step: other}]}
        - step: shut
          spec: {policy: {admit: {rules: [{when: "{{ ctx.open is defined }}", then: {allow: true}}]}}}
          tool: {kind: noop}
        - step: other
          tool: {kind: noop}
        """
    )
    scenario.pause()
    scenario.patch(open=True)
    assert scenario.held == ["shut"]
    scenario.resume()
    assert scenario.working == [("other", None), ("shut", None)]


def test_a_token_injected_while_paused_is_admitted_on_resume() -> None:
    scenario = started(FAN)
    scenario.pause()
    scenario.inject("b2")
    assert len(scenario.facts(TokenClaimed)) == 4
    scenario.resume()
    assert scenario.working[-1] == ("b2", None)


def test_arrivals_at_joins_while_paused_join_on_resume() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}, {step: c}]}
        - step: a
          tool: {kind: noop}
          next: {arcs: [{step: two}]}
        - step: b
          tool: {kind: noop}
          next: {arcs: [{step: two}]}
        - step: c
          tool: {kind: noop}
          next: {arcs: [{step: two}]}
        - step: two
          spec: {join: 2}
          tool: {kind: noop}
        """
    )
    scenario.done("b")
    scenario.pause()
    scenario.done("c")
    scenario.done("a")
    assert scenario.working == []
    scenario.resume()
    assert scenario.working == [("two", None)]
    assert [arrival["step"] for arrival in scenario.take("two").command.args["arrivals"]] == ["b", "a"]


def test_more_pending_decisions_than_one_fact_allows_are_not_taken_for_a_cycle() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [ARCS]}
        - step: work
          tool: {kind: noop}
          next: {arcs: [{step: then}]}
        - step: then
          tool: {kind: noop}
        """.replace("ARCS", ", ".join(["{step: work}"] * 15)),
        limits(max_decisions_per_fact=40),
    )
    scenario.pause()
    for _ in range(15):
        scenario.done("work")
    scenario.resume()
    assert scenario.working == [("then", None)] * 15


# --- loops ------------------------------------------------------------------------------------------------------------

LOCAL = """
- step: start
  loop: {in: [1, 2, 3, 4], iterator: n, spec: {SPEC, exec: local}}
  tool: [{name: one, kind: noop}, {name: two, kind: TWO}]
"""


def test_a_local_loop_stops_at_its_next_iteration_and_continues_from_there() -> None:
    scenario = started(LOCAL.replace("SPEC", "mode: sequential").replace("TWO", "noop"))
    run = scenario.take("start")
    run.answer()
    scenario.pause()
    run.pause()
    run.finish("first")
    assert (scenario.working, scenario.suspended) == ([], [("start", None)])
    assert scenario.execution.shown_status == "paused"
    scenario.resume()
    again = scenario.take("start")
    assert (again.path, again.command.segment) == ((1,), 1)
    again.finish("later")
    assert scenario.result == ["first", "later", "later", "later"]


def test_iterations_that_can_continue_do_so_on_resume_although_others_wait() -> None:
    scenario = started(LOCAL.replace("SPEC", "mode: parallel, max_in_flight: 2").replace("TWO", "wait, for_s: 600"))
    run = scenario.take("start")
    run.answer(path=(0,))
    run.answer(path=(0,))
    scenario.pause()
    run.pause()
    run.answer(path=(1,))
    run.answer(path=(1,))
    assert scenario.facts(StepSuspended)[-1].paused
    scenario.resume()
    assert scenario.working == [("start", None)]


def test_a_pause_that_ends_before_its_loop_stops_costs_only_a_segment() -> None:
    scenario = started(LOCAL.replace("SPEC", "mode: sequential").replace("TWO", "noop"))
    run = scenario.take("start")
    run.answer()
    scenario.pause()
    scenario.resume()
    run.pause()
    run.finish("first")
    assert scenario.working == [("start", None)]
    scenario.done("start", "later")
    assert scenario.result == ["first", "later", "later", "later"]


# --- time -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("root", "spec"),
    [
        ("executor: {spec: {timeout_s: 60}}\n", "desc: none"),
        ("", "spec: {policy: {lifecycle: {timeout_s: 60}}}"),
        ("", "spec: {policy: {lifecycle: {deadline_s: 60}}}"),
    ],
    ids=["execution", "step", "deadline"],
)
def test_time_paused_counts_towards_no_timeout(root: str, spec: str) -> None:
    scenario = started(f"- step: start\n  {spec}\n  tool: {{kind: noop}}\n", root)
    scenario.take("start").begin()
    scenario.wait(50)
    scenario.pause()
    scenario.wait(1000)
    scenario.resume()
    scenario.wait(9)
    assert scenario.status == "running"
    scenario.wait(1)
    assert "timer.fired" in scenario.names
    assert scenario.execution.failing is not None or scenario.status == "failed"


def test_time_paused_counts_towards_no_admission_timeout() -> None:
    rules = "rules: [{when: '{{ ctx.ok is defined }}', then: {allow: true}}], wait: {timeout_s: 60}"
    scenario = started(f"- step: start\n  spec: {{policy: {{admit: {{{rules}}}}}}}\n  tool: {{kind: noop}}\n")
    scenario.wait(59)
    scenario.pause()
    scenario.wait(60)
    scenario.resume()
    assert scenario.held == ["start"]
    scenario.wait(1)
    assert scenario.error.kind == "admission_timeout"


def test_a_step_that_starts_while_paused_has_its_whole_time_afterwards() -> None:
    scenario = started("- step: start\n  spec: {policy: {lifecycle: {timeout_s: 60}}}\n  tool: {kind: noop}\n")
    scenario.pause()
    scenario.wait(100)
    scenario.take("start").begin()
    scenario.wait(100)
    scenario.resume()
    scenario.wait(59)
    assert scenario.status == "running"
    scenario.wait(1)
    assert scenario.error.kind == "timeout"


@pytest.mark.parametrize("wait", ["for_s: 60", "until: 1060"])
def test_waits_that_fall_due_while_paused_act_on_resume(wait: str) -> None:
    scenario = started(f"- step: start\n  tool: {{kind: wait, {wait}}}\n")
    scenario.done("start")
    scenario.pause()
    scenario.wait(61)
    assert scenario.suspended == [("start", None)]
    scenario.resume()
    scenario.wait(0)
    assert scenario.working == [("start", None)]


def test_time_paused_does_not_count_while_a_signal_is_waited_for() -> None:
    scenario = started("- step: start\n  tool: {kind: wait, signal: go, timeout_s: 60}\n")
    scenario.done("start")
    scenario.wait(59)
    scenario.pause()
    scenario.wait(600)
    scenario.resume()
    scenario.wait(0.5)
    assert scenario.suspended == [("start", None)]
    scenario.signal("go", "in time")
    scenario.done("start")
    assert scenario.result == "in time"


def test_a_signal_wait_that_begins_while_paused_has_its_whole_time_afterwards() -> None:
    scenario = started("- step: start\n  tool: {kind: wait, signal: go, timeout_s: 60}\n")
    scenario.pause()
    scenario.wait(30)
    scenario.done("start")
    scenario.wait(600)
    scenario.resume()
    scenario.wait(59)
    assert scenario.suspended == [("start", None)]
    scenario.wait(1)
    assert scenario.working == [("start", None)]


def test_nor_while_a_worker_has_the_command_of_the_wait() -> None:
    scenario = started(
        """
        - step: start
          loop: {in: [a, b], iterator: name, spec: {mode: parallel, exec: local}}
          tool: {kind: wait, signal: "{{ name }}", timeout_s: 60}
        """
    )
    scenario.done("start")
    scenario.wait(50)
    scenario.signal("a")
    run = scenario.take("start")
    run.begin()
    scenario.pause()
    scenario.wait(600)
    scenario.resume()
    run.finish()
    scenario.wait(9)
    assert scenario.suspended == [("start", None)]
    scenario.wait(1)
    assert scenario.working == [("start", None)]


def test_a_signal_while_paused_is_taken_on_resume() -> None:
    scenario = started("- step: start\n  tool: {kind: wait, signal: go, timeout_s: 60}\n")
    scenario.done("start")
    scenario.pause()
    scenario.signal("go", 1)
    assert scenario.working == []
    scenario.resume()
    scenario.done("start")
    assert scenario.result == 1


def test_a_timer_that_fires_just_after_the_pause_is_not_lost() -> None:
    """The shell found it due before it had folded the pause."""
    scenario = started("- step: start\n  spec: {policy: {lifecycle: {timeout_s: 60}}}\n  tool: {kind: noop}\n")
    scenario.take("start").begin()
    ((timer_id, timer),) = scenario.execution.timers.items()
    scenario.wait(59)
    scenario.pause()
    fired = RecordedFact(TimerFired(timer_id, timer.purpose, timer.subject, timer.path))
    assert not scenario.feed(fired).taken
    scenario.resume()
    scenario.wait(1)
    assert scenario.error.kind == "timeout"


# --- the rest ---------------------------------------------------------------------------------------------------------


def test_a_paused_execution_can_be_cancelled() -> None:
    scenario = started(FAN)
    run = scenario.take("a")
    run.begin()
    scenario.pause()
    scenario.cancel("enough")
    assert scenario.execution.shown_status == "running"
    run.stop()
    assert scenario.status == "cancelled"


def test_overwriting_while_paused_is_reported_at_once_each_time() -> None:
    keys = "{name: t, kind: noop, spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {k: 1}}}}]}}}"
    scenario = started(
        f"""
        - step: start
          next: {{spec: {{mode: inclusive}}, arcs: [{{step: a}}, {{step: b}}, {{step: c}}]}}
        - step: a
          tool: {keys}
        - step: b
          tool: {keys}
        - step: c
          tool: {keys}
        """,
        BEST_EFFORT,
    )
    scenario.pause()
    for step in "abc":
        scenario.done(step)
    assert len(scenario.facts(CtxOverwrote)) == 2
    names = scenario.names
    assert [names[at - 1] for at, name in enumerate(names) if name == "ctx.overwrote"] == ["task.processed"] * 2


def finish(scenario: Scenario) -> Scenario:
    """Runs everything to its end, always the oldest command first."""
    while not scenario.execution.ended:
        if scenario.execution.assignments:
            step, index = scenario.working[0]
            scenario.done(step, index=index)
        else:
            scenario.wait(1)
    return scenario


EVERYTHING = """
- step: start
  tool: {kind: noop}
  next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}, {step: gate}, {step: nap}]}
- step: a
  loop: {in: [1, 2, 3], iterator: n, spec: {mode: parallel, max_in_flight: 2}}
  tool: {name: t, kind: noop, args: {n: "{{ n }}"},
         spec: {policy: {rules: [{else: {then: {do: continue, set_shared: {sum: {op: add, value: "{{ n }}"}}}}}]}}}
  next: {arcs: [{step: j, args: {a: "{{ ctx.sum }}"}}]}
- step: b
  tool: {kind: noop}
  next: {arcs: [{step: j, args: {b: 1}}]}
- step: gate
  spec: {policy: {admit: {rules: [{when: "{{ b is not none }}", then: {allow: true}}]}}}
  next: {arcs: [{step: j}]}
- step: nap
  tool: {kind: wait, for_s: 3}
- step: j
  spec: {join: all}
  tool: {kind: noop, args: {a: "{{ args.a }}", b: "{{ args.b }}", arrivals: "{{ args.arrivals | length }}"}}
"""


@pytest.mark.parametrize("at", range(40))
def test_an_execution_paused_anywhere_comes_to_the_same_end(at: int) -> None:
    """Before every fact of the whole run: pause, let a few more facts come in, resume."""
    plain = finish(started(EVERYTHING))
    scenario = started(EVERYTHING)
    turns = 0
    while not scenario.execution.ended:
        turns += 1
        if turns == at:
            scenario.pause()
        if turns == at + 3 and scenario.execution.paused_at_ms:
            scenario.resume()
        if scenario.execution.assignments:
            step, index = scenario.working[0]
            scenario.done(step, index=index)
        elif scenario.execution.paused_at_ms:
            scenario.resume()
        else:
            scenario.wait(1)
    assert (scenario.result, scenario.ctx) == (plain.result, plain.ctx)
    assert scenario.replayed() == scenario.state


def test_a_failure_of_ctx_while_paused_acts_on_resume() -> None:
    shared = (
        "{name: t, kind: noop, spec: {policy: {rules: [{else: {then: {do: continue, set_shared: {k: {op: count}}}}}]}}}"
    )
    scenario = started(f"- step: start\n  tool: [{shared}, {{name: more, kind: noop}}]\n", ctx={"k": 1})
    run = scenario.take("start")
    run.begin()
    scenario.patch(k="text")
    scenario.pause()
    run.answer()
    assert scenario.execution.failing is None
    scenario.resume()
    assert scenario.execution.failing is not None and scenario.execution.failing.kind == "expression_error"
