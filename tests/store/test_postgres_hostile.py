"""What Postgres refuses sets one execution aside and stops no server (PROTOCOL §5 *Poison*, §7)."""

from __future__ import annotations

from random import Random

import asyncpg
import pytest
from postgres_stage import PostgresStage

from effort import times
from hostile_messages import Attack, requests_to
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.errors import NotReady
from noetl_stream.model.events import ResumeRequested
from noetl_stream.model.ids import digest_of
from noetl_testkit.simulation.work import playbook, work

QUICK = playbook("quick", [{"step": "only", "tool": work("done")}])
LOOP = playbook("loop", [{"step": "only", "loop": {"in": [1, 2], "iterator": "n"}, "tool": work("{{ iter.n }}", 1)}])


async def test_an_execution_whose_rows_postgres_refuses_is_quarantined_and_goes_on_when_resumed(
    postgres_store: PostgresStore, watcher: asyncpg.Connection[asyncpg.Record]
) -> None:
    refused = "execution_id = 'refused' and data::text like '%step.ran%'"
    await watcher.execute(f"alter table noetl.event add constraint no_end check (not ({refused}))")
    stage = PostgresStage(postgres_store)
    others = [f"other-{number}" for number in range(10)]
    for one in (*others[:5], "refused", *others[5:]):
        await stage.begin(one, QUICK)
    async with stage.running():
        for one in others:
            await stage.until(one, "completed")
        await stage.until("refused", "quarantined")
        (letter,) = await postgres_store.dead_letters.page(10, None)
        assert letter.row.execution_id == "refused" and "no_end" in letter.row.reason
        assert await postgres_store.stuck(10) == []
        await watcher.execute("alter table noetl.event drop constraint no_end")
        await stage.ask("refused", ResumeRequested("resume"))
        await stage.until("refused", "completed")


async def test_hostile_messages_stop_no_server_on_postgres(postgres_store: PostgresStore) -> None:
    stage = PostgresStage(postgres_store)
    attack = Attack(Random(1), stage.broker.event_log, lambda one: requests_to(one, digest_of(QUICK)))
    async with stage.running():
        for number in range(times(12)):
            await stage.begin(f"victim-{number}", LOOP)
            await attack.send(50, [f"victim-{one}" for one in range(max(0, number - 3), number + 1)])
            await stage.begin(f"other-{number}", QUICK)
            await stage.until(f"other-{number}", "completed")
        assert await postgres_store.owner_count() == 1


async def test_a_server_without_a_privilege_names_it_and_ends(
    dsn: str, watcher: asyncpg.Connection[asyncpg.Record]
) -> None:
    await watcher.execute(
        "drop role if exists weak; create role weak login; grant all on schema noetl to weak;"
        "grant all on all tables in schema noetl to weak; grant all on all sequences in schema noetl to weak;"
        "revoke insert on noetl.event from weak"
    )
    store = await PostgresStore.open(dsn.replace("//postgres@", "//weak@"), name="weak")
    stage = PostgresStage(store)
    await stage.begin("one", QUICK)
    with pytest.raises(NotReady, match=r"lacks a privilege \(permission denied for table event\)"):
        async with stage.running() as serving:
            await serving
    await store.close()
    await watcher.execute("drop owned by weak; drop role weak")
