"""Small files of a test stand for references."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from playbook_test_stage import loaded, problems

from noetl_stream.playbook_tests import stub_files

READ = """
    workflow:
      - step: fetch
        tool: { kind: http, url: "https://example.com/orders.csv", into: file }
        next: { arcs: [ { step: count } ] }
      - step: count
        tool:
          kind: python
          args: { orders: "{{ fetch.file }}" }
          code: |
            return [orders["name"], orders["media_type"], open(orders).read()]
"""
LOAD = """
    workflow:
      - step: load
        tool: { kind: postgres, auth: pg, command: "SELECT 1" }
        next: { arcs: [ { step: look } ] }
      - step: look
        tool: { kind: noop, args: { rows: "{{ load.table.rows }}", columns: "{{ load.table.columns }}" } }
"""


def test_a_file_stands_for_a_response_and_a_real_task_reads_it(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "orders.csv").write_text("id\n1\n")
    tests = r"""
        - name: reads
          given: { real: [python], stubs: { fetch: { result: { file: { file: data/orders.csv } } } } }
          then: { result: [orders.csv, text/csv, "id\n1\n"] }
    """
    assert problems(tmp_path, READ, tests) == []


def test_a_table_has_the_columns_and_rows_of_its_file(tmp_path: Path) -> None:
    with duckdb.connect() as database:
        database.execute(f"COPY (SELECT 1 AS a, 'x' AS b FROM range(3)) TO '{tmp_path}/t.parquet' (FORMAT parquet)")
    tests = """
        - name: looks
          given: { stubs: { load: { result: { table: { table: t.parquet } } } } }
          then:
            result: { rows: 3, columns: [ { name: a, type: INTEGER }, { name: b, type: VARCHAR } ] }
    """
    assert problems(tmp_path, LOAD, tests) == []


def test_what_names_no_file_is_data(tmp_path: Path) -> None:
    tests = """
        - name: data
          given: { stubs: { load: { result: { table: { rows: { file: none.csv }, columns: { file: a, more: b } } } } } }
          then: { result: { rows: { file: none.csv }, columns: { file: a, more: b } } }
    """
    assert problems(tmp_path, LOAD, tests) == []


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("file", "has more than 3 bytes; a stub has small files"),
        ("table", "is no table in Parquet: it does not end as a Parquet file"),
    ],
)
def test_a_file_that_cannot_stand_for_a_reference_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, said: str
) -> None:
    (tmp_path / "a").write_text("1234" if key == "file" else "12")
    monkeypatch.setattr(stub_files, "MAX_STUB_BYTES", 3)
    tests = (
        f"- {{ name: a, given: {{ stubs: {{ load: {{ result: {{ {key}: a }} }} }} }}, then: {{ status: completed }} }}"
    )
    [found] = loaded(tmp_path, LOAD, tests).diagnostics
    assert said in found.message
