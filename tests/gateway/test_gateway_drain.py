"""Gateways that are replaced one after the other behind a load balancer: no connection is refused."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import cycle
from typing import Any
from urllib.parse import urlsplit

import pytest
from gateway_stage import GatewayStage

from noetl_stream.concurrency import end_tasks
from noetl_stream.gateway.gateway import Gateway
from noetl_stream.settings.gateway_settings import GatewayLimits

LONG_S = 3600


class Balancer:
    """Sends each request, on a connection of its own, to the next gateway that was ready when last probed.

    Attributes:
        answered: Requests answered, by the address of the gateway and its header ``Connection``.
        failed: Why the others were not answered.
    """

    def __init__(self) -> None:
        self.ready: dict[str, bool] = {}
        self.answered: Counter[tuple[str, str]] = Counter()
        self.failed: list[str] = []

    async def probe(self) -> None:
        for url in [*self.ready]:
            try:
                head = await asked(url, "/readyz")
            except OSError:
                head = ""
            self.ready[url] = " 200 " in head.partition("\r\n")[0]

    async def send_requests(self) -> None:
        """Sends one request after the other, until it is cancelled."""
        for turn in cycle(range(2)):
            ready = [url for url, is_ready in self.ready.items() if is_ready]
            url = ready[turn % len(ready)]
            try:
                head = await asked(url, "/livez")
            except OSError as error:
                self.failed.append(f"{url}: {error!r}")
            else:
                self.answered[url, "close" if "Connection: close" in head else "keep"] += 1
            await asyncio.sleep(0)


async def asked(url: str, path: str) -> str:
    """The head of the answer to a request on a new connection."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return (await reader.readuntil(b"\r\n\r\n")).decode()
    except asyncio.IncompleteReadError as error:
        raise ConnectionResetError("closed without an answer") from error
    finally:
        writer.close()


@asynccontextmanager
async def balanced(balancer: Balancer) -> AsyncIterator[None]:
    sending = asyncio.create_task(balancer.send_requests())
    yield
    await end_tasks([sending])


async def test_no_connection_is_refused_while_gateways_are_replaced_in_turn() -> None:
    balancer = Balancer()
    async with AsyncExitStack() as stack:

        async def add() -> GatewayStage:
            stage = GatewayStage(GatewayLimits(stop_delay_s=LONG_S))
            await stack.enter_async_context(stage.open())
            balancer.ready[stage.url] = False
            await balancer.probe()
            assert balancer.ready[stage.url]
            return stage

        old = [await add(), await add()]
        async with balanced(balancer):
            for stage in old:
                await add()
                await stage.until(lambda url=stage.url: balancer.answered[url, "keep"] > 3)
                stage.gateway.drain()
                await stage.until(lambda url=stage.url: balancer.answered[url, "close"] > 3)
                await balancer.probe()
                assert not balancer.ready[stage.url]
                await ended(stage.gateway)
                before = balancer.answered.total()
                await stage.until(lambda before=before: balancer.answered.total() > before + 3)
    assert balancer.failed == []


async def ended(gateway: Gateway) -> None:
    """Ends the delay, as a second signal does."""
    gateway.drain()
    await asyncio.sleep(0)


async def test_calls_in_progress_complete_and_idle_connections_are_asked_to_close() -> None:
    async with GatewayStage(GatewayLimits(stop_delay_s=LONG_S)).open() as stage:
        async with stage.client.get("/api/v1/executions") as before:
            assert "Connection" not in before.headers
        stage.gateway.drain()
        async with stage.client.get("/api/v1/executions") as during:
            assert (during.status, during.headers["Connection"]) == (200, "close")
        async with stage.client.get("/readyz") as ready:
            assert (ready.status, await ready.json()) == (503, {"ready": False, "missing": ["it is stopping"]})
        assert await stage.gateway.status.reasons_not_ready() == ("it is stopping",)


@pytest.mark.parametrize("delay_s", [0, 0.01])
async def test_a_gateway_stops_listening_when_the_delay_has_passed(delay_s: Any) -> None:
    async with GatewayStage(GatewayLimits(stop_delay_s=delay_s)).open() as stage:
        address = urlsplit(stage.url)
        stage.gateway.drain()

        async def refuses() -> bool:
            try:
                _, writer = await asyncio.open_connection(address.hostname, address.port)
            except ConnectionRefusedError:
                return True
            writer.close()
            return False

        await stage.until(refuses)
        assert await stage.gateway.status.reasons_not_ready() == ("it is stopping",)
