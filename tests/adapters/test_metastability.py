"""Whether publishing recovers from a JetStream that was slow or away, on simulated time: goodput is back once it is
well again (PROTOCOL §2 *Resends*). ``benchmarks/metastability.py`` asks the same of real processes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from itertools import count
from types import SimpleNamespace
from typing import Any, Final

import msgspec
import pytest

from noetl_stream.adapters.nats.outbox import MESSAGE_ID, HeldBatch, Outbox
from noetl_stream.adapters.simulated_time import SimulatedLoop

RATE: Final = 2_000
"""The messages that JetStream stores per second when it is well."""

QUEUE: Final = 10_000
"""It drops what exceeds it."""

STEP_S: Final = 0.01
SLOWED: Final = 0.1
BODY: Final = b"x" * 400
HELD: Final = 30_000
"""The unacknowledged messages at which a server stops folding and the doors shed."""

BEFORE_S, LASTS_S, WITHIN_S, WATCHED_S = 5.0, 60.0, 10.0, 5.0


class JetStream:
    """A connection to a JetStream that stores so many messages per second, in the order in which they come."""

    def __init__(self) -> None:
        self.part = 1.0
        self.stored: set[str] = set()
        self.dropped = 0
        self._queue: deque[tuple[str, str]] = deque()
        self._receive: Any = None
        self.client = SimpleNamespace(new_inbox=lambda: "inbox")
        self.refusals = SimpleNamespace(on_publish=[], forget=lambda *_: None)
        self.wire = self
        self.is_connected = True
        self.max_payload = 1 << 20

    async def subscribe(self, _subject: str, receive: Any) -> Any:
        self._receive = receive
        return self

    def on_lost(self, _call: Any) -> None: ...

    on_restored = on_ended = on_lost

    def send(self, _subject: str, _body: bytes, reply: str, headers: Mapping[str, str]) -> None:
        if len(self._queue) < QUEUE:
            self._queue.append((reply, headers[MESSAGE_ID]))
        else:
            self.dropped += 1

    async def run(self) -> None:
        owed = 0.0
        for sequence in count(1):
            await asyncio.sleep(STEP_S)
            owed = owed + RATE * STEP_S * self.part if self._queue else 0.0
            while owed >= 1 and self._queue:
                owed -= 1
                reply, message_id = self._queue.popleft()
                is_duplicate = message_id in self.stored
                self.stored.add(message_id)
                ack = {"stream": "EVENTS", "seq": sequence, "duplicate": is_duplicate}
                self._receive(reply.encode(), b"", b"", msgspec.json.encode(ack))


async def load(outbox: Outbox, jetstream: JetStream, rate: float) -> None:
    """Publishes so many messages per second; while too many are held, they are shed."""
    published, owed = 0, 0.0
    while True:
        await asyncio.sleep(STEP_S)
        owed += rate * STEP_S
        batch = HeldBatch(outbox, 0)
        while owed >= 1:
            owed -= 1
            if published - len(jetstream.stored) < HELD:
                published += 1
                batch.put("noetl.events", BODY, f"message-{published}")
        batch.seal()


async def goodput(jetstream: JetStream, seconds: float) -> float:
    before = len(jetstream.stored)
    await asyncio.sleep(seconds)
    return (len(jetstream.stored) - before) / seconds


async def stormed(times: float, part: float) -> tuple[float, float, int]:
    """The messages that are stored per second before a trigger, and from some seconds after its end; and how many
    JetStream has dropped.
    """
    jetstream = JetStream()
    outbox = await Outbox.open(jetstream, resend_after_s=2.0, leader_wait_s=15.0)  # type: ignore[arg-type]
    tasks = [asyncio.create_task(jetstream.run()), asyncio.create_task(load(outbox, jetstream, times * RATE / 2))]
    await asyncio.sleep(BEFORE_S)
    before = await goodput(jetstream, BEFORE_S)
    jetstream.part = part
    await asyncio.sleep(LASTS_S)
    jetstream.part = 1.0
    await asyncio.sleep(WITHIN_S)
    after = await goodput(jetstream, WATCHED_S)
    for task in tasks:
        task.cancel()
    return before, after, jetstream.dropped


def in_simulated_time(times: float, part: float) -> tuple[float, float, int]:
    loop = SimulatedLoop()
    try:
        return loop.run_until_complete(stormed(times, part))
    finally:
        loop.close()


@pytest.mark.parametrize("times", [1, 2, 5])
@pytest.mark.parametrize("part", [SLOWED, 0.0])
def test_goodput_is_back_ten_seconds_after_jetstream_is_well_again(times: float, part: float) -> None:
    before, after, dropped = in_simulated_time(times, part)
    assert before > 0.9 * min(RATE, times * RATE / 2)
    assert after > 0.9 * before
    assert dropped == 0
