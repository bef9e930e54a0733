"""Messages of other versions: each says its format, and a newer one waits for a newer server (PROTOCOL §5 *Poison*)."""

from __future__ import annotations

import pytest
from server_stage import ONE_STEP, Stage
from waiting_stage import EXECUTION

from noetl_stream.errors import NotReady
from noetl_stream.model.events import CancelRequested, ExecutionRequested, ExecutionStarted
from noetl_stream.model.ids import PARTITIONS, digest_of, partition_of
from noetl_stream.model.json import codec
from noetl_stream.model.messages import AGGREGATES_FORMAT, FORMAT, InboxMessage, Request
from noetl_stream.ports.stores.store import InboxRow
from noetl_stream.protocol.subjects import playbook_key
from noetl_stream.server.formats import LOWEST_WRITTEN
from noetl_stream.server.ownership.partitions import LEFT_S
from noetl_testkit.keys import SIGNER

NEWER = AGGREGATES_FORMAT + 1
PARTITION = partition_of(EXECUTION)
OTHER = next(name for name in map("other-{}".format, range(99)) if partition_of(name) != PARTITION)


async def known_newer_server(stage: Stage) -> None:
    """There has been a server that reads more than those of now."""
    await stage.store.real.appear("newer", "9.0.0", NEWER, 0.0)


async def started_in(stage: Stage, execution_id: str) -> int:
    """The format in which an execution was started."""
    (started,) = [fact for fact in await stage.facts(execution_id) if isinstance(fact, ExecutionStarted)]
    return started.format


async def test_every_message_that_is_kept_says_its_format(stage: Stage) -> None:
    await stage.server()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    worker = await stage.manual_worker()
    command, delivery = await worker.take()
    stage.start_worker()
    delivery.nak()
    await stage.ended(EXECUTION)
    kept = [one.message.body for one in stage.broker.event_log.stored]
    assert command.format == FORMAT
    assert len(kept) >= 4
    written = f'"format":{FORMAT}'.encode()
    assert [body for body in kept if written not in body] == [kept[0]], "the request, which this test has written"


@pytest.mark.parametrize("known", [True, False], ids=["that is read", "that cannot be read"])
async def test_a_message_of_a_format_that_no_server_reads_waits_as_a_dead_letter(stage: Stage, known: bool) -> None:
    await stage.server()
    request = Request(EXECUTION, "request-1", ExecutionRequested("request-1", "digest"), format=NEWER)
    body = SIGNER.encode(request) if known else b'{"type":"request","format":%d,"fact":{"name":"new"}}' % NEWER
    await stage.broker.event_log.publish_request(EXECUTION, "request-1", body)
    await stage.pass_time(1)
    (letter,) = await stage.store.real.dead_letters.page(10, None)
    reads = f"it has format {NEWER}, this server reads up to {AGGREGATES_FORMAT}: put it back after an upgrade"
    assert letter.row.reason == reads


async def test_a_message_of_a_newer_format_waits_in_its_partition_for_a_newer_server(stage: Stage) -> None:
    await known_newer_server(stage)
    older = await stage.server()
    await stage.blobs.put(playbook_key(digest_of(ONE_STEP)), ONE_STEP.encode())
    fact = ExecutionRequested("request-1", digest_of(ONE_STEP), "tests/server")
    await stage.requests.publish(Request(EXECUTION, "request-1", fact, format=NEWER))
    stage.start_worker()
    await stage.request(OTHER, "request-2", ONE_STEP)
    await stage.ended(OTHER)
    await stage.until(lambda: PARTITION not in older.ownership.ids)
    await stage.pass_time(2 * LEFT_S)
    assert EXECUTION not in stage.tables.executions
    assert await stage.store.real.dead_letters.page(10, None) == []
    await stage.server(reads=NEWER)
    await stage.ended(EXECUTION)


async def test_an_inbox_message_of_a_newer_format_waits_for_a_newer_server(stage: Stage) -> None:
    message = InboxMessage(EXECUTION, CancelRequested("order", "", "why"), NEWER)
    row = InboxRow(id="one", partition=PARTITION, execution_id=EXECUTION, body=codec.encode(message))
    stage.store.real.tables.inbox[1] = row
    older = await stage.server()
    await stage.until(lambda: len(older.ownership) == PARTITIONS - 1)
    assert PARTITION not in older.ownership.ids
    assert len(stage.store.real.tables.inbox) == 1
    await stage.server(reads=NEWER)
    await stage.until(lambda: not stage.store.real.tables.inbox)


async def test_an_execution_that_a_newer_server_has_begun_waits_for_one(stage: Stage) -> None:
    newer, _, task = stage.start_server(reads=NEWER)
    worker = await stage.manual_worker()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await worker.take()
    newer.stop()
    await task
    older = await stage.server()
    await stage.until(lambda: len(older.ownership) == PARTITIONS - 1)
    assert PARTITION not in older.ownership.ids


async def test_facts_are_written_in_the_lowest_format_of_the_living_servers(stage: Stage) -> None:
    _, _, older = stage.start_server()
    newer = await stage.server(reads=NEWER)
    await stage.until(lambda: len(newer.ownership) == PARTITIONS // 2)
    stage.start_worker()
    execution_ids = [f"beside-{number}" for number in range(8)]
    for execution_id in execution_ids:
        await stage.request(execution_id, execution_id, ONE_STEP)
    for execution_id in execution_ids:
        await stage.ended(execution_id)
    assert {record.format for record in stage.records()} == {FORMAT}
    assert {await started_in(stage, execution_id) for execution_id in execution_ids} == {FORMAT}
    older.cancel()
    await stage.until(lambda: newer.formats.writes == NEWER)
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.until(lambda: EXECUTION in stage.tables.executions)
    assert await started_in(stage, EXECUTION) == NEWER
    assert {record.format for record in stage.records() if record.execution == EXECUTION} == {NEWER}


async def test_a_server_does_not_start_beside_one_that_cannot_read_what_it_writes(stage: Stage) -> None:
    await stage.store.real.appear("ancient", "0.2.0", LOWEST_WRITTEN - 1, 5.0)
    _, _, task = stage.start_server()
    with pytest.raises(NotReady, match=r"still run, this one writes 2 and later: ancient \(version 0\.2\.0\)"):
        await task
    await stage.pass_time(5)
    await stage.server()
