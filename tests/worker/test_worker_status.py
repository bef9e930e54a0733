"""What a worker tells probes and Prometheus."""

from __future__ import annotations

import logging

import pytest
from worker_stage import Endless, Refusing, Stage

from measured import samples_of, unmoved
from noetl_stream.adapters.memory.command_queue import MemoryDelivery
from noetl_stream.errors import Unreachable
from noetl_stream.tools.contract import ToolCall, ToolFailure
from noetl_stream.worker.status_report import WorkerStatus
from noetl_stream.worker.worker import Worker
from noetl_stream.worker.worker_limits import CONTACT_LOST_AFTER_S, UNSTORED_S

TRIES = """
- step: start
  tool:
    name: first
    kind: puppet
    spec: {policy: {rules: [{when: "{{ outcome.status == 'error' }}", then: {do: retry, attempts: 2}}]}}
"""
ONE_TASK = "- step: start\n  tool: {name: first, kind: puppet}\n"


def status_of(worker: Worker) -> WorkerStatus:
    return WorkerStatus(worker, lambda: True)


async def measured(worker: Worker) -> dict[str, float]:
    return samples_of(await status_of(worker).readings())


async def test_a_worker_is_ready_while_it_takes_commands(stage: Stage) -> None:
    stage.puppet.acts["first"] = endless = Endless()
    worker = await stage.start()
    status = status_of(worker)
    assert (await status.reasons_not_ready(), status.reasons_to_replace()) == ([], ())
    assert await WorkerStatus(worker, lambda: False).reasons_not_ready() == ["it has lost the connection to NATS"]
    await stage.issue(stage.command(stage.plan(ONE_TASK)))
    worker.drain()
    await stage.settle()
    assert [one.partition(":")[0] for one in await status.reasons_not_ready()] == ["it drains"]
    assert status.reasons_to_replace() == ()
    endless.release.set()
    await stage.soon(lambda: stage.workers[0][1].done())
    assert status.reasons_to_replace() == ()


async def test_a_worker_without_a_queue_is_starting(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_pool: str) -> None:
        raise Unreachable("no server has made it")

    monkeypatch.setattr(stage.broker.command_queue, "open_source", never)
    status = status_of(await stage.start())
    assert [one.partition(":")[0] for one in await status.reasons_not_ready()] == ["it is starting"]


async def test_a_worker_that_nats_does_not_answer_is_not_ready_and_lives(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(_pool: str) -> None:
        raise Unreachable("no answer")

    worker = await stage.start()
    monkeypatch.setattr(stage.broker.command_queue, "reach", silent)
    await stage.advance(CONTACT_LOST_AFTER_S + 2.0, step_s=0.5)
    status = status_of(worker)
    assert [one.partition(" for")[0] for one in await status.reasons_not_ready()] == ["NATS has not answered"]
    assert status.reasons_to_replace() == ()
    assert (await measured(worker))["noetl_worker_contact_losses_total"] == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_worker_whose_leases_are_no_longer_renewed_is_dead(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def defect(_delivery: MemoryDelivery) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(MemoryDelivery, "in_progress", defect)
    stage.puppet.acts["first"] = endless = Endless()
    worker = await stage.start(ack_wait_s=0.003)
    await stage.issue(stage.command(stage.plan(ONE_TASK)))
    await stage.soon(lambda: status_of(worker).reasons_to_replace())
    assert status_of(worker).reasons_to_replace() == ("the thread that renews leases has ended",)
    endless.release.set()


async def test_work_of_a_worker_is_measured(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    async def fail_at_first(call: ToolCall) -> int:
        if call.attempt == 1:
            raise ToolFailure.of("http", "status 503")
        return 1

    stage.puppet.acts["first"] = fail_at_first
    worker = await stage.start()
    before = await measured(worker)
    await stage.issue(stage.command(stage.plan(TRIES)))
    await stage.advance(5.0, step_s=0.5)
    await stage.until(lambda: worker.counts.commands["done"])
    after = await measured(worker)
    assert after["noetl_worker_task_duration_seconds_count puppet ok"] == 1
    assert after["noetl_worker_task_duration_seconds_count puppet error"] == 1
    assert unmoved(before, after, "noetl_worker_task_retries_total puppet", "noetl_worker_commands_total done") == []
    (line,) = [record for record in caplog.records if record.message == "task failed"]
    fields = vars(line)
    assert line.levelno == logging.WARNING
    assert (fields["task"], fields["attempt"], fields["kind"]) == ("first", 1, "http")


async def test_the_wait_in_the_queue_is_measured_by_playbook(stage: Stage) -> None:
    stage.puppet.acts["first"] = endless = Endless()
    worker = await stage.start(slots=1)
    plan = stage.plan(ONE_TASK)
    await stage.issue(stage.command(plan))
    await stage.until(lambda: stage.puppet.calls)
    await stage.issue(stage.command(plan, "command-2"))
    await stage.advance(20.0)
    endless.release.set()
    await stage.until(lambda: worker.counts.commands["done"] == 2)
    seen = await measured(worker)
    assert seen["noetl_worker_queue_wait_seconds_count tests/worker default"] == 2
    assert 19.9 <= seen["noetl_worker_queue_wait_seconds_sum tests/worker default"] < 30


async def test_resources_of_a_worker_are_measured(stage: Stage) -> None:
    stage.puppet.acts["first"] = endless = Endless()
    worker = await stage.start(slots=3)
    assert (await measured(worker))["noetl_worker_slots default"] == 3
    await stage.issue(stage.command(stage.plan(ONE_TASK)))
    await stage.until(lambda: stage.puppet.calls)
    after = await measured(worker)
    assert after["noetl_worker_commands_running default"] == 1
    assert after["noetl_worker_reports_retrying"] == 0
    assert after["noetl_memory_limit_bytes worker commands"] >= after["noetl_memory_bytes worker commands"]
    endless.release.set()
    await stage.until(lambda: not worker.running)


async def test_a_worker_whose_results_are_not_stored_counts_them_and_is_not_ready_for_long(stage: Stage) -> None:
    async def large(_call: ToolCall) -> str:
        return "x" * 100_000

    blobs = Refusing(stage.broker.blobs, "put")
    blobs.refuses, blobs.error = True, Unreachable("NATS refused an object: insufficient resources (error 10023)")
    stage.puppet.acts["first"] = large
    worker = await stage.start(blobs=blobs)
    await stage.issue(stage.command(stage.plan(ONE_TASK)))
    await stage.soon(lambda: worker.results_waiting)
    assert (await measured(worker))["noetl_worker_results_waiting"] == 1
    assert await status_of(worker).reasons_not_ready() == []
    await stage.advance(UNSTORED_S + 1, step_s=0.5)
    (why,) = await status_of(worker).reasons_not_ready()
    assert why.startswith("1 of its 1 commands wait: its result cannot be stored:") and "(error 10023)" in why
    blobs.refuses = False
    await stage.advance(2, step_s=0.1)
    await stage.until(lambda: not worker.running)
    assert (await measured(worker))["noetl_worker_results_waiting"] == 0
    assert await status_of(worker).reasons_not_ready() == []
