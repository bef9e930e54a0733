"""What a server writes of a tick, and in which order it is published (PROTOCOL §1, §2, §3, §5)."""

from __future__ import annotations

from typing import Any

import pytest
from server_stage import ONE_STEP, Stage, once
from waiting_stage import EXECUTION, before_and_after, begin_gate, rest

from noetl_stream.engine.advance import UNLOADED
from noetl_stream.engine.state import Execution, RecordedFact
from noetl_stream.errors import Fenced
from noetl_stream.model.events import CtxPatched, ExecutionRequested, TimerFired
from noetl_stream.model.events.composite import TokenPassed, expand
from noetl_stream.model.ids import digest_of, partition_of
from noetl_stream.model.json import codec
from noetl_stream.model.messages import FORMAT, Request
from noetl_stream.ports.stores.store import EntryRow
from noetl_stream.protocol import subjects
from noetl_stream.server.memory.execution_cache import CachedExecution
from noetl_stream.server.ticks.tick import Input, PendingTick
from noetl_testkit.keys import SIGNER
from noetl_testkit.simulation.host import FaultInjector, SimulatedHost


class Noted(FaultInjector):
    """The names of all calls a host makes, in order."""

    def __init__(self) -> None:
        self.points: list[str] = []

    async def inject(self, host: SimulatedHost, point: str) -> None:
        self.points.append(point)


def written(stage: Stage) -> list[EntryRow]:
    """The rows of all ticks that are committed from now on."""
    rows: list[EntryRow] = []
    stage.store.after_commit = lambda tick: rows.extend(tick.entries)
    return rows


async def test_a_journal_record_has_its_position_and_its_ticks_message_id(stage: Stage) -> None:
    server = await stage.server()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.pass_time(1)
    first = stage.records()[0]
    partition = partition_of(EXECUTION)
    (lease,) = [one for one in await stage.store.real.read_partitions() if one.id == partition]
    assert (first.execution, first.first_position, first.partition) == (EXECUTION, 1, partition)
    assert (first.tick, first.epoch, first.format, first.through) == (1, lease.epoch, FORMAT, 1)
    stored = next(one for one in stage.broker.event_log.stored if not one.is_input)
    assert stored.message_id == f"{partition}.1.{lease.epoch}.{server.owner}.{EXECUTION}.1"


async def test_entries_of_a_record_are_decisions_inputs_by_report_and_inputs_in_full(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", before_and_after(rest(30)))
    await stage.ended(EXECUTION)
    rows = {entry.position: entry for entry in await stage.journal(EXECUTION)}
    seen: dict[str, set[bool]] = {}
    for record in stage.records():
        position = record.first_position
        for entry in map(codec.decode_entry, record.entries):
            row = rows[position]
            seen.setdefault(row.name, set()).add(bool(entry.report_id))
            assert (row.report_id is None) or row.report_id == entry.report_id
            given = [fact for fact, _ in codec.decode_facts(entry.facts)]
            decided = [fact for fact, _ in codec.decode_facts(entry.decisions)]
            assert bool(given) != bool(entry.report_id)
            while position in rows and rows[position].cause is None and rows[position].report_id == row.report_id:
                position += 1
            for fact in (part for one in decided for part in expand(EXECUTION, one)):
                assert codec.decode_fact(rows[position].data) == fact
                position += 1
    assert seen["step.started"] == {True}, "reported: by report, the first fact's place and how many"
    assert seen["timer.fired"] == {False}, "an input that came through no report: in full"
    assert position - 1 == max(rows)


def test_the_decisions_of_one_input_may_take_several_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noetl_stream.server.journal_records.MAX_RECORD_BYTES", 400)
    decisions = [TokenPassed(f"run-{number}", "a", "b", 0) for number in range(12)]
    pending = PendingTick()
    recorded = RecordedFact(TimerFired("timer", "wait"))
    after = Execution(EXECUTION, "request-1", "digest", position=5 + 1 + 4 * len(decisions))
    cached = CachedExecution(after, UNLOADED, at_ms=1_000, through=9)
    pending.record(Input.by_server(recorded), 6, decisions, cached)
    (row,) = pending.entry_rows()
    once = {partition_of(EXECUTION): 1}
    records = [codec.decode_record(one.body) for one in pending.journal_records(once, once, "owner")]
    found, position = [], row.position
    for record in records:
        assert record.first_position == position and len(codec.encode(record)) < 800
        for entry in map(codec.decode_entry, record.entries):
            facts = [fact for part in (entry.facts, entry.decisions) for fact, _ in codec.decode_facts(part)]
            position += sum(fact.width for fact in facts)
            found += facts
    assert len(records) > 2
    assert (found, position) == ([recorded.fact, *decisions], after.position + 1)


async def test_rows_of_reported_facts_say_by_which_message_they_came(stage: Stage) -> None:
    rows = written(stage)
    await stage.server()
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", before_and_after(rest(30)))
    await stage.ended(EXECUTION)
    by_sequence = {one.message.sequence: one for one in stage.broker.event_log.stored}
    assert {row.source for row in rows} == {"client", "worker", "server"}
    for row in rows:
        if row.source == "worker":
            assert row.source_seq is not None and by_sequence[row.source_seq].message_id == row.report_id
        elif row.source == "server":
            assert (row.source_seq, row.report_id) == (None, None)


async def test_an_uncommitted_tick_is_not_published(stage: Stage) -> None:
    published: list[int] = []

    def note(tick: Any) -> None:
        published.append(len(stage.records()) + len(stage.broker.command_queue.queued))

    await stage.server()
    stage.store.before_commit = once(Fenced("another server has it"))
    stage.store.after_commit = note
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.until(stage.records)
    assert published[0] == 0, "one tick was refused, and the next is committed before anything of it is seen"
    assert [record.tick for record in stage.records()] == [1]


async def test_decided_records_go_out_before_the_commands_of_their_tick(stage: Stage) -> None:
    injector = Noted()
    stage.start_server(stage.host("server", injector))
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.until(stage.records)
    await stage.pass_time(1)
    wanted = ("store.commit", "store.commit.done", "log.publish_decided", "queue.issue")
    order = [point for point in injector.points if point in wanted]
    at = order.index("log.publish_decided")
    assert order[at - 2 : at + 2] == list(wanted)


async def test_times_of_one_execution_are_those_of_the_stores_and_never_go_back(stage: Stage) -> None:
    rows = written(stage)
    await stage.server()
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", before_and_after(rest(30)))
    await stage.ended(EXECUTION)
    times = [row.at_ms for row in sorted(rows, key=lambda row: row.position)]
    assert times == sorted(times)
    stored = {one.message.sequence: one.message.at_ms for one in stage.broker.event_log.stored}
    reported = [row for row in rows if row.source_seq is not None]
    assert reported and all(row.at_ms == stored[row.source_seq] for row in reported if row.source_seq)
    (fired,) = [row for row in rows if b"timer.fired" in row.data]
    assert fired.source_seq is None


async def test_a_request_is_recorded_in_full(stage: Stage) -> None:
    await stage.server()
    digest = digest_of(ONE_STEP)
    await stage.broker.blobs.put(subjects.playbook_key(digest), ONE_STEP.encode())
    fact = ExecutionRequested("request-1", digest, "tests/server", workload={"a": [1, {"b": 2}]}, ctx={"c": 3})
    body = SIGNER.encode(Request(EXECUTION, "request-1", fact))
    await stage.broker.event_log.publish_request(EXECUTION, "request-1", body)
    await stage.pass_time(1)
    assert codec.decode_fact((await stage.journal(EXECUTION))[0].data) == fact


async def test_a_patch_is_recorded_in_full(stage: Stage) -> None:
    await begin_gate(stage)
    patch = CtxPatched("patch-1", "ann", patch={"a": {"deep": [1]}}, reason="because")
    assert isinstance(await stage.ask(EXECUTION, patch), dict)
    (row,) = [row for row in await stage.journal(EXECUTION) if row.name == "ctx.patched"]
    assert codec.decode_fact(row.data) == patch


async def test_a_log_that_begins_later_than_it_was_folded_is_read_from_its_beginning(stage: Stage) -> None:
    server = await stage.server()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.pass_time(1)
    server.stop()
    await stage.running[0]
    log: Any = stage.broker.event_log
    first = log.end + 2

    async def first_sequence() -> int:
        return int(first)

    async def last_sequence() -> int:
        return int(first) + 3

    log.first_sequence, log.last_sequence = first_sequence, last_sequence
    await stage.server()
    assert {row.last_seq for row in stage.tables.partitions if row.generation} == {first - 1}
