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
HEAD = """
    workflow:
      - step: load
        tool: { kind: postgres, auth: pg, command: "SELECT 1" }
        next: { arcs: [ { step: look, when: "{{ (load.table | head(2))[1].b == 'y' }}" } ] }
      - step: look
        tool:
          - { name: count, kind: duckdb, tables: { t: "{{ load.table }}" }, command: "select sum(a)::int as s from t" }
          - name: shown
            kind: noop
            args:
              first: "{{ load.table | head(1) }}"
              sum: "{{ count.rows[0].s }}"
              type: "{{ load.table.columns[0].type }}"
"""
NDJSON = '{"a": 1, "b": "x"}\n{"a": 2, "b": "y"}\n'


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


@pytest.mark.parametrize(
    ("name", "text"),
    [("t.csv", "a,b\n1,x\n2,y\n"), ("t.json", '[{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]'), ("t.ndjson", NDJSON)],
)
def test_a_table_is_made_of_text_and_its_first_rows_are_read_by_templates_and_guards(
    tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    tests = f"""
        - name: heads
          given: {{ real: [duckdb], stubs: {{ load: {{ result: {{ table: {{ table: {name} }} }} }} }} }}
          then:
            path: [load, look]
            result: {{ first: [{{ a: 1, b: x }}], sum: 3, type: BIGINT }}
    """
    assert problems(tmp_path, HEAD, tests) == []


def test_a_text_that_resembles_a_table_opens_nothing_in_a_guard(tmp_path: Path) -> None:
    table = "{ key: other/c/1.1.n/0/parts-1, size: 5, checksum: 'sha256:0', seal: AAAA, rows: 3, columns: [] }"
    guarded = f"""
        workload: {{ table: {table} }}
        workflow:
          - step: load
            tool: {{ kind: noop }}
            next: {{ arcs: [ {{ step: look, when: "{{{{ workload.table | head(1) }}}}" }} ] }}
          - step: look
            tool: {{ kind: noop }}
    """
    tests = """
        - name: opens nothing
          then:
            error:
              kind: result_lost
              message: "%s"
    """
    said = "cannot read the first rows of a table: it is not a table of this execution: only its values look like one"
    assert problems(tmp_path, guarded, tests % said) == []


def test_a_called_playbook_reads_the_first_rows_of_a_table_that_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a\n1\n2\n")
    called = "metadata: { name: c, path: tests/c }\nworkload: { table: null }\nworkflow:\n"
    steps = [
        '- { step: guard, tool: { kind: noop }, next: { arcs: [ { step: show, when: "{{ %s == 1 }}" } ] } }',
        '- { step: show, tool: { kind: noop, args: { a: "{{ %s }}" } } }',
    ]
    reads = "\n".join(steps) % ("(workload.table | head(1))[0].a", "(workload.table | head(2))[1].a")
    (tmp_path / "c.yaml").write_text(f"apiVersion: noetl.io/v2\nkind: Playbook\n{called}{reads}\n")
    calls = """
        workflow:
          - step: load
            tool: { kind: postgres, auth: pg, command: "SELECT 1" }
            next: { arcs: [ { step: call } ] }
          - step: call
            tool: { kind: playbook, path: tests/c, args: { table: "{{ load.table }}" } }
    """
    tests = """
        - name: calls
          given: { catalog: { c.yaml: {} }, stubs: { load: { result: { table: { table: t.csv } } } } }
          then: { result: { a: 2 } }
    """
    assert problems(tmp_path, calls, tests) == []


def test_a_table_that_stands_for_another_is_checked(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a\n1\n-1\n")
    tests = """
        - name: bad
          given: { stubs: { load: { result: { table: { table: t.csv } } } } }
          then:
            error:
              kind: schema_mismatch
              message: "1 of 2 rows of the table are bad (tolerated: 0): row 2: `a` is below 0"
    """
    rules = "spec: { result: { table: { columns: { a: { type: BIGINT, minimum: 0 } } } } }"
    checked = LOAD.replace('command: "SELECT 1"', f'command: "SELECT 1", into: table, {rules}')
    assert problems(tmp_path, checked, tests) == []


def test_a_stub_that_names_no_file_is_data(tmp_path: Path) -> None:
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
        ("table", "is not a table: it does not end as a Parquet file, or its footer is too large; tables are CSV"),
    ],
)
def test_a_file_that_cannot_stand_for_a_reference_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, said: str
) -> None:
    (tmp_path / "a").write_text("1234" if key == "file" else "12")
    monkeypatch.setattr(stub_files, "MAX_STUB_BYTES", 3)
    tests = (
        f"- {{ name: a, given: {{ stubs: {{ load: {{ result: {{ {key}: a }} }} }} }}, then: {{ status: completed }} }}"
    )
    [found] = loaded(tmp_path, LOAD, tests).diagnostics
    assert said in found.message


LOOP = """
    executor: { spec: { result: "{{ each | map(attribute='rows') | map('first') | list }}" } }
    workflow:
      - step: each
        loop:
          rows: { kind: postgres, auth: pg, command: "SELECT 1", batch: 2 }
          iterator: part
        tool: { kind: duckdb, tables: { t: "{{ part }}" }, command: "select list(a)::text as a from t" }
"""


@pytest.mark.parametrize("stub", ["{ table: t.csv }", "[{ a: 1 }, { a: 2 }, { a: 3 }]"])
def test_a_file_or_a_list_stands_for_the_rows_of_a_loop(tmp_path: Path, stub: str) -> None:
    (tmp_path / "t.csv").write_text("a\n1\n2\n3\n")
    tests = f"""
        - name: loops
          given: {{ real: [duckdb], stubs: {{ each.rows: {{ result: {{ table: {stub} }} }} }} }}
          then:
            calls: {{ each.rows: 1, each.each_task: 2 }}
            result: [{{ a: "[1, 2]" }}, {{ a: "[3]" }}]
    """
    assert problems(tmp_path, LOOP, tests) == []


def test_a_query_that_fails_is_the_failure_of_its_loop(tmp_path: Path) -> None:
    tests = """
        - name: fails
          given: { stubs: { each.rows: { error: { kind: connection } }, each.each_task: { result: 1 } } }
          then: { status: failed, error: { kind: connection }, calls: { each.each_task: 0 } }
    """
    assert problems(tmp_path, LOOP, tests) == []
