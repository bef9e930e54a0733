from __future__ import annotations

from typing import Any

from noetl_stream.adapters.postgres.schema.migrate import migrate
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.model.events import ChildFinished
from noetl_stream.model.json import codec
from noetl_stream.model.outcome import Outcome, Payload, Reference
from noetl_stream.ports.stores.store import ObjectUseRow


def finished(child: str, payload: Payload) -> bytes:
    return codec.encode(ChildFinished(child, "command", Outcome("ok", payload)))


async def test_uses_of_objects_older_than_the_table_are_found_in_the_journals(
    dsn: str, postgres_store: PostgresStore, watcher: Any
) -> None:
    keys = [("nats", "child-0/command/1.1.n/0"), ("journal", "child-1.run")]
    payloads = [Payload(reference=Reference(store, key, 1_000)) for store, key in keys]
    facts = [finished(f"child-{n}", payload) for n, payload in enumerate([*payloads, codec.payload_of("small")])]
    for position, data in enumerate(facts):
        await watcher.execute(
            "insert into noetl.event (execution_id, position, name, source, at_ms, data)"
            " values ('parent', $1, 'child.finished', 'server', 0, $2)",
            position,
            data.decode(),
        )
    await watcher.execute("drop table noetl.object_use; delete from noetl.migration where number = 7")
    assert await migrate(dsn) == ["0007_object_use"]
    for number, (store, key) in enumerate(keys):
        owner = f"child-{number}"
        found = await postgres_store.objects_used_elsewhere(owner)
        assert found == [ObjectUseRow(execution_id="parent", key=key, store=store, owner=owner)]
    assert await postgres_store.objects_used_elsewhere("child-2") == []
