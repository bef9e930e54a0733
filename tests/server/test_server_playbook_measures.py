"""What a server measures of each playbook: durations of executions and steps, failures, how late schedules are."""

from __future__ import annotations

from server_stage import ONE_STEP, Stage, measured, once
from waiting_stage import before_and_after, rest

from noetl_stream.errors import Unreachable
from noetl_stream.model.aggregates import ScheduleRegistered, ScheduleTerms, Timetable
from noetl_stream.operations.executions.submit import ask_aggregate
from noetl_stream.telemetry import measures
from noetl_stream.telemetry.measures import OTHER, ByPath, long_durations
from noetl_testkit.simulation.work import playbook, work

FAILS = playbook("fails", [{"step": "only", "tool": {"kind": "noop", "args": {"x": "{{ 1 / 0 }}"}}}])
SLOW = playbook("slow", [{"step": "only", "tool": work("done", 40)}])
OF_EXECUTIONS = "noetl_server_execution_duration_seconds"
OF_STEPS = "noetl_server_step_duration_seconds"
LATENESS = "noetl_server_schedule_lateness_seconds"


async def test_executions_and_steps_are_measured_by_playbook(stage: Stage) -> None:
    server = await stage.server()
    stage.start_worker()
    for source in (ONE_STEP, ONE_STEP, SLOW):
        await stage.ended(await stage.submit(source))
    seen = await measured(server)
    assert seen[f"{OF_EXECUTIONS}_count simulation/one completed"] == 2
    assert seen[f"{OF_EXECUTIONS}_count simulation/one failed"] == 0, "a rate is known from the first failure on"
    assert seen[f"{OF_STEPS}_count simulation/one done"] == 2
    assert 0.2 <= seen[f"{OF_STEPS}_sum simulation/one done"] <= seen[f"{OF_EXECUTIONS}_sum simulation/one completed"]
    assert 39.9 <= seen[f"{OF_STEPS}_sum simulation/slow done"] < 45, "a long step is measured from its start"
    assert seen[f"{OF_STEPS}_bucket 30.0 simulation/slow done"] == 0
    assert seen[f"{OF_STEPS}_bucket 60.0 simulation/slow done"] == 1


async def test_failures_are_counted_by_playbook_and_kind(stage: Stage) -> None:
    server = await stage.server()
    stage.start_worker()
    await stage.ended(await stage.submit(FAILS))
    seen = await measured(server)
    assert seen["noetl_server_execution_failures_total expression_error simulation/fails"] == 1
    assert seen[f"{OF_EXECUTIONS}_count simulation/fails failed"] == 1
    assert seen[f"{OF_STEPS}_count simulation/fails failed"] == 1


async def test_a_step_that_is_suspended_is_measured_to_its_end(stage: Stage) -> None:
    server = await stage.server()
    stage.start_worker()
    await stage.ended(await stage.submit(before_and_after(rest(30))))
    seen = await measured(server)
    (path,) = server.counts.playbooks
    assert 29.9 <= seen[f"{OF_STEPS}_sum {path} done"] < 35


async def test_a_loop_is_one_step_whatever_it_repeats(stage: Stage) -> None:
    server = await stage.server()
    stage.start_worker()
    inner = {"in": [1, 2], "iterator": "m"}
    for loop in ({"in": [1, 2], "iterator": "n"}, {"in": [1, 2], "iterator": "n", "loop": inner}):
        await stage.ended(await stage.submit(playbook("looping", [{"step": "each", "loop": loop, "tool": work(1)}])))
    assert (await measured(server))[f"{OF_STEPS}_count simulation/looping done"] == 2


async def test_measures_of_a_refused_commit_count_once(stage: Stage) -> None:
    server = await stage.server()
    stage.start_worker()
    stage.store.before_commit = once(Unreachable("gone"), lambda tick: any(row.finished_ms for row in tick.executions))
    await stage.ended(await stage.submit(ONE_STEP))
    seen = await measured(server)
    assert seen[f"{OF_STEPS}_count simulation/one done"] == 1
    assert seen[f"{OF_EXECUTIONS}_count simulation/one completed"] == 1


async def test_the_lateness_of_schedules_is_measured(stage: Stage) -> None:
    _, host, _ = stage.start_server()
    stage.start_worker()
    terms = ScheduleTerms(playbook=await stage.register(ONE_STEP), timetable=Timetable(every_s=60), missed="all")
    fact = ScheduleRegistered("register", "tests/often", terms=terms, revision=1)
    await ask_aggregate(stage.requests, stage.broker.bus, stage.clock, "starter", fact)
    await stage.pass_time(60)
    host.kill()
    await stage.pass_time(120)
    server = await stage.server()
    await stage.until(lambda: server.counts.lateness)
    seen = await measured(server)
    assert seen[f"{LATENESS}_bucket 60.0 tests/often"] < seen[f"{LATENESS}_count tests/often"]
    assert seen["noetl_server_schedules_overdue_seconds"] == 0


def test_a_process_names_the_first_paths_alone() -> None:
    found = ByPath(long_durations)
    for number in range(measures.MAX_PATHS + 5):
        found[f"path/{number}"].add(1.0)
    assert len(found) == measures.MAX_PATHS + 1
    assert sum(found[OTHER].counts) == 5
    assert found["path/7"] is not found["path/8"]
    assert found["one more"] is found[OTHER]
