"""``execution table``: which table is meant by a name, and how it is shown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from noetl_stream.cli.execution.readings import chosen_table, show_table
from noetl_stream.errors import NotFound, UsageError
from noetl_stream.ports.operations.executions import StepRunRange, StepRunsDocument
from noetl_stream.ports.operations.reading.table_views import (
    StoredTableDocument,
    TableColumnDocument,
    ValueCountDocument,
)
from noetl_stream.sealing.data_references import Column, DataReference


def table(number: int) -> Any:
    made = DataReference(f"e/c/r/{number}/parts-1", 4, "sha256:00", "seal", columns=(Column("n", "BIGINT"),), rows=1)
    return msgspec.to_builtins(made)


RESULTS = {
    "load": {"table": table(1), "row_count": 1},
    "split": {"parts": [table(2), table(3)], "same": table(2)},
    "none": {"rows": 3},
    None: {"final": table(4)},
}


class Executions:
    """Executions with one run of each step, and two of ``load``."""

    async def result(self, execution_id: str) -> Any:
        return SimpleNamespace(result=RESULTS[None])

    async def runs(self, execution_id: str, wanted: StepRunRange) -> StepRunsDocument:
        known: list[Any] = [SimpleNamespace(step_run_id=wanted.step)] if wanted.step in RESULTS else []
        count = 2 if wanted.step == "load" else len(known)
        if wanted.step == "load" and wanted.first == 0:
            known = [SimpleNamespace(step_run_id="the first run")]
        return StepRunsDocument(known, count)

    async def run_result(self, execution_id: str, step_run_id: str) -> Any:
        return SimpleNamespace(result=RESULTS[step_run_id])


SESSION: Any = SimpleNamespace(operations=SimpleNamespace(executions=Executions()))


@pytest.mark.parametrize(
    ("name", "number"), [("", 4), ("load", 1), ("load.table", 1), ("split.parts.1", 3), ("split.same", 2)]
)
async def test_a_table_is_named_as_templates_read_it(name: str, number: int) -> None:
    assert (await chosen_table(SESSION, "e", name)).key == f"e/c/r/{number}/parts-1"


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("split", UsageError, "there are 2 tables in split"),
        ("none", NotFound, "none has no table"),
        ("load.tabel", NotFound, "the result has no tabel: load.tabel"),
        ("lod", NotFound, "has no step run of lod"),
    ],
)
async def test_another_name_is_answered_by_what_there_is(name: str, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        await chosen_table(SESSION, "e", name)


def test_a_table_is_shown_with_bars(capsys: pytest.CaptureFixture[str]) -> None:
    counts = [ValueCountDocument(str(low), str(low + 5), rows) for low, rows in ((0, 0), (5, 1), (10, 8))]
    columns = [
        TableColumnDocument("n", "BIGINT", 2, "5", "14", True, counts),
        TableColumnDocument("pair", "BIGINT[]", 0, None, None, False, []),
    ]
    show_table(StoredTableDocument("e", 11, 9, columns, 3, [["5", "[1, 2]"], [None, None]], "a note"))
    assert capsys.readouterr().out.splitlines() == [
        "column  type      nulls  lowest  highest  values",
        "n       BIGINT    2      5       14        ▁█",
        "pair    BIGINT[]  0",
        "… and 3 more columns",
        "a note",
        "",
        "n  pair",
        "5  [1, 2]",
        "",
        "2 of 11 rows",
    ]
