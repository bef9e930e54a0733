from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from noetl_stream.adapters.postgres.connections.database import Database
from noetl_stream.adapters.postgres.schema.migrate import migrate
from noetl_stream.adapters.postgres.statements import Statement
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.model.json import codec
from noetl_stream.model.search_terms import (
    MAX_WORD_CHARS,
    due_terms,
    duration_terms,
    error_terms,
    input_terms,
    key_terms,
    label_terms,
    step_terms,
    worker_terms,
)
from noetl_stream.ports.stores.store import ListingFilter, TermRow
from noetl_stream.ports.stores.tallies import TallyKey
from noetl_testkit.conformance.catalog import entry_of
from noetl_testkit.conformance.store_rows import execution_row, following, taken, tick_of

BEFORE = """
drop table noetl.execution_term, noetl.catalog_deleted;
drop index noetl.execution_by_path;
create index execution_by_path on noetl.execution (path, execution_id);
alter table noetl.execution drop column ctx_version, drop column labels;
delete from noetl.migration where number = 8;
"""
ERROR = {"kind": "http_status", "message": f"GET /a-b: 503 Größe, it's «odd» {'w' * 99}", "task": "Fetch"}
LABELS = {"team": "data", "tier": 1, "none": None}


async def test_executions_from_before_the_migration_are_found_by_labels_and_words(
    dsn: str, postgres_store: PostgresStore, watcher: Any
) -> None:
    source = "text"
    entry = await postgres_store.catalog.register(entry_of(source, labels=LABELS), source)
    (lease,) = await taken(postgres_store)
    rows = [
        execution_row("a", digest=entry.digest, finished_ms=1),
        execution_row("b", digest="other", finished_ms=1, error=codec.encode(ERROR)),
    ]
    await postgres_store.commit(tick_of("one", [lease], executions=rows))
    await postgres_store.give_back("one", [(lease.id, lease.epoch)], [0])
    await watcher.execute(BEFORE)
    assert await migrate(dsn) == ["0008_listing"]
    found = {row["term"] for row in await watcher.fetch("select term from noetl.execution_term")}
    assert found == label_terms(LABELS) | error_terms(ERROR)
    (listed,) = await postgres_store.list_executions(ListingFilter(terms=["label:tier=1", "label:team=data"]), 9, None)
    assert (listed.execution_id, codec.decode_json(listed.labels)) == ("a", LABELS)


class WatchedDatabase(Database):
    """Notes what each list of executions is looked up by: a term, or none."""

    looked_up_by: str | None = None

    async def fetch_statement(self, wanted: Statement, values: Mapping[str, Any]) -> list[asyncpg.Record]:
        if "term" in values:
            self.looked_up_by = values["term"]
        return await super().fetch_statement(wanted, values)


@pytest.mark.parametrize(
    ("terms", "statuses", "leading", "found"),
    [
        (("common", "rare"), (), "rare", "03 02 01"),
        (("rare", "common"), (), "rare", "03 02 01"),
        (("common",), ("failed",), None, "02"),
        (("rare",), ("completed",), "rare", "03 01"),
        (("common", "nowhere"), ("failed",), "nowhere", ""),
    ],
)
async def test_the_rarest_of_several_conditions_leads(
    dsn: str, terms: tuple[str, ...], statuses: tuple[str, ...], leading: str | None, found: str
) -> None:
    database = await WatchedDatabase.open(dsn, "test")
    assert isinstance(database, WatchedDatabase)
    store = PostgresStore(database)
    (lease,) = await taken(store)
    rows = [
        execution_row(f"{number:02}", status="failed" if number == 2 else "completed", finished_ms=1)
        for number in range(1, 21)
    ]
    kept = [TermRow(term="common", execution_id=row.execution_id) for row in rows]
    kept += [TermRow(term="rare", execution_id=row.execution_id) for row in rows[:3]]
    await store.commit(tick_of("one", [lease], executions=rows, terms=kept))
    listed = await store.list_executions(ListingFilter(statuses, None, terms), 20, None)
    await store.close()
    assert " ".join(one.execution_id for one in listed) == found
    assert database.looked_up_by == leading


class ExplainedDatabase(Database):
    """Notes the rows that each list of executions looks at, of every table."""

    looked_at = 0

    async def fetch_statement(self, wanted: Statement, values: Mapping[str, Any]) -> list[asyncpg.Record]:
        if "term" in values:
            explained = replace(wanted, text=f"explain (analyze, format json) {wanted.text}")
            ((plan,),) = await super().fetch_statement(explained, values)
            self.looked_at += rows_of(codec.decode_json(plan)[0]["Plan"])
        return await super().fetch_statement(wanted, values)


def rows_of(node: Mapping[str, Any]) -> int:
    """The rows that a plan reads of tables, used or not."""
    below = sum(rows_of(inner) for inner in node.get("Plans", ()))
    if "Relation Name" not in node:
        return below
    filtered = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return below + int((node["Actual Rows"] + filtered) * node["Actual Loops"])


@pytest.mark.parametrize("terms", [(), ("word:leaked",), ("label:team=a",), ("word:leaked", "label:team=a")])
@pytest.mark.parametrize("counted", [False, True])
async def test_executions_out_of_scope_are_not_read(dsn: str, terms: tuple[str, ...], counted: bool) -> None:
    """By index, as it is read where there are many executions."""
    database = await ExplainedDatabase.open(f"{dsn}&enable_seqscan=off&enable_bitmapscan=off", "test")
    assert isinstance(database, ExplainedDatabase)
    store = PostgresStore(database)
    (lease,) = await taken(store)
    wanted = ListingFilter(terms=terms, scope=("team/a",))

    async def looked_at() -> int:
        database.looked_at = 0
        await (store.tally_executions(wanted, TallyKey(), 9) if counted else store.list_executions(wanted, 9, None))
        return database.looked_at

    own = [execution_row(f"5{number:02}", path="team/a/x", status="failed", finished_ms=1) for number in range(20)]
    mine = [TermRow(term="label:team=a", execution_id=row.execution_id) for row in own[:5]]
    tick = tick_of("one", [lease], executions=own, terms=mine)
    await store.commit(tick)
    alone = await looked_at()
    others = [
        execution_row(f"{number:03}", path="other/y", status="failed", finished_ms=1) for number in range(600, 900)
    ]
    theirs = [TermRow(term=term, execution_id=row.execution_id) for row in others for term in terms]
    await store.commit(following(tick, executions=others, terms=theirs))
    among_others = await looked_at()
    await store.close()
    assert among_others == alone > 0


async def test_the_comment_of_the_table_names_each_kind_of_term(postgres_store: PostgresStore, watcher: Any) -> None:
    given = label_terms({"a": 1}) | key_terms("a") | input_terms({"a": 1}) | step_terms("a") | worker_terms(["a"])
    found = duration_terms(10_000) | due_terms("2026-12-20T02:30") | error_terms({"message": "a"})
    comment = await watcher.fetchval("select obj_description('noetl.execution_term'::regclass)")
    assert set(re.findall(r"(\w+):", comment)) == {term.partition(":")[0] for term in given | found}
    assert "only ever added to" not in comment  # a server drops the terms of a label that has another value


async def test_a_deleted_execution_leaves_no_term(postgres_store: PostgresStore, watcher: Any) -> None:
    (lease,) = await taken(postgres_store)
    row = execution_row("a", finished_ms=1, error=codec.encode(ERROR), labels=codec.encode(LABELS))
    terms = [TermRow(term=term, execution_id="a") for term in label_terms(LABELS) | error_terms(ERROR)]
    await postgres_store.commit(tick_of("one", [lease], executions=[row], terms=terms))
    assert await watcher.fetchval("select count(*) from noetl.execution_term") == len(terms)
    await postgres_store.delete_execution("a")
    assert await watcher.fetchval("select count(*) from noetl.execution_term") == 0


def test_words_are_letters_digits_and_underscores_of_any_case() -> None:
    assert error_terms(ERROR) == {
        f"word:{word}"
        for word in ("http_status", "get", "a", "b", "503", "größe", "it", "s", "odd", "w" * MAX_WORD_CHARS, "fetch")
    }
