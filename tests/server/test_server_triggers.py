"""Triggers in a server: each event starts once, whatever dies, and the ends of executions are events (LANGUAGE §15)."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from server_stage import ONE_STEP, Stage, measured

from noetl_stream.engine.aggregates.triggers import MAX_DEPTH
from noetl_stream.errors import NoetlError, OutcomeUnknown
from noetl_stream.model.aggregates import (
    EndedExecution,
    EndedExecutions,
    EventReceived,
    ExecutionEnded,
    RequestedFact,
    StartedBefore,
    StartRate,
    TriggerDeleted,
    TriggerRegistered,
    TriggerTerms,
    Verification,
    aggregate_id,
)
from noetl_stream.model.envelope import iso
from noetl_stream.model.events import CancelRequested, ExecutionRequested
from noetl_stream.model.ids import partition_of, uuid7
from noetl_stream.model.json import codec
from noetl_stream.model.limits import Limits
from noetl_stream.model.messages import AGGREGATES_FORMAT, AggregateMessage
from noetl_stream.operations.executions.submit import RequestRefused, ask_aggregate
from noetl_stream.ports.stores.store import InboxRow
from noetl_stream.server.ticks.watching import MAX_EVENT_BYTES, READ_EVERY_S, WatchingTriggers
from noetl_testkit.entries import names_in
from noetl_testkit.simulation.clocks import WrongClock
from noetl_testkit.simulation.work import playbook, then

PATH = "tests/hook"
OPEN = Verification(form="none")
STEPS = [{"step": "start", "next": then("start", when="{{ false }}")}]
AT_ONCE = playbook("quick", STEPS)


async def asked(stage: Stage, fact: RequestedFact) -> dict[str, Any] | str:
    """The answer to a request, or the code with which it is refused."""
    try:
        return await ask_aggregate(stage.requests, stage.broker.bus, stage.clock, "starter", fact)
    except RequestRefused as refused:
        return refused.code


async def registered(stage: Stage, path: str = PATH, **terms: Any) -> str:
    """Registers a playbook of one step, and a trigger that starts it; returns the playbook's path."""
    playbook = await stage.register(ONE_STEP)
    given: dict[str, Any] = {"playbook": playbook, "webhook": OPEN, **terms}
    if given.get("execution") is not None:
        given["webhook"] = None
    await asked(stage, TriggerRegistered("register", path, terms=TriggerTerms(**given), revision=1))
    return playbook


async def sent(stage: Stage, number: int, **event: Any) -> dict[str, Any] | str:
    return await asked(stage, EventReceived(f"event-{number}", PATH, event={"json": {"n": number}, **event}))


async def history(stage: Stage, path: str = PATH) -> list[tuple[int, str, str]]:
    """Oldest first: number, status and reason."""
    rows = await stage.store.real.aggregate_history(aggregate_id("starter", path), 1000, None)
    return [(row.number, row.status, codec.decode_json(row.body).get("reason", "")) for row in reversed(rows)]


async def started(stage: Stage) -> list[str]:
    """The ids of all executions."""
    return sorted(stage.store.real.tables.executions)


async def test_an_event_starts_an_execution_once_however_often_it_is_sent(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    await registered(stage)
    first = await sent(stage, 1)
    assert isinstance(first, dict) and first["status"] == "started"
    assert await sent(stage, 1) == first
    row = await stage.ended(first["execution_id"])
    assert (row.status, await history(stage)) == ("completed", [(1, "started", "")])


@pytest.mark.parametrize("moment", ["before_commit", "after_commit"])
async def test_an_event_whose_server_dies_around_its_commit_starts_once_under_the_next(
    stage: Stage, moment: str
) -> None:
    _, host, _ = stage.start_server()
    await stage.until(lambda: len(stage.store.real.tables.servers) > 0)
    stage.start_worker()
    await registered(stage)
    dead = asyncio.Event()

    def die(tick: Any) -> NoetlError | None:
        if not tick.history or dead.is_set():
            return None
        dead.set()
        return OutcomeUnknown("the connection broke")

    setattr(stage.store, moment, die)
    asking = asyncio.ensure_future(sent(stage, 1))
    await stage.until(dead.is_set)
    host.kill()
    await stage.pass_time(10)
    await stage.server()
    answer = await asking
    assert isinstance(answer, dict) and answer["status"] == "started"
    await stage.ended(answer["execution_id"])
    assert await history(stage) == [(1, "started", "")]
    assert await started(stage) == [answer["execution_id"]]


async def test_an_event_that_the_templates_cannot_read_is_ignored_with_the_reason(stage: Stage) -> None:
    server = await stage.server()
    await registered(stage, workload={"n": "{{ event.json.n / 0 }}"})
    await sent(stage, 1)
    await sent(stage, 2, boddy="x")
    [first, second] = await history(stage)
    assert "division by zero" in first[2] and "not an event of `webhook`" in second[2]
    assert await started(stage) == []
    assert (await measured(server))["noetl_server_trigger_faults_total"] == 2


async def test_a_key_starts_once_for_all_events_that_have_it(stage: Stage) -> None:
    await stage.server()
    await registered(stage, key="{{ event.json.n % 2 }}")
    for number in range(5):
        await sent(stage, number)
    assert [status for _, status, _ in await history(stage)] == ["started", "started", *["repeated"] * 3]
    assert len(await started(stage)) == 2


async def test_the_end_of_an_execution_that_it_waits_for_starts_another(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    other = await stage.register(ONE_STEP.replace("one", "other"))
    watched = await registered(
        stage,
        execution=EndedExecutions(path="simulation/one", status=("completed",)),
        playbook=other,
        workload={"of": "{{ event.execution_id }}", "status": "{{ event.status }}"},
    )
    await stage.pass_time(2 * READ_EVERY_S)
    first = await stage.submit(ONE_STEP)
    assert (await stage.ended(first)).path == watched
    await stage.pass_time(10)
    [follower] = set(await started(stage)) - {first}
    assert (await stage.ended(follower)).path == other
    asked_for = (await stage.facts(follower))[0]
    assert isinstance(asked_for, ExecutionRequested)
    assert asked_for.workload == {"of": first, "status": "completed"}
    assert await history(stage) == [(1, "started", "")]


async def test_an_end_is_delivered_again_to_a_kept_trigger_though_a_slow_clock_called_it_older(
    stage: Stage,
) -> None:
    host = stage.host("server")
    clock = host.clock = WrongClock(stage.clock, 0)
    stage.start_server(host)
    quick = await stage.register(AT_ONCE)
    await registered(stage, playbook=quick)
    await registered(stage, "tests/ends", execution=EndedExecutions(path=quick))
    await stage.pass_time(30.5)
    before, clock.ahead_ms = stage.store.real.dump(), -600_000  # until it is compared with the database's again
    answer = await sent(stage, 1)
    assert isinstance(answer, dict)
    ended = await stage.ended(answer["execution_id"])
    assert ended.finished_ms is not None and ended.finished_ms < stage.clock.now_ms() - 500_000
    await stage.until(lambda: len(stage.tables.executions) == 2)
    was_started = await started(stage)
    host.kill()
    stage.store.real.restore(before)
    await stage.server()
    await stage.pass_time(30)
    assert await history(stage, "tests/ends") == [(1, "started", "")]
    assert await started(stage) == was_started


async def test_an_earlier_start_is_known_to_the_tick_that_first_gets_the_end(stage: Stage) -> None:
    await stage.server()
    quick = await stage.register(AT_ONCE)
    await registered(stage, execution=EndedExecutions(path=quick))
    await stage.pass_time(2 * READ_EVERY_S)
    first = await stage.submit(AT_ONCE)
    await stage.until(lambda: len(stage.tables.executions) == 2)
    [follower] = set(await started(stage)) - {first}
    trigger, end = aggregate_id("starter", PATH), EndedExecution(execution_id=first, path=quick, status="completed")
    for fact in (ExecutionEnded(end, ended_ms=stage.clock.now_ms() + 1), StartedBefore(follower)):
        body = codec.encode(AggregateMessage(trigger, fact, AGGREGATES_FORMAT))
        row = InboxRow(id=fact.__class__.__name__, partition=partition_of(trigger), execution_id=trigger, body=body)
        stage.tables.inbox[stage.tables.inbox_sent + 1 + len(stage.tables.inbox)] = row
    await stage.pass_time(60)
    assert await history(stage) == [(1, "started", ""), (2, "started", "")]
    assert await started(stage) == [first, follower]


async def test_an_end_delivered_again_is_a_message_of_its_own(stage: Stage) -> None:
    sent_rows: list[InboxRow] = []
    stage.store.after_commit = lambda tick: sent_rows.extend(tick.inbox)
    await stage.server()
    quick = await stage.register(AT_ONCE)
    await registered(stage, playbook=quick)
    await registered(stage, "tests/ends", execution=EndedExecutions(path=quick))
    await stage.pass_time(2 * READ_EVERY_S)
    answer = await sent(stage, 1)
    assert isinstance(answer, dict)
    await stage.ended(answer["execution_id"])
    await stage.pass_time(10)
    [request] = [row for row in sent_rows if row.execution_id == answer["execution_id"]]
    told = len(sent_rows)
    stage.tables.inbox[1] = request  # it comes again, as the first message that this database ever had
    await stage.pass_time(60)
    [again] = sent_rows[told:]
    assert again.execution_id == aggregate_id("starter", PATH)
    assert again.id not in {row.id for row in sent_rows[:told]}


TOLD = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: told, path: tests/told }
workload: { order: 7 }
executor: { spec: { result: { rows: "{{ ctx.total }}" } } }
workflow:
- step: start
  tool:
    name: work
    kind: noop
    args: { x: 1 }
    spec: { policy: { rules: [ { else: { then: { do: continue, set_ctx: { total: 3, other: 4 } } } } ] } }
"""


async def told(stage: Stage) -> dict[str, Any]:
    """The one event of the trigger."""
    [row] = await stage.store.real.aggregate_history(aggregate_id("starter", PATH), 1000, None)
    event: dict[str, Any] = codec.decode_json(row.body)["event"]
    return event


async def test_a_trigger_gets_the_result_the_workload_and_the_keys_of_ctx_that_it_names(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    await registered(stage, execution=EndedExecutions(path="tests/told", ctx=("total", "missing")))
    await stage.pass_time(2 * READ_EVERY_S)
    first = await stage.submit(TOLD)
    await stage.ended(first)
    await stage.pass_time(10)
    event = await told(stage)
    row = await stage.store.real.execution(first)
    assert row is not None and row.finished_ms is not None
    assert (event.pop("started"), event.pop("finished")) == (iso(row.started_ms), iso(row.finished_ms))
    assert event == {
        "execution_id": first,
        "path": "tests/told",
        "status": "completed",
        "result": {"rows": 3},
        "workload": {"order": 7},
        "ctx": {"total": 3, "missing": None},
    }


async def test_a_trigger_gets_the_reason_of_a_failure(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    await registered(stage, execution=EndedExecutions(path="tests/told"))
    await stage.pass_time(2 * READ_EVERY_S)
    first = await stage.submit(TOLD.replace("x: 1", "x: '{{ ctx.no.such }}'").replace("continue", "fail"))
    await stage.ended(first)
    await stage.pass_time(10)
    error = (await told(stage))["error"]
    assert (error["kind"], error["step"], error["task"]) == ("expression_error", "start", "work")
    assert "no.such" in error["message"]


async def test_a_trigger_gets_the_reason_of_a_cancel_and_its_day(stage: Stage) -> None:
    await stage.server()
    await registered(stage, execution=EndedExecutions(path="tests/told", status=("cancelled",)))
    await stage.pass_time(2 * READ_EVERY_S)
    running = uuid7(stage.clock.now_ms(), bytes(10))
    await stage.request(running, "start", TOLD, due="2026-12-20T02:30:00+01:00")
    await stage.ask(running, CancelRequested("cancel", reason="no stock"))
    await stage.ended(running)
    await stage.pass_time(10)
    event = await told(stage)
    assert (event["error"]["kind"], event["error"]["message"]) == ("cancelled", "no stock")
    assert event["due"] == "2026-12-20T02:30:00+01:00"


async def test_a_notification_that_failed_is_counted_as_a_fault_of_its_trigger(stage: Stage) -> None:
    server = await stage.server()
    stage.start_worker()
    sends = await stage.register(TOLD.replace("path: tests/told", f"path: {PATH}/notify").replace("continue", "fail"))
    terms = TriggerTerms(playbook=sends, webhook=OPEN)
    await asked(stage, TriggerRegistered("register", PATH, terms=terms, revision=1))
    answer = await sent(stage, 1)
    assert isinstance(answer, dict)
    assert (await stage.ended(answer["execution_id"])).status == "failed"
    await stage.pass_time(10)
    assert (await measured(server))["noetl_server_trigger_faults_total"] == 1


async def test_parts_that_make_the_event_of_an_end_too_large_are_omitted_and_named(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    await registered(stage, execution=EndedExecutions(path="tests/told", ctx=("total",)))
    await stage.pass_time(2 * READ_EVERY_S)
    large = TOLD.replace("order: 7", f"order: {'x' * MAX_EVENT_BYTES}")
    await stage.ended(await stage.submit(large))
    await stage.pass_time(10)
    event = await told(stage)
    assert event["omitted"] == ["workload"]
    assert "workload" not in event
    assert (event["result"], event["ctx"]) == ({"rows": 3}, {"total": 3})


async def test_triggers_that_name_the_same_keys_share_one_event_of_an_end(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    wanted = [("total",), ("total",), ("total", "other"), ()]
    for number, keys in enumerate(wanted):
        await registered(stage, f"tests/hook{number}", execution=EndedExecutions(path="tests/told", ctx=keys))
    running = await stage.submit(TOLD)
    await stage.ended(running)
    after = await stage.state(running)
    assert after is not None
    ends = WatchingTriggers(stage.store)
    await ends.refresh(0)
    facts = [message.fact for message, _ in ends.end_messages(after, {}, 0, after.at_ms)]
    events = {id(fact.ended): fact.ended.ctx for fact in facts if isinstance(fact, ExecutionEnded)}
    assert len(facts) == len(wanted)
    assert sorted(map(len, events.values())) == [0, 1, 2]


async def test_ends_whose_events_fill_a_tick_leave_the_others_to_the_next(stage: Stage) -> None:
    await stage.server()
    for number in range(16):
        await registered(stage, f"tests/hook{number}", execution=EndedExecutions(path="tests/told"))
    await stage.pass_time(2 * READ_EVERY_S)
    worker = await stage.manual_worker()
    large = TOLD.replace("order: 7", f"order: {'x' * 200_000}")
    executions = [await stage.submit(large) for _ in range(4)]
    taken = [await worker.take() for _ in executions]
    ended: list[int] = []
    stage.store.before_commit = lambda tick: ended.append(names_in(tick).count("execution.finished"))
    async with asyncio.TaskGroup() as group:
        for command, delivery in taken:
            group.create_task(worker.finish(command, worker.run_of(command, delivery)))
    await stage.until(lambda: sum(ended) == len(executions))
    assert max(ended) == 1


async def test_a_chain_of_triggers_ends(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    path = await registered(stage, execution=EndedExecutions(path="simulation/*"))
    await registered(stage, "tests/back", execution=EndedExecutions(path="simulation/*"))
    await stage.pass_time(2 * READ_EVERY_S)
    first = await stage.submit(ONE_STEP)
    assert (await stage.ended(first)).path == path
    await stage.pass_time(60)
    both = [*await history(stage), *await history(stage, "tests/back")]
    assert Counter(status for _, status, _ in both) == {"started": 2 * MAX_DEPTH, "ignored": 2}
    assert all("no more may" in reason for _, status, reason in both if status == "ignored")


async def test_a_trigger_registered_again_or_deleted_leaves_no_duplicates(stage: Stage) -> None:
    await stage.server()
    await registered(stage)
    await sent(stage, 1)
    await asked(stage, TriggerDeleted("delete", PATH))
    assert (await history(stage), await stage.store.real.aggregates([aggregate_id("starter", PATH)])) == ([], {})
    assert await sent(stage, 2) == "unknown_aggregate"


@pytest.mark.parametrize("seed", range(30))
async def test_every_event_starts_once_whatever_fails(stage: Stage, seed: int) -> None:
    """Servers die, commits fail or are of unknown outcome, senders repeat what they sent, in an order that the seed
    draws.
    """
    dice = Random(seed)
    host = stage.start_server()[1]
    await stage.until(lambda: len(stage.store.real.tables.servers) > 0)
    stage.start_worker()
    await registered(stage, workload={"n": "{{ event.json.n }}"})

    def fails(tick: Any) -> NoetlError | None:
        broken = (tick.history or tick.inbox or tick.inbox_folded) and dice.random() < 0.3
        return OutcomeUnknown("the connection broke") if broken else None

    stage.store.before_commit = stage.store.after_commit = fails
    sending = [asyncio.ensure_future(sent(stage, n)) for n in range(8) for _ in range(dice.randint(1, 3))]
    for _ in range(4):
        await stage.pass_time(dice.random() * 3)
        if dice.random() < 0.5:
            host.kill()
            host = stage.start_server()[1]
    stage.store.before_commit = stage.store.after_commit = lambda tick: None
    answers = await asyncio.gather(*sending)
    ids = {answer["execution_id"] for answer in answers if isinstance(answer, dict)}
    assert len(ids) == 8
    for execution_id in ids:
        assert (await stage.ended(execution_id)).status == "completed"
    assert set(await started(stage)) == ids
    assert [(number, status) for number, status, _ in await history(stage)] == [(n, "started") for n in range(1, 9)]


@pytest.mark.parametrize("most", [40, Limits().max_descendants])
async def test_triggers_on_each_others_playbooks_start_no_more_than_their_root_may(stage: Stage, most: int) -> None:
    """Four on one folder would multiply by three: ten in a row would be 118,000 executions."""
    text = playbook("bred", STEPS, executor={"spec": {"policy": {"limits": {"max_descendants": most}}}})
    await stage.server()
    path = await stage.register(text)
    names = [f"tests/breeds-{number}" for number in range(4)]
    for name in names:
        terms = TriggerTerms(playbook=path, execution=EndedExecutions(path="simulation/*"))
        await asked(stage, TriggerRegistered("register", name, terms=terms, revision=1))
    await stage.pass_time(2 * READ_EVERY_S)
    first = await stage.submit(text)
    await stage.ended(first)
    await stage.pass_time(600)
    assert most // 2 < len(await started(stage)) - 1 <= most
    entries = [one for name in names for one in await history(stage, name)]
    reasons = {reason for _, status, reason in entries if status == "ignored"}
    [used_up] = [reason for reason in reasons if "limits.max_descendants" in reason]
    assert f"execution {first} through triggers" in used_up


async def test_events_beyond_the_rate_start_one_at_a_time(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    await registered(stage, rate=StartRate(per_minute=6, burst=1))
    answers = [await sent(stage, number) for number in range(3)]
    assert [one["status"] for one in answers if isinstance(one, dict)] == ["started", "waiting", "waiting"]
    assert len(await started(stage)) == 1
    ids = [one["execution_id"] for one in answers if isinstance(one, dict)]
    began = [(await stage.ended(one)).started_ms for one in ids]
    assert [later - earlier >= 9_000 for earlier, later in pairwise(began)] == [True, True]
    assert [status for _, status, _ in await history(stage)] == ["started"] * 3


async def test_an_event_that_waits_for_its_turn_starts_once_though_its_server_dies(stage: Stage) -> None:
    _, host, _ = stage.start_server()
    await stage.until(lambda: len(stage.store.real.tables.servers) > 0)
    stage.start_worker()
    await registered(stage, rate=StartRate(per_minute=2, burst=1))
    for number in range(2):
        await sent(stage, number)
    host.kill()
    await stage.pass_time(10)
    await stage.server()
    await stage.pass_time(60)
    assert [status for _, status, _ in await history(stage)] == ["started"] * 2
    assert len(await started(stage)) == 2
