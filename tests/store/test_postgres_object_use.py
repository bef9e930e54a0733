from __future__ import annotations

from typing import Any

from noetl_stream.adapters.postgres.migrate import migrate
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.model import codec
from noetl_stream.model.events import ChildFinished
from noetl_stream.model.outcome import Outcome, Payload, Reference
from noetl_stream.ports.store import ObjectUseRow
from noetl_stream.testing.conformance.store_rows import event_row, taken, tick_of


def finished(child: str, payload: Payload) -> bytes:
    return codec.encode(ChildFinished(child, "command", Outcome("ok", payload)))


async def test_uses_older_than_the_table_are_found_in_the_journals(
    dsn: str, postgres_store: PostgresStore, watcher: Any
) -> None:
    keys = [("nats", "child-0/command/1.1.n/0"), ("journal", "child-1.run")]
    payloads = [Payload(reference=Reference(store, key, 1_000)) for store, key in keys]
    facts = [finished(f"child-{n}", payload) for n, payload in enumerate([*payloads, codec.payload_of("small")])]
    events = [event_row("parent", position, "child.finished", data=data) for position, data in enumerate(facts)]
    (lease,) = await taken(postgres_store)
    await postgres_store.commit(tick_of("one", [lease], events=[*events, event_row("parent", 9)]))
    await watcher.execute("drop table noetl.object_use; delete from noetl.migration where number = 7")
    assert await migrate(dsn) == ["0007_object_use"]
    for number, (store, key) in enumerate(keys):
        owner = f"child-{number}"
        found = await postgres_store.objects_used_elsewhere(owner)
        assert found == [ObjectUseRow(execution_id="parent", key=key, store=store, owner=owner)]
    assert await postgres_store.objects_used_elsewhere("child-2") == []
