"""The pages about Postgres are true: every table with every column, and queries that run."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import asyncpg

DOCS = Path(__file__).parents[2] / "docs"
TABLES = (DOCS / "reference" / "tables.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"^```sql\n(.*?)^```$", (DOCS / "how-to" / "inspect-in-sql.md").read_text(), re.M | re.S)
COLUMNS = """
select table_name, column_name from information_schema.columns
where table_schema = 'noetl'
    and not (select relispartition from pg_class where oid = format('noetl.%I', table_name)::regclass)
"""


def described() -> dict[str, list[str]]:
    """The columns that the page lists below the name of each table."""
    sections = re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", TABLES, re.MULTILINE | re.DOTALL)
    cells = {name: re.findall(r"^\| (`.+?`) \|", text, re.MULTILINE) for name, text in sections}
    return {name: sorted(re.findall(r"`(\w+)`", " ".join(found))) for name, found in cells.items()}


async def test_the_page_has_every_table_and_view_with_every_column(watcher: asyncpg.Connection[asyncpg.Record]) -> None:
    there: dict[str, list[str]] = defaultdict(list)
    for table, column in await watcher.fetch(COLUMNS):
        there[table].append(column)
    assert described() == {table: sorted(columns) for table, columns in there.items()}


async def test_every_query_of_the_guide_runs(watcher: asyncpg.Connection[asyncpg.Record]) -> None:
    assert len(QUERIES) >= 4
    for query in QUERIES:
        assert isinstance(await watcher.fetch(query), list), query
