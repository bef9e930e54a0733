"""The journal in partitions by month (PROTOCOL §5 *Retention*)."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from noetl_stream.adapters.postgres.schema import migrate as migrating
from noetl_stream.adapters.postgres.schema.migrate import known_migrations, migrate
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.model.ids import uuid7
from noetl_testkit.conformance.store_rows import entry_row, execution_row, taken, tick_of

BEFORE = tuple(
    one
    for one in known_migrations()
    if one.name < "0027_month_bound" or "alter table noetl.execution add column" in one.text  # a row of today has it
)


def id_at(at: datetime, number: int = 0) -> str:
    return uuid7(int(at.timestamp() * 1000), number.to_bytes(10, "big"))


def month_after(now: datetime, months: int) -> datetime:
    """The middle of a month."""
    count = now.year * 12 + now.month - 1 + months
    return datetime(count // 12, count % 12 + 1, 15, tzinfo=UTC)


def table_of(at: datetime) -> str:
    return f"event_{at:%Y_%m}"


async def grow(store: PostgresStore, *executions: str, finished_ms: int | None = None) -> None:
    """A tick that adds an entry to each of these journals; every execution is new."""
    leases = {lease.id: lease for lease in await store.owned("one")} or {one.id: one for one in await taken(store)}
    tick = tick_of("one", list(leases.values()))
    rows = [execution_row(name, partition=min(leases), finished_ms=finished_ms) for name in executions]
    await store.commit(replace(tick, entries=[entry_row(name, 1) for name in executions], executions=rows))


async def places(watcher: Any) -> dict[str, str]:
    """The table of each execution's journal."""
    rows = await watcher.fetch("select execution_id, tableoid::regclass::text as place from noetl.event")
    return {row["execution_id"]: row["place"].removeprefix("noetl.") for row in rows}


@pytest.fixture
async def now(watcher: Any) -> datetime:
    found: datetime = await watcher.fetchval("select now()")
    return found.astimezone(UTC)


async def test_each_journal_is_in_the_table_of_the_month_its_execution_started_in(
    postgres_store: PostgresStore, watcher: Any, now: datetime
) -> None:
    this, following, distant = now, month_after(now, 2), month_after(now, 30)
    ids = [id_at(this), id_at(following), id_at(distant), "no-uuid"]
    await grow(postgres_store, *ids)
    expected = [table_of(this), table_of(following), "event_other", "event_other"]
    assert await places(watcher) == dict(zip(ids, expected, strict=True))
    assert [len(await postgres_store.journal(one)) for one in ids] == [1, 1, 1, 1]


async def test_months_are_made_ahead_once(postgres_store: PostgresStore, now: datetime) -> None:
    retention = postgres_store.retention
    made = [table_of(month_after(now, ahead)) for ahead in range(5)]
    assert [month.name for month in await retention.months()] == made[:3]
    assert await retention.make_months(4) == made[3:]
    assert await retention.make_months(4) == []
    months = await retention.months()
    assert [month.name for month in months] == made
    assert all(before.to_id == after.from_id for before, after in pairwise(months))


async def test_a_month_that_is_made_late_gets_the_journals_that_came_before_it(
    postgres_store: PostgresStore, watcher: Any, now: datetime
) -> None:
    early = id_at(month_after(now, 3))
    await grow(postgres_store, early, "no-uuid")
    assert await places(watcher) == {early: "event_other", "no-uuid": "event_other"}
    await postgres_store.retention.make_months(3)
    assert await places(watcher) == {early: table_of(month_after(now, 3)), "no-uuid": "event_other"}


async def test_past_months_are_dropped_once_no_execution_is_left_in_them(
    postgres_store: PostgresStore, watcher: Any, now: datetime
) -> None:
    old, kept = month_after(now, -3), month_after(now, -2)
    for month in (old, kept):
        following = month_after(month, 1)
        await watcher.execute(
            f"create table noetl.{table_of(month)} partition of noetl.event for values "
            f"from (noetl.first_id('{month:%Y-%m-01} 00:00Z')) to (noetl.first_id('{following:%Y-%m-01} 00:00Z'))"
        )
    gone, stays = id_at(old), id_at(kept)
    await grow(postgres_store, gone, stays, finished_ms=1)
    assert await postgres_store.retention.drop_empty_months() == []
    assert await postgres_store.delete_execution(gone, keep_journal=True)
    assert set(await places(watcher)) == {gone, stays}
    assert await postgres_store.retention.drop_empty_months() == [table_of(old)]
    assert set(await places(watcher)) == {stays}


@pytest.mark.parametrize("beyond", [[], ["zzz"]], ids=["all fits", "an id beyond the bound"])
async def test_a_journal_from_before_is_carried_over_and_servers_from_before_go_on(
    empty_dsn: str, monkeypatch: pytest.MonkeyPatch, beyond: list[str]
) -> None:
    with monkeypatch.context() as old:
        old.setattr(migrating, "known_migrations", lambda: BEFORE)
        await migrate(empty_dsn)
    store, watcher = await PostgresStore.open(empty_dsn, name="old"), await asyncpg.connect(empty_dsn)
    try:
        now = (await watcher.fetchval("select now()")).astimezone(UTC)
        before, after, later = id_at(now), id_at(now, 1), id_at(month_after(now, 2))
        await grow(store, before, *beyond)
        journal = await store.journal(before)
        # Postgres keeps the plans of statements that were prepared: those of a server that is running.
        assert await migrate(empty_dsn) != []
        await grow(store, after, later)
        assert await places(watcher) == {
            before: "event_before",
            after: "event_before",
            later: table_of(month_after(now, 2)),
            **dict.fromkeys(beyond, "event_other"),
        }
        assert await store.journal(before) == journal
        assert (await store.retention.months())[0].name == "event_before"
        assert await watcher.fetchval("select count(*) from noetl.history") == 3 + len(beyond)
    finally:
        await watcher.close()
        await store.close()


async def test_the_dead_letters_of_an_execution_go_with_it(postgres_store: PostgresStore, watcher: Any) -> None:
    await grow(postgres_store, "one", "two", finished_ms=1)
    for number, execution_id in enumerate(("one", "two")):
        await watcher.execute(
            "insert into noetl.dead_letter (id, at_ms, source, partition, execution_id, subject, reason, body, size)"
            " values ($1, 1, 'inbox', 1, $2, '', '', '', 0)",
            f"letter-{number}",
            execution_id,
        )
    await postgres_store.delete_execution("one")
    assert [letter.row.execution_id for letter in await postgres_store.dead_letters.page(10, None)] == ["two"]
