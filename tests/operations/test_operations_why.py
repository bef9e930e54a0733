"""Why an execution is where it is: every state in which it can wait has its sentence."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from why_scenarios import HEAD, SERVED, WORKER, history_of, reasons, waiting_on, why

from noetl_stream.engine.state import RecordedFact
from noetl_stream.errors import NotFound, StoreMissing
from noetl_stream.model.envelope import iso
from noetl_stream.model.events import (
    CancelRequested,
    ExecutionQuarantined,
    PauseRequested,
    TaskHeartbeat,
    TaskProcessed,
    TaskStarted,
    ToleratedFailures,
)
from noetl_stream.model.outcome import ErrorInfo, Outcome
from noetl_stream.operations import why as client_why
from noetl_stream.operations.executions.reading.documents import tolerated_text
from noetl_stream.operations.waiting_on import awaited
from noetl_stream.operations.why.answer import awaited_workers, explain
from noetl_stream.operations.why.journal import JournalHistory
from noetl_stream.operations.why.reason import Environment
from noetl_stream.ports.operations.cluster import PoolDocument, RunningCommandDocument, WorkerDocument
from noetl_stream.ports.operations.waits import (
    AwaitedChildDocument,
    AwaitedJoinDocument,
    AwaitedPoolDocument,
    GuardDocument,
    TimerDocument,
    WaitingOnDocument,
)
from noetl_stream.ports.streams.command_queue import UNREADABLE_MENDED
from noetl_testkit.scenario.scenario import Scenario, parked, rerun

STEP = HEAD + "workflow: [{step: work, tool: {name: act, kind: noop}}]\n"

GATE = (
    HEAD
    + """
workflow:
  - step: work
    tool: {kind: noop}
    next: {arcs: [{step: deploy}]}
  - step: deploy
    spec:
      policy:
        admit:
          rules: [{when: "{{ ctx.approved | default(false) and workload.stage == 'prod' }}", then: {allow: true}}]
          wait: {timeout_s: 60}
    tool: {kind: noop}
workload: {stage: prod}
"""
)

BRANCHES = (
    HEAD
    + """
workflow:
  - step: start
    next: {spec: {mode: inclusive}, arcs: [{step: left}, {step: right}]}
  - {step: left, tool: {kind: noop}, next: {arcs: [{step: both}]}}
  - {step: right, tool: {kind: noop}, next: {arcs: [{step: both}]}}
  - {step: both, spec: {join: all}, tool: {kind: noop}}
"""
)


def waits_for(task: str) -> Scenario:
    """A step whose only task is this, done: it waits."""
    scenario = Scenario(HEAD + f"workflow: [{{step: rest, tool: {{name: nap, {task}}}}}]\n")
    scenario.start()
    scenario.done("rest")
    return scenario


def test_a_command_without_a_worker_names_the_pool() -> None:
    scenario = Scenario(STEP)
    scenario.start()
    found = why(scenario, workers=[])
    assert found.status == "running"
    assert (
        found.summary == "Step `work`: 1 command in the queue of pool `default`, but no worker of that pool is running."
    )
    assert found.reasons[0].moves == "start a worker: `noetl-stream worker --pool default`"
    assert found.reasons[0].since == found.since


def test_a_command_of_a_placed_step_names_the_pool_that_was_chosen() -> None:
    scenario = Scenario(replace(Scenario(STEP).plan, pools={"work": "gpu"}))
    scenario.start()
    assert scenario.command(scenario.owed("work")).pool == "gpu"
    assert "in the queue of pool `gpu`" in why(scenario, workers=[]).summary


def test_workers_of_another_pool_do_not_count() -> None:
    scenario = Scenario(STEP)
    scenario.start()
    assert "no_worker" in reasons(scenario, workers=[replace(WORKER, pool="other")])


def test_a_command_in_a_full_pool_waits_for_a_slot() -> None:
    scenario = Scenario(STEP)
    scenario.start()
    found = reasons(scenario, workers=[replace(WORKER, busy=4)])["slot"]
    assert "1 worker with 4 slots, all busy" in found.sentence
    waits = waiting_on(scenario, "slot", workers=[replace(WORKER, busy=4)])
    assert waits.pool == AwaitedPoolDocument("default", workers=1, slots=4, busy=4, queued=None, priority=5)
    assert waits.commands == list(scenario.execution.assignments)


@pytest.mark.parametrize("others", [[], [WORKER]], ids=["none is fit", "another is fit"])
def test_a_command_in_a_pool_whose_workers_cannot_begin_tasks_says_why(others: list[WorkerDocument]) -> None:
    scenario = Scenario(STEP)
    scenario.start()
    found = reasons(scenario, workers=[replace(WORKER, name="unfit", unfit="no space left"), *others])
    assert ("worker_unfit" in found, "queued" in found) == (not others, bool(others))
    if not others:
        assert found["worker_unfit"].sentence == (
            "Step `work`: 1 command in the queue of pool `default`, but its worker cannot begin tasks: no space left."
        )


def test_a_command_that_was_given_back_says_by_whom_and_why_until_another_worker_has_it() -> None:
    scenario = Scenario(STEP)
    scenario.start()
    run = scenario.take("work")
    run.begin()
    run.give_back("worker-7: no space left")
    found = reasons(scenario)["worker_unfit"]
    assert found.sentence == (
        "Step `work` could not begin at worker worker-7: no space left; "
        "its command waits for a worker of pool `default`."
    )
    scenario.claim(scenario.take("work"))
    assert "worker_unfit" not in reasons(scenario)


def test_a_command_whose_queue_nats_cannot_read_is_explained_with_the_remedy() -> None:
    scenario = Scenario(STEP)
    scenario.start()
    why_not = "consumer pool-default: decoding error"
    pool = PoolDocument("default", workers=1, slots=4, busy=0, queued=0, running=0, again=0, unreadable=why_not)
    found = reasons(scenario, pools={"default": pool})
    assert found.keys() == {"queue_unreadable"}
    assert found["queue_unreadable"].sentence.endswith(f"but NATS gives out none of them: {why_not}.")
    assert found["queue_unreadable"].moves == UNREADABLE_MENDED


def test_a_reissued_command_is_explained() -> None:
    scenario = Scenario(STEP)
    scenario.start()
    scenario.issue_again(scenario.owed("work"))
    assert "issued 2 times" in reasons(scenario)["queued"].sentence


def test_a_command_that_was_resumed_is_owed_since_then() -> None:
    scenario = waits_for("kind: wait, signal: go, timeout_s: 60")
    scenario.wait(5)
    scenario.signal("go")
    assert reasons(scenario)["queued"].since == iso(scenario.now_ms)


def test_a_running_task_names_its_worker_and_attempt() -> None:
    scenario = Scenario(STEP)
    scenario.start()
    run = scenario.take("work")
    run.begin()
    run.report(TaskStarted("act"))
    found = reasons(scenario)["running"]
    assert "task `act`, attempt 1" in found.sentence and found.task == "act"


def test_a_running_task_shows_its_last_heartbeat() -> None:
    scenario = Scenario(STEP)
    scenario.start()
    run = scenario.take("work")
    run.begin()
    writing = TaskHeartbeat("act", 1, key="…/parts")  # says nothing of how far the task is
    for fact in (TaskStarted("act"), *(TaskHeartbeat("act", 1, {"row": row}) for row in (3, 70)), writing):
        run.report(fact)
    scenario.wait(5)
    found = reasons(scenario)["running"]
    assert found.sentence.endswith(' Its last heartbeat came 5 s ago: {"row": 70}.')
    assert found.details["heartbeat"] == {"row": 70}
    run.report(TaskStarted("act", 2))
    assert "heartbeat" not in reasons(scenario)["running"].sentence


@pytest.mark.parametrize(
    ("executor", "step", "task", "seconds"),
    [
        ("", "", "spec: {timeout: 30}", 30),
        ("", "spec: {policy: {lifecycle: {timeout_s: 40}}}", "", 40),
        ("executor: {spec: {timeout_s: 50}}", "", "", 50),
        ("executor: {spec: {timeout_s: 50}}", "spec: {policy: {lifecycle: {timeout_s: 40}}}", "", 40),
        ("", "", "", None),
    ],
)
def test_a_running_task_ends_at_the_first_timeout_or_says_that_nothing_bounds_it(
    executor: str, step: str, task: str, seconds: int | None
) -> None:
    tool = f"tool: {{name: act, kind: noop, {task}}}"
    scenario = Scenario(f"{HEAD}{executor}\nworkflow:\n  - step: work\n    {step}\n    {tool}\n")
    scenario.start()
    began_ms = scenario.now_ms
    run = scenario.take("work")
    run.begin()
    run.report(TaskStarted("act"))
    found = reasons(scenario)["running"]
    if seconds is None:
        assert (found.until, found.moves) == (None, "the task ends; it has no timeout")
    else:
        assert found.until is not None and found.moves == "the task ends, or its timeout"
        until_ms = datetime.fromisoformat(found.until).timestamp() * 1000
        assert abs(until_ms - began_ms - seconds * 1000) < 5_000


def test_a_command_in_a_queue_ends_with_the_execution_at_the_latest() -> None:
    scenario = Scenario(
        f"{HEAD}executor: {{spec: {{timeout_s: 50}}}}\nworkflow: [{{step: work, tool: {{kind: noop}}}}]\n"
    )
    scenario.start()
    found = reasons(scenario)["queued"].until
    [wait] = awaited(scenario.execution, scenario.plan)
    assert found is not None and wait.until == found


def test_workers_that_run_a_command_are_asked_again_since_a_busy_one_answers_late() -> None:
    scenario = Scenario(STEP)
    scenario.start()
    scenario.take("work").begin()
    answers = iter([[], [], [WORKER]])

    class Late:
        async def workers(self) -> list[WorkerDocument]:
            return next(answers)

    late: Any = Late()
    found = asyncio.run(awaited_workers(late, history_of(scenario).workers))
    assert list(found) == [WORKER] and list(answers) == []


def test_a_worker_that_died_is_named_with_what_happens_next() -> None:
    scenario = Scenario(STEP)
    scenario.start()
    scenario.take("work").begin()
    found = reasons(scenario, workers=[])["worker_gone"]
    assert "no longer answers" in found.sentence and "another worker" in found.moves


def test_a_task_that_waits_for_a_process_of_its_worker_says_for_which() -> None:
    scenario = Scenario(STEP)
    scenario.start()
    scenario.take("work").begin()
    [command_id] = scenario.execution.assignments
    text = "a free Python child: 4 of 4 busy, NOETL_PYTHON_CHILDREN sets how many"
    held = RunningCommandDocument(scenario.execution_id, command_id, "work", 1, task_waits_for=text)
    found = reasons(scenario, workers=[replace(WORKER, running=[held])])["worker_full"]
    assert found.sentence == f"Step `work` waits at worker {WORKER.name} for {text}."
    assert found.moves == "another task of that worker ends, or what it waits for is ready; it has no timeout"


def test_a_worker_that_keeps_a_finished_result_says_what_it_waits_for() -> None:
    scenario = Scenario(STEP)
    scenario.start()
    run = scenario.take("work")
    run.begin()
    waits_for = "its result cannot be stored"
    held = RunningCommandDocument(scenario.execution_id, run.command.command_id, "work", 1, waits_for)
    found = reasons(scenario, workers=[replace(WORKER, running=[held])])["unreported"]
    assert found.sentence == (
        f"Step `work` has ended at worker {WORKER.name}, which keeps the result: its result cannot be stored."
    )


def test_a_missing_stream_is_the_only_reason() -> None:
    scenario = Scenario(STEP)
    scenario.start()
    missing = StoreMissing("stream COMMANDS does not exist", hint="run `noetl-stream stream ensure`")
    (found,) = why(scenario, missing=missing).reasons
    assert (found.kind, found.moves) == ("store_missing", "run `noetl-stream stream ensure`")
    assert found.sentence.startswith("Stream COMMANDS does not exist, so nothing moves")


def test_a_command_delivered_again_says_how_often_and_when_it_ends() -> None:
    scenario = Scenario(STEP)
    scenario.start()
    for _ in range(3):
        run = scenario.take("work")
    run.claim()
    run.begin()
    found = reasons(scenario)["running"]
    assert found.details["delivered"] == 3
    assert "delivered 3 times; the step fails after 5 deliveries" in found.sentence


def test_a_held_token_shows_its_guard_and_what_it_reads() -> None:
    scenario = Scenario(GATE)
    scenario.start()
    scenario.done("work")
    found = reasons(scenario)["admission"]
    assert found.step == "deploy" and found.until is not None
    assert "`{{ ctx.approved | default(false) and workload.stage == 'prod' }}` does not admit it" in found.sentence
    assert found.sentence.endswith('(workload.stage is "prod", ctx.approved is missing).')
    assert "execution patch execution-1 --set approved=true" in found.moves
    assert "the step fails" in found.moves


def test_a_guard_sees_what_a_patch_has_changed() -> None:
    scenario = Scenario(GATE)
    scenario.start(workload={"stage": "test"})
    scenario.done("work")
    scenario.patch(approved=True)
    waits = waiting_on(scenario, "admission")
    (guard,) = waits.guards
    assert guard.values == {"ctx.approved": True, "workload.stage": "test"} and guard.holds is False
    assert (waits.ctx, waits.timer and waits.timer.on_timeout) == (["approved"], "fail")


RESTS = (
    HEAD
    + """
workflow:
  - step: ask
    next:
      spec: {wait: {timeout_s: 60, on_timeout: discard}}
      arcs:
        - {step: pay, when: "{{ ctx.approved == true and workload.limit > 3 }}"}
        - {step: pay, when: "{{ event.name == 'next.timed_out' and ctx.note is defined }}"}
  - {step: pay, tool: {kind: noop}}
workload: {limit: 5}
"""
)


def test_a_resting_branch_shows_the_guards_of_its_arcs_and_what_they_read() -> None:
    scenario = Scenario(RESTS)
    scenario.start()
    found = reasons(scenario)["next"]
    assert found.step == "ask" and found.since is not None
    assert "rests at `next` of step `ask`" in found.sentence and "to `pay`" in found.sentence
    assert "(workload.limit is 5, ctx.approved is missing, event.name" in found.sentence
    assert "execution patch execution-1 --set approved=true" in found.moves and "or the branch ends" in found.moves
    waits = waiting_on(scenario, "next")
    assert waits.guards[0] == GuardDocument(
        "{{ ctx.approved == true and workload.limit > 3 }}", None, {"workload.limit": 5}, ["ctx.approved"], "pay"
    )
    assert (waits.ctx, waits.steps) == (["approved", "note"], [])
    assert waits.timer == TimerDocument("next", found.until or "", "discard")


def test_a_branch_that_rested_too_long_shows_the_arcs_that_did_not_fire() -> None:
    scenario = Scenario(RESTS.replace(", on_timeout: discard", ""))
    scenario.start()
    scenario.wait(60)
    found = why(scenario)
    assert "The execution failed in step `ask`: routing_timeout" in found.summary
    first, second = [one for one in found.reasons if one.kind == "arc"]
    assert "ctx.approved is missing" in first.sentence
    assert 'event.name is "next.timed_out"' in second.sentence


@pytest.mark.parametrize(
    ("when", "why_not"),
    [
        ("", "it has no guard, and a failure is handled only by an arc whose guard reads event.name, event.status or"),
        (', when: "{{ workload.a }}"', "its guard does not read event.name, event.status or event.error, so it does"),
    ],
)
def test_an_arc_that_does_not_handle_a_failure_says_what_it_would_read(when: str, why_not: str) -> None:
    arcs = f"next: {{arcs: [{{step: other{when}}}]}}"
    steps = f"[{{step: work, tool: {{kind: noop}}, {arcs}}}, {{step: other, tool: {{kind: noop}}}}]"
    scenario = Scenario(f"{HEAD}workload: {{a: 1}}\nworkflow: {steps}\n")
    scenario.start()
    scenario.failed("work")
    (arc,) = [one for one in why(scenario).reasons if one.kind == "arc"]
    assert why_not in arc.sentence


def test_a_long_value_is_not_shown() -> None:
    scenario = Scenario(GATE)
    scenario.start(workload={"stage": "x" * 5000})
    scenario.done("work")
    (guard,) = waiting_on(scenario, "admission").guards
    assert guard.values == {"workload.stage": "(5002 bytes)"}


def test_a_token_that_may_not_wait_is_held_while_others_live() -> None:
    scenario = Scenario(
        HEAD
        + """
workflow:
  - {step: start, next: {spec: {mode: inclusive}, arcs: [{step: closed}, {step: open}]}}
  - step: closed
    spec: {policy: {admit: {rules: [{when: "{{ steps.open.ready | default(false) }}", then: {allow: true}}]}}}
    tool: {kind: noop}
  - {step: open, tool: {kind: noop}}
"""
    )
    scenario.start()
    found = reasons(scenario)["held"]
    assert "it is discarded when nothing else is active" in found.moves and found.until is None
    scenario.done("open")
    ended = why(scenario)
    assert ended.status == "completed"
    assert [reason.sentence for reason in ended.reasons][1:] == [
        "A token for step `closed` was discarded: nothing left can change its admission."
    ]


def test_a_join_names_who_has_come_and_who_has_not() -> None:
    scenario = Scenario(BRANCHES)
    scenario.start()
    scenario.done("left")
    found = reasons(scenario)["join"]
    assert found.sentence == (
        "Step `both` waits for its branches (`join: all`): 1 token arrived, from `left`; missing: running step `right`."
    )
    assert waiting_on(scenario, "join").join == AwaitedJoinDocument("all", ["left"], ["running step `right`"])


def test_a_timer_says_when_it_is_due() -> None:
    found = reasons(waits_for("kind: wait, for_s: 60"))["timer"]
    assert found.until in found.sentence and found.task == "nap"


def test_a_long_retry_says_when_it_tries_again() -> None:
    policy = "{rules: [{when: \"{{ outcome.status == 'error' }}\", then: {do: retry, attempts: 3, delay: 7200}}]}"
    scenario = Scenario(
        HEAD + f"workflow: [{{step: rest, tool: {{name: nap, kind: noop, spec: {{policy: {policy}}}}}}}]\n"
    )
    scenario.start()
    scenario.failed("rest")
    found = reasons(scenario)["retry"]
    assert found.until in found.sentence and "for attempt 2 of 3 (" in found.sentence
    assert found.sentence.endswith(" min after the last); the last error: exception: it broke.")
    assert found.moves.endswith("or `noetl-stream execution retry-now execution-1`")
    assert (found.details["attempt"], found.details["attempts"], found.details["error"]["kind"]) == (2, 3, "exception")


def test_a_short_retry_at_a_worker_says_when_it_tries_again() -> None:
    scenario = Scenario(STEP)
    scenario.start()
    run = scenario.take("work")
    run.begin()
    run.report(TaskStarted("act"))
    failure = Outcome("error", error=ErrorInfo("exception", "busy"))
    run.report(TaskProcessed("act", 1, failure, "retry", to="act", delay_s=2.5))
    found = reasons(scenario)["retry"]
    assert found.sentence == (
        f"Step `work` waits until {found.until} for attempt 2 of task `act`; the last error: exception: busy."
    )
    run.report(TaskStarted("act", 2))
    assert "task `act`, attempt 2" in reasons(scenario)["running"].sentence


def test_a_signal_is_named_with_those_that_no_step_takes() -> None:
    scenario = waits_for("kind: wait, signal: go, timeout_s: 60")
    scenario.signal("goo")
    found = reasons(scenario)["signal"]
    assert "waits for the signal `go`" in found.sentence and "Other queued signals: goo" in found.sentence
    assert "execution signal execution-1 go" in found.moves


def test_a_child_is_named_with_its_status() -> None:
    scenario = waits_for("kind: playbook, path: tests/child")
    (child,) = scenario.execution.children
    found = reasons(scenario, children={child: "waiting"})["child"]
    awaited = AwaitedChildDocument(child, "tests/child", "waiting")
    assert waiting_on(scenario, "child", children={child: "waiting"}).child == awaited
    assert f"execution why {child}" in found.moves
    assert "(not begun)" in reasons(scenario)["child"].sentence


def test_a_pause_says_who_and_what_still_runs() -> None:
    scenario = Scenario(BRANCHES)
    scenario.start()
    scenario.ask(PauseRequested, principal="alice", reason="night")
    scenario.done("left")
    found = reasons(scenario)
    assert found["paused"].sentence == "The execution is paused by alice (night); 1 command still running."
    assert found["paused"].moves == "`noetl-stream execution resume execution-1`"
    assert why(scenario).reasons[0].kind == "paused"


def test_a_token_not_judged_during_a_pause_is_named() -> None:
    scenario = Scenario(GATE)
    scenario.start()
    scenario.pause()
    scenario.inject("deploy")
    assert reasons(scenario)["token"].step == "deploy"


def test_a_cancel_says_who_and_what_has_not_answered() -> None:
    scenario = Scenario(STEP)
    scenario.start()
    scenario.take("work").begin()
    scenario.ask(CancelRequested, principal="bob", reason="wrong data")
    found = reasons(scenario)
    assert "being cancelled by bob (wrong data); 1 command" in found["cancelling"].sentence
    assert found["cancelling"].until is not None
    assert "has not answered" in found["stopping"].sentence


def test_an_end_by_cancel_says_who() -> None:
    scenario = Scenario(STEP)
    scenario.start()
    scenario.ask(CancelRequested, principal="bob")
    run = scenario.take("work") if scenario.working else None
    if run is not None:
        run.stop()
    assert why(scenario).summary == "The execution was cancelled by bob."
    assert reasons(scenario)["cancelled"].moves == "`noetl-stream execution rerun execution-1 STEP`"


def test_a_failure_on_its_way_out_says_what_still_runs() -> None:
    scenario = Scenario(BRANCHES)
    scenario.start()
    scenario.take("right").begin()
    scenario.failed("left", message="no disk")
    assert "The execution failed (exception: no disk); 1 command" in reasons(scenario)["failing"].sentence


def test_a_reference_that_is_looked_into_is_named() -> None:
    scenario = Scenario(
        HEAD
        + """
workflow:
  - step: work
    tool: {kind: noop}
    next: {arcs: [{step: end, when: "{{ event.result.ready }}"}]}
  - {step: end, tool: {kind: noop}}
"""
    )
    scenario.objects.takes = lambda result: True
    scenario.start()
    scenario.done("work", {"ready": True})
    found = reasons(scenario)["reference"]
    assert "is still loading" in found.sentence and waiting_on(scenario, "reference").reference
    scenario.lose()
    assert why(scenario).status == "failed"


def test_templates_that_are_evaluated_elsewhere_are_named() -> None:
    scenario = Scenario(
        HEAD
        + """
workflow:
  - step: work
    tool: {kind: noop}
    next: {arcs: [{step: end, when: "{{ range(20000) | sum > 0 }}"}]}
  - {step: end, tool: {kind: noop}}
"""
    )
    scenario.evaluates = False
    scenario.start()
    scenario.done("work")
    assert "another process is evaluating" in reasons(scenario)["evaluation"].sentence
    scenario.evaluate()
    assert "evaluation" not in reasons(scenario)


def test_guards_that_cost_too_much_to_explain_are_shown_without_their_value() -> None:
    scenario = Scenario(
        HEAD
        + """
workflow:
  - step: work
    spec:
      policy:
        admit:
          rules: [{when: "{{ range(99999) | sum < 0 }}", then: {allow: true}}]
          wait: {timeout_s: 3600, on_timeout: fail}
    tool: {kind: noop}
"""
    )
    scenario.start()
    (guard,) = waiting_on(scenario, "admission").guards
    assert guard.holds is None


def test_a_partition_without_a_server_comes_first() -> None:
    scenario = Scenario(STEP)
    scenario.start()
    found = why(scenario, partition=replace(SERVED, live=False))
    assert found.reasons[0].kind == "no_server" and "partition of the execution (7)" in found.summary


def test_a_server_that_is_behind_says_by_how_much() -> None:
    scenario = Scenario(STEP)
    scenario.start()
    found = reasons(scenario, partition=replace(SERVED, behind=12))["server_behind"]
    assert "12 messages behind" in found.sentence


def test_a_server_whose_messages_are_refused_says_why_and_names_nobody_elses_execution() -> None:
    scenario = Scenario(STEP)
    scenario.start()
    refused = "NATS refused noetl.commands.default.5.other.1: maximum bytes exceeded (error 10077) (the stream is full)"
    found = why(scenario, partition=SERVED, unstored=[refused]).reasons[0]
    assert found.kind == "server_cannot_store"
    assert "cannot store what it decides: NATS refused a message: maximum bytes exceeded" in found.sentence


def test_a_failed_task_says_which_rule_decided_and_which_arcs_did_not_fire() -> None:
    scenario = Scenario(
        HEAD
        + """
workflow:
  - step: pay
    tool:
      name: charge
      kind: http
      url: "https://pay.example"
      spec:
        policy:
          rules:
            - when: "{{ outcome.status == 'error' and outcome.error.retryable }}"
              then: {do: retry, attempts: 3}
            - when: "{{ outcome.status == 'error' }}"
              then: {do: fail}
    next:
      arcs:
        - {step: refund, when: "{{ event.name == 'step.failed' and ctx.refundable | default(false) }}"}
        - {step: ship, when: "{{ event.result.ok }}"}
  - {step: refund, tool: {kind: noop}}
  - {step: ship, tool: {kind: noop}}
"""
    )
    scenario.start()
    scenario.failed("pay", "http_status", "503 Service Unavailable")
    failed, refund, ship = why(scenario).reasons
    assert failed.kind == "failed" and failed.task == "charge"
    assert "503 Service Unavailable" in failed.sentence and "rule 2 of its policy (line 17) decided" in failed.sentence
    assert failed.details["attempt"] == 1 and failed.details["line"] == 17
    assert [guard["holds"] for guard in failed.details["guards"]] == [False, True]
    assert "ctx.refundable is missing" in refund.sentence and refund.details["to"] == "refund"
    assert "it does not handle failures" in ship.sentence
    assert "execution retry execution-1" in failed.moves


@pytest.mark.parametrize(
    ("policy", "clause"),
    [
        ("", "without a policy, an error fails the step"),
        (
            "spec: {policy: {on_unmatched: fail, "
            "rules: [{when: \"{{ outcome.status == 'ok' }}\", then: {do: break}}]}}",
            "no rule of its policy matched",
        ),
        (
            "spec: {policy: {rules: [{when: \"{{ outcome.status == 'error' }}\", then: {do: retry, attempts: 2}}]}}",
            "has no attempts left",
        ),
    ],
)
def test_the_rule_that_decided_a_failure_is_named(policy: str, clause: str) -> None:
    scenario = Scenario(HEAD + f"workflow: [{{step: work, tool: {{name: act, kind: noop, {policy}}}}}]\n")
    scenario.start()
    scenario.failed("work")
    assert clause in why(scenario).summary


def test_a_failure_without_a_task_says_what_failed() -> None:
    scenario = Scenario(GATE.replace("ctx.approved | default(false)", "workload.approved"))
    scenario.start()
    scenario.done("work")
    found = why(scenario)
    assert "The execution failed in step `deploy`: expression_error" in found.summary


def test_a_loop_says_how_far_it_is() -> None:
    scenario = Scenario(
        HEAD
        + """
workflow:
  - step: each
    loop: {in: [1, 2, 3], iterator: n, spec: {mode: parallel}}
    tool: {kind: noop}
"""
    )
    scenario.start()
    scenario.done("each", index=0)
    scenario.take("each", index=1).begin()
    found = reasons(scenario)
    assert "(1 of 3 iterations ended), iteration 1, runs" in found["running"].sentence
    assert f"at worker {WORKER.name}" in found["running"].sentence
    assert "(1 of 3 iterations ended): 1 command in the queue" in found["queued"].sentence
    assert f"iteration 1, was run by worker {WORKER.name}" in reasons(scenario, workers=[])["worker_gone"].sentence


def test_reasons_are_shown_without_a_plan() -> None:
    scenario = Scenario(GATE)
    scenario.start()
    scenario.done("work")
    answer = explain(scenario.execution_id, history_of(scenario), None, Environment(scenario.now_ms, [WORKER]))
    assert [reason.kind for reason in answer.reasons] == ["admission"]


def test_an_execution_that_is_not_there_is_an_error() -> None:
    with pytest.raises(NotFound, match="execution nothing not found"):
        explain("nothing", JournalHistory("nothing"), None, Environment(0))


def test_every_kind_of_reason_is_documented() -> None:
    written = "".join(file.read_text() for file in Path(client_why.__file__).parent.glob("*.py"))
    given = set(re.findall(r'reason\(\s*(?:kind=)?"(\w+)"', written)) | {"held", "admission", "refused", "failed"}
    table = (Path(__file__).parents[2] / "docs" / "reference" / "why.md").read_text().partition("## While it lives")[2]
    assert sorted(given) == sorted(re.findall(r"^\| `(\w+)`", table, re.MULTILINE))


def test_a_rerun_that_has_yet_to_read_its_original_is_explained() -> None:
    scenario = Scenario(BRANCHES)
    scenario.start()
    scenario.done("left")
    scenario.done("right")
    scenario.failed("both")
    again = parked(scenario)
    found = reasons(again)["rerun"]
    assert found.waiting_on == WaitingOnDocument(execution=scenario.execution_id)
    assert scenario.execution_id in found.sentence


def test_a_token_that_was_taken_over_has_its_step_and_time() -> None:
    scenario = Scenario(BRANCHES)
    scenario.start()
    scenario.done("left")
    scenario.done("right")
    scenario.done("both")
    again = rerun(scenario, step="right")
    found = reasons(again)["join"]
    assert found.step == "both" and found.since is not None
    assert found.waiting_on is not None and found.waiting_on.join == AwaitedJoinDocument(
        "all", ["left"], ["running step `right`"]
    )


def test_tolerated_iterations_are_reported_with_the_first_failure() -> None:
    steps = """
workflow:
  - step: fetch
    spec: {policy: {failure: {mode: best_effort}}}
    loop: {in: [1, 2, 3], iterator: n, spec: {mode: parallel}}
    tool: {kind: noop}
"""
    scenario = Scenario(HEAD + steps)
    scenario.start()
    scenario.done("fetch", index=0)
    scenario.failed("fetch", "http_status", "404 Not Found", index=2)
    scenario.failed("fetch", "timeout", "too slow", index=1)
    found = why(scenario)
    assert found.summary == "The execution completed, 2 of 3 iterations of fetch failed. (and 1 more)"
    (_, tolerated) = found.reasons
    assert (tolerated.kind, tolerated.step, tolerated.iteration) == ("tolerated", "fetch", [2])
    assert tolerated.sentence == (
        "2 of 3 iterations of fetch failed, as `failure.mode: best_effort` tolerates; "
        "the first, 2: http_status: 404 Not Found."
    )
    assert tolerated.moves == ""
    assert tolerated.details["failed"] == 2 and tolerated.details["error"]["kind"] == "http_status"


def test_a_tolerated_step_is_reported_with_its_error() -> None:
    scenario = Scenario(
        HEAD
        + "executor: {spec: {policy: {failure: {mode: best_effort}}}}\nworkflow:\n- step: start\n  tool: {kind: noop}\n"
    )
    scenario.start()
    scenario.failed("start", "exception", "all is lost")
    found = why(scenario)
    assert found.summary == "The execution completed, start failed. (and 1 more)"
    assert found.reasons[1].sentence == (
        "start failed, as `failure.mode: best_effort` tolerates; the first: exception: all is lost."
    )
    assert found.reasons[1].details["runs"] == 1


@pytest.mark.parametrize(
    ("failures", "text"),
    [
        (ToleratedFailures("fetch", 200, 4, 4), "4 of 200 iterations of fetch failed"),
        (ToleratedFailures("fetch", 1, 1, 1), "1 of 1 iteration of fetch failed"),
        (ToleratedFailures("fetch", 10, 2, 7), "2 of 10 iterations of fetch failed, 7 innermost iterations"),
        (ToleratedFailures("fetch", 10, 0, 1), "1 innermost iteration of fetch failed"),
        (ToleratedFailures("store", 0, runs=1), "store failed"),
        (ToleratedFailures("fetch", 9, 3, 3, runs=2), "2 runs of fetch failed, 3 of 9 iterations of fetch failed"),
    ],
)
def test_tolerated_failures_in_words(failures: ToleratedFailures, text: str) -> None:
    assert tolerated_text(failures) == text


def test_an_arc_that_has_sent_nothing_again_says_by_which_key() -> None:
    scenario = Scenario(
        HEAD
        + """
workflow:
- step: start
  tool: {kind: noop}
  next: {spec: {mode: inclusive}, arcs: [{step: start, spec: {dedupe: "{{ args | length }}"}}]}
"""
    )
    scenario.start()
    scenario.done("start")
    scenario.done("start")
    assert reasons(scenario)["arc"].sentence == (
        "The arc to `start` (line 9) of step `start` sent no token once: its `dedupe` had sent the key `0` before."
    )


def test_a_step_run_that_waits_for_its_turn_says_after_which() -> None:
    arcs = ", ".join(["{step: work, spec: {partition: acme}}"] * 3)
    steps = (
        f"- step: start\n  next: {{spec: {{mode: inclusive}}, arcs: [{arcs}]}}\n- step: work\n  tool: {{kind: noop}}\n"
    )
    scenario = Scenario(HEAD + "workflow:\n" + steps)
    scenario.start()
    first = next(iter(scenario.execution.runs))
    waits = [one.sentence for one in why(scenario).reasons if one.kind == "partition"]
    turn = f"Step `work` waits for its turn in partition `acme`: step run {first} has it"
    assert waits == [f"{turn}.", f"{turn}, and 1 more wait before it."]


def test_a_quarantine_says_why_and_what_ends_it() -> None:
    scenario = Scenario(BRANCHES)
    scenario.start()
    scenario.feed(RecordedFact(ExecutionQuarantined("index row size exceeds the maximum")))
    found = reasons(scenario)["quarantined"]
    assert "index row size exceeds the maximum" in found.sentence
    assert "execution resume execution-1" in found.moves and "execution cancel execution-1" in found.moves


UNDOING = """
executor: {spec: {policy: {compensation: {timeout_s: 60}}}}
workflow:
  - step: reserve
    tool: {kind: noop}
    spec: {policy: {compensation: {tool: {kind: noop}}}}
    next: {arcs: [{step: charge}]}
  - step: charge
    tool: {kind: noop}
    spec: {policy: {compensation: {tool: {kind: noop}}}}
    next: {arcs: [{step: ship}]}
  - {step: ship, tool: {kind: noop}}
"""


def test_an_execution_that_undoes_its_steps_is_explained_and_then_lists_them() -> None:
    scenario = Scenario(HEAD + UNDOING)
    scenario.start()
    scenario.done("reserve")
    scenario.done("charge")
    scenario.failed("ship")
    found = reasons(scenario)["compensating"]
    assert "then ends as failed; 0 undone so far" in found.sentence
    assert found.until is not None
    scenario.failed("charge__compensation", message="closed")
    scenario.done("reserve__compensation")
    answer = explain(scenario.execution_id, history_of(scenario), scenario.plan, Environment(scenario.now_ms))
    said = [(one.kind, one.step) for one in answer.reasons]
    assert said == [("failed", "ship"), ("not_undone", "charge"), ("undone", "reserve")]
    assert "its compensation failed: closed" in answer.reasons[1].sentence


def test_the_task_that_makes_the_rows_of_a_loop_has_its_name_while_it_runs_and_when_it_fails() -> None:
    rows = "{kind: duckdb, command: from range(9), spec: {policy: {rules: [{else: {then: {do: fail}}}]}}}"
    scenario = Scenario(
        HEAD + f"workflow: [{{step: work, loop: {{rows: {rows}, iterator: part}}, tool: {{name: act, kind: noop}}}}]\n"
    )
    scenario.start()
    run = scenario.take("work")
    run.begin()
    run.report(TaskStarted("rows"))
    found = reasons(scenario)["running"]
    assert found.task == "rows" and "`rows`" in found.sentence
    run.answer(error=ErrorInfo("sql", "no such table"))
    found = reasons(scenario)["failed"]
    assert found.sentence.startswith("Task `rows` of step `work` failed at attempt 1: ") and "rule 1" in found.sentence
