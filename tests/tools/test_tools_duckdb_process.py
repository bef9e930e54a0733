"""Tasks of ``kind: duckdb`` have bounds of bytes and time that hold, whatever their SQL does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from noetl_stream.settings.tools import ToolSettings
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.duckdb.child import MAX_KEPT_BYTES
from noetl_stream.tools.duckdb.tool import DuckdbTool
from noetl_testkit.waiting import TIMEOUT_S, until

UNINTERRUPTIBLE = "select " + ", ".join(f"lpad('a', 500000000, '{n}') as c{n}" for n in range(40))
"""Takes minutes, since DuckDB looks for an interrupt between two vectors of rows only."""
ENDLESS = "select count(*) as n from range(1000000000000) t(a) where a % 7 = 3"


OTHERS: set[int] = set()
"""The processes that tests before have left running, such as those of a shared stack."""


@pytest.fixture
async def tool(tmp_path: Path) -> AsyncIterator[DuckdbTool]:
    OTHERS.clear()
    OTHERS.update(process.pid for process in duckdb_processes())
    tool = DuckdbTool(ToolSettings(duckdb_folders=(tmp_path,)))
    yield tool
    await tool.close()


async def run(tool: DuckdbTool, make_call: Any, command: str, knobs: Any = None, **inputs: Any) -> dict[str, Any]:
    async with asyncio.timeout(TIMEOUT_S):
        result: dict[str, Any] = (await tool.run(make_call({"command": command, **inputs}, knobs=knobs))).result
        return result


def duckdb_processes() -> list[psutil.Process]:
    children = (child for zygote in psutil.Process().children() for child in zygote.children())
    return [child for child in children if child.pid not in OTHERS]


async def when_begun(tool: DuckdbTool, make_call: Any, tmp_path: Path, sql: str, **inputs: Any) -> asyncio.Task[Any]:
    """Returns a task whose statement ``sql`` has begun, or is about to."""
    started = tmp_path / "started.csv"
    task = asyncio.ensure_future(run(tool, make_call, f"copy (select 1) to '{started}'; {sql}", **inputs))
    while not started.exists():  # noqa: ASYNC110  # what tells is a file
        await asyncio.sleep(0)
    return task


async def test_a_statement_that_cannot_be_interrupted_ends_with_its_task(
    tool: DuckdbTool, make_call: Any, tmp_path: Path
) -> None:
    task = await when_begun(tool, make_call, tmp_path, UNINTERRUPTIBLE)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: duckdb_processes() == [])  # it is killed, and the system takes its memory back first
    assert (await run(tool, make_call, "select 1 as a"))["rows"] == [{"a": 1}]


async def test_a_process_serves_one_task_at_a_time(tool: DuckdbTool, make_call: Any) -> None:
    await run(tool, make_call, "create table t as select 1 as a")
    before = duckdb_processes()
    with pytest.raises(ToolFailure, match="t does not exist"):
        await run(tool, make_call, "from t")
    assert duckdb_processes() == before


async def test_a_killed_process_is_a_crash_worth_a_retry(tool: DuckdbTool, make_call: Any, tmp_path: Path) -> None:
    task = await when_begun(tool, make_call, tmp_path, ENDLESS)
    [process] = duckdb_processes()
    process.kill()
    with pytest.raises(ToolFailure) as failed:
        await task
    error = failed.value.error
    assert (error.kind, error.retryable, error.code) == ("crashed", True, "-9")
    assert error.message == "the DuckDB process that ran step.task died (signal SIGKILL)"
    assert (await run(tool, make_call, "select 1 as a"))["rows"] == [{"a": 1}]


async def test_a_process_that_died_idle_is_replaced_unseen(tool: DuckdbTool, make_call: Any) -> None:
    await run(tool, make_call, "select 1 as a")
    [process] = duckdb_processes()
    process.kill()
    assert (await run(tool, make_call, "select 1 as a"))["rows"] == [{"a": 1}]


async def test_memory_that_duckdb_does_not_count_is_bounded_too(tool: DuckdbTool, make_call: Any) -> None:
    with pytest.raises(ToolFailure) as failed:
        await run(tool, make_call, "select repeat('x', 10000000) as a from range(400)", {"memory_limit": "100MB"})
    assert (failed.value.error.kind, failed.value.error.code) == ("sql", "OutOfMemory")


async def test_a_result_has_a_bound_of_bytes(tool: DuckdbTool, make_call: Any) -> None:
    rows = [{"a": "x" * 100}] * 5000
    encoded = len(msgspec.json.encode(rows)) + len('["a"]') + 100  # each list of rows has brackets of its own
    sql = "select repeat('x', 100) as a from range(5000)"
    assert (await run(tool, make_call, sql, {"max_result_bytes": encoded}))["rows"] == rows
    for command in (sql, f"{sql}; select 1 as b"):
        with pytest.raises(ToolFailure) as failed:
            await run(tool, make_call, command, {"max_result_bytes": 500_000})
        assert failed.value.error.kind == "result_too_large"
        assert failed.value.error.message == (
            "statement 1 returns more than max_result_bytes (500,000) bytes; select less, "
            "write `into: table`, or raise max_result_bytes"
        )


async def test_rows_of_any_length_arrive_in_order(tool: DuckdbTool, make_call: Any) -> None:
    sql = "select range as n, repeat('x', case when range % 1000 = 7 then 300000 else 1 end) as a from range(9000)"
    rows = (await run(tool, make_call, sql))["rows"]
    assert [row["n"] for row in rows] == list(range(9000))
    assert {len(row["a"]) for row in rows} == {1, 300_000}


async def test_a_value_that_json_cannot_hold_is_named_by_its_row(tool: DuckdbTool, make_call: Any) -> None:
    sql = "select case when range = 4321 then 'nan'::double else 1 end as a from range(9000)"
    with pytest.raises(ToolFailure, match=r"rows\[4321\]\.a: nan is not a valid JSON number"):
        await run(tool, make_call, sql)
    assert (await run(tool, make_call, f"{sql}; select 1 as b"))["rows"] == [{"b": 1}]


@pytest.mark.verify
async def test_a_process_that_keeps_much_memory_takes_no_other_task(tool: DuckdbTool, make_call: Any) -> None:
    rows = [{"a": "x" * 1000}] * (MAX_KEPT_BYTES // 1000)
    sql = "select count(*) as n, sum(length(a)) as size from t"
    done = await run(tool, make_call, sql, {"max_result_bytes": 1000}, tables={"t": rows})
    assert done["rows"] == [{"n": len(rows), "size": 1000 * len(rows)}]
    assert (await run(tool, make_call, "select 1 as a"))["rows"] == [{"a": 1}]


async def test_tasks_on_one_file_take_turns_and_say_so(tool: DuckdbTool, make_call: Any, tmp_path: Path) -> None:
    database = str(tmp_path / "shared.duckdb")
    first = await when_begun(tool, make_call, tmp_path, ENDLESS, database=database)
    waits: asyncio.Queue[str] = asyncio.Queue()

    @contextmanager
    def queued(what: str) -> Any:
        waits.put_nowait(what)
        yield

    call = msgspec.structs.replace(make_call({"command": "select 1 as a", "database": database}), queued=queued)
    second = asyncio.ensure_future(tool.run(call))
    async with asyncio.timeout(TIMEOUT_S):
        assert await waits.get() == f"a turn on the database file {database}: 1 of 1 in use"
        first.cancel()
        assert (await second).result["rows"] == [{"a": 1}]


async def test_files_spilled_by_a_killed_task_are_removed(tool: DuckdbTool, make_call: Any, tmp_path: Path) -> None:
    database = tmp_path / "kept.duckdb"
    large = "create table t as select repeat(md5(range::varchar), 20) as a from range(100000000) order by hash(range)"
    task = asyncio.ensure_future(run(tool, make_call, large, {"memory_limit": "150MB"}, database=str(database)))
    spilled = Path(f"{database}.tmp")
    while not any(spilled.glob("*.tmp")):  # noqa: ASYNC240  # what tells is a file
        assert not task.done(), await task
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list(spilled.glob("*")) == []  # noqa: ASYNC240
    assert (await run(tool, make_call, "show tables", database=str(database)))["rows"] == []


async def test_a_long_row_arrives_as_it_is(tool: DuckdbTool, make_call: Any) -> None:
    [row] = (await run(tool, make_call, "select list(range) as a, repeat('é', 300000) as b from range(200000)"))["rows"]
    assert row == {"a": list(range(200_000)), "b": "é" * 300_000}
