"""Checks the table of a task's result against ``spec.result.table``, on the worker (LANGUAGE §10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from noetl_stream.model.outcome import RunWarning
from noetl_stream.playbook.plan import TablePlan
from noetl_stream.playbook.results.result_table import column_faults
from noetl_stream.sealing.data_references import DataReference
from noetl_stream.tools.contract import ChecksTables, Tool, ToolCall, ToolFailure, ToolResult

CHECKER: Final = "duckdb"
"""The kind whose tool checks the rows of tables."""


class CheckedTool:
    """A tool whose results must have a table that conforms to ``plan``."""

    def __init__(self, tool: Tool, plan: TablePlan, tools: Mapping[str, Tool]) -> None:
        self._tool, self._plan, self._tools = tool, plan, tools
        self.spec = tool.spec

    async def run(self, call: ToolCall) -> ToolResult:
        """Runs the task and checks the table of its result.

        Raises:
            ToolFailure: As raised by the tool; ``schema_mismatch``: the table does not conform; carries the result.
        """
        result = await self._tool.run(call)
        value, table = _table_of(result.result, call)
        if table is None:
            raise _mismatch(result, "the result has no table: neither is it one itself, nor what it has as `table`")
        faults = column_faults(self._plan, ((column.name, column.type) for column in table.columns or ()))
        if faults:
            raise _mismatch(result, f"the table is not as spec.result.table says: {'; '.join(faults)}")
        checker = self._tools.get(CHECKER)
        if not isinstance(checker, ChecksTables):
            message = f"the table cannot be checked: this worker has no kind {CHECKER}"
            raise ToolFailure.of("not_allowed", message, result=result.result)
        bad = await checker.bad_rows(call, value, self._plan)
        if not bad.count:
            return result
        rows, tolerated = table.rows or 0, self._plan.tolerated
        message = f"{bad.count:,} of {rows:,} rows of the table are bad (tolerated: {tolerated}): {bad}"
        if tolerated.is_exceeded(bad.count, rows):
            raise _mismatch(result, message)
        return replace(result, warnings=(*result.warnings, RunWarning("bad_rows", message)))

    async def close(self) -> None:
        """Does nothing: the worker closes the tool."""


def _table_of(result: Any, call: ToolCall) -> tuple[Any, DataReference | None]:
    """Returns the table in a result: its value and its reference."""
    for value in (result, result.get("table") if isinstance(result, dict) else None):
        reference = call.data.reference(value)
        if reference is not None and reference.columns is not None:
            return value, reference
    return None, None


def _mismatch(result: ToolResult, message: str) -> ToolFailure:
    return ToolFailure.of("schema_mismatch", message, result=result.result, helper=result.helper, output=result.output)
