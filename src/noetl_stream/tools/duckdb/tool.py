"""``kind: duckdb``: SQL over rows of earlier results, Postgres tables or a database file (LANGUAGE §12)."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field, field_validator, model_validator

from noetl_stream.playbook.kinds.spec import CodeProblem, KindSpec
from noetl_stream.settings.tools import (
    DUCKDB_MAX_MEMORY_VARIABLE,
    DUCKDB_MAX_THREADS_VARIABLE,
    ToolSettings,
    size_bytes,
)
from noetl_stream.tools.contract import ToolCall, ToolFailure, ToolResult
from noetl_stream.tools.duckdb.attach import MAX_ATTACHED_BYTES, Attach, copy_databases
from noetl_stream.tools.duckdb.copies import CopiedDatabase
from noetl_stream.tools.duckdb.tables import Table
from noetl_stream.tools.egress import Egress
from noetl_stream.tools.inputs import invalid_input, validated
from noetl_stream.tools.places import WAITING, Places
from noetl_stream.tools.postgres.pool import ConnectionPools
from noetl_stream.tools.sql import SQL_INPUTS, SqlInputs, SqlKnobs

if TYPE_CHECKING:  # DuckDB takes long to import; only playbooks with duckdb should pay for it
    from noetl_stream.telemetry.measures import Reading
    from noetl_stream.tools.duckdb.task_session import DuckdbSession

MAX_THREADS: Final = 4
"""The most DuckDB tasks that a worker runs at the same time; each may use several processors."""
MEMORY_LIMIT: Final = "1GB"
THREADS: Final = 2
_INTERRUPT_AGAIN_S: Final = 0.02


class DuckdbInputs(SqlInputs):
    """Inputs of ``duckdb``."""

    database: str | None = Field(
        default=None,
        min_length=1,
        description="A database file in a folder that the operator allows, created if missing. Default: in memory, "
        "also written `:memory:`.",
    )
    tables: dict[str, Table] | None = Field(
        default=None,
        description="Tables to create first, by name: a list of rows, or the result of a SQL task.",
    )
    attach: dict[str, Attach] | None = Field(
        default=None, description="Tables of Postgres databases to read as `name.table`."
    )

    @field_validator("database")
    @classmethod
    def _named_memory(cls, database: str | None) -> str | None:
        return None if database == ":memory:" else database

    @model_validator(mode="after")
    def _attaches_in_memory(self) -> DuckdbInputs:
        if self.attach and self.database is not None:
            raise ValueError("attach: needs a database in memory; remove database")
        return self


class DuckdbKnobs(SqlKnobs):
    """Knobs of ``duckdb``."""

    memory_limit: str = Field(default=MEMORY_LIMIT, description="Memory of one task, such as `512MB`.")
    threads: int = Field(default=THREADS, gt=0, description="Threads of one task.")
    max_attached_bytes: int = Field(
        default=MAX_ATTACHED_BYTES, gt=0, description="Bytes that `attach` may copy; more is an error."
    )


def _problems_of(text: str) -> Iterable[CodeProblem]:
    from noetl_stream.tools.duckdb.syntax import syntax_problems

    return syntax_problems(text)


def _params_error(inputs: Mapping[str, Any]) -> str | None:
    from noetl_stream.tools.duckdb.syntax import params_error

    return params_error(inputs)


class DuckdbTool:
    """Runs each task in a thread and in its own database, without access to files and the network.

    Args:
        settings: The operator's settings: folders whose files the SQL may use, databases to attach, memory and threads.
    """

    spec = KindSpec(
        kind="duckdb",
        inputs=DuckdbInputs,
        knobs=DuckdbKnobs,
        statements=SQL_INPUTS,
        code={"command": _problems_of},
        params_error=_params_error,
    )

    def __init__(self, settings: ToolSettings | None = None) -> None:
        self._settings = settings or ToolSettings()
        self._folders = self._settings.duckdb_folders
        self._pools = ConnectionPools(Egress(self._settings.egress))
        self._places = Places(MAX_THREADS, "DuckDB thread")
        self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="noetl-duckdb")

    @classmethod
    def configured(cls, settings: ToolSettings) -> DuckdbTool:
        """Makes the tool with the operator's settings."""
        return cls(settings)

    def readings(self) -> Sequence[Reading]:
        """Returns the metrics of the tool: see :class:`~noetl_stream.telemetry.measures.Measured`."""
        return [WAITING.read(self._places.waiting + self._pools.waiting, self.spec.kind)]

    async def run(self, call: ToolCall) -> ToolResult:
        """Returns ``{rows, row_count, columns, statements}`` of the last statement that returned rows.

        The statements run in one transaction; ``getvariable('idempotency_key')`` is the call's key.

        Raises:
            ToolFailure: ``sql``, ``syntax``, ``not_allowed`` (a file, setting or knob), ``connection`` (the file is in
                use), ``result_too_large``, ``result_not_json``, ``invalid_input``; with ``attach`` also those of
                ``postgres`` and ``not_found``.
        """
        inputs = validated(DuckdbInputs, call.inputs)
        knobs = validated(DuckdbKnobs, call.knobs)
        if inputs.database is not None:
            _check_database(inputs.database, self._folders)
        if not inputs.attach:
            return await self._run(call, inputs, knobs, ())
        with tempfile.TemporaryDirectory(prefix="noetl-duckdb-") as folder:
            databases = await copy_databases(call, inputs.attach, self._pools, Path(folder), knobs.max_attached_bytes)
            return await self._run(call, inputs, knobs, databases)

    async def _run(
        self, call: ToolCall, inputs: DuckdbInputs, knobs: DuckdbKnobs, databases: Sequence[CopiedDatabase]
    ) -> ToolResult:
        from noetl_stream.tools.duckdb.task_session import DuckdbSession

        config = _config(inputs, knobs, self._settings)
        session = DuckdbSession(inputs.database, config, knobs.max_rows, self._folders, databases)
        async with self._places.held_for(call):
            work = asyncio.get_running_loop().run_in_executor(
                self._threads, session.run, inputs.texts, inputs.params, inputs.tables or {}, call.idempotency_key
            )
            try:
                return ToolResult(await asyncio.shield(work))
            except asyncio.CancelledError:
                await _interrupt_until_ended(session, work)
                raise

    async def close(self) -> None:
        """Waits for the threads of tasks, whose work has been interrupted by then."""
        await self._pools.close()
        await asyncio.to_thread(self._threads.shutdown)


async def _interrupt_until_ended(session: DuckdbSession, work: asyncio.Future[dict[str, Any]]) -> None:
    """Interrupts a task until its thread ends, since DuckDB forgets an interrupt between two statements."""
    work.add_done_callback(lambda done: done.cancelled() or done.exception())  # the failure is our own interrupt
    while not work.done():
        session.interrupt()
        await asyncio.wait({work}, timeout=_INTERRUPT_AGAIN_S)


def _check_database(database: str, folders: Sequence[Path]) -> None:
    if database.startswith(":"):
        raise invalid_input("database: must be a file; remove it for a database in memory")
    path = Path(os.path.abspath(database))  # noqa: PTH100  # resolve ".." before links
    inside = [folder for folder in folders if path.is_relative_to(folder)]
    if not any(path.resolve().is_relative_to(folder.resolve()) for folder in inside):
        message = "database: not in a folder that the worker's operator allows (NOETL_DUCKDB_PATHS)"
        raise ToolFailure.of("not_allowed", message)


def _config(inputs: DuckdbInputs, knobs: DuckdbKnobs, settings: ToolSettings) -> dict[str, str]:
    memory_bytes, threads = _memory_bytes(knobs, settings), _threads(knobs, settings)
    config = {
        "memory_limit": f"{memory_bytes}B",
        "threads": str(threads),
        "python_enable_replacements": "false",  # table names must not resolve to the worker's variables
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "allow_persistent_secrets": "false",
    }
    return config if inputs.database is not None else {**config, "temp_directory": ""}


def _memory_bytes(knobs: DuckdbKnobs, settings: ToolSettings) -> int:
    """Returns the memory of a task: what it asks for, else the default, at most the operator's maximum."""
    asked, most = size_bytes(knobs.memory_limit), settings.duckdb_max_memory_bytes
    if not asked:
        raise invalid_input("memory_limit: must be a size such as 512MB or 1GiB")
    if asked > most and "memory_limit" in knobs.model_fields_set:
        raise _too_much(f"memory_limit: {knobs.memory_limit}", f"{most:,} bytes", DUCKDB_MAX_MEMORY_VARIABLE)
    return min(asked, most)


def _threads(knobs: DuckdbKnobs, settings: ToolSettings) -> int:
    most = settings.duckdb_max_threads
    if knobs.threads > most and "threads" in knobs.model_fields_set:
        raise _too_much(f"threads: {knobs.threads}", str(most), DUCKDB_MAX_THREADS_VARIABLE)
    return min(knobs.threads, most)


def _too_much(asked: str, most: str, variable: str) -> ToolFailure:
    return ToolFailure.of("not_allowed", f"{asked} is more than the worker's operator allows ({variable}: {most})")
