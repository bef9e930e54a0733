"""The fence at the queue: what a server that has lost a partition still publishes is refused (PROTOCOL §5)."""

from __future__ import annotations

from server_stage import ONE_STEP, Stage

from noetl_stream.model.ids import PARTITIONS, partition_of
from noetl_testkit.simulation.host import FaultInjector, SimulatedHost

EXECUTION = "execution-1"
PARTITION = partition_of(EXECUTION)


class FrozenAtIssue(FaultInjector):
    """Freezes its host when it is about to publish commands."""

    async def inject(self, host: SimulatedHost, point: str) -> None:
        if point == "queue.issue":
            host.freeze()


async def test_a_command_that_a_zombie_publishes_after_a_takeover_is_refused(stage: Stage) -> None:
    zombie, host, _ = stage.start_server(stage.host("server", FrozenAtIssue()))
    await stage.until(lambda: len(zombie.ownership) == PARTITIONS)
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.until(lambda: host.is_frozen)
    await stage.server()  # which takes over, and issues what the queue lacks
    await stage.ended(EXECUTION)
    assert await stage.issues(EXECUTION) == [1, 2]
    host.injector = FaultInjector()
    host.thaw()
    await stage.pass_time(20)
    assert await stage.broker.command_queue.present() == {}
    assert list(stage.effects.values()) == [1]
    assert zombie.publications.fenced_off == set()


async def test_a_server_whose_commands_are_refused_forgets_what_another_has_taken_over(stage: Stage) -> None:
    server = await stage.server(lease_s=60.0)  # it would renew, and learn of its loss, in 20 seconds
    stage.expire(PARTITION)
    await stage.store.real.take_over("thief", 60.0, 1)
    queue = stage.broker.command_queue
    await queue.fence("thief", {PARTITION: 2})
    server.publications.fenced_off.add(PARTITION)
    await stage.until(lambda: len(server.ownership) == PARTITIONS - 1, patience_s=10.0)
    assert server.ownership.get(PARTITION) is None


async def test_a_queue_that_has_lost_its_fences_and_commands_gets_both_again(stage: Stage) -> None:
    await stage.server(reconcile_s=1000.0)
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    queue = stage.broker.command_queue
    await stage.until(lambda: queue.queued)
    (command_id,) = queue.queued
    queue.lose_fences()  # as a stream that is made anew
    queue.lose(command_id)
    await stage.request("execution-2", "request-2", ONE_STEP)
    stage.start_worker()
    assert (await stage.ended("execution-2")).status == "completed"
    assert await stage.issues("execution-2") == [1, 2]
    assert (await stage.ended(EXECUTION)).status == "completed"


async def test_a_fence_of_an_epoch_that_postgres_has_forgotten_is_overtaken(stage: Stage) -> None:
    await stage.broker.command_queue.fence("forgotten", {PARTITION: 5})
    server = await stage.server()
    await stage.until(lambda: len(server.ownership) == PARTITIONS)
    lease = server.ownership.get(PARTITION)
    assert lease is not None and lease.epoch > 5
    stage.start_worker()
    execution_id = await stage.submit(ONE_STEP)
    assert (await stage.ended(execution_id)).status == "completed"
