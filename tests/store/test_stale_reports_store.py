"""Reports of runs that had lost their command, in Postgres (PROTOCOL §3 *Binding*)."""

from __future__ import annotations

from typing import Any

from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.ports.stores.store import StaleReportRow
from noetl_testkit.conformance.store_rows import committed, execution_row, following

LATE = StaleReportRow(execution_id="a", report_id="command.1.1.n.0", source_seq=7, at_ms=9, reason="it was late")


async def test_a_stale_report_is_kept_as_long_as_its_execution(postgres_store: PostgresStore, watcher: Any) -> None:
    tick = await committed(postgres_store, executions=[execution_row("a", finished_ms=5)])
    await postgres_store.commit(following(tick, stale_reports=[LATE]))
    await postgres_store.commit(following(following(tick), stale_reports=[LATE]))  # a message that EVENTS holds twice
    query = "select report_id, source_seq, at_ms, reason from noetl.stale_report where execution_id = 'a'"
    assert [tuple(row) for row in await watcher.fetch(query)] == [("command.1.1.n.0", 7, 9, "it was late")] * 2
    assert await postgres_store.delete_execution("a")
    assert await watcher.fetch(query) == []
