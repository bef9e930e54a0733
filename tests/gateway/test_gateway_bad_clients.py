"""Callers who send what is no request, never end one, or leave in the middle of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest
from gateway_stage import TOKEN, GatewayStage
from yarl import URL

from noetl_stream.gateway.http import inputs as reading

AUTHORIZATION = f"Authorization: Bearer {TOKEN}\r\n".encode()
START = b"POST /api/v1/executions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


async def sent(stage: GatewayStage, text: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which this was sent."""
    url = URL(stage.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(text)
    await writer.drain()
    return reader, writer


async def until_counted(stage: GatewayStage, route: str, status: int) -> None:
    async def counted() -> bool:
        async with stage.client.get("/metrics") as response:
            return f'route="{route}",status="{status}"' in await response.text()

    await stage.until(counted)


async def test_a_body_that_does_not_come_is_refused_in_time(
    stage: GatewayStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BODY_S", 0.01)
    never = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b'{"path":'
        await never.wait()

    json = {"Content-Type": "application/json"}
    async with stage.client.post("/api/v1/executions", data=body(), headers=json) as response:
        assert response.status == 400
        assert "did not arrive within" in (await response.json(content_type=None))["detail"]
    assert stage.gateway.pressure.requests.under_way == 0


async def test_a_client_that_leaves_in_the_middle_of_a_body_is_not_an_internal_error(
    stage: GatewayStage, caplog: pytest.LogCaptureFixture
) -> None:
    _, writer = await sent(stage, START + AUTHORIZATION + b"Content-Length: 100\r\n\r\n{")
    await stage.until(lambda: stage.gateway.pressure.requests.under_way == 1)
    writer.close()
    await until_counted(stage, "startExecution", 400)
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize(
    "text",
    [
        START + b"Authorization: Bearer noetl_a_secret\x01\r\n\r\n",
        START + b"Authorization: Bearer noetl_a_secret" + b"x" * 9_000 + b"\r\n\r\n",
        b"GET /api/v1/executions/\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ],
)
async def test_bytes_that_are_not_http_are_refused_and_do_not_fill_the_log(
    stage: GatewayStage, caplog: pytest.LogCaptureFixture, text: bytes
) -> None:
    reader, writer = await sent(stage, text)
    assert (await reader.readline()).split()[1] == b"400"
    writer.close()
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert "noetl_a_secret" not in caplog.text
