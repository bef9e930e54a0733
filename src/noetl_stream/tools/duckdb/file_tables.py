"""Files and tables by reference as tables of a DuckDB task, read in place (see ``docs/reference/tools.md``)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from noetl_stream.sealing.data_references import PARQUET, DataReference, read_reference
from noetl_stream.tools.contract import DataStore, ToolFailure
from noetl_stream.tools.duckdb.job import COPIES_FOLDER, FileSource
from noetl_stream.tools.duckdb.tables import Table
from noetl_stream.tools.inputs import Inputs, invalid_input, validated
from noetl_stream.tools.scratch.scratch import Scratch

Format = Literal["csv", "json", "ndjson", "parquet", "excel"]

_MEDIA_TYPES: Final[Mapping[str, Format]] = {
    "text/csv": "csv",
    "application/csv": "csv",
    "text/tab-separated-values": "csv",
    "application/json": "json",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    PARQUET: "parquet",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "excel",
    "application/vnd.ms-excel.sheet.macroenabled.12": "excel",
    "application/vnd.ms-excel.sheet.binary.macroenabled.12": "excel",
    "application/vnd.oasis.opendocument.spreadsheet": "excel",
}
_ENDINGS: Final[Mapping[str, Format]] = {
    "csv": "csv",
    "tsv": "csv",
    "json": "json",
    "ndjson": "ndjson",
    "jsonl": "ndjson",
    "parquet": "parquet",
    **dict.fromkeys(("xlsx", "xlsm", "xlsb", "xls", "ods"), "excel"),
}
GZIP: Final = b"\x1f\x8b"
"""The first bytes of a gzip file."""

_COMPRESSED_NAME: Final = re.compile(r"\.(gz|bz2|xz|zst|zip)$")
_OF_FORMATS: Final = (
    (("delimiter", "max_bad_rows"), ("csv",), "CSV"),
    (("header", "columns"), ("csv", "excel"), "CSV and Excel"),
    (("sheet",), ("excel",), "Excel"),
)
"""The options that belong to some formats."""


class FileTable(Inputs):
    """A file as a table, and how to read it."""

    file: Any = Field(description="The reference to the file.")
    format: Format | None = Field(default=None, description="Default: by its media type, else by its name.")
    delimiter: str | None = Field(default=None, min_length=1, description="Of CSV. Default: found out.")
    header: bool | None = Field(
        default=None,
        description="Whether the first line of CSV or row of a sheet has names. Default: found out; of a sheet, true.",
    )
    columns: dict[str, str] | None = Field(
        default=None,
        min_length=1,
        description="Names and types of columns of CSV or a sheet: those of `header`, else all.",
    )
    sheet: Annotated[str, Field(min_length=1)] | Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Of Excel: the name or the number of the sheet. Default: the first one."
    )
    max_bad_rows: int | None = Field(
        default=None, ge=0, description="Lines of CSV that may be left out since they cannot be read."
    )


class NamedFile:
    """A reference, and the way to read it as the table ``name``.

    Args:
        place: The name of the reference in errors.
        advice: The place to write the format, for hints.

    Attributes:
        format: The format of the file.
    """

    def __init__(
        self, name: str, reference: DataReference, options: FileTable | None, *, place: str, advice: str
    ) -> None:
        self.name = name
        self.reference = reference
        self._options = options
        self._place = place
        self.format = self._found_format(advice)

    async def copied(self, data: DataStore, scratch: Scratch) -> FileSource:
        """Writes it into the scratch folder, and returns how a DuckDB process reads it.

        Raises:
            ToolFailure: ``result_lost``, ``limit_exceeded``, ``sql`` if it is empty.
        """
        if self.reference.size == 0:
            raise ToolFailure.of("sql", f"{self._place}: {self.reference.what} is empty")
        what = f"{self._place}: {self.reference.what}"
        path = await scratch.fetch(data, self.reference, f"table.{self.format}", what)
        given = self._options or FileTable(file=None)
        is_tabs = self.reference.media_type.startswith("text/tab") or ".tsv" in self.reference.name.lower()[-7:]
        return FileSource(
            name=self.name,
            place=self._place,
            what=self.reference.what,
            file=f"{COPIES_FOLDER}/{path.relative_to(scratch.folder)}",
            format=self.format,
            packed=await asyncio.to_thread(_is_packed, path),
            part=None if self.reference.rows is None else (self.reference.first, self.reference.rows),
            delimiter=given.delimiter or ("\t" if is_tabs else None),
            header=given.header,
            columns=given.columns,
            max_bad_rows=given.max_bad_rows,
            sheet=given.sheet,
        )

    def _found_format(self, advice: str) -> Format:
        given, reference = self._options, self.reference
        found = (given.format if given is not None else None) or (
            "parquet"
            if reference.columns is not None
            else _MEDIA_TYPES.get(reference.media_type.lower()) or format_named(reference.name)
        )
        if found is None:
            about = f"its media type is {reference.media_type or 'not known'}"
            message = f"the format of {reference.what} is unknown, {about}; {advice}, or json, ndjson, parquet, excel"
            raise invalid_input(f"{self._place}: {message}")
        for names, formats, of in _OF_FORMATS if given is not None else ():
            wrong = next((name for name in names if getattr(given, name) is not None), None)
            if wrong is not None and found not in formats:
                raise invalid_input(f"{self._place}.{wrong}: is of {of}, and {reference.what} is read as {found}")
        return found


def format_named(name: str) -> Format | None:
    """Returns the format for a file name; ``None`` if it is unknown."""
    return _ENDINGS.get(_COMPRESSED_NAME.sub("", name.lower()).rpartition(".")[2])


def files_among(tables: Mapping[str, Table], data: DataStore) -> tuple[list[NamedFile], dict[str, Table]]:
    """Returns the files and tables by reference of the input ``tables``, and the tables given as rows.

    Raises:
        ToolFailure: ``invalid_input``, also for something like a reference that this task may not open.
    """
    files: list[NamedFile] = []
    rows: dict[str, Table] = {}
    for name, table in tables.items():
        value, options = _reference_in(name, table)
        if value is None:
            rows[name] = table
            continue
        reference = data.reference(value)
        if reference is None:
            raise invalid_input(
                f"tables.{name}: is not a reference that this task can open: it was changed, made by another "
                "execution, or is data that looks like one"
            )
        advice = f"write {name}: {{ file: …, format: csv }}"
        files.append(NamedFile(name, reference, options, place=f"tables.{name}", advice=advice))
    return files, rows


def _reference_in(name: str, table: Table) -> tuple[Any, FileTable | None]:
    """Returns the value in place of a reference, and the options beside it; ``None`` for rows."""
    if not isinstance(table, dict):
        return None, None
    if read_reference(table) is not None:
        return table, None
    if "file" in table and "rows" not in table:
        try:
            return table["file"], validated(FileTable, table)
        except ToolFailure as failure:
            raise invalid_input(f"tables.{name}.{failure.error.message}") from None
    return (table["table"], None) if "table" in table and "rows" not in table else (None, None)


def _is_packed(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(GZIP)) == GZIP
