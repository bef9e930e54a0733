"""What cannot be folded is passed over, kept, and holds nothing up (PROTOCOL §1, §3, §5)."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from server_stage import ONE_STEP, ManualWorker, Stage, once

from effort import BROKEN_WORKERS
from noetl_stream.errors import OutcomeUnknown
from noetl_stream.model.events import (
    CancelRequested,
    Fact,
    LoopDone,
    LoopIterationDone,
    LoopIterationFailed,
    LoopIterationStarted,
    LoopPagedOut,
    LoopStarted,
    SharedValue,
    SignalReceived,
    StepClaimed,
    StepDone,
    StepFailed,
    StepStarted,
    StepSuspended,
    TaskProcessed,
    TaskStarted,
    TokenAbsorbed,
    Wait,
)
from noetl_stream.model.ids import partition_of, report_id
from noetl_stream.model.json import codec
from noetl_stream.model.limits import DEFAULT_LIMITS
from noetl_stream.model.messages import Report, Request, StepCommand
from noetl_stream.model.outcome import ErrorInfo, Outcome, Page, Reference
from noetl_stream.operations.why.ended import why_ended
from noetl_stream.operations.why.journal import JournalHistory
from noetl_stream.ports.stores.dead_letters import DeadLetterRow
from noetl_stream.ports.stores.store import InboxRow
from noetl_testkit.keys import SIGNER
from noetl_testkit.simulation.work import playbook, work

EXECUTION = "execution-1"
SEEDS = BROKEN_WORKERS
BROKEN = ErrorInfo("exception", "broken")


def looping(mode: str) -> str:
    loop = {"in": [1, 2, 3], "iterator": "n", "spec": {"mode": mode}}
    return playbook("loop", [{"step": "only", "loop": loop, "tool": work("{{ iter.n }}", 0.2)}])


SHAPES = {"step": ONE_STEP, "local loop": looping("sequential"), "distributed loop": looping("parallel")}


async def letters(stage: Stage) -> list[DeadLetterRow]:
    """All that wait, the oldest first, with their bodies."""
    kept = stage.store.real.dead_letters
    found = [await kept.get(one.row.id) for one in await kept.page(1_000, None)]
    return [one.row for one in reversed(found) if one is not None]


async def begun(stage: Stage, source: str) -> tuple[ManualWorker, StepCommand, Any]:
    await stage.server()
    await stage.request(EXECUTION, "request-1", source)
    worker = await stage.manual_worker()
    return worker, *(await worker.take())


async def test_an_invalid_message_becomes_a_dead_letter_with_its_details(stage: Stage) -> None:
    server = await stage.server()
    partition = next(iter(server.ownership.ids))
    sequence = stage.broker.event_log.store_stray(partition, "not.one!", b"\x00\xff")
    await stage.pass_time(1)
    (row,) = await letters(stage)
    stored = stage.broker.event_log.stored[sequence - 1].message
    assert row.id == f"events-{sequence}-{stored.at_ms}"
    assert (row.source, row.partition, row.execution_id, row.body) == ("events", partition, "not.one!", b"\x00\xff")
    assert (row.source_seq, row.at_ms) == (sequence, stored.at_ms)
    assert row.subject == f"noetl.events.{partition}.not.one!.requested" and "cannot read" in row.reason


async def test_a_report_with_a_nul_becomes_a_dead_letter_and_its_step_runs_again(stage: Stage) -> None:
    worker, command, delivery = await begun(stage, ONE_STEP)
    broken = ErrorInfo("exception", "a\0b")
    await worker.report(command, worker.run_of(command, delivery), 0, 0, StepFailed(command.step_run_id, broken))
    delivery.ack()
    stage.start_worker()
    assert (await stage.ended(EXECUTION)).status == "completed"
    (row,) = await letters(stage)
    assert row.reason.startswith("a message cannot hold a NUL character") and b"a\\u0000b" in row.body


@pytest.mark.parametrize("unknown", [False, True], ids=["refused", "outcome unknown"])
async def test_a_message_passed_over_by_a_tick_that_fails_has_one_letter(stage: Stage, unknown: bool) -> None:
    def fails(tick: Any) -> bool:
        return bool(tick.dead_letters)

    error = OutcomeUnknown("no answer")
    if unknown:
        stage.store.after_commit = once(error, fails)
    else:
        stage.store.before_commit = once(error, fails)
    await stage.server()
    stage.start_worker()
    await stage.broker.event_log.publish_request(EXECUTION, "bad", b"garbage")
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.ended(EXECUTION)
    assert len(await letters(stage)) == 1


async def test_an_invalid_inbox_message_becomes_a_dead_letter(stage: Stage) -> None:
    tables = stage.tables
    tables.inbox_sent = 6
    tables.inbox[6] = InboxRow(id="put", partition=0, execution_id=EXECUTION, body=b'{"fact":1}')
    await stage.server()
    await stage.pass_time(2)
    (row,) = await letters(stage)
    assert (row.id, row.source, row.partition, row.execution_id) == ("inbox-6", "inbox", 0, EXECUTION)
    assert (row.body, row.source_seq) == (b'{"fact":1}', 6) and tables.inbox == {}


WHATEVER: dict[str, Any] = {
    "no fact of a worker": TokenAbsorbed("token", "reason"),
    "an index below zero": LoopIterationDone((-1,)),
    "an index beyond all bounds": LoopIterationDone((10**30,)),
    "an index beyond the loop": LoopIterationDone((3,)),
    "a level that does not run": LoopIterationFailed((1, 1), BROKEN),
    "a failed iteration of nothing": LoopIterationFailed((), BROKEN),
    "a start of nothing": LoopIterationStarted(()),
    "a task at a path of its own": TaskStarted("only", 1, (7, 7)),
    "a result at a path of its own": TaskProcessed("only", 1, Outcome("ok"), "continue", (7, 7)),
    "another's end": StepDone("another"),
    "another's failure": StepFailed("another", BROKEN),
    "the end of a step run that it does not name": StepDone(""),
    "a failure of a step run that it does not name": StepFailed("", BROKEN),
    "the end of a loop that is none": LoopDone("", 3, 3, 0, 0, (2, 2)),
    "a level that counts what it has not": LoopStarted("", 5, [1], 1, True, (1,)),
    "a level without a window": LoopStarted("", 1, [1], 0, True, (1,)),
    "pages nobody asked for": LoopPagedOut(3),
    "a contribution nobody can add": TaskProcessed(
        "only", 1, Outcome("ok"), "continue", set_shared={"all": SharedValue("merge", 1)}
    ),
    "a wait without an end": StepSuspended([Wait(signal="s")]),
    "a wait for nothing": StepSuspended([Wait()]),
    "a delay no database can hold": StepSuspended([Wait(delay_s=-1e300)]),
    "a timeout no database can hold": StepSuspended([Wait(signal="s", timeout_s=-1e300)]),
    "a wait for two things": StepSuspended([Wait(delay_s=1.0, signal="s", timeout_s=1.0)]),
    "a wait at a path of its own": StepSuspended([Wait((9,), signal="s", timeout_s=1.0)]),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fact", WHATEVER.values(), ids=WHATEVER)
async def test_a_fact_that_cannot_be_is_refused_and_the_step_done_by_another_run(
    stage: Stage, shape: str, fact: Fact
) -> None:
    worker, command, delivery = await begun(stage, SHAPES[shape])
    stops = await stage.collect_stops()
    run = worker.run_of(command, delivery)
    await worker.report(command, run, 0, 0, StepStarted("hand"), fact)
    await worker.report(command, run, 1, 2, StepDone(command.step_run_id))
    delivery.ack()
    stage.start_worker()
    row = await stage.ended(EXECUTION)
    assert row.status == "completed"
    written = [letter for letter in await letters(stage) if letter.execution_id == EXECUTION]
    assert written and written[0].source == "events" and not stage.running[0].done()
    assert run.nonce in {stop.nonce for stop in stops}
    assert sum(name == type(fact).__struct_config__.tag for name in await names(stage)) <= 6


async def names(stage: Stage) -> list[str]:
    return [entry.name for entry in await stage.journal(EXECUTION)]


@pytest.mark.parametrize(
    "raw",
    [
        b'{"name":"step.started","worker":"w","more":"\xff"}',
        b'{"name":"task.processed","task":"only","attempt":1,"do":"continue",'
        b'"outcome":{"status":"ok","result":{"value":"\xff"}}}',
        b'{"name":"task.processed","task":"only","attempt":1,"do":"continue",'
        b'"outcome":{"status":"ok","result":{"value":1e999}}}',
    ],
    ids=["an unknown field", "a result", "a result with a number"],
)
async def test_a_fact_with_invalid_json_inside_is_refused(stage: Stage, raw: bytes) -> None:
    worker, command, delivery = await begun(stage, ONE_STEP)
    run = worker.run_of(command, delivery)
    report = Report(
        execution_id=EXECUTION,
        step_run_id=command.step_run_id,
        command_id=run.command_id,
        issue=1,
        num_delivered=1,
        nonce=run.nonce,
        number=0,
        first=0,
        events=[msgspec.Raw(raw), msgspec.Raw(raw)],
        capability=command.capability,
    )
    await stage.broker.event_log.publish_report(EXECUTION, "default", report_id(run, 0), codec.encode(report))
    delivery.ack()
    stage.start_worker()
    assert (await stage.ended(EXECUTION)).status == "completed"
    (letter,) = await letters(stage)
    assert "cannot read" in letter.reason


async def test_a_step_whose_reports_can_never_be_folded_fails_after_as_many_issues_as_deliveries(stage: Stage) -> None:
    most = DEFAULT_LIMITS.max_deliveries
    await stage.server()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    worker = await stage.manual_worker()
    for issue in range(1, most + 1):
        command, delivery = await worker.take()
        assert command.issue == issue
        run = worker.run_of(command, delivery)
        await worker.report(command, run, 0, 0, StepClaimed())
        await stage.broker.event_log.publish_request(EXECUTION, f"bad-{issue}", b"garbage")
        delivery.ack()
    row = await stage.ended(EXECUTION)
    assert row.status == "failed" and codec.decode_json(row.error or b"")["kind"] == "lease_exhausted"
    assert await stage.issues(EXECUTION) == list(range(1, most + 1))
    *garbage, given_up = await letters(stage)
    assert [letter.body for letter in garbage] == [b"garbage"] * most
    assert (given_up.source, given_up.id) == ("command", f"command-{command.command_id}-{most}")
    assert f"taken up {most} times" in given_up.reason
    assert codec.decode_command(given_up.body).command_id == command.command_id
    assert given_up.partition == partition_of(EXECUTION)


async def lose_commands(stage: Stage, times: int) -> None:
    """Lets the queue lose the command of each issue."""
    queue = stage.broker.command_queue
    for _ in range(times):
        await stage.until(lambda: queue.queued)
        for command_id in queue.queued:
            queue.lose(command_id)


async def test_a_command_that_is_lost_before_a_worker_takes_it_is_issued_more_often(stage: Stage) -> None:
    await stage.server(reconcile_s=1.0)
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await lose_commands(stage, DEFAULT_LIMITS.max_issues - 1)
    stage.start_worker()
    assert (await stage.ended(EXECUTION)).status == "completed"
    assert len(await stage.issues(EXECUTION)) == DEFAULT_LIMITS.max_issues
    assert await letters(stage) == []


async def test_issues_that_were_lost_do_not_count_as_deliveries(stage: Stage) -> None:
    await stage.server(reconcile_s=1.0)
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await lose_commands(stage, DEFAULT_LIMITS.max_deliveries - 1)
    worker = await stage.manual_worker()
    command, delivery = await worker.take()
    await worker.report(command, worker.run_of(command, delivery), 0, 0, StepClaimed())
    delivery.ack()
    stage.start_worker()
    assert (await stage.ended(EXECUTION)).status == "completed"
    assert command.issue == DEFAULT_LIMITS.max_deliveries


async def test_a_step_whose_command_the_queue_always_loses_fails_at_a_named_limit(stage: Stage) -> None:
    await stage.server(reconcile_s=1.0)
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await lose_commands(stage, DEFAULT_LIMITS.max_issues)
    row = await stage.ended(EXECUTION)
    error = codec.decode_json(row.error or b"")
    assert (row.status, error["kind"]) == ("failed", "command_lost")
    assert f"limits.max_issues is {DEFAULT_LIMITS.max_issues}" in error["message"]
    assert await stage.issues(EXECUTION) == list(range(1, DEFAULT_LIMITS.max_issues + 1))
    (letter,) = await letters(stage)
    assert letter.source == "command" and letter.reason == error["message"]
    history = JournalHistory(EXECUTION)
    history.take(await stage.journal(EXECUTION))
    assert history.state is not None
    decisive, *_ = why_ended(history, history.state, None)
    assert "limits.max_issues" in decisive.sentence


@pytest.mark.parametrize("shape", SHAPES)
async def test_one_delivery_too_many_leaves_a_letter_of_its_command(stage: Stage, shape: str) -> None:
    worker, command, delivery = await begun(stage, SHAPES[shape])
    for _ in range(DEFAULT_LIMITS.max_deliveries):
        delivery.nak()
        held, delivery = await worker.take()
        while held.command_id != command.command_id:
            held, delivery = await worker.take()
    delivery.nak()
    stage.start_worker()
    row = await stage.ended(EXECUTION, 120)
    assert row.status == "failed" and b"max_deliveries" in (row.error or b"")
    (letter,) = [one for one in await letters(stage) if one.id == f"command-{command.command_id}-1"]
    assert letter.source == "command" and "delivered" in letter.reason
    assert letter.subject.split(".") == ["noetl", "commands", "default", "5", EXECUTION, command.command_id]


async def test_a_command_that_is_given_up_in_parts_has_one_letter(stage: Stage) -> None:
    worker, command, delivery = await begun(stage, SHAPES["local loop"])
    run = worker.run_of(command, delivery)._replace(num_delivered=DEFAULT_LIMITS.max_deliveries + 1)
    given_up = ErrorInfo("lease_exhausted", "delivered too often")
    parts = [LoopIterationFailed((index,), given_up) for index in range(2)]
    for number, fact in enumerate([StepStarted("hand"), *parts, StepFailed(command.step_run_id, given_up)]):
        await worker.report(command, run, number, number, fact)
        await stage.pass_time(0.1)
    assert (await stage.ended(EXECUTION)).status == "failed"
    assert [letter.id for letter in await letters(stage)] == [f"command-{command.command_id}-1"]


def random_fact(dice: Random, step_run_id: str) -> Fact:
    """Some fact of a worker, right or wrong."""
    path = tuple(dice.choice([0, 0, 1, 2, 3, -1]) for _ in range(dice.choice([0, 0, 1, 1, 2, 3])))
    owner = dice.choice([step_run_id, step_run_id, "", "another"])
    count = dice.choice([0, 1, 2, 3, 5])
    items = list(range(dice.choice([count, 0])))
    outcome = dice.choice([Outcome("ok"), Outcome("error", error=BROKEN), Outcome("error")])
    shared = {"all": SharedValue(dice.choice(["append", "add", "merge"]), dice.choice([1, [1], {"a": 1}, None]))}
    wait = Wait(
        path, signal=dice.choice(["s", None]), timeout_s=dice.choice([None, 9.0]), delay_s=dice.choice([None, 0.1])
    )
    page = Page(dice.choice([0, 1]), dice.choice([count, 1]), Reference("nats", f"{EXECUTION}/page", 10))
    directive: Any = dice.choice(["continue", "retry", "jump", "break", "fail"])
    processed = TaskProcessed("only", 1, outcome, directive, path, dice.choice([None, "only", "other"]))
    return dice.choice(
        [
            StepStarted("hand"),
            TaskStarted("only", 1, path),
            processed,
            msgspec.structs.replace(processed, set_shared=shared, set_ctx={"a": 1}, set_vars={"b": 2}),
            StepSuspended(dice.choice([[wait], [wait, Wait(path, for_s=0.5)], []])),
            LoopStarted(owner, count, items, dice.choice([1, 2, 0]), True, path),
            LoopPagedOut(count, dice.choice([[page], []]), 1, path),
            LoopIterationStarted(path, "hand"),
            LoopIterationDone(path),
            LoopIterationFailed(path, BROKEN),
            LoopDone(owner, count, count, 0, 0, path),
            StepDone(owner),
            StepFailed(owner, BROKEN),
        ]
    )


NESTED = {"in": [[1, 2], [3]], "iterator": "row", "loop": {"in": "{{ iter.row }}", "iterator": "n"}}
FUZZED = [
    *SHAPES.values(),
    playbook("nested", [{"step": "only", "loop": NESTED, "tool": work("{{ iter.n }}", 0.1)}]),
    playbook("spread", [{"step": "only", "loop": NESTED | {"spec": {"mode": "parallel"}}, "tool": work(1, 0.1)}]),
]


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_every_execution_ends_with_random_reports(stage: Stage, seed: int) -> None:
    dice = Random(seed)
    worker, command, delivery = await begun(stage, dice.choice(FUZZED))
    run = worker.run_of(command, delivery)
    number = 0
    for report in range(dice.randint(1, 8)):
        facts = [random_fact(dice, command.step_run_id) for _ in range(dice.randint(1, 4))]
        await worker.report(command, run, report, number, *facts)
        number += len(facts)
        await stage.pass_time(dice.choice([0.0, 0.1]))
    delivery.ack()
    stage.start_worker()
    await stage.pass_time(1)
    assert not stage.running[0].done()
    if not (await stage.state(EXECUTION)).ended:  # type: ignore[union-attr]
        signal = SignalReceived("request-2", "test", signal="s")
        await stage.ask(EXECUTION, signal)
    await stage.until(lambda: stage.tables.executions[EXECUTION].finished_ms is not None, 300)
    assert not stage.running[0].done()


# --- what a subject says of its sender --------------------------------------------------------------------------------


async def test_a_report_on_the_subject_of_people_is_refused(stage: Stage) -> None:
    worker, command, delivery = await begun(stage, ONE_STEP)
    body = await report_body(stage, worker, command, delivery)
    await stage.broker.event_log.publish_request(EXECUTION, "as-people", body)
    await stage.pass_time(1)
    assert [row.reason for row in await letters(stage)] == ["people make no reports: its subject is for requests"]


async def test_a_request_on_the_subject_of_workers_is_refused_however_it_is_signed(stage: Stage) -> None:
    await begun(stage, ONE_STEP)
    body = SIGNER.encode(Request(EXECUTION, "cancel", CancelRequested("cancel", "no")))
    await stage.broker.event_log.publish_report(EXECUTION, "default", "as-worker", body)
    await stage.pass_time(1)
    assert [row.reason for row in await letters(stage)] == ["workers make no requests: its subject is for reports"]
    assert (await stage.state(EXECUTION)).status == "running"


async def test_a_report_on_a_command_of_another_pool_is_refused(stage: Stage) -> None:
    worker, command, delivery = await begun(stage, ONE_STEP)
    body = await report_body(stage, worker, command, delivery)
    await stage.broker.event_log.publish_report(EXECUTION, "other", "as-other", body)
    await stage.pass_time(1)
    (row,) = await letters(stage)
    assert row.reason == "a worker of pool other reports on a command of pool default"
    assert row.subject.endswith(".reported.other")


async def report_body(stage: Stage, worker: Any, command: Any, delivery: Any) -> bytes:
    """A report that a worker was allowed to make, and has made: it has been stored once."""
    await worker.report(command, worker.run_of(command, delivery), 0, 0, StepStarted("hand"))
    stored = [one.message for one in stage.broker.event_log.stored if one.is_input]
    return stored[-1].body
