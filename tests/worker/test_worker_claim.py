from __future__ import annotations

from typing import Any

from worker_stage import Endless, Stage, numbers_without_holes

from noetl_stream.model.events import LoopIterationFailed, StepFailed, TaskStarted
from noetl_stream.model.json.codec import payload_of
from noetl_stream.model.limits import Limits
from noetl_stream.model.messages import Drop, Go, Progress
from noetl_stream.model.outcome import Outcome
from noetl_stream.worker.worker_limits import UNCLAIMED_S

TWO_TASKS = """
- step: start
  tool:
  - name: first
    kind: puppet
    value: 5
    spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {seen: 1}, set_vars: {v: 2}}}}]}}
  - name: second
    kind: puppet
    ctx: "{{ ctx.seen }}"
    vars: "{{ vars.v }}"
    first: "{{ first.value }}"
    before: "{{ _prev.value }}"
    attempt: "{{ _attempt }}"
"""

HALF_DONE = Progress(
    task="second",
    attempt=2,
    runs=2,
    previous="second",
    vars={"v": 2},
    ctx={"seen": 1},
    results={"first": Outcome("ok", payload_of({"value": 5})), "second": Outcome("error")},
    before=Outcome("ok", payload_of({"value": 5})),
)


async def redeliver(stage: Stage) -> None:
    """Ends all leases: the same copies are delivered again."""
    stage.broker.command_queue.forget_unacked()
    await stage.settle()


async def test_a_first_copy_runs_without_a_claim(stage: Stage) -> None:
    await stage.start()
    await stage.issue(stage.command(stage.plan(TWO_TASKS)))
    assert "step.claimed" not in stage.names


async def test_a_first_copy_that_waited_long_for_its_playbook_is_claimed_before_it_begins(stage: Stage) -> None:
    plan = stage.plan(TWO_TASKS)
    del stage.plans.plans[plan.digest]
    stage.plans.gate.clear()
    await stage.answer_claims(lambda report: Drop("another worker has it"))
    await stage.start()
    await stage.issue(stage.command(plan))
    await stage.advance(UNCLAIMED_S + 1)
    stage.plans.plans[plan.digest] = plan
    stage.plans.gate.set()
    await stage.settle()
    assert stage.names == ["step.claimed"]
    assert await stage.queued() == set(), "the copy is acknowledged without having run"


async def test_a_copy_from_before_the_connection_is_claimed_as_event_zero(stage: Stage) -> None:
    await stage.answer_claims(lambda report: Go())
    await stage.issue(stage.command(stage.plan(TWO_TASKS)))
    await stage.start()
    await stage.until(lambda: stage.names[-1:] == ["step.done"])
    claim = stage.reports[0]
    assert (claim.number, claim.first, stage.names[0]) == (0, 0, "step.claimed")
    assert numbers_without_holes(stage.reports)
    assert await stage.queued() == set()


async def test_a_second_issue_is_claimed(stage: Stage) -> None:
    await stage.answer_claims(lambda report: Go())
    await stage.start()
    await stage.issue(stage.command(stage.plan(TWO_TASKS), issue=2))
    assert stage.names[0] == "step.claimed"
    assert stage.reports[0].issue == 2


async def test_a_second_delivery_is_claimed_with_a_nonce_of_its_own(stage: Stage) -> None:
    stage.puppet.acts["first"] = Endless()
    await stage.start()
    await stage.issue(stage.command(stage.plan(TWO_TASKS)))
    await stage.advance(0.05)
    await stage.answer_claims(lambda report: Drop("another worker has it"))
    await redeliver(stage)
    first, claim = stage.reports
    assert claim.num_delivered == 2
    assert claim.nonce != first.nonce


async def test_a_dropped_copy_is_acknowledged_and_not_run(stage: Stage) -> None:
    await stage.answer_claims(lambda report: Drop("the step run has ended"))
    await stage.start()
    await stage.issue(stage.command(stage.plan(TWO_TASKS), issue=2))
    assert stage.puppet.calls == []
    assert stage.names == ["step.claimed"]
    assert await stage.queued() == set()


async def test_a_claim_without_answer_is_asked_again_as_the_same_event_in_another_report(stage: Stage) -> None:
    answers: list[Any] = [None, None, Go()]
    await stage.answer_claims(lambda report: answers.pop(0))
    await stage.start()
    await stage.issue(stage.command(stage.plan(TWO_TASKS), issue=2))
    await stage.advance(1.5)
    assert len(stage.claims) == 1
    await stage.advance(1.0)
    assert len(stage.claims) == 2
    assert stage.puppet.calls == []
    assert await stage.queued() == {"command-1"}
    await stage.advance(2.0)
    assert len(stage.claims) == 2, "later each time"
    await stage.advance(3.0)
    assert [(report.number, report.first) for report, _ in stage.claims] == [(0, 0), (1, 0), (2, 0)]
    assert len({report.nonce for report, _ in stage.claims}) == 1
    assert stage.reports[-1].number == 3
    assert stage.names[-1] == "step.done"


async def test_the_events_after_a_claim_begin_with_the_number_the_answer_names(stage: Stage) -> None:
    await stage.answer_claims(lambda report: Go(next_number=7))
    await stage.start()
    await stage.issue(stage.command(stage.plan(TWO_TASKS), issue=2))
    assert stage.reports[1].first == 7


async def test_a_run_that_takes_over_continues_after_the_last_recorded_task(stage: Stage) -> None:
    await stage.answer_claims(lambda report: Go(progress={"": HALF_DONE}, ctx={"seen": 1}, vars={"v": 2}))
    await stage.start()
    await stage.issue(stage.command(stage.plan(TWO_TASKS), issue=2))
    (call,) = stage.puppet.calls
    assert (call.task, call.attempt) == ("second", 2)
    assert dict(call.inputs) == {"ctx": 1, "vars": 2, "first": 5, "before": 5, "attempt": 2}
    assert stage.names == ["step.claimed", "step.started", "task.started", "task.processed", "step.done"]
    assert TaskStarted("second", 2) in stage.facts


async def test_a_pending_delay_is_waited_for_again(stage: Stage) -> None:
    resumed = Progress(task="second", runs=1, previous="first", delay_s=4.0, results=HALF_DONE.results)
    await stage.answer_claims(lambda report: Go(progress={"": resumed}, ctx={"seen": 1}, vars={"v": 2}))
    await stage.start()
    await stage.issue(stage.command(stage.plan(TWO_TASKS.replace("vars.v", "1 + 1")), issue=2))
    await stage.advance(3.9)
    assert stage.puppet.calls == []
    await stage.advance(0.1)
    assert [call.task for call in stage.puppet.calls] == ["second"]


async def test_the_sixth_delivery_is_claimed_and_fails_unrun(stage: Stage) -> None:
    stage.puppet.acts["first"] = Endless()
    await stage.answer_claims(lambda report: Go() if report.num_delivered == 6 else Drop("not this one"))
    plan = stage.plan(TWO_TASKS)
    source = await stage.broker.command_queue.open_source("default")
    await stage.issue(stage.command(plan))
    for _ in range(5):
        source.request(1)
        (await source.next()).nak()
    await source.close()
    await stage.start()
    await stage.settle()
    assert stage.puppet.calls == []
    assert stage.names == ["step.claimed", "step.failed"]
    failed = stage.facts[-1]
    assert isinstance(failed, StepFailed) and failed.error.kind == "lease_exhausted"
    assert await stage.queued() == set()


async def test_an_exhausted_lease_of_an_iteration_fails_that_iteration(stage: Stage) -> None:
    await stage.answer_claims(lambda report: Go())
    plan = stage.plan(TWO_TASKS)
    source = await stage.broker.command_queue.open_source("default")
    limits = Limits(max_deliveries=1)
    await stage.issue(stage.command(plan, path=(3,), chain=["x"], counts=[5], limits=limits))
    source.request(1)
    (await source.next()).nak()
    await source.close()
    await stage.start()
    await stage.settle()
    failed = stage.facts[-1]
    assert isinstance(failed, LoopIterationFailed)
    assert (failed.path, failed.error.kind) == ((3,), "lease_exhausted")


async def test_a_claim_continues_when_the_broker_is_back(stage: Stage) -> None:
    await stage.answer_claims(lambda report: Go())
    plan = stage.plan(TWO_TASKS)
    await stage.issue(stage.command(plan))
    stage.broker.stop()
    await stage.start()
    await stage.advance(2.0, step_s=0.5)
    stage.broker.start()
    await stage.advance(2.0, step_s=0.5)
    assert stage.names[0] == "step.claimed"
    assert stage.names[-1] == "step.done"
