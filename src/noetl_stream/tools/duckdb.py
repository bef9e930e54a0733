"""``kind: duckdb``: SQL over rows of earlier results, or over a database file (LANGUAGE §12)."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from pydantic import Field

from noetl_stream.playbook.kinds import KindSpec
from noetl_stream.tools.contract import ToolCall, ToolResult
from noetl_stream.tools.duckdb_session import DuckdbSession
from noetl_stream.tools.duckdb_tables import Table
from noetl_stream.tools.inputs import invalid_input, validated
from noetl_stream.tools.sql_inputs import SQL_INPUTS, SqlInputs, SqlKnobs

MAX_THREADS: Final = 4
"""DuckDB tasks a worker runs at the same time; each may use several processors."""
_INTERRUPT_AGAIN_S: Final = 0.02


class DuckdbInputs(SqlInputs):
    """Inputs of ``duckdb``."""

    database: str | None = Field(
        default=None, min_length=1, description="A database file, made if missing. By default an empty one in memory."
    )
    tables: dict[str, Table] | None = Field(
        default=None,
        description="Tables to make before the statements: name to a list of rows, or to the result of a SQL task.",
    )


class DuckdbKnobs(SqlKnobs):
    """Knobs of ``duckdb``."""

    external_access: bool = Field(
        default=False,
        description="Whether the SQL may read and write files, attach databases, load extensions and change settings.",
    )
    memory_limit: str | None = Field(
        default=None, description="Such as `512MB`; by default DuckDB's, 80 % of the machine."
    )
    threads: int | None = Field(default=None, gt=0, description="Threads of one task; by default one a processor.")


class DuckdbTool:
    """Runs each task's statements in a thread, in a database of its own."""

    spec = KindSpec(kind="duckdb", inputs=DuckdbInputs, knobs=DuckdbKnobs, statements=SQL_INPUTS)

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="noetl-duckdb")

    async def run(self, call: ToolCall) -> ToolResult:
        """``{rows, row_count, columns, statements}`` of the last statement that returned rows.

        All statements are one transaction; ``getvariable('idempotency_key')`` is the call's key.

        Raises:
            ToolFailure: ``sql``, ``syntax``, ``connection`` (the file is held elsewhere), ``result_too_large``,
                ``result_not_json``, ``invalid_input``.
        """
        inputs = validated(DuckdbInputs, call.inputs)
        knobs = validated(DuckdbKnobs, call.knobs)
        if inputs.database is not None and inputs.database.startswith(":"):
            raise invalid_input("database: names a file; leave it out for a database in memory")
        session = DuckdbSession(inputs.database, _config(inputs, knobs), knobs.max_rows)
        work = asyncio.get_running_loop().run_in_executor(
            self._threads, session.run, inputs.texts, inputs.params, inputs.tables or {}, call.idempotency_key
        )
        try:
            return ToolResult(await asyncio.shield(work))
        except asyncio.CancelledError:
            await _interrupted(session, work)
            raise

    async def close(self) -> None:
        """Waits for the threads; what they ran has been interrupted by then."""
        await asyncio.to_thread(self._threads.shutdown)


async def _interrupted(session: DuckdbSession, work: asyncio.Future[dict[str, Any]]) -> None:
    """Interrupts until the thread has ended: an interrupt between two statements is not kept by DuckDB."""
    work.add_done_callback(lambda done: done.cancelled() or done.exception())  # its failure is ours, and known
    while not work.done():
        session.interrupt()
        await asyncio.wait({work}, timeout=_INTERRUPT_AGAIN_S)


def _config(inputs: DuckdbInputs, knobs: DuckdbKnobs) -> dict[str, str]:
    config = {"python_enable_replacements": "false"}  # a table name must not find the worker's own variables
    if not knobs.external_access:
        config |= {
            "enable_external_access": "false",
            "lock_configuration": "true",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        }
        if inputs.database is None:
            config["temp_directory"] = ""
    if knobs.memory_limit is not None:
        config["memory_limit"] = knobs.memory_limit
    if knobs.threads is not None:
        config["threads"] = str(knobs.threads)
    return config
