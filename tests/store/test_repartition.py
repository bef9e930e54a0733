"""Another number of partitions, on a real nats-server and a real Postgres, with executions that wait."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from real_stack import JOURNALS, WAITING, RealStack, rows

from effort import first_in_gate
from noetl_stream.errors import Conflict, NotReady
from noetl_stream.hosting import maintenance
from noetl_stream.model.aggregates import aggregate_id
from noetl_stream.model.events import SignalReceived
from noetl_stream.model.ids import PARTITIONS, partition_of, use_partitions
from noetl_stream.ports.streams.command_queue import QueuedCommand
from noetl_stream.protocol import subjects
from noetl_stream.wiring.operations import DirectOperations
from noetl_stream.wiring.role_assembly import make_server
from noetl_stream.wiring.stores import Connected, connect

CACHED = (subjects.requested, subjects.reported)
HEARING = WAITING.replace("for_s: 2", "signal: go, timeout_s: 3600")
HEAD = b"apiVersion: noetl.io/v2\nmetadata: { name: one, path: %b }\n"
TICK = HEAD % b"tests/tick" + b"kind: Playbook\nworkflow: [ { step: tick, tool: { kind: noop } } ]\n"
EVERY_SECOND = HEAD % b"tests/often" + b"kind: Schedule\nspec: { playbook: tests/tick, every: 1s, overlap: allow }\n"
PLACES = "select execution_id, partition from noetl.execution"


def become(count: int) -> None:
    """From now on this process is one of a system with so many partitions, as if it had just begun."""
    use_partitions(count)
    for cached in CACHED:
        cached.cache_clear()


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    become(PARTITIONS)


async def begun(stack: RealStack, connected: Connected, count: int, playbook: str = WAITING) -> list[str]:
    """Executions that wait, for a timer at least."""
    started = [await stack.submit(connected, playbook) for _ in range(count)]
    waits = "select count(*) from noetl.timer"
    while await rows(stack.endpoint.postgres_dsn, waits) != [(count,)]:
        await connected.clock.sleep(0.05)
    return started


async def repartition_at_rest(stack: RealStack, count: int) -> None:
    """Repartitions once what a schedule has started meanwhile has ended."""
    while True:
        with contextlib.suppress(Conflict):
            await maintenance.repartition(stack.endpoint, count)
            return
        async with stack.running() as connected:
            while await connected.queue.present():
                await connected.clock.sleep(0.05)


@pytest.mark.parametrize("count", first_in_gate([8, 64]))
async def test_executions_that_wait_go_on_with_another_number_of_partitions(stack: RealStack, count: int) -> None:
    async with stack.running() as connected:
        ended = await stack.submit(connected)
        await stack.ended(connected, ended)
        waiting = await begun(stack, connected, 6)

    assert len(waiting) + 1 == await maintenance.repartition(stack.endpoint, count)

    places = dict(await rows(stack.endpoint.postgres_dsn, PLACES))
    assert places == {one: partition_of(one, count) for one in (ended, *waiting)}
    assert [(count,)] == await rows(stack.endpoint.postgres_dsn, "select count(*) from noetl.partition")
    connected = await connect(stack.endpoint, name="test")
    with pytest.raises(NotReady, match=f"NOETL_PARTITIONS={count}"):
        await make_server(connected, stack.endpoint).run()
    await connected.close()

    become(count)
    async with stack.running() as connected:
        for one in waiting:
            await stack.ended(connected, one)
        await stack.ended(connected, await stack.submit(connected))
        assert await connected.store.dead_letters.page(10, None) == []
        assert count == len([view for view in await connected.store.read_partitions() if view.live])
    await stack.agree()
    assert await maintenance.repartition(stack.endpoint, count) is None


async def test_a_schedule_goes_on_with_another_number_of_partitions(stack: RealStack) -> None:
    async with stack.running() as connected:
        playbooks = DirectOperations(connected, stack.endpoint).playbooks
        for text in (TICK, EVERY_SECOND):
            await playbooks.register(text, "file.yaml", "someone")
    await repartition_at_rest(stack, 8)
    schedule = aggregate_id("starter", "tests/often")
    place = [(partition_of(schedule, 8),)]
    assert place == await rows(stack.endpoint.postgres_dsn, "select partition from noetl.aggregate")
    assert place == await rows(stack.endpoint.postgres_dsn, "select partition from noetl.timer")
    become(8)
    async with stack.running() as connected:
        before = await connected.store.aggregate_history(schedule, 1, None)
        after = before[0].number if before else 0
        while not [row for row in await connected.store.aggregate_history(schedule, 1, None) if row.number > after]:
            await connected.clock.sleep(0.05)


async def test_a_repartition_that_died_between_the_stores_is_finished(
    stack: RealStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stack.running() as connected:
        (waiting,) = await begun(stack, connected, 1)

    async def die(*_words: object) -> None:
        raise KeyboardInterrupt

    from noetl_stream.adapters.nats import streams

    with monkeypatch.context() as patched:
        patched.setattr(streams, "set_partitions", die)
        with pytest.raises(KeyboardInterrupt):
            await maintenance.repartition(stack.endpoint, 64)
    assert await maintenance.repartition(stack.endpoint, 64) == 0
    become(64)
    async with stack.running() as connected:
        await stack.ended(connected, waiting)


@pytest.mark.verify
@pytest.mark.parametrize("count", first_in_gate([8, 64]))
async def test_a_postgres_that_is_lost_later_is_rebuilt_with_the_new_number(stack: RealStack, count: int) -> None:
    async with stack.running() as connected:
        waiting = await begun(stack, connected, 6, HEARING)
    await maintenance.repartition(stack.endpoint, count)
    become(count)
    async with stack.running() as connected:
        ended = await stack.submit(connected)
        await stack.ended(connected, ended)
    journals = await rows(stack.endpoint.postgres_dsn, JOURNALS)

    empty = await stack.database("lost", "migrated")
    stack.endpoint = replace(stack.endpoint, postgres_dsn=empty)
    with pytest.raises(NotReady, match=f"has {PARTITIONS} partitions, this process {count}.*database repartition"):
        await maintenance.rebuild_database(stack.endpoint)
    assert await maintenance.repartition(stack.endpoint, count) == 0
    restored = await maintenance.rebuild_database(stack.endpoint)

    assert restored.executions == len(waiting) + 1
    assert await rows(empty, JOURNALS) == journals
    async with stack.running() as connected:
        executions = DirectOperations(connected, stack.endpoint).executions
        for one in waiting:
            await executions.ask(one, SignalReceived(f"request-{one}", signal="go"))
            await stack.ended(connected, one)
        await stack.ended(connected, await stack.submit(connected))
    await stack.agree()


async def test_nothing_is_changed_while_servers_live_or_commands_wait(stack: RealStack) -> None:
    async with stack.running() as connected:
        await begun(stack, connected, 1)
        with pytest.raises(Conflict, match="servers live"):
            await maintenance.repartition(stack.endpoint, 64)
    connected = await connect(stack.endpoint, name="test")
    try:
        fences = await connected.queue.fence("test", {partition_of("one"): 10_000})
        await connected.queue.issue([QueuedCommand("nobody", "one", "command", 1, b"{}")], fences)
        with pytest.raises(Conflict, match="1 commands wait or run"):
            await maintenance.repartition(stack.endpoint, 64)
        await connected.queue.withdraw([("one", "command")])
        await connected.log.publish_request("one", "request", b"{}")
        with pytest.raises(Conflict, match="1 messages are not folded"):
            await maintenance.repartition(stack.endpoint, 64)
    finally:
        await connected.close()
    assert await rows(stack.endpoint.postgres_dsn, "select partitions from noetl.meta") == [(PARTITIONS,)]
