"""Workers, pools, partitions and dead letters as people see them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from msgspec.structs import replace
from operations_stage import BY, OperationsStage

from noetl_stream.errors import Conflict, NotFound, UsageError
from noetl_stream.model.events import ExecutionRequested
from noetl_stream.model.ids import PARTITIONS, digest_of, partition_of
from noetl_stream.model.json import codec
from noetl_stream.model.messages import Request, WorkerPresence
from noetl_stream.ports.operations.cluster import DeadLetterDocument, PoolDocument
from noetl_stream.ports.operations.executions import Start
from noetl_stream.ports.operations.verbs import plain
from noetl_stream.ports.stores.store import InboxRow
from noetl_stream.ports.streams.command_queue import QueuedCommand, QueuedPool
from noetl_stream.protocol import subjects
from noetl_testkit.keys import SIGNER
from noetl_testkit.simulation.work import playbook, work

EXECUTION = "execution-1"
LONG = playbook("long", [{"step": "long", "tool": work("done", 60.0)}])
SHORT = playbook("short", [{"step": "short", "tool": work("done", 0.1)}])


async def letters(stage: OperationsStage) -> list[DeadLetterDocument]:
    """Those on the list, once there are some."""
    async with asyncio.timeout(60):
        while not (page := await stage.cluster.dead_letters(100, None)).items:
            await stage.clock.sleep(0.05)
    return page.items


async def publish(stage: OperationsStage, body: bytes, message_id: str = "bad") -> None:
    await stage.broker.event_log.publish_request(EXECUTION, message_id, body)


async def request_of(stage: OperationsStage, source: str = SHORT) -> bytes:
    digest = digest_of(source)
    await stage.broker.blobs.put(subjects.playbook_key(digest), source.encode())
    return SIGNER.encode(Request(EXECUTION, "request-1", ExecutionRequested("request-1", digest, "tests/short")))


# --- workers and pools ------------------------------------------------------------------------------------------------


async def test_a_worker_is_seen_with_what_it_runs(stage: OperationsStage) -> None:
    started = await stage.executions.start(Start(playbook=LONG), BY)
    await stage.clock.sleep(1)
    (worker,) = await stage.cluster.workers()
    (running,) = worker.running
    assert (running.execution_id, running.step, running.delivered) == (started.execution_id, "long", 1)
    assert worker.since.startswith("2025-") and worker.version
    shown = plain(worker)
    assert {key: shown[key] for key in shown if key not in ("running", "since", "version")} == {
        "name": "worker",
        "pool": "default",
        "slots": 8,
        "confinement": "",
        "network": "",
        "unfit": "",
        "busy": 1,
        "kinds": ["noop", "work"],
        "draining": False,
        "children": {},
        "labels": {},
    }


async def test_an_invalid_answer_does_not_hide_a_valid_one(stage: OperationsStage) -> None:
    async def answer(_subject: str, _body: bytes, reply: str) -> None:
        stage.broker.bus.send(reply, b'{"name": 7}')

    await stage.broker.bus.listen(f"{subjects.ASK_WORKERS}.default", answer)
    assert [worker.name for worker in await stage.cluster.workers()] == ["worker"]


async def test_pools_join_what_waits_with_who_is_there(stage: OperationsStage) -> None:
    for _ in range(10):
        await stage.executions.start(Start(playbook=LONG), BY)
    queue = stage.broker.command_queue
    await queue.issue([QueuedCommand("gpu", EXECUTION, "command", 1, b"{}")], queue.fences)
    other = WorkerPresence(name="idle", pool="spare", slots=3, busy=0, since_ms=0, kinds=[], version="1")

    async def answer(_subject: str, _body: bytes, reply: str) -> None:
        stage.broker.bus.send(reply, codec.encode(other))

    await stage.broker.command_queue.add_pool("spare")
    await stage.broker.bus.listen(f"{subjects.ASK_WORKERS}.spare", answer)
    await stage.clock.sleep(1)
    asked = []

    async def note(_subject: str, body: bytes, _reply: str) -> None:
        asked.append(codec.decode_keys(body))

    await stage.broker.bus.listen(subjects.ASK_OLDEST, note)
    pools = await stage.cluster.pools()
    assert asked == [["default", "gpu"]], "one question for all"
    assert [one.oldest is None for one in pools] == [False, False, True], "what waits says since when"
    assert [replace(one, oldest=None) for one in pools] == [
        PoolDocument("default", workers=1, slots=8, busy=8, queued=2, running=8, again=0, by_priority={"5": 2}),
        PoolDocument("gpu", workers=0, slots=0, busy=0, queued=1, running=0, again=0, by_priority={"5": 1}),
        PoolDocument("spare", workers=1, slots=3, busy=0, queued=0, running=0, again=0),
    ]


async def test_a_pool_whose_queue_nats_cannot_read_says_why(stage: OperationsStage) -> None:
    async def pools() -> list[QueuedPool]:
        return [QueuedPool("gpu", 0, 0, 0, unreadable="consumer pool-gpu: decoding error")]

    stage.broker.command_queue.pools = pools  # type: ignore[method-assign]
    assert [one.unreadable for one in await stage.cluster.pools()] == ["consumer pool-gpu: decoding error"]


async def test_of_very_many_pools_those_in_which_most_commands_wait_say_since_when(stage: OperationsStage) -> None:
    queue, many = stage.broker.command_queue, subjects.MOST_POOLS_ASKED
    names = [f"pool-{number:03}" for number in range(many + 1)]
    once = [QueuedCommand(name, EXECUTION, f"first-of-{name}", 1, b"{}") for name in names]
    again = [QueuedCommand(name, EXECUTION, f"second-of-{name}", 1, b"{}") for name in names[1:]]
    await queue.issue([*once, *again], queue.fences)
    shown = {one.pool: one.oldest for one in await stage.cluster.pools() if one.queued}
    assert len(shown) == many + 1 and [name for name, oldest in shown.items() if oldest is None] == [names[0]]


# --- partitions -------------------------------------------------------------------------------------------------------


async def test_partitions_say_who_folds_them_and_how_far_that_is_behind(stage: OperationsStage) -> None:
    await stage.run(SHORT)
    await stage.clock.sleep(2)
    partitions = await stage.cluster.partitions()
    assert [one.partition for one in partitions] == list(range(PARTITIONS))
    assert {(one.owner, one.live, one.behind, one.epoch) for one in partitions} == {("server", True, 0, 1)}
    assert {one.folded for one in partitions} == {stage.broker.event_log.end}
    await stage.close()
    for number in range(3):
        await publish(stage, b"{}", f"late-{number}")
    behind = {one.partition: one.behind for one in await stage.cluster.partitions() if one.behind}
    assert behind == {partition_of(EXECUTION): 3}


async def test_the_stream_is_not_read_to_say_how_far_a_living_server_is_behind(stage: OperationsStage) -> None:
    """NATS counts by reading what is counted, at the expense of those that have to read it (PROTOCOL §2)."""
    await stage.run(SHORT)
    asked: list[Mapping[int, int]] = []
    log = stage.broker.event_log
    count, log.beyond = log.beyond, lambda cursors: (asked.append(cursors), count(cursors))[1]  # type: ignore[method-assign]
    await stage.cluster.partitions()
    assert asked == []
    await stage.close()
    await stage.cluster.partitions()
    assert [len(cursors) for cursors in asked] == [PARTITIONS]


# --- dead letters -----------------------------------------------------------------------------------------------------


async def test_a_letter_is_listed_and_looked_at(stage: OperationsStage) -> None:
    await publish(stage, '{"type":"ä"}'.encode())
    (listed,) = await letters(stage)
    partition = partition_of(EXECUTION)
    assert plain(listed) == {
        "id": listed.id,
        "at": listed.at,
        "source": "events",
        "partition": partition,
        "execution_id": EXECUTION,
        "subject": f"noetl.events.{partition}.{EXECUTION}.requested",
        "reason": listed.reason,
        "size": 13,
        "sequence": 1,
        "state": "waiting",
        "settled_at": None,
        "settled_by": None,
    }
    assert "cannot read" in listed.reason
    shown = plain(await stage.cluster.dead_letter(listed.id))
    assert shown == plain(listed) | {"body": '{"type":"ä"}', "encoding": "text"}


async def test_a_body_that_is_not_text_is_shown_in_base64(stage: OperationsStage) -> None:
    await publish(stage, b"\xff\x00")
    (listed,) = await letters(stage)
    shown = await stage.cluster.dead_letter(listed.id)
    assert (shown.body, shown.encoding) == ("/wA=", "base64")


async def test_the_list_continues_page_by_page(stage: OperationsStage) -> None:
    for number in range(5):
        await publish(stage, b"bad", f"bad-{number}")
    await stage.clock.sleep(1)
    first = await stage.cluster.dead_letters(2, None)
    second = await stage.cluster.dead_letters(3, first.next)
    assert [one.sequence for one in (*first.items, *second.items)] == [5, 4, 3, 2, 1]
    assert first.next is not None and second.next is None
    with pytest.raises(UsageError):
        await stage.cluster.dead_letters(2, "nonsense")


async def test_a_message_requeued_is_folded_where_it_belongs(stage: OperationsStage) -> None:
    body = await request_of(stage)
    other = (partition_of(EXECUTION) + 1) % PARTITIONS
    stage.broker.event_log.store_stray(other, EXECUTION, body)
    (listed,) = await letters(stage)
    assert "a partition other than" in listed.reason
    requeued = await stage.cluster.requeue(listed.id, "alice")
    assert (requeued.state, requeued.settled_by) == ("requeued", "alice") and requeued.settled_at
    await stage.clock.sleep(1)
    assert (await stage.executions.wait(EXECUTION, 60)).status == "completed"
    assert (await stage.cluster.dead_letters(10, None)).items == []


async def test_a_message_that_is_bad_still_becomes_another_letter(stage: OperationsStage) -> None:
    await publish(stage, b"bad")
    (listed,) = await letters(stage)
    await stage.cluster.requeue(listed.id, "alice")
    (again,) = await letters(stage)
    assert again.id != listed.id and again.sequence > listed.sequence
    assert (await stage.cluster.dead_letter(listed.id)).state == "requeued"


async def test_a_requeue_that_died_halfway_publishes_nothing_twice(stage: OperationsStage) -> None:
    await publish(stage, b"bad")
    (listed,) = await letters(stage)
    await stage.broker.event_log.publish_request(EXECUTION, f"requeue-{listed.id}", b"bad")
    end = stage.broker.event_log.end
    await stage.cluster.requeue(listed.id, "alice")
    assert stage.broker.event_log.end == end


async def test_a_letter_is_settled_once(stage: OperationsStage) -> None:
    await publish(stage, b"bad")
    (listed,) = await letters(stage)
    await stage.cluster.discard(listed.id, "bob")
    shown = await stage.cluster.dead_letter(listed.id)
    assert (shown.state, shown.settled_by, shown.body, shown.size) == ("discarded", "bob", "", 3)
    for settle in (stage.cluster.requeue, stage.cluster.discard):
        with pytest.raises(Conflict, match="was discarded by bob"):
            await settle(listed.id, "alice")
        with pytest.raises(NotFound):
            await settle("events-0-0", "alice")
    with pytest.raises(NotFound):
        await stage.cluster.dead_letter("events-0-0")


async def test_a_message_of_the_inbox_is_put_there_again(stage: OperationsStage) -> None:
    started = await stage.executions.start(Start(playbook=LONG), BY)
    execution_id = started.execution_id
    tables = stage.store.tables
    tables.inbox_sent += 1
    tables.inbox[tables.inbox_sent] = InboxRow(
        id="bad", partition=partition_of(execution_id), execution_id=execution_id, body=b'{"fact":1}'
    )
    (listed,) = await letters(stage)
    assert (listed.source, listed.subject) == ("inbox", "inbox")
    await stage.cluster.requeue(listed.id, "alice")
    (again,) = await letters(stage)
    assert again.source == "inbox" and again.id != listed.id


async def test_a_letter_that_was_not_kept_whole_cannot_be_requeued(stage: OperationsStage) -> None:
    await publish(stage, b"x" * (1024 * 1024 + 1))
    (listed,) = await letters(stage)
    with pytest.raises(Conflict, match="were stored"):
        await stage.cluster.requeue(listed.id, "alice")
    await stage.cluster.discard(listed.id, "alice")


async def test_a_message_of_no_execution_cannot_be_requeued(stage: OperationsStage) -> None:
    stage.broker.event_log.store_stray(0, "no!one", b"bad")
    (listed,) = await letters(stage)
    with pytest.raises(Conflict, match="belongs to no execution"):
        await stage.cluster.requeue(listed.id, "alice")


async def test_a_command_that_was_given_up_is_retried_with_its_execution_only(stage: OperationsStage) -> None:
    started = await stage.executions.start(Start(playbook=LONG), BY)
    (listed,) = await command_letters(stage, started.execution_id)
    assert listed.execution_id == started.execution_id
    with pytest.raises(Conflict, match="has failed, so a copy would be dropped") as refused:
        await stage.cluster.requeue(listed.id, "alice")
    assert started.execution_id in str(refused.value.hint)
    await stage.cluster.discard(listed.id, "alice")


async def command_letters(stage: OperationsStage, execution_id: str) -> list[DeadLetterDocument]:
    """Lets every lease of the one command run out, as if worker after worker had died."""
    queue = stage.broker.command_queue
    async with asyncio.timeout(600):
        while (await stage.executions.get(execution_id)).status != "failed":
            queue.forget_unacked()
            await stage.clock.sleep(3)
    return await letters(stage)
