"""``kind: duckdb`` with files and tables by reference."""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from duckdb_stage import Stage

from noetl_stream.settings.tools import ToolSettings
from noetl_stream.testing.calls import FilesInMemory
from noetl_stream.tools.contract import ToolFailure, WorkerUnfit
from noetl_stream.tools.duckdb.tool import DuckdbTool

ORDERS = b"id,amount,day\n1,12.5,2026-01-31\n2,7.25,2026-02-01\n3,,\n"


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = Stage(DuckdbTool(ToolSettings()), FilesInMemory())
    yield made
    await made.tool.close()
    assert not any(tmp_path.iterdir())  # noqa: ASYNC240  # no file is left behind


async def test_a_csv_file_is_a_table_with_types_found_in_it(stage: Stage) -> None:
    assert await stage.rows("from orders where id < 3", orders=await stage.file(ORDERS)) == [
        {"id": 1, "amount": 12.5, "day": "2026-01-31"},
        {"id": 2, "amount": 7.25, "day": "2026-02-01"},
    ]


async def test_the_media_type_or_else_the_name_says_the_format(stage: Stage) -> None:
    files = [
        await stage.file(b'[{"id": 1, "s": "x"}, {"id": 2}]', "a", "application/json"),
        await stage.file(b'{"id": 1, "s": "x"}\n{"id": 2}\n', "a.ndjson", "application/octet-stream"),
        await stage.file(b"id\ts\n1\tx\n2\t\n", "a.tsv", "text/plain"),
        await stage.file(gzip.compress(b"id,s\n1,x\n2,\n"), "a.csv.gz", "application/gzip"),
        await stage.file(gzip.compress(b'{"id": 1, "s": "x"}\n{"id": 2}\n'), "a.jsonl.gz"),
        await stage.file(b"id,s\n1,x\n2,\n", "export", "text/csv"),
    ]
    for file in files:
        assert await stage.rows("from given", given=file) == [{"id": 1, "s": "x"}, {"id": 2, "s": None}], file


async def test_options_say_what_a_csv_file_does_not(stage: Stage) -> None:
    file = await stage.file(b"001;2\n002;3\n", "codes")
    options = {"format": "csv", "delimiter": ";", "header": False, "columns": {"code": "VARCHAR", "n": "BIGINT"}}
    assert await stage.rows("from codes", codes={"file": file, **options}) == [
        {"code": "001", "n": 2},
        {"code": "002", "n": 3},
    ]


async def test_rows_become_a_table_and_a_later_task_reads_it(stage: Stage) -> None:
    made = await stage.run(
        "select day, sum(id) as ids from orders group by all order by day",
        tables={"orders": await stage.file(ORDERS)},
        into="table",
    )
    assert (made["row_count"], made["columns"], made["statements"]) == (
        3,
        ["day", "ids"],
        [{"command": "SELECT", "row_count": 3}],
    )
    table = made["table"]
    assert (table["rows"], table["media_type"]) == (3, "application/vnd.apache.parquet")
    assert table["columns"] == [{"name": "day", "type": "DATE"}, {"name": "ids", "type": "DECIMAL(38,0)"}]
    assert [row["ids"] for row in stage.data.heads[table["key"]]] == [1, 2, 3]
    # by reference, and as the result of its task
    for given in (table, made):
        assert await stage.rows("select sum(ids)::int as n from made", made=given) == [{"n": 6}]


async def test_a_table_keeps_values_that_parquet_would_round(stage: Stage) -> None:
    command = (
        "select 170141183460469231::hugeint * 10 as big, [1::hugeint] as list, {'a': 2::hugeint} as struct, "
        "map {'k': 3::hugeint} as map, interval '1 month 0.000001 seconds' as span, $given as given"
    )
    made = await stage.run(command, params={"given": "x"}, into="table")
    assert [column["type"] for column in made["table"]["columns"]] == [
        "DECIMAL(38,0)",
        "DECIMAL(38,0)[]",
        "STRUCT(a DECIMAL(38,0))",
        "MAP(VARCHAR, DECIMAL(38,0))",
        "VARCHAR",
        "VARCHAR",
    ]
    shown = (
        "select big::varchar as big, list[1]::int as l, struct.a::int as s, map['k']::int as m, span, given from made"
    )
    assert await stage.rows(shown, made=made["table"]) == [
        {"big": "1701411834604692310", "l": 1, "s": 2, "m": 3, "span": "1 month 00:00:00.000001", "given": "x"}
    ]


@pytest.mark.parametrize("long", ["repeat('x', 3_000)", "repeat('x', 2_000_000)", "'nan'::double"])
async def test_templates_read_so_many_rows_of_a_table_as_are_small_and_json(stage: Stage, long: str) -> None:
    made = await stage.run(f"select {long} as a from range(10)", into="table", knobs={"max_result_bytes": 1_000_000})
    assert len(stage.data.heads[made["table"]["key"]]) == (5 if "3_000" in long else 0)


async def test_rows_become_a_file(stage: Stage) -> None:
    written = {
        "csv": ("text/csv", b"a,b\n1,x\n2,\n"),
        "json": ("application/json", b'[\n\t{"a":1,"b":"x"},\n\t{"a":2,"b":null}\n]\n'),
        "ndjson": ("application/x-ndjson", b'{"a":1,"b":"x"}\n{"a":2,"b":null}\n'),
    }
    for form, (media_type, content) in written.items():
        made = await stage.run("select * from (values (1, 'x'), (2, null)) t(a, b)", into="file", format=form)
        assert (made["file"]["name"], made["file"]["media_type"], made["row_count"]) == (f"task.{form}", media_type, 2)
        assert await stage.read(made["file"]) == content


async def test_a_broken_line_is_named_with_its_number_and_column(stage: Stage) -> None:
    content = b"id,amount\n" + b"".join(b"%d,%d.5\n" % (n, n) for n in range(30_000)) + b"30000,many\n"
    kind, message = await stage.failure("select sum(amount) from orders", tables={"orders": await stage.file(content)})
    assert (kind, message) == (
        "sql",
        'statement 1: tables.orders, the file orders.csv, line 30002: converting column "amount". '
        "Could not convert string \"many\" to 'DOUBLE'",
    )


async def test_a_broken_line_of_a_short_file_is_named_too(stage: Stage) -> None:
    broken = {
        b"id,name\n1,Ada\n2\n": "line 3: Expected Number of Columns: 2 Found: 1",
        b"id,name\n1,Ada\n2,Bob,x\n": "line 3: Expected Number of Columns: 2 Found: 3",
        b'id,name\n1,Ada\n2,"Bob': "line 3: Value with unterminated quote found.",
        b"id,name\n1,Ada\n2,\xff\xfe\n": "line 3: Invalid unicode (byte sequence mismatch) detected.",
    }
    for content, reason in broken.items():
        kind, message = await stage.failure("from people", tables={"people": await stage.file(content, "people.csv")})
        assert (kind, reason in message) == ("sql", True), message
        assert "tables.people, the file people.csv, " in message or message.startswith("tables.people: the file people")


async def test_a_value_that_is_too_long_is_refused_at_once_with_its_line(stage: Stage) -> None:
    line = b"id,text\n1,short\n2," + b"x" * 4_100_000 + b"\n3,short\n"
    said = "has a line of more than 2,000,000 bytes, line 3"
    for name, content in {
        "a.csv": line,
        "a.csv.gz": gzip.compress(line, 1),
        "b.csv": line.replace(b"\n", b"\r"),
    }.items():
        table = {"given": await stage.file(content, name)}
        assert await stage.failure("from given", tables=table) == ("sql", f"tables.given: the file {name} {said}")
    objects = {"given": await stage.file(b'{"a": "' + b"x" * 34_000_000 + b'"}\n', "a.ndjson")}
    kind, message = await stage.failure("from given", tables=objects)
    assert (kind, "of 16777216 bytes exceeded" in message, "Try" in message) == ("sql", True, False), message
    almost = await stage.file(line.replace(b"x" * 3_000_000, b"", 1), "almost.csv")
    assert await stage.rows("select length(text) as n from given where id = 2", given=almost) == [{"n": 1_100_000}]


async def test_a_file_without_content_is_named(stage: Stage) -> None:
    kind, message = await stage.failure("from orders", tables={"orders": await stage.file(b"")})
    assert (kind, message) == ("sql", "tables.orders: the file orders.csv is empty")


async def test_some_broken_lines_may_be_left_out_and_are_seen(stage: Stage) -> None:
    content = b"id,amount\n1,2.5\n2,many\n3,1.5\n4\n"
    table = {"file": await stage.file(content), "columns": {"amount": "DOUBLE"}, "max_bad_rows": 2}
    shown = "select (select sum(amount) from orders) as amount, (select list(line) from orders_rejects) as lines"
    assert await stage.rows(shown, orders=table) == [{"amount": 4.0, "lines": [3, 5]}]
    kind, message = await stage.failure("from orders", tables={"orders": {**table, "max_bad_rows": 1}})
    assert (kind, message.partition("; ")[0]) == (
        "sql",
        "tables.orders: the file orders.csv has 2 lines that cannot be read (max_bad_rows: 1): line 3, column amount: "
        'Error when converting column "amount". Could not convert string "many" to \'DOUBLE\'',
    )


async def test_a_file_without_a_declared_column_is_named(stage: Stage) -> None:
    table = {"file": await stage.file(ORDERS), "columns": {"id": "BIGINT", "customer": "VARCHAR"}}
    assert await stage.failure("from orders", tables={"orders": table}) == (
        "sql",
        "tables.orders: the file orders.csv has no column customer, which `columns` names; it has id, amount, day",
    )
    table = {"file": await stage.file(ORDERS), "header": False, "columns": {"id": "BIGINT"}}
    kind, message = await stage.failure("from orders", tables={"orders": table})
    assert (kind, message) == (
        "sql",
        "tables.orders: the file orders.csv has 3 columns, and `columns` names 1",
    )


async def test_a_damaged_file_is_named(stage: Stage) -> None:
    damaged = {
        "orders.csv.gz": (gzip.compress(ORDERS * 1_000)[:-20], "Unexpected end of GZIP stream: the file orders.csv.gz"),
        "orders.json": (b'[{"id": 1}, {"id"', "Malformed JSON in the file orders.json, at"),
        "orders.ndjson": (b'{"id": 1}\n{"id"\n', "Malformed JSON in the file orders.ndjson, at"),
        "orders.parquet": (b"PAR1 but no more", "the file orders.parquet"),
    }
    for name, (content, reason) in damaged.items():
        kind, message = await stage.failure("from orders", tables={"orders": await stage.file(content, name)})
        assert (kind, message.startswith("tables.orders: "), reason in message) == ("sql", True, True), message


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("orders.csv.bz2", bz2.compress(ORDERS), "compressed with bzip2"),
        ("orders.csv.xz", lzma.compress(ORDERS), "compressed with xz"),
        ("orders.jsonl.zst", b"\x28\xb5\x2f\xfd\x20\x00", "compressed with zstd"),
        ("orders.json.zip", b"PK\x03\x04\x14\x00", "a zip archive"),
        ("orders.csv", ORDERS.decode().encode("utf-16"), "in UTF-16"),
    ],
)
async def test_text_that_is_packed_or_encoded_otherwise_is_refused_with_what_it_is(
    stage: Stage, name: str, content: bytes, found: str
) -> None:
    file = await stage.file(content, name, "application/octet-stream")
    assert await stage.failure("from orders", tables={"orders": file}) == (
        "sql",
        f"tables.orders: the file {name} is {found} (CSV and JSON are read in UTF-8, plain or gzipped; convert it "
        "before, as in a task of shell or python)",
    )


async def test_a_value_that_resembles_a_reference_is_refused(stage: Stage) -> None:
    table = {**await stage.file(ORDERS), "seal": "made up"}
    for given in (table, {"file": table}, {"file": "orders.csv"}, {"table": {}}):
        kind, message = await stage.failure("from orders", tables={"orders": given})
        assert (kind, message.partition(":")[0]) == ("invalid_input", "tables.orders")
        assert "not a reference that this task can open" in message


async def test_an_unknown_format_and_options_of_another_one_are_refused(stage: Stage) -> None:
    file = await stage.file(ORDERS, "orders", "application/octet-stream")
    assert await stage.failure("from orders", tables={"orders": file}) == (
        "invalid_input",
        "tables.orders: the format of the file orders is unknown, its media type is application/octet-stream; write "
        "orders: { file: …, format: csv }, or json, ndjson, parquet, excel",
    )
    table = {"file": file, "format": "json", "header": True}
    assert await stage.failure("from orders", tables={"orders": table}) == (
        "invalid_input",
        "tables.orders.header: is of CSV and Excel, and the file orders is read as json",
    )
    table = {"file": file, "format": "csv", "separator": ","}
    kind, message = await stage.failure("from orders", tables={"orders": table})
    assert (kind, message.startswith("tables.orders.separator: ")) == ("invalid_input", True)


async def test_the_sql_reaches_no_file_but_those_of_the_task(stage: Stage, tmp_path: Path) -> None:
    other = tmp_path.parent / "other.csv"
    other.write_bytes(ORDERS)
    tables = {"orders": await stage.file(ORDERS)}
    for command in (f"from read_csv('{other}')", "copy (select 1) to 'attached/other'", "from glob('attached/*')"):
        kind, _ = await stage.failure(command, tables=tables)
        assert kind == "not_allowed"


async def test_a_statement_that_is_no_query_cannot_become_a_table(stage: Stage) -> None:
    kind, message = await stage.failure("create table t as select 1", into="table")
    assert (kind, message) == (
        "invalid_input",
        "statement 1: with `into`, the last statement must be a query, and this is CREATE",
    )
    kind, message = await stage.failure("select 1 as a, 2 as a", into="table")
    assert (kind, "more than one column named 'a'" in message) == ("sql", True)


async def test_too_many_rows_say_how_to_have_them(stage: Stage) -> None:
    kind, message = await stage.failure("from range(11)", knobs={"max_rows": 10})
    assert (kind, "write `into: table`" in message) == ("result_too_large", True)
    assert (await stage.run("from range(11)", knobs={"max_rows": 10}, into="table"))["row_count"] == 11


async def test_a_task_writes_no_more_to_the_disk_than_the_operator_allows(stage: Stage) -> None:
    file = await stage.file(ORDERS * 100)
    small = Stage(DuckdbTool(ToolSettings(max_scratch_bytes=4_000)), stage.data)
    try:
        assert await small.failure("from orders", tables={"orders": file}) == (
            "limit_exceeded",
            "tables.orders: the file orders.csv: a task may have 4,000 bytes on its worker's disk "
            "(NOETL_MAX_SCRATCH_BYTES)",
        )
        assert await small.failure("select random() as n from range(100_000)", into="table") == (
            "limit_exceeded",
            "statement 1: it writes more bytes than a task may have on its worker's disk (NOETL_MAX_SCRATCH_BYTES)",
        )
    finally:
        await small.tool.close()


async def test_a_query_cannot_change_a_table_that_the_next_iteration_reads(stage: Stage) -> None:
    table = (await stage.run("from range(100)", into="table"))["table"]
    first, second = {**table, "rows": 50}, {**table, "first": 50, "rows": 50}
    over = "copy (select 1) to 'attached/0/table.parquet' (use_tmp_file false)"
    kind, message = await stage.failure(over, tables={"part": first})
    assert (kind, message.rpartition(": ")[2]) == ("sql", "Permission denied")
    assert await stage.rows("select sum(range) as n from part", part=second) == [{"n": 3725}]


async def test_a_lost_table_is_named_and_leaves_no_file(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    table = (await stage.run("select 1 as a", into="table"))["table"]

    async def lost(_reference: Any) -> AsyncIterator[bytes]:
        yield b"PAR1"
        raise ToolFailure.of("result_lost", "the table is lost: no part 1")

    monkeypatch.setattr(stage.data, "read", lost)
    assert await stage.failure("from made", tables={"made": table}) == ("result_lost", "the table is lost: no part 1")


async def test_a_worker_whose_disk_is_full_gives_the_task_back(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    file = await stage.file(ORDERS)

    def full(_path: Path, mode: str = "r") -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    expected = r"cannot write tables\.orders: the file orders\.csv to .*: No space left"
    with monkeypatch.context() as patched, pytest.raises(WorkerUnfit, match=expected):
        patched.setattr(Path, "open", full)
        await stage.run("from orders", tables={"orders": file})


async def test_a_table_larger_than_the_memory_spills_to_the_disk(stage: Stage) -> None:
    command = """
        create temp table wide as select i, md5(i::varchar) || md5((-i)::varchar) as text from range(900_000) t(i);
        select count(*) as n from wide where text > 'f'
    """
    knobs = {"memory_limit": "64MB", "threads": 1}
    assert (await stage.failure(command, knobs=knobs))[0] == "sql"
    assert (await stage.run(command, into="table", knobs=knobs))["row_count"] == 1
