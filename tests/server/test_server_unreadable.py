"""Commands that no worker can read: their deliveries end, with a dead letter and the end of the step (PROTOCOL §3)."""

from __future__ import annotations

import msgspec
import pytest
from server_stage import ONE_STEP, Stage

from noetl_stream.model.ids import partition_of
from noetl_stream.model.json import codec
from noetl_stream.model.limits import DEFAULT_LIMITS
from noetl_stream.model.messages import AGGREGATES_FORMAT, FORMAT, UnreadableCommand
from noetl_stream.ports.stores.dead_letters import DeadLetterRow
from noetl_stream.ports.streams.command_queue import QueuedCommand
from noetl_stream.protocol.subjects import command_subject, requested
from noetl_stream.worker.worker_limits import RETURN_DELAY_S
from noetl_testkit.memory.broker import StagedCommandQueue
from noetl_testkit.simulation.work import playbook, work

EXECUTION = "execution-1"
GARBAGE = b"\xff\x00 no command"
TOO_NEW = b'{"format":%d,"shape":"unknown here"}' % (AGGREGATES_FORMAT + 1)


async def letters(stage: Stage) -> list[DeadLetterRow]:
    stored = stage.store.real.dead_letters
    found = [await stored.get(letter.row.id) for letter in reversed(await stored.page(100, None))]
    return [letter.row for letter in found if letter is not None]


async def replaced(stage: Stage, body: bytes, source: str = ONE_STEP, pool: str = "default") -> str:
    """Starts an execution whose command arrives as ``body``. Returns the command's id."""
    await stage.server()
    await stage.request(EXECUTION, "request-1", source)
    queue: StagedCommandQueue = stage.broker.command_queue
    await stage.until(lambda: queue.queued)
    (command_id,) = queue.queued
    queue.lose(command_id)
    await queue.issue([QueuedCommand(pool, EXECUTION, command_id, 9, body)], queue.fences)
    stage.start_worker(pool=pool)
    return command_id


async def test_a_command_that_no_worker_can_read_fails_its_step_after_the_last_delivery(stage: Stage) -> None:
    command_id = await replaced(stage, GARBAGE)
    row = await stage.ended(EXECUTION)
    error = codec.decode_json(row.error or b"")
    assert (row.status, error["kind"]) == ("failed", "lease_exhausted")
    assert f"delivered {DEFAULT_LIMITS.max_deliveries + 1} times" in error["message"]
    (letter,) = await letters(stage)
    assert (letter.source, letter.body, letter.execution_id) == ("command", GARBAGE, EXECUTION)
    assert letter.subject == command_subject("default", EXECUTION, command_id)
    assert letter.reason == error["message"]
    assert await stage.broker.command_queue.present() == {}
    assert stage.store.stuck == set()


async def test_the_pool_that_was_chosen_for_a_step_may_give_its_command_up(stage: Stage) -> None:
    stage.pool_labels = {"eu": {"zone": "eu"}}
    step = {"step": "only", "tool": work("done"), "spec": {"placement": {"required": {"zone": "eu"}}}}
    await replaced(stage, GARBAGE, playbook("one", [step]), "eu")
    row = await stage.ended(EXECUTION)
    assert codec.decode_json(row.error or b"")["kind"] == "lease_exhausted"


async def test_a_command_that_nobody_has_issued_is_only_a_dead_letter(stage: Stage) -> None:
    await stage.server()
    queue = stage.broker.command_queue
    await queue.issue([QueuedCommand("default", EXECUTION, "made-up", 1, GARBAGE)], queue.fences)
    stage.start_worker()
    await stage.pass_time(RETURN_DELAY_S * DEFAULT_LIMITS.max_deliveries + 1)
    (letter,) = await letters(stage)
    assert letter.subject == command_subject("default", EXECUTION, "made-up")
    assert await queue.present() == {} and stage.tables.executions == {}


async def test_a_command_of_a_newer_format_waits_for_a_newer_worker(stage: Stage) -> None:
    command_id = await replaced(stage, TOO_NEW)
    await stage.pass_time(3 * RETURN_DELAY_S * DEFAULT_LIMITS.max_deliveries)
    assert set(await stage.broker.command_queue.present()) == {command_id}
    assert await letters(stage) == []
    assert stage.tables.executions[EXECUTION].finished_ms is None


@pytest.mark.parametrize("pool", ["other", ""])
async def test_only_the_pool_of_a_command_may_give_it_up(stage: Stage, pool: str) -> None:
    await stage.server()
    worker = await stage.manual_worker()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    command, _ = await worker.take()
    said = UnreadableCommand(EXECUTION, command.command_id, "no worker could read it", b"garbage", format=FORMAT)
    log = stage.broker.event_log
    if pool:
        await log.publish_report(EXECUTION, pool, "said", codec.encode(said))
    else:
        await log.publish_again(EXECUTION, "said", codec.encode(said))
    await stage.pass_time(1)
    assert len(await letters(stage)) == 1
    assert stage.tables.executions[EXECUTION].finished_ms is None


async def test_people_cannot_report_an_unreadable_command(stage: Stage) -> None:
    await stage.server()
    said = UnreadableCommand(EXECUTION, "command-1", "no worker could read it", b"garbage", format=FORMAT)
    await stage.broker.event_log.publish_request(EXECUTION, "said", codec.encode(said))
    await stage.pass_time(1)
    (letter,) = await letters(stage)
    assert letter.subject == requested(EXECUTION) and "people make no reports" in letter.reason
    assert letter.partition == partition_of(EXECUTION)


async def test_a_long_reason_is_cut(stage: Stage) -> None:
    await stage.server()
    worker = await stage.manual_worker()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    command, _ = await worker.take()
    said = UnreadableCommand(EXECUTION, command.command_id, "x" * 100_000, b"", format=FORMAT)
    await stage.broker.event_log.publish_report(EXECUTION, "default", "said", msgspec.json.encode(said))
    row = await stage.ended(EXECUTION)
    assert row.status == "failed" and len(row.error or b"") < 2_000
