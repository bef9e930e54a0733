"""Requests to a JetStream that does not answer, in simulated time."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise

from nats.aio.msg import Msg

from noetl_stream.adapters.nats.connections.connection import API_TIMEOUT_S, MAX_AGAIN, NatsConnection
from noetl_stream.adapters.simulated_time import SimulatedLoop
from noetl_stream.errors import Unreachable
from noetl_stream.retries import FLOOR_MESSAGES_PER_S, SHARE


class SilentConnection(NatsConnection):
    """A connection that nobody answers on. ``asked`` is when each subject was asked."""

    def __init__(self) -> None:
        super().__init__("nats://nowhere", "test", None, "")
        self.asked: list[tuple[str, float]] = []

    async def wait_connected(self, timeout_s: float) -> None:
        """Is connected."""

    async def request(self, subject: str, body: bytes, timeout_s: float) -> Msg | None:
        self.asked.append((subject, asyncio.get_running_loop().time()))
        await asyncio.sleep(timeout_s)
        raise TimeoutError


def asked_by(count: int) -> list[tuple[str, float]]:
    """When so many requests, made at once, were sent, until none waits any more."""

    async def ask() -> list[tuple[str, float]]:
        connection = SilentConnection()
        asking = [connection.api(f"STREAM.INFO.S{number}") for number in range(count)]
        assert all(isinstance(one, Unreachable) for one in await asyncio.gather(*asking, return_exceptions=True))
        return connection.asked

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(ask())


def test_a_request_is_sent_again_ever_later() -> None:
    asked = asked_by(1)
    waits_s = [later - earlier for (_, earlier), (_, later) in pairwise(asked)]
    assert len(waits_s) == 2
    assert waits_s[1] / waits_s[0] > 1.2


def test_many_requests_are_sent_again_within_the_budget() -> None:
    asked = asked_by(2_000)
    assert len(Counter(subject for subject, _ in asked)) == 2_000
    again = len(asked) - 2_000
    assert 0 < again <= MAX_AGAIN + SHARE * 2_000 + FLOOR_MESSAGES_PER_S * API_TIMEOUT_S
