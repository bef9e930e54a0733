from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from server_stage import ONE_STEP, Stage

from noetl_stream.model.events import StepClaimed, StepDone, StepStarted, TaskProcessed
from noetl_stream.model.ids import report_id
from noetl_stream.model.json import codec
from noetl_stream.model.messages import Drop, Go, Report, Stop
from noetl_stream.model.outcome import Outcome
from noetl_stream.protocol import subjects
from noetl_testkit.keys import capability_of
from noetl_testkit.simulation.host import FaultInjector, SimulatedHost
from noetl_testkit.simulation.work import JOBS, playbook, work

EXECUTION = "execution-1"
DONE = TaskProcessed("only", 1, Outcome("ok"), "continue")


async def begun(stage: Stage) -> Any:
    """An execution whose command a manual worker has taken."""
    await stage.server()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    worker = await stage.manual_worker()
    command, delivery = await worker.take()
    return worker, command, delivery


async def answers(stage: Stage, subject: str) -> list[Any]:
    answered: list[Any] = []

    async def hear(_subject: str, body: bytes, _reply: str) -> None:
        answered.append(codec.decode_claim_answer(body))

    await stage.broker.bus.listen(subject, hear)
    return answered


async def test_a_report_stored_twice_counts_once(stage: Stage) -> None:
    worker, command, delivery = await begun(stage)
    run = worker.run_of(command, delivery)
    for _ in range(2):
        await worker.report(command, run, 0, 0, StepStarted("hand"))
        stage.broker.event_log.forget_message_ids()
    for _ in range(2):
        await worker.report(command, run, 1, 1, DONE, StepDone(command.step_run_id))
        stage.broker.event_log.forget_message_ids()
    row = await stage.ended(EXECUTION)
    journal = await stage.journal(EXECUTION)
    assert [entry.position for entry in journal] == list(range(1, row.position + 1))
    names = [entry.name for entry in journal]
    assert {names.count(name) for name in ("step.started", "task.processed", "step.done")} == {1}


async def test_only_new_events_of_an_overlapping_report_are_folded(stage: Stage) -> None:
    worker, command, delivery = await begun(stage)
    run = worker.run_of(command, delivery)
    await worker.report(command, run, 0, 0, StepStarted("hand"))
    await worker.report(command, run, 1, 0, StepStarted("hand"), DONE, StepDone(command.step_run_id))
    await stage.ended(EXECUTION)
    names = [entry.name for entry in await stage.journal(EXECUTION)]
    assert names.count("step.started") == 1


async def test_a_gap_in_the_numbering_ends_that_run_and_issues_the_command_again(stage: Stage) -> None:
    worker, command, delivery = await begun(stage)
    stops = await stage.collect_stops()
    run = worker.run_of(command, delivery)
    await worker.report(command, run, 0, 0, StepStarted("hand"))
    await worker.report(command, run, 2, 5, DONE)
    await worker.report(command, run, 3, 6, StepDone(command.step_run_id))
    await stage.pass_time(1)
    assert await stage.issues(EXECUTION) == [1, 2]
    assert {(stop.nonce, *stop.command_ids) for stop in stops} == {(run.nonce, command.command_id)}
    delivery.ack()
    stage.start_worker()
    await stage.ended(EXECUTION)
    assert [entry.name for entry in await stage.journal(EXECUTION)].count("task.processed") == 1


async def test_a_first_report_that_is_not_the_first_is_a_gap(stage: Stage) -> None:
    worker, command, delivery = await begun(stage)
    await worker.report(command, worker.run_of(command, delivery), 1, 1, DONE, StepDone(command.step_run_id))
    await stage.pass_time(1)
    assert await stage.issues(EXECUTION) == [1, 2]


async def test_a_claim_of_the_only_run_is_granted(stage: Stage) -> None:
    worker, command, delivery = await begun(stage)
    answered = await answers(stage, "noetl.claim.default.>")
    await worker.report(command, worker.run_of(command, delivery), 0, 0, StepClaimed())
    await stage.until(lambda: answered)
    assert answered == [Go(next_number=1)]


async def test_a_claim_that_is_asked_again_gets_the_same_answer(stage: Stage) -> None:
    worker, command, delivery = await begun(stage)
    answered = await answers(stage, "noetl.claim.default.>")
    run = worker.run_of(command, delivery)
    for number in range(3):
        await worker.report(command, run, number, 0, StepClaimed())
        await stage.pass_time(0.1)
    assert answered == [Go(next_number=1)] * 3
    assert [entry.name for entry in await stage.journal(EXECUTION)].count("step.claimed") == 1


async def test_a_claim_of_higher_rank_takes_over_and_the_former_run_is_stopped_when_it_reports(stage: Stage) -> None:
    worker, command, delivery = await begun(stage)
    stops = await stage.collect_stops()
    answered = await answers(stage, "noetl.claim.default.>")
    first = worker.run_of(command, delivery)
    await worker.report(command, first, 0, 0, StepStarted("first"))
    second = first._replace(num_delivered=2, nonce="second")
    await worker.report(command, second, 0, 0, StepClaimed())
    await stage.until(lambda: answered)
    assert isinstance(answered[0], Go)
    await worker.report(command, first, 1, 1, DONE, StepDone(command.step_run_id))
    await stage.until(lambda: stops)
    assert [stop.nonce for stop in stops] == [first.nonce]
    assert (await stage.state(EXECUTION)).status == "running"  # type: ignore[union-attr]
    (stale,) = stage.tables.stale_reports
    assert (stale.execution_id, stale.report_id) == (EXECUTION, report_id(first, 1))
    assert stale.reason == "another run has the command"
    kept = stage.broker.event_log.stored[stale.source_seq - 1].message.body
    assert codec.decode_reported(kept).nonce == first.nonce  # type: ignore[union-attr]
    await worker.report(command, second, 1, 1, StepStarted("second"), DONE, StepDone(command.step_run_id))
    await stage.ended(EXECUTION)


async def test_a_claim_of_lower_rank_is_dropped(stage: Stage) -> None:
    worker, command, delivery = await begun(stage)
    answered = await answers(stage, f"noetl.claim.default.{command.command_id}.late")
    first = worker.run_of(command, delivery)
    await worker.report(command, first._replace(num_delivered=2), 0, 0, StepClaimed())
    await worker.report(command, first._replace(nonce="late"), 0, 0, StepClaimed())
    await stage.until(lambda: answered)
    assert answered == [Drop("another worker has it")]


@pytest.mark.parametrize("restarted", [False, True], ids=["same server", "another server"])
async def test_a_claim_after_the_end_is_dropped(stage: Stage, restarted: bool) -> None:
    worker, command, delivery = await begun(stage)
    run = worker.run_of(command, delivery)
    await worker.finish(command, run)
    await stage.ended(EXECUTION)
    if restarted:
        stage.running[0].cancel()
        await stage.server()
    answered = await answers(stage, "noetl.claim.default.>")
    await worker.report(command, run._replace(num_delivered=2, nonce="late"), 0, 0, StepClaimed())
    await stage.until(lambda: answered)
    assert isinstance(answered[0], Drop)


async def test_a_claim_of_an_unknown_execution_is_dropped(stage: Stage) -> None:
    worker, command, delivery = await begun(stage)
    answered = await answers(stage, "noetl.claim.default.>")
    capability = capability_of("execution-9", command.step_run_id, command.command_id, 1)
    stray = replace(command, execution_id="execution-9", capability=capability)
    await worker.report(stray, worker.run_of(command, delivery), 0, 0, StepClaimed())
    await stage.until(lambda: answered)
    assert answered == [Drop("unknown execution")]


async def test_a_report_after_the_end_stops_its_run_by_nonce(stage: Stage) -> None:
    worker, command, delivery = await begun(stage)
    stops = await stage.collect_stops()
    run = worker.run_of(command, delivery)
    await worker.finish(command, run)
    await stage.ended(EXECUTION)
    await worker.report(command, run._replace(nonce="zombie"), 0, 0, StepStarted("zombie"))
    await stage.until(lambda: stops)
    assert (stops[0].nonce, stops[0].command_ids) == ("zombie", [command.command_id])


async def test_answers_to_claims_wait_for_the_commit(stage: Stage) -> None:
    worker, command, delivery = await begun(stage)
    answered = await answers(stage, "noetl.claim.default.>")
    stage.store.away = True
    await worker.report(command, worker.run_of(command, delivery), 0, 0, StepClaimed())
    await stage.pass_time(3)
    assert not answered
    stage.store.away = False
    await stage.until(lambda: answered)


async def test_each_record_says_how_far_the_execution_was_folded(stage: Stage) -> None:
    worker, command, delivery = await begun(stage)
    run = worker.run_of(command, delivery)
    await worker.report(command, run, 0, 0, StepStarted("hand"))
    stage.broker.event_log.forget_message_ids()
    await worker.report(command, run, 0, 0, StepStarted("hand"))  # without effect
    await stage.pass_time(1)
    last = stage.broker.event_log.end
    last_reported = max(one.message.sequence for one in stage.broker.event_log.stored if one.is_input)
    assert last >= last_reported
    stage.running[0].cancel()
    await stage.pass_time(1)
    delivery.ack()
    await stage.server()  # finds the command gone, and orders it again
    await stage.until(lambda: len(stage.records()) > 2, 30)
    assert stage.records()[-1].through >= last_reported


async def test_an_order_to_stop_reaches_the_worker_when_a_loop_fails(stage: Stage) -> None:
    stops = await stage.collect_stops()
    await stage.server()
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", next(job.source for job in JOBS if job.name == "failing"))
    await stage.ended(EXECUTION)
    assert any(not stop.nonce for stop in stops)


async def test_a_stale_run_gives_its_copy_up_at_once_even_while_a_report_is_on_its_way(stage: Stage) -> None:
    class SlowReports(FaultInjector):
        async def inject(self, host: SimulatedHost, point: str) -> None:
            if point == "log.publish_report.done":
                await stage.clock.sleep(3)

    await stage.server()
    stage.start_worker(injector=SlowReports())
    await stage.request(EXECUTION, "request-1", playbook("long", [{"step": "long", "tool": work(1, 10.0)}]))
    await stage.pass_time(0.2)
    run = codec.decode_reported([one for one in stage.broker.event_log.stored if one.is_input][-1].message.body)
    assert isinstance(run, Report)
    stop = Stop(EXECUTION, [run.command_id], "another run has it", run.nonce)
    stage.broker.bus.send(subjects.STOP, codec.encode(stop))
    await stage.pass_time(0.1)
    assert await stage.broker.command_queue.present() == {}
