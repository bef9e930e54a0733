"""What a server tells probes and Prometheus, and which lines it logs."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import Any

import pytest
from msgspec.structs import replace
from server_stage import ONE_STEP, Stage, measured, status_of
from waiting_stage import EXECUTION, GATE, before_and_after, is_waiting, rest

from measured import unmoved
from noetl_stream.errors import PayloadRefused, Unreachable
from noetl_stream.model.events import CtxPatched
from noetl_stream.model.ids import PARTITIONS
from noetl_stream.server import server as server_module
from noetl_stream.server.assembly import FAILED_S, StateBounds
from noetl_stream.server.status_report import STUCK_S, ServerStatus
from noetl_testkit.entries import events_in
from noetl_testkit.simulation.work import playbook

FAILS = playbook("fails", [{"step": "only", "tool": {"kind": "noop", "args": {"x": "{{ 1 / 0 }}"}}}])


async def test_a_server_is_ready_once_it_folds_and_until_it_stops(stage: Stage) -> None:
    status = status_of(server := stage.new_server())
    assert (await status.reasons_not_ready(), status.reasons_to_replace()) == (
        ["it is starting: it looks at its stores"],
        [],
    )
    running = asyncio.create_task(server.run())
    await stage.until(lambda: len(server.ownership) == PARTITIONS)
    assert (await status.reasons_not_ready(), status.reasons_to_replace()) == ([], [])
    server.stop()
    assert (await status.reasons_not_ready(), status.reasons_to_replace()) == (["it is stopping"], [])
    await running
    assert status.reasons_to_replace() == []


async def test_a_server_that_starts_before_its_stores_says_what_it_waits_for(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.store.away = True
    servers = [stage.new_server(), stage.new_server()]
    patient, stopped = (asyncio.create_task(server.run()) for server in servers)
    await stage.pass_time(60)
    for server in servers:
        status = status_of(server)
        assert (await status.reasons_not_ready(), status.reasons_to_replace()) == (
            ["it is starting: the store is away"],
            [],
        )
    assert [one.message for one in caplog.records] == ["waiting: the store is away"] * 2
    servers[1].stop()
    await stopped
    stage.store.away = False
    await stage.until(lambda: len(servers[0].ownership) == PARTITIONS)
    servers[0].stop()
    await patient


async def test_a_server_without_its_stores_is_not_ready_and_lives(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server = await stage.server()
    status = status_of(server)
    stage.store.away = True
    await stage.pass_time(2 * STUCK_S)
    lacks = await status.reasons_not_ready()
    assert any("leases cannot be renewed" in one for one in lacks) and status.reasons_to_replace() == []
    stage.store.away = False
    await stage.until(lambda: len(server.ownership) == PARTITIONS)
    await stage.pass_time(10)
    assert await status.reasons_not_ready() == []
    assert any("stores unreachable" in one.message for one in caplog.records)
    assert any("the stores answer" in one.message for one in caplog.records)


async def test_a_server_whose_messages_are_refused_is_not_ready_and_tells_it(stage: Stage) -> None:
    why = ["NATS refused noetl.events.3.x.decided: insufficient resources (error 10023)"]
    server = await stage.server()
    status = status_of(server)
    server.ports = dataclasses.replace(server.ports, refusals=lambda: why)
    assert await status.reasons_not_ready() == [f"it cannot store what it decides: {why[0]}"]
    assert server.memory_use().unstored == why


async def test_a_server_that_cannot_commit_says_why_until_it_can(stage: Stage) -> None:
    server = await stage.server()
    server.note_failure(Unreachable("Postgres refuses: its disk is full"))
    assert server.unstored() == ["Postgres refuses: its disk is full"]
    assert (await measured(server))["noetl_server_stores_refusing"] == 1
    await stage.pass_time(FAILED_S + 1)
    assert server.unstored() == []


async def test_a_server_that_has_lost_nats_is_not_ready(stage: Stage) -> None:
    status = ServerStatus(await stage.server(), lambda: False)
    assert await status.reasons_not_ready() == ["it has lost the connection to NATS"]
    assert status.reasons_to_replace() == []


async def test_a_server_whose_loop_hangs_or_whose_tasks_end_is_dead(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await stage.server()
    status = status_of(server)
    server.lasting["upkeep of the stores"] = ended = asyncio.get_running_loop().create_future()
    ended.set_result(None)
    assert status.reasons_to_replace() == ["its task 'upkeep of the stores' has ended"]
    del server.lasting["upkeep of the stores"]

    async def hang(*_: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(server.housekeeping, "run", hang)
    await stage.pass_time(STUCK_S + 1)
    assert [one.partition(" for ")[0] for one in status.reasons_to_replace()] == ["its loop has not turned"]


async def test_work_of_a_server_is_measured(stage: Stage) -> None:
    server = await stage.server(reconcile_s=2.0)
    before = await measured(server)
    assert before["noetl_server_executions_ended_total failed"] == 0, "a rate is known from the first failure on"
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.until(lambda: server.counts.issued)
    assert (await measured(server))["noetl_server_states"] == 1
    (command_id,) = await stage.broker.command_queue.present()
    stage.broker.command_queue.lose(command_id)
    await stage.until(lambda: server.counts.reconciled)
    stage.start_worker()
    await stage.ended(EXECUTION)
    await stage.request("execution-2", "request-2", FAILS)
    await stage.ended("execution-2")
    await stage.request("execution-3", "request-3", before_and_after(rest(1)))
    await stage.ended("execution-3")
    stage.broker.event_log.store_stray(next(iter(server.ownership.ids)), "not.one!", b"\x00\xff")
    await stage.until(lambda: server.counts.dead_letters["events"])
    still = unmoved(
        before,
        await measured(server),
        "noetl_server_inputs_total events",
        "noetl_server_inputs_total own",
        "noetl_server_ticks_total",
        "noetl_server_turn_duration_seconds_count",
        "noetl_server_commit_duration_seconds_count",
        "noetl_server_rows_written_total event",
        "noetl_server_rows_written_total execution",
        "noetl_server_rows_written_total feed",
        "noetl_server_rows_written_total dead_letter",
        "noetl_server_dead_letters_total events",
        "noetl_server_executions_started_total",
        "noetl_server_executions_ended_total completed",
        "noetl_server_executions_ended_total failed",
        "noetl_server_commands_issued_total",
        "noetl_server_commands_reissued_total",
        "noetl_server_commands_reconciled_total",
    )
    assert still == []


async def test_partitions_that_come_and_go_are_measured(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    first = await stage.server()
    assert (await measured(first))["noetl_server_partitions_taken_over_total"] == PARTITIONS
    assert (await measured(first))["noetl_server_partitions"] == PARTITIONS
    assert (await measured(first))["noetl_server_round_trip_seconds Postgres"] >= 0
    await stage.server_beside(first)
    assert (await measured(first))["noetl_server_partitions_released_total"] == PARTITIONS / 2
    await stage.pass_time(1.5)  # its cursors have moved past the fences of the second
    stage.expire(*first.ownership.ids)
    await stage.store.real.take_over("stranger", 60.0, 2)
    await stage.until(lambda: first.counts.lost)
    assert (await measured(first))["noetl_server_partitions_lost_total"] == 2
    shown = [(one.message.split(" ")[0], getattr(one, "partitions", None)) for one in caplog.records]
    assert f"took over {PARTITIONS} partitions, {PARTITIONS} now" in caplog.messages
    assert ("released", list(range(PARTITIONS // 2, PARTITIONS))) in shown


async def test_states_in_memory_are_measured(stage: Stage) -> None:
    stage.states = StateBounds(max_bytes=1, snapshot_every=4)
    server = await stage.server()
    stage.start_worker()
    before = await measured(server)
    await stage.request(EXECUTION, "request-1", GATE)
    await stage.until(lambda: EXECUTION in stage.tables.executions)
    for number in range(8):
        await stage.ask(EXECUTION, CtxPatched(f"patch-{number}", patch={"n": number}))
    await is_waiting(stage, EXECUTION)
    await stage.until(lambda: server.executions.evictions)
    for key, row in stage.tables.snapshots.items():
        stage.tables.snapshots[key] = replace(row, body=b"{}")
    await stage.ask(EXECUTION, CtxPatched("last", patch={"n": 9}))
    assert (
        unmoved(
            before,
            await measured(server),
            "noetl_server_states_evicted_total",
            "noetl_server_snapshots_written_total",
            "noetl_server_snapshots_thrown_away_total",
            "noetl_server_timers",
            "noetl_memory_bytes server states",
        )
        == []
    )


async def test_a_failed_execution_has_one_line_with_the_kind_of_its_error(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.server()
    stage.start_worker()
    execution_id = await stage.submit(FAILS)
    assert await stage.submit(ONE_STEP)
    await stage.ended(execution_id)
    (line,) = [one for one in caplog.records if one.message == "execution failed"]
    fields = vars(line)
    assert (fields["execution"], fields["path"], fields["kind"]) == (
        execution_id,
        "simulation/fails",
        "expression_error",
    )
    assert len(fields["trace_id"]) == 32
    (line,) = [one for one in caplog.records if one.message == "task failed"]
    fields = vars(line)
    assert (fields["execution"], fields["step"], fields["attempt"]) == (execution_id, "only", 1)
    assert fields["kind"] == "expression_error"
    assert not any("division by zero" in str(vars(one)) for one in caplog.records), "a message may hold a secret"


async def test_an_execution_that_is_set_aside_is_measured(stage: Stage) -> None:
    def refuse(tick: Any) -> PayloadRefused | None:
        return PayloadRefused("too wide") if (EXECUTION, "step.done") in events_in(tick) else None

    server = await stage.server()
    stage.store.before_commit = refuse
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.until(lambda: server.counts.quarantined)
    assert (await measured(server))["noetl_server_executions_quarantined_total"] == 1


async def test_a_slow_tick_is_logged(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "SLOW_TURN_S", 0.0)
    await stage.server()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.until(lambda: any(one.message.startswith("slow tick") for one in caplog.records))
    line = next(one for one in caplog.records if one.message.startswith("slow tick"))
    assert vars(line).keys() >= {"seconds", "messages", "behind"}
