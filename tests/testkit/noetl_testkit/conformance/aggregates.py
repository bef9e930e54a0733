"""Conformance of the port of aggregates, as tests to inherit. Fixtures: as of the store."""

from __future__ import annotations

from msgspec.structs import replace

from noetl_stream.ports.stores.aggregates import AggregateKey, AggregateRow, HistoryRow, HistoryTrim, RequestTrim
from noetl_stream.ports.stores.store import RequestRow, Store
from noetl_testkit.conformance.store_rows import committed, following


def aggregate_row(key: str, position: int = 1, kind: str = "Schedule") -> AggregateRow:
    """An aggregate in partition 0."""
    return AggregateRow(
        id=f"starter-{key.replace('/', '-')}",
        partition=0,
        kind=kind,
        key=key,
        position=position,
        state=b'{"n":1}',
        updated_ms=1_000 + position,
    )


def history_row(id: str, number: int, status: str = "started") -> HistoryRow:
    return HistoryRow(
        aggregate_id=id, number=number, at_ms=number, status=status, execution_id=f"e{number}", body=b"{}"
    )


def request_row(id: str, position: int) -> RequestRow:
    return RequestRow(request_id=f"r{position}", execution_id=id, answer=b"{}", position=position)


A, B, OTHER = aggregate_row("team/a"), aggregate_row("team/b"), aggregate_row("other", kind="Trigger")


class AggregateConformance:
    async def test_an_aggregate_comes_back_as_it_was_last_written(self, store: Store) -> None:
        tick = await committed(store, aggregates=[A, B])
        later = replace(A, position=2, state=b'{"n":2}', updated_ms=9)
        await store.commit(following(tick, aggregates=[later]))
        assert await store.aggregates([A.id, B.id, "starter-unknown"]) == {A.id: later, B.id: B}

    async def test_aggregates_of_a_kind_are_listed_by_key(self, store: Store) -> None:
        await committed(store, aggregates=[B, OTHER, A])
        assert await store.list_aggregates("Schedule", "", 10, None) == [A, B]
        assert await store.list_aggregates("Schedule", "team/b", 10, None) == [B]
        assert await store.list_aggregates("Schedule", "", 1, None) == [A]
        assert await store.list_aggregates("Schedule", "", 10, None, ("team/b", "tea")) == [B]
        assert await store.list_aggregates("Schedule", "", 1, A.key) == [B]

    async def test_a_history_is_read_newest_first_and_by_status(self, store: Store) -> None:
        rows = [history_row(A.id, 1), history_row(A.id, 2, "skipped"), history_row(A.id, 3)]
        await committed(store, history=[*rows, history_row(B.id, 1)])
        assert await store.aggregate_history(A.id, 10, None) == rows[::-1]
        assert await store.aggregate_history(A.id, 1, 3) == [rows[1]]
        assert await store.aggregate_history(A.id, 10, None, ["skipped"]) == [rows[1]]

    async def test_an_entry_replaces_one_of_the_same_number(self, store: Store) -> None:
        tick = await committed(store, history=[history_row(A.id, 1)])
        ended = history_row(A.id, 1, "completed")
        await store.commit(following(tick, history=[ended]))
        assert await store.aggregate_history(A.id, 10, None) == [ended]

    async def test_old_entries_go_up_to_a_number(self, store: Store) -> None:
        tick = await committed(store, history=[history_row(A.id, n) for n in (1, 2, 3)] + [history_row(B.id, 1)])
        await store.commit(following(tick, history_gone=[HistoryTrim(A.id, 2)]))
        assert [row.number for row in await store.aggregate_history(A.id, 10, None)] == [3]
        assert await store.aggregate_history(B.id, 10, None) == [history_row(B.id, 1)]

    async def test_answers_of_an_aggregate_go_up_to_a_position(self, store: Store) -> None:
        answers = [request_row(A.id, 1), request_row(A.id, 2), request_row(B.id, 1)]
        tick = await committed(store, requests=answers)
        await store.commit(following(tick, requests_gone=[RequestTrim(A.id, 1)]))
        assert [await store.request(one.execution_id, one.request_id) for one in answers] == [None, *answers[1:]]

    async def test_an_aggregate_that_goes_takes_its_history_along(self, store: Store) -> None:
        tick = await committed(store, aggregates=[A, B], history=[history_row(A.id, 1), history_row(B.id, 1)])
        await store.commit(following(tick, aggregates_gone=[AggregateKey(A.id)]))
        assert await store.aggregates([A.id, B.id]) == {B.id: B}
        assert not await store.aggregate_history(A.id, 10, None)
        assert len(await store.aggregate_history(B.id, 10, None)) == 1
