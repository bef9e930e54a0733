"""Tables of results compared with ``spec.result.table``, on the worker (LANGUAGE §10)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from worker_stage import Stage

from noetl_stream.model.events import StepDone, StepFailed, TaskProcessed
from noetl_stream.model.outcome import Outcome
from noetl_stream.sealing.data_references import Column
from noetl_stream.settings.tools import ToolSettings
from noetl_stream.tools.contract import ToolCall
from noetl_stream.tools.duckdb.tool import DuckdbTool
from noetl_stream.tools.scratch.parquet_footer import footer_of

RULES = "{ type: BIGINT, nullable: false, unique: true, minimum: 1 }"
TASK = """
- step: start
  tool:
  - name: act
    kind: puppet
    spec: { result: { table: { columns: %s, tolerated: %s } } }
"""


@pytest.fixture
async def checking(stage: Stage) -> AsyncIterator[Stage]:
    """A stage whose worker has DuckDB."""
    tool = DuckdbTool(ToolSettings())
    stage.tools["duckdb"] = tool
    yield stage
    await tool.close()


def made(folder: Path, query: str, *, named: bool = True) -> Any:
    """An act whose result has the rows of a query as a table."""
    path = folder / "made.parquet"
    duckdb.execute(f"copy ({query}) to '{path}' (format parquet)")

    async def pieces() -> AsyncIterator[bytes]:
        yield path.read_bytes()

    async def act(call: ToolCall) -> Any:
        footer = footer_of(path)
        columns: Sequence[Column] = footer.columns
        table = await call.data.save(pieces(), columns=columns, rows=footer.rows)
        return {"table": table, "row_count": footer.rows} if named else table

    return act


async def outcome_of(stage: Stage, act: Any, columns: str, tolerated: str = "0") -> Outcome:
    stage.puppet.acts["act"] = act
    await stage.start()
    await stage.issue(stage.command(stage.plan(TASK % (columns, tolerated))))
    await stage.soon(lambda: any(isinstance(fact, TaskProcessed) for fact in stage.facts))
    return next(fact for fact in stage.facts if isinstance(fact, TaskProcessed)).outcome


def message_of(outcome: Outcome) -> str:
    assert outcome.status == "error" and outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == ("schema_mismatch", False)
    return outcome.error.message


@pytest.mark.parametrize("named", [True, False])
async def test_a_table_as_it_should_be_goes_on_and_is_not_its_own_source(
    checking: Stage, tmp_path: Path, named: bool
) -> None:
    act = made(tmp_path, "select range + 1 as id from range(1000)", named=named)
    outcome = await outcome_of(checking, act, f"{{ id: {RULES} }}")
    assert (outcome.status, outcome.warnings) == ("ok", ())
    assert len(outcome.written) == 1 and outcome.read == ()
    assert isinstance(checking.facts[-1], StepDone)


async def test_bad_rows_fail_the_task_with_their_number_column_and_rule(checking: Stage, tmp_path: Path) -> None:
    act = made(tmp_path, "select unnest([3, null, 5, 3, -1, 5, 6])::bigint as id")
    outcome = await outcome_of(checking, act, f"{{ id: {RULES} }}")
    assert message_of(outcome) == (
        "4 of 7 rows of the table are bad (tolerated: 0): row 2: `id` is null; row 4: `id` has the value of an earlier "
        "row; row 5: `id` is below 1; row 6: `id` has the value of an earlier row"
    )
    assert b'"table"' in bytes(outcome.result.value)
    assert isinstance(checking.facts[-1], StepFailed)


async def test_tolerated_rows_are_a_warning_with_the_first_of_them(checking: Stage, tmp_path: Path) -> None:
    act = made(tmp_path, "select if(range < 9, null, range) as id from range(100)")
    outcome = await outcome_of(checking, act, "{ id: { nullable: false } }", "9%")
    assert outcome.status == "ok" and isinstance(checking.facts[-1], StepDone)
    [warning] = outcome.warnings
    assert warning.kind == "bad_rows"
    assert warning.message.startswith("9 of 100 rows of the table are bad (tolerated: 9%): row 1: `id` is null; row 2:")
    assert warning.message.endswith("row 5: `id` is null; …")


async def test_columns_are_compared_before_any_row_is_read(stage: Stage, tmp_path: Path) -> None:
    act = made(tmp_path, "select 'x' as id, 1 as other")
    outcome = await outcome_of(stage, act, f"{{ id: {RULES}, amount: DOUBLE }}", "100%")
    assert message_of(outcome) == (
        "the table is not as spec.result.table says: column `id` is VARCHAR, not BIGINT; it has no column `amount`"
    )


async def test_a_result_without_a_table_is_a_mismatch(stage: Stage) -> None:
    async def act(_call: ToolCall) -> Any:
        return {"table": {"key": "looks like one", "seal": ""}}

    assert message_of(await outcome_of(stage, act, "{ id: BIGINT }")).startswith("the result has no table")


async def test_a_worker_without_duckdb_says_what_it_lacks(stage: Stage, tmp_path: Path) -> None:
    outcome = await outcome_of(stage, made(tmp_path, "select 1::bigint as id"), f"{{ id: {RULES} }}")
    assert outcome.error is not None and outcome.error.kind == "not_allowed"
    assert outcome.error.message == "the table cannot be checked: this worker has no kind duckdb"


async def test_any_name_and_type_of_a_column_can_be_checked(checking: Stage, tmp_path: Path) -> None:
    query = """
        select unnest([1.5, 9.5]) as "row_number", unnest([date '2026-01-31', date '2027-01-01']) as "a ""b",
               unnest([[1], [1]]) as items, unnest([1, 2]) as "bad_rows_found"
    """
    columns = (
        "{ row_number: { type: DECIMAL, maximum: 9 }, 'a \"b': { type: DATE, maximum: 2026-12-31 }, "
        "items: { type: LIST, unique: true }, bad_rows_found: { unique: true } }"
    )
    message = message_of(await outcome_of(checking, made(tmp_path, query), columns))
    assert message == (
        "1 of 2 rows of the table are bad (tolerated: 0): row 2: `row_number` is above 9; "
        'row 2: `a "b` is above 2026-12-31; row 2: `items` has the value of an earlier row'
    )
