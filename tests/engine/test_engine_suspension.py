"""LANGUAGE §8: pipelines that go on later without holding a worker; delays, times, signals (PROTOCOL §3 *Segments*)."""

from __future__ import annotations

import pytest
from engine_scenarios import limits, started
from msgspec.structs import replace

from noetl_stream.engine.evolve.step_runs import classify
from noetl_stream.engine.state import RecordedFact
from noetl_stream.model.events import (
    RetryNowRequested,
    StepDone,
    StepFailed,
    StepResumed,
    StepScheduled,
    StepSuspended,
    TaskProcessed,
    TimerFired,
    TimerSet,
    Wait,
)
from noetl_stream.model.outcome import ErrorInfo
from noetl_testkit.scenario.scenario import AskRefused, Scenario

NAP = """
- step: start
  tool:
  - {name: before, kind: noop}
  - {name: nap, kind: wait, WAIT}
  - {name: after, kind: noop, args: {got: "{{ nap }}", before: "{{ before }}", status: "{{ nap.outcome.status }}"}}
  next: {arcs: [{step: rescue, when: "{{ event.error is not none }}", args: {kind: "{{ event.error.kind }}"}}]}
- step: rescue
  tool: {kind: noop}
"""


def suspended_at(wait: str, root: str = "") -> Scenario:
    """A step that has come to its wait: no worker has it."""
    scenario = started(NAP.replace("WAIT", wait), root)
    scenario.done("start", "before")
    assert (scenario.working, scenario.suspended) == ([], [("start", None)])
    assert scenario.execution.shown_status == "waiting"
    return scenario


# --- for how long -----------------------------------------------------------------------------------------------------


def test_a_wait_for_some_seconds_continues_after_them() -> None:
    scenario = suspended_at("for_s: 60")
    scenario.wait(59.999)
    assert scenario.working == []
    scenario.wait(0.001)
    assert (scenario.working, scenario.suspended) == ([("start", None)], [])
    assert scenario.execution.shown_status == "running"
    scenario.done("start")
    assert scenario.result == {"got": None, "before": "before", "status": "ok"}


def test_a_wait_until_a_time_continues_then() -> None:
    scenario = started(NAP.replace("WAIT", 'until: "{{ workload.at }}"'), "workload: {at: 0}\n", workload={"at": 1100})
    scenario.done("start", "before")
    (timer,) = scenario.execution.timers.values()
    assert timer.due_ms == 1_100_000
    scenario.wait(100)
    assert scenario.working == [("start", None)]


def test_a_time_that_has_passed_is_due_at_once() -> None:
    scenario = suspended_at("until: 12")
    scenario.wait(0)
    assert scenario.working == [("start", None)]


def test_a_time_before_all_clocks_is_one_that_a_store_can_hold() -> None:
    scenario = suspended_at("until: '1960-01-01T00:00:00Z'")
    assert [timer.due_ms for timer in scenario.facts(TimerSet)] == [0]
    scenario.wait(0)
    assert scenario.working == [("start", None)]


def test_the_time_runs_from_the_suspension_by_the_fold() -> None:
    scenario = started(NAP.replace("WAIT", "for_s: 10"))
    scenario.wait(100)
    scenario.done("start")
    (timer,) = scenario.facts(TimerSet)
    assert (timer.purpose, timer.due_ms) == ("wait", 1_000_000 + 110_000)


# --- for a signal -----------------------------------------------------------------------------------------------------


def test_a_signal_is_the_result_of_the_task_that_waited_for_it() -> None:
    scenario = suspended_at("signal: go, timeout_s: 60")
    scenario.signal("other", 1)
    assert scenario.working == []
    scenario.signal("go", {"by": "me"})
    assert (scenario.working, scenario.execution.timers) == ([("start", None)], {})
    scenario.done("start")
    assert scenario.result["got"] == {"by": "me"}


def test_an_early_signal_is_queued_and_taken_at_once() -> None:
    scenario = started(NAP.replace("WAIT", "signal: go, timeout_s: 60"))
    scenario.signal("go", "early")
    scenario.done("start")
    assert scenario.working == [("start", None)]
    assert scenario.execution.signals == {}
    scenario.done("start")
    assert scenario.result["got"] == "early"


def test_signals_queue_by_name_first_in_first_out_and_one_wait_takes_one() -> None:
    scenario = started(
        """
        - step: start
          tool:
          - {name: one, kind: wait, signal: go, timeout_s: 60}
          - {name: two, kind: wait, signal: stop, timeout_s: 60}
          - {name: three, kind: wait, signal: go, timeout_s: 60}
          - {name: all, kind: noop, args: {all: ["{{ one }}", "{{ two }}", "{{ three }}"]}}
        """
    )
    scenario.signal("go", 1)
    scenario.signal("go", 3)
    scenario.signal("stop", 2)
    for _ in range(4):
        scenario.done("start")
    assert scenario.result == {"all": [1, 2, 3]}


def test_the_oldest_of_several_waits_takes_the_signal() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: many}, {step: late}]}
        - step: many
          loop: {in: [1, 2], iterator: n, spec: {mode: parallel, exec: local}}
          tool: {kind: wait, signal: "{{ 'go' if n == 1 else 'first' }}", timeout_s: 600}
        - step: late
          tool: {kind: wait, signal: go, timeout_s: 600}
        """
    )
    scenario.done("many")
    scenario.wait(1)
    scenario.done("late")
    scenario.signal("first")
    scenario.done("many")  # goes on and waits again, later than the other, for what it has waited for longer
    scenario.signal("go", "oldest")
    assert scenario.working == [("many", None)]
    scenario.done("many")
    scenario.signal("go", "younger")
    scenario.done("late")
    assert scenario.status == "completed"
    results = [fact.outcome.result.value for fact in scenario.facts(TaskProcessed)]
    assert list(map(bytes, results)) == [b"null", b'"oldest"', b'"younger"']


def test_a_signal_that_does_not_come_is_a_timeout_of_its_task() -> None:
    scenario = suspended_at("signal: go, timeout_s: 60")
    scenario.wait(60)
    scenario.done("start")
    assert scenario.take("rescue").command.args == {"kind": "timeout"}
    (processed,) = [fact for fact in scenario.facts(TaskProcessed) if fact.task == "nap"]
    assert processed.error is not None and "signal go longer than its timeout of 60 s" in processed.error.message


def test_a_policy_can_handle_a_signal_that_does_not_come() -> None:
    wait = (
        "signal: go, timeout_s: 60, spec: {policy: {rules: "
        "[{when: \"{{ outcome.error.kind == 'timeout' }}\", then: {do: retry, attempts: 2, delay: 0}}, "
        "{when: \"{{ outcome.status == 'ok' }}\", then: {do: continue}}], on_unmatched: fail}}"
    )
    scenario = suspended_at(wait)
    scenario.wait(60)
    scenario.done("start")
    assert scenario.suspended == [("start", None)]
    scenario.signal("go", "second try")
    scenario.done("start")
    assert scenario.result["got"] == "second try"


def test_more_signals_than_the_limit_are_refused_with_its_name() -> None:
    scenario = started("- step: start\n  tool: {kind: noop}\n", limits(max_queued_signals=2))
    scenario.signal("go")
    scenario.signal("other")
    for name in ("go", "other", "a new one"):
        with pytest.raises(AskRefused, match=r"2 signals are already queued \(limits\.max_queued_signals\)"):
            scenario.signal(name)


# --- long delays ------------------------------------------------------------------------------------------------------

RETRY = """
- step: start
  tool:
    name: work
    kind: noop
    spec: {policy: {rules: [{when: "{{ outcome.status == 'error' }}",
                             then: {do: retry, attempts: 3, backoff: fixed, delay: DELAY}}]}}
"""


NAPS_AND_TRIES = """
- step: start
  next: {spec: {mode: inclusive}, arcs: [{step: tries}, {step: nap}]}
- step: tries
  loop: {in: [1, 2], iterator: n, spec: {mode: parallel}}
  tool:
    name: work
    kind: noop
    spec: {policy: {rules: [{when: "{{ outcome.status == 'error' }}", then: {do: retry, attempts: 3, delay: 600}}]}}
- {step: nap, tool: {kind: wait, for_s: 600}}
"""


def test_a_long_retry_delay_frees_the_worker() -> None:
    scenario = started(RETRY.replace("DELAY", "60"))
    scenario.failed("start")
    assert (scenario.working, scenario.suspended) == ([], [("start", None)])
    scenario.wait(59)
    assert scenario.working == []
    scenario.wait(8)  # the jitter is up to a tenth
    scenario.failed("start")
    scenario.wait(67)
    run = scenario.take("start")
    run.answer("third time lucky")
    assert scenario.result == "third time lucky"
    assert [fact.attempt for fact in scenario.facts(TaskProcessed)] == [1, 2, 3]


def test_a_short_one_is_the_workers_to_wait_for() -> None:
    scenario = started(RETRY.replace("DELAY", "4"))
    scenario.failed("start")
    assert (scenario.status, scenario.error.kind) == ("failed", "retries_exhausted")
    assert scenario.facts(StepSuspended) == []


def test_an_execution_may_lower_what_a_worker_waits_for_itself() -> None:
    scenario = started(RETRY.replace("DELAY", "4"), limits(inline_delay_s=1))
    scenario.failed("start")
    assert scenario.suspended == [("start", None)]


def test_a_retry_may_be_asked_for_now_and_counts_no_attempt_more() -> None:
    scenario = started(RETRY.replace("DELAY", "600"))
    for attempt in (1, 2):
        scenario.failed("start")
        assert scenario.suspended == [("start", None)], attempt
        scenario.ask(RetryNowRequested)
        assert (scenario.working, scenario.suspended) == ([("start", None)], [])
        assert not scenario.execution.timers
    scenario.done("start", "third time lucky")
    assert scenario.result == "third time lucky"
    assert [fact.attempt for fact in scenario.facts(TaskProcessed)] == [1, 2, 3]
    assert scenario.replayed() == scenario.state and scenario.decided_again() == scenario.journal


def test_asked_for_in_a_pause_a_retry_begins_when_that_ends() -> None:
    scenario = started(RETRY.replace("DELAY", "600"))
    scenario.failed("start")
    scenario.pause()
    scenario.ask(RetryNowRequested)
    assert scenario.working == []
    scenario.resume()
    assert scenario.working == [("start", None)]


def test_waits_for_a_time_continue_when_retries_are_requested() -> None:
    scenario = started(NAPS_AND_TRIES)
    for index in (0, 1):
        scenario.failed("tries", index=index)
    scenario.done("nap")
    scenario.ask(RetryNowRequested)
    assert sorted(scenario.working) == [("tries", 0), ("tries", 1)] and scenario.suspended == [("nap", None)]
    before = scenario.execution.position
    scenario.ask(RetryNowRequested)
    assert scenario.execution.position == before, "nothing waits for another attempt"


# --- going on ---------------------------------------------------------------------------------------------------------

KEEPING = """
- step: start
  tool:
  - name: first
    kind: noop
    spec: {policy: {rules: [{else: {then: {do: continue, set_iter: {i: 1}, set_vars: {v: 2}, set_ctx: {c: 3}}}}]}}
  - {name: nap, kind: wait, for_s: 60}
  - name: last
    kind: noop
    args: {iter: "{{ iter.i }}", vars: "{{ vars.v }}", ctx: "{{ ctx.c }}", first: "{{ first }}", prev: "{{ _prev }}",
           secret: "{{ ctx.changed is defined }}"}
  next: {arcs: [{step: end, args: {vars: "{{ vars }}"}}]}
- step: end
  tool: {kind: noop}
"""


def test_iter_vars_ctx_and_results_are_restored_on_another_worker() -> None:
    scenario = started(KEEPING)
    scenario.done("start", "result")
    scenario.patch(changed=True)  # after its token was claimed: it does not see that
    scenario.wait(60)
    run = scenario.take("start")
    assert run.command.segment == 1 and run.task == "nap"
    run.answer()
    assert run.inputs["args"] == {"iter": 1, "vars": 2, "ctx": 3, "first": "result", "prev": None, "secret": False}
    run.finish()
    assert scenario.take("end").command.args == {"vars": {"v": 2}}
    assert scenario.names.count("task.started") == 3


def test_a_segment_is_a_command_of_its_own_and_older_reports_are_unknown() -> None:
    scenario = suspended_at("for_s: 1")
    (first,) = scenario.facts(StepScheduled)
    scenario.wait(1)
    (resumed,) = scenario.facts(StepResumed)
    assert resumed.suspended == first.command_id != resumed.command_id
    old = scenario.inputs[1]
    assert old.run is not None and old.run.command_id == first.command_id
    for late in (replace(old, number=9), RecordedFact(StepDone(first.step_run_id), old.run, 5)):
        assert classify(scenario.state, late) == "unknown"
        assert not scenario.feed(late).taken


def test_a_resumed_command_that_is_taken_over_has_its_answer_still() -> None:
    scenario = suspended_at("signal: go, timeout_s: 60")
    scenario.signal("go", "payload")
    lost = scenario.take("start")
    assert lost.command.resume is not None and list(lost.command.resume.answers) == [""]
    lost.begin()
    again = scenario.take("start")
    scenario.claim(again)
    again.finish()
    assert scenario.result["got"] == "payload"


def test_an_answer_that_was_taken_is_not_given_to_a_later_wait_of_the_same_pipeline() -> None:
    scenario = started(
        """
        - step: start
          tool:
          - {name: one, kind: wait, signal: go, timeout_s: 60}
          - {name: two, kind: wait, signal: go, timeout_s: 60}
        """
    )
    scenario.done("start")
    scenario.signal("go", 1)
    scenario.done("start")
    assert (scenario.working, scenario.suspended) == ([], [("start", None)])
    scenario.signal("go", 2)
    scenario.done("start")
    assert scenario.result == 2


def test_a_crash_after_the_answer_was_processed_does_not_ask_for_it_again() -> None:
    scenario = suspended_at("signal: go, timeout_s: 60")
    scenario.signal("go", "payload")
    lost = scenario.take("start")
    lost.answer()
    again = scenario.take("start")
    scenario.claim(again)
    assert again.task == "after"
    again.finish()
    assert scenario.result["got"] == "payload"


def test_a_resumed_command_can_be_issued_again_like_any() -> None:
    scenario = suspended_at("for_s: 1")
    scenario.wait(1)
    scenario.issue_again(scenario.owed("start"))
    run = scenario.take("start")
    assert (run.command.issue, run.command.segment) == (2, 1)
    scenario.claim(run)
    run.finish()
    assert scenario.status == "completed"


def test_the_state_that_waits_is_the_one_the_journal_gives() -> None:
    scenario = suspended_at("signal: go, timeout_s: 60")
    assert scenario.replayed() == scenario.state
    scenario.signal("go", [1])
    assert scenario.replayed() == scenario.state


# --- loops ------------------------------------------------------------------------------------------------------------

LOCAL = """
- step: start
  loop: {in: [3, 1, 2], iterator: n, spec: {mode: parallel, exec: local}}
  tool:
  - {name: nap, kind: wait, for_s: "{{ n * 100 }}"}
  - {name: after, kind: noop, args: {n: "{{ n }}"}}
"""


def test_iterations_of_a_parallel_local_loop_wait_at_the_same_time_and_continue_one_by_one() -> None:
    scenario = started(LOCAL)
    scenario.done("start")
    assert len(scenario.execution.timers) == 3
    for n in (1, 2, 3):
        scenario.wait(99)
        assert scenario.working == []
        scenario.wait(1)
        assert scenario.working == [("start", None)]
        run = scenario.take("start")
        assert run.ready == [([0, 3, 1, 2].index(n) - 1,)]
        run.finish()
    assert scenario.result == [{"n": 3}, {"n": 1}, {"n": 2}]
    assert len(scenario.facts(StepSuspended)) == 3


def test_an_iteration_that_waits_holds_its_place_in_the_window() -> None:
    scenario = started(LOCAL.replace("exec: local", "exec: local, max_in_flight: 2"))
    scenario.done("start")
    assert [wait.path for wait in scenario.facts(StepSuspended)[-1].waits] == [(0,), (1,)]
    scenario.wait(100)
    scenario.done("start")
    assert [wait.path for wait in scenario.facts(StepSuspended)[-1].waits] == [(0,), (2,)]
    since = [wait.since_ms for wait in scenario.facts(StepSuspended)[-1].waits]
    assert since == [1_000_000, 0], "the first waits since the beginning"
    scenario.wait(200)
    scenario.done("start")
    assert scenario.status == "completed", "both had ended by then: they have continued together"


def test_each_iteration_of_a_distributed_loop_waits_by_itself() -> None:
    scenario = started(LOCAL.replace(", exec: local", ""))
    for index in range(3):
        scenario.done("start", index=index)
    assert scenario.suspended == [("start", 0), ("start", 1), ("start", 2)]
    scenario.wait(100)
    assert scenario.working == [("start", 1)]
    scenario.done("start", index=1)
    scenario.wait(200)
    scenario.done("start", index=2)
    scenario.done("start", index=0)
    assert scenario.result == [{"n": 3}, {"n": 1}, {"n": 2}]


def test_a_sequential_loop_waits_in_each_iteration_and_keeps_its_vars() -> None:
    scenario = started(
        """
        - step: start
          loop: {in: [1, 2], iterator: n}
          tool:
          - name: nap
            kind: wait
            for_s: 10
            spec: {policy: {rules: [{else: {then: {do: continue,
                set_vars: {sum: "{{ (vars.sum | default(0)) + n }}"}}}}]}}
          - {name: after, kind: noop, args: {sum: "{{ vars.sum }}"}}
        """
    )
    for _ in range(2):
        scenario.done("start")
        scenario.wait(10)
    scenario.done("start")
    assert scenario.result == [{"sum": 1}, {"sum": 3}]


def test_a_failed_iteration_cancels_those_that_wait() -> None:
    scenario = started(LOCAL.replace(", exec: local", ""))
    scenario.done("start", index=0)
    scenario.done("start", index=2)
    scenario.failed("start", index=1)
    assert (scenario.status, scenario.execution.timers) == ("failed", {})
    assert scenario.names.count("step.cancelled") == 2


def test_a_signal_that_comes_while_the_command_of_its_wait_is_with_a_worker_is_taken_when_it_suspends_again() -> None:
    scenario = started(
        """
        - step: start
          loop: {in: [1, 2], iterator: n, spec: {mode: parallel, exec: local}}
          tool: {kind: wait, signal: "{{ 'a' if n == 1 else 'b' }}", timeout_s: 60}
        """
    )
    scenario.done("start")
    scenario.signal("b", "B")
    run = scenario.take("start")
    run.begin()
    scenario.signal("a", "A")
    assert scenario.execution.signals == {"a": ("A",)}
    run.finish()
    assert scenario.working == [("start", None)]
    scenario.done("start")
    assert scenario.result == ["A", "B"]


# --- while it waits ---------------------------------------------------------------------------------------------------


def test_a_timer_that_fires_for_nothing_changes_nothing() -> None:
    scenario = suspended_at("for_s: 60")
    ((timer_id, timer),) = scenario.execution.timers.items()
    scenario.wait(60)
    late = RecordedFact(TimerFired(timer_id, timer.purpose, timer.subject, timer.path))
    assert not scenario.feed(late).taken


def test_cancelling_ends_what_waits_at_once() -> None:
    scenario = suspended_at("for_s: 60")
    scenario.cancel("enough")
    assert (scenario.status, scenario.execution.timers, scenario.execution.suspensions) == ("cancelled", {}, {})
    assert scenario.names.count("step.cancelled") == 1


def test_a_failure_elsewhere_ends_what_waits_at_once() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: nap}, {step: work}]}
        - step: nap
          tool: {kind: wait, for_s: 60}
        - step: work
          tool: {kind: noop}
        """
    )
    scenario.done("nap")
    scenario.failed("work")
    assert (scenario.status, scenario.execution.timers) == ("failed", {})


def test_a_command_that_suspends_after_its_cancellation_is_not_waited_for() -> None:
    scenario = started(NAP.replace("WAIT", "for_s: 60"))
    run = scenario.take("start")
    run.begin()
    scenario.cancel()
    assert scenario.status == "running"
    run.suspend(Wait(task="nap", for_s=60))
    assert scenario.status == "cancelled"


def test_a_wait_does_not_survive_its_step_run() -> None:
    scenario = started(LOCAL.replace("parallel, exec: local", "parallel, exec: distributed, max_in_flight: 3"))
    scenario.done("start", index=0)
    scenario.take("start", index=1).answer(error=ErrorInfo("exception", "no wait today"))
    assert scenario.suspended == [] and scenario.execution.timers == {}


def test_a_step_that_the_server_itself_fails_leaves_nothing_waiting() -> None:
    """A command that became too large for the queue, say."""
    scenario = started(LOCAL.replace(", exec: local", ""))
    scenario.done("start", index=0)
    step_run_id = scenario.owed("start", 1).step_run_id
    scenario.feed(RecordedFact(StepFailed(step_run_id, ErrorInfo("limit_exceeded", "too large"))))
    assert (scenario.status, scenario.error.kind) == ("failed", "limit_exceeded")
    assert scenario.names.count("step.cancelled") == 0


def test_an_iteration_that_suspends_after_its_cancellation_is_skipped() -> None:
    scenario = started(LOCAL.replace(", exec: local", ""))
    run = scenario.take("start", index=0)
    run.begin()
    scenario.failed("start", index=1)
    assert scenario.working == [("start", 0)]
    run.finish()
    assert (scenario.suspended, scenario.status) == ([], "failed")
