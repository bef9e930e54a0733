"""Files of executions over HTTP: whole, or visibly not (LANGUAGE §10 *Files and tables*)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from aiohttp import ClientPayloadError
from gateway_playbooks import LOOP
from gateway_stage import TOKEN, GatewayStage

from noetl_stream.adapters.gateway_client.connection import GatewayConnection
from noetl_stream.adapters.gateway_client.verbs import gateway_operations
from noetl_stream.errors import NotFound, Unreachable
from noetl_stream.ports.operations.executions import Start
from noetl_stream.sealing.data_references import PART_BYTES, DataReference, sealed_for
from noetl_stream.sealing.keys import KEY_BYTES
from noetl_stream.storage.data_parts import write_parts
from noetl_stream_client import AsyncClient
from noetl_stream_client import NotFound as NotFoundThere
from noetl_stream_client import Unreachable as UnreachableThere
from noetl_testkit.keys import OBJECT_KEYS

CONTENT = bytes(range(256)) * (3 * PART_BYTES // 512)  # a part and a half


@pytest.fixture
async def file(stage: GatewayStage) -> tuple[str, DataReference]:
    """An execution, and the reference of a file in it."""
    execution_id = (await stage.operations.executions.start(Start(playbook=LOOP), "test")).execution_id

    async def pieces() -> AsyncIterator[bytes]:
        yield CONTENT

    key = b"k" * KEY_BYTES
    written = await write_parts(pieces(), f"{execution_id}/c/1.1.n/0/", key, stage.broker.blobs.put)
    about: dict[str, Any] = {"name": 'a "naïve"\n.csv', "media_type": "text/html"}
    reference = DataReference(written.parts.key, written.size, written.checksum, "", **about)
    return execution_id, sealed_for(reference, key, OBJECT_KEYS.ring(execution_id))


def query(reference: DataReference, **changed: str) -> dict[str, str]:
    return {name: str(getattr(reference, name)) for name in ("key", "size", "checksum", "seal", "name")} | changed


async def test_a_file_is_downloaded_as_what_no_browser_shows(
    stage: GatewayStage, file: tuple[str, DataReference]
) -> None:
    execution_id, reference = file
    async with stage.client.get(f"/api/v1/executions/{execution_id}/file", params=query(reference)) as answer:
        assert (answer.status, await answer.read()) == (200, CONTENT)
        assert answer.headers["Content-Type"] == "application/octet-stream"
        assert answer.headers["Content-Disposition"] == "attachment; filename*=UTF-8''a%20%22na%C3%AFve%22%0A.csv"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Content-Length"] == str(len(CONTENT))


@pytest.mark.parametrize("changed", [{"seal": "AAAA"}, {"size": "5"}, {"checksum": "sha256:00"}, {"key": "x/parts-1"}])
async def test_a_file_that_its_seal_does_not_open_is_not_found(
    stage: GatewayStage, file: tuple[str, DataReference], changed: dict[str, str]
) -> None:
    execution_id, reference = file
    params = query(reference, **changed)
    async with stage.client.get(f"/api/v1/executions/{execution_id}/file", params=params) as answer:
        assert answer.status == 404
        assert (await answer.json())["detail"].endswith("has no such file: its reference opens nothing")


async def test_another_execution_opens_nothing(stage: GatewayStage, file: tuple[str, DataReference]) -> None:
    other = (await stage.operations.executions.start(Start(playbook=LOOP), "test")).execution_id
    async with stage.client.get(f"/api/v1/executions/{other}/file", params=query(file[1])) as answer:
        assert answer.status == 404


@pytest.mark.parametrize("number", [0, 1])
async def test_a_lost_part_is_noticed(stage: GatewayStage, file: tuple[str, DataReference], number: int) -> None:
    execution_id, reference = file
    await stage.broker.blobs.delete(f"{execution_id}/c/1.1.n/0/{number}")
    connection = GatewayConnection(stage.url, TOKEN, stage.clock)
    executions = gateway_operations(connection).executions
    try:
        if number == 0:
            with pytest.raises(NotFound, match="is lost"):
                await executions.file(execution_id, reference)
            return
        pieces = await executions.file(execution_id, reference)
        with pytest.raises(Unreachable, match="broke"):
            [piece async for piece in pieces]
        async with stage.client.get(f"/api/v1/executions/{execution_id}/file", params=query(reference)) as answer:
            with pytest.raises(ClientPayloadError):
                await answer.read()
    finally:
        await connection.close()


async def test_the_python_client_downloads_a_file(stage: GatewayStage, file: tuple[str, DataReference]) -> None:
    execution_id, reference = file
    value, got = msgspec.to_builtins(reference), bytearray()
    async with AsyncClient(stage.url, TOKEN) as client:
        execution = client.execution(execution_id)
        await execution.download(value, got.extend)
        assert bytes(got) == CONTENT
        with pytest.raises(NotFoundThere):
            await execution.download({**value, "seal": "AAAA"}, got.extend)
        await stage.broker.blobs.delete(f"{execution_id}/c/1.1.n/0/1")
        with pytest.raises(UnreachableThere):
            await execution.download(value, got.extend)
