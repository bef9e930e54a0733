"""Conformance of :class:`~noetl_stream.ports.streams.event_log.EventLog`, as tests to inherit.

A test class inherits :class:`EventLogConformance`; the module or its ``conftest.py`` provides four fixtures:

``event_log``
    An empty, verified log.
``reader``
    A reader of all its partitions.
``bus``
    The bus of the same broker.
``lose``
    Loses the messages of an execution, as damage does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from noetl_stream.errors import ReaderBroken, UsageError
from noetl_stream.model.ids import PARTITIONS, partition_of
from noetl_stream.ports.streams.bus import Bus
from noetl_stream.ports.streams.event_log import (
    DecidedMessage,
    EventLog,
    EventReader,
    HeldMessages,
    ReportedMessage,
)
from noetl_stream.protocol.log_fences import is_late
from noetl_testkit.conformance.bus import RecordingHandler
from noetl_testkit.waiting import TIMEOUT_S, expect_error, until

ALL = range(PARTITIONS)

Lose = Callable[[str], Awaitable[None]]


def execution_in(partition: int, number: int = 0) -> str:
    """The ``number``-th generated execution id in this partition."""
    candidates = (f"run-{n}" for n in range(1_000_000))
    return [next(one for one in candidates if partition_of(one) == partition) for _ in range(number + 1)][-1]


def decided(execution_id: str, message_id: str, body: bytes = b"{}") -> DecidedMessage:
    return DecidedMessage(partition_of(execution_id), execution_id, message_id, body)


async def read(reader: EventReader, count: int, limit: int = 512) -> list[ReportedMessage]:
    """The next ``count`` messages."""
    messages: list[ReportedMessage] = []
    async with asyncio.timeout(TIMEOUT_S):
        while len(messages) < count:
            messages += await reader.next_batch(min(limit, count - len(messages)))
    return messages


async def wait_for_high_water(log: EventLog, reader: EventReader) -> int:
    """Returns the log's last sequence once the reader has reached it."""
    last = await log.last_sequence()
    await until(lambda: reader.high_water >= last)
    return last


class EventLogConformance:
    async def test_a_report_is_read_back_as_it_was_stored(self, event_log: EventLog, reader: EventReader) -> None:
        sequence = await event_log.publish_request("run-1", "request-1", b'{"n":1}')
        (message,) = await read(reader, 1)
        assert message.sequence == sequence
        assert message.execution_id == "run-1"
        assert message.partition == partition_of("run-1")
        assert message.body == b'{"n":1}'
        assert message.at_ms == await event_log.stored_at(sequence)

    async def test_messages_are_read_in_the_order_of_the_log(self, event_log: EventLog) -> None:
        sequences = [await event_log.publish_request(f"run-{n}", f"request-{n}", b"%d" % n) for n in range(50)]
        reader = await event_log.open_reader(ALL, 0)
        messages = await read(reader, 50)
        assert [message.sequence for message in messages] == sequences == sorted(sequences)
        assert [message.body for message in messages] == [b"%d" % n for n in range(50)]
        await reader.close()

    async def test_a_reader_starts_above_the_sequence_it_is_given(self, event_log: EventLog) -> None:
        sequences = [await event_log.publish_request("run-1", f"request-{n}", b"{}") for n in range(5)]
        reader = await event_log.open_reader(ALL, sequences[2])
        assert [message.sequence for message in await read(reader, 2)] == sequences[3:]
        await reader.close()

    async def test_a_reader_sees_only_its_partitions(self, event_log: EventLog) -> None:
        for partition in (1, 2, 3):
            await event_log.publish_request(execution_in(partition), f"request-{partition}", b"{}")
        last = await event_log.publish_request(execution_in(3, 1), "request-last", b"{}")
        reader = await event_log.open_reader([1, 3], 0)
        messages = await read(reader, 3)
        assert [message.partition for message in messages] == [1, 3, 3]
        assert messages[-1].sequence == last
        await reader.close()

    async def test_a_reader_of_most_partitions_sees_only_those(self, event_log: EventLog) -> None:
        for partition in ALL:
            await event_log.publish_request(execution_in(partition), f"request-{partition}", b"{}")
        reader = await event_log.open_reader(range(0, PARTITIONS, 2), 0)
        messages = await read(reader, PARTITIONS // 2)
        assert [message.partition for message in messages] == list(range(0, PARTITIONS, 2))
        assert await wait_for_high_water(event_log, reader) == PARTITIONS
        await reader.close()

    async def test_a_reader_passes_a_long_stretch_that_is_not_its_own(self, event_log: EventLog) -> None:
        foreign = execution_in(1)
        reader = await event_log.open_reader(range(0, PARTITIONS, 2), 0)
        waiting = asyncio.create_task(read(reader, 1))
        await asyncio.gather(*(event_log.publish_request(foreign, f"request-{n}", b"{}") for n in range(5000)))
        mine = await event_log.publish_request(execution_in(0), "request-last", b"{}")
        assert [message.sequence for message in await waiting] == [mine]
        assert reader.high_water == mine
        await reader.close()

    async def test_decided_records_are_stored_but_not_read(self, event_log: EventLog, reader: EventReader) -> None:
        await event_log.publish_decided([decided("run-1", "0.1.1.a.0"), decided("run-2", "0.1.1.a.1")])
        sequence = await event_log.publish_request("run-1", "request-1", b"{}")
        assert [message.sequence for message in await read(reader, 1)] == [sequence]
        assert sequence == 3

    async def test_records_are_read_with_the_inputs_where_they_are_asked_for(self, event_log: EventLog) -> None:
        one, other = execution_in(1), execution_in(2)
        await event_log.publish_request(one, "request-1", b"{}")
        await event_log.publish_decided([decided(one, "1.1.1.a.0", b"[1]"), decided(other, "2.1.1.a.0")])
        reader = await event_log.open_reader([1], 0, True)
        messages = await read(reader, 2)
        assert [(message.sequence, message.body) for message in messages] == [(1, b"{}"), (2, b"[1]")]
        assert [message.subject.endswith(".decided") for message in messages] == [False, True]
        assert [await event_log.last_of(partition) for partition in (0, 1, 2)] == [0, 2, 3]
        await reader.close()

    async def test_messages_without_bodies_have_their_ids(self, event_log: EventLog) -> None:
        execution_id = execution_in(1)
        await event_log.publish_request(execution_id, "request-1", b"{}")
        await event_log.publish_decided([decided(execution_id, "1.2.3.a.0", b"[1]")])
        reader = await event_log.open_reader(ALL, 0, records=True, bodies=False)
        messages = await read(reader, 2)
        assert [(message.message_id, message.body) for message in messages] == [("request-1", b""), ("1.2.3.a.0", b"")]
        await reader.close()

    async def test_the_next_record_of_a_partition_is_found(self, event_log: EventLog) -> None:
        execution_id = execution_in(1)
        await event_log.publish_decided([decided(execution_id, "1.1.1.a.0", b"[1]"), decided(execution_in(2), "2")])
        await event_log.publish_request(execution_id, "request-1", b"{}")
        await event_log.publish_decided([decided(execution_id, "1.2.1.a.0", b"[2]")])
        assert [await event_log.next_decided(1, after) for after in (0, 1, 3)] == [
            (1, b"[1]"),
            (4, b"[2]"),
            (4, b"[2]"),
        ]
        assert await event_log.next_decided(1, 4) is None
        assert await event_log.next_decided(3, 0) is None

    async def test_publishing_no_records_ends_at_once(self, event_log: EventLog) -> None:
        assert await asyncio.wait_for(event_log.publish_decided([]), TIMEOUT_S) == 0
        assert await event_log.last_sequence() == 0

    async def test_who_publishes_records_learns_up_to_where_they_are_stored(self, event_log: EventLog) -> None:
        first, second = decided("run-1", "0.1.1.a.0"), decided("run-2", "0.1.1.a.1")
        assert await event_log.publish_decided([first, second]) == 2
        await event_log.publish_request("run-1", "request-1", b"{}")
        assert await event_log.publish_decided([first]) == 1, "it was stored before"

    async def test_a_journal_record_is_published_live(self, event_log: EventLog, bus: Bus) -> None:
        heard = RecordingHandler()
        subscription = await bus.listen("noetl.events.*.run-1.decided", heard)
        await event_log.publish_decided([decided("run-2", "0.1.1.a.0"), decided("run-1", "0.1.1.a.1", b"[1]")])
        assert await heard.next() == (f"noetl.events.{partition_of('run-1')}.run-1.decided", b"[1]")
        await subscription.close()

    async def test_the_same_message_id_is_stored_once(self, event_log: EventLog) -> None:
        first = await event_log.publish_request("run-1", "request-1", b"{}")
        assert await event_log.publish_request("run-1", "request-1", b"{}") == first
        await event_log.publish_decided([decided("run-1", "0.1.1.a.0")])
        await event_log.publish_decided([decided("run-1", "0.1.1.a.0")])
        assert await event_log.last_sequence() == 2

    async def test_a_batch_holds_at_most_the_limit(self, event_log: EventLog, reader: EventReader) -> None:
        for n in range(7):
            await event_log.publish_request("run-1", f"request-{n}", b"{}")
        sizes: list[int] = []
        async with asyncio.timeout(TIMEOUT_S):
            while sum(sizes) < 7:
                sizes.append(len(await reader.next_batch(3)))
        assert max(sizes) <= 3
        assert min(sizes) >= 1

    async def test_next_batch_waits_for_a_message(self, event_log: EventLog, reader: EventReader) -> None:
        waiting = asyncio.create_task(read(reader, 1))
        await event_log.last_sequence()
        assert not waiting.done()
        sequence = await event_log.publish_request("run-1", "request-1", b"{}")
        assert [message.sequence for message in await waiting] == [sequence]

    async def test_two_readers_read_the_same(self, event_log: EventLog) -> None:
        one, other = await event_log.open_reader(ALL, 0), await event_log.open_reader(ALL, 0)
        for n in range(3):
            await event_log.publish_request("run-1", f"request-{n}", b"{}")
        assert await read(one, 3) == await read(other, 3)
        await one.close()
        await other.close()

    async def test_many_messages_pass_a_reader_without_a_gap(self, event_log: EventLog, reader: EventReader) -> None:
        for start in range(0, 5000, 500):
            await asyncio.gather(
                *(event_log.publish_request(f"run-{n}", f"request-{n}", b"%d" % n) for n in range(start, start + 500))
            )
        messages = await read(reader, 5000)
        assert [message.sequence for message in messages] == list(range(1, 5001))
        assert sorted(int(message.body) for message in messages) == list(range(5000))

    async def test_high_water_follows_what_was_handed_out(self, event_log: EventLog, reader: EventReader) -> None:
        sequences = [await event_log.publish_request("run-1", f"request-{n}", b"{}") for n in range(3)]
        await read(reader, 2, limit=2)
        assert reader.high_water == sequences[1]
        await read(reader, 1)
        assert reader.high_water == sequences[2]

    async def test_high_water_passes_messages_that_are_not_the_readers(self, event_log: EventLog) -> None:
        reader = await event_log.open_reader([1], 0)
        mine = await event_log.publish_request(execution_in(1), "request-1", b"{}")
        await read(reader, 1)
        await event_log.publish_request(execution_in(2), "request-2", b"{}")
        await event_log.publish_decided([decided(execution_in(1), "1.1.1.a.0")])
        assert await wait_for_high_water(event_log, reader) == mine + 2
        await reader.close()

    async def test_high_water_stays_below_what_waits_to_be_read(self, event_log: EventLog) -> None:
        reader = await event_log.open_reader([1], 0)
        first = await event_log.publish_request(execution_in(1), "request-1", b"{}")
        second = await event_log.publish_request(execution_in(1), "request-2", b"{}")
        await event_log.publish_decided([decided(execution_in(1), "1.1.1.a.0")])
        await read(reader, 1)
        assert await event_log.last_sequence() == second + 1
        assert reader.high_water == first
        await read(reader, 1)
        assert await wait_for_high_water(event_log, reader) == second + 1
        await reader.close()

    async def test_the_log_has_its_first_and_last_sequence_and_stored_times(self, event_log: EventLog) -> None:
        assert await event_log.last_sequence() == 0
        assert await event_log.stored_at(0) is None
        assert await event_log.stored_at(1) is None
        sequence = await event_log.publish_request("run-1", "request-1", b"{}")
        assert await event_log.first_sequence() == await event_log.last_sequence() == sequence
        assert await event_log.stored_at(sequence) is not None
        assert await event_log.stored_at(sequence + 1) is None

    async def test_what_is_trimmed_is_gone_and_sequences_go_on(self, event_log: EventLog) -> None:
        sequences = [
            await event_log.publish_request(execution_in(1), f"request-{n}", b'"' + b"x" * 99) for n in range(4)
        ]
        held = await event_log.stored_bytes()
        await event_log.trim(sequences[1])
        assert (await event_log.first_sequence(), await event_log.last_sequence()) == (sequences[2], sequences[3])
        assert await event_log.stored_at(sequences[1]) is None
        assert await event_log.stored_bytes() < held
        assert await event_log.beyond({1: 0}) == {1: 2}
        reader = await event_log.open_reader([1], 0)
        assert [message.sequence for message in await read(reader, 2)] == sequences[2:]
        await reader.close()
        await event_log.trim(sequences[3])
        assert await event_log.first_sequence() == sequences[3] + 1
        assert await event_log.publish_request(execution_in(1), "request-5", b"{}") == sequences[3] + 1

    async def test_checkpoints_are_stored_and_are_neither_inputs_nor_records(self, event_log: EventLog) -> None:
        await event_log.publish_decided([decided(execution_in(1), "1.1.1.a.0")])
        record = await event_log.last_decided(1)
        await event_log.publish_checkpoints([replace(decided(execution_in(1), "checkpoint.a"), body=b'"checkpoint"')])
        assert await event_log.last_sequence() == 2
        assert await event_log.last_decided(1) == record
        assert await event_log.beyond({1: 0}) == {1: 0}
        reader = await event_log.open_reader([1], 0)
        sequence = await event_log.publish_request(execution_in(1), "request-1", b"{}")
        assert [message.sequence for message in await read(reader, 1)] == [sequence]
        await reader.close()

    async def test_a_partition_is_fenced_by_a_later_epoch_alone(self, event_log: EventLog) -> None:
        assert set(await event_log.fence("first", {1: 1, 2: 2})) == {1, 2}
        assert [list(await event_log.fences(partition)) for partition in (1, 2)] == [[], [(2, 1)]]
        assert set(await event_log.fence("first", {2: 2})) == {2}
        assert set(await event_log.fence("second", {1: 1, 2: 2})) == {1}
        assert set(await event_log.fence("second", {1: 4, 2: 5})) == {1, 2}
        assert await event_log.last_sequence() == 3
        assert [fence.epoch for fence in await event_log.fences(2)] == [2, 5]
        assert not await event_log.fence("first", {2: 3})

    async def test_of_two_owners_that_fence_a_partition_at_once_one_succeeds(self, event_log: EventLog) -> None:
        fenced = await asyncio.gather(*(event_log.fence(owner, {1: 2}) for owner in ("first", "second")))
        assert sorted(map(len, fenced)) == [0, 1]
        assert len(await event_log.fences(1)) == 1

    async def test_a_fence_is_neither_an_input_nor_a_record(self, event_log: EventLog) -> None:
        await event_log.fence("first", {1: 2})
        assert await event_log.beyond({1: 0}) == {1: 0}
        assert await event_log.last_decided(1) is None
        reader = await event_log.open_reader([1], 0)
        sequence = await event_log.publish_request(execution_in(1), "request-1", b"{}")
        assert [message.sequence for message in await read(reader, 1)] == [sequence]
        await reader.close()

    async def test_trimmed_fences_keep_out_what_they_kept_out(self, event_log: EventLog) -> None:
        for epoch in (2, 3, 4):
            await event_log.fence("first", {1: epoch})
        for through in (2, 3):
            await event_log.trim(through)
            last = await event_log.publish_request(execution_in(1), f"request-{through}", b"{}")
            fences = await event_log.fences(1)
            assert [is_late(fences, epoch, last) for epoch in (1, 2, 3, 4)] == [True, True, True, False]
        assert not await event_log.fence("second", {1: 4}), "its owner is known"

    async def test_a_reader_without_bodies_shows_by_the_sequences_what_is_lost(
        self, event_log: EventLog, lose: Lose
    ) -> None:
        assert await event_log.held() == HeldMessages(0, 0, 0)
        await event_log.publish_request("run-1", "request-1", b"{}")
        await event_log.publish_request("run-2", "request-2", b"{}")
        await event_log.publish_decided([decided("run-1", "1.1.1.a.0"), decided("run-2", "1.1.1.a.1")])
        await event_log.publish_checkpoints([decided("run-1", "checkpoint.a")])
        assert await event_log.held() == HeldMessages(1, 5, 5)
        await lose("run-2")
        assert await event_log.held() == HeldMessages(1, 5, 3)
        reader = await event_log.open_reader(ALL, 0, records=True, bodies=False)
        assert [message.sequence for message in await read(reader, 3)] == [1, 3, 5]
        await reader.close()
        await event_log.trim(5)
        assert await event_log.held() == HeldMessages(6, 5, 0)

    async def test_a_repeated_request_whose_message_is_gone_is_stored_again(
        self, event_log: EventLog, lose: Lose
    ) -> None:
        await event_log.publish_request("run-1", "request-1", b"{}")
        await event_log.publish_request("run-2", "request-2", b"{}")
        await lose("run-1")
        for _ in range(2):
            assert await event_log.publish_request("run-1", "request-1", b"{}") == 3
        assert await event_log.publish_request("run-2", "request-2", b"{}") == 2
        assert await event_log.last_sequence() == 3

    async def test_an_id_that_is_not_valid_in_a_subject_is_refused(self, event_log: EventLog) -> None:
        before = await event_log.last_sequence()
        for bad in ("", "a b", "a.b", "*", "a\r\nPUB x 0\r\n", "x" * 65):
            await expect_error(UsageError, event_log.publish_request(bad, "request-1", b"{}"))
        assert await event_log.last_sequence() == before

    async def test_a_closed_reader_reads_no_more(self, reader: EventReader) -> None:
        waiting = asyncio.create_task(reader.next_batch(1))
        await asyncio.sleep(0)
        await reader.close()
        await expect_error(ReaderBroken, waiting)

    async def test_messages_beyond_cursors_are_counted(self, event_log: EventLog) -> None:
        assert await event_log.beyond({1: 0, 2: 0}) == {1: 0, 2: 0}
        sequences = []
        for number in range(4):
            for partition in (1, 2):
                execution_id = execution_in(partition, number % 2)
                sequences.append(await event_log.publish_request(execution_id, f"{partition}-{number}", b"{}"))
                await event_log.publish_decided([decided(execution_id, f"{partition}.{number}.1.a.0")])
        assert await event_log.beyond({1: 0, 2: 0, 3: 0}) == {1: 4, 2: 4, 3: 0}
        assert await event_log.beyond({1: sequences[0], 2: sequences[-1]}) == {1: 3, 2: 0}
        last = await event_log.last_sequence()
        assert await event_log.beyond({1: last, 2: last + 5}) == {1: 0, 2: 0}
        assert await event_log.beyond({}) == {}
