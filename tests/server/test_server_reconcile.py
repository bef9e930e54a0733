from __future__ import annotations

import asyncio
from typing import Any

import pytest
from server_stage import ONE_STEP, Stage

from noetl_stream.errors import StoreMissing
from noetl_stream.model.json import codec
from noetl_stream.sealing.keys import KEY_BYTES, Key, KeyRing
from noetl_stream.server.answers.capabilities import Capabilities
from noetl_testkit.keys import ACCESS_KEYS, SERVER_KEYS
from noetl_testkit.simulation import roles
from noetl_testkit.simulation.host import FaultInjector, SimulatedHost
from noetl_testkit.simulation.work import JOBS, Job, playbook, work

EXECUTION = "execution-1"


class Slow(FaultInjector):
    """Lets one kind of call take long."""

    def __init__(self, stage: Stage, point: str, takes_s: float) -> None:
        self.stage = stage
        self.point = point
        self.takes_s = takes_s

    async def inject(self, host: SimulatedHost, point: str) -> None:
        if point == self.point:
            await self.stage.clock.sleep(self.takes_s)


async def test_a_command_lost_from_the_queue_is_issued_again_exactly_once(stage: Stage) -> None:
    await stage.server(reconcile_s=2.0)
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.pass_time(0.1)
    (command_id,) = await stage.broker.command_queue.present()
    stage.broker.command_queue.lose(command_id)
    await stage.pass_time(30)
    assert await stage.issues(EXECUTION) == [1, 2]
    assert set(await stage.broker.command_queue.present()) == {command_id}
    stage.start_worker()
    await stage.ended(EXECUTION)
    assert set(stage.effects.values()) == {1}


async def test_a_command_that_waits_long_is_not_issued_again(stage: Stage) -> None:
    await stage.server(reconcile_s=0.5)
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.pass_time(300)
    assert await stage.issues(EXECUTION) == [1]


async def test_a_step_that_takes_long_is_not_issued_again(stage: Stage) -> None:
    await stage.server(reconcile_s=0.5)
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", playbook("long", [{"step": "long", "tool": work(1, 25.0)}]))
    await stage.ended(EXECUTION)
    assert await stage.issues(EXECUTION) == [1]


async def test_a_command_still_on_its_way_to_the_queue_is_not_issued_again(stage: Stage) -> None:
    stage.start_server(stage.host("server", Slow(stage, "queue.issue", 5.0)), reconcile_s=0.0)
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.ended(EXECUTION)
    assert await stage.issues(EXECUTION) == [1]


async def test_a_command_acknowledged_late_is_not_issued_again(stage: Stage) -> None:
    stage.start_server(stage.host("server", Slow(stage, "queue.issue.done", 5.0)), reconcile_s=0.0)
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.ended(EXECUTION)
    assert await stage.issues(EXECUTION) == [1]


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
@pytest.mark.parametrize("slow", ["queue.present", "queue.present.done", "log.last_sequence.done", "store.commit"])
async def test_a_command_that_has_just_finished_is_not_issued_again(stage: Stage, job: Job, slow: str) -> None:
    stage.start_server(stage.host("server", Slow(stage, slow, 0.15)), reconcile_s=0.0)
    stage.start_worker()
    await stage.begin(EXECUTION, job)
    row = await stage.ended(EXECUTION)
    assert row.status == job.status
    assert set(await stage.issues(EXECUTION)) <= {1}


async def test_after_a_takeover_pending_commands_are_issued_at_once(stage: Stage) -> None:
    await stage.server(reconcile_s=1000.0)
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.pass_time(0.1)
    (command_id,) = await stage.broker.command_queue.present()
    stage.running[0].cancel()
    await stage.pass_time(1)
    stage.broker.command_queue.lose(command_id)
    await stage.server(reconcile_s=1000.0)
    await stage.pass_time(1)
    assert await stage.issues(EXECUTION) == [1, 2]


async def test_a_commit_whose_commands_were_never_published_is_made_good(stage: Stage) -> None:
    class DiesAfterCommit(FaultInjector):
        async def inject(self, host: SimulatedHost, point: str) -> None:
            if point == "store.commit.done":
                host.kill()

    stage.start_server(stage.host("server", DiesAfterCommit()))
    stage.start_worker()
    await stage.pass_time(1)
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.pass_time(1)
    assert set(await stage.broker.command_queue.present()) == set()
    assert await stage.store.real.execution(EXECUTION) is not None
    await stage.server()
    await stage.ended(EXECUTION)
    assert await stage.issues(EXECUTION) == [1, 2]
    assert set(stage.effects.values()) == {1}


async def test_reconcile_does_not_query_the_queue_while_nothing_is_pending(stage: Stage) -> None:
    points: list[str] = []

    class Listening(FaultInjector):
        async def inject(self, host: SimulatedHost, point: str) -> None:
            points.append(point)

    stage.start_server(stage.host("server", Listening()), reconcile_s=0.5)
    await stage.pass_time(20)
    assert "queue.present" not in points
    assert "store.commit" not in points, "an idle server writes nothing"


async def test_commands_issued_before_they_had_capabilities_are_issued_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(Capabilities, "encode", lambda _, command, share: codec.encode(command))
        _, _, ended = stage.start_server()
        execution_id = await stage.submit(ONE_STEP)
        stage.running[-1].cancel()
        await asyncio.wait([ended])
    await stage.server()
    stage.start_worker()
    assert (await stage.ended(execution_id)).status == "completed"
    assert await stage.issues(execution_id) == [1, 2]
    assert set(stage.effects.values()) == {1}


async def test_after_a_rotation_reports_of_commands_issued_before_are_taken(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _, ended = stage.start_server()
    execution_id = await stage.submit(ONE_STEP)
    worker = await stage.manual_worker()
    command, delivery = await worker.take()
    first.stop()
    await ended
    rotated = Capabilities(KeyRing(Key("server-key-2", b"t" * KEY_BYTES), SERVER_KEYS.all), ACCESS_KEYS)
    monkeypatch.setattr(roles, "CAPABILITIES", rotated)
    await stage.server()
    await worker.finish(command, worker.run_of(command, delivery))
    assert (await stage.ended(execution_id)).status == "completed"
    assert await stage.issues(execution_id) == [1]


async def test_a_command_whose_capability_no_longer_holds_is_issued_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _, ended = stage.start_server()
    execution_id = await stage.submit(ONE_STEP)
    first.stop()
    await ended
    replaced = Capabilities(KeyRing(Key("server-key-2", b"t" * KEY_BYTES)), ACCESS_KEYS)
    monkeypatch.setattr(roles, "CAPABILITIES", replaced)
    await stage.server()
    stage.start_worker()  # which claims what was issued before it came
    assert (await stage.ended(execution_id)).status == "completed"
    assert await stage.issues(execution_id) == [1, 2]
    (letter,) = await stage.store.real.dead_letters.page(10, None)
    assert "shows no capability" in letter.row.reason


async def test_a_server_waits_for_a_queue_that_does_not_exist(stage: Stage) -> None:
    server = await stage.server()
    queue: Any = stage.broker.command_queue
    present = queue.present

    async def missing(*, mends: bool) -> dict[str, str]:
        raise StoreMissing("stream COMMANDS does not exist", hint="run `noetl-stream stream ensure`")

    queue.present = missing
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.pass_time(30)
    assert not stage.running[0].done()
    queue.present = present
    stage.start_worker()
    await stage.ended(EXECUTION)
    assert len(server.ownership) == 32
