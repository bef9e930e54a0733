"""Conformance of :class:`~noetl_stream.ports.store.Store`, as tests to inherit.

A test class inherits :class:`StoreConformance`; the module or its ``conftest.py`` provides two fixtures:

``store``
    An empty, verified store.
``end_leases``
    An async callable that expires all leases.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from noetl_stream.errors import Fenced, JournalConflict, PayloadRefused
from noetl_stream.model.ids import PARTITIONS
from noetl_stream.ports.rows import Json, column_types
from noetl_stream.ports.store import (
    EventRow,
    ExecutionRow,
    ListingFilter,
    PartitionAdvance,
    PlaybookRow,
    RequestRow,
    Store,
    StoredEvent,
    Tick,
)
from noetl_stream.testing.conformance.listing import DeletingConformance, ListingConformance
from noetl_stream.testing.conformance.object_use import ObjectUseConformance
from noetl_stream.testing.conformance.store_rows import (
    LEASE_S,
    EndLeases,
    event_row,
    execution_row,
    lease_of,
    refusal_of,
    taken,
    tick_of,
)
from noetl_stream.testing.conformance.waiting import WaitingConformance


class LeaseConformance:
    """Leases of partitions (PROTOCOL §2 *Lease and fence*)."""

    async def test_a_new_store_has_every_partition_and_no_owner(self, store: Store) -> None:
        views = await store.read_partitions()
        assert [view.id for view in views] == list(range(PARTITIONS))
        assert {(view.epoch, view.owner, view.last_seq, view.tick, view.live) for view in views} == {
            (0, None, 0, 0, False)
        }
        assert await store.owner_count() == 0

    async def test_the_first_takeover_counts_no_crash(self, store: Store) -> None:
        assert await store.take_over("one", LEASE_S, 2) == [
            lease_of(0, epoch=1),
            lease_of(1, epoch=1),
        ]
        assert [view[:3] + view[6:] for view in await store.read_partitions([1, 2])] == [
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
        (lease,) = await taken(store)
        await store.commit(tick_of("one", [lease]))
        await store.give_back("one", [(lease.id, lease.epoch)], [1])
        assert (await store.read_partitions([0]))[0].live is False
        (again,) = await taken(store, "two")
        assert again == lease_of(0, epoch=2, tick=1, published_tick=1, last_seq=1, last_ms=1)

    async def test_a_partition_that_was_lost_is_not_returned(self, store: Store, end_leases: EndLeases) -> None:
        (lost,) = await taken(store, "one")
        await end_leases()
        await taken(store, "two")
        await store.give_back("one", [(lost.id, lost.epoch)], [7])
        view = (await store.read_partitions([0]))[0]
        assert (view.owner, view.published_tick, view.live) == ("two", 0, True)

    async def test_a_renewed_lease_lives_on(self, store: Store, end_leases: EndLeases) -> None:
        leases = await taken(store, "one", 2)
        await end_leases()
        assert await store.renew("one", [(lease.id, lease.epoch) for lease in leases], LEASE_S) == {0, 1}
        assert [lease.id for lease in await taken(store, "two", 1)] == [2]

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


class CommitConformance:
    """What a tick writes, and when it writes nothing (PROTOCOL §1, §2)."""

    async def test_a_tick_moves_its_partitions_and_forgives_crashes(self, store: Store, end_leases: EndLeases) -> None:
        await taken(store, "one", 2)
        await end_leases()
        leases = await taken(store, "two", 2)
        advance = PartitionAdvance(id=1, epoch=2, tick=0, last_seq=50, last_ms=5_000, published_tick=0)
        await store.commit(Tick(owner="two", partitions=[advance]))
        await store.commit(Tick(owner="two", partitions=[replace(advance, tick=1, last_seq=51, published_tick=1)]))
        assert await store.owned("two") == [
            leases[0],
            lease_of(1, epoch=2, tick=2, published_tick=1, last_seq=51, last_ms=5_000),
        ]

    async def test_a_tick_is_fenced_by_tick_epoch_and_owner(self, store: Store) -> None:
        (lease,) = await taken(store)
        await store.commit(tick_of("one", [lease]))
        now = lease._replace(tick=1)
        for owner, stale in [
            ("one", lease),
            ("one", now._replace(tick=2)),
            ("one", now._replace(epoch=0)),
            ("one", now._replace(epoch=2)),
            ("two", now),
        ]:
            assert isinstance(await refusal_of(store, tick_of(owner, [stale])), Fenced)
        assert (await store.read_partitions([0]))[0].tick == 1

    async def test_a_tick_after_giving_back_is_fenced(self, store: Store) -> None:
        (lease,) = await taken(store)
        await store.give_back("one", [(lease.id, lease.epoch)], [0])
        assert isinstance(await refusal_of(store, tick_of("one", [lease])), Fenced)

    async def test_one_lost_partition_stops_the_whole_tick(self, store: Store, end_leases: EndLeases) -> None:
        leases = await taken(store, "one", 2)
        await end_leases()
        await taken(store, "two", 1)
        tick = tick_of(
            "one",
            leases,
            events=[event_row("a", 1)],
            executions=[execution_row("a")],
            requests=[RequestRow(request_id="r", execution_id="a", answer=b"{}", position=1)],
            playbooks=[PlaybookRow(digest="d", path="p", version=None, source="text")],
        )
        assert isinstance(await refusal_of(store, tick), Fenced)
        assert [view.tick for view in await store.read_partitions([0, 1])] == [0, 0]
        assert await store.journal("a") == []
        assert await store.execution("a") is None
        assert await store.request("a", "r") is None
        assert await store.playbook("d") is None

    async def test_a_large_tick_is_fenced_like_a_small_one(self, store: Store) -> None:
        (lease,) = await taken(store)
        events = [event_row("a", position) for position in range(1, 200)]
        assert isinstance(await refusal_of(store, tick_of("two", [lease], events=events)), Fenced)
        assert await store.journal("a") == []
        await store.commit(tick_of("one", [lease], events=events))
        assert len(await store.journal("a")) == 199

    async def test_a_large_tick_reads_back_like_small_ones(self, store: Store) -> None:
        (lease,) = await taken(store)
        large = [_mixed_event("large", position) for position in range(1, 151)]
        small = [replace(event, execution_id="small") for event in large]
        await store.commit(tick_of("one", [lease], events=large, executions=[execution_row("large")]))
        for tick, start in enumerate(range(0, 150, 50), start=1):
            await store.commit(tick_of("one", [lease._replace(tick=tick)], events=small[start : start + 50]))
        journals = await store.journals(["large", "small"])
        assert journals["large"] == journals["small"] == [_as_stored(event) for event in large]
        assert await store.execution("large") == execution_row("large")

    async def test_a_position_written_twice_is_an_alarm_and_writes_nothing(self, store: Store) -> None:
        (lease,) = await taken(store)
        await store.commit(tick_of("one", [lease], events=[event_row("a", 1)]))
        now = lease._replace(tick=1)
        doubled = [event_row("a", 2), event_row("a", 1, data=b"[]")]
        many = [event_row("b", position) for position in range(1, 100)]
        for events in (doubled, [*many, event_row("a", 1)], [event_row("c", 1), event_row("c", 1)]):
            assert isinstance(await refusal_of(store, tick_of("one", [now], events=events)), JournalConflict)
        assert await store.journal("a") == [_as_stored(event_row("a", 1))]
        assert await store.journal("b") == []
        assert (await store.read_partitions([0]))[0].tick == 1

    async def test_a_request_answered_twice_is_an_alarm(self, store: Store) -> None:
        (lease,) = await taken(store)
        row = RequestRow(request_id="r", execution_id="a", answer=b'{"ok":true}', position=1)
        await store.commit(tick_of("one", [lease], requests=[row]))
        again = tick_of("one", [lease._replace(tick=1)], requests=[replace(row, answer=b"{}")])
        assert isinstance(await refusal_of(store, again), JournalConflict)
        assert await store.request("a", "r") == row
        assert await store.request("a", "other") is None
        assert await store.answered([("a", "r"), ("a", "other"), ("other", "r")]) == {("a", "r")}
        assert await store.answered([]) == set()

    async def test_invalid_json_is_refused_and_nothing_is_written(self, store: Store) -> None:
        (lease,) = await taken(store)
        for tick in (
            tick_of("one", [lease], events=[event_row("a", 1, data=b'{"n":')]),
            tick_of("one", [lease], executions=[execution_row("a", ctx=b"")]),
            tick_of("one", [lease], executions=[execution_row("a"), execution_row("a")]),
        ):
            assert isinstance(await refusal_of(store, tick), PayloadRefused)
        await store.commit(tick_of("one", [lease]))
        assert await store.journal("a") == []

    async def test_an_execution_row_is_replaced_as_a_whole(self, store: Store) -> None:
        (lease,) = await taken(store)
        other = execution_row("b", rerun_of="a")
        await store.commit(tick_of("one", [lease], executions=[execution_row("a"), other]))
        ended = execution_row(
            "a",
            partition=1,
            status="failed",
            path="q",
            version=None,
            digest="other",
            position=9,
            started_ms=2,
            updated_ms=3,
            finished_ms=4,
            result=b'{ "as":"written" }',
            error=b'"e"',
            ctx=b'{"x":1}',
            discarded=5,
            commands=6,
            children=7,
            looks_into="s",
            ctx_version=8,
        )
        await store.commit(tick_of("one", [lease._replace(tick=1)], executions=[ended]))
        assert await store.execution("a") == ended
        assert await store.executions(["a", "b", "c"]) == {"a": ended, "b": other}

    async def test_every_column_of_an_execution_is_kept_and_replaced(self, store: Store) -> None:
        (lease,) = await taken(store)
        for tick, row in enumerate([_filled_row("first"), _filled_row("later")]):
            await store.commit(tick_of("one", [lease._replace(tick=tick)], executions=[row]))
        kept = {name: getattr(_filled_row("first"), name) for name in ExecutionRow.written_once}
        assert await store.execution("a") == replace(_filled_row("later"), **kept)

    async def test_some_columns_keep_what_the_first_row_said(self, store: Store) -> None:
        (lease,) = await taken(store)
        first = execution_row("a", trace_id="trace", labels=b'{"team":"data"}', rerun_of="b")
        await store.commit(tick_of("one", [lease], executions=[first]))
        later = execution_row("a", trace_id="other", labels=b"{}", rerun_of=None, status="paused")
        await store.commit(tick_of("one", [lease._replace(tick=1)], executions=[later]))
        assert await store.execution("a") == replace(first, status="paused")

    async def test_a_playbook_is_kept_as_first_registered(self, store: Store) -> None:
        (lease,) = await taken(store)
        first = PlaybookRow(digest="d", path="demo/pages", version="1", source="apiVersion: …\n")
        await store.commit(tick_of("one", [lease], playbooks=[first, first]))
        await store.commit(
            tick_of(
                "one", [lease._replace(tick=1)], playbooks=[PlaybookRow(digest="d", path="x", version=None, source="y")]
            )
        )
        assert await store.playbook("d") == first


class ReadingConformance:
    """Reads by people and by a new owner."""

    async def test_a_journal_reads_by_position_from_anywhere(self, store: Store) -> None:
        (lease,) = await taken(store)
        events = [_mixed_event("a", position) for position in (3, 1, 2, 10)]
        await store.commit(tick_of("one", [lease], events=[*events, event_row("b", 1)]))
        stored = [_as_stored(event) for event in sorted(events, key=lambda event: event.position)]
        assert await store.journal("a") == stored
        assert await store.journal("a", after=2) == stored[2:]
        assert await store.journal("a", after=1, limit=2) == stored[1:3]
        assert await store.journals(["a", "b", "c"]) == {"a": stored, "b": [_as_stored(event_row("b", 1))], "c": []}
        assert await store.journals([]) == {}

    async def test_living_executions_are_those_of_the_partitions_that_have_not_ended(self, store: Store) -> None:
        (lease,) = await taken(store)
        rows = [
            execution_row("a", partition=1, digest="d1"),
            execution_row("b", partition=2, digest="d2"),
            execution_row("c", partition=2, finished_ms=9),
            execution_row("d", partition=3),
        ]
        await store.commit(tick_of("one", [lease], executions=rows))
        assert await store.live_executions([1, 2]) == {"a": "d1", "b": "d2"}
        assert await store.live_executions([]) == {}

    async def test_executions_are_listed_newest_first_filtered_and_paged(self, store: Store) -> None:
        (lease,) = await taken(store)
        rows = [
            execution_row(
                f"0{n}-Z" if n % 2 else f"0{n}-a",
                status="completed" if n % 2 else "running",
                path="p" if n < 3 else "q",
                finished_ms=n,
            )
            for n in range(6)
        ]
        await store.commit(tick_of("one", [lease], executions=rows))

        async def listed(status: str | None, path: str | None, limit: int, before: str | None) -> list[str]:
            wanted = ListingFilter([status] if status else (), path)
            return [row.execution_id for row in await store.list_executions(wanted, limit, before)]

        assert await listed(None, None, 3, None) == ["05-Z", "04-a", "03-Z"]
        assert await listed(None, None, 3, "03-Z") == ["02-a", "01-Z", "00-a"]
        assert await listed("completed", None, 9, "05-Z") == ["03-Z", "01-Z"]
        assert await listed(None, "p", 9, None) == ["02-a", "01-Z", "00-a"]
        assert await listed("running", "p", 9, "02-a") == ["00-a"]
        assert await listed("failed", None, 9, None) == []
        newest = (await store.list_executions(ListingFilter(), 1, None))[0]
        assert newest == ("05-Z", "completed", "q", "1", 1_000, 5, "digest", 1_003, None, b"{}")

    async def test_iteration_results_are_those_of_one_step_run(self, store: Store) -> None:
        (lease,) = await taken(store)
        names = ["step.started", "task.processed", "loop.iteration.done", "loop.iteration.failed", "loop.done"]
        events = [event_row("a", position, name, step_run_id="s") for position, name in enumerate(names, start=1)]
        others = [event_row("a", 9, "task.processed", step_run_id="t"), event_row("b", 1, "task.processed")]
        await store.commit(tick_of("one", [lease], events=[*events, *others]))
        assert [event.position for event in await store.iteration_results("a", "s")] == [2, 3, 4, 5]


class StoreConformance(
    LeaseConformance,
    CommitConformance,
    ReadingConformance,
    WaitingConformance,
    ObjectUseConformance,
    ListingConformance,
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


def _mixed_event(execution_id: str, position: int) -> EventRow:
    """A fact by a worker at odd positions, a decision that follows from it at even ones."""
    if position % 2 == 0:
        return event_row(execution_id, position, cause=position - 1)
    return EventRow(
        execution_id=execution_id,
        position=position,
        name="task.processed",
        source="worker",
        at_ms=1_700_000_000_000 + position,
        step_run_id="run",
        report_id=f"command.1.1.nonce.{position}",
        number=position,
        source_seq=2**40 + position,
        data=f'{{ "name":"task.processed", "größe": [{position}, null, "\\u00e9"] }}'.encode(),
    )


def _as_stored(row: EventRow) -> StoredEvent:
    return StoredEvent(**{name: getattr(row, name) for name in StoredEvent._fields})
