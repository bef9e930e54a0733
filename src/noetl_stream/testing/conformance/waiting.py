"""Timers and the inbox, as tests that :class:`StoreConformance` inherits."""

from __future__ import annotations

from noetl_stream.errors import Fenced, JournalConflict
from noetl_stream.ports.store import InboxRow, Store, TimerRow
from noetl_stream.testing.conformance.store_rows import execution_row, following, refusal_of, taken, tick_of


class WaitingConformance:
    """Timers and the inbox are written and deleted with the tick (PROTOCOL §1 *Inbox*, §3 *Segments*)."""

    async def test_timers_are_set_moved_and_deleted_with_the_tick(self, store: Store) -> None:
        (lease,) = await taken(store)
        late, soon = TimerRow("a", "late", 0, 2_000, "step"), TimerRow("a", "soon", 0, 1_000, "wait")
        tick = tick_of("one", [lease])
        await store.commit(tick._replace(timers=[late, soon]))
        assert await store.timers("a") == [soon, late]
        moved = late._replace(due_ms=500)
        await store.commit(following(tick)._replace(timers=[moved], timers_gone=[("a", "soon"), ("a", "unknown")]))
        assert await store.timers("a") == [moved]
        assert await store.timers("b") == []

    async def test_the_inbox_returns_the_messages_of_the_requested_partitions_oldest_first(self, store: Store) -> None:
        (lease,) = await taken(store)
        rows = [InboxRow(f"m{n}", n % 2, f"e{n}", b'{"n":%d}' % n) for n in range(4)]
        tick = tick_of("one", [lease])
        await store.commit(tick._replace(inbox=rows))
        found = await store.inbox([0], 10)
        assert [(item.execution_id, item.partition, bytes(item.body)) for item in found] == [
            ("e0", 0, b'{"n":0}'),
            ("e2", 0, b'{"n":2}'),
        ]
        assert [item.execution_id for item in await store.inbox([0, 1], 3)] == ["e0", "e1", "e2"]
        await store.commit(following(tick)._replace(inbox_folded=[found[0].seq]))
        assert [item.execution_id for item in await store.inbox([0], 10)] == ["e2"]

    async def test_a_fenced_tick_sends_deletes_and_sets_nothing(self, store: Store) -> None:
        (lease,) = await taken(store)
        tick = tick_of("one", [lease])
        await store.commit(
            tick._replace(inbox=[InboxRow("m", 0, "a", b"1")], timers=[TimerRow("a", "t", 0, 1, "wait")])
        )
        (item,) = await store.inbox([0], 1)
        stale = tick._replace(inbox_folded=[item.seq], timers_gone=[("a", "t")], inbox=[InboxRow("n", 0, "a", b"2")])
        assert isinstance(await refusal_of(store, stale), Fenced)
        assert await store.inbox([0], 10) == [item]
        assert [timer.timer_id for timer in await store.timers("a")] == ["t"]

    async def test_a_message_that_was_sent_is_not_sent_twice(self, store: Store) -> None:
        (lease,) = await taken(store)
        tick = tick_of("one", [lease])._replace(inbox=[InboxRow("m", 0, "a", b"1")])
        await store.commit(tick)
        assert isinstance(await refusal_of(store, following(tick)), JournalConflict)

    async def test_stuck_is_what_has_not_ended_and_waits_for_nothing(self, store: Store) -> None:
        (lease,) = await taken(store)
        executions = [
            execution_row("stuck"),
            execution_row("working", commands=1),
            execution_row("calling", children=1),
            execution_row("looking", looks_into="key"),
            execution_row("paused", status="paused"),
            execution_row("timed"),
            execution_row("told"),
            execution_row("ended", status="completed", finished_ms=1),
        ]
        tick = tick_of("one", [lease], executions=executions)
        timers, inbox = [TimerRow("timed", "t", 0, 1, "wait")], [InboxRow("m", 0, "told", b"1")]
        await store.commit(tick._replace(timers=timers, inbox=inbox))
        assert await store.stuck(10) == ["stuck"]

    async def test_the_time_is_in_milliseconds_and_advances(self, store: Store) -> None:
        assert 0 <= await store.now_ms() <= await store.now_ms()
