"""``kind: python`` with files and tables by reference (LANGUAGE §10 *Files and tables*, §12 *python*)."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from noetl_stream.sealing.data_references import DataReference
from noetl_stream.settings.children import ChildSettings
from noetl_stream.testing.calls import FilesInMemory, tool_call
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.python.signatures import args_warning
from noetl_stream.tools.python.tool import PythonTool
from noetl_testkit.waiting import TIMEOUT_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

CSV = b"id,amount\n1,20\n2,22\n"


def open_folder(factory: pytest.TempPathFactory) -> Path:
    """A folder that children with a user of their own can reach."""
    folder = factory.mktemp("spool")
    for opened in (folder, folder.parent):
        opened.chmod(0o755)
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tool() -> AsyncIterator[PythonTool]:
    tool = PythonTool(ChildSettings(python_path=(str(Path(__file__).parent),)), max_children=1)
    yield tool
    await tool.close()


class Task:
    """A task of one execution, with the files that it has."""

    def __init__(self, tool: PythonTool, files: FilesInMemory | None = None) -> None:
        self.tool, self.files = tool, files or FilesInMemory()
        self.module = ""

    async def file(self, data: bytes = CSV, name: str = "orders.csv", media_type: str = "text/csv") -> dict[str, Any]:
        async def pieces() -> AsyncIterator[bytes]:
            yield data

        return await self.files.save(pieces(), name=name, media_type=media_type)

    async def call(self, function: str, **args: Any) -> Any:
        module = self.module or ("frame_samples" if function in ("total", "frame") else "file_samples")
        return await self._run({"function": f"{module}:{function}", "args": args})

    async def code(self, code: str, **args: Any) -> Any:
        return await self._run({"code": code, "args": args})

    async def _run(self, inputs: dict[str, Any]) -> Any:
        async with asyncio.timeout(TIMEOUT_S):
            return (await self.tool.run(tool_call(inputs, data=self.files))).result

    async def failure(self, function: str, **args: Any) -> tuple[str, str]:
        with pytest.raises(ToolFailure) as failed:
            await self.call(function, **args)
        return failed.value.error.kind, failed.value.error.message

    async def content(self, value: Any) -> bytes:
        reference = self.files.reference(value)
        assert reference is not None, value
        return b"".join([part async for part in self.files.read(reference)])


@pytest.fixture
def task(tool: PythonTool) -> Task:
    return Task(tool)


# --- what a function gets ---------------------------------------------------------------------------------------------


async def test_a_path_is_that_of_the_file_under_its_name(task: Task) -> None:
    assert await task.call("count", orders=await task.file()) == ["orders.csv", 3, 0o200]


async def test_an_open_file_is_opened_as_the_annotation_says(task: Task) -> None:
    assert await task.call("first", orders=await task.file()) == "id,amount\n"
    assert await task.call("length", orders=await task.file(b"\xff\0")) == [2, None]


async def test_files_in_a_list_are_opened_too(task: Task) -> None:
    files = [await task.file(b"one"), await task.file(b"two")]
    assert await task.call("several", files=files) == ["one", "two"]


async def test_a_function_that_wants_the_reference_opens_nothing(task: Task) -> None:
    file = await task.file()
    task.files.read = None  # type: ignore[assignment, method-assign]
    assert await task.call("size", orders=file) == len(CSV)


async def test_a_frame_is_read_by_its_library(task: Task) -> None:
    assert await task.call("total", orders=await task.file()) == 42


async def test_no_function_changes_a_file_that_it_gets(task: Task) -> None:
    assert await task.call("spoil", orders=await task.file(b"whole")) == "whole"


async def test_nothing_is_left_on_the_disk(
    task: Task, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    await task.code("return 1")  # so that what starts children has its folder elsewhere
    folder = open_folder(tmp_path_factory)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    await task.call("count", orders=await task.file())
    assert os.listdir(folder) == []  # noqa: PTH208


@pytest.mark.parametrize(
    ("function", "value", "said"),
    [
        ("count", "orders.csv", "args.orders: Path wants a file or table by reference, not str"),
        ("several", [1], "args.files: Path wants a file or table by reference, not int - at `$[0]`"),
        ("length", {"size": 3}, "args.orders: BinaryIO wants a file or table by reference, not dict"),
    ],
)
async def test_an_input_that_is_no_file_is_reported(task: Task, function: str, value: Any, said: str) -> None:
    kind, message = await task.failure(function, **{"files" if function == "several" else "orders": value})
    assert kind == "invalid_input"
    assert message.endswith(said)


async def test_a_made_up_reference_opens_nothing(task: Task) -> None:
    made_up = {**await task.file(), "seal": "AAAA"}
    assert await task.failure("count", orders=made_up) == (
        "invalid_input",
        "file_samples:count: args.orders: it is not a file or a table of this execution: only its values look like one",
    )


async def test_a_frame_is_read_from_csv_and_parquet_alone(task: Task) -> None:
    _, message = await task.failure("total", orders=await task.file(name="a.json", media_type="application/json"))
    assert message.endswith("pandas reads a table, CSV or Parquet here, not a.json; take a Path")


@pytest.mark.verify
async def test_a_library_without_its_requirements_is_reported(task: Task) -> None:
    _, message = await task.failure("total", orders=await task.file(name="a.parquet"))
    assert "pandas cannot read it in this environment: " in message
    _, message = await task.failure("frame")
    assert message.startswith("result: pandas cannot write a table in this environment: ")


async def test_a_file_that_is_lost_while_it_is_read_is_a_lost_result(tool: PythonTool) -> None:
    class Lossy(FilesInMemory):
        async def read(self, reference: DataReference) -> AsyncIterator[bytes]:
            yield b"1"
            raise ToolFailure.of("result_lost", f"{reference.what} is lost")

    task = Task(tool, Lossy())
    assert await task.failure("count", orders=await task.file()) == ("result_lost", "the file orders.csv is lost")


@pytest.mark.parametrize(
    ("function", "args", "said"),
    [
        ("count", {"orders": "{{ fetch.file }}"}, None),
        ("count", {"orders": "orders.csv"}, "wants Path for `orders`"),
        ("length", {"orders": "{{ fetch.file }}", "other": None}, None),
        ("length", {"orders": {"size": 1}, "other": "x"}, "wants BinaryIO for `orders`, wants Path | None for `other`"),
        ("several", {"files": "{{ fetch.files }}"}, None),
    ],
)
async def test_check_knows_what_wants_a_file(function: str, args: dict[str, Any], said: str | None) -> None:
    warning = args_warning({"function": f"file_samples:{function}", "args": args})
    assert warning is None if said is None else warning is not None and warning.endswith(said)


# --- tables -----------------------------------------------------------------------------------------------------------

POLARS = """
import csv, duckdb
class LazyFrame:
    def __init__(self, rows): self.rows = rows
    def slice(self, first, rows): return LazyFrame(self.rows[first:first + rows])
    def collect(self): return DataFrame(self.rows)
    def sink_parquet(self, path):
        with duckdb.connect() as database:
            values = ", ".join(f"({number}, '{name}')" for number, name in self.rows)
            database.execute(f"COPY (SELECT * FROM (VALUES {values}) AS t(id, name)) TO '{path}' (FORMAT parquet)")
class DataFrame(LazyFrame):
    def write_parquet(self, path): self.sink_parquet(path)
    def to_dicts(self): return [{"id": number, "name": name} for number, name in self.rows]
def scan_csv(path):
    with open(path) as file:
        return LazyFrame([(int(one["id"]), one["name"]) for one in csv.DictReader(file)])
def read_parquet(path, n_rows):
    return DataFrame(scan_parquet(path).rows[:n_rows])
def scan_parquet(path):
    with duckdb.connect() as database:
        return LazyFrame(database.execute(f"FROM '{path}'").fetchall())
"""
"""As much of a library of tables as a task needs."""
FRAMES = """
from typing import Any
import polars as pl
def both(orders: pl.DataFrame) -> dict[str, Any]:
    return {"all": orders, "lazy": [orders.slice(0, 1)]}
def rows(orders: pl.DataFrame, later: pl.LazyFrame | None = None) -> list[Any]:
    return [orders.rows, later and later.rows]
def other(orders: pl.DataFrame) -> Any:
    class Liar(pl.DataFrame):
        def sink_parquet(self, path):
            open(path, "w").write("PAR1, not quite")
    return Liar(orders.rows)
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def frames(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Task]:
    folder = open_folder(tmp_path_factory)
    (folder / "polars.py").write_text(POLARS)
    (folder / "table_functions.py").write_text(FRAMES)
    tool = PythonTool(ChildSettings(python_path=(str(folder),)), max_children=1)
    task = Task(tool)
    task.module = "table_functions"
    yield task
    await tool.close()


ORDERS = b"id,name\n1,ann\n2,bob\n3,cyd\n"


async def test_a_returned_frame_becomes_a_table_that_others_read(frames: Task) -> None:
    found = await frames.call("both", orders=await frames.file(ORDERS))
    table = found["all"]
    assert table["columns"] == [{"name": "id", "type": "INTEGER"}, {"name": "name", "type": "VARCHAR"}]
    assert (table["rows"], found["lazy"][0]["rows"], "name" in table) == (3, 1, False)
    assert [row["name"] for row in frames.files.heads[table["key"]]] == ["ann", "bob", "cyd"]
    assert (await frames.content(table))[:4] == b"PAR1"
    assert await frames.call("rows", orders=table) == [[[1, "ann"], [2, "bob"], [3, "cyd"]], None]


async def test_iterations_over_the_parts_of_a_table_fetch_it_once(
    frames: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = (await frames.call("both", orders=await frames.file(ORDERS)))["all"]
    fetched, read = [], frames.files.read

    async def counted(reference: DataReference) -> AsyncIterator[bytes]:
        fetched.append(reference.first)
        async for piece in read(reference):
            yield piece

    monkeypatch.setattr(frames.files, "read", counted)
    parts = [{**table, "first": first, "rows": 1} for first in range(3)]
    assert [(await frames.call("rows", orders=part))[0][0][1] for part in parts] == ["ann", "bob", "cyd"]
    assert fetched == [0]


async def test_a_part_of_a_table_is_read_as_a_data_frame_and_has_no_path(frames: Task) -> None:
    table = (await frames.call("both", orders=await frames.file(ORDERS)))["all"]
    part = {**table, "first": 1, "rows": 1}
    assert await frames.call("rows", orders=part, later={**part, "first": 2}) == [[[2, "bob"]], [[3, "cyd"]]]
    assert await frames.code("return orders.path.name", orders=table) == "table.parquet"
    with pytest.raises(ToolFailure, match="it is a part of a table, which has no path of its own"):
        await frames.code("return orders.path", orders=part)


async def test_a_file_that_is_no_parquet_is_no_table(frames: Task) -> None:
    kind, message = await frames.failure("other", orders=await frames.file(ORDERS))
    assert kind == "result_not_json"
    assert message.startswith("a table cannot be kept: its footer")


# --- code -------------------------------------------------------------------------------------------------------------


async def test_code_has_the_reference_and_the_path_of_its_content(task: Task) -> None:
    code = "return [orders['size'], orders.path.read_text(), open(orders).readline(), args['orders'] is orders]"
    assert await task.code(code, orders=await task.file()) == [len(CSV), CSV.decode(), "id,amount\n", True]


async def test_code_hands_on_what_it_got(task: Task) -> None:
    file = await task.file()
    assert await task.code("return [orders, orders.path]", orders=file) == [file, file]


async def test_a_run_that_has_files_shares_no_process_and_one_that_does_returns_none(task: Task) -> None:
    shared = {"python_shared": True}
    code = "async def main(orders=None):\n    return orders and orders.path.read_text()"
    call = tool_call({"code": code, "args": {"orders": await task.file()}}, data=task.files, knobs=shared)
    assert (await task.tool.run(call)).result == CSV.decode()
    code = "from pathlib import Path\nasync def main():\n    Path('a').touch()\n    return [Path('a')]"
    with pytest.raises(ToolFailure, match=r"result\[0\]: files and tables cannot be returned from a process that runs"):
        await task.tool.run(tool_call({"code": code}, data=task.files, knobs=shared))


# --- what is returned -------------------------------------------------------------------------------------------------


async def test_paths_in_a_result_become_files(task: Task) -> None:
    found = await task.call("report", title="Sales")
    assert (found["title"], found["file"]["name"], found["file"]["media_type"]) == ("Sales", "report.txt", "text/plain")
    assert await task.content(found["file"]) == b"Sales"
    assert [await task.content(one) for one in found["parts"]] == [b"a\n1\n", b"Sales"]
    assert found["parts"][0]["name"].endswith(".csv")


async def test_code_returns_files_too(task: Task) -> None:
    code = "from pathlib import Path\nPath('out.bin').write_bytes(bytes(1_000_000))\nreturn {'out': Path('out.bin')}"
    found = (await task.code(code))["out"]
    assert (found["name"], found["size"]) == ("out.bin", 1_000_000)
    assert await task.content(found) == bytes(1_000_000)


async def test_a_file_that_is_handed_on_stays_the_same(task: Task) -> None:
    file = await task.file()
    assert await task.call("hand_on", orders=file) == {"same": file}


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (
            "outside",
            r"result: /etc/hosts is outside the folder of the task; write it to the folder of the task: `folder`",
        ),
        ("climbing", r"result: .*/\.\./secret\.txt is outside the folder"),
        ("link", r"result\[0\]: .*/link\.txt is a symbolic link"),
        ("folder", r"result\.all: .* is outside the folder|result\.all: .* is a folder; return the paths of its files"),
        ("missing", r"result: .*/none\.txt: No such file or directory"),
        ("pipe", r"result: .*/pipe is no file"),
    ],
)
async def test_a_result_that_cannot_be_a_file_is_reported_with_its_place(task: Task, function: str, said: str) -> None:
    kind, message = await task.failure(function)
    assert kind == "result_not_json"
    assert re.match(said, message), message


async def test_a_task_ends_where_its_execution_may_store_no_more_and_the_next_one_runs(tool: PythonTool) -> None:
    class Full(FilesInMemory):
        async def save(self, pieces: AsyncIterator[bytes], **about: Any) -> dict[str, Any]:
            await anext(pieces)
            raise ToolFailure.of("limit_exceeded", f"the file {about['name']} cannot be stored")

    task = Task(tool, Full())
    assert await task.failure("many", n=3) == ("limit_exceeded", "the file 0.txt cannot be stored")
    assert await task.code("return 1") == 1


async def test_a_task_that_is_cancelled_while_it_returns_a_file_ends(tool: PythonTool) -> None:
    begun = asyncio.Event()

    class Slow(FilesInMemory):
        async def save(self, pieces: AsyncIterator[bytes], **about: Any) -> dict[str, Any]:
            begun.set()
            await asyncio.get_running_loop().create_future()
            raise AssertionError

    task = Task(tool, Slow())
    running = asyncio.create_task(task.call("many", n=1))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await task.code("return 1") == 1
