from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest
from msgspec.structs import replace

from noetl_stream.playbook.plan import Timeouts
from noetl_stream.settings.egress import EgressRules
from noetl_stream.tools.contract import ToolCall, ToolFailure
from noetl_stream.tools.egress import Egress
from noetl_stream.tools.postgres.pool import MAX_CONNECTIONS, ConnectionPools, PoolShare
from noetl_stream.tools.postgres.tool import PostgresTool
from noetl_testkit.waiting import TIMEOUT_S

_numbers = itertools.count()

TLS_REQUEST = (80877103).to_bytes(4, "big")
"""The first message of a client that wants an encrypted connection."""
CANCEL_REQUEST = (80877102).to_bytes(4, "big")


class Runner:
    """Runs SQL on the test's database."""

    def __init__(self, tool: PostgresTool, pools: ConnectionPools, make_call: Any, dsn: str) -> None:
        self.tool = tool
        self.pools = pools
        self._make_call = make_call
        self.dsn = dsn

    async def __call__(
        self, command: Any, params: Any = None, *, knobs: Any = None, timeouts: Any = None, credential: Any = None
    ) -> dict[str, Any]:
        inputs = {"auth": "db", "command": command, **({} if params is None else {"params": params})}
        call = self.call(inputs, knobs=knobs, timeouts=timeouts, credential=credential)
        async with asyncio.timeout(TIMEOUT_S):
            result: dict[str, Any] = (await self.tool.run(call)).result
            return result

    def call(self, inputs: Any, *, credential: Any = None, **given: Any) -> ToolCall:
        credentials = {"db": self.dsn if credential is None else credential}
        call: ToolCall = self._make_call(inputs, credentials=credentials, **given)
        return call

    async def failure(self, *args: Any, **kwargs: Any) -> ToolFailure:
        with pytest.raises(ToolFailure) as failed:
            await self(*args, **kwargs)
        return failed.value

    async def value(self, expression: str, params: Any = None) -> Any:
        return (await self(f"select {expression} as value", params))["rows"][0]["value"]


@pytest.fixture
async def run(make_call: Any, postgres_dsn: str, egress: EgressRules) -> AsyncIterator[Runner]:
    pools = ConnectionPools(Egress(egress))
    tool = PostgresTool(pools)
    yield Runner(tool, pools, make_call, postgres_dsn)
    await tool.close()


@pytest.fixture
async def table(run: Runner) -> str:
    name = f"t{next(_numbers)}"
    await run(f"create table {name} (id int primary key, name text)")
    return name


async def test_rows_are_mappings_by_column(run: Runner) -> None:
    done = await run("select 1 as id, 'a' as name union all select 2, null order by 1")
    assert done == {
        "rows": [{"id": 1, "name": "a"}, {"id": 2, "name": None}],
        "row_count": 2,
        "columns": ["id", "name"],
        "statements": [{"command": "SELECT", "row_count": 2}],
    }


async def test_a_statement_without_rows_keeps_its_columns(run: Runner) -> None:
    done = await run("select 1 as id where false")
    assert (done["rows"], done["row_count"], done["columns"]) == ([], 0, ["id"])


async def test_the_result_is_that_of_the_last_statement_that_returned_rows(run: Runner, table: str) -> None:
    done = await run(f"insert into {table} values (1), (2) returning id; update {table} set name = 'x'; -- end")
    assert done["rows"] == [{"id": 1}, {"id": 2}]
    assert done["statements"] == [{"command": "INSERT", "row_count": 2}, {"command": "UPDATE", "row_count": 2}]


async def test_without_rows_the_count_is_that_of_the_last_change(run: Runner, table: str) -> None:
    done = await run(
        [f"insert into {table} values (1), (2), (3)", f"delete from {table} where id > 1", "set local jit = off"]
    )
    assert (done["rows"], done["row_count"], done["columns"]) == ([], 2, [])
    assert [it["row_count"] for it in done["statements"]] == [3, 2, None]


@pytest.mark.parametrize("name", ["command", "query", "commands"])
async def test_the_three_names_of_the_text_mean_the_same(run: Runner, make_call: Any, name: str) -> None:
    call = make_call({"credential": "db", name: ["select 1 as a", "select 2 as a"]}, credentials={"db": run.dsn})
    assert (await run.tool.run(call)).result["rows"] == [{"a": 2}]


async def test_parameters_bind_by_name_and_by_place(run: Runner) -> None:
    sql = "select $b::int - $a::int as x, '$a' as y, $b::int as z; select $a::int as x"
    assert (await run(sql, {"a": 1, "b": 5}))["rows"] == [{"x": 1}]
    assert (await run("select $2::int - $1::int as x", [1, 5]))["rows"] == [{"x": 4}]
    assert (await run("select 'b' as b; select $2::text || $1::text as x", ["c", "d"]))["rows"] == [{"x": "dc"}]


@pytest.mark.parametrize(
    ("cast", "value", "expected"),
    [
        ("int", 5, 5),
        ("int", 5.0, 5),
        ("bigint", 2**62, 2**62),
        ("numeric", 0.1, 0.1),
        ("numeric", "12345678901234567890", 12345678901234567890),
        ("float8", 5, 5.0),
        ("bool", True, True),
        ("text", "a", "a"),
        ("text", None, None),
        ("varchar(1)", "a", "a"),
        ("uuid", "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000001"),
        ("date", "2024-02-29", "2024-02-29"),
        ("timestamp", "2024-02-29T10:00:00", "2024-02-29T10:00:00"),
        ("timestamptz", "2024-02-29T10:00:00+02:00", "2024-02-29T08:00:00+00:00"),
        ("timestamptz", "2024-02-29T10:00:00", "2024-02-29T10:00:00+00:00"),
        ("time", "10:00", "10:00:00"),
        ("timetz", "10:00+01:00", "10:00:00+01:00"),
        ("interval", 90.5, 90.5),
        ("text::interval", "1 day", 86_400.0),
        ("jsonb", {"a": [1, None]}, {"a": [1, None]}),
        ("jsonb", "text", "text"),
        ("json", [1], [1]),
        ("jsonb[]", [{"a": 1}, None], [{"a": 1}, None]),
        ("int[]", [1, None, 3], [1, None, 3]),
        ("int[]", [[1, 2], [3, 4]], [[1, 2], [3, 4]]),
        ("date[]", ["2024-01-01"], ["2024-01-01"]),
        ("bytea", "aGk=", "aGk="),
        ("inet", "10.0.0.1", "10.0.0.1"),
    ],
)
async def test_json_values_bind_by_the_type_postgres_expects_and_come_back(
    run: Runner, cast: str, value: Any, expected: Any
) -> None:
    back = await run.value(f"$v::{cast}", {"v": value})
    assert back == expected
    assert type(back) is type(expected)


@pytest.mark.parametrize(
    ("cast", "value", "reason"),
    [
        ("int", "5", "must be a whole number, not text"),
        ("int", 1.5, "must be a whole number, not a number"),
        ("int", True, "must be a whole number, not true or false"),
        ("int", 2**40, "out of int32 range"),
        ("text", 5, "Postgres expects text, not a number; write $v::bigint, or pass text"),
        ("text", {"a": 1}, "write $v::jsonb for a mapping"),
        ("bool", 1, "must be true or false"),
        ("numeric", "x", "text is not a number"),
        ("date", "tomorrow", "for other formats, write $v::text::date"),
        ("timestamp", "2024-01-01T00:00:00Z", "write $v::timestamptz"),
        ("interval", "1 day", "write $v::text::interval"),
        ("int[]", 5, "int4[] must be a list, not a number"),
        ("uuid", "secret-uuid", "params.v: is not a value of its type"),
        ("inet", "secret-host", "params.v: is not a value of its type"),
        ("timestamp", "2024-01-01T00:00:00.1234567", "to have Postgres round it, write $v::text::timestamp"),
        ("float8", 2**53 + 1, "write $v::numeric"),
        ("float8", 10**400, "write $v::numeric"),
        ("interval", 1e-7, "at most 6 decimal places"),
        ("numeric", "1e200000", "at most 131,072 digits"),
        ("bytea", "%", "base64"),
    ],
)
async def test_a_parameter_of_the_wrong_type_is_named_and_its_value_is_not_shown(
    run: Runner, cast: str, value: Any, reason: str
) -> None:
    failed = await run.failure(f"select $v::{cast}", {"v": value})
    assert failed.error.kind == "invalid_input"
    assert failed.error.message.startswith("params.v: ")
    assert reason in failed.error.message
    assert "query argument" not in failed.error.message
    assert "secret" not in failed.error.message


async def test_types_of_postgres_are_converted(run: Runner) -> None:
    sql = """select 12.50::numeric as n, 3::numeric as whole, '{"a": 1.5}'::jsonb as j, null::jsonb as nothing,
                    '\\x6869'::bytea as b, '10.0.0.0/8'::cidr as net, interval '1 day 2 hours' as i,
                    'a'::name as name"""
    assert (await run(sql))["rows"][0] == {
        "n": 12.5,
        "whole": 3,
        "j": {"a": 1.5},
        "nothing": None,
        "b": "aGk=",
        "net": "10.0.0.0/8",
        "i": 93_600.0,
        "name": "a",
    }


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("'NaN'::numeric", "rows[0].value: NaN is not a valid JSON number"),
        ("int4range(1, 5)", "rows[0].value: "),
        ("'-infinity'::interval", "rows[0].value: an interval with months, or an infinite one, has no number"),
        ("'1 year'::interval", "rows[0].value: an interval with months"),
        ("date 'infinity'", "rows[0].value: the date is infinite, or outside of the years 1 to 9999"),
        ("date '0044-03-15 BC'", "rows[0].value: the date is infinite, or outside of the years 1 to 9999"),
        ("timestamp '-infinity'", "rows[0].value: the date is infinite"),
        ("timestamptz '10000-01-01Z'", "rows[0].value: the date is infinite, or outside"),
        ("array[date '2024-01-01', 'infinity']", "rows[0].value[1]: the date is infinite"),
        ("12345678901234567.89::numeric(19,2)", "rows[0].value: a JSON number cannot keep all its digits"),
        ("array[1e-400]", "rows[0].value[0]: a JSON number cannot keep all its digits"),
        ("'{\"a\": [12345678901234567.89]}'::jsonb", "rows[0].value.a[0]: a JSON number cannot keep all its digits"),
        ("'1e-400'::json", "rows[0].value: a JSON number cannot keep all its digits"),
        ("'1e5000'::json", "rows[0].value: number longer than 4000 digits"),
    ],
)
async def test_a_value_without_a_json_form_is_refused_with_advice(run: Runner, expression: str, message: str) -> None:
    failed = await run.failure(f"select {expression} as value")
    assert failed.error.kind == "result_not_json"
    assert message in failed.error.message
    assert "cast" in failed.error.message


@pytest.mark.parametrize(
    ("cast", "value", "stored"),
    [
        ("date", "9999-12-31", "9999-12-31"),
        ("date", "0001-01-01", "0001-01-01"),
        ("timestamp", "9999-12-31T23:59:59.999999", "9999-12-31 23:59:59.999999"),
        ("timestamp", "0001-01-01T00:00:00", "0001-01-01 00:00:00"),
        ("timestamptz", "9999-12-31T23:59:59.999999+00:00", "9999-12-31 23:59:59.999999+00"),
        ("timestamptz", "0001-01-01T00:00:00+00:00", "0001-01-01 00:00:00+00"),
        ("date[]", ["9999-12-31", "0001-01-01", None], "{9999-12-31,0001-01-01,NULL}"),
        ("timestamp[]", ["9999-12-31T23:59:59.999999"], '{"9999-12-31 23:59:59.999999"}'),
        ("interval", 86_400.000001, "24:00:00.000001"),
        ("timetz", "10:00:00+02:30:15", "10:00:00+02:30:15"),
        ("time", "23:59:59.999999", "23:59:59.999999"),
    ],
)
async def test_a_date_or_time_is_stored_as_written_and_read_as_stored(
    run: Runner, cast: str, value: Any, stored: str
) -> None:
    """Also the first and the last days, which the driver takes for infinity."""
    done = await run(f"set local timezone = 'UTC'; select $v::{cast} as back, $v::{cast}::text as stored", {"v": value})
    assert done["rows"] == [{"back": value, "stored": stored}]


async def test_the_end_of_a_day_is_a_time(run: Runner) -> None:
    assert await run.value("time '24:00'") == "24:00:00"


async def test_a_number_with_more_digits_than_a_double_is_read_as_text_or_rounded(run: Runner) -> None:
    failed = await run.failure("select avg(n) as mean from unnest(array[10, 10, 10, 11, 20, 20, 21]) n")
    assert failed.error.message.endswith("; cast the column to text, or to double precision to round it")
    assert await run.value("(select avg(n)::float8 from unnest(array[1, 1, 2]) n)") == 4 / 3


async def test_integers_and_the_digits_of_json_columns_stay(run: Runner) -> None:
    document = '{"whole": 12345678901234567890123, "short": 0.1, "point": 1.0, "large": 1e300, "small": 5e-324}'
    back = await run.value(f"'{document}'::json")
    assert back == {"whole": 12345678901234567890123, "short": 0.1, "point": 1.0, "large": 1e300, "small": 5e-324}
    assert [type(back[key]) for key in ("whole", "point", "large")] == [int, float, float]


async def test_two_columns_of_one_name_are_an_error_and_nothing_is_kept(run: Runner, table: str) -> None:
    failed = await run.failure(f"insert into {table} values (1); select 1 as a, 2 as a")
    assert failed.error.kind == "sql"
    assert failed.error.message == "statement 2 returns more than one column named 'a'; rename them with AS"
    assert (await run(f"select * from {table}"))["rows"] == []


async def test_all_statements_are_one_transaction(run: Runner, table: str) -> None:
    failed = await run.failure(f"insert into {table} values (1);\ninsert into {table} values (1)")
    assert failed.error.kind == "sql"
    assert failed.error.code == "23505"
    assert failed.error.message.startswith("statement 2: duplicate key value")
    assert not failed.error.retryable
    assert failed.helper["sqlstate"] == failed.helper["code"] == "23505"
    assert failed.helper["message"].startswith("duplicate key value")
    assert (await run(f"select * from {table}"))["rows"] == []


async def test_an_error_names_the_statement_and_line(run: Runner) -> None:
    failed = await run.failure("select 1;\n\nselect $a::int,\n  nothing", {"a": 1})
    assert failed.error.message == 'statement 2 (line 4): column "nothing" does not exist'


async def test_sql_that_does_not_parse_is_a_syntax_error(run: Runner) -> None:
    failed = await run.failure("selec 1")
    assert (failed.error.kind, failed.error.code) == ("syntax", "42601")


async def test_a_failure_at_commit_is_an_error(run: Runner, table: str) -> None:
    await run(f"alter table {table} add constraint later unique (name) deferrable initially deferred")
    failed = await run.failure(f"insert into {table} values (1, 'a'), (2, 'a')")
    assert failed.error.code == "23505"
    assert failed.error.message.startswith("at commit: ")


@pytest.mark.parametrize(
    ("code", "kind", "retryable"),
    [
        ("40001", "sql", True),
        ("40P01", "sql", True),
        ("55P03", "sql", True),
        ("57P01", "sql", True),
        ("08006", "connection", True),
        ("57014", "timeout", True),
        ("P0001", "sql", False),
    ],
)
async def test_errors_that_may_pass_are_retryable(run: Runner, code: str, kind: str, retryable: bool) -> None:
    failed = await run.failure(f"do $$ begin raise exception 'no' using errcode = '{code}'; end $$")
    assert (failed.error.kind, failed.error.retryable, failed.error.code) == (kind, retryable, code)


@pytest.mark.parametrize(
    "sql", ["begin", "commit", "select 1; rollback", "start transaction", "prepare transaction 'x'", "end"]
)
async def test_statements_that_end_the_transaction_are_refused(run: Runner, sql: str) -> None:
    failed = await run.failure(sql)
    assert failed.error.kind == "invalid_input"
    assert "run in one transaction" in failed.error.message


async def test_without_a_transaction_each_statement_takes_effect_by_itself(run: Runner, table: str) -> None:
    alone = {"transaction": False}
    sql = f"insert into {table} values (1, 'a'); insert into {table} values (2, 'b') returning id; select 1 / 0"
    failed = await run.failure(sql, knobs=alone)
    assert failed.error.message.startswith("statement 3")
    assert (await run(f"select id from {table} order by id"))["rows"] == [{"id": 1}, {"id": 2}]
    assert (await run(f"vacuum {table}", knobs=alone))["statements"] == [{"command": "VACUUM", "row_count": None}]
    error = (await run.failure(f"vacuum {table}")).error
    assert (error.code, "(spec: { transaction: false } runs" in error.message) == ("25001", True)
    assert (await run.failure("select 1; commit", knobs=alone)).error.kind == "invalid_input"


async def test_without_a_transaction_the_idempotency_key_is_there_and_goes_with_the_task(run: Runner) -> None:
    key = "select current_setting('noetl.idempotency_key', true) as key, current_setting('application_name') as name"
    rows = (await run(f"select 1; {key}", knobs={"transaction": False}))["rows"]
    assert rows == [{"key": "key-1", "name": "noetl-stream step.task execution-1"}]
    async with run.pools.connection(run.call({}), "db") as connection:  # the one that was used before
        left = await connection.fetchrow(key)
    assert left is not None and not left["key"] and left["name"] == "noetl-stream"


async def test_without_a_transaction_more_rows_than_allowed_are_an_error_of_a_statement_that_has_run(
    run: Runner, table: str
) -> None:
    sql = f"insert into {table} select n, 'x' from generate_series(1, 4) n returning id"
    failed = await run.failure(sql, knobs={"transaction": False, "max_rows": 3})
    assert failed.error.kind == "result_too_large"
    assert await run.value(f"(select count(*) from {table})") == 4


async def test_without_a_transaction_a_procedure_may_commit_and_return_values(run: Runner, table: str) -> None:
    body = f"begin insert into {table} values (x, 'kept'); commit; x := x * 2; end"
    await run(f"create or replace procedure doubled(inout x int) language plpgsql as $$ {body} $$")
    assert "transaction: false" in (await run.failure("call doubled(21)")).error.message
    done = await run("call doubled(21)", knobs={"transaction": False})
    assert done["rows"] == [{"x": 42}]
    assert (await run(f"select * from {table}"))["rows"] == [{"id": 21, "name": "kept"}]


async def test_the_first_statement_of_a_transaction_is_the_authors(run: Runner) -> None:
    level = "current_setting('transaction_isolation') as level"
    first = "set transaction isolation level serializable, read only"
    assert (await run(f"{first}; select {level}"))["rows"] == [{"level": "serializable"}]


@pytest.mark.parametrize("transaction", [True, False])
async def test_the_isolation_of_transactions_can_be_chosen(run: Runner, transaction: bool) -> None:
    level = "select current_setting('transaction_isolation') as level"
    chosen = {"isolation": "repeatable_read", "transaction": transaction}
    assert (await run(level, knobs=chosen))["rows"] == [{"level": "repeatable read"}]
    assert (await run(level))["rows"] == [{"level": "read committed"}]  # the next task in the same session
    failed = await run.failure(level, knobs={"isolation": "chaos"})
    assert failed.error.message.startswith("isolation: input should be 'read_committed', 'repeatable_read' or")


async def test_savepoints_are_allowed_in_a_transaction(run: Runner, table: str) -> None:
    await run(f"insert into {table} values (1); savepoint s; insert into {table} values (2); rollback to s; release s")
    assert (await run(f"select id from {table}"))["rows"] == [{"id": 1}]


async def test_copy_over_the_connection_is_refused(run: Runner, table: str) -> None:
    for sql in (f"copy {table} from stdin", f"copy {table} to stdout"):
        assert (await run.failure(sql)).error.kind == "invalid_input"


async def test_more_rows_than_allowed_are_an_error(run: Runner) -> None:
    assert (await run("select generate_series(1, 3) as n", knobs={"max_rows": 3}))["row_count"] == 3
    failed = await run.failure("select generate_series(1, 1000000000) as n", knobs={"max_rows": 3})
    assert failed.error.kind == "result_too_large"


async def test_many_rows_are_complete(run: Runner) -> None:
    done = await run("select n, n::text as text, now() as at from generate_series(1, 5000) n order by n")
    assert done["row_count"] == 5000
    assert done["rows"][-1]["text"] == "5000"


async def test_rows_can_be_stored_from_one_json_parameter(run: Runner, table: str) -> None:
    rows = [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
    sql = f"insert into {table} select id, name from jsonb_to_recordset($rows::jsonb) as r(id int, name text)"
    assert (await run(sql, {"rows": rows}))["row_count"] == 2
    assert (await run(f"select * from {table} order by id"))["rows"] == rows


async def test_sql_can_read_the_idempotency_key_and_the_connection_says_whose_it_is(run: Runner) -> None:
    assert await run.value("current_setting('noetl.idempotency_key')") == "key-1"
    assert await run.value("current_setting('application_name')") == "noetl-stream step.task execution-1"


async def test_session_state_of_a_task_does_not_reach_the_next(run: Runner) -> None:
    for knobs in ({"transaction": True}, {"transaction": False}):
        left = "set search_path = nowhere; create temp table left_behind (a int); select pg_advisory_lock(7)"
        await run(left, knobs=knobs)
        assert await run.value("current_setting('search_path')") != "nowhere"
        assert await run.value("to_regclass('pg_temp.left_behind')::text") is None
        assert await run.value("(select count(*) from pg_locks where locktype = 'advisory' and objid = 7)") == 0


async def test_a_session_serves_one_trust_domain(run: Runner) -> None:
    async def session_of(domain: str) -> int:
        command = "select setseed(0.5); select pg_backend_pid() as pid"
        inputs = {"auth": "db", "command": command, "pool": {"max_size": 1}}
        result: Any = (await run.tool.run(run.call(inputs, trust_domain=domain))).result
        return int(result["rows"][0]["pid"])

    first, again, other = [await session_of(domain) for domain in ("one", "one", "two")]
    assert first == again != other


async def test_cancelling_ends_the_statement(run: Runner, postgres_dsn: str) -> None:
    observer = await asyncpg.connect(postgres_dsn)
    running = (
        "select count(*) from pg_stat_activity where query like '%the_slow_one%' and state = 'active' and pid <> $1"
    )
    task = asyncio.ensure_future(run("select pg_sleep(600) as the_slow_one"))
    while await observer.fetchval(running, observer.get_server_pid()) == 0:
        pass
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    while await observer.fetchval(running, observer.get_server_pid()) > 0:
        pass
    await observer.close()
    assert await run.value("1") == 1


class LossyProxy:
    """A proxy to a database that loses the first cancellations.

    Attributes:
        lost: How many it loses.
        cancellations: How many it was sent.
    """

    def __init__(self, socket_path: str) -> None:
        self.lost = 1
        self.cancellations = 0
        self._socket_path = socket_path

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(65536)
        if first[4:8] == CANCEL_REQUEST:
            self.cancellations += 1
            if self.cancellations <= self.lost:
                writer.close()
                return
        from_database, to_database = await asyncio.open_unix_connection(self._socket_path)
        to_database.write(first)
        await asyncio.gather(self._copy(reader, to_database), self._copy(from_database, writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()


@pytest.fixture
async def sleeping(run: Runner, postgres_dsn: str) -> AsyncIterator[tuple[LossyProxy, Callable[..., Any]]]:
    """A proxy that loses cancellations, and what starts a task through it and cancels it while its statement sleeps."""
    (socket_folder,) = parse_qs(urlsplit(postgres_dsn).query)["host"]
    proxy = LossyProxy(f"{socket_folder}/.s.PGSQL.5432")
    server = await asyncio.start_server(proxy.forward, "127.0.0.1", 0)
    address = f"postgresql://postgres@127.0.0.1:{server.sockets[0].getsockname()[1]}/postgres?sslmode=disable"
    observer = await asyncpg.connect(postgres_dsn)
    sleepers = "select pid from pg_stat_activity where query like '%the_lost_one%' and wait_event = 'PgSleep'"

    async def cancelled(**given: Any) -> list[int]:
        """Returns the processes of Postgres whose statement still sleeps."""
        task = asyncio.ensure_future(run("select pg_sleep(600) as the_lost_one", credential=address, **given))
        while not await observer.fetch(sleepers):
            assert not task.done(), task
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return [row["pid"] for row in await observer.fetch(sleepers)]

    yield proxy, cancelled
    server.close()
    await observer.execute(f"select pg_terminate_backend(pid) from ({sleepers}) as left_over")
    await observer.close()


@pytest.mark.parametrize("transaction", [True, False])
async def test_a_cancellation_that_postgres_does_not_notice_is_sent_again(
    sleeping: tuple[LossyProxy, Callable[..., Any]], transaction: bool
) -> None:
    proxy, cancelled = sleeping
    assert await cancelled(knobs={"transaction": transaction}) == []
    assert proxy.cancellations == 2


async def test_a_task_ends_though_its_statement_cannot_be_cancelled(
    run: Runner, sleeping: tuple[LossyProxy, Callable[..., Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noetl_stream.tools.postgres.connect.CANCEL_AGAIN_S", 0.01)
    proxy, cancelled = sleeping
    proxy.lost = 1000
    assert len(await cancelled()) == 1
    assert await run.value("1") == 1


async def test_a_statement_over_its_read_timeout_is_a_timeout(run: Runner) -> None:
    failed = await run.failure("select pg_sleep(600)", timeouts=Timeouts(read=0.05))
    assert (failed.error.kind, failed.error.retryable) == ("timeout", True)
    assert failed.error.message == "statement 1: exceeded timeout.read"


async def test_postgres_itself_ends_a_statement_whose_worker_is_gone(run: Runner) -> None:
    query = "select current_setting('statement_timeout') as limit"
    assert (await run(query, timeouts=Timeouts(total=60)))["rows"] == [{"limit": "61s"}]
    assert (await run(query, timeouts=Timeouts(total=60, read=5)))["rows"] == [{"limit": "6s"}]
    assert (await run(query, timeouts=Timeouts(total=1e9)))["rows"] == [{"limit": "2147483647ms"}]
    assert (await run(query))["rows"] == [{"limit": "0"}]


async def test_the_statement_timeout_of_the_sql_itself_is_a_timeout(run: Runner) -> None:
    failed = await run.failure("set statement_timeout = 20; select pg_sleep(600)")
    assert (failed.error.kind, failed.error.code, failed.error.retryable) == ("timeout", "57014", True)
    assert failed.helper["sqlstate"] == "57014"


@pytest.mark.parametrize(("sslmode", "asks_for_tls"), [("disable", False), ("prefer", True), ("require", True)])
async def test_the_credential_says_whether_the_connection_is_encrypted(
    run: Runner, sslmode: str, asks_for_tls: bool
) -> None:
    first: asyncio.Queue[bytes] = asyncio.Queue()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first.put_nowait(await reader.readexactly(8))
        writer.write(b"N")  # no TLS here
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    by_parts = {"host": "127.0.0.1", "port": port, "user": "u", "database": "d", "sslmode": sslmode}
    for credential in (f"postgresql://u@127.0.0.1:{port}/d?sslmode={sslmode}", by_parts):
        failed = await run.failure("select 1", credential=credential)
        assert failed.error.kind == "connection"
        assert (first.get_nowait()[4:] == TLS_REQUEST) == asks_for_tls
        while not first.empty():
            first.get_nowait()
    server.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    """A certificate for ``localhost``, which nothing trusts by itself, and a server's context with it."""
    folder = tmp_path_factory.mktemp("certificate")
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")]
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
        *subject,
        *files,
    ]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return folder / "certificate.pem", context


@pytest.mark.parametrize(
    ("host", "sslmode", "trusts_it", "is_encrypted"),
    [
        ("localhost", "require", False, True),
        ("localhost", "verify-full", True, True),
        ("127.0.0.1", "verify-ca", True, True),
        ("localhost", "verify-full", False, False),
        ("localhost", "verify-ca", False, False),
        ("127.0.0.1", "verify-full", True, False),
    ],
)
async def test_a_certificate_is_checked_for_the_name_in_the_address(
    make_call: Any,
    egress: EgressRules,
    certificate: tuple[Path, ssl.SSLContext],
    host: str,
    sslmode: str,
    trusts_it: bool,
    is_encrypted: bool,
) -> None:
    """Although the connection is made to the address that was checked."""
    file, context = certificate
    received: list[bytes] = []
    names: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: names.append(name)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        writer.write(b"S")
        with contextlib.suppress(OSError):
            await writer.start_tls(context)
            received.append(await reader.read(1024))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    roots = f"&sslrootcert={file}" if trusts_it else ""
    dsn = f"postgresql://u:p@{host}:{port}/d?sslmode={sslmode}{roots}"

    async def is_operators(_: str) -> bool:
        return True

    tool = PostgresTool(ConnectionPools(Egress(egress)))
    call = make_call({"auth": "db", "command": "select 1"}, credentials={"db": dsn})
    with pytest.raises(ToolFailure) as failed:
        await tool.run(replace(call, is_operators=is_operators))
    await tool.close()
    server.close()
    await server.wait_closed()
    assert failed.value.error.kind == "connection"
    assert any(b"user" in data for data in received) == is_encrypted
    assert set(names) == ({"localhost"} if host == "localhost" else {None})


async def test_a_connection_that_is_cut_is_a_connection_error_and_the_next_task_gets_a_new_one(run: Runner) -> None:
    failed = await run.failure("select pg_terminate_backend(pg_backend_pid())")
    assert failed.error.kind in ("connection", "sql")
    assert failed.error.retryable
    assert await run.value("1") == 1


async def test_many_tasks_share_a_few_connections(run: Runner) -> None:
    assert await asyncio.gather(*(run.value("$n::int", {"n": n}) for n in range(30))) == list(range(30))


async def test_tasks_with_a_pool_wait_for_its_connections_as_long_as_it_says(run: Runner) -> None:
    inputs = {"auth": "db", "command": "select 1 as a", "pool": {"max_size": 1, "timeout_s": 0.01}}
    async with run.pools.connection(run.call({}), "db", PoolShare(max_size=1)):
        with pytest.raises(ToolFailure) as failed:
            await run.tool.run(run.call(inputs))
        assert await run.value("1") == 1  # other tasks do not share it
    assert (failed.value.error.kind, failed.value.error.message) == (
        "timeout",
        "no database connection within 0.01 s (1 in use)",
    )
    patient = {**inputs, "pool": {"max_size": 1}}
    done = await asyncio.gather(*(run.tool.run(run.call(patient)) for _ in range(3)))
    assert [one.result["rows"] for one in done] == [[{"a": 1}]] * 3


async def test_a_wait_for_a_free_connection_is_longer_than_for_a_new_one_and_reported(run: Runner) -> None:
    """More tasks at once than connections: the others are in time, whatever `timeout.connect` is."""
    said: list[tuple[str, bytes]] = []
    inputs = {"auth": "db", "command": "select 1 as a"}
    call = replace(
        run.call(inputs, timeouts=Timeouts(connect=0.5)), write=lambda stream, line: said.append((stream, line))
    )
    async with contextlib.AsyncExitStack() as busy:
        for _ in range(MAX_CONNECTIONS):
            await busy.enter_async_context(run.pools.connection(run.call({}), "db"))
        task = asyncio.ensure_future(run.tool.run(call))
        done, _ = await asyncio.wait({task}, timeout=0.6)  # longer than a connection may take to be made
        assert not done
        assert [reading.values for reading in run.tool.readings()] == [{("postgres",): 1}]
    assert (await task).result["rows"] == [{"a": 1}]
    assert said == [("worker", b"waits for a database connection (8 in use)\n")]
    assert run.pools.waiting == 0


async def test_thirty_thousand_parameters_leave_the_event_loop_free(run: Runner) -> None:
    """Reading them takes long, so it happens in a thread, and in a time that grows as they do."""
    rows = ", ".join(f"(${2 * n + 1}::int, ${2 * n + 2}::text)" for n in range(15_000))
    params = [item for n in range(15_000) for item in (n, f"name {n}")]
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    beside = asyncio.ensure_future(others())
    await run.tool.run(run.call({"auth": "db", "command": "select 1"}))
    before = turns
    done = await run(f"select count(*) as n, max(name) as last from (values {rows}) as given (id, name)", params)
    beside.cancel()
    assert done["rows"] == [{"n": 15_000, "last": "name 9999"}]
    assert turns > before


async def test_more_parameters_than_the_driver_takes_are_refused(run: Runner) -> None:
    names = ", ".join(f"${n + 1}::int" for n in range(32_768))
    failed = await run.failure(f"select array[{names}]", list(range(32_768)))
    assert failed.error.kind == "invalid_input"
    assert failed.error.message.startswith("statement 1 uses 32,768 parameters, and may use 32,767")


async def test_a_credential_may_be_a_mapping(run: Runner, postgres_dsn: str) -> None:
    folder = postgres_dsn.partition("host=")[2]
    by_parts = {"host": folder, "user": "postgres", "database": "postgres", "port": 5432}
    for credential in ({"dsn": postgres_dsn}, by_parts):
        assert (await run("select 1 as a", credential=credential))["rows"] == [{"a": 1}]


@pytest.mark.parametrize(
    "credential",
    [
        "mysql://u:s3cret@h/d",
        {"dsn": "postgresql://h/d", "password": "s3cret"},
        {"user": "u", "password": "s3cret"},
        {"host": "h", "token": "s3cret"},
        {"host": "h", "port": "no"},
        {"host": 5},
        {"token": "s3cret"},
        "postgresql://u:s3cret@127.0.0.1:99999/d",
        "postgresql://u:s3cret@127.0.0.1/d?sslmode=s3cret",
    ],
)
async def test_a_credential_postgres_cannot_use_is_refused_without_showing_it(run: Runner, credential: Any) -> None:
    failed = await run.failure("select 1", credential=credential)
    assert failed.error.kind == "credential"
    assert failed.error.message.startswith("credential 'db': ")
    assert "s3cret" not in failed.error.message


async def test_a_database_that_refuses_the_credential_is_a_credential_error(run: Runner, postgres_dsn: str) -> None:
    for dsn in (postgres_dsn.replace("postgres@", "nobody@"), postgres_dsn.replace("/postgres?", "/nowhere?")):
        failed = await run.failure("select 1", credential=dsn)
        assert failed.error.kind == "credential"
        assert "does not exist" in failed.error.message


async def test_a_database_that_is_not_there_is_a_connection_error(run: Runner, postgres_dsn: str) -> None:
    for dsn in (f"{postgres_dsn}&port=1", "postgresql://u@127.0.0.1:1/d"):
        failed = await run.failure("select 1", credential=dsn)
        assert (failed.error.kind, failed.error.retryable) == ("connection", True)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"command": "select 1"}, "auth: field required"),
        ({"auth": "db"}, "`postgres` needs `command`, `copy` or both"),
        ({"auth": "db", "command": 5}, "command: input should be a valid string"),
        ({"auth": "db", "command": " -- nothing"}, "command: has no statements"),
        (
            {"auth": "db", "command": "select 1", "query": "select 2"},
            "query: is the same input as command; remove one",
        ),
        ({"auth": "db", "command": "select $a"}, "statement 1 uses $a, but the task has no params"),
        ({"auth": "db", "command": "select 1", "dsn": "x"}, "dsn: unknown input"),
        ({"auth": "db", "command": "select 1", "params": "x"}, "params: input should be a valid dictionary"),
    ],
)
async def test_wrong_inputs_are_refused(run: Runner, make_call: Any, inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(ToolFailure) as failed:
        await run.tool.run(make_call(inputs, credentials={"db": run.dsn}))
    assert failed.value.error.kind == "invalid_input"
    assert failed.value.error.message.startswith(message)


async def test_a_missing_credential_is_an_error(run: Runner, make_call: Any) -> None:
    with pytest.raises(ToolFailure) as failed:
        await run.tool.run(make_call({"auth": "db", "command": "select 1"}))
    assert failed.value.error.kind == "credential"
