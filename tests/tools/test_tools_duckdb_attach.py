"""``kind: duckdb`` reads tables of a real Postgres."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from noetl_stream.playbook.plan import Timeouts
from noetl_stream.settings.egress import EgressRules
from noetl_stream.settings.tools import ToolSettings
from noetl_stream.testing.calls import FilesInMemory
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.duckdb.tool import DuckdbTool
from noetl_testkit.waiting import TIMEOUT_S

SCHEMA = """
drop schema if exists sales cascade;
create schema sales;
create table sales.orders (id int primary key, amount numeric(10, 2), note text);
insert into sales.orders values (1, 12.50, 'a "b", c' || chr(13) || chr(10) || '\\N'), (2, 7.25, ''), (3, null, null);
create table sales.kinds (
    small smallint, big bigint, real_ real, double_ double precision, exact numeric, yes boolean, day date,
    moment timestamp, zoned timestamptz, clock time, span interval, id uuid, doc jsonb, bytes bytea, tags text[],
    mood sales.mood, "Odd ""Name" int
);
insert into sales.kinds values (
    1, 9000000000, 0.5, 1e300, 1.5, true, '2026-01-31', '2026-01-31 10:00:00.25', '2026-01-31 10:00:00+02', '10:00',
    '1 year 2 mons 3 days 04:05:06', '0b9c3f0e-5a3a-4b0e-9d6b-1f2f3a4b5c6d', '{"a": [1, "x"]}',
    decode(repeat('ff', 100), 'hex'), '{x,y}', 'ok', 5
), (null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null);
create view sales.large as select id from sales.orders where amount > 10;
drop table if exists attached;
create table attached as select n as id, repeat('x', 50) as text from generate_series(1, 1000) n;
""".replace("create table sales.kinds", "create type sales.mood as enum ('ok'); create table sales.kinds")


@pytest.fixture(scope="module")
def filled(postgres_dsn: str) -> str:
    async def fill() -> None:
        connection = await asyncpg.connect(postgres_dsn)
        await connection.execute(SCHEMA)
        await connection.close()

    asyncio.run(fill())
    return postgres_dsn


class Runner:
    def __init__(self, make_call: Any, dsn: str, egress: EgressRules) -> None:
        self.tool = DuckdbTool(ToolSettings(egress))
        self._make_call = make_call
        self.dsn = dsn

    async def __call__(self, command: str, *tables: str, **call: Any) -> Any:
        inputs = {"command": command, "attach": {"pg": {"auth": "db", "tables": list(tables)}}}
        async with asyncio.timeout(TIMEOUT_S):
            done = await self.tool.run(self._make_call(inputs, credentials={"db": self.dsn}, **call))
        return done.result["rows"]

    async def failure(self, command: str, *tables: str, **call: Any) -> ToolFailure:
        with pytest.raises(ToolFailure) as failed:
            await self(command, *tables, **call)
        return failed.value


@pytest.fixture
async def run(
    make_call: Any, filled: str, egress: EgressRules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Runner]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    runner = Runner(make_call, filled, egress)
    yield runner
    await runner.tool.close()
    assert not any(tmp_path.iterdir())  # noqa: ASYNC240  # no copy is left behind


async def test_tables_and_views_are_read_by_their_names(run: Runner) -> None:
    sql = "select count(*) as n, sum(l.id) as s from pg.attached a join pg.sales.large l using (id)"
    files = FilesInMemory()
    assert await run(sql, "attached", "sales.large", data=files) == [{"n": 1, "s": 1}]
    names = [one.name.partition(".")[2] for one in files.datasets if not one.written]
    assert names == ["public.attached", "sales.large"]


async def test_text_numbers_and_nulls_come_as_they_are(run: Runner) -> None:
    assert await run("from pg.sales.orders order by id", "sales.orders") == [
        {"id": 1, "amount": 12.5, "note": 'a "b", c\r\n\\N'},
        {"id": 2, "amount": 7.25, "note": ""},
        {"id": 3, "amount": None, "note": None},
    ]


async def test_columns_keep_their_types(run: Runner) -> None:
    types = await run("select column_name, column_type from (describe pg.sales.kinds)", "sales.kinds")
    assert {row["column_name"]: row["column_type"] for row in types} == {
        "small": "SMALLINT",
        "big": "BIGINT",
        "real_": "FLOAT",
        "double_": "DOUBLE",
        "exact": "DECIMAL(18,1)",
        "yes": "BOOLEAN",
        "day": "DATE",
        "moment": "TIMESTAMP",
        "zoned": "TIMESTAMP WITH TIME ZONE",
        "clock": "TIME",
        "span": "INTERVAL",
        "id": "UUID",
        "doc": "JSON",
        "bytes": "BLOB",
        "tags": "VARCHAR[]",
        "mood": "ENUM('ok')",
        'Odd "Name': "INTEGER",
    }
    columns = "* exclude (span), datepart('year', span) as years, datepart('epoch', span) % 86400 as seconds"
    full, empty = await run(f"select {columns} from pg.sales.kinds order by small", "sales.kinds")
    assert full["zoned"] == "2026-01-31T08:00:00+00:00"
    assert (full["moment"], full["day"], full["clock"]) == ("2026-01-31T10:00:00.250000", "2026-01-31", "10:00:00")
    assert (full["big"], full["double_"], full["exact"], full["yes"]) == (9_000_000_000, 1e300, 1.5, True)
    assert (full["bytes"], full["tags"], full["mood"], full['Odd "Name']) == ("/" * 133 + "w==", ["x", "y"], "ok", 5)
    assert full["doc"] == {"a": [1, "x"]}
    assert set(empty.values()) == {None}


async def test_decimals_keep_their_digits(run: Runner) -> None:
    assert await run("select typeof(amount) as t from pg.sales.orders limit 1", "sales.orders") == [
        {"t": "DECIMAL(10,2)"}
    ]


@pytest.mark.parametrize(
    "sql",
    ["insert into pg.attached values (1, 'x')", "delete from pg.attached", "create table pg.t (a int)"],
)
async def test_attached_tables_are_read_only(run: Runner, sql: str) -> None:
    failed = await run.failure(sql, "attached")
    assert failed.error.kind == "sql"
    assert "read-only" in failed.error.message


async def test_a_table_that_is_not_there_is_not_found(run: Runner) -> None:
    failed = await run.failure("select 1", "sales.nothing")
    assert (failed.error.kind, failed.error.message) == (
        "not_found",
        "attach.pg.sales.nothing: no such table or view",
    )


async def test_a_table_without_permission_is_an_error(run: Runner) -> None:
    connection = await asyncpg.connect(run.dsn)
    await connection.execute("drop role if exists guest; create role guest login")
    await connection.close()
    run.dsn = run.dsn.replace("postgres@", "guest@")
    failed = await run.failure("select 1", "attached")
    assert (failed.error.kind, failed.error.code) == ("sql", "42501")
    assert failed.error.message.startswith("attach.pg.attached: ")


async def test_larger_tables_than_allowed_are_not_copied(run: Runner) -> None:
    failed = await run.failure("select 1", "attached", knobs={"max_attached_bytes": 10_000})
    assert failed.error.kind == "result_too_large"
    assert "max_attached_bytes" in failed.error.message
    assert await run("select 1 as a", "attached") == [{"a": 1}]


async def test_a_value_duckdb_cannot_hold_is_reported_without_its_row(run: Runner) -> None:
    connection = await asyncpg.connect(run.dsn)
    await connection.execute("drop table if exists old; create table old as select 'NaN'::numeric(10, 2) n, 's3cret' s")
    await connection.close()
    failed = await run.failure("from pg.old", "old")
    assert failed.error.kind == "sql"
    assert failed.error.message.startswith("attach.pg: ")
    assert "s3cret" not in failed.error.message


async def test_the_database_is_reached_by_its_credential_alone(run: Runner) -> None:
    rows = await run("select database_name, path from duckdb_databases() where database_name = 'pg'", "attached")
    assert "postgres" not in rows[0]["path"]
    run.dsn = "http://nowhere"
    assert (await run.failure("select 1", "attached")).error.kind == "credential"


async def test_sql_with_an_attached_database_is_locked_as_any_other(run: Runner) -> None:
    for sql in ("from read_text('/etc/hostname')", "attach 'x.duckdb'", "load postgres"):
        assert (await run.failure(sql, "attached")).error.kind == "not_allowed"


SLOW = "select 1 as a from pg_sleep(600)"
ENDLESS = "select repeat('x', 1000) as a, generate_series(1, 1000000000) as n"


@pytest.mark.parametrize(("view", "has_data"), [(SLOW, False), (ENDLESS, True)])
async def test_cancelling_ends_the_copy(run: Runner, tmp_path: Path, view: str, has_data: bool) -> None:
    connection = await asyncpg.connect(run.dsn)
    await connection.execute(f"drop view if exists long_one; create view long_one as {view}")
    activity = "select count(*) from pg_stat_activity where query like '%\"long_one\"%' and pid <> pg_backend_pid()"
    task = asyncio.ensure_future(run("select 1", "long_one"))
    while await connection.fetchval(f"{activity} and state <> 'idle'") == 0:
        pass
    while has_data and not any(path.stat().st_size for path in tmp_path.rglob("*.csv")):  # noqa: ASYNC110, ASYNC240
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    while await connection.fetchval(f"{activity} and state = 'active'") > 0:
        pass
    await connection.close()


async def test_a_copy_over_the_read_timeout_is_a_timeout(run: Runner) -> None:
    connection = await asyncpg.connect(run.dsn)
    await connection.execute("create or replace view slow as select 1 as a from pg_sleep(600)")
    await connection.close()
    failed = await run.failure("select 1", "slow", timeouts=Timeouts(read=0.05))
    assert (failed.error.kind, failed.error.retryable) == ("timeout", True)


async def postgres(dsn: str, *statements: str) -> None:
    connection = await asyncpg.connect(dsn)
    for statement in statements:
        await connection.execute(statement)
    await connection.close()


async def test_values_arrive_as_postgres_has_them(run: Runner) -> None:
    await postgres(
        run.dsn,
        "drop table if exists exact cascade; drop domain if exists cents; create domain cents as numeric(20, 2)",
        """create table exact (id int, amount numeric, cents cents, day date, moment timestamp, zoned timestamptz,
            span interval)""",
        "insert into exact select g, 0.1 from generate_series(1, 10) g",
        """insert into exact values (11, 123456789012345678.01, 12.5, '0044-03-15 BC', '0044-03-15 10:00:00.5 BC',
            '0044-03-15 10:00:00+00 BC', '1 year -2 days 04:05:06'), (12, null, null, 'infinity', '-infinity',
            '9999-12-31 23:59:59.999999+00', '-1 month +1 day -00:00:00.000001')""",
    )
    sql = """
        select sum(amount) filter (where id < 11) = 1.0 as sum_is_one, max(amount)::varchar as largest,
               typeof(any_value(amount)) as type, typeof(any_value(cents)) as cents, min(day)::varchar as day,
               max(day)::varchar as last, max(moment)::varchar as moment, min(zoned)::varchar as zoned,
               list(span::varchar order by id) filter (where span is not null) as spans
          from pg.exact"""
    assert await run(sql, "exact") == [
        {
            "sum_is_one": True,
            "largest": "123456789012345678.01",
            "type": "DECIMAL(20,2)",
            "cents": "DECIMAL(20,2)",
            "day": "0044-03-15 (BC)",
            "last": "infinity",
            "moment": "0044-03-15 (BC) 10:00:00.5",
            "zoned": "0044-03-15 (BC) 10:00:00+00",
            "spans": ["1 year -2 days 04:05:06", "-1 month 1 day -00:00:00.000001"],
        }
    ]


async def test_arrays_arrive_as_lists_of_their_values(run: Runner) -> None:
    await postgres(
        run.dsn,
        "drop table if exists lists",
        """create table lists as select array[0.1, null, 12345678901234567.89] as amounts,
            array['it''s', '["x'] as texts, array[[date '0044-03-15 BC'], [null::date]] as days,
            array['\\x6869'::bytea] as bytes, '{}'::int[] as empty,
            array['ok'::sales.mood] as moods, array['{"a": 1}'::jsonb] as docs, null::interval[] as none,
            array[interval '1 month -1 day'] as spans, 'a  '::char(3) as padded""",
    )
    [row] = await run(
        """select amounts::varchar as amounts, texts, days::varchar as days, typeof(days) as type, bytes, empty, moods,
            docs, "none", spans::varchar as spans, padded from pg.lists""",
        "lists",
    )
    assert row == {
        "amounts": "[0.10, NULL, 12345678901234567.89]",
        "texts": ["it's", '["x'],
        "days": "[['0044-03-15 (BC)'], [NULL]]",
        "type": "DATE[][]",
        "bytes": ["aGk="],
        "empty": [],
        "moods": ["ok"],
        "docs": [{"a": 1}],
        "none": None,
        "spans": "[1 month -1 day]",
        "padded": "a  ",
    }


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("'NaN'::numeric", "column n, with NaN or an infinity"),
        ("array[1, 'Infinity']::numeric[]", "column n, with NaN or an infinity"),
        ("1e30::numeric + 0.000000001", "column n, with numbers of 40 digits"),
        ("case when g = 1 then array[1] else array[[1], [2]] end", "column n, with arrays of several dimensions"),
    ],
)
async def test_a_column_that_duckdb_cannot_hold_is_refused_with_words(run: Runner, column: str, message: str) -> None:
    select = f"select {column} as n from generate_series(1, 2) g"
    await postgres(run.dsn, f"drop table if exists wide; create table wide as {select}")
    failed = await run.failure("select 1", "wide")
    assert failed.error.kind == "sql"
    assert failed.error.message.startswith(f"attach.pg.wide: DuckDB cannot hold {message}; cast it to text in a view")


async def test_without_rows_a_number_has_a_type(run: Runner) -> None:
    await postgres(run.dsn, "drop table if exists nothing; create table nothing (a numeric, b numeric[])")
    types = await run("select column_type from (describe pg.nothing)", "nothing")
    assert [row["column_type"] for row in types] == ["DECIMAL(18,0)", "DECIMAL(18,0)[]"]
