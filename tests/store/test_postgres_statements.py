"""The SQL files and their named parameters."""

from __future__ import annotations

import re
from errno import EMFILE
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from noetl_stream.adapters.postgres import statements
from noetl_stream.adapters.postgres.statements import (
    commit_statement,
    compile_statement,
    query_text,
    read_queries,
    statement,
)
from noetl_stream.ports.stores.identities import AuditedAnswer
from noetl_stream.ports.stores.store import (
    EntryRow,
    ExecutionRow,
    PartitionAdvance,
    RequestRow,
    TermRow,
    Tick,
    TimerKey,
)
from noetl_stream.protocol.rows import Json, Row

QUERIES = sorted(
    file.name.removesuffix(".sql") for file in (files("noetl_stream.adapters.postgres") / "queries").iterdir()
)


def test_values_are_numbered_by_their_first_mention() -> None:
    found = compile_statement("select :b, :a::text[] from t where x = :b and y = :a_2")
    assert found.text == "select $1, $2::text[] from t where x = $1 and y = $3"
    assert found.arguments({"a": "A", "a_2": 2, "b": None, "unused": 0}) == [None, "A", 2]


def test_a_role_needs_no_descriptor_for_a_query_once_it_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path, **given: Any) -> str:
        raise OSError(EMFILE, "Too many open files", str(path))

    query_text.cache_clear()
    read_queries()
    monkeypatch.setattr(Path, "read_text", refused)
    assert all(query_text(name) for name in QUERIES)


def test_casts_and_texts_are_not_names() -> None:
    text = "select 'label:' || x::text, y::bigint[] from t"
    assert compile_statement(text).text == text


def test_columns_are_the_fields_of_a_row_type() -> None:
    assert compile_statement("insert into t (:terms.columns)").text == "insert into t (term, execution_id)"
    assert compile_statement("select :answer.columns").text == "select status, reason, made, left_out"


def test_rows_are_given_as_an_array_a_column() -> None:
    found = compile_statement("where x = :x and (a, b) in (select * from :terms.rows) and n = cardinality(:terms.term)")
    assert found.text == (
        "where x = $1 and (a, b) in (select * from unnest($2::text::text[], $3::text::text[])) "
        "and n = cardinality($2::text::text[])"
    )
    rows = [TermRow(term="t1", execution_id="e1"), TermRow(term="t2", execution_id="e2")]
    assert found.arguments({"terms": rows, "x": 1}) == [1, '{"t1","t2"}', '{"e1","e2"}']
    assert found.arguments({"terms": (), "x": 1}) == [1, "{}", "{}"]


def test_keys_are_given_as_rows_are() -> None:
    found = compile_statement(":timers_gone.rows")
    assert found.arguments({"timers_gone": [TimerKey("e1", 'a "b", \\c'), TimerKey("e2", "")]}) == [
        '{"e1","e2"}',
        '{"a \\"b\\", \\\\c",""}',
    ]


def test_an_array_has_the_type_of_its_column() -> None:
    found = compile_statement(":entries.rows").text
    types = dict(zip(EntryRow.__struct_fields__, re.findall(r"(\w+)\[\]", found), strict=True))
    assert (types["execution_id"], types["step_run_id"], types["position"], types["source_seq"], types["data"]) == (
        "text",
        "text",
        "bigint",
        "bigint",
        "json",
    )


def test_a_column_of_which_all_values_are_the_default_is_sent_as_null() -> None:
    found = compile_statement("insert into t select x.* from :partitions.rows as x")
    assert "coalesce(crashes, 0) as crashes" in found.text
    rows = [PartitionAdvance(id=id, epoch=1, tick=7, last_seq=9, last_ms=5, published_tick=6) for id in (3, 4)]
    assert found.arguments({"partitions": rows})[-1] is None
    crashed = [rows[0], replace(rows[1], crashes=2)]
    assert found.arguments({"partitions": crashed})[-1] == "{0,2}"


def test_a_column_that_may_be_null_has_no_default() -> None:
    assert "coalesce" not in compile_statement("select * from :entries.rows").text


def test_a_single_row_is_a_parameter_a_column() -> None:
    found = compile_statement("values (:number, :answer.values) -- :answer.reason")
    assert found.text == "values ($1, $2, $3, $4, $5) -- $3"
    assert found.arguments({"answer": AuditedAnswer(200, "why", "made"), "number": 7}) == [7, 200, "why", "made", 0]


def test_an_update_leaves_what_is_written_once() -> None:
    updated = compile_statement("set :executions.updates").text
    assert "status = excluded.status, " in updated
    replaced = set(ExecutionRow.__struct_fields__) - ExecutionRow.written_once
    assert set(re.findall(r"(\w+) = excluded", updated)) == replaced - ExecutionRow.filled_later
    assert "labels = case when excluded.labels::text = '{}' then stored.labels else excluded.labels end" in updated


@pytest.mark.parametrize("text", [":nobody.columns", ":entries.nothing", ":token.rows", ":entries.values"])
def test_a_dotted_name_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        compile_statement(text)


def test_a_missing_value_is_reported() -> None:
    with pytest.raises(KeyError, match="limit"):
        statement("stuck").arguments({})


@pytest.mark.parametrize("name", QUERIES)
def test_every_file_compiles_and_numbers_nothing_itself(name: str) -> None:
    assert "$" not in query_text(name)
    statement(name)


def rows_of(tick: Tick) -> list[tuple[str, str]]:
    """What the statement of a tick writes, and from one row or several."""
    text = commit_statement(tick).text
    return re.findall(r"(\w+) as \(\n    insert.*?from \(?(values|unnest)", text, re.DOTALL)


def test_a_tick_pays_for_the_rows_it_has() -> None:
    advance = PartitionAdvance(id=3, epoch=1, tick=7, last_seq=9, last_ms=5, published_tick=6)
    request = RequestRow(execution_id="e1", request_id="r", answer=b"{}", position=1)
    terms = [TermRow(term="t1", execution_id="e1"), TermRow(term="t2", execution_id="e1")]

    empty = Tick(owner="one", partitions=[advance])
    assert rows_of(empty) == []
    assert "for update" not in commit_statement(empty).text
    assert commit_statement(empty).arguments(asdict(empty)) == [3, 1, 7, 9, 5, 6, 0, "one"]

    some = Tick(owner="one", partitions=[advance, advance], requests=[request], terms=terms)
    assert rows_of(some) == [("written_requests", "values"), ("written_terms", "unnest")]
    assert "order by p.id\n    for update" in commit_statement(some).text
    answered, found = ["r", "e1", b"{}", 1], ['{"t1","t2"}', '{"e1","e1"}']
    assert commit_statement(some).arguments(asdict(some))[8:] == answered + found


class _Wider(TermRow, frozen=True, kw_only=True):
    """A row type with a column more than the one it is made from."""

    weight: int
    note: Json | None = None


def test_a_column_more_is_written_by_its_row_type_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    row_types = {**statements.sequences(), "terms": _Wider}
    monkeypatch.setattr(statements, "sequences", lambda: row_types)
    found = compile_statement.__wrapped__(query_text("commit"))
    assert "insert into noetl.execution_term (term, execution_id, weight, note)" in found.text
    inserted = re.search(r"written_terms as \(.*?unnest\((.*?)\) as t", found.text, re.DOTALL)
    assert inserted is not None
    assert re.findall(r"(\w+)\[\]", inserted[1]) == ["text", "text", "bigint", "json"]
    wider: list[Row] = [_Wider(term="t", execution_id="e", weight=3)]
    arguments: list[Any] = found.arguments(dict.fromkeys(row_types, ()) | _REST | {"terms": wider})
    numbers = [int(number) for number in re.findall(r"\$(\d+)", inserted[1])]
    assert [arguments[number - 1] for number in numbers] == ['{"t"}', '{"e"}', "{3}", None]


_REST: dict[str, Any] = {"owner": "one", "inbox_folded": ()}
