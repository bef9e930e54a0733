"""EVENTS has lost messages: a server finds and names them, and makes good what it can (PROTOCOL §5 *Holes*)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from server_stage import ONE_STEP, Stage, measured

from doctor_in_memory import doctor_ports
from noetl_stream.errors import Conflict
from noetl_stream.model.ids import partition_of
from noetl_stream.model.json import codec
from noetl_stream.operations.doctor.doctor import DirectDiagnosis
from noetl_stream.ports.stores.dead_letters import DeadLetterRow
from noetl_stream.ports.streams.event_log import DecidedMessage, HeldMessages
from noetl_stream.server.journal_records import MARGIN_MS
from noetl_stream.server.upkeep.holes import LOOK_S, OLD_AT_ONCE, HoleFinder
from noetl_stream.server.upkeep.upkeep import COMPARE_S, Upkeep
from noetl_testkit.memory.access import MemoryTokens
from noetl_testkit.memory.journals import MemoryRetention

OLD, NEW = "execution-1", "execution-2"


def finder_of(stage: Stage) -> HoleFinder:
    store = stage.store.real
    retention = MemoryRetention(store)
    return HoleFinder(stage.broker.event_log, store, store.cursors, retention, store.dead_letters, stage.clock)


@pytest.fixture
def finder(stage: Stage) -> HoleFinder:
    """That of all servers of the stage."""
    finder = finder_of(stage)
    stage.upkeep = Upkeep(stage.clock, holes=finder)
    return finder


async def letters(stage: Stage) -> list[DeadLetterRow]:
    """The oldest first."""
    return [one.row for one in reversed(await stage.store.real.dead_letters.page(100, None))]


async def folded(stage: Stage, *executions: str) -> None:
    """Runs them to their ends, one after the other, a few minutes apart."""
    stage.start_worker()
    for execution in executions:
        await stage.request(execution, f"request-{execution}", ONE_STEP)
        await stage.ended(execution)
        await stage.pass_time(3 * MARGIN_MS / 1000)


def sequences_of(stage: Stage, execution_id: str) -> list[int]:
    stored = (one.message for one in stage.broker.event_log.stored)
    return [message.sequence for message in stored if message.execution_id == execution_id]


async def test_a_report_lost_before_it_was_read_leaves_a_letter_and_its_command_is_issued_again(
    stage: Stage, finder: HoleFinder, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.store_report_that_no_server_reads(OLD)
    gone = stage.broker.event_log.end
    stage.broker.event_log.lose(gone)
    await stage.request(NEW, "request-2", ONE_STEP)
    stage.expire(*range(32))
    again = await stage.server()
    await stage.pass_time(LOOK_S + 1)
    (letter,) = await letters(stage)
    assert f"message {gone}, maybe before all had read it" in letter.reason
    assert letter.reason in caplog.messages
    await stage.ended(OLD)
    await stage.ended(NEW)
    assert set(stage.effects.values()) == {1, 2}
    assert (await measured(again))["noetl_server_messages_lost_total"] == 1


async def test_records_and_inputs_lost_from_the_middle_are_in_events_again(stage: Stage, finder: HoleFinder) -> None:
    await stage.server()
    await folded(stage, "far", OLD, "lost", NEW)
    gone = sequences_of(stage, "lost")
    stage.broker.event_log.lose(*gone)
    assert await stage.rebuilt_differences() != []
    await stage.pass_time(LOOK_S + 1)
    (letter,) = await letters(stage)
    assert letter.source_seq == gone[0]
    assert letter.reason == (
        f"EVENTS has lost its messages {gone[0]} to {gone[-1]}, after all had read it. "
        "Journals of that time that were written to it again: 3"
    )
    assert await stage.rebuilt_differences() == []
    assert finder.lost == len(gone)


async def test_a_hole_has_one_letter_however_often_and_by_whomever_it_is_seen(stage: Stage, finder: HoleFinder) -> None:
    await stage.server()
    await folded(stage, OLD, NEW)
    first, *_, last = sequences_of(stage, OLD)
    stage.broker.event_log.lose(first + 1, last)
    await stage.pass_time(10 * LOOK_S)
    assert [one.source_seq for one in await letters(stage)] == [first + 1, last]
    await finder_of(stage).look()
    assert len(await letters(stage)) == 2
    assert finder.lost == 2
    stage.broker.event_log.lose(sequences_of(stage, NEW)[0])
    await stage.pass_time(LOOK_S + 1)
    assert len(await letters(stage)) == 3


async def test_trimmed_records_are_no_hole(stage: Stage, finder: HoleFinder) -> None:
    await stage.server()
    await folded(stage, OLD, NEW)
    log = stage.broker.event_log
    log.lose(2)
    await stage.store.real.cursors.move_floor(0, 3)
    await log.trim(3)
    await stage.pass_time(3 * LOOK_S)
    assert await letters(stage) == []


async def test_a_message_that_nats_cannot_read_and_still_counts_is_found_slice_by_slice(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, finder = stage.broker.event_log, finder_of(stage)
    await stage.server()
    for number in range(OLD_AT_ONCE + 100):
        await log.publish_again("nobody", f"message-{number}", b"")
    await stage.pass_time(5)
    held = log.held

    async def counting_all() -> HeldMessages:
        return replace(state := await held(), count=state.last - state.first + 1)

    monkeypatch.setattr(log, "held", counting_all)
    log.lose(OLD_AT_ONCE + 50)
    await finder.look()
    assert finder.lost == 0
    await finder.look()
    assert finder.lost == 1


async def test_a_message_that_only_one_copy_has_lost_is_named_as_such(
    stage: Stage, finder: HoleFinder, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = stage.broker.event_log
    await stage.server()
    await folded(stage, OLD)
    stored_at = log.stored_at

    async def at_the_leader(sequence: int) -> int | None:
        return log.stored[1].message.at_ms if sequence == 2 else await stored_at(sequence)

    monkeypatch.setattr(log, "stored_at", at_the_leader)
    log.lose(2)
    await stage.pass_time(LOOK_S + 1)
    (letter,) = await letters(stage)
    assert letter.reason.startswith("EVENTS has lost its message 2, on one of the nats-servers; its leader has it.")


async def test_an_end_that_is_lost_unread_is_named_even_if_others_have_its_numbers(
    stage: Stage, finder: HoleFinder
) -> None:
    await stage.server()
    await folded(stage, OLD)
    log = stage.broker.event_log
    end = log.end
    log.lose_tail(2)
    for number in range(5):
        await stage.request(f"other-{number}", f"other-{number}", ONE_STEP)
    log.break_readers("NATS was started again")
    await stage.pass_time(LOOK_S + 1)
    (letter,) = await letters(stage)
    assert f"message {end}, its end" in letter.reason
    for number in range(5):
        await stage.ended(f"other-{number}")
    await stage.pass_time(LOOK_S + 1)
    assert len(await letters(stage)) == 1


async def test_nothing_is_written_again_while_postgres_has_yet_to_catch_up(stage: Stage, finder: HoleFinder) -> None:
    server = await stage.server()
    await folded(stage, OLD)
    server.stop()
    await stage.running[0]
    ticks = [row.tick for row in stage.tables.partitions]
    for row in stage.tables.partitions:
        row.tick = 0
    stage.broker.event_log.lose(2)
    for _ in range(2):
        with pytest.raises(Conflict, match="Postgres has yet to catch up"):
            await finder.look()
    assert await letters(stage) == []
    for row, tick in zip(stage.tables.partitions, ticks, strict=True):
        row.tick = tick
    await finder.look()
    assert len(await letters(stage)) == 1


async def test_a_disagreement_of_the_stores_is_reported_until_it_is_mended(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    found = ["partition 1: message 5, the last that was folded, is lost"]

    async def compare() -> list[str]:
        return [*found]

    stage.upkeep = Upkeep(stage.clock, compare=compare)
    server = await stage.server()
    await stage.pass_time(3 * COMPARE_S)
    assert caplog.messages.count(f"Postgres and EVENTS disagree: {found[0]}") == 1
    assert (await measured(server))["noetl_server_store_disagreements"] == 1
    assert await examined(stage) == ("wrong", f"Postgres and EVENTS disagree: {found[0]}")
    found.clear()
    await stage.pass_time(COMPARE_S)
    assert (await measured(server))["noetl_server_store_disagreements"] == 0
    assert (await examined(stage))[0] == "ok"


async def test_the_doctor_names_the_newest_hole_until_its_letter_is_discarded(stage: Stage, finder: HoleFinder) -> None:
    await stage.server()
    await folded(stage, OLD)
    stage.broker.event_log.lose(2, 4)
    await stage.pass_time(LOOK_S + 1)
    verdict, says = await examined(stage)
    assert verdict == "warning"
    assert says.startswith("EVENTS has lost its message 4, after all had read it.")
    assert says.endswith("; and 1 other hole")
    for letter in await letters(stage):
        assert await stage.store.real.dead_letters.discard(letter.id, "ann", 0)
    await stage.pass_time(3 * LOOK_S)
    assert (await examined(stage))[0] == "ok"


async def test_records_that_came_late_are_counted_once_for_a_metric_and_the_doctor(
    stage: Stage, finder: HoleFinder, caplog: pytest.LogCaptureFixture
) -> None:
    server = await stage.server()
    await folded(stage, OLD)
    assert finder.late == 0
    log, partition = stage.broker.event_log, partition_of(OLD)
    lease = server.ownership.get(partition)
    assert lease is not None
    for owner, epoch in (("successor", lease.epoch + 1), ("zombie", lease.epoch), ("successor", lease.epoch + 1)):
        await log.fence(owner, {partition: epoch})
        name = f"{partition}.{lease.tick + 9}.{epoch}.{owner}.{OLD}.100"
        await log.publish_decided([DecidedMessage(partition, OLD, name, codec.encode([]))])
    await stage.pass_time(3 * LOOK_S)
    assert finder.late == 1
    assert f"EVENTS has late records, which do not count: 1 of partitions [{partition}]" in caplog.messages
    assert (await measured(server))["noetl_server_late_records_total"] == 1
    verdict, says = await examined(stage)
    assert verdict == "ok"
    assert says.endswith("; late records of servers that had lost their partition, which do not count: 1")


async def examined(stage: Stage) -> tuple[str, str]:
    ports = doctor_ports(stage.broker, stage.store.real, stage.clock, MemoryTokens())
    (found,) = [check for check in await DirectDiagnosis(ports).examine() if check.check == "events"]
    return found.verdict, found.says
