"""Conformance of :class:`~noetl_stream.ports.stores.store.Store`, as tests to inherit.

A test class inherits :class:`StoreConformance`; the module or its ``conftest.py`` provides two fixtures:

``store``
    An empty, verified store.
``end_leases``
    An async callable that expires all leases.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import astuple, replace

from noetl_stream.errors import Fenced, JournalConflict, PayloadRefused
from noetl_stream.model.ids import PARTITIONS
from noetl_stream.ports.stores.store import (
    ExecutionRow,
    InboxRow,
    ObjectUseRow,
    PartitionAdvance,
    PartitionLease,
    PlaybookRow,
    RequestRow,
    Store,
    Tick,
    TimerKey,
    TimerRow,
)
from noetl_stream.protocol.rows import Json, column_types
from noetl_stream.storage.journal import events_of
from noetl_testkit.conformance.aggregates import AggregateConformance
from noetl_testkit.conformance.limits import LimitConformance
from noetl_testkit.conformance.listing import (
    DeletingConformance,
    KeyConformance,
    ListingConformance,
    ReadingConformance,
    TallyingConformance,
)
from noetl_testkit.conformance.servers import ServerConformance
from noetl_testkit.conformance.snapshots import SnapshotConformance
from noetl_testkit.conformance.store_rows import (
    LEASE_S,
    EndLeases,
    as_stored,
    committed,
    entry_row,
    execution_row,
    following,
    lease_of,
    mixed_entry,
    taken,
    tick_of,
)
from noetl_testkit.waiting import expect_error

BIG = ObjectUseRow(execution_id="parent", key="child/command/1.1.n/0", store="nats", owner="child")
LIST = ObjectUseRow(execution_id="parent", key="child.run", store="journal", owner="child")
OTHER = ObjectUseRow(execution_id="other", key=BIG.key, store="nats", owner="child")
DEEP = ObjectUseRow(execution_id="parent", key="grandchild/command/1.1.n/0", store="nats", owner="grandchild")


def careful_tick(owner: str, lease: PartitionLease) -> Tick:
    """A tick after which the partition is no sounder than before."""
    tick = tick_of(owner, [lease])
    return replace(tick, partitions=[replace(one, crashes=lease.crashes) for one in tick.partitions])


async def heir_of(
    owner: str, lease: PartitionLease, execution_id: str, store: Store, end_leases: EndLeases
) -> PartitionLease:
    """The lease of the other owner, once this one has died while it folded an input of this execution."""
    await store.set_folding(owner, lease.id, lease.epoch, execution_id)
    await end_leases()
    (heir,) = await taken(store, "two" if owner == "one" else "one")
    return heir


class LeaseConformance:
    """Leases of partitions (PROTOCOL §2 *Lease and fence*)."""

    async def test_a_new_store_has_every_partition_and_no_owner(self, store: Store) -> None:
        views = await store.read_partitions()
        assert [view.id for view in views] == list(range(PARTITIONS))
        assert {astuple(view)[1:] for view in views} == {(0, None, 0, 0, 0, False, 0)}
        assert await store.owner_count() == 0

    async def test_the_first_takeover_counts_no_crash(self, store: Store) -> None:
        assert await taken(store, limit=2) == [lease_of(0, epoch=1), lease_of(1, epoch=1)]
        views = await store.read_partitions([1, 2])
        assert [(view.id, view.epoch, view.owner, view.live) for view in views] == [
            (1, 1, "one", True),
            (2, 0, None, False),
        ]

    async def test_a_living_lease_is_left_alone(self, store: Store) -> None:
        await taken(store, "one", PARTITIONS)
        assert await taken(store, "two", PARTITIONS) == []
        assert await store.owner_count() == 1

    async def test_each_owner_with_a_living_lease_counts(self, store: Store) -> None:
        await taken(store, "one", 2)
        await taken(store, "two", 2)
        assert await store.owner_count() == 2

    async def test_a_lease_that_ran_out_is_taken_and_counts_a_crash(self, store: Store, end_leases: EndLeases) -> None:
        await taken(store, "one")
        await end_leases()
        assert await store.owner_count() == 0
        (lease,) = await taken(store, "two")
        assert (lease.id, lease.epoch, lease.crashes) == (0, 2, 1)

    async def test_a_lease_longer_than_any_lease_is_taken(self, store: Store) -> None:
        await store.take_over("one", LEASE_S * 100, 1)
        (lease,) = await taken(store, "two")
        assert (lease.id, lease.epoch) == (0, 2)

    async def test_a_partition_returned_is_free_at_once_and_counts_no_crash(self, store: Store) -> None:
        await committed(store)
        await store.give_back("one", [(0, 1)], [1])
        assert (await store.read_partitions([0]))[0].live is False
        (again,) = await taken(store, "two")
        assert again == lease_of(0, epoch=2, tick=1, published_tick=1, last_seq=1, last_ms=1)

    async def test_a_partition_that_was_lost_is_not_returned(self, store: Store, end_leases: EndLeases) -> None:
        await taken(store, "one")
        await end_leases()
        await taken(store, "two")
        await store.give_back("one", [(0, 1)], [7])
        view = (await store.read_partitions([0]))[0]
        assert (view.owner, view.published_tick, view.live) == ("two", 0, True)

    async def test_a_renewed_lease_lives_on(self, store: Store, end_leases: EndLeases) -> None:
        await taken(store, "one", 2)
        await end_leases()
        assert await store.renew("one", [(0, 1), (1, 1)], LEASE_S) == {0, 1}
        assert [lease.id for lease in await taken(store, "two", 1)] == [2]

    async def test_a_renewal_says_how_far_its_partitions_are_behind(self, store: Store) -> None:
        await taken(store, "one", 2)
        await store.renew("one", [(1, 1)], LEASE_S, 7)
        assert [view.behind for view in await store.read_partitions([0, 1])] == [0, 7]
        await store.renew("one", [(1, 1)], LEASE_S, 0)
        assert [view.behind for view in await store.read_partitions([0, 1])] == [0, 0]

    async def test_only_what_is_still_owned_is_renewed(self, store: Store, end_leases: EndLeases) -> None:
        await taken(store, "one", 2)
        await end_leases()
        await taken(store, "two", 1)
        assert await store.renew("one", [(0, 1), (1, 1), (5, 1)], LEASE_S) == {1}

    async def test_a_lease_of_an_earlier_epoch_is_not_renewed(self, store: Store, end_leases: EndLeases) -> None:
        await taken(store, "one")
        await end_leases()
        await taken(store, "one")
        assert await store.renew("one", [(0, 1)], LEASE_S) == set()

    async def test_a_lease_of_another_owner_is_not_released(self, store: Store) -> None:
        await taken(store, "one")
        await store.give_back("two", [(0, 1)], [7])
        assert [lease.published_tick for lease in await store.owned("one")] == [0]

    async def test_owned_lists_the_leases_of_the_owner(self, store: Store, end_leases: EndLeases) -> None:
        leases = await taken(store, "one", 3)
        await store.commit(tick_of("one", leases[1:2]))
        await store.give_back("one", [(2, 1)], [0])
        await end_leases()
        await taken(store, "two", 1)
        assert await store.owned("one") == [lease_of(1, epoch=1, tick=1, last_seq=1, last_ms=1)]
        assert await store.owned("three") == []


class SuspicionConformance:
    """Who is suspected when owners die (PROTOCOL §5 *Poison*)."""

    async def test_what_owners_fold_when_they_die_is_suspect_until_an_input_of_it_is_folded(
        self, store: Store, end_leases: EndLeases
    ) -> None:
        (lease,) = await taken(store)
        lease = await heir_of("one", lease, "a", store, end_leases)
        assert (lease.suspect, lease.suspicions) == ("a", 1)
        lease = await heir_of("two", lease, "a", store, end_leases)
        await store.set_folding("one", lease.id, lease.epoch, "b")
        await store.commit(careful_tick("one", lease))
        (lease,) = await store.owned("one")
        lease = await heir_of("one", lease, "a", store, end_leases)
        assert (lease.suspect, lease.suspicions) == ("a", 3), "a tick of another execution says nothing about it"
        await store.set_folding("two", lease.id, lease.epoch, "a")
        await store.commit(careful_tick("two", lease))
        (lease,) = await store.owned("two")
        assert lease.suspicions == 0
        lease = await heir_of("two", lease, "a", store, end_leases)
        assert lease.suspicions == 1
        lease = await heir_of("one", lease, "b", store, end_leases)
        assert (lease.suspect, lease.suspicions) == ("b", 1)

    async def test_what_came_to_a_good_end_is_no_suspect(self, store: Store, end_leases: EndLeases) -> None:
        (lease,) = await taken(store)
        lease = await heir_of("one", lease, "a", store, end_leases)
        await store.set_folding("two", lease.id, lease.epoch, "b")
        await store.set_folding("two", lease.id, lease.epoch, "a", True)
        (lease,) = await store.owned("two")
        assert (lease.suspect, lease.suspicions) == ("a", 1), "that was another"
        await store.set_folding("two", lease.id, lease.epoch, None, True)
        (lease,) = await store.owned("two")
        assert lease.suspicions == 0

    async def test_only_the_owner_says_what_it_folds(self, store: Store, end_leases: EndLeases) -> None:
        (lease,) = await taken(store)
        await heir_of("one", lease, "a", store, end_leases)
        await expect_error(Fenced, store.set_folding("one", lease.id, lease.epoch, "b"))

    async def test_an_owner_that_lives_suspects_none(self, store: Store, end_leases: EndLeases) -> None:
        (lease,) = await taken(store)
        await store.set_folding("one", lease.id, lease.epoch, "a")
        await end_leases()
        (lease,) = await store.take_over("two", LEASE_S, 1, ["one", "three"])
        assert (lease.crashes, lease.suspicions) == (0, 0), "it is known to be alive"
        await store.set_folding("two", lease.id, lease.epoch, "a")
        await store.give_back("two", [(lease.id, lease.epoch)], [0])
        (lease,) = await taken(store, "one")
        assert (lease.crashes, lease.suspicions) == (0, 0), "it gave the partition back"
        await store.set_folding("one", lease.id, lease.epoch, "a")
        await store.set_folding("one", lease.id, lease.epoch, None)
        await end_leases()
        (lease,) = await taken(store, "two")
        assert (lease.crashes, lease.suspicions) == (1, 0), "it was folding nothing when it died"

    async def test_a_sound_partition_has_no_suspicions(self, store: Store, end_leases: EndLeases) -> None:
        (lease,) = await taken(store)
        lease = await heir_of("one", lease, "a", store, end_leases)
        await store.commit(tick_of("two", [lease]))
        (lease,) = await store.owned("two")
        assert (lease.crashes, lease.suspicions) == (0, 0)


class CommitConformance:
    """What a tick writes, and when it writes nothing (PROTOCOL §1, §2)."""

    async def test_a_tick_moves_its_partitions_and_forgives_crashes(self, store: Store, end_leases: EndLeases) -> None:
        await taken(store, "one", 2)
        await end_leases()
        leases = await taken(store, "two", 2)
        advance = PartitionAdvance(id=1, epoch=2, tick=0, last_seq=50, last_ms=5_000, published_tick=0)
        await store.commit(Tick(owner="two", partitions=[advance]))
        await store.commit(Tick(owner="two", partitions=[replace(advance, tick=1, last_seq=51, published_tick=1)]))
        moved = lease_of(1, epoch=2, tick=2, published_tick=1, last_seq=51, last_ms=5_000)
        assert await store.owned("two") == [leases[0], moved]

    async def test_a_tick_is_fenced_by_tick_epoch_and_owner(self, store: Store) -> None:
        (lease,) = await taken(store)
        await store.commit(tick_of("one", [lease]))
        now = replace(lease, tick=1)
        for owner, stale in [
            ("one", lease),
            ("one", replace(now, tick=2)),
            ("one", replace(now, epoch=0)),
            ("one", replace(now, epoch=2)),
            ("two", now),
        ]:
            await expect_error(Fenced, store.commit(tick_of(owner, [stale])))
        assert (await store.read_partitions([0]))[0].tick == 1

    async def test_a_tick_after_giving_back_is_fenced(self, store: Store) -> None:
        leases = await taken(store)
        await store.give_back("one", [(0, 1)], [0])
        await expect_error(Fenced, store.commit(tick_of("one", leases)))

    async def test_one_lost_partition_stops_the_whole_tick(self, store: Store, end_leases: EndLeases) -> None:
        leases = await taken(store, "one", 2)
        await end_leases()
        await taken(store, "two", 1)
        tick = tick_of(
            "one",
            leases,
            entries=[entry_row("a", 1)],
            executions=[execution_row("a")],
            requests=[RequestRow(request_id="r", execution_id="a", answer=b"{}", position=1)],
            playbooks=[PlaybookRow(digest="d", path="p", version=None, source="text")],
        )
        await expect_error(Fenced, store.commit(tick))
        assert [view.tick for view in await store.read_partitions([0, 1])] == [0, 0]
        assert await store.journal("a") == []
        assert await store.execution("a") is None
        assert await store.request("a", "r") is None
        assert await store.playbook("d") is None

    async def test_a_large_tick_is_fenced_like_a_small_one(self, store: Store) -> None:
        leases = await taken(store)
        events = [entry_row("a", position) for position in range(1, 200)]
        await expect_error(Fenced, store.commit(tick_of("two", leases, entries=events)))
        assert await store.journal("a") == []
        await store.commit(tick_of("one", leases, entries=events))
        assert len(await store.journal("a")) == 199

    async def test_a_large_tick_reads_back_like_small_ones(self, store: Store) -> None:
        large = [mixed_entry("large", position) for position in range(1, 151)]
        small = [replace(event, execution_id="small") for event in large]
        tick = await committed(store, entries=large, executions=[execution_row("large")])
        for start in range(0, 150, 50):
            tick = following(tick, entries=small[start : start + 50])
            await store.commit(tick)
        journals = await store.journals({"large": 0, "small": 0})
        assert journals["large"] == journals["small"]
        assert list(events_of("large", journals["large"])) == [as_stored(event) for event in large]
        assert await store.execution("large") == execution_row("large")

    async def test_a_position_written_twice_is_an_alarm_and_writes_nothing(self, store: Store) -> None:
        first = await committed(store, entries=[entry_row("a", 1)])
        doubled = [entry_row("a", 2), entry_row("a", 1, data=b"[]")]
        many = [entry_row("b", position) for position in range(1, 100)]
        for events in (doubled, [*many, entry_row("a", 1)], [entry_row("c", 1), entry_row("c", 1)]):
            await expect_error(JournalConflict, store.commit(following(first, entries=events)))
        assert await store.journal("a") == [as_stored(entry_row("a", 1))]
        assert await store.journal("b") == []
        assert (await store.read_partitions([0]))[0].tick == 1

    async def test_a_request_answered_twice_is_an_alarm(self, store: Store) -> None:
        row = RequestRow(request_id="r", execution_id="a", answer=b'{"ok":true}', position=1)
        first = await committed(store, requests=[row])
        again = following(first, requests=[replace(row, answer=b"{}")])
        await expect_error(JournalConflict, store.commit(again))
        assert await store.request("a", "r") == row
        assert await store.request("a", "other") is None
        assert await store.answered([("a", "r"), ("a", "other"), ("other", "r")]) == {("a", "r")}
        assert await store.answered([]) == set()

    async def test_invalid_json_is_refused_and_nothing_is_written(self, store: Store) -> None:
        leases = await taken(store)
        for tick in (
            tick_of("one", leases, entries=[entry_row("a", 1, data=b'{"n":')]),
            tick_of("one", leases, executions=[execution_row("a", ctx=b"")]),
            tick_of("one", leases, executions=[execution_row("a"), execution_row("a")]),
        ):
            await expect_error(PayloadRefused, store.commit(tick))
        await store.commit(tick_of("one", leases))
        assert await store.journal("a") == []

    async def test_an_execution_row_is_replaced_as_a_whole(self, store: Store) -> None:
        running, other = execution_row("a"), execution_row("b", rerun_of="a")
        first = await committed(store, executions=[running, other])
        ended = replace(_filled_row("ended"), version=None, result=b'{ "as":"written" }').over(running)
        await store.commit(following(first, executions=[ended]))
        assert await store.execution("a") == ended
        assert await store.executions(["a", "b", "c"]) == {"a": ended, "b": other}

    async def test_every_column_of_an_execution_is_kept_and_replaced(self, store: Store) -> None:
        first, later = _filled_row("first"), _filled_row("later")
        tick = await committed(store, executions=[first])
        await store.commit(following(tick, executions=[later]))
        assert await store.execution("a") == later.over(first)

    async def test_some_columns_keep_what_the_first_row_said(self, store: Store) -> None:
        first = execution_row("a", trace_id="trace", labels=b'{"team":"data"}', rerun_of="b")
        tick = await committed(store, executions=[first])
        later = execution_row("a", trace_id="other", labels=b"{}", rerun_of=None, status="paused")
        await store.commit(following(tick, executions=[later]))
        assert await store.execution("a") == replace(first, status="paused")

    async def test_labels_that_are_known_later_are_kept_from_then_on(self, store: Store) -> None:
        tick = await committed(store, executions=[execution_row("a")])
        known = execution_row("a", labels=b'{"team":"data"}')
        await store.commit(tick := following(tick, executions=[known]))
        assert await store.execution("a") == known
        await store.commit(following(tick, executions=[execution_row("a", status="paused")]))
        assert await store.execution("a") == replace(known, status="paused")

    async def test_a_playbook_is_kept_as_first_registered(self, store: Store) -> None:
        first = PlaybookRow(digest="d", path="demo/pages", version="1", source="apiVersion: …\n")
        tick = await committed(store, playbooks=[first, first])
        await store.commit(following(tick, playbooks=[replace(first, path="x", version=None, source="y")]))
        assert await store.playbook("d") == first


class WaitingConformance:
    """Timers and the inbox are written and deleted with the tick (PROTOCOL §1 *Inbox*, §3 *Segments*)."""

    async def test_timers_are_set_moved_and_deleted_with_the_tick(self, store: Store) -> None:
        late = TimerRow(execution_id="a", timer_id="late", partition=0, due_ms=2_000, purpose="step")
        soon = TimerRow(execution_id="a", timer_id="soon", partition=0, due_ms=1_000, purpose="wait")
        tick = await committed(store, timers=[late, soon])
        assert await store.timers("a") == [soon, late]
        moved = replace(late, due_ms=500)
        await store.commit(
            following(tick, timers=[moved], timers_gone=[TimerKey("a", "soon"), TimerKey("a", "unknown")])
        )
        assert await store.timers("a") == [moved]
        assert await store.timers("b") == []

    async def test_the_inbox_returns_the_messages_of_the_requested_partitions_oldest_first(self, store: Store) -> None:
        rows = [InboxRow(id=f"m{n}", partition=n % 2, execution_id=f"e{n}", body=b'{"n":%d}' % n) for n in range(4)]
        tick = await committed(store, inbox=rows)
        found = await store.inbox([0], 10)
        assert [(item.partition, item.execution_id, bytes(item.body)) for item in found] == [
            (0, "e0", b'{"n":0}'),
            (0, "e2", b'{"n":2}'),
        ]
        assert [item.execution_id for item in await store.inbox([0, 1], 3)] == ["e0", "e1", "e2"]
        await store.commit(following(tick, inbox_folded=[found[0].seq]))
        assert [item.execution_id for item in await store.inbox([0], 10)] == ["e2"]

    async def test_the_end_of_the_inbox_is_the_newest_message_of_any_partition(self, store: Store) -> None:
        assert await store.inbox_end() == 0
        rows = [InboxRow(id=f"m{n}", partition=n, execution_id=f"e{n}", body=b"1") for n in range(2)]
        tick = await committed(store, inbox=rows)
        first, last = await store.inbox([0, 1], 10)
        assert await store.inbox_end() == last.seq > first.seq
        await store.commit(following(tick, inbox_folded=[last.seq]))
        assert await store.inbox_end() == first.seq

    async def test_a_fenced_tick_sends_deletes_and_sets_nothing(self, store: Store) -> None:
        message = InboxRow(id="m", partition=0, execution_id="a", body=b"1")
        timer = TimerRow(execution_id="a", timer_id="t", partition=0, due_ms=1, purpose="wait")
        tick = await committed(store, inbox=[message], timers=[timer])
        (item,) = await store.inbox([0], 1)
        stale = Tick(
            owner=tick.owner,
            partitions=tick.partitions,
            inbox=[replace(message, id="n")],
            inbox_folded=[item.seq],
            timers_gone=[TimerKey("a", "t")],
        )
        await expect_error(Fenced, store.commit(stale))
        assert await store.inbox([0], 10) == [item]
        assert [timer.timer_id for timer in await store.timers("a")] == ["t"]

    async def test_a_message_that_was_sent_is_not_sent_twice(self, store: Store) -> None:
        tick = await committed(store, inbox=[InboxRow(id="m", partition=0, execution_id="a", body=b"1")])
        await expect_error(JournalConflict, store.commit(following(tick, inbox=tick.inbox)))

    async def test_stuck_is_what_has_not_ended_and_waits_for_nothing(self, store: Store) -> None:
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
        timer = TimerRow(execution_id="timed", timer_id="t", partition=0, due_ms=1, purpose="wait")
        message = InboxRow(id="m", partition=0, execution_id="told", body=b"1")
        await committed(store, executions=executions, timers=[timer], inbox=[message])
        assert await store.stuck(10) == ["stuck"]

    async def test_living_executions_are_counted_by_status(self, store: Store) -> None:
        executions = [
            execution_row("first"),
            execution_row("second"),
            execution_row("paused", status="paused"),
            execution_row("ended", status="completed", finished_ms=1),
        ]
        await committed(store, executions=executions)
        assert await store.living_by_status() == {"running": 2, "paused": 1}

    async def test_stored_bytes_are_added_up_by_path(self, store: Store) -> None:
        executions = [
            execution_row("first", path="team/a", stored_bytes=100, status="completed", finished_ms=1),
            execution_row("second", path="team/a", stored_bytes=20),
            execution_row("third", path="team/b", stored_bytes=3),
            execution_row("fourth", path="team/c"),
        ]
        await committed(store, executions=executions)
        assert await store.stored_by_path() == {"team/a": 120, "team/b": 3}

    async def test_the_time_is_in_milliseconds_and_advances(self, store: Store) -> None:
        assert 0 <= await store.now_ms() <= await store.now_ms()


class ObjectUseConformance:
    """Uses are written with the tick and read by the owner of the result (PROTOCOL §3 *Object keys*)."""

    async def test_uses_by_others_are_found_by_the_owner(self, store: Store) -> None:
        events = [entry_row("parent", position) for position in (1, 2)]
        await committed(store, entries=[*events, entry_row("other", 1)], object_uses=[OTHER, LIST, DEEP, BIG])
        assert await store.objects_used_elsewhere("child") == [LIST, OTHER, BIG]
        assert await store.objects_used_elsewhere("grandchild") == [DEEP]
        assert await store.objects_used_elsewhere("parent") == []
        assert [event.position for event in await store.journal("parent")] == [1, 2]

    async def test_a_repeated_use_changes_nothing(self, store: Store) -> None:
        tick = await committed(store, entries=[entry_row("parent", 1)], object_uses=[BIG, BIG])
        await store.commit(following(tick, object_uses=[LIST, BIG]))
        assert await store.objects_used_elsewhere("child") == [LIST, BIG]

    async def test_a_tick_of_many_events_names_what_is_used_too(self, store: Store) -> None:
        events = [entry_row("parent", position) for position in range(1, 200)]
        await committed(store, entries=events, object_uses=[BIG])
        assert await store.objects_used_elsewhere("child") == [BIG]
        assert len(await store.journal("parent")) == 199

    async def test_a_tick_that_is_refused_uses_nothing(self, store: Store) -> None:
        stale = tick_of("two", await taken(store), entries=[entry_row("parent", 1)], object_uses=[BIG])
        await expect_error(Fenced, store.commit(stale))
        assert await store.objects_used_elsewhere("child") == []
        assert await store.journal("parent") == []


class StoreConformance(
    LeaseConformance,
    SuspicionConformance,
    CommitConformance,
    ReadingConformance,
    ServerConformance,
    SnapshotConformance,
    AggregateConformance,
    LimitConformance,
    WaitingConformance,
    ObjectUseConformance,
    ListingConformance,
    KeyConformance,
    TallyingConformance,
    DeletingConformance,
):
    """The whole port."""

    async def test_a_store_of_this_version_is_ready(self, store: Store) -> None:
        await store.verify()
        assert await store.owner_count() == 0


def _filled_row(word: str) -> ExecutionRow:
    """A value of its own in each column, with ``word`` in it."""
    samples: dict[object, Callable[[str], object]] = {
        str: lambda name: f"{word} {name}",
        int: lambda name: len(word + name),
        Json: lambda name: f'"{word} {name}"'.encode(),
    }
    values = {name: samples[kind](name) for name, kind in column_types(ExecutionRow).items()}
    return ExecutionRow(**values | {"execution_id": "a"})  # type: ignore[arg-type]
