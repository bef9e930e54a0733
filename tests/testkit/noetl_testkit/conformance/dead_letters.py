"""Conformance of :class:`~noetl_stream.ports.stores.dead_letters.DeadLetters`, as tests to inherit.

A test class inherits :class:`DeadLetterConformance`; the module provides two fixtures:

``store``
    An empty, verified store, which writes the letters.
``letters``
    The dead letters of this store.
"""

from __future__ import annotations

from msgspec.structs import replace

from noetl_stream.errors import Fenced, JournalConflict
from noetl_stream.ports.stores.dead_letters import (
    ALL_EVENTS,
    MAX_LETTER_BYTES,
    MAX_LETTER_CHARACTERS,
    DeadLetter,
    DeadLetterRow,
    DeadLetters,
    HeldLetters,
    LetterBounds,
    LetterSource,
    storable,
)
from noetl_stream.ports.stores.store import InboxItem, Store
from noetl_testkit.conformance.store_rows import committed, entry_row, following, taken, tick_of
from noetl_testkit.waiting import expect_error


def letter(
    letter_id: str, *, source: LetterSource = "events", reason: str = "not a report", body: bytes = b'{"n":1}'
) -> DeadLetterRow:
    """A letter of partition 0."""
    return DeadLetterRow(
        id=letter_id,
        at_ms=1_000,
        source=source,
        partition=0,
        execution_id="run-1",
        subject="noetl.events.0.run-1.reported",
        reason=reason,
        body=body,
        size=len(body),
        source_seq=7,
    )


async def write(store: Store, *letters: DeadLetterRow) -> None:
    """Commits a tick that skips these messages."""
    await committed(store, dead_letters=letters)


async def ids_of(letters: DeadLetters) -> list[str]:
    """The ids of unsettled letters."""
    return [one.row.id for one in await letters.page(100, None)]


class DeadLetterConformance:
    async def test_a_letter_is_read_as_the_tick_has_written_it(self, store: Store, letters: DeadLetters) -> None:
        row = letter("events-1")
        assert await letters.get("events-1") is None
        await write(store, row)
        found = await letters.get("events-1")
        assert found == DeadLetter(1, row, "waiting", None, None)
        assert (row.size, row.body) == (7, b'{"n":1}')

    async def test_the_list_is_newest_first_without_bodies_and_continues_from_a_number(
        self, store: Store, letters: DeadLetters
    ) -> None:
        await write(store, *(letter(f"events-{n}") for n in range(5)))
        first = await letters.page(2, None)
        assert [one.row.id for one in first] == ["events-4", "events-3"]
        assert {one.row.body for one in first} == {b""}
        assert {one.row.size for one in first} == {7}
        rest = await letters.page(10, first[-1].number)
        assert [one.row.id for one in rest] == ["events-2", "events-1", "events-0"]

    async def test_a_tick_with_events_writes_letters_too(self, store: Store, letters: DeadLetters) -> None:
        await committed(store, entries=[entry_row("run-1", 1)], dead_letters=[letter("events-1")])
        assert await ids_of(letters) == ["events-1"]
        assert len(await store.journal("run-1")) == 1

    async def test_a_tick_that_is_refused_writes_no_letter(self, store: Store, letters: DeadLetters) -> None:
        stale = tick_of("two", await taken(store), dead_letters=[letter("events-1")])
        await expect_error(Fenced, store.commit(stale))
        assert await ids_of(letters) == []

    async def test_a_letter_written_twice_is_an_alarm(self, store: Store, letters: DeadLetters) -> None:
        tick = await committed(store, dead_letters=[letter("events-1")])
        await expect_error(JournalConflict, store.commit(following(tick, dead_letters=tick.dead_letters)))
        assert await ids_of(letters) == ["events-1"]

    async def test_any_message_can_be_stored_as_a_dead_letter(self, store: Store, letters: DeadLetters) -> None:
        words = "a\0b\ud800" + "x" * MAX_LETTER_CHARACTERS
        body = bytes(range(256)) * (MAX_LETTER_BYTES // 256) + b"more"
        row = replace(letter("events-1", reason=words, body=body), execution_id=words, subject=words)
        await write(store, storable(row))
        found = await letters.get("events-1")
        assert found is not None and found.row == storable(row)
        assert (found.row.size, len(found.row.body)) == (MAX_LETTER_BYTES + 4, MAX_LETTER_BYTES)
        assert found.row.reason.startswith("a\\0b\\ud800x")

    async def test_a_requeued_letter_leaves_the_list_and_records_the_actor(
        self, store: Store, letters: DeadLetters
    ) -> None:
        await write(store, letter("events-1"), letter("events-2"))
        assert await letters.requeue("events-1", "alice", 5_000)
        assert await ids_of(letters) == ["events-2"]
        found = await letters.get("events-1")
        assert found is not None
        assert (found.state, found.settled_by, found.settled_ms) == ("requeued", "alice", 5_000)
        assert found.row == letter("events-1")
        assert await store.inbox([0], 10) == []

    async def test_a_discarded_letter_leaves_the_list_and_its_body_is_forgotten(
        self, store: Store, letters: DeadLetters
    ) -> None:
        await write(store, letter("events-1"))
        assert await letters.discard("events-1", "bob", 6_000)
        assert await ids_of(letters) == []
        found = await letters.get("events-1")
        assert found is not None
        assert (found.state, found.settled_by, found.settled_ms) == ("discarded", "bob", 6_000)
        assert (found.row.body, found.row.size) == (b"", 7)

    async def test_a_letter_is_settled_once(self, store: Store, letters: DeadLetters) -> None:
        await write(store, letter("inbox-1", source="inbox"), letter("events-2"))
        assert await letters.requeue("inbox-1", "alice", 5_000)
        assert await letters.discard("events-2", "alice", 5_000)
        for letter_id in ("inbox-1", "events-2", "never-written"):
            assert not await letters.requeue(letter_id, "bob", 6_000)
            assert not await letters.discard(letter_id, "bob", 6_000)
        assert len(await store.inbox([0], 10)) == 1

    async def test_the_oldest_letters_go_above_any_bound(self, store: Store, letters: DeadLetters) -> None:
        assert await letters.held() == HeldLetters(0, 0)
        old = replace(letter("events-0", body=b"x" * 90), at_ms=0)
        await write(store, old, *(letter(f"events-{n}", body=b"x" * 10) for n in range(1, 6)))
        assert await letters.discard("events-5", "bob", 1_000)
        assert await letters.held() == HeldLetters(6, 130)
        wide, now_ms = LetterBounds(letters=6, bytes=130, age_s=1.0), 1_000
        assert await letters.trim(wide, now_ms, 10) == 0
        assert await letters.trim(wide, now_ms + 1, 10) == 1
        assert await letters.held() == HeldLetters(5, 40)
        assert await letters.trim(LetterBounds(letters=3), now_ms, 1) == 1
        assert await ids_of(letters) == ["events-4", "events-3", "events-2"]
        assert await letters.trim(LetterBounds(letters=3), now_ms, 10) == 1
        assert await letters.trim(LetterBounds(bytes=19), now_ms, 10) == 1
        assert await ids_of(letters) == ["events-4"]
        assert await letters.held() == HeldLetters(2, 10)

    async def test_a_requeued_inbox_letter_is_back_in_the_inbox(self, store: Store, letters: DeadLetters) -> None:
        await write(store, letter("inbox-7", source="inbox", body='{"word":"ä"}'.encode()))
        assert await letters.requeue("inbox-7", "alice", 5_000)
        (item,) = await store.inbox([0], 10)
        assert item == InboxItem(item.seq, 0, "run-1", '{"word":"ä"}'.encode())

    async def test_a_letter_that_no_tick_writes_is_stored_once(self, letters: DeadLetters) -> None:
        hole = replace(letter("hole-1-2-5", reason="lost", body=b""), execution_id="", subject=ALL_EVENTS)
        assert await letters.known(["hole-1-2-5", "hole-9-9-5"]) == set()
        for _ in range(2):
            await letters.add(hole)
        assert await letters.known(["hole-1-2-5", "hole-9-9-5"]) == {"hole-1-2-5"}
        assert [one.row for one in await letters.page(10, None)] == [hole]
        assert await letters.discard("hole-1-2-5", "alice", 5_000)
        await letters.add(hole)
        assert await ids_of(letters) == []
