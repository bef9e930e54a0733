"""Timers and the inbox, as tests that :class:`StoreConformance` inherits."""

from __future__ import annotations

from msgspec.structs import replace

from noetl_stream.errors import Fenced, JournalConflict
from noetl_stream.ports.store import InboxRow, Store, TimerRow
from noetl_stream.testing.conformance.store_rows import execution_row, following, refusal_of, taken, tick_of


class WaitingConformance:
    """Timers and the inbox are written and deleted with the tick (PROTOCOL §1 *Inbox*, §3 *Segments*)."""

    async def test_timers_are_set_moved_and_deleted_with_the_tick(self, store: Store) -> None:
        (lease,) = await taken(store)
        late, soon = (
            TimerRow(execution_id="a", timer_id="late", partition=0, due_ms=2_000, purpose="step"),
            TimerRow(execution_id="a", timer_id="soon", partition=0, due_ms=1_000, purpose="wait"),
        )
        tick = tick_of("one", [lease])
        await store.commit(replace(tick, timers=[late, soon]))
        assert await store.timers("a") == [soon, late]
        moved = replace(late, due_ms=500)
        await store.commit(replace(following(tick), timers=[moved], timers_gone=[("a", "soon"), ("a", "unknown")]))
        assert await store.timers("a") == [moved]
        assert await store.timers("b") == []

    async def test_the_inbox_returns_the_messages_of_the_requested_partitions_oldest_first(self, store: Store) -> None:
        (lease,) = await taken(store)
        rows = [InboxRow(id=f"m{n}", partition=n % 2, execution_id=f"e{n}", body=b'{"n":%d}' % n) for n in range(4)]
        tick = tick_of("one", [lease])
        await store.commit(replace(tick, inbox=rows))
        found = await store.inbox([0], 10)
        assert [(item.execution_id, item.partition, bytes(item.body)) for item in found] == [
            ("e0", 0, b'{"n":0}'),
            ("e2", 0, b'{"n":2}'),
        ]
        assert [item.execution_id for item in await store.inbox([0, 1], 3)] == ["e0", "e1", "e2"]
        await store.commit(replace(following(tick), inbox_folded=[found[0].seq]))
        assert [item.execution_id for item in await store.inbox([0], 10)] == ["e2"]

    async def test_a_fenced_tick_sends_deletes_and_sets_nothing(self, store: Store) -> None:
        (lease,) = await taken(store)
        tick = tick_of("one", [lease])
        await store.commit(
            replace(
                tick,
                inbox=[InboxRow(id="m", partition=0, execution_id="a", body=b"1")],
                timers=[TimerRow(execution_id="a", timer_id="t", partition=0, due_ms=1, purpose="wait")],
            )
        )
        (item,) = await store.inbox([0], 1)
        stale = replace(
            tick,
            inbox_folded=[item.seq],
            timers_gone=[("a", "t")],
            inbox=[InboxRow(id="n", partition=0, execution_id="a", body=b"2")],
        )
        assert isinstance(await refusal_of(store, stale), Fenced)
        assert await store.inbox([0], 10) == [item]
        assert [timer.timer_id for timer in await store.timers("a")] == ["t"]

    async def test_a_message_that_was_sent_is_not_sent_twice(self, store: Store) -> None:
        (lease,) = await taken(store)
        tick = tick_of("one", [lease], inbox=[InboxRow(id="m", partition=0, execution_id="a", body=b"1")])
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
        timers, inbox = (
            [TimerRow(execution_id="timed", timer_id="t", partition=0, due_ms=1, purpose="wait")],
            [InboxRow(id="m", partition=0, execution_id="told", body=b"1")],
        )
        await store.commit(replace(tick, timers=timers, inbox=inbox))
        assert await store.stuck(10) == ["stuck"]

    async def test_the_time_is_in_milliseconds_and_advances(self, store: Store) -> None:
        assert 0 <= await store.now_ms() <= await store.now_ms()
