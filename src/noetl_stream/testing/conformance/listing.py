"""Listing and deleting executions, as tests that :class:`StoreConformance` inherits."""

from __future__ import annotations

from msgspec.structs import replace

from noetl_stream.model.ids import uuid7
from noetl_stream.ports.store import (
    ExecutionRow,
    InboxRow,
    ListingFilter,
    ObjectUseRow,
    RequestRow,
    Store,
    TermRow,
    TimerRow,
)
from noetl_stream.testing.conformance.store_rows import event_row, execution_row, following, taken, tick_of

AT_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def begun_at(at_ms: int, **changes: object) -> ExecutionRow:
    """An execution whose id has this start time."""
    return execution_row(uuid7(at_ms, b"0123456789"), **({"started_ms": at_ms} | changes))


class ListingConformance:
    """Lists with several conditions, all of which must hold."""

    async def test_labels_and_words_are_terms_of_which_all_must_be_there(self, store: Store) -> None:
        (lease,) = await taken(store)
        statuses = {"1": "failed", "2": "failed", "3": "running"}
        rows = [execution_row(name, status=status) for name, status in statuses.items()]
        terms = [*(("label:a=1", name) for name in statuses), ("word:x", "2"), ("word:y", "2"), ("word:x", "1")]
        tick = tick_of("one", [lease], executions=rows)
        await store.commit(replace(tick, terms=[TermRow(term=term, execution_id=name) for term, name in terms]))
        await store.commit(replace(following(tick), executions=(), terms=[TermRow(term="word:x", execution_id="1")]))

        async def found(*terms: str, statuses: tuple[str, ...] = (), limit: int = 9, before: str | None = None) -> str:
            listed = await store.list_executions(ListingFilter(statuses, None, terms), limit, before)
            return "".join(row.execution_id for row in listed)

        assert await found("label:a=1") == "321"
        assert await found("label:a=1", "word:x") == await found("word:x", "label:a=1") == "21"
        assert await found("label:a=1", "word:x", "word:y") == "2"
        assert await found("label:a=1", statuses=("failed", "paused")) == "21"
        assert await found("label:a=1", limit=1, before="3") == "2"
        assert await found("label:a") == await found("word:x", "word:z") == ""

    async def test_several_statuses_are_one_list(self, store: Store) -> None:
        (lease,) = await taken(store)
        statuses = ("failed", "completed", "running", "failed", "completed")
        rows = [execution_row(str(n), status=status, path="p") for n, status in enumerate(statuses)]
        await store.commit(tick_of("one", [lease], executions=rows))
        for path in (None, "p"):
            wanted = ListingFilter(("failed", "running", "failed"), path)
            assert [row.execution_id for row in await store.list_executions(wanted, 2, None)] == ["3", "2"]
            assert [row.execution_id for row in await store.list_executions(wanted, 2, "2")] == ["0"]

    async def test_a_path_finds_what_is_below_it(self, store: Store) -> None:
        (lease,) = await taken(store)
        paths = ("team/a", "team/a/x", "team/a/x/deep", "team/ab", "team/a-b", "team", "Team/a/x", "team/a/x")
        rows = [execution_row(str(n), status="completed", path=path) for n, path in enumerate(paths)]
        tick = tick_of("one", [lease], executions=rows)
        await store.commit(
            replace(tick, terms=[TermRow(term="label:a=1", execution_id=row.execution_id) for row in rows])
        )
        for others in (ListingFilter(), ListingFilter(("failed", "completed")), ListingFilter(terms=("label:a=1",))):
            for path, expected in {"team/a": "7210", "team/a/x": "721", "team": "7543210", "team/b": ""}.items():
                found = await store.list_executions(others._replace(path=path), 9, None)
                assert "".join(row.execution_id for row in found) == expected
        found = await store.list_executions(ListingFilter(path="team/a"), 2, "7")
        assert [row.execution_id for row in found] == ["2", "1"]

    async def test_a_time_is_that_of_the_start(self, store: Store) -> None:
        (lease,) = await taken(store)
        rows = [begun_at(AT_MS + hour * HOUR_MS, status="completed", path="p") for hour in range(4)]
        late = begun_at(AT_MS + 2 * HOUR_MS - 5, started_ms=AT_MS + 2 * HOUR_MS, status="completed", path="p")
        ids = [row.execution_id for row in rows]
        tick = tick_of("one", [lease], executions=[*rows, late])
        await store.commit(
            replace(tick, terms=[TermRow(term="label:a=1", execution_id=row.execution_id) for row in (*rows, late)])
        )
        for others in (
            ListingFilter(),
            ListingFilter(("completed",)),
            ListingFilter((), "p"),
            ListingFilter(terms=("label:a=1",)),
        ):
            begun = others._replace(started_from_ms=AT_MS + 2 * HOUR_MS)
            ended = others._replace(started_before_ms=AT_MS + 2 * HOUR_MS)
            both = begun._replace(started_before_ms=AT_MS + 3 * HOUR_MS)
            expected = ([ids[3], ids[2], late.execution_id], [ids[1], ids[0]], [ids[2], late.execution_id])
            for wanted, found in zip((begun, ended, both), expected, strict=True):
                assert [row.execution_id for row in await store.list_executions(wanted, 9, None)] == found

    async def test_a_list_shows_labels_and_errors(self, store: Store) -> None:
        (lease,) = await taken(store)
        row = execution_row("a", error=b'{"kind":"sql"}', labels=b'{"team":"data"}')
        await store.commit(tick_of("one", [lease], executions=[row]))
        (found,) = await store.list_executions(ListingFilter(), 9, None)
        assert (found.error, found.labels, found.digest) == (row.error, row.labels, row.digest)


class DeletingConformance:
    """A deleted execution leaves nothing behind, except what others still need."""

    async def test_an_ended_execution_is_forgotten_whole(self, store: Store) -> None:
        (lease,) = await taken(store)
        gone = execution_row("a", finished_ms=9, error=b'{"kind":"sql","message":"no"}', labels=b'{"team":"data"}')
        names = ("a", "b")
        words = ("label:team=data", "word:sql", "word:no")
        tick = tick_of(
            "one",
            [lease],
            events=[event_row(name, position) for name in names for position in range(1, 100)],
            executions=[gone, replace(gone, execution_id="b")],
            requests=[RequestRow(request_id="r", execution_id=name, answer=b"{}", position=1) for name in names],
            timers=[
                TimerRow(execution_id=name, timer_id="timer", partition=0, due_ms=9, purpose="wait") for name in names
            ],
            inbox=[InboxRow(id=f"message-{name}", partition=0, execution_id=name, body=b"{}") for name in names],
            object_uses=[ObjectUseRow(execution_id=name, key="child/x", store="nats", owner="child") for name in names],
            terms=[TermRow(term=word, execution_id=name) for word in words for name in names],
        )
        await store.commit(tick)
        assert await store.delete_execution("a") is True
        assert await store.execution("a") is None
        assert await store.journal("a") == []
        assert await store.request("a", "r") is None
        assert await store.timers("a") == []
        assert [item.execution_id for item in await store.inbox([0], 9)] == ["b"]
        assert [use.execution_id for use in await store.objects_used_elsewhere("child")] == ["b"]
        for term in words:
            assert [row.execution_id for row in await store.list_executions(ListingFilter(terms=(term,)), 9, None)] == [
                "b"
            ]
        assert len(await store.journal("b")) == 99
        await store.commit(replace(following(tick), events=(), executions=[gone], inbox=(), requests=(), terms=()))
        assert await store.list_executions(ListingFilter(terms=("word:sql",)), 9, "b") == []

    async def test_one_that_has_not_ended_is_not_deleted(self, store: Store) -> None:
        (lease,) = await taken(store)
        await store.commit(tick_of("one", [lease], events=[event_row("a", 1)], executions=[execution_row("a")]))
        assert [await store.delete_execution("a"), await store.delete_execution("b")] == [False, False]
        assert await store.execution("a") == execution_row("a")
        assert len(await store.journal("a")) == 1

    async def test_an_original_names_the_reruns_that_read_it(self, store: Store) -> None:
        (lease,) = await taken(store)
        rows = [
            execution_row("a", finished_ms=1),
            execution_row("again", looks_into="a"),
            execution_row("given-up", looks_into="a", finished_ms=1),
            execution_row("other", looks_into="b"),
        ]
        await store.commit(tick_of("one", [lease], executions=rows))
        assert await store.looked_into_by("a") == ["again"]

    async def test_deleting_begins_with_the_first_entry_of_one_that_has_ended(self, store: Store) -> None:
        (lease,) = await taken(store)
        events = [event_row(name, position) for name in ("a", "b") for position in (1, 2)]
        rows = [execution_row("a", finished_ms=1), execution_row("b")]
        await store.commit(tick_of("one", [lease], events=events, executions=rows))
        for name in ("a", "a", "b", "nobody"):
            await store.begin_deleting(name)
        assert [event.position for event in await store.journal("a")] == [2]
        assert [event.position for event in await store.journal("b")] == [1, 2]
        assert await store.delete_execution("a") is True

    async def test_a_long_journal_goes_whole(self, store: Store) -> None:
        (lease,) = await taken(store)
        events = [event_row("a", position) for position in range(1, 12_001)]
        await store.commit(tick_of("one", [lease], events=events, executions=[execution_row("a", finished_ms=1)]))
        assert await store.delete_execution("a") is True
        assert await store.journal("a") == []

    async def test_results_of_deleted_executions_are_kept_for_their_last_user(self, store: Store) -> None:
        (lease,) = await taken(store)
        uses = [
            ObjectUseRow(execution_id="a", key="child/x", store="nats", owner="child"),
            ObjectUseRow(execution_id="a", key="child/y", store="nats", owner="child"),
            ObjectUseRow(execution_id="b", key="child/y", store="nats", owner="child"),
            ObjectUseRow(execution_id="a", key="living/z", store="nats", owner="living"),
        ]
        rows = [execution_row(name, finished_ms=1) for name in ("a", "b", "child", "living")]
        await store.commit(tick_of("one", [lease], executions=rows, object_uses=uses))
        assert await store.objects_kept_for("a") == []
        await store.delete_execution("child")
        assert await store.objects_kept_for("a") == uses[:1]
        await store.delete_execution("b")
        assert await store.objects_kept_for("a") == uses[:2]
