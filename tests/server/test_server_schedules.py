"""Schedules in a server: what is registered starts when it is due, once, and its history says so (LANGUAGE §15)."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace
from server_stage import ONE_STEP, Stage

from noetl_stream.engine.aggregates.schedules import ScheduleState
from noetl_stream.model.aggregates import (
    RequestedFact,
    ScheduleBackfilled,
    ScheduleDeleted,
    ScheduleRegistered,
    ScheduleTerms,
    ScheduleTriggered,
    Timetable,
    TriggerDeleted,
    TriggerPaused,
    TriggerRegistered,
    TriggerTerms,
    Verification,
    aggregate_id,
)
from noetl_stream.model.json import codec
from noetl_stream.model.messages import AGGREGATES_FORMAT, AggregateRequest
from noetl_stream.operations.executions.reading.known import listing_of
from noetl_stream.operations.executions.submit import RequestRefused, ask_aggregate
from noetl_stream.ports.operations.executions import ExecutionFilter
from noetl_stream.ports.stores.aggregates import HistoryRow
from noetl_stream.server.rebuild import rebuild
from noetl_testkit.memory.store import StagedStore

PATH = "tests/often"
SCHEDULE = aggregate_id("starter", PATH)
MINUTE_S = 60
DAY_MS = 86_400_000


async def asked(stage: Stage, fact: RequestedFact) -> dict[str, Any] | str:
    """The answer to a request, or the code with which it is refused."""
    try:
        return await ask_aggregate(stage.requests, stage.broker.bus, stage.clock, "starter", fact)
    except RequestRefused as refused:
        return refused.code


async def registered(stage: Stage, **terms: Any) -> dict[str, Any] | str:
    """Registers a schedule that starts a playbook of one step each minute."""
    path = await stage.register(ONE_STEP)
    given = {"playbook": path, "timetable": Timetable(every_s=MINUTE_S), **terms}
    return await asked(stage, ScheduleRegistered("register", PATH, terms=ScheduleTerms(**given), revision=1))


async def history(stage: Stage) -> list[HistoryRow]:
    """Newest first."""
    return await stage.store.real.aggregate_history(SCHEDULE, 100, None)


async def state(stage: Stage) -> ScheduleState:
    row = (await stage.store.real.aggregates([SCHEDULE]))[SCHEDULE]
    return codec.decode_as(ScheduleState, row.state)


async def test_an_occurrence_starts_an_execution_and_its_end_is_noted(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    assert await registered(stage) == {"ok": True, "execution_id": SCHEDULE, "path": PATH, "revision": 1}
    assert not await history(stage)
    await stage.pass_time(MINUTE_S)
    (entry,) = await history(stage)
    assert (entry.number, entry.status) == (1, "completed")
    row = await stage.store.real.execution(str(entry.execution_id))
    assert row is not None
    assert (row.status, row.started_ms // 1000 % MINUTE_S) == ("completed", 0)
    await stage.pass_time(3 * MINUTE_S)
    assert [(one.number, one.status) for one in await history(stage)] == [(n, "completed") for n in (4, 3, 2, 1)]


DAILY = Timetable(cron=("30 2 * * *",), zone="Europe/Berlin")
LOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: day, path: tests/day }
workload: { day: unknown }
executor:
  spec: { result: { day: "{{ workload.day }}", due: "{{ execution.due }}", by: "{{ execution.origin.path }}" } }
workflow: [ { step: start, tool: { kind: noop } } ]
"""


async def test_each_execution_of_a_backfill_knows_its_day_and_is_found_by_it(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    path = await stage.register(LOOK)
    day = {"day": "{{ schedule.interval.start | date_format('%Y-%m-%d') }}"}
    terms = ScheduleTerms(playbook=path, timetable=DAILY, workload=day)
    await asked(stage, ScheduleRegistered("register", PATH, terms=terms, revision=1))
    until_ms = stage.clock.now_ms() // DAY_MS * DAY_MS
    await asked(
        stage, ScheduleBackfilled("b", PATH, from_ms=until_ms - 2 * DAY_MS, before_ms=until_ms, overlap="allow")
    )
    await stage.pass_time(MINUTE_S)
    results = []
    for entry in reversed(await history(stage)):
        row = await stage.store.real.execution(str(entry.execution_id))
        assert row is not None and row.result is not None
        results.append(codec.decode_json(row.result)["value"])
        [found] = await stage.store.real.list_executions(listing_of(ExecutionFilter(due=row.due[:10])), 9, None)
        assert found.execution_id == row.execution_id
    days = [datetime.fromtimestamp(until_ms / 1000 - ago * 86_400, UTC).date().isoformat() for ago in (3, 2, 1)]
    assert [(one["day"], one["due"][:10], one["by"]) for one in results] == [(*pair, PATH) for pair in pairwise(days)]


async def test_a_schedule_is_due_under_its_next_owner_too(stage: Stage) -> None:
    _, host, _ = stage.start_server()
    await stage.until(lambda: len(stage.store.real.tables.servers) > 0)
    stage.start_worker()
    await registered(stage)
    host.kill()
    await stage.pass_time(10)
    await stage.server()
    await stage.pass_time(MINUTE_S)
    assert [(one.number, one.status) for one in await history(stage)] == [(1, "completed")]


async def test_a_schedule_of_an_unknown_playbook_is_not_registered(stage: Stage) -> None:
    await stage.server()
    assert await registered(stage, playbook="tests/unknown") == "unknown_playbook"
    assert not await stage.store.real.aggregates([SCHEDULE])


async def test_a_caller_of_an_identity_provider_is_asked_to_register_with_a_token(stage: Stage) -> None:
    await stage.server()
    terms = ScheduleTerms(playbook=await stage.register(ONE_STEP), timetable=Timetable(every_s=MINUTE_S))
    fact = ScheduleRegistered("register", PATH, "oidc:ann@example.com", terms=terms, revision=1)
    with pytest.raises(RequestRefused, match="token create NAME --role author") as refused:
        await ask_aggregate(stage.requests, stage.broker.bus, stage.clock, "starter", fact)
    assert refused.value.code == "forbidden"
    assert not await stage.store.real.aggregates([SCHEDULE])


async def test_a_request_that_comes_twice_is_answered_once(stage: Stage) -> None:
    await stage.server()
    first = await registered(stage)
    assert await registered(stage) == first
    assert (await stage.store.real.aggregates([SCHEDULE]))[SCHEDULE].position == 1


async def test_a_deleted_schedule_leaves_nothing_behind(stage: Stage) -> None:
    await stage.server()
    await registered(stage)
    await stage.pass_time(2 * MINUTE_S)
    assert await asked(stage, ScheduleDeleted("delete", PATH)) == {"ok": True, "execution_id": SCHEDULE, "path": PATH}
    await stage.pass_time(2 * MINUTE_S)
    assert not await stage.store.real.aggregates([SCHEDULE])
    assert not await history(stage)
    assert not await stage.store.real.timers(SCHEDULE)


async def test_a_schedule_that_is_deleted_and_registered_in_one_tick_is_there(stage: Stage) -> None:
    await stage.server()
    await registered(stage)
    row = (await stage.store.real.aggregates([SCHEDULE]))[SCHEDULE]
    terms = codec.decode_as(ScheduleState, row.state).terms
    again = ScheduleRegistered("again", PATH, terms=terms, revision=2)
    for fact in (
        ScheduleDeleted("delete", PATH),
        again,
        ScheduleTriggered("first", PATH),
        ScheduleTriggered("second", PATH),
    ):
        request = AggregateRequest(SCHEDULE, fact.request_id, fact, format=AGGREGATES_FORMAT)
        await stage.requests.publish(request)
    await stage.pass_time(1)
    assert [one.number for one in await history(stage)] == [2, 1]
    assert (await state(stage)).revision == 2
    assert [row.timer_id for row in await stage.store.real.timers(SCHEDULE)] == ["next"]


async def test_nothing_is_registered_while_an_older_server_runs(stage: Stage) -> None:
    server = await stage.server()
    await stage.store.real.appear("older", "0.3.0", 2, 3600.0)
    await stage.until(lambda: not server.formats.know_aggregates)
    assert await registered(stage) == "older_servers"


async def test_a_thousand_idle_schedules_cost_no_statement(stage: Stage) -> None:
    await stage.server()

    async def statements_of_a_minute() -> Counter[str]:
        stage.store.calls.clear()
        await stage.pass_time(60)
        return Counter(stage.store.calls)

    await stage.pass_time(10)
    without = await statements_of_a_minute()
    path = await stage.register(ONE_STEP)
    terms = ScheduleTerms(playbook=path, timetable=Timetable(every_s=366 * 86_400))
    for number in range(1_000):
        key = f"tests/idle-{number}"
        await ask_aggregate(
            stage.requests,
            stage.broker.bus,
            stage.clock,
            "starter",
            ScheduleRegistered(f"register-{number}", key, terms=terms, revision=1),
        )
    await stage.pass_time(10)
    assert await statements_of_a_minute() == without


async def test_a_schedule_that_cannot_be_folded_is_a_dead_letter_and_the_server_goes_on(stage: Stage) -> None:
    _, host, _ = stage.start_server()
    stage.start_worker()
    await registered(stage)
    rows = stage.store.real.tables.aggregates.rows
    sound = rows[SCHEDULE]
    rows[SCHEDULE] = replace(sound, state=b'{"path":1}')
    assert await asked(stage, ScheduleTriggered("trigger", PATH)) == "quarantined"
    await stage.pass_time(MINUTE_S)
    letters = await stage.store.real.dead_letters.page(10, None)
    assert {letter.row.subject for letter in letters} >= {"timer"} and len(letters) == 2
    assert all("the state of Schedule tests/often" in letter.row.reason for letter in letters)
    await stage.ended(await stage.submit(ONE_STEP))
    rows[SCHEDULE] = sound
    host.kill()  # the timer waits for the next owner
    stage.start_server()
    await stage.pass_time(MINUTE_S)
    assert (await history(stage))[0].status == "completed"


async def test_a_rebuild_from_events_has_what_schedules_have_started_and_no_schedules(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    await registered(stage)
    await stage.pass_time(MINUTE_S)
    assert [row.status for row in (await stage.rebuilt()).tables.executions.values()] == ["completed"]
    assert await stage.rebuilt_differences() == []


async def test_a_rebuild_says_which_schedules_and_triggers_are_to_be_registered_again(stage: Stage) -> None:
    server = await stage.server()
    stage.start_worker()
    await registered(stage)
    await stage.pass_time(MINUTE_S)
    playbook = await stage.register(ONE_STEP)
    hook = TriggerTerms(playbook=playbook, webhook=Verification(form="none"))
    await asked(stage, TriggerRegistered("hook", "tests/hook", "token:ann", terms=hook, revision=1))
    await asked(stage, TriggerPaused("pause", "tests/hook"))
    await asked(stage, TriggerRegistered("gone", "tests/gone", "token:ann", terms=hook, revision=1))
    await asked(stage, TriggerDeleted("delete", "tests/gone"))
    started = set(stage.tables.executions)
    server.stop()
    await stage.running[0]
    stage.store.real.restore(StagedStore(stage.clock).dump())
    rebuilt = await rebuild(stage.new_server())
    assert list(map(str, rebuilt.starters)) == [
        "trigger tests/hook: starts simulation/one, registered by token:ann, paused",
        "schedule tests/often: starts simulation/one, registered by nobody in particular",
    ]
    await stage.register(ONE_STEP)  # before servers run
    await stage.server()
    await stage.pass_time(5 * MINUTE_S)
    assert set(stage.tables.executions) == started, "nothing is registered, nor started again"
    assert await registered(stage) == "answer_lost"


async def test_a_rebuild_knows_a_schedule_whose_registration_is_trimmed_by_what_it_started(stage: Stage) -> None:
    server = await stage.server()
    stage.start_worker()
    await registered(stage)
    stage.broker.event_log.trimmed = stage.broker.event_log.end
    await stage.pass_time(MINUTE_S)
    server.stop()
    await stage.running[0]
    stage.store.real.restore(StagedStore(stage.clock).dump())
    rebuilt = await rebuild(stage.new_server())
    assert list(map(str, rebuilt.starters)) == ["schedule tests/often: EVENTS has no more of it"]


async def test_a_restored_schedule_starts_nothing_twice_and_learns_of_the_end(stage: Stage) -> None:
    _, host, _ = stage.start_server()
    stage.start_worker()
    await registered(stage)
    tables = stage.store.real.tables
    before, timers = tables.aggregates.rows[SCHEDULE], dict(tables.timers)
    await stage.pass_time(MINUTE_S)
    (first,) = await history(stage)
    host.kill()
    tables.aggregates.rows[SCHEDULE], tables.timers = before, timers
    tables.aggregates.histories.clear()
    stage.start_server()
    await stage.pass_time(MINUTE_S / 2)
    *later, again = await history(stage)
    assert (again.number, again.status, again.execution_id) == (1, "completed", first.execution_id)
    assert {one.status for one in later} <= {"completed"}, "the first has ended"
    assert len(tables.executions) == 1 + len(later)
