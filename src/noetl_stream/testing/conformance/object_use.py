"""Results used by other executions, as tests that :class:`StoreConformance` inherits."""

from __future__ import annotations

from msgspec.structs import replace

from noetl_stream.errors import Fenced
from noetl_stream.ports.store import ObjectUseRow, Store
from noetl_stream.testing.conformance.store_rows import event_row, following, refusal_of, taken, tick_of

BIG = ObjectUseRow(execution_id="parent", key="child/command/1.1.n/0", store="nats", owner="child")
LIST = ObjectUseRow(execution_id="parent", key="child.run", store="journal", owner="child")
OTHER = ObjectUseRow(execution_id="other", key=BIG.key, store="nats", owner="child")
DEEP = ObjectUseRow(execution_id="parent", key="grandchild/command/1.1.n/0", store="nats", owner="grandchild")


class ObjectUseConformance:
    """Uses are written with the tick and read by the owner of the result (PROTOCOL §3 *Object keys*)."""

    async def test_uses_by_others_are_found_by_the_owner(self, store: Store) -> None:
        (lease,) = await taken(store)
        events = [event_row("parent", position) for position in (1, 2)]
        tick = tick_of("one", [lease], events=events, object_uses=[OTHER, LIST, DEEP, BIG])
        await store.commit(tick)
        assert await store.objects_used_elsewhere("child") == [LIST, OTHER, BIG]
        assert await store.objects_used_elsewhere("grandchild") == [DEEP]
        assert await store.objects_used_elsewhere("parent") == []
        assert [event.position for event in await store.journal("parent")] == [1, 2]

    async def test_a_repeated_use_changes_nothing(self, store: Store) -> None:
        (lease,) = await taken(store)
        tick = tick_of("one", [lease], object_uses=[BIG, BIG])
        await store.commit(tick)
        await store.commit(replace(following(tick), object_uses=[LIST, BIG]))
        assert await store.objects_used_elsewhere("child") == [LIST, BIG]

    async def test_a_tick_of_many_events_names_what_is_used_too(self, store: Store) -> None:
        (lease,) = await taken(store)
        events = [event_row("parent", position) for position in range(1, 200)]
        await store.commit(tick_of("one", [lease], events=events, object_uses=[BIG]))
        assert await store.objects_used_elsewhere("child") == [BIG]
        assert len(await store.journal("parent")) == 199

    async def test_a_tick_that_is_refused_uses_nothing(self, store: Store) -> None:
        (lease,) = await taken(store)
        stale = tick_of("two", [lease], events=[event_row("parent", 1)], object_uses=[BIG])
        assert isinstance(await refusal_of(store, stale), Fenced)
        assert await store.objects_used_elsewhere("child") == []
        assert await store.journal("parent") == []
