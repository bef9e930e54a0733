"""SQL of ``kind: duckdb`` cannot use files, extensions, the network or settings that the operator does not allow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from noetl_stream.settings.tools import ToolSettings
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.duckdb.tool import DuckdbTool
from noetl_testkit.waiting import TIMEOUT_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

Run = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture(scope="module")
def allowed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the operator allows."""
    return tmp_path_factory.mktemp("allowed")


@pytest.fixture
def inside(allowed: Path) -> Path:
    """A folder of the test's own in the one that the operator allows."""
    folder = allowed / str(len(list(allowed.iterdir())))
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def outside(allowed: Path) -> Path:
    """A folder that is not allowed, with a secret in it."""
    folder = allowed.parent / "outside"
    folder.mkdir()
    (folder / "secret.csv").write_text("a\ns3cret\n")
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def run(make_call: Any, allowed: Path) -> AsyncIterator[Run]:
    """Runs a command with a tool that all tests share: its processes take a while to start."""
    tool = DuckdbTool.configured(ToolSettings(duckdb_folders=(allowed,)))

    async def run(command: str, **inputs: Any) -> dict[str, Any]:
        async with asyncio.timeout(TIMEOUT_S):
            result: dict[str, Any] = (await tool.run(make_call({"command": command, **inputs}))).result
            return result

    yield run
    await tool.close()


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


ESCAPES = [
    "from read_csv('{out}/secret.csv')",
    "from read_text('{out}/secret.csv')",
    "from read_blob('{out}/secret.csv')",
    "from read_json('{out}/secret.csv')",
    "from read_ndjson_objects('{out}/secret.csv')",
    "from read_parquet('{out}/secret.csv')",
    "from parquet_metadata('{out}/secret.csv')",
    "from read_csv('file://{out}/secret.csv')",
    "from read_text('{into}/../../outside/secret.csv')",
    "from sniff_csv('{out}/secret.csv')",
    "from glob('{out}/*')",
    "from glob('{into}/../../outside/*')",
    "from '{out}/secret.csv'",
    "from query('from read_text(''{out}/secret.csv'')')",
    "create table t as from read_csv('{out}/secret.csv')",
    "create table t (a text); copy t from '{out}/secret.csv'",
    "copy (select 1) to '{out}/new.csv'",
    "copy (select 1) to '{into}/../../outside/new.csv'",
    "copy (select 1) to '{out}/new.parquet' (format parquet)",
    "copy (select 1) to '/dev/stdout'",
    "export database '{out}/new'",
    "import database '{out}'",
    "attach '{out}/new.duckdb'",
    "attach '{into}/../../outside/new.duckdb'",
    "attach 'http://127.0.0.1:9/x.duckdb'",
    "attach 'postgresql://127.0.0.1:9/x' as pg (type postgres)",
    "attach '{out}/new.sqlite' (type sqlite)",
    "from read_csv('http://127.0.0.1:9/x.csv')",
    "from read_parquet('s3://bucket/x.parquet')",
    "install httpfs",
    "force install httpfs",
    "load httpfs",
    "load '{into}/own.duckdb_extension'",
    "update extensions",
    "create persistent secret s (type http, bearer_token 'x')",
    "set enable_external_access = true",
    "set lock_configuration = false",
    "reset lock_configuration",
    "set allowed_directories = ['/']",
    "set allowed_paths = ['{out}/secret.csv']",
    "set global memory_limit = '100GB'",
    "set session threads = 100",
    "reset memory_limit",
    "pragma memory_limit = '100GB'",
    "pragma threads = 100",
    "set temp_directory = '{out}'",
    "set file_search_path = '{out}'",
    "set home_directory = '{out}'",
    "set extension_directory = '{out}'",
    "set log_query_path = '{out}/new.log'",
    "set profiling_output = '{out}/new.json'",
    "pragma profiling_output = '{out}/new.json'",
    "pragma enable_profiling",
    "call enable_logging(storage := 'file', storage_path := '{out}')",
    "set python_enable_replacements = true",
    "select getenv('HOME')",
    "from duckdb_extensions()",
]


@pytest.mark.parametrize("sql", ESCAPES)
async def test_sql_cannot_leave_the_allowed_folders(run: Run, inside: Path, outside: Path, sql: str) -> None:
    with pytest.raises(ToolFailure) as failed:
        await run(sql.format(out=outside, into=inside))
    assert failed.value.error.kind in ("not_allowed", "sql")
    assert "s3cret" not in failed.value.error.message
    assert contents(outside) == {"secret.csv": "a\ns3cret\n"}


async def test_a_forbidden_file_is_an_error_that_names_the_setting(run: Run, outside: Path) -> None:
    with pytest.raises(ToolFailure) as failed:
        await run(f"from read_text('{outside}/secret.csv')")
    assert failed.value.error.kind == "not_allowed"
    assert "NOETL_DUCKDB_PATHS" in failed.value.error.message


async def test_files_of_an_opened_folder_can_be_read_and_written(run: Run, inside: Path) -> None:
    await run(f"copy (select 1 as a union all select 2) to '{inside}/data.csv'")
    assert (await run(f"select sum(a) as s from read_csv('{inside}/data.csv')"))["rows"] == [{"s": 3}]
    await run(f"attach '{inside}/other.duckdb' as other; create table other.t as select 1 as a")
    assert (await run("from t", database=f"{inside}/other.duckdb"))["rows"] == [{"a": 1}]


async def test_without_an_opened_folder_no_file_is_there(make_call: Any, inside: Path) -> None:
    (inside / "data.csv").write_text("a\n1\n")
    tool = DuckdbTool()
    for inputs in ({"command": f"from '{inside}/data.csv'"}, {"command": "select 1", "database": f"{inside}/x.duckdb"}):
        with pytest.raises(ToolFailure) as failed:
            await tool.run(make_call(inputs))
        assert failed.value.error.kind in ("not_allowed", "sql")
    await tool.close()
    assert contents(inside) == {"data.csv": "a\n1\n"}


@pytest.mark.parametrize(
    "path", ["{out}/x.duckdb", "{into}/../../outside/x.duckdb", "{into}/link/x.duckdb", "x.duckdb"]
)
async def test_a_database_file_must_be_in_an_allowed_folder(run: Run, inside: Path, outside: Path, path: str) -> None:
    (inside / "link").symlink_to(outside)
    with pytest.raises(ToolFailure) as failed:
        await run("select 1", database=path.format(out=outside, into=inside))
    assert failed.value.error.kind == "not_allowed"
    assert "NOETL_DUCKDB_PATHS" in failed.value.error.message
    assert contents(outside) == {"secret.csv": "a\ns3cret\n"}


async def test_tasks_on_one_file_at_the_same_time_are_all_locked(run: Run, inside: Path, outside: Path) -> None:
    database = f"{inside}/shared.duckdb"
    await run("create table t as select 1 as a", database=database)
    reads = [run("from t", database=database) for _ in range(8)]
    escapes = [run(f"from read_text('{outside}/secret.csv')", database=database) for _ in range(8)]
    ended = await asyncio.gather(*reads, *escapes, return_exceptions=True)
    assert [end["rows"] for end in ended[:8] if isinstance(end, dict)] == [[{"a": 1}]] * 8
    assert {end.error.kind for end in ended[8:] if isinstance(end, ToolFailure)} == {"not_allowed"}


@pytest.mark.parametrize("place", ["':memory:'", "':memory:named'", "''", "/* a */ ':memory:'"])
async def test_tasks_on_one_file_share_no_database_in_memory(run: Run, inside: Path, place: str) -> None:
    with pytest.raises(ToolFailure, match="use temporary tables") as failed:
        await run(f"attach {place} as shared", database=f"{inside}/shared.duckdb")
    assert failed.value.error.kind == "not_allowed"


SECRETS = [
    "create secret s (type http, bearer_token 'hush')",
    "create or replace temporary secret s (type http, bearer_token 'hush')",
    "/* ' /* */ */ create -- /*\n temp/**/secret s (type http, bearer_token 'hush')",
    "explain analyze create secret s (type http, bearer_token 'hush')",
    "EXPLAIN (format 'json', analyze) CREATE SECRET s (type http, bearer_token 'hush')",
]


@pytest.mark.parametrize("sql", SECRETS)
async def test_tasks_on_one_file_share_no_secret(run: Run, inside: Path, sql: str) -> None:
    database = f"{inside}/shared.duckdb"
    with pytest.raises(ToolFailure, match="could use this secret") as failed:
        await run(sql, database=database)
    assert failed.value.error.kind == "not_allowed"
    assert (await run("select count(*) as n from duckdb_secrets()", database=database))["rows"] == [{"n": 0}]


@pytest.mark.parametrize(
    ("left", "look"),
    [
        ("create temp table left_over as select 1", "from left_over"),
        ("create temp macro left_over() as 1", "select left_over()"),
        ("create temp sequence left_over", "select nextval('left_over')"),
        ("prepare left_over as select 1", "execute left_over"),
        ("set variable left_over = 1", "select error('none') where getvariable('left_over') is null"),
    ],
)
async def test_settings_that_a_task_leaves_in_its_connection_are_not_found_by_others_on_the_file(
    run: Run, inside: Path, left: str, look: str
) -> None:
    database = f"{inside}/shared.duckdb"
    await run(f"{left}; create table secret as select 1 as a", database=database)
    with pytest.raises(ToolFailure):
        await run(look, database=database)


async def test_a_task_on_no_file_may_create_a_secret_of_its_own(run: Run) -> None:
    await run("create secret s (type http, bearer_token 'hush'); select 1 as a")
    assert (await run("select count(*) as n from duckdb_secrets()"))["rows"] == [{"n": 0}]


async def test_a_task_on_no_file_may_attach_a_database_in_memory(run: Run) -> None:
    assert (await run("attach ':memory:' as own; select 1 as a"))["rows"] == [{"a": 1}]


async def test_a_file_may_be_attached_to_another(run: Run, inside: Path) -> None:
    await run("create table t as select 1 as a", database=f"{inside}/other.duckdb")
    attached = f"ATTACH IF NOT EXISTS '{inside}/other.duckdb' AS other; from other.t"
    assert (await run(attached, database=f"{inside}/shared.duckdb"))["rows"] == [{"a": 1}]


async def test_a_table_name_does_not_find_the_worker_s_variables(run: Run) -> None:
    with pytest.raises(ToolFailure, match="rows does not exist"):
        await run("from rows")
