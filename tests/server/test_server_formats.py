"""Messages of other versions: each says its format, and a newer one waits for a newer server (PROTOCOL §5 *Poison*)."""

from __future__ import annotations

import pytest
from server_stage import ONE_STEP, Stage
from waiting_stage import EXECUTION

from noetl_stream.errors import NotReady
from noetl_stream.model import codec
from noetl_stream.model.events import CancelRequested, ExecutionRequested
from noetl_stream.model.ids import partition_of
from noetl_stream.model.messages import FORMAT, InboxMessage, Request
from noetl_stream.ports.store import InboxRow
from noetl_stream.testing.keys import SIGNER

NEWER = FORMAT + 1


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
async def test_a_message_of_a_newer_format_waits_for_a_newer_server(stage: Stage, known: bool) -> None:
    await stage.server()
    request = Request(EXECUTION, "request-1", ExecutionRequested("request-1", "digest"), format=NEWER)
    body = SIGNER.encode(request) if known else b'{"type":"request","format":%d,"fact":{"name":"new"}}' % NEWER
    await stage.broker.event_log.publish_request(EXECUTION, "request-1", body)
    await stage.pass_time(1)
    (letter,) = await stage.store.real.dead_letters.page(10, None)
    reads = f"it has format {NEWER}, this server reads up to {FORMAT}: put it back after an upgrade"
    assert letter.row.reason == reads


async def test_a_server_stops_at_a_message_that_a_newer_server_has_sent(stage: Stage) -> None:
    message = InboxMessage(EXECUTION, CancelRequested("order", "", "why"), NEWER)
    row = InboxRow(id="one", partition=partition_of(EXECUTION), execution_id=EXECUTION, body=codec.encode(message))
    stage.store.real.tables.inbox[1] = row
    _, _, task = stage.start_server()
    with pytest.raises(NotReady, match=f"it has format {NEWER}"):
        await task
    assert await stage.store.real.owner_count() == 0, "another server may take its partitions"
    assert len(stage.store.real.tables.inbox) == 1
