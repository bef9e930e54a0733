"""Queries for a request are bounded, and hold no more connections than its caller may."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from noetl_stream.adapters.postgres.connections.database import POOL_CONNECTIONS, Database
from noetl_stream.adapters.postgres.statements import compile_statement
from noetl_stream.errors import QueryTooLong
from noetl_stream.gateway.http.budgets import QUERIES_AT_ONCE
from noetl_stream.ports.stores.idempotency import CHARGED, ChargedQueries

SLEEP = compile_statement("select pg_sleep(:seconds::float)")
NOW = compile_statement("select now()")


@pytest.fixture
async def database(dsn: str) -> AsyncIterator[Database]:
    found = await Database.open(dsn, "test")
    yield found
    await found.close()


@contextmanager
def charged(longest_s: float, at_once: int = QUERIES_AT_ONCE) -> Iterator[ChargedQueries]:
    queries = ChargedQueries(asyncio.Semaphore(at_once), longest_s)
    token = CHARGED.set(queries)
    try:
        yield queries
    finally:
        CHARGED.reset(token)


async def test_a_query_of_a_request_ends_at_its_bound_and_the_connection_is_used_again(database: Database) -> None:
    with charged(0.01) as queries, pytest.raises(QueryTooLong, match=r"took Postgres 0\.01 s, and was ended") as ended:
        await database.fetch_statement(SLEEP, {"seconds": 600.0})
    assert ended.value.hint is not None and "smaller limit" in ended.value.hint
    assert queries.spent_s > 0
    await asyncio.gather(*(database.fetch_statement(NOW, {}) for _ in range(9)))


async def test_statements_that_write_and_anonymous_ones_are_not_ended(database: Database) -> None:
    writing = compile_statement("select pg_sleep(:seconds::float) is null as ended /* as an update */")
    reading = compile_statement("select pg_sleep(:seconds::float) is null as ended")
    with charged(0.01) as queries:
        found = await database.fetch_statement(writing, {"seconds": 0.05})
        queries.ended = True
        found += await database.fetch_statement(reading, {"seconds": 0.05})
    found += await database.fetch_statement(reading, {"seconds": 0.05})
    assert [row["ended"] for row in found] == [False, False, False]


@pytest.mark.parametrize(("callers", "is_charged"), [(1, True), (2, True), (3, False)])
async def test_slow_queries_leave_a_connection_to_another_caller_and_one_to_probes(
    database: Database, callers: int, is_charged: bool
) -> None:
    with charged(600.0, callers * QUERIES_AT_ONCE):
        queries = (database.fetch_statement(SLEEP, {"seconds": 30.0}) for _ in range(2 * POOL_CONNECTIONS))
        slow: list[asyncio.Task[Any]] = [asyncio.create_task(query) for query in queries]
    try:
        with charged(600.0) as quick:
            quick.ended = not is_charged
            for _ in range(9):
                await database.fetch_statement(NOW, {})
        assert not any(task.done() for task in slow)
    finally:
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
