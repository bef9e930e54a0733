"""A request whose refusal is heard before anybody is asked about it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from noetl_stream.adapters.simulated_time import simulated_clock
from noetl_stream.engine.decide.executions import refuse
from noetl_stream.model.events import ExecutionRequested
from noetl_stream.model.ids import partition_of
from noetl_stream.model.json import codec
from noetl_stream.model.messages import JournalRecord, RecordEntry, Request
from noetl_stream.operations.executions.submit import Client, RequestRefused, Requests
from noetl_stream.protocol import subjects
from noetl_testkit.keys import SIGNER
from noetl_testkit.memory.broker import StagedBroker

REQUEST = Request("execution-1", "request-1", ExecutionRequested("request-1", "digest"))


async def refusal_of_submission(diagnostics: list[dict[str, Any]]) -> RequestRefused:
    """What is said of a request whose refusal came over the bus."""
    broker = StagedBroker(simulated_clock())
    client = Client(Requests(broker.event_log, SIGNER), broker.blobs, broker.bus)
    follower = await client.follow("execution-1").open()
    partition = partition_of("execution-1")
    decisions = msgspec.Raw(codec.encode(list(refuse(diagnostics, "it has not failed"))))
    entries = [msgspec.Raw(codec.encode(RecordEntry("request-1", 0, 1, decisions)))]
    record = JournalRecord(
        execution="execution-1",
        first_position=2,
        entries=entries,
        through=1,
        partition=partition,
        tick=1,
        epoch=1,
    )
    broker.bus.send(subjects.decided(partition, "execution-1"), codec.encode(record))
    with pytest.raises(RequestRefused) as refused:
        await client.begin(REQUEST, follower)
    await follower.close()
    return refused.value


async def test_a_refused_request_has_the_code_of_its_answer() -> None:
    refused = await refusal_of_submission([{"code": "not_failed", "message": "it has not failed"}])
    assert (refused.message, refused.code) == ("it has not failed", "not_failed")


async def test_a_refused_playbook_has_diagnostics_and_no_code_of_its_own() -> None:
    refused = await refusal_of_submission([{"code": "unknown_key", "message": "what is this", "line": 3}])
    assert (refused.code, refused.diagnostics[0]["line"]) == ("", 3)
