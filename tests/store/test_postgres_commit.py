"""What can go wrong while a tick is written, on a real Postgres."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest
from msgspec.structs import replace

from noetl_stream.adapters.postgres.statements import compile_statement, row_of
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.errors import Fenced, OutcomeUnknown, PayloadRefused, Unreachable
from noetl_stream.model.ids import PARTITIONS
from noetl_stream.model.rights import MAX_PATH_CHARS
from noetl_stream.ports.stores.store import TermRow
from noetl_testkit.conformance.store_rows import entry_row, execution_row, taken, tick_of
from noetl_testkit.waiting import TIMEOUT_S, expect_error

SMALL = [entry_row("a", 1)]
LARGE = [entry_row("a", position) for position in range(1, 200)]
BOTH_SHAPES = pytest.mark.parametrize("events", [SMALL, LARGE], ids=["one statement", "copy"])
HOLD_PARTITION = "select 1 from noetl.partition where id = 0 for update"


async def until(watcher: Any, condition: str, *arguments: Any) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not await watcher.fetchval(f"select {condition}", *arguments):
            pass


async def until_connected(call: Callable[[], Awaitable[Any]]) -> Any:
    """Calls again while a lost connection is being noticed: nothing is sent on it, so nothing is done twice."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            with contextlib.suppress(OutcomeUnknown, Unreachable):
                return await call()


async def backend_waiting_for_a_lock(watcher: Any) -> int:
    waiting = "from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    await until(watcher, f"exists (select 1 {waiting})")
    pid: int = await watcher.fetchval(f"select pid {waiting}")
    return pid


@pytest.fixture
async def holder(dsn: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A connection that holds a lock in a transaction while ``watcher`` looks."""
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


async def test_two_owners_racing_never_get_the_same_partition(dsn: str, postgres_store: PostgresStore) -> None:
    other = await PostgresStore.open(dsn, name="other")
    try:
        await asyncio.gather(postgres_store.owned("one"), other.owned("two"))
        for _ in range(5):
            one, two = await asyncio.gather(taken(postgres_store, "one", 8), taken(other, "two", 8))
            assert not {lease.id for lease in one} & {lease.id for lease in two}
        views = await postgres_store.read_partitions()
        assert len(views) == PARTITIONS
        assert {view.owner for view in views} <= {"one", "two", None}
        owned = [*await postgres_store.owned("one"), *await other.owned("two")]
        assert len({lease.id for lease in owned}) == len(owned)
    finally:
        await other.close()


async def test_a_takeover_does_not_wait_and_leaves_locked_rows_alone(
    postgres_store: PostgresStore, holder: Any
) -> None:
    async with holder.transaction():
        await holder.execute(HOLD_PARTITION)
        async with asyncio.timeout(TIMEOUT_S):
            assert [lease.id for lease in await taken(postgres_store, limit=2)] == [1, 2]


@BOTH_SHAPES
async def test_a_commit_that_waited_for_a_takeover_is_fenced(
    postgres_store: PostgresStore, holder: Any, watcher: Any, events: list[Any]
) -> None:
    (lease,) = await taken(postgres_store)
    async with holder.transaction():
        await holder.execute(HOLD_PARTITION)
        tick = tick_of("one", [lease], entries=events)
        commit = asyncio.create_task(expect_error(Fenced, postgres_store.commit(tick)))
        await backend_waiting_for_a_lock(watcher)
        await holder.execute("update noetl.partition set epoch = epoch + 1, owner = 'two' where id = 0")
    await commit
    assert await postgres_store.journal("a") == []


@BOTH_SHAPES
async def test_a_connection_lost_during_a_commit_leaves_its_outcome_unknown(
    postgres_store: PostgresStore, holder: Any, watcher: Any, events: list[Any]
) -> None:
    (lease,) = await taken(postgres_store)
    tick = tick_of("one", [lease], entries=events)
    async with holder.transaction():
        await holder.execute(HOLD_PARTITION)
        commit = asyncio.create_task(expect_error(OutcomeUnknown, postgres_store.commit(tick)))
        pid = await backend_waiting_for_a_lock(watcher)
        await watcher.execute("select pg_terminate_backend($1)", pid)
        await commit
    assert await postgres_store.owned("one") == [lease]
    await postgres_store.commit(tick)
    assert len(await postgres_store.journal("a")) == len(events)


@BOTH_SHAPES
async def test_a_commit_without_an_answer_in_time_is_settled_when_owned_answers(
    dsn: str, holder: Any, watcher: Any, events: list[Any]
) -> None:
    store = await PostgresStore.open(dsn, name="impatient", commit_timeout_s=1.0)
    try:
        (lease,) = await taken(store)
        tick = tick_of("one", [lease], entries=events)
        async with holder.transaction():
            await holder.execute(HOLD_PARTITION)
            await expect_error(OutcomeUnknown, store.commit(tick))
        (now,) = await store.owned("one")
        assert (now.tick == 1) == bool(await store.journal("a"))
        assert await watcher.fetchval("select tick from noetl.partition where id = 0") == now.tick
    finally:
        await store.close()


async def test_owned_ends_a_commit_that_was_cancelled_and_still_waits(
    postgres_store: PostgresStore, holder: Any, watcher: Any
) -> None:
    (lease,) = await taken(postgres_store)
    tick = tick_of("one", [lease], entries=SMALL)
    async with holder.transaction():
        await holder.execute(HOLD_PARTITION)
        commit = asyncio.create_task(postgres_store.commit(tick))
        pid = await backend_waiting_for_a_lock(watcher)
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        assert await postgres_store.owned("one") == [lease]
        assert await watcher.fetchval("select count(*) from pg_stat_activity where pid = $1", pid) == 0
    await postgres_store.commit(tick)
    assert len(await postgres_store.journal("a")) == 1


class AnswerDropper:
    """A proxy before Postgres that keeps the answers to an order, then hangs up: it is done and nobody hears of it."""

    def __init__(self, socket_path: str) -> None:
        self._socket_path = socket_path
        self._writers: list[asyncio.StreamWriter] = []
        self._pumps: set[asyncio.Task[None]] = set()
        self._keeps_answers = False
        self.order: bytes | None = None
        """Answers are kept from the moment a client sends this; empty: anything."""

    async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_unix_connection(self._socket_path)
        self._writers += [to_client, to_server]
        for pump in (self._forward(client, to_server), self._answer(server, to_client)):
            task = asyncio.create_task(pump)
            self._pumps.add(task)
            task.add_done_callback(self._pumps.discard)

    async def _forward(self, client: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> None:
        while chunk := await client.read(65_536):
            self._keeps_answers |= self.order is not None and self.order in chunk
            to_server.write(chunk)
        to_server.close()

    async def _answer(self, server: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        while chunk := await server.read(65_536):
            if not self._keeps_answers:
                to_client.write(chunk)
        to_client.close()

    def hang_up(self) -> None:
        for writer in self._writers:
            writer.close()
        self._writers.clear()
        self._keeps_answers, self.order = False, None


@pytest.mark.parametrize(("events", "order"), [(SMALL, b""), (LARGE, b"commit\0")], ids=["one statement", "copy"])
async def test_a_commit_with_a_lost_answer_is_kept(dsn: str, watcher: Any, events: list[Any], order: bytes) -> None:
    parts = urlsplit(dsn)
    dropper = AnswerDropper(parse_qs(parts.query)["host"][0] + "/.s.PGSQL.5432")
    proxy = await asyncio.start_server(dropper.serve, "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]
    store = await PostgresStore.open(f"postgresql://postgres@127.0.0.1:{port}{parts.path}", name="deaf")
    try:
        (lease,) = await taken(store)
        prepares = tick_of("one", [lease], entries=[entry_row("b", position) for position, _ in enumerate(events)])
        await store.commit(prepares)
        tick = tick_of("one", [replace(lease, tick=1)], entries=events)
        dropper.order = order
        commit = asyncio.create_task(expect_error(OutcomeUnknown, store.commit(tick)))
        await until(watcher, "tick = 2 from noetl.partition where id = 0")
        dropper.hang_up()
        await commit
        assert [now.tick for now in await store.owned("one")] == [2]
        await expect_error(Fenced, store.commit(tick))
        assert len(await store.journal("a")) == len(events)
    finally:
        await store.close()
        proxy.close()


async def test_the_store_continues_after_postgres_ended_all_its_connections(
    postgres_store: PostgresStore, watcher: Any
) -> None:
    leases = await taken(postgres_store, limit=2)
    await watcher.execute(
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid()"
    )
    await until_connected(lambda: postgres_store.commit(tick_of("one", leases, entries=SMALL)))
    assert len(await until_connected(lambda: postgres_store.journal("a"))) == 1


async def test_the_partition_row_names_the_backend_that_commits(postgres_store: PostgresStore, watcher: Any) -> None:
    named = (
        "exists (select 1 from noetl.partition p join pg_stat_activity a on a.pid = p.backend"
        " where p.id = 0 and a.application_name = 'noetl-stream test')"
    )
    (lease,) = await taken(postgres_store)
    assert await watcher.fetchval(f"select {named}")
    pid = await watcher.fetchval("select backend from noetl.partition where id = 0")
    await watcher.execute("select pg_terminate_backend($1, 5000)", pid)
    await until_connected(lambda: postgres_store.commit(tick_of("one", [lease])))
    assert await watcher.fetchval(f"select {named}")


@BOTH_SHAPES
async def test_a_full_disk_is_one_clear_error_and_the_tick_can_be_retried(
    postgres_store: PostgresStore, watcher: Any, events: list[Any]
) -> None:
    (lease,) = await taken(postgres_store)
    tick = tick_of("one", [lease], entries=events, executions=[execution_row("a")])
    await watcher.execute(
        """
        create function full_disk() returns trigger language plpgsql as $$
        begin raise exception 'could not extend file: No space left on device' using errcode = '53100'; end $$;
        create trigger full_disk before insert on noetl.event execute function full_disk();
        """
    )
    error = await expect_error(Unreachable, postgres_store.commit(tick))
    assert "its disk is full" in error.message
    assert "\n" not in str(error)
    assert await postgres_store.execution("a") is None
    await watcher.execute("drop trigger full_disk on noetl.event")
    await postgres_store.commit(tick)


@BOTH_SHAPES
async def test_text_that_postgres_cannot_store_is_refused(postgres_store: PostgresStore, events: list[Any]) -> None:
    (lease,) = await taken(postgres_store)
    for text in ("nul \0", "half of a pair \ud800"):
        tick = tick_of("one", [lease], entries=[*events, entry_row("a", 500, step_run_id=text)])
        await expect_error(PayloadRefused, postgres_store.commit(tick))
    assert await postgres_store.owned("one") == [lease]


@BOTH_SHAPES
async def test_a_path_that_fits_no_index_is_refused_and_nothing_is_written(
    postgres_store: PostgresStore, events: list[Any]
) -> None:
    (lease,) = await taken(postgres_store)
    path = Random(1).randbytes(1_400).hex()  # random, for Postgres compresses what it indexes
    tick = tick_of("one", [lease], entries=events, executions=[execution_row("a", path=path)])
    await expect_error(PayloadRefused, postgres_store.commit(tick))
    assert await postgres_store.owned("one") == [lease]
    longest = "".join(map(chr, Random(1).choices(range(0x20000, 0x2A000), k=MAX_PATH_CHARS)))
    await postgres_store.commit(tick_of("one", [lease], executions=[execution_row("a", path=longest)]))


async def test_a_tick_may_have_more_values_than_a_statement_has_parameters(postgres_store: PostgresStore) -> None:
    (lease,) = await taken(postgres_store)
    rows = [execution_row(f"{number:05}") for number in range(5_000)]
    await postgres_store.commit(tick_of("one", [lease], executions=rows))
    assert len(await postgres_store.executions([row.execution_id for row in rows])) == 5_000


async def test_people_read_times_in_the_history(postgres_store: PostgresStore, watcher: Any) -> None:
    (lease,) = await taken(postgres_store)
    await postgres_store.commit(tick_of("one", [lease], entries=[entry_row("a", 1, at_ms=1_700_000_000_250)]))
    row = await watcher.fetchrow("select position, name, at at time zone 'utc' from noetl.history")
    assert (row[0], row[1], str(row[2])) == (1, "token.enqueued", "2023-11-14 22:13:20.250000")


async def test_settings_that_may_lose_acknowledged_work_are_named(postgres_store: PostgresStore, dsn: str) -> None:
    warnings = await postgres_store.durability_warnings()
    assert [warning.split(":")[0] for warning in warnings] == [
        "Postgres has fsync = off",
        "Postgres has no synchronous standby (synchronous_standby_names is empty)",
    ]
    local = await PostgresStore.open(f"{dsn}&options=-csynchronous_commit%3Dlocal", name="test")
    assert any("synchronous_commit = local" in warning for warning in await local.durability_warnings())
    await local.close()


async def test_postgres_reads_any_texts_and_numbers_as_they_are_sent(
    watcher: asyncpg.Connection[asyncpg.Record],
) -> None:
    """They are sent as one text for a column."""
    rows = [
        TermRow(term=term, execution_id=f"e{number}")
        for number, term in enumerate(["plain", "", "NULL", '"', "\\", '{"a": "b\\"c"}', "a,b", " x ", "é\n\t{}'"])
    ]
    wanted = compile_statement("select * from :terms.rows as t (:terms.columns)")
    found = await watcher.fetch(wanted.text, *wanted.arguments({"terms": rows}))
    assert [row_of(TermRow, one) for one in found] == rows
