"""A real nats-server and a real Postgres that lose what they held, under a server and a worker (PROTOCOL §5)."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from nats_process import NatsServer
from noetl_stream import wiring
from noetl_stream.adapters.nats.connection import NatsConnection
from noetl_stream.adapters.nats.streams import ensure_streams
from noetl_stream.client.executions.submit import Submission
from noetl_stream.endpoint import Endpoint
from noetl_stream.errors import NoetlError
from noetl_stream.ports.store import ExecutionRow
from noetl_stream.ports.subjects import EVENTS, RESULTS
from noetl_stream.sealing.keys import new_key
from noetl_stream.wiring import Connected

TIMEOUT_S = 60
WAITING = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: patient, path: tests/patient}
workflow:
  - step: patient
    tool:
      - {name: before, kind: noop, args: {text: kept}}
      - {name: rest, kind: wait, for_s: 2}
      - {name: after, kind: noop, args: {text: "{{ before.text }}"}}
"""
JOURNALS = """
    select execution_id, position, source, at_ms, step_run_id, report_id, number, data::text, decisions::text
    from noetl.event order by execution_id, position
"""
EXECUTIONS = """
    select execution_id, status, position, started_ms, finished_ms, result::text, ctx::text
    from noetl.execution order by execution_id
"""


class RealStack:
    """Servers and workers of this process, on stores that the test damages."""

    def __init__(self, nats: NatsServer, postgres: Any, dsn: str) -> None:
        self.nats = nats
        self.postgres = postgres
        self.endpoint = Endpoint(nats.url, dsn, {}, server_keys=(new_key(),), access_keys=(new_key(),))

    async def admin(self, work: Callable[[NatsConnection], Any]) -> None:
        connection = await NatsConnection.open(self.nats.url, name="test", connect_timeout_s=10)
        try:
            await work(connection)
        finally:
            await connection.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Connected]:
        """A server and a worker at work; fails if one ends by itself."""
        async with AsyncExitStack() as leaving:
            connected = await wiring.connect(self.endpoint, name="test-server", nats_wait_s=10)
            leaving.push_async_callback(connected.close)
            ports = await wiring.connect_to_nats(self.endpoint, name="test-worker", nats_wait_s=10)
            leaving.push_async_callback(ports.close)
            server = wiring.make_server(connected, self.endpoint)
            hosted = wiring.make_worker(ports, self.endpoint, pool="default", slots=4)
            leaving.push_async_callback(hosted.close)
            serving, working = asyncio.create_task(server.run()), asyncio.create_task(hosted.worker.run())
            yield connected
            assert not serving.done(), serving
            assert not working.done(), working
            hosted.worker.drain()
            await working
            server.stop()
            await serving

    async def submit(self, connected: Connected) -> str:
        client = wiring.make_client(connected)
        submission = Submission.new(WAITING, "tests/patient", {}, connected.clock)
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                follower = await client.follow(submission.execution_id).open()
                try:
                    await client.submit(submission, follower)
                    return submission.execution_id
                except NoetlError:
                    await asyncio.sleep(0.2)
                finally:
                    await follower.close()

    async def ended(self, connected: Connected, execution_id: str) -> ExecutionRow:
        async with asyncio.timeout(TIMEOUT_S):
            while (row := await connected.store.execution(execution_id)) is None or row.finished_ms is None:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            assert row.status == "completed", row
            return row

    async def agree(self) -> None:
        """Waits until `database verify` finds nothing."""
        async with asyncio.timeout(TIMEOUT_S):
            while await wiring.compare_stores(self.endpoint):  # noqa: ASYNC110
                await asyncio.sleep(0.2)

    async def is_whole_in_events(self) -> bool:
        """Whether EVENTS alone gives what Postgres holds. No server runs."""
        await self.agree()
        empty = await self.database("rebuilt", "migrated")
        await wiring.rebuild_database(replace(self.endpoint, postgres_dsn=empty))
        pairs = [
            (await rows(dsn, JOURNALS), await rows(dsn, EXECUTIONS)) for dsn in (empty, self.endpoint.postgres_dsn)
        ]
        return pairs[0] == pairs[1]

    async def database(self, name: str, template: str) -> str:
        """A copy of a database that nobody uses."""
        await self.postgres.execute(
            f"drop database if exists {name} with (force)",
            f"create database {name} template {template} strategy file_copy",
        )
        return self.postgres.dsn(name)


async def rows(dsn: str | None, query: str) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(dsn)
    try:
        return [tuple(row) for row in await connection.fetch(query)]
    finally:
        await connection.close()


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path)
    server.start()
    yield server
    server.end()


@pytest.fixture
async def stack(nats: NatsServer, postgres_server: Any, dsn: str) -> RealStack:
    real = RealStack(nats, postgres_server, dsn)
    await real.admin(ensure_streams)
    return real


async def deleted(stack: RealStack, stream: str) -> None:
    await stack.admin(lambda connection: connection.api(f"STREAM.DELETE.{stream}"))


async def test_events_deleted_under_a_server_is_made_good_once_it_exists_again(stack: RealStack) -> None:
    async with stack.running() as connected:
        old = await stack.submit(connected)
        await stack.ended(connected, old)
        living = await stack.submit(connected)
        await deleted(stack, EVENTS)
        await asyncio.sleep(0)
        await stack.admin(ensure_streams)
        await stack.ended(connected, living)
        await stack.ended(connected, await stack.submit(connected))
        await stack.agree()
    assert await stack.is_whole_in_events()


async def test_the_tail_of_events_cut_off_is_made_good(stack: RealStack, tmp_path: Path) -> None:
    data, saved = tmp_path / "nats-data", tmp_path / "saved"
    async with stack.running() as connected:
        await stack.ended(connected, await stack.submit(connected))
        await stack.agree()
        stack.nats.pause()
        shutil.copytree(data, saved)
        stack.nats.resume()
        await stack.ended(connected, await stack.submit(connected))
        living = await stack.submit(connected)
        stack.nats.kill()
        shutil.rmtree(data)
        saved.rename(data)
        stack.nats.start()
        await stack.ended(connected, living)
        await stack.ended(connected, await stack.submit(connected))
    assert await stack.is_whole_in_events()


async def test_a_postgres_put_back_from_a_dump_catches_up(stack: RealStack) -> None:
    async with stack.running() as connected:
        await stack.ended(connected, await stack.submit(connected))
        await stack.agree()
    name = str(stack.endpoint.postgres_dsn).split("/")[3].split("?")[0]
    dump = await stack.database("dump", name)
    async with stack.running() as connected:
        late = await stack.submit(connected)
        await stack.ended(connected, late)
        living = await stack.submit(connected)
    journal = await rows(stack.endpoint.postgres_dsn, JOURNALS)
    stack.endpoint = replace(stack.endpoint, postgres_dsn=dump)
    async with stack.running() as connected:
        await stack.ended(connected, late)
        await stack.ended(connected, living)
        await stack.agree()
    assert set(journal) <= set(await rows(dump, JOURNALS))
    assert await stack.is_whole_in_events()


async def test_the_object_store_deleted_is_waited_out(stack: RealStack) -> None:
    async with stack.running() as connected:
        await stack.ended(connected, await stack.submit(connected))
        await deleted(stack, RESULTS)
        task = asyncio.create_task(stack.submit(connected))
        await asyncio.sleep(0)
        assert not task.done()
        await stack.admin(ensure_streams)
        await stack.ended(connected, await task)
    assert await stack.is_whole_in_events()
