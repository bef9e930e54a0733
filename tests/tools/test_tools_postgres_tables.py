"""``kind: postgres`` with tables and files by reference, on a real Postgres."""

from __future__ import annotations

import asyncio
import gzip
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from noetl_stream.settings.egress import EgressRules
from noetl_stream.settings.tools import ToolSettings
from noetl_stream.testing.calls import FilesInMemory, tool_call
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.duckdb.tool import DuckdbTool
from noetl_stream.tools.postgres.tool import PostgresTool
from noetl_testkit.waiting import TIMEOUT_S

SCHEMA = """
drop schema if exists moved cascade;
create schema moved;
create type moved.mood as enum ('ok', 'bad');
create domain moved.cents as numeric(10, 2);
create table moved.kinds (
    id int primary key, small smallint, big bigint, real_ real, double_ double precision, exact numeric,
    price moved.cents, yes boolean, day date, moment timestamp, zoned timestamptz, clock time, span interval, uid uuid,
    doc jsonb, bytes bytea, tags text[], grid int[], mood moved.mood, padded character(5), text text
);
insert into moved.kinds values (
    1, 1, 9000000000, 0.5, 1e300, 1.5, 12.50, true, '0044-03-15 BC', '2026-01-31 10:00:00.25', '2026-01-31 10:00:00+02',
    '10:00', '1 year 2 mons 3 days 04:05:06', '0b9c3f0e-5a3a-4b0e-9d6b-1f2f3a4b5c6d', '{"a": [1, "x"]}', '\\x00ff',
    array['x', 'y, "z\\', null, ''], '{{1,2},{3,4}}', 'ok', 'a', 'a "b", \\N' || chr(10) || 'c'
);
insert into moved.kinds (id, text) values (2, '');
insert into moved.kinds (id, tags) values (3, '{}');
create table moved.copies (like moved.kinds);
create table moved.orders (id int, amount numeric(10, 2), note text);
create table moved.loads (key text primary key);
"""
ORDERS = b'id,amount,note\n1,12.50,"a, b"\n2,,\n'


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data


@dataclass
class Stage:
    """A Postgres tool and a DuckDB tool, and the files that their tasks share."""

    postgres: PostgresTool
    duckdb: DuckdbTool
    data: FilesInMemory
    dsn: str

    async def file(self, content: bytes, name: str = "orders.csv") -> dict[str, Any]:
        return await self.data.save(pieces(content), name=name)

    async def run(self, *, knobs: dict[str, Any] | None = None, **inputs: Any) -> Any:
        call = tool_call({"auth": "db", **inputs}, knobs=knobs, credentials={"db": self.dsn}, data=self.data)
        async with asyncio.timeout(TIMEOUT_S):
            return (await self.postgres.run(call)).result

    async def failure(self, **inputs: Any) -> tuple[str, str]:
        with pytest.raises(ToolFailure) as failed:
            await self.run(**inputs)
        return failed.value.error.kind, failed.value.error.message

    async def rows(self, command: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = (await self.run(command=command))["rows"]
        return rows

    async def table(self, command: str, **inputs: Any) -> dict[str, Any]:
        """A table that a DuckDB task makes."""
        call = tool_call({"command": command, "into": "table", **inputs}, data=self.data)
        async with asyncio.timeout(TIMEOUT_S):
            table: dict[str, Any] = (await self.duckdb.run(call)).result["table"]
        return table


@pytest.fixture
async def stage(
    postgres_dsn: str, egress: EgressRules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Stage]:
    connection = await asyncpg.connect(postgres_dsn)
    await connection.execute(SCHEMA)
    await connection.close()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    settings = ToolSettings(egress)
    made = Stage(PostgresTool(settings=settings), DuckdbTool(settings), FilesInMemory(), postgres_dsn)
    yield made
    await made.postgres.close()
    await made.duckdb.close()
    assert not any(tmp_path.iterdir())  # noqa: ASYNC240  # no file is left behind


async def test_a_query_becomes_a_table_and_comes_back_as_it_was(stage: Stage) -> None:
    made = await stage.run(command="select * from moved.kinds order by id", into="table")
    assert (made["row_count"], made["columns"][:2], made["table"]["rows"]) == (3, ["id", "small"], 3)
    assert {column["name"]: column["type"] for column in made["table"]["columns"]} == {
        "id": "INTEGER",
        "small": "SMALLINT",
        "big": "BIGINT",
        "real_": "FLOAT",
        "double_": "DOUBLE",
        "exact": "DECIMAL(18,1)",
        "price": "DECIMAL(18,1)",
        "yes": "BOOLEAN",
        "day": "DATE",
        "moment": "TIMESTAMP",
        "zoned": "TIMESTAMP WITH TIME ZONE",
        "clock": "TIME",
        "span": "VARCHAR",
        "uid": "UUID",
        "doc": "JSON",
        "bytes": "BLOB",
        "tags": "VARCHAR[]",
        "grid": "INTEGER[][]",
        "mood": "VARCHAR",
        "padded": "VARCHAR",
        "text": "VARCHAR",
    }
    loaded = await stage.run(copy={"table": "moved.copies", "from": made})
    assert loaded == {
        "rows": [],
        "row_count": 3,
        "columns": [],
        "statements": [{"command": "COPY", "row_count": 3}],
    }
    differing = "select id from moved.kinds k full join moved.copies c using (id) where k is distinct from c"
    assert await stage.rows(differing) == []


async def test_parameters_and_earlier_statements_work_with_a_table(stage: Stage) -> None:
    made = await stage.run(
        command=[
            "create temp table picked as select * from unnest($ids::int[]) id",
            "select id, $text as text, $when::date as day, '$text' as literal from picked where id > $least",
        ],
        params={"ids": [1, 2, 3], "least": 1, "text": "it's \\ $ids", "when": "2026-01-31"},
        into="table",
    )
    call = tool_call({"command": "from made order by id", "tables": {"made": made["table"]}}, data=stage.data)
    row = {"text": "it's \\ $ids", "day": "2026-01-31", "literal": "$text"}
    assert (await stage.duckdb.run(call)).result["rows"] == [{"id": 2, **row}, {"id": 3, **row}]
    assert [it["command"] for it in made["statements"]][-1:] == ["SELECT"]
    assert stage.data.heads[made["table"]["key"]] == [{"id": 2, **row}, {"id": 3, **row}]


async def test_rows_that_a_statement_changes_become_a_table(stage: Stage) -> None:
    command = "insert into moved.orders values (1, 2.5, 'x') returning id, amount"
    for knobs in (None, {"transaction": False}):
        assert (await stage.run(command=command, into="table", knobs=knobs))["table"]["rows"] == 1
    assert await stage.rows("select count(*) as n from moved.orders") == [{"n": 2}]


async def test_a_csv_file_is_loaded_by_the_names_in_its_first_line(stage: Stage) -> None:
    loaded = [{"id": 1, "amount": 12.5, "note": "a, b"}, {"id": 2, "amount": None, "note": None}]
    reordered = b'\xef\xbb\xbfnote;id;amount\n"a, b";1;12.50\n;2;\n'
    for content, options in (
        (ORDERS, {}),
        (gzip.compress(ORDERS), {}),
        (reordered, {"delimiter": ";"}),
        (ORDERS.partition(b"\n")[2], {"header": False}),
        (ORDERS, {"format": "csv"}),
    ):
        name = "download" if "format" in options else "orders.csv"
        copy = {"table": "moved.orders", "from": await stage.file(content, name), **options}
        assert (await stage.run(command="truncate moved.orders", copy=copy))["row_count"] == 2
        assert await stage.rows("select * from moved.orders order by id") == loaded
    noted = stage.data.datasets
    assert all(one.written and one.name.endswith(".moved.orders") for one in noted)
    assert all(one.namespace.startswith("postgres://") for one in noted)
    in_file = ("id", "amount", "note")
    assert [one.columns for one in noted] == [in_file, in_file, ("note", "id", "amount"), (), in_file]


async def test_a_part_of_a_table_and_of_its_columns_is_loaded(stage: Stage) -> None:
    table = await stage.table("select i as id, i * 1.5 as amount, 'x' as note from range(10) t(i)")
    part = {**table, "first": 4, "rows": 3}
    copy = {"table": "moved.orders", "from": {"table": part}, "columns": ["note", "id"]}
    assert (await stage.run(copy=copy))["row_count"] == 3
    assert await stage.rows("select * from moved.orders order by id") == [
        {"id": n, "amount": None, "note": "x"} for n in (4, 5, 6)
    ]


async def test_a_column_of_any_text_is_loaded_whole(stage: Stage) -> None:
    texts = ["\\.", "", "\\N", '"', "a"]
    table = await stage.table("select unnest($texts::varchar[]) as note", params={"texts": texts})
    assert (await stage.run(copy={"table": "moved.orders", "from": table}))["row_count"] == len(texts)
    assert sorted(row["note"] for row in await stage.rows("select note from moved.orders")) == sorted(texts)


async def test_a_value_that_does_not_fit_is_named_and_nothing_is_loaded(stage: Stage) -> None:
    copy = {"table": "moved.orders", "from": await stage.file(ORDERS + b"3,many,\n")}
    kind, message = await stage.failure(command="insert into moved.loads values ('a')", copy=copy)
    assert (kind, message) == (
        "sql",
        'copy: invalid input syntax for type numeric: "many" (COPY orders, line 4, column amount: "many")',
    )
    copy = {"table": "moved.orders", "from": await stage.table("select 1 as id, 'much' as amount")}
    kind, message = await stage.failure(copy=copy)
    assert (kind, 'COPY orders, line 1, column amount: "much"' in message) == ("sql", True)
    counted = "select (select count(*) from moved.orders) + (select count(*) from moved.loads) as n"
    assert await stage.rows(counted) == [{"n": 0}]


async def test_a_schema_that_drifted_is_named(stage: Stage) -> None:
    copy = {"table": "moved.orders", "from": await stage.file(b"id,total\n1,2\n")}
    assert await stage.failure(copy=copy) == ("sql", 'copy: column "total" of relation "orders" does not exist')
    copy["columns"] = ["id", "amount"]
    assert await stage.failure(copy=copy) == (
        "invalid_input",
        "copy.columns: a CSV file is loaded with all of its columns, and the file orders.csv has id, total",
    )
    copy = {"table": "moved.gone", "from": await stage.file(ORDERS)}
    assert await stage.failure(copy=copy) == ("not_found", "copy.table: no table moved.gone")


async def test_damaged_files_and_values_that_only_look_like_references_are_refused(stage: Stage) -> None:
    cut = await stage.file(gzip.compress(ORDERS * 10_000)[:-30], "orders.csv.gz")
    assert await stage.failure(copy={"table": "moved.orders", "from": cut}) == (
        "sql",
        "copy.from: the file orders.csv.gz ends too early, or is not gzip data",
    )
    encoded = await stage.file(ORDERS.decode().encode("utf-16"))
    kind, message = await stage.failure(copy={"table": "moved.orders", "from": encoded})
    assert (kind, message.partition(" (")[0]) == ("sql", "copy.from: the file orders.csv is in UTF-16")
    empty = await stage.file(b"")
    assert await stage.failure(copy={"table": "moved.orders", "from": empty}) == (
        "sql",
        "copy.from: the file orders.csv is empty",
    )
    unnamed = await stage.file(ORDERS, "download")
    assert await stage.failure(copy={"table": "moved.orders", "from": unnamed}) == (
        "invalid_input",
        "copy.from: the format of the file download is unknown, its media type is not known; write copy: "
        "{ …, format: csv }, or json, ndjson, parquet, excel",
    )
    for given in ({**cut, "seal": "made up"}, "orders.csv", {"table": {}}):
        kind, message = await stage.failure(copy={"table": "moved.orders", "from": given})
        assert (kind, "not a reference that this task can open" in message) == ("invalid_input", True)
    assert await stage.rows("select count(*) as n from moved.orders") == [{"n": 0}]


async def test_a_second_delivery_is_refused_by_a_table_of_keys(stage: Stage) -> None:
    command = "insert into moved.loads values (current_setting('noetl.idempotency_key'))"
    copy = {"table": "moved.orders", "from": await stage.file(ORDERS)}
    assert (await stage.run(command=command, copy=copy))["row_count"] == 2
    with pytest.raises(ToolFailure) as failed:
        await stage.run(command=command, copy=copy)
    assert failed.value.error.code == "23505"
    assert await stage.rows("select count(*) as n from moved.orders") == [{"n": 2}]


async def test_inputs_that_do_not_go_together_are_refused(stage: Stage) -> None:
    for inputs in ({}, {"command": "select 1", "into": "table", "copy": {"table": "t", "from": {}}}):
        assert (await stage.failure(**inputs))[0] == "invalid_input"
    kind, message = await stage.failure(command="truncate moved.orders", into="table")
    assert (kind, message) == ("invalid_input", "statement 1: with `into`, the last statement must return rows")


async def test_a_query_with_more_bytes_than_the_disk_may_hold_is_an_error(stage: Stage, egress: EgressRules) -> None:
    tool = PostgresTool(settings=ToolSettings(egress, max_scratch_bytes=1_000_000))
    small = Stage(tool, stage.duckdb, stage.data, stage.dsn)
    try:
        command = "select repeat('x', 1000) from generate_series(1, 10000)"
        assert await small.failure(command=command, into="table") == (
            "limit_exceeded",
            "the rows of the query: a task may have 1,000,000 bytes on its worker's disk (NOETL_MAX_SCRATCH_BYTES)",
        )
        assert await small.rows("select 1 as n") == [{"n": 1}]
    finally:
        await small.postgres.close()


async def test_a_row_of_a_hundred_megabytes_ends_the_query_before_it_is_in_memory(stage: Stage) -> None:
    kind, message = await stage.failure(command="select repeat('x', 100000000) as note", into="table")
    assert (kind, message) == (
        "limit_exceeded",
        "into: the query returns a row of more than 16,000,000 bytes; select less of it",
    )
    made = await stage.run(command="select repeat('x', 15000000) as note from generate_series(1, 3)", into="table")
    assert made["row_count"] == 3
