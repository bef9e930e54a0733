"""What a real Postgres says of itself."""

from __future__ import annotations

from noetl_stream.adapters.postgres.store import PostgresStore


async def test_postgres_says_what_the_doctor_asks(dsn: str) -> None:
    store = await PostgresStore.open(dsn, name="doctor")
    try:
        await store.appear("gone", "0.3.0", 2, 0)
        await store.appear("one", "0.4.0", 2, 60)

        facts = await store.diagnosis.facts()

        assert (facts.user, facts.waits_for, facts.standbys, facts.synchronous) == ("postgres", "", 0, 0)
        assert facts.version[0].isdigit() and facts.size_bytes > 0 and facts.certificate_ends_ms is None
        assert 0 < facts.connections <= facts.max_connections
        sizes = {table.name: table for table in await store.diagnosis.tables()}
        assert sizes["audit"].size_bytes > 0
        assert sizes["event"].rows is None, "nobody has counted them"
        assert not [name for name in sizes if name.startswith("audit_answer_")], "partitions are with their table"
        assert abs(facts.now_ms - await store.now_ms()) < 60_000
        assert [(one.name, one.version) for one in await store.diagnosis.live_servers()] == [("one", "0.4.0")]
    finally:
        await store.close()
