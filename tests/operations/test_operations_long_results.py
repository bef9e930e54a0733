"""A long result of an execution is decoded beside the loop of who shows it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.model.json import codec, values
from noetl_stream.model.outcome import Payload, Reference
from noetl_stream.operations.executions.reading.documents import loaded
from noetl_testkit.memory.broker import StagedBroker
from noetl_testkit.memory.store import StagedStore


def test_a_long_result_is_read_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()
    nests_deeper = values.nests_deeper

    def looking(data: bytes, most: int) -> bool:
        threads.add(threading.get_ident())
        return nests_deeper(data, most)

    monkeypatch.setattr(codec, "nests_deeper", looking)
    value = [{"n": n, "text": "some text"} for n in range(20_000)]
    clock = ManualClock()
    data, blobs = codec.encode(value), StagedBroker(clock).blobs
    payload = Payload(reference=Reference("nats", "some/key", len(data)))

    async def reads() -> Any:
        await blobs.put("some/key", data)
        return await loaded(payload, StagedStore(clock), blobs, lambda _reference, data: data, of="it")

    assert asyncio.run(reads()) == value
    assert threads and threading.get_ident() not in threads
