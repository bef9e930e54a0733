"""Columns and rows of Parquet files, as their footers say and as DuckDB reads them."""

from __future__ import annotations

import contextlib
from pathlib import Path

import duckdb
import pytest

from noetl_stream.tools.scratch.parquet_footer import END_BYTES, Footer, NotParquet, footer_length, read_footer

TYPES = [
    *("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"),
    *("FLOAT", "DOUBLE", "DECIMAL(4,2)", "DECIMAL(18,3)", "DECIMAL(38,10)", "VARCHAR", "BLOB", "JSON", "UUID"),
    *("DATE", "TIME", "TIME WITH TIME ZONE", "TIMESTAMP", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE", "INTERVAL"),
    *("INTEGER[]", "VARCHAR[][]", "STRUCT(a INTEGER, b VARCHAR[])", 'STRUCT("a b" INTEGER, "C" DATE)'),
    *("MAP(VARCHAR, INTEGER)", "MAP(INTEGER, STRUCT(x DOUBLE, y DATE))", "STRUCT(a INTEGER)[]"),
]


def footer_of(data: bytes) -> bytes:
    return data[-END_BYTES - footer_length(data[-END_BYTES:]) : -END_BYTES]


def written(folder: Path, query: str) -> tuple[bytes, list[tuple[str, str]]]:
    """A Parquet file of a query, and its columns as DuckDB describes them."""
    path = folder / "a.parquet"
    with duckdb.connect() as database:
        database.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet)")
        described = database.execute(f"DESCRIBE SELECT * FROM '{path}'").fetchall()
    return path.read_bytes(), [(name, kind) for name, kind, *_ in described]


def test_types_are_those_that_duckdb_reads(tmp_path: Path) -> None:
    columns = ", ".join(f'CAST(NULL AS {kind}) AS "c {place}"' for place, kind in enumerate(TYPES))
    data, described = written(tmp_path, f"SELECT {columns} FROM range(7)")
    found = read_footer(footer_of(data))
    assert [(one.name, one.type) for one in found.columns] == described
    assert found.rows == 7


@pytest.mark.parametrize("end", [b"", b"\0\0\0\0PARX", b"\xff\xff\xff\xffPAR1", b"PAR1"])
def test_a_file_without_the_end_of_parquet_has_no_footer(end: bytes) -> None:
    with pytest.raises(NotParquet, match="does not end as a Parquet file"):
        footer_length(end)


def test_a_changed_footer_is_read_or_refused_and_never_breaks(tmp_path: Path) -> None:
    footer = footer_of(written(tmp_path, "SELECT 1 AS a, [{'b': 'x'}] AS c")[0])
    for place in range(len(footer)):
        for changed in (footer[:place], footer[:place] + bytes([footer[place] ^ 255]) + footer[place + 1 :]):
            with contextlib.suppress(NotParquet):
                assert isinstance(read_footer(changed), Footer)
