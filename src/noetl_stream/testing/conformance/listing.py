"""Listing and deleting executions, as tests that :class:`StoreConformance` inherits."""

from __future__ import annotations

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
    return execution_row(uuid7(at_ms, b"0123456789"), started_ms=at_ms, **changes)


class ListingConformance:
    """Lists with several conditions, all of which must hold."""

    async def test_labels_and_words_are_terms_of_which_all_must_be_there(self, store: Store) -> None:
        (lease,) = await taken(store)
        statuses = {"1": "failed", "2": "failed", "3": "running"}
        rows = [execution_row(name, status=status) for name, status in statuses.items()]
        terms = [*(("label:a=1", name) for name in statuses), ("word:x", "2"), ("word:y", "2"), ("word:x", "1")]
        tick = tick_of("one", [lease], executions=rows)
        await store.commit(tick._replace(terms=[TermRow(*term) for term in terms]))
        await store.commit(following(tick)._replace(executions=(), terms=[TermRow("word:x", "1")]))

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
        await store.commit(tick._replace(terms=[TermRow("label:a=1", row.execution_id) for row in rows]))
        for others in (ListingFilter(), ListingFilter(("failed", "completed")), ListingFilter(terms=("label:a=1",))):
            for path, expected in {"team/a": "7210", "team/a/x": "721", "team": "7543210", "team/b": ""}.items():
                found = await store.list_executions(others._replace(path=path), 9, None)
                assert "".join(row.execution_id for row in found) == expected
        found = await store.list_executions(ListingFilter(path="team/a"), 2, "7")
        assert [row.execution_id for row in found] == ["2", "1"]

    async def test_a_time_is_that_of_the_start(self, store: Store) -> None:
        (lease,) = await taken(store)
        rows = [begun_at(AT_MS + hour * HOUR_MS, status="completed", path="p") for hour in range(4)]
        late = begun_at(AT_MS + 2 * HOUR_MS - 5)._replace(started_ms=AT_MS + 2 * HOUR_MS, status="completed", path="p")
        ids = [row.execution_id for row in rows]
        tick = tick_of("one", [lease], executions=[*rows, late])
        await store.commit(tick._replace(terms=[TermRow("label:a=1", row.execution_id) for row in (*rows, late)]))
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
        terms = [TermRow(term, name) for term in ("label:team=data", "word:sql", "word:no") for name in ("a", "b")]
        tick = tick_of(
            "one",
            [lease],
            events=[event_row(name, position) for name in ("a", "b") for position in range(1, 100)],
            executions=[gone, gone._replace(execution_id="b")],
            requests=[RequestRow("r", name, b"{}", 1) for name in ("a", "b")],
        )._replace(
            timers=[TimerRow(name, "timer", 0, 9, "wait") for name in ("a", "b")],
            inbox=[InboxRow(f"message-{name}", 0, name, b"{}") for name in ("a", "b")],
            object_uses=[ObjectUseRow(name, "child/x", "nats", "child") for name in ("a", "b")],
            terms=terms,
        )
        await store.commit(tick)
        assert await store.delete_execution("a") is True
        assert await store.execution("a") is None
        assert await store.journal("a") == []
        assert await store.request("a", "r") is None
        assert await store.timers("a") == []
        assert [item.execution_id for item in await store.inbox([0], 9)] == ["b"]
        assert [use.execution_id for use in await store.objects_used_elsewhere("child")] == ["b"]
        for term in ("label:team=data", "word:sql", "word:no"):
            assert [row.execution_id for row in await store.list_executions(ListingFilter(terms=(term,)), 9, None)] == [
                "b"
            ]
        assert len(await store.journal("b")) == 99
        await store.commit(following(tick)._replace(events=(), executions=[gone], inbox=(), requests=(), terms=()))
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
            ObjectUseRow("a", "child/x", "nats", "child"),
            ObjectUseRow("a", "child/y", "nats", "child"),
            ObjectUseRow("b", "child/y", "nats", "child"),
            ObjectUseRow("a", "living/z", "nats", "living"),
        ]
        rows = [execution_row(name, finished_ms=1) for name in ("a", "b", "child", "living")]
        await store.commit(tick_of("one", [lease], executions=rows)._replace(object_uses=uses))
        assert await store.objects_kept_for("a") == []
        await store.delete_execution("child")
        assert await store.objects_kept_for("a") == uses[:1]
        await store.delete_execution("b")
        assert await store.objects_kept_for("a") == uses[:2]
