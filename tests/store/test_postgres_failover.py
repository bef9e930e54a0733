"""Addresses with several hosts, and a primary that goes without a word while its standby is promoted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from nats_process import NatsServer
from noetl_stream.adapters.postgres.connections import hosts
from noetl_stream.adapters.postgres.connections.database import Database, open_connection, shown_address
from noetl_stream.adapters.postgres.connections.hosts import Connection, OverdueStatements, by_host
from noetl_stream.adapters.postgres.connections.own_connections import OwnConnection
from noetl_stream.adapters.postgres.schema.migrate import migrate
from noetl_stream.adapters.postgres.statements import compile_statement
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.errors import Unreachable, UsageError
from noetl_stream.ports.operations.executions import ExecutionFilter
from noetl_stream.ports.stores.idempotency import CHARGED, ChargedQueries
from noetl_stream.ports.stores.store import ExecutionRow
from noetl_stream.sealing.keys import new_key
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.wiring.endpoint import Endpoint
from noetl_stream.wiring.operations import DirectOperations
from noetl_stream.wiring.stores import connected_when_used
from noetl_testkit.conformance.store_rows import committed, execution_row, following
from noetl_testkit.waiting import TIMEOUT_S, until_it_is
from postgres_pair import PostgresPair, postgres_pair, sql
from slow_line import SlowLine

pytestmark = pytest.mark.xdist_group("own_stacks")


@pytest.fixture(scope="module")
def pair() -> Iterator[PostgresPair]:
    """The last test promotes the standby."""
    with postgres_pair() as found:
        yield found


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "OVERDUE_S", 0.2)
    monkeypatch.setattr(hosts, "LOOK_AGAIN_S", 0.1)


def test_an_address_with_several_hosts_is_shown_without_secrets_and_split_by_host() -> None:
    dsn = "postgresql://me:hunter2@one:5433,two,[::1]:5434/work?target_session_attrs=read-write"
    assert shown_address(dsn) == "postgresql://me@one:5433,two,[::1]:5434/work"
    assert by_host(dsn) == [
        f"postgresql://me:hunter2@{host}/work?target_session_attrs=read-write"
        for host in ("one:5433", "two", "[::1]:5434")
    ]
    with pytest.raises(UsageError, match="not a URL"):
        shown_address("postgresql://me@one,two:port/work")


@pytest.mark.parametrize("hosts", ["me@one,two/work", "me@/work?host=one,two", "me@one,two/w?target_session_attrs=any"])
def test_several_hosts_without_the_wish_for_the_primary_are_refused(hosts: str) -> None:
    with pytest.raises(UsageError, match=r"NOETL_POSTGRES_DSN names several hosts .*target_session_attrs=read-write"):
        Settings.from_environment({"NOETL_POSTGRES_DSN": f"postgresql://{hosts}", "NOETL_NATS_URL": "nats://x"})


async def test_the_primary_is_found_whichever_host_comes_first(pair: PostgresPair) -> None:
    there, back = pair.dsn(), f"postgresql://postgres@{pair.standby.host},{pair.primary.host}/postgres"
    for dsn in (there, f"{back}?sslmode=disable&target_session_attrs=primary"):
        await migrate(dsn)
        store = await PostgresStore.open(dsn, name="test")
        await store.verify()
        assert await store.durability_warnings() == [
            "Postgres has fsync = off: a power failure or failover may lose acknowledged work"
        ]
        await store.close()


async def test_standbys_alone_are_no_primary(pair: PostgresPair) -> None:
    dsn = f"postgresql://postgres@{pair.standby.host},{pair.standby.host}/postgres?target_session_attrs=read-write"
    with pytest.raises(Unreachable, match="no host is the primary"):
        await PostgresStore.open(dsn, name="test")


@pytest.mark.usefixtures("quick")
async def test_a_statement_that_takes_long_is_left_alone(pair: PostgresPair) -> None:
    looked = asyncio.Semaphore(0)

    async def look() -> Connection:
        looked.release()
        return await open_connection(pair.dsn(), "looks")

    async def expire() -> None:
        raise AssertionError("nothing is lost")

    connection, watch = await open_connection(pair.dsn(), "works"), OverdueStatements(look, "there", expire)
    with watch.watching(connection):
        working = asyncio.create_task(connection.fetchval("select pg_sleep(60)"))
        for _ in range(4):
            await looked.acquire()
        assert not working.done()
        working.cancel()
        await asyncio.wait([working])
    await watch.close()
    await connection.close()


def ended(execution_id: str) -> ExecutionRow:
    return execution_row(execution_id, status="completed", finished_ms=2_000, position=0)


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path)
    server.start()
    yield server
    server.end()


def reading(pair: PostgresPair, replica: str, nats_url: str = "nats://127.0.0.1:1") -> Endpoint:
    """The endpoint of a gateway that reads from ``replica``. Nothing is asked of its NATS but by who waits."""
    return Endpoint(nats_url, pair.dsn(), {}, access_keys=(new_key(),), postgres_read_dsn=replica)


async def names(endpoint: Endpoint, execution_id: str) -> tuple[list[str], str]:
    """The executions that a gateway lists, and the status of one."""
    async with connected_when_used(endpoint, name="test") as ports:
        executions = DirectOperations(ports, endpoint).executions
        page = await executions.page(ExecutionFilter(), 10, None)
        return [one.execution_id for one in page.items], (await executions.get(execution_id)).status


async def counted(endpoint: Endpoint) -> tuple[int, int]:
    """How many executions there are, as a gateway counts them: over time, and by path."""
    async with connected_when_used(endpoint, name="test") as ports:
        selections, ever = DirectOperations(ports, endpoint).selections, ExecutionFilter(started_from_ms=0)
        bars = await selections.histogram(ever, 10)
        groups = await selections.groups(ExecutionFilter(), "path")
        return sum(bars.counts.values()), sum(sum(one.counts.values()) for one in groups.items)


async def test_executions_are_read_from_the_replica_unless_it_does_not_know_them(
    pair: PostgresPair, nats: NatsServer
) -> None:
    await migrate(pair.dsn())
    store = await PostgresStore.open(pair.dsn(), name="test")
    before, after = (f"01900000-0000-7000-8000-00000000000{number}" for number in (1, 2))
    first = await committed(store, executions=[ended(before)])
    standby = await open_connection(pair.standby.dsn(), "replay")

    async def replayed() -> int:
        return int(await standby.fetchval("select count(*) from noetl.execution"))

    await until_it_is(1, replayed)
    sql(pair.standby, "select pg_wal_replay_pause()")
    await store.commit(following(first, executions=[ended(after)]))
    assert await names(reading(pair, pair.standby.dsn()), after) == ([before], "completed")
    assert await counted(reading(pair, pair.standby.dsn())) == (1, 1)
    for elsewhere in (pair.dsn(), "postgresql://postgres@127.0.0.1:1/postgres"):
        assert await names(reading(pair, elsewhere), after) == ([after, before], "completed")
        assert await counted(reading(pair, elsewhere)) == (2, 2)
    both = reading(pair, pair.standby.dsn(), nats.url)
    newer = replace(ended(before), status="failed", position=ended(before).position + 1)
    await store.commit(following(following(first), executions=[newer]))
    async with connected_when_used(both, name="test") as ports:
        executions = DirectOperations(ports, both).executions
        shown = await executions.get(before)
        assert (shown.status, shown.position) == ("completed", newer.position - 1), "and its position says so"
        assert (await executions.wait(before, 0.0)).status == "failed"
        assert (await executions.get(before)).status == "failed", "somebody has waited for it here"
    sql(pair.standby, "select pg_wal_replay_resume()")
    await standby.close()
    await store.close()


WRITE = compile_statement("insert into kept values (:number::int)")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("is_connected", [True, False])
async def test_a_gateway_does_not_wait_for_a_postgres_that_is_silent(pair: PostgresPair, is_connected: bool) -> None:
    sql(pair.primary, "create table if not exists kept (one int)")
    line = SlowLine(pair.primary.port, 0.0)
    await line.open()
    dsn = pair.primary.dsn().replace(pair.primary.host, f"127.0.0.1:{line.port}")
    database = await Database.open(dsn, "test", patience_s=1.0)
    if not is_connected:
        line.cut()
    token = CHARGED.set(ChargedQueries(asyncio.Semaphore(2), 3600.0))
    line.hold()
    asked = [database.fetch("now_ms") for _ in range(30)]
    asked += [database.fetch_statement(WRITE, {"number": number}) for number in range(30)]
    async with asyncio.timeout(TIMEOUT_S):
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(one) for one in answers] == [Unreachable] * 60, answers
        with pytest.raises(Unreachable, match="no answer in time"):
            await database.fetch("now_ms")
    CHARGED.reset(token)
    line.release()

    async def is_back() -> bool:
        with suppress(Unreachable):
            return bool(await database.fetch("now_ms"))
        return False

    await until_it_is(True, is_back)
    await database.close()
    await line.close()


@pytest.mark.usefixtures("quick")
async def test_a_primary_that_went_without_a_word_is_left_for_the_new_one(
    pair: PostgresPair,
) -> None:
    sql(pair.primary, "create table held as select 1 as one")
    database = await Database.open(pair.dsn(), "test", patience_s=60)
    own = OwnConnection(database, {})
    await own.use(lambda connection: connection.fetch("insert into held values (2)"))
    await database.fetch("now_ms")
    pair.primary.freeze()
    writing = asyncio.create_task(own.use(lambda connection: connection.fetch("insert into held values (3)")))
    reading = asyncio.create_task(database.fetch("now_ms"))
    await asyncio.to_thread(pair.standby.promote)
    assert len(await reading) == 1, "it was sent again"
    with pytest.raises(Unreachable):
        await writing
    rows = await own.use(lambda connection: connection.fetch("select one from held order by one"))
    assert [row["one"] for row in rows] == [1, 2]
    await own.close()
    await database.close()
