from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
import pytest_asyncio

from noetl_stream.settings.tools import ToolSettings
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.duckdb.tool import DuckdbTool
from noetl_testkit.waiting import TIMEOUT_S

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Runner:
    """Runs SQL."""

    def __init__(self, tool: DuckdbTool, make_call: Any) -> None:
        self.tool = tool
        self._make_call = make_call

    async def __call__(self, command: Any, *, knobs: Any = None, **inputs: Any) -> dict[str, Any]:
        async with asyncio.timeout(TIMEOUT_S):
            done = await self.tool.run(self._make_call({"command": command, **inputs}, knobs=knobs))
        result: dict[str, Any] = done.result
        return result

    async def failure(self, *args: Any, **kwargs: Any) -> ToolFailure:
        with pytest.raises(ToolFailure) as failed:
            await self(*args, **kwargs)
        return failed.value


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def run(make_call: Any, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Runner]:
    """Runs with a tool that all tests share, and whose operator allows their folders."""
    tool = DuckdbTool(ToolSettings(duckdb_folders=(tmp_path_factory.getbasetemp(),)))
    yield Runner(tool, make_call)
    await tool.close()


async def test_the_result_has_the_shape_of_every_sql_task(run: Runner) -> None:
    done = await run(
        "create table t (id int, name text); insert into t values (1, 'a'), (2, null); from t order by id; "
    )
    assert done == {
        "rows": [{"id": 1, "name": "a"}, {"id": 2, "name": None}],
        "row_count": 2,
        "columns": ["id", "name"],
        "statements": [
            {"command": "CREATE", "row_count": None},
            {"command": "INSERT", "row_count": 2},
            {"command": "SELECT", "row_count": 2},
        ],
    }


async def test_without_rows_the_count_is_that_of_the_last_change(run: Runner) -> None:
    done = await run(["create table t as select 1 as a", "update t set a = 2", "set variable x = 1"])
    assert (done["rows"], done["row_count"], done["columns"]) == ([], 1, [])


async def test_rows_of_returning_are_rows(run: Runner) -> None:
    done = await run('create table t (a int); insert into t values (1), (2) returning a as "Count"')
    assert done["rows"] == [{"Count": 1}, {"Count": 2}]


async def test_parameters_bind_by_name_and_by_place(run: Runner) -> None:
    done = await run("select $b - $a as x; select $a + 1 as x", params={"a": 1, "b": 5})
    assert done["rows"] == [{"x": 2}]
    done = await run("select 'only text: $a' as t, $2 - $1 as x", params=[1, 5])
    assert done["rows"] == [{"t": "only text: $a", "x": 4}]
    done = await run(
        "select $day::date + 1 as d, $names as names, $point as point",
        params={"day": "2024-02-28", "names": ["a", "b"], "point": {"x": 1}},
    )
    assert done["rows"] == [{"d": "2024-02-29", "names": ["a", "b"], "point": {"x": 1}}]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"b": 1}, "statement 1 uses $a, but params has b"),
        (None, "statement 1 uses $a, but the task has no params"),
        ({"a": 1, "b": 1}, "params.b: no statement uses $b"),
    ],
)
async def test_parameters_of_sql_must_fit_its_placeholders(run: Runner, params: Any, message: str) -> None:
    failed = await run.failure("select $a", params=params)
    assert (failed.error.kind, failed.error.message) == ("invalid_input", message)


async def test_types_of_duckdb_are_converted(run: Runner) -> None:
    sql = """select 1.50::decimal(9, 2) as n, 170141183460469231731687303715884105727::hugeint as huge,
        date '2024-01-02' as d,
        timestamp '2024-01-02 10:00:00' as t, interval '90 seconds' as i, 'hi'::blob as b, [1, null] as list,
        {'a': {'b': 1}} as struct, map {'k': 1} as map, uuid '00000000-0000-0000-0000-000000000001' as u"""
    assert (await run(sql))["rows"][0] == {
        "n": 1.5,
        "huge": 2**127 - 1,
        "d": "2024-01-02",
        "t": "2024-01-02T10:00:00",
        "i": 90.0,
        "b": "aGk=",
        "list": [1, None],
        "struct": {"a": {"b": 1}},
        "map": {"k": 1},
        "u": "00000000-0000-0000-0000-000000000001",
    }


async def test_times_with_a_zone_come_in_utc(run: Runner) -> None:
    sql = """-- the first comment
        select 1 as "first one", timestamptz '2024-01-02 10:00:00.5+02' as "the time", null::timestamptz as never,
               $n as n -- the last; comment
        """
    assert (await run(sql, params={"n": 3}))["rows"] == [
        {"first one": 1, "the time": "2024-01-02T08:00:00.500000+00:00", "never": None, "n": 3}
    ]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("""'{"a": [1, 0.5], "b": 12345678901234567890123}'::json""", {"a": [1, 0.5], "b": 12345678901234567890123}),
        ("""['{"a": 1}'::json, null]""", [{"a": 1}, None]),
        ("[timestamptz '2024-01-02 10:00:00+02']", ["2024-01-02T08:00:00+00:00"]),
        ("{'a b': date '2024-01-02', 'n': 1}", {"a b": "2024-01-02", "n": 1}),
        ("map {'k': interval '-1 day 90 seconds'}", {"k": -86_310.0}),
        ("row(1, timestamp '2024-01-02 10:00:00.5')", [1, "2024-01-02T10:00:00.500000"]),
        ("date '9999-12-31'", "9999-12-31"),
        ("timestamp '0001-01-01'", "0001-01-01T00:00:00"),
        ("timestamp_ns '2020-01-01 00:00:00.123456789'", "2020-01-01T00:00:00.123456789"),
        ("time '24:00:00'", "24:00:00"),
        ("timetz '10:00:00.5+02'", "10:00:00.500000+02:00"),
        ("[time_ns '10:00:00.123456789']", ["10:00:00.123456789"]),
        ("interval '-3 days -00:00:00.5'", -259_200.5),
        ("timestamptz '2024-01-02 01:00:00+02'::varchar", "2024-01-01 23:00:00+00"),
    ],
)
async def test_values_leave_as_they_are(run: Runner, expression: str, expected: Any) -> None:
    """Those that DuckDB's Python library would change, too."""
    [row] = (await run(f"select {expression} as a"))["rows"]
    assert row == {"a": expected}


async def test_the_rows_that_a_change_returns_are_read_or_refused(run: Runner) -> None:
    table = "create table t (a date, b timestamp, c json); insert into t values"
    done = await run(f"{table} ('2024-01-02', '2024-01-02 10:00:00', '[1]') returning *")
    assert done["rows"] == [{"a": "2024-01-02", "b": "2024-01-02T10:00:00", "c": [1]}]
    for values in ("('infinity', null, null)", "(null, '-infinity', null)", "('9999-12-31', null, null)"):
        failed = await run.failure(f"{table} {values} returning *")
        assert failed.error.message.endswith("its type can be read from a SELECT only; cast the column to text")


async def test_a_query_with_such_values_runs_once(run: Runner) -> None:
    sql = "create sequence numbers; select now() as at, nextval('numbers') as n; select nextval('numbers') as n"
    assert (await run(sql))["rows"] == [{"n": 2}]


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("12345678901234567.89::decimal(19,2)", "a JSON number cannot keep all its digits"),
        ("[{'b': 12345678901234567.89::decimal(19,2)}]", "a JSON number cannot keep all its digits"),
        ("'12345678901234567.89'::json", "a JSON number cannot keep all its digits"),
        ("date 'infinity'", "the date is infinite, or outside of the years 1 to 9999"),
        ("timestamp '0044-03-15 (BC) 10:00:00'", "the date is infinite, or outside of the years 1 to 9999"),
        ("[date '10000-01-01']", "the date is infinite, or outside of the years 1 to 9999"),
        ("interval '1 month'", "an interval with months has no number of seconds"),
    ],
)
async def test_values_that_json_cannot_keep_are_refused_with_advice(run: Runner, expression: str, reason: str) -> None:
    failed = await run.failure(f"select {expression} as a")
    assert failed.error.kind == "result_not_json"
    assert failed.error.message.startswith("rows[0].a")
    assert f"{reason}; cast the column to text" in failed.error.message


@pytest.mark.parametrize("value", [[1, "a"], [1, True], [2**53 + 1, 0.5], [{"a": 1}, {"b": 2}], {"a": 2**130}, 2**130])
async def test_a_parameter_that_duckdb_would_change_is_refused(run: Runner, value: Any) -> None:
    failed = await run.failure("select $v as v", params={"v": value})
    assert failed.error.kind == "invalid_input"
    assert failed.error.message.startswith("params.v: DuckDB would change it")
    failed = await run.failure("select $1 as v", params=[value])
    assert failed.error.message.startswith("params[0]: DuckDB would change it")


@pytest.mark.parametrize(
    "sql",
    ["select st_point(1, 2)", "from read_xlsx('a.xlsx')", "install spatial", "load spatial", "force install httpfs"],
)
async def test_an_extension_is_not_advised_but_reported_as_unreachable(run: Runner, sql: str) -> None:
    message = (await run.failure(sql)).error.message
    assert "tasks cannot" in message.lower()
    assert "INSTALL" not in message
    assert "NOETL_DUCKDB_PATHS" not in message


@pytest.mark.parametrize("url", ["s3://shop/orders.parquet", "https://shop.example/orders.parquet"])
async def test_a_url_is_not_taken_for_a_folder_that_could_be_allowed(run: Runner, url: str) -> None:
    error = (await run.failure(f"from read_parquet('{url}')")).error
    assert (error.kind, error.message.endswith("; tasks of `http` can fetch it")) == ("not_allowed", True)
    assert "NOETL_DUCKDB_PATHS" not in error.message


@pytest.mark.parametrize("expression", ["'nan'::double", "map {1: 2}"])
async def test_a_value_without_a_json_form_is_refused(run: Runner, expression: str) -> None:
    failed = await run.failure(f"select {expression} as a")
    assert failed.error.kind == "result_not_json"
    assert failed.error.message.startswith("rows[0].a: ")


async def test_two_columns_of_one_name_are_an_error(run: Runner) -> None:
    failed = await run.failure("select 1 as a, 2 as a")
    assert failed.error.message == "statement 1 returns more than one column named 'a'; rename them with AS"


async def test_earlier_rows_are_tables(run: Runner) -> None:
    rows = [{"id": n, "size": n / 2, "odd": n % 2 == 1, "name": f"n{n}", "tags": [n]} for n in range(5000)]
    sql = "select odd, count(*) as n, sum(size) as total, max(name) as name from points group by odd order by odd"
    done = await run(sql, tables={"points": rows})
    assert done["rows"] == [
        {"odd": False, "n": 2500, "total": 3123750.0, "name": "n998"},
        {"odd": True, "n": 2500, "total": 3125000.0, "name": "n999"},
    ]


async def test_the_types_of_a_table_follow_its_values(run: Runner) -> None:
    rows = [
        {
            "whole": 1,
            "number": 1,
            "huge": 2**70,
            "truth": None,
            "text": "2024-01-01",
            "mixed": 1,
            "tree": {"a": 1},
            "none": None,
        },
        {"whole": 2, "number": 1.5, "huge": 1, "truth": True, "text": None, "mixed": "x", "tree": [1], "late": 1},
    ]
    done = await run("select column_name, column_type from (describe t)", tables={"t": rows})
    assert {row["column_name"]: row["column_type"] for row in done["rows"]} == {
        "whole": "BIGINT",
        "number": "DOUBLE",
        "huge": "HUGEINT",
        "truth": "BOOLEAN",
        "text": "VARCHAR",
        "mixed": "JSON",
        "tree": "JSON",
        "none": "VARCHAR",
        "late": "BIGINT",
    }
    done = await run("select tree->>'a' as a, mixed, huge from t order by whole", tables={"t": rows})
    assert done["rows"] == [{"a": "1", "mixed": 1, "huge": 2**70}, {"a": None, "mixed": "x", "huge": 1}]


async def test_integers_that_a_double_cannot_hold_stay_beside_other_numbers(run: Runner) -> None:
    rows = [{"a": 2**53 + 1}, {"a": 0.5}]
    done = await run("select a, typeof(a) as type from t", tables={"t": rows})
    assert done["rows"] == [{"a": 2**53 + 1, "type": "JSON"}, {"a": 0.5, "type": "JSON"}]


async def test_names_of_tables_and_columns_may_be_anything(run: Runner) -> None:
    rows = [{'it\'s "odd"': 1, "select": 2}]
    done = await run('select "it\'s ""odd""" + "select" as sum from "my; table"', tables={"my; table": rows})
    assert done["rows"] == [{"sum": 3}]


async def test_an_empty_result_keeps_its_columns_as_a_table(run: Runner) -> None:
    empty = {"rows": [], "row_count": 0, "columns": ["id", "name"], "statements": []}
    done = await run("select count(id) as n from t", tables={"t": empty})
    assert done["rows"] == [{"n": 0}]


async def test_an_earlier_result_can_be_a_table(run: Runner) -> None:
    first = await run("select 1 as id union all select 2")
    assert (await run("select sum(id) as s from t", tables={"t": first}))["rows"] == [{"s": 3}]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([], "tables.t: columns unknown, since it has no rows; pass the result of the SQL task"),
        ([{"a": 1}, 5], "tables.t[1]: a row must be a mapping of columns to values"),
        ({"a": 1}, "tables.t: must be a list of rows, or the result of a SQL task that returned rows"),
        ({"rows": [5], "columns": ["a"]}, "tables.t[0]: a row must be a mapping of columns to values"),
        ("rows", "tables.t: input should be a valid list"),
    ],
)
async def test_an_invalid_table_is_rejected(run: Runner, table: Any, message: str) -> None:
    failed = await run.failure("select 1", tables={"t": table})
    assert failed.error.kind == "invalid_input"
    assert failed.error.message.startswith(message)


async def test_each_task_has_a_database_of_its_own(run: Runner) -> None:
    await run("create table t as select 1 as a")
    assert (await run.failure("from t")).error.kind == "sql"


async def test_a_database_file_lasts(run: Runner, tmp_path: Path) -> None:
    path = str(tmp_path / "kept.duckdb")
    await run("create table t as select 1 as a", database=path, tables={"given": [{"a": 1}]})
    done = await run("select table_name from information_schema.tables", database=path)
    assert done["rows"] == [{"table_name": "t"}]
    with duckdb.connect(path) as connection:
        assert connection.execute("from t").fetchall() == [(1,)]


async def test_a_task_that_fails_leaves_nothing_in_the_file(run: Runner, tmp_path: Path) -> None:
    path = str(tmp_path / "kept.duckdb")
    await run.failure("create table t as select 1 as a; select nothing", database=path)
    assert (await run("select count(*) as n from information_schema.tables", database=path))["rows"] == [{"n": 0}]


async def test_a_file_another_process_holds_is_a_connection_error(run: Runner, tmp_path: Path) -> None:
    path = str(tmp_path / "held.duckdb")
    program = f"import duckdb, sys; held = duckdb.connect({path!r}); print('held', flush=True); sys.stdin.read()"
    holder = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdin=PIPE, stdout=PIPE)
    assert holder.stdout is not None
    assert await holder.stdout.readline() == b"held\n"
    failed = await run.failure("select 1", database=path)
    await holder.communicate(b"")  # closes its standard input, so it ends
    assert (failed.error.kind, failed.error.retryable) == ("connection", True)
    assert path in failed.error.message


@pytest.mark.parametrize(
    ("sql", "kind", "message"),
    [
        ("selec 1", "syntax", 'command: Parser Error: syntax error at or near "selec" (line 1)'),
        ("select 1;\nselect nope", "sql", "statement 2: Binder Error: "),
        ("select 'a'::int", "sql", "statement 1: Conversion Error: Could not convert string 'a' to INT32 (line 1)"),
        (" -- nothing", "invalid_input", "command: has no statements"),
    ],
)
async def test_duckdb_errors_are_reported_on_one_line(run: Runner, sql: str, kind: str, message: str) -> None:
    failed = await run.failure(sql)
    assert failed.error.kind == kind
    assert failed.error.message.startswith(message)
    assert "\n" not in failed.error.message


async def test_more_rows_than_allowed_are_an_error(run: Runner) -> None:
    assert (await run("from range(3)", knobs={"max_rows": 3}))["row_count"] == 3
    assert (await run.failure("from range(1000000000)", knobs={"max_rows": 3})).error.kind == "result_too_large"


async def test_memory_can_be_limited(run: Runner) -> None:
    sql = "create table t as select range::varchar || repeat('x', 100) as a from range(10000000)"
    failed = await run.failure(sql, knobs={"memory_limit": "20MB", "threads": 1})
    assert (failed.error.kind, failed.error.code) == ("sql", "OutOfMemory")
    failed = await run.failure("select 1", knobs={"memory_limit": "much"})
    assert failed.error.kind == "invalid_input"


async def test_sql_can_read_the_idempotency_key(run: Runner) -> None:
    assert (await run("select getvariable('idempotency_key') as k"))["rows"] == [{"k": "key-1"}]


async def test_cancelling_interrupts_the_statement(run: Runner, tmp_path: Path) -> None:
    started = tmp_path / "started.csv"
    sql = f"copy (select 1) to '{started}'; select count(*) as n from range(1000000000000) t(a) where a % 7 = 3"
    task = asyncio.ensure_future(run(sql))
    while not started.exists():  # noqa: ASYNC110  # what tells is a file
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await run.tool.close()  # waits for the thread: it has ended


async def test_a_task_cancelled_before_its_thread_began_does_nothing(run: Runner) -> None:
    slow = "select count(*) as n from range(1000000000000) t(a) where a % 7 = 3"
    tasks = [asyncio.ensure_future(run(slow)) for _ in range(12)]
    for _ in range(3):
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(end) for end in ended} == {asyncio.CancelledError}, ended
    assert (await run("select 1 as a"))["rows"] == [{"a": 1}]


async def test_a_database_in_memory_may_be_named_as_duckdb_does(run: Runner) -> None:
    assert (await run("create table t as select 1 as a; select a from t", database=":memory:"))["rows"] == [{"a": 1}]
    assert (await run.failure("select a from t", database=":memory:")).error.kind == "sql"


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "command: field required"),
        ({"command": "select 1", "database": ":memory:x"}, "database: must be a file"),
        ({"command": "select 1", "attach": {"pg": {"auth": "db"}}}, "attach.pg.tables: field required"),
        ({"command": "select 1", "attach": {"pg": {"auth": "db", "tables": []}}}, "attach.pg.tables: list should have"),
        (
            {"command": "select 1", "attach": {"pg": {"auth": "db", "tables": ["t"], "read_only": False}}},
            "attach.pg.read_only: input should be True",
        ),
        (
            {"command": "select 1", "database": "x", "attach": {"pg": {"auth": "db", "tables": ["t"]}}},
            "attach: needs a database in memory; remove database",
        ),
        ({"command": "select 1", "auth": "x"}, "auth: unknown input"),
    ],
)
async def test_wrong_inputs_are_refused(run: Runner, make_call: Any, inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(ToolFailure) as failed:
        await run.tool.run(make_call(inputs))
    assert failed.value.error.kind == "invalid_input"
    assert failed.value.error.message.startswith(message)
