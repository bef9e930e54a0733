"""Servers and workers of this process on a real nats-server and a real Postgres, which a test may damage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import asyncpg
from msgspec.structs import replace

from nats_process import NatsServer
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.errors import NoetlError
from noetl_stream.hosting import maintenance
from noetl_stream.ports.stores.store import ExecutionRow
from noetl_stream.sealing.keys import new_key
from noetl_stream.wiring.endpoint import Endpoint
from noetl_stream.wiring.operations import make_client
from noetl_stream.wiring.role_assembly import make_server, make_worker
from noetl_stream.wiring.stores import Connected, connect, connect_to_nats
from noetl_testkit.following import Submission, submit

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
LARGE = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: large, path: tests/large}
workflow:
  - step: large
    tool:
      - {name: made, kind: noop, args: {text: "{{ 'large ' * 20000 }}"}}
      - {name: rest, kind: wait, for_s: 1}
      - {name: read, kind: noop, args: {length: "{{ made.text | length }}"}}
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
            connected = await connect(self.endpoint, name="test-server", nats_wait_s=TIMEOUT_S)
            leaving.push_async_callback(connected.close)
            ports = await connect_to_nats(self.endpoint, name="test-worker", nats_wait_s=TIMEOUT_S)
            leaving.push_async_callback(ports.close)
            server = make_server(connected, self.endpoint)
            hosted = make_worker(ports, self.endpoint, pool="default", slots=4)
            leaving.push_async_callback(hosted.close)
            serving, working = asyncio.create_task(server.run()), asyncio.create_task(hosted.worker.run())
            yield connected
            assert not serving.done(), serving
            assert not working.done(), working
            hosted.worker.drain()
            await working
            server.stop()
            await serving

    async def submit(self, connected: Connected, playbook: str = WAITING, path: str = "tests/patient") -> str:
        client = make_client(connected)
        submission = Submission.new(playbook, path, {}, connected.clock)
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                follower = await client.follow(submission.execution_id).open()
                try:
                    await submit(client, submission, follower)
                    return submission.execution_id
                except NoetlError:
                    await asyncio.sleep(0.2)
                finally:
                    await follower.close()

    async def ended(self, connected: Connected, execution_id: str, status: str = "completed") -> ExecutionRow:
        async with asyncio.timeout(TIMEOUT_S):
            while (row := await connected.store.execution(execution_id)) is None or row.finished_ms is None:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            assert row.status == status, row
            return row

    async def agree(self) -> None:
        """Waits until `database verify` finds nothing."""
        async with asyncio.timeout(TIMEOUT_S):
            while await maintenance.compare_stores(self.endpoint):  # noqa: ASYNC110
                await asyncio.sleep(0.2)

    async def is_whole_in_events(self) -> bool:
        """Whether EVENTS alone gives what Postgres holds. No server runs."""
        await self.agree()
        empty = await self.database("rebuilt", "migrated")
        await maintenance.rebuild_database(replace(self.endpoint, postgres_dsn=empty))
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
