from __future__ import annotations

from typing import Any

from worker_stage import Endless, Refusing, Stage

from noetl_stream.model.events import StepDone, StepFailed, StepStarted, TaskProcessed, TaskStarted
from noetl_stream.model.json import codec
from noetl_stream.model.messages import AGGREGATES_FORMAT, Go
from noetl_stream.tools.contract import ToolCall

ONE_NOOP = """
- step: start
  tool: {kind: noop, args: {a: 1}}
"""

ONE_ACT = """
- step: start
  tool:
  - name: act
    kind: puppet
    text: "{{ workload.items | length }} items"
"""


def stop_broker(stage: Stage) -> Any:
    async def act(_call: ToolCall) -> str:
        stage.broker.stop()
        return "done while nobody listened"

    return act


async def test_a_short_step_is_one_report_and_is_acknowledged(stage: Stage) -> None:
    await stage.start()
    await stage.issue(stage.command(stage.plan(ONE_NOOP)))
    assert len(stage.reports) == 1
    started, task, processed, done = stage.facts
    assert started == StepStarted("worker-1")
    assert isinstance(task, TaskStarted) and task.attempt == 1
    assert isinstance(processed, TaskProcessed) and codec.decode_json(processed.outcome.result.value) == {"a": 1}
    assert done == StepDone("steprun-1")
    assert await stage.queued() == set()


async def test_a_report_is_named_by_its_run_and_numbered_from_zero(stage: Stage) -> None:
    await stage.start()
    await stage.issue(stage.command(stage.plan(ONE_NOOP)))
    (report,) = stage.reports
    assert (report.number, report.first, report.issue, report.num_delivered) == (0, 0, 1, 1)
    assert stage.broker.event_log.stored[0].message_id == f"command-1.1.1.{report.nonce}.0"


async def test_the_report_is_stored_before_the_command_is_acknowledged(stage: Stage) -> None:
    log = Refusing(stage.broker.event_log, "publish_report")
    log.refuses = True
    await stage.start(event_log=log)
    await stage.issue(stage.command(stage.plan(ONE_NOOP)))
    await stage.advance(5.0, step_s=0.5)
    assert await stage.queued() == {"command-1"}
    log.refuses = False
    await stage.advance(1.0)
    assert stage.names[-1] == "step.done"
    assert await stage.queued() == set()


async def test_a_report_without_answer_is_sent_again_with_the_same_bytes_under_the_same_id(stage: Stage) -> None:
    log = Refusing(stage.broker.event_log, "publish_report")
    log.refuses = True
    await stage.start(event_log=log)
    await stage.issue(stage.command(stage.plan(ONE_NOOP)))
    await stage.advance(3.0, step_s=0.25)
    assert len(log.tried) > 3
    assert len(set(log.tried)) == 1


async def test_a_result_that_finished_without_a_broker_is_kept_until_the_log_takes_it(stage: Stage) -> None:
    stage.puppet.acts["act"] = stop_broker(stage)
    await stage.start()
    await stage.issue(stage.command(stage.plan(ONE_ACT)))
    await stage.advance(15.0, step_s=0.5)
    stage.broker.start()
    await stage.advance(2.0, step_s=0.5)
    assert stage.names[:4] == ["step.started", "task.started", "task.processed", "step.done"]
    assert len(stage.puppet.calls) == 1
    assert await stage.queued() == set()


async def test_a_worker_fetches_no_more_than_it_has_slots(stage: Stage) -> None:
    endless = Endless()
    stage.puppet.acts["act"] = endless
    await stage.start(slots=2)
    plan = stage.plan(ONE_ACT)
    for number in range(4):
        await stage.issue(stage.command(plan, f"command-{number}"))
    assert len(stage.puppet.calls) == 2
    endless.release.set()
    await stage.settle()
    assert len(stage.puppet.calls) == 4
    assert await stage.queued() == set()


async def test_nothing_new_is_fetched_while_a_report_is_not_taken(stage: Stage) -> None:
    log = Refusing(stage.broker.event_log, "publish_report")
    log.refuses = True
    await stage.start(slots=4, event_log=log)
    plan = stage.plan(ONE_ACT)
    for number in range(6):
        await stage.issue(stage.command(plan, f"command-{number}"))
    assert len(stage.puppet.calls) == 4
    assert len(stage.reports) == 0
    log.refuses = False
    await stage.advance(2.0, step_s=0.25)
    assert len(stage.puppet.calls) == 6


async def test_free_slots_stay_free_until_a_report_that_was_not_taken_is_taken(stage: Stage) -> None:
    log = Refusing(stage.broker.event_log, "publish_report")
    log.refuses = lambda _execution, _pool, message_id, _body: message_id.startswith("long.")
    stage.puppet.acts["act"] = Endless()
    await stage.start(slots=2, event_log=log)
    plan, noop = stage.plan(ONE_ACT), stage.plan(ONE_NOOP)
    await stage.issue(stage.command(plan, "long"))
    await stage.advance(0.06)
    await stage.issue(stage.command(noop, "fetched-before"))
    await stage.issue(stage.command(noop, "next"))
    assert stage.names.count("step.done") == 1
    assert await stage.queued() == {"long", "next"}
    log.refuses = False
    await stage.advance(1.0, step_s=0.1)
    assert await stage.queued() == {"long"}


async def test_a_worker_keeps_nothing_of_what_has_ended(stage: Stage) -> None:
    worker = await stage.start()
    await stage.issue(stage.command(stage.plan(ONE_ACT)))
    assert not worker._runs  # noqa: SLF001  a leak shows nowhere else


async def test_a_command_that_cannot_be_read_is_returned_and_takes_no_slot(stage: Stage) -> None:
    await stage.start(slots=1)
    plan = stage.plan(ONE_NOOP)
    await stage.issue(stage.command(plan, "newer", format=AGGREGATES_FORMAT + 1))
    await stage.issue(stage.command(plan, "readable"))
    assert stage.names.count("step.done") == 1
    assert await stage.queued() == {"newer"}


async def test_a_step_that_needs_a_kind_the_worker_lacks_fails_and_names_the_kind(stage: Stage) -> None:
    plan = stage.plan(ONE_ACT)
    del stage.tools["puppet"]
    await stage.start()
    await stage.issue(stage.command(plan))
    (failed,) = stage.facts
    assert isinstance(failed, StepFailed) and failed.error.kind == "not_installed"
    assert "puppet" in failed.error.message
    assert await stage.queued() == set()


async def test_a_command_with_an_unknown_playbook_is_returned_with_a_delay(stage: Stage) -> None:
    await stage.start()
    command = stage.command(stage.plan(ONE_NOOP))
    known = dict(stage.plans.plans)
    stage.plans.plans.clear()
    await stage.issue(command)
    await stage.advance(6.0, step_s=1.0)
    assert stage.plans.lookups == 3
    assert stage.facts == []
    assert await stage.queued() == {"command-1"}
    stage.plans.plans.update(known)
    await stage.answer_claims(lambda report: Go())
    await stage.advance(6.0, step_s=1.0)
    assert stage.names == ["step.claimed", "step.started", "task.started", "task.processed", "step.done"]
