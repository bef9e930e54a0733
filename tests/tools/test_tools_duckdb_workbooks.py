"""``kind: duckdb`` with workbooks as tables."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
from duckdb_stage import Stage
from workbook_samples import workbook

from noetl_stream.settings.tools import ToolSettings
from noetl_stream.testing.calls import FilesInMemory
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.duckdb import workbook as reader
from noetl_stream.tools.duckdb.job import FileSource
from noetl_stream.tools.duckdb.tool import DuckdbTool

XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
BUDGET = workbook(
    {
        "2026": [
            [],
            ["id", "amount", "day", "at", "paid", "note", "mixed", "ID", None],
            [1, 2.5, date(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5), True, 'say "hi", ä\nb', 1, "a", "z"],
            [],
            [2, 3, date(2026, 1, 3), datetime(2026, 1, 2), False, "007", "t", r"\N", None],
        ],
        "more": [["x"], [7]],
        "none": [],
    }
)


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = Stage(DuckdbTool(ToolSettings()), FilesInMemory())
    yield made
    await made.tool.close()
    assert not any(tmp_path.iterdir())  # noqa: ASYNC240  # no file is left behind


async def test_a_sheet_is_a_table_with_the_types_of_its_cells(stage: Stage) -> None:
    book = await stage.file(BUDGET, "budget.xlsx")
    described = await stage.rows("select column_name, column_type from (describe budget)", budget=book)
    assert {row["column_name"]: row["column_type"] for row in described} == {
        "id": "BIGINT",
        "amount": "DOUBLE",
        "day": "DATE",
        "at": "TIMESTAMP",
        "paid": "BOOLEAN",
        "note": "VARCHAR",
        "mixed": "VARCHAR",
        "ID_1": "VARCHAR",
        "column9": "VARCHAR",
    }
    first, second = await stage.rows("from budget order by id", budget=book)
    assert list(first.values()) == [
        1, 2.5, "2026-01-02", "2026-01-02T03:04:05", True, 'say "hi", ä\nb', "1", "a", "z",
    ]  # fmt: skip
    assert list(second.values()) == [2, 3, "2026-01-03", "2026-01-02T00:00:00", False, "007", "t", r"\N", None]


async def test_a_sheet_is_chosen_by_its_name_or_its_number_and_its_types_can_be_declared(stage: Stage) -> None:
    book = await stage.file(BUDGET, "budget", XLSX)
    for sheet in ("more", 2):
        assert await stage.rows("from t", t={"file": book, "sheet": sheet}) == [{"x": 7}]
    declared = {"file": book, "sheet": "more", "columns": {"x": "VARCHAR"}}
    assert await stage.rows("from t", t=declared) == [{"x": "7"}]
    assert await stage.rows("from t", t={"file": book, "sheet": "more", "header": False}) == [
        {"column1": "x"},
        {"column1": "7"},
    ]


async def test_a_table_and_a_file_are_made_of_a_sheet(stage: Stage) -> None:
    book = await stage.file(BUDGET, "budget.xlsx")
    made = await stage.run("select id, day from budget", tables={"budget": book}, into="table")
    assert (made["table"]["rows"], [one["type"] for one in made["table"]["columns"]]) == (2, ["BIGINT", "DATE"])


async def test_a_declared_column_that_a_sheet_lacks_or_cannot_fill_is_named(stage: Stage) -> None:
    lacking = {"file": await stage.file(BUDGET, "budget.xlsx"), "columns": {"total": "DOUBLE"}}
    kind, message = await stage.failure("from budget", tables={"budget": lacking})
    assert (kind, message.partition(", which")[0]) == (
        "sql", "tables.budget: the file budget.xlsx has no column total",
    )  # fmt: skip
    table = {"file": await stage.file(BUDGET, "budget.xlsx"), "columns": {"note": "BIGINT"}}
    kind, message = await stage.failure("from budget", tables={"budget": table})
    assert kind == "sql"
    assert "tables.budget" in message and "budget.xlsx" in message and "note" in message


async def test_a_sheet_that_is_too_large_for_the_process_ends_it_alone(stage: Stage) -> None:
    far = workbook({"s": [["a"], [1]]}, last='<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>')
    kind, message = await stage.failure("from t", tables={"t": await stage.file(far, "far.xlsx")})
    assert (kind, message.partition("; ")[2]) == ("crashed", "a sheet that does not fit in its memory ends it so")
    assert await stage.rows("select id from t where id = 1", t=await stage.file(BUDGET, "b.xlsx")) == [{"id": 1}]


async def test_options_of_another_format_are_refused(stage: Stage) -> None:
    book, csv = await stage.file(BUDGET, "b.xlsx"), await stage.file(b"a\n1\n", "a.csv")
    for table, words in (
        ({"file": book, "delimiter": ";"}, "tables.t.delimiter: is of CSV, and the file b.xlsx is read as excel"),
        ({"file": csv, "sheet": 1}, "tables.t.sheet: is of Excel, and the file a.csv is read as csv"),
    ):
        assert await stage.failure("from t", tables={"t": table}) == ("invalid_input", words)


def source(folder: Path, content: bytes = BUDGET, **given: Any) -> FileSource:
    (folder / "b").write_bytes(content)
    return FileSource("b", "tables.b", "the file b.xlsx", str(folder / "b"), "excel", **given)


@pytest.mark.parametrize(
    ("sheet", "words"),
    [
        ("2025", "has no sheet 2025; it has 2026, more, none"),
        (4, "has 3 sheets, and not the number 4"),
        ("none", "has no rows"),
    ],
)
def test_a_sheet_that_a_workbook_lacks_is_named(tmp_path: Path, sheet: str | int, words: str) -> None:
    with pytest.raises(ToolFailure) as failed:
        reader.write_rows(source(tmp_path, sheet=sheet))
    assert (failed.value.error.kind, failed.value.error.message) == ("sql", f"tables.b: the file b.xlsx {words}")


def test_a_file_that_is_no_workbook_is_named(tmp_path: Path) -> None:
    for content in (BUDGET[:700], b"id,amount\n1,2\n"):
        with pytest.raises(ToolFailure, match=r"tables\.b: the file b\.xlsx is not a workbook: ") as failed:
            reader.write_rows(source(tmp_path, content))
        assert failed.value.error.kind == "sql"


def test_a_workbook_that_unpacks_to_too_much_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for bound in ("MAX_UNPACKED_BYTES", "MAX_PARTS"):
        with monkeypatch.context() as patch:
            patch.setattr(reader, bound, 3)
            with pytest.raises(ToolFailure, match=r"tables.b: the file b.xlsx has over .* unpacked") as failed:
                reader.write_rows(source(tmp_path))
            assert failed.value.error.kind == "limit_exceeded"


def test_a_worker_without_the_library_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "python_calamine", None)
    with pytest.raises(ToolFailure, match=r"install noetl-stream\[excel\] there") as failed:
        reader.write_rows(source(tmp_path))
    assert failed.value.error.kind == "not_installed"
