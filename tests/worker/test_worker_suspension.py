from __future__ import annotations

from typing import Any

from worker_stage import Endless, Stage, facts_of, inputs_of, numbers_without_holes

from noetl_stream.model.events import StepFailed, TaskProcessed, Wait
from noetl_stream.model.json.codec import payload_of
from noetl_stream.model.limits import Limits
from noetl_stream.model.messages import Drop, Go, Progress
from noetl_stream.model.outcome import ErrorInfo, Outcome
from noetl_stream.tools.contract import ToolCall, ToolFailure

PATIENT = """
- step: start
  tool:
  - name: first
    kind: puppet
    value: 5
    spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {seen: 1}, set_vars: {v: 2}, set_iter: {i: 3}}}}]}}
  - name: second
    kind: puppet
    ctx: "{{ ctx.seen }}"
    vars: "{{ vars.v }}"
    iter: "{{ iter.i }}"
    first: "{{ first.value }}"
    before: "{{ _prev.value }}"
    attempt: "{{ _attempt }}"
    spec:
      policy:
        rules:
        - when: "{{ outcome.status == 'error' }}"
          then: {do: retry, attempts: 3, delay: 20, backoff: fixed, max_delay: 20}
"""


def fails_until(attempt: int) -> Any:
    async def act(call: ToolCall) -> Any:
        if call.attempt < attempt:
            raise ToolFailure(ErrorInfo("connection", "gone", retryable=True))
        return dict(call.inputs)

    return act


async def test_a_long_retry_delay_frees_the_worker(stage: Stage) -> None:
    stage.puppet.acts["second"] = fails_until(2)
    await stage.start(slots=1)
    await stage.issue(stage.command(stage.plan(PATIENT)))
    assert stage.names[-2:] == ["task.processed", "step.suspended"]
    assert stage.waits == [Wait((), "second", delay_s=20.0)]
    assert await stage.queued() == set()
    await stage.issue(stage.command(stage.plan("- step: start\n  tool: {kind: noop}\n"), "other"))
    assert stage.names[-1] == "step.done"


async def test_a_suspension_goes_out_with_what_came_before_it(stage: Stage) -> None:
    stage.puppet.acts["second"] = fails_until(2)
    await stage.start()
    await stage.issue(stage.command(stage.plan(PATIENT)))
    assert len(stage.reports) == 1
    assert len(facts_of(stage.reports[0])) == len(stage.facts)


async def test_a_suspension_is_stored_before_its_command_is_acknowledged(stage: Stage) -> None:
    stage.puppet.acts["second"] = fails_until(2)
    worker = await stage.start()
    stage.puppet.acts["first"] = stop_broker(stage)
    await stage.issue(stage.command(stage.plan(PATIENT)))
    await stage.settle()
    assert worker.running
    stage.broker.start()
    assert await stage.queued() == {"command-1"}
    await stage.advance(2.0, step_s=0.5)
    assert stage.names[-1] == "step.suspended"
    assert await stage.queued() == set()


def stop_broker(stage: Stage) -> Any:
    async def act(call: ToolCall) -> Any:
        stage.broker.stop()
        return dict(call.inputs)

    return act


async def test_a_delay_up_to_the_limit_is_slept_in_the_slot(stage: Stage) -> None:
    stage.puppet.acts["second"] = fails_until(2)
    await stage.start()
    await stage.issue(stage.command(stage.plan(PATIENT), limits=Limits(inline_delay_s=20.0)))
    assert "step.suspended" not in stage.names
    await stage.advance(20.0)
    assert stage.names[-1] == "step.done"


async def test_another_worker_continues_after_the_delay_with_everything_intact(stage: Stage) -> None:
    stage.puppet.acts["second"] = fails_until(2)
    worker = await stage.start()
    command = stage.command(stage.plan(PATIENT))
    await stage.issue(command)
    worker.drain()
    await stage.settle()
    await stage.start()
    go = Go(**{**as_arguments(stage.recorded), "answers": {"": None}})
    await stage.resume(command, go)
    call = stage.puppet.calls[-1]
    assert (call.task, call.attempt) == ("second", 2)
    expected = {"ctx": 1, "vars": 2, "iter": 3, "first": 5, "before": 5, "attempt": 2}
    assert dict(call.inputs) == expected
    assert stage.names[-4:] == ["step.started", "task.started", "task.processed", "step.done"]
    resumed = stage.reports[-1]
    assert (resumed.command_id, resumed.first) == ("steprun-1-segment-1", 0)
    assert numbers_without_holes([resumed])
    assert resumed.nonce != stage.reports[0].nonce


def as_arguments(go: Go) -> dict[str, Any]:
    return {name: getattr(go, name) for name in go.__struct_fields__}


async def test_the_idempotency_key_stays_over_a_suspension(stage: Stage) -> None:
    stage.puppet.acts["second"] = fails_until(2)
    await stage.start()
    command = stage.command(stage.plan(PATIENT))
    await stage.issue(command)
    await stage.resume(command, Go(**{**as_arguments(stage.recorded), "answers": {"": None}}))
    before, after = stage.puppet.calls[-2:]
    assert (before.attempt, after.attempt) == (1, 2)
    assert before.idempotency_key == after.idempotency_key


async def test_a_second_suspension_follows_the_first(stage: Stage) -> None:
    stage.puppet.acts["second"] = fails_until(3)
    await stage.start()
    command = stage.command(stage.plan(PATIENT))
    await stage.issue(command)
    await stage.resume(command, Go(**{**as_arguments(stage.recorded), "answers": {"": None}}))
    assert stage.waits == [Wait((), "second", delay_s=20.0)]
    assert stage.names[-3:] == ["task.started", "task.processed", "step.suspended"]


OWED = Progress(
    task="second",
    attempt=2,
    runs=2,
    previous="second",
    delay_s=20.0,
    vars={"v": 2},
    iter={"i": 3},
    results={
        "first": Outcome("ok", payload_of({"value": 5})),
        "second": Outcome("error", error=ErrorInfo("connection", "gone")),
    },
)


async def test_a_long_delay_that_a_redelivered_run_owes_suspends_it_again(stage: Stage) -> None:
    await stage.answer_claims(lambda report: Go(progress={"": OWED}))
    await stage.start()
    await stage.issue(stage.command(stage.plan(PATIENT), issue=2))
    assert stage.puppet.calls == []
    assert stage.names == ["step.claimed", "step.started", "step.suspended"]
    assert stage.waits == [Wait((), "second", delay_s=20.0)]


async def test_the_answer_to_a_claim_wins_over_what_the_command_brings(stage: Stage) -> None:
    value = Outcome("ok", payload_of({"value": 7}))
    newer = Progress(task="second", runs=5, previous="first", results={"first": value}, vars={"v": 9}, iter={"i": 3})
    await stage.answer_claims(lambda report: Go(next_number=4, progress={"": newer}, ctx={"seen": 8}, vars={"v": 9}))
    await stage.start()
    older = Go(progress={"": OWED}, answers={"": None})
    await stage.issue(stage.command(stage.plan(PATIENT), issue=2, segment=1, resume=older))
    (call,) = stage.puppet.calls
    assert (call.inputs["first"], call.inputs["vars"], call.inputs["ctx"], call.attempt) == (7, 9, 8, 1)
    assert stage.reports[1].first == 4


async def test_a_segment_that_was_answered_by_a_claim_already_is_dropped(stage: Stage) -> None:
    await stage.answer_claims(lambda report: Drop("the step run is suspended"))
    await stage.start()
    await stage.issue(stage.command(stage.plan(PATIENT), issue=2, segment=1, resume=Go(answers={"": None})))
    assert stage.names == ["step.claimed"]
    assert await stage.queued() == set()


async def test_an_iteration_of_a_distributed_loop_suspends_under_its_own_path(stage: Stage) -> None:
    stage.puppet.acts["second"] = fails_until(2)
    await stage.start()
    loop = PATIENT.replace("- step: start\n", "- step: start\n  loop: {in: [1], iterator: item}\n")
    command = stage.command(stage.plan(loop), path=(3,), chain=["d"], counts=[7])
    await stage.issue(command)
    assert stage.waits == [Wait((3,), "second", delay_s=20.0)]
    assert await stage.queued() == set()
    await stage.resume(command, Go(**{**as_arguments(stage.recorded), "answers": {"3": None}}))
    assert stage.names[-4:] == ["loop.iteration.started", "task.started", "task.processed", "loop.iteration.done"]
    assert stage.puppet.calls[-1].inputs["iter"] == 3


async def test_a_stop_while_a_segment_runs_ends_it(stage: Stage) -> None:
    stage.puppet.acts["second"] = Endless()
    await stage.start()
    go = Go(progress={"": OWED}, answers={"": None}, ctx={"seen": 1}, vars={"v": 2})
    await stage.resume(stage.command(stage.plan(PATIENT)), go)
    await stage.stop_commands("steprun-1-segment-1")
    failed = stage.facts[-1]
    assert isinstance(failed, StepFailed) and failed.error.kind == "cancelled"


async def test_after_a_crash_another_worker_continues_after_the_last_recorded_task(stage: Stage) -> None:
    stage.puppet.acts["second"] = Endless()
    worker = await stage.start()
    await stage.issue(stage.command(stage.plan(PATIENT)))
    await stage.advance(0.05)
    assert stage.names == ["step.started", "task.started", "task.processed", "task.started"]
    del stage.puppet.acts["second"]
    go = stage.recorded
    await stage.answer_claims(lambda report: go)
    await worker.close()
    await stage.start()
    stage.broker.command_queue.forget_unacked()
    await stage.until(lambda: stage.names[-1:] == ["step.done"])
    assert [call.task for call in stage.puppet.calls] == ["first", "second", "second"]
    expected = {"ctx": 1, "vars": 2, "iter": 3, "first": 5, "before": 5, "attempt": 1}
    assert dict(stage.puppet.calls[-1].inputs) == expected


SHARING = """
- step: start
  tool:
  - name: count
    kind: puppet
    spec:
      policy:
        rules:
        - else:
            then:
              do: continue
              set_shared:
                total: {op: add, value: 2}
                names: {op: append, value: x}
  - name: read
    kind: puppet
    total: "{{ ctx.total | default('unseen') }}"
    names: "{{ ctx.names | default('unseen') }}"
"""


async def test_contributions_of_a_rule_outside_loops_are_visible_at_once(stage: Stage) -> None:
    await stage.start()
    await stage.issue(stage.command(stage.plan(SHARING), ctx={"total": 5}))
    assert dict(stage.puppet.calls[1].inputs) == {"total": 7, "names": ["x"]}
    processed = next(fact for fact in stage.facts if isinstance(fact, TaskProcessed))
    assert (processed.set_shared["total"].op, processed.set_shared["total"].value) == ("add", 2)
    assert processed.set_ctx == {}


async def test_contributions_of_an_iteration_are_invisible_in_the_loop(stage: Stage) -> None:
    await stage.start()
    loop = SHARING.replace("- step: start\n", "- step: start\n  loop: {in: [1], iterator: item}\n")
    await stage.issue(stage.command(stage.plan(loop), items=[1, 2], ctx={"total": 5}))
    assert inputs_of(stage.puppet.calls, "total") == [None, 5, None, 5]
    assert inputs_of(stage.puppet.calls, "names") == [None, "unseen", None, "unseen"]
