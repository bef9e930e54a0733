"""``kind: duckdb``: SQL over rows of earlier results, Postgres tables or a database file (LANGUAGE §12)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace
from pydantic import Field, field_validator, model_validator

from noetl_stream.concurrency import spare_of
from noetl_stream.playbook.kinds.spec import CodeProblem, KindSpec
from noetl_stream.playbook.plan import TablePlan
from noetl_stream.sealing.data_references import PARQUET, Column
from noetl_stream.settings.children import ChildSettings
from noetl_stream.settings.tools import (
    DUCKDB_MAX_MEMORY_VARIABLE,
    DUCKDB_MAX_THREADS_VARIABLE,
    ToolSettings,
    size_bytes,
)
from noetl_stream.tools.capacity import WAITING, Places
from noetl_stream.tools.children.frames import add_length
from noetl_stream.tools.children.launcher import Launcher
from noetl_stream.tools.contract import OWN_TROUBLE, BadRows, ToolCall, ToolFailure, ToolResult, beginning
from noetl_stream.tools.duckdb.attach import MAX_ATTACHED_BYTES, Attach, copy_databases
from noetl_stream.tools.duckdb.bad_rows import CHECKED, bad_rows_command, bad_rows_of, rules_of
from noetl_stream.tools.duckdb.copies import CopiedDatabase, CopiedTable
from noetl_stream.tools.duckdb.file_tables import files_among
from noetl_stream.tools.duckdb.job import (
    COPIES_FOLDER,
    SPILLED_FOLDER,
    WRITTEN_FILE,
    DuckdbJob,
    FileSource,
    NewTable,
    Written,
)
from noetl_stream.tools.duckdb.tables import Table, rows_of, table_statement
from noetl_stream.tools.duckdb.warm_processes import DuckdbProcesses, ProcessDied
from noetl_stream.tools.egress import Egress
from noetl_stream.tools.inputs import invalid_input, validated
from noetl_stream.tools.postgres.pool import ConnectionPools
from noetl_stream.tools.scratch.scratch import Scratch, ScratchFolders
from noetl_stream.tools.sql import SQL_INPUTS, SQL_RESULT, SqlInputs, SqlKnobs

if TYPE_CHECKING:
    from noetl_stream.telemetry.measures import Reading

MAX_TASKS: Final = 4
"""The most DuckDB tasks that a worker runs at the same time; each may use several processors."""
MAX_JOB_BYTES: Final = 1024**3
MEMORY_LIMIT: Final = "1GB"
THREADS: Final = 2
_BESIDE_BYTES: Final = 256 * 1024**2
"""The memory of a process that ``memory_limit`` does not count: threads, parsed statements, the library."""
_FILES_BYTES: Final = 1024**3
"""The additional memory for reading and writing files: buffers of lines and of columns, for each thread."""
_RESULT_COPIES: Final = 6
"""The number of copies of a result in the memory of a process: in DuckDB, as values and as JSON."""
_TABLE_COPIES: Final = 12
"""The factor by which DuckDB takes more memory than the text of a table, to read it."""
_MOST_BESIDE_BYTES: Final = 8 * 1024**3
"""The upper bound of both, whatever a task asks for."""


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
        description="Tables to create first, by name: a list of rows, the result of a SQL task, a table or file by "
        "reference, or `{file, format, …}`.",
    )
    attach: dict[str, Attach] | None = Field(
        default=None, description="Tables of Postgres databases to read as `name.table`."
    )

    into: Literal["file", "table"] | None = Field(
        default=None, description="What the rows of the last statement become, by reference. Default: the result."
    )
    format: Literal["csv", "json", "ndjson", "parquet"] | None = Field(
        default=None, description="With `into: file`: its format."
    )

    @property
    def written(self) -> Written | None:
        """Returns how the rows of the last statement are written."""
        return "parquet" if self.into == "table" else self.format

    @field_validator("database")
    @classmethod
    def _named_memory(cls, database: str | None) -> str | None:
        return None if database == ":memory:" else database

    @model_validator(mode="after")
    def _attaches_in_memory(self) -> DuckdbInputs:
        if self.attach and self.database is not None:
            raise ValueError("attach: needs a database in memory; remove database")
        return self

    @model_validator(mode="after")
    def _format_of_a_file(self) -> DuckdbInputs:
        if (self.into == "file") != (self.format is not None):
            raise ValueError("format: goes with `into: file`, which needs csv, json, ndjson or parquet")
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


_MEDIA_TYPES: Final = {
    "csv": "text/csv",
    "json": "application/json",
    "ndjson": "application/x-ndjson",
    "parquet": PARQUET,
}


class _Prepared(NamedTuple):
    """The tables of a task: those given as rows, and those that are files in a scratch folder."""

    rows: Mapping[str, Table]
    databases: Sequence[CopiedDatabase] = ()
    files: Sequence[FileSource] = ()
    scratch: Scratch | None = None
    copied: Sequence[CopiedTable] = ()
    into: Written | None = None


class DuckdbTool:
    """Runs each task in a process, in its own database, without access to files and the network.

    Args:
        settings: The operator's settings: folders whose files the SQL may use, databases to attach, memory and threads.

    Attributes:
        scratch_folders: The scratch folders of its tasks.
    """

    spec = KindSpec(
        kind="duckdb",
        inputs=DuckdbInputs,
        knobs=DuckdbKnobs,
        statements=SQL_INPUTS,
        result_keys=SQL_RESULT | {"table", "file"},
        code={"command": _problems_of},
        params_error=_params_error,
    )

    def __init__(self, settings: ToolSettings | None = None) -> None:
        self._settings = settings or ToolSettings()
        self._folders = self._settings.duckdb_folders
        self.scratch_folders = ScratchFolders(self._settings.max_scratch_bytes)
        self._pools = ConnectionPools(Egress(self._settings.egress))
        self._places = Places(MAX_TASKS, "DuckDB process", spare_of(MAX_TASKS))
        self._turns: WeakValueDictionary[str, Places] = WeakValueDictionary()
        launcher = Launcher(_child_settings(self._settings), server="noetl_stream.tools.duckdb.child")
        self._processes = DuckdbProcesses(launcher)

    @classmethod
    def configured(cls, settings: ToolSettings) -> DuckdbTool:
        """Makes the tool with the operator's settings."""
        return cls(settings)

    def readings(self) -> Sequence[Reading]:
        """Returns the metrics of the tool: see :class:`~noetl_stream.telemetry.measures.Measured`."""
        turns = sum(turn.waiting for turn in self._turns.values())
        return [WAITING.read(self._places.waiting + turns + self._pools.waiting, self.spec.kind)]

    async def run(self, call: ToolCall) -> ToolResult:
        """Returns ``{rows, row_count, columns, statements}`` of the last statement that returned rows.

        The statements run in one transaction; ``getvariable('idempotency_key')`` is the call's key.

        Raises:
            ToolFailure: ``sql``, ``syntax``, ``not_allowed`` (a file, setting or knob), ``connection`` (the file is in
                use), ``crashed`` (the process died), ``result_too_large``, ``result_not_json``, ``invalid_input``; with
                ``attach`` also those of ``postgres`` and ``not_found``.
        """
        inputs = validated(DuckdbInputs, call.inputs)
        knobs = validated(DuckdbKnobs, call.knobs)
        if inputs.database is not None:
            _check_database(inputs.database, self._folders)
        named, rows = files_among(inputs.tables or {}, call.data)
        if not inputs.attach and not named and inputs.into is None:
            return ToolResult(await self._run(call, inputs, knobs, _Prepared(rows)))
        async with self.scratch_folders.folder() as scratch:
            with beginning("copy the attached tables", OWN_TROUBLE):
                databases = await copy_databases(
                    call, inputs.attach or {}, self._pools, scratch.folder, knobs.max_attached_bytes
                )
            files = [await file.copied(call.data, scratch) for file in named]
            result = await self._run(
                call, inputs, knobs, _Prepared(rows, databases, files, scratch, into=inputs.written)
            )
            return ToolResult(result if inputs.into is None else await _saved(call, inputs, result, scratch))

    async def bad_rows(self, call: ToolCall, table: Any, plan: TablePlan) -> BadRows:
        """See :meth:`~noetl_stream.tools.contract.ChecksTables.bad_rows`."""
        rules = rules_of(plan)
        if not rules:
            return BadRows(0)
        inputs = {"command": bad_rows_command(rules), "tables": {CHECKED: table}}
        found = await self.run(replace(call, inputs=inputs, knobs={}))
        return bad_rows_of(found.result["rows"], rules)

    async def write(
        self, call: ToolCall, scratch: Scratch, query: str, into: Written, source: CopiedTable | FileSource
    ) -> dict[str, Any]:
        """Writes the rows of a query over a copied table or file to ``WRITTEN_FILE`` in the scratch folder.

        Raises:
            ToolFailure: As :meth:`run`.
        """
        given = _Prepared({}, scratch=scratch, into=into)
        given = given._replace(files=[source]) if isinstance(source, FileSource) else given._replace(copied=[source])
        return await self._run(call, DuckdbInputs(command=query), DuckdbKnobs(), given)

    async def save(
        self, call: ToolCall, scratch: Scratch, query: str, source: CopiedTable | FileSource
    ) -> dict[str, Any]:
        """Stores the rows of a query over a copied table or file as a table; returns the reference to it.

        Raises:
            ToolFailure: As :meth:`run`.
        """
        written = await self.write(call, scratch, query, "parquet", source)
        return await _saved_table(call, written["stored"], written["head"], written["row_count"], scratch)

    async def _run(self, call: ToolCall, inputs: DuckdbInputs, knobs: DuckdbKnobs, given: _Prepared) -> dict[str, Any]:
        making = partial(self._job, call, inputs, knobs, given)
        job, frame = await asyncio.to_thread(making) if given.rows else making()
        async with self._turn(inputs.database, call), self._places.held_for(call):
            try:
                return await self._processes.run(job, frame, None if given.scratch is None else given.scratch.folder)
            except ProcessDied as died:
                raise _crash_failure(died, call, given.files) from None

    def _job(
        self, call: ToolCall, inputs: DuckdbInputs, knobs: DuckdbKnobs, given: _Prepared
    ) -> tuple[DuckdbJob, bytes]:
        """Returns the job of a task, and its message."""
        memory_bytes, config = _config(inputs, knobs, self._settings)
        left_bytes = 0 if given.scratch is None or inputs.database is not None else max(1, given.scratch.left_bytes)
        if left_bytes:
            spilled = {"temp_directory": f"{COPIES_FOLDER}/{SPILLED_FOLDER}"}
            config |= {**spilled, "max_temp_directory_size": f"{left_bytes}B"}
        tables = [NewTable(name, *table_statement(name, *rows_of(name, table))) for name, table in given.rows.items()]
        try:
            job = DuckdbJob(
                database=inputs.database,
                config=config,
                folders=[str(folder) for folder in self._folders],
                attached=list(given.databases),
                tables=tables,
                texts=inputs.texts,
                params=msgspec.json.encode(inputs.params),
                idempotency_key=call.idempotency_key,
                max_rows=knobs.max_rows,
                max_result_bytes=knobs.max_result_bytes,
                memory_bytes=memory_bytes + _bytes_beside(knobs, tables, with_files=given.scratch is not None),
                files=list(given.files),
                into=given.into,
                copied=list(given.copied),
                max_file_bytes=left_bytes,
            )
            message = msgspec.msgpack.encode(job)
        except (TypeError, ValueError, RecursionError) as error:
            raise invalid_input(f"cannot pass command, params or tables to DuckDB: {error}") from None
        if len(message) > MAX_JOB_BYTES:
            what = f"command, params and tables have {len(message):,} bytes"
            raise invalid_input(f"{what}; at most {MAX_JOB_BYTES:,} can be passed")
        return job, add_length(message)

    @contextlib.asynccontextmanager
    async def _turn(self, database: str | None, call: ToolCall) -> AsyncIterator[None]:
        """Holds a database file, which only one process can open."""
        if database is None:
            yield
            return
        path = os.path.realpath(database)  # noqa: ASYNC240  # as quick as opening it
        turn = self._turns.setdefault(path, Places(1, f"turn on the database file {database}"))
        async with turn.held_for(call):
            yield

    async def self_test(self) -> None:
        """See :meth:`~noetl_stream.tools.contract.SelfTested.self_test`."""
        await self._processes.self_test()

    async def close(self) -> None:
        """Ends the processes of the tool."""
        await self._pools.close()
        await self._processes.close()
        await self.scratch_folders.close()


async def _saved(call: ToolCall, inputs: DuckdbInputs, result: dict[str, Any], scratch: Scratch) -> dict[str, Any]:
    """Stores the file that the task has written, and returns the result with the reference to it."""
    stored, head = result.pop("stored", ()), result.pop("head", ())
    result = {name: value for name, value in result.items() if name != "rows"}
    if inputs.into == "table":
        return {"table": await _saved_table(call, stored, head, result["row_count"], scratch), **result}
    name, media_type = f"{call.task}.{inputs.written}", _MEDIA_TYPES[inputs.written or ""]
    return {"file": await call.data.save(scratch.read(WRITTEN_FILE), name=name, media_type=media_type), **result}


async def _saved_table(call: ToolCall, stored: Any, head: Sequence[Any], rows: int, scratch: Scratch) -> dict[str, Any]:
    columns, pieces = msgspec.convert(stored, list[Column]), scratch.read(WRITTEN_FILE)
    return await call.data.save(pieces, media_type=PARQUET, columns=columns, rows=rows, head=head)


def _child_settings(settings: ToolSettings) -> ChildSettings:
    """Returns the settings of processes, which use the database files of the worker's user."""
    folders = tuple(map(str, settings.duckdb_folders))
    most_bytes = settings.duckdb_max_memory_bytes + _MOST_BESIDE_BYTES
    return replace(settings.children, user="worker", paths=folders, memory_bytes=most_bytes)


def _crash_failure(died: ProcessDied, call: ToolCall, files: Sequence[FileSource]) -> ToolFailure:
    how = f"exit code {died.exit_code}"
    if died.exit_code < 0:
        how = f"signal {signal.Signals(-died.exit_code).name}"
    message = f"the DuckDB process that ran {call.step}.{call.task} died ({how})"
    if any(file.format == "excel" for file in files):
        message += "; a sheet that does not fit in its memory ends it so"
    # SIGKILL mostly means that the machine is out of memory, so a retry may succeed.
    return ToolFailure.of("crashed", message, retryable=died.exit_code == -signal.SIGKILL, code=str(died.exit_code))


def _check_database(database: str, folders: Sequence[Path]) -> None:
    if database.startswith(":"):
        raise invalid_input("database: must be a file; remove it for a database in memory")
    path = Path(os.path.abspath(database))  # noqa: PTH100  # resolve ".." before links
    inside = [folder for folder in folders if path.is_relative_to(folder)]
    if not any(path.resolve().is_relative_to(folder.resolve()) for folder in inside):
        message = "database: not in a folder that the worker's operator allows (NOETL_DUCKDB_PATHS)"
        raise ToolFailure.of("not_allowed", message)


def _config(inputs: DuckdbInputs, knobs: DuckdbKnobs, settings: ToolSettings) -> tuple[int, dict[str, str]]:
    """Returns the memory limit, and all settings of DuckDB."""
    memory_bytes, threads = _memory_bytes(knobs, settings), _threads(knobs, settings)
    config = {
        "memory_limit": f"{memory_bytes}B",
        "threads": str(threads),
        "python_enable_replacements": "false",  # table names must not resolve to the worker's variables
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "allow_persistent_secrets": "false",
    }
    return memory_bytes, config if inputs.database is not None else {**config, "temp_directory": ""}


def _memory_bytes(knobs: DuckdbKnobs, settings: ToolSettings) -> int:
    """Returns the memory of a task: the requested one, else the default, at most the operator's maximum."""
    asked, most = size_bytes(knobs.memory_limit), settings.duckdb_max_memory_bytes
    if not asked:
        raise invalid_input("memory_limit: must be a size such as 512MB or 1GiB")
    if asked > most and "memory_limit" in knobs.model_fields_set:
        raise _too_much(f"memory_limit: {knobs.memory_limit}", f"{most:,} bytes", DUCKDB_MAX_MEMORY_VARIABLE)
    return min(asked, most)


def _bytes_beside(knobs: DuckdbKnobs, tables: Sequence[NewTable], *, with_files: bool) -> int:
    """Returns the memory of a process that ``memory_limit`` does not count."""
    rows_bytes = sum(len(table.rows) for table in tables)
    files_bytes = _FILES_BYTES if with_files else 0
    return _BESIDE_BYTES + files_bytes + _RESULT_COPIES * knobs.max_result_bytes + _TABLE_COPIES * rows_bytes


def _threads(knobs: DuckdbKnobs, settings: ToolSettings) -> int:
    most = settings.duckdb_max_threads
    if knobs.threads > most and "threads" in knobs.model_fields_set:
        raise _too_much(f"threads: {knobs.threads}", str(most), DUCKDB_MAX_THREADS_VARIABLE)
    return min(knobs.threads, most)


def _too_much(asked: str, most: str, variable: str) -> ToolFailure:
    return ToolFailure.of("not_allowed", f"{asked} is more than the worker's operator allows ({variable}: {most})")
