"""What a gateway tells probes and Prometheus at its status address."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack

import pytest
from gateway_playbooks import APPROVAL
from gateway_stage import GatewayStage
from openapi_checks import Described

from measured import samples_in, samples_of, unmoved
from noetl_stream.errors import Unreachable
from noetl_stream.gateway.gateway import Gateway
from noetl_stream.model.ids import PARTITIONS
from noetl_stream.model.status import LIVE
from noetl_stream.operations.views.index import MAX_INDEX_BYTES
from noetl_stream.ports.self_reports import StoreUse
from noetl_stream.ports.stores.identities import Caller
from noetl_stream.ports.streams.command_queue import QueuedCommand, QueuedPool


async def measured(gateway: Gateway) -> dict[str, float]:
    return samples_of(await gateway.status.readings())


async def test_a_gateway_is_ready_while_all_answer_and_until_it_stops(
    stage: GatewayStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = stage.gateway.status
    assert (await status.reasons_not_ready(), status.reasons_to_replace()) == ([], ())

    async def away() -> None:
        raise Unreachable("the database is away")

    monkeypatch.setattr(stage.store, "verify", away)
    assert (await status.reasons_not_ready(), status.reasons_to_replace()) == (["Postgres does not answer"], ())
    stage.gateway.stop()
    assert await status.reasons_not_ready() == ("it is stopping",)


async def test_requests_are_measured(stage: GatewayStage, api: Described) -> None:
    before = await measured(stage.gateway)
    assert (await api.call("ready")).status == 200
    async with stage.client.get("/nowhere") as nothing:
        assert nothing.status == 404
    grown = ("noetl_gateway_requests_total ready 200", "noetl_gateway_request_duration_seconds_count ready")
    assert unmoved(before, await measured(stage.gateway), *grown, "noetl_gateway_requests_total none 404") == []


async def test_calls_in_progress_are_measured(stage: GatewayStage) -> None:
    pressure, caller = stage.gateway.pressure, Caller("token:ann", "admin")
    gates = {
        "noetl_gateway_requests_in_flight": pressure.requests,
        "noetl_gateway_waits": pressure.waits,
        "noetl_gateway_open_streams": pressure.streams,
        "noetl_gateway_large_bodies": pressure.large_bodies,
        "noetl_gateway_checks": pressure.checks,
    }
    at_rest = await measured(stage.gateway)
    with ExitStack() as entered:
        for gate in gates.values():
            entered.enter_context(gate.entered(caller, "10.0.0.1"))
        entered.enter_context(pressure.held.counted(1000, "token:ann"))
        busy = await measured(stage.gateway)
    assert {name: busy[name] - at_rest[name] for name in gates} == dict.fromkeys(gates, 1)
    assert busy["noetl_memory_bytes gateway requests"] - at_rest["noetl_memory_bytes gateway requests"] == 1000


async def test_the_memory_of_indexes_is_measured(stage: GatewayStage, api: Described) -> None:
    before = await measured(stage.gateway)
    assert before["noetl_memory_bytes gateway indexes"] == 0
    assert before["noetl_memory_limit_bytes gateway indexes"] == MAX_INDEX_BYTES
    started = await api.call("startExecution", body={"playbook": APPROVAL, "workload": {"amount": 250}})
    timeline = await api.call("getTimeline", execution_id=started.body["execution_id"])
    assert timeline.status == 200
    assert (await measured(stage.gateway))["noetl_memory_bytes gateway indexes"] > 0


async def test_measures_of_the_whole_system_are_served_by_every_gateway(stage: GatewayStage, api: Described) -> None:
    started = await api.call("startExecution", body={"playbook": APPROVAL, "workload": {"amount": 250}})
    await stage.until(lambda: bool(stage.gateway.pressure.partitions))

    async def is_waiting() -> bool:
        return (await measured(stage.gateway))["noetl_executions waiting"] == 1

    await stage.until(is_waiting)
    seen = await measured(stage.gateway)
    assert {status: seen[f"noetl_executions {status}"] for status in LIVE} == dict.fromkeys(LIVE, 0) | {"waiting": 1}
    assert {seen[f"noetl_partition_lag {partition}"] for partition in range(PARTITIONS)} == {0}
    assert (seen["noetl_partitions_unowned"], seen["noetl_executions_stuck"]) == (0, 0)
    assert (seen["noetl_pool_workers default"], seen["noetl_pool_slots default"]) == (1, 8)
    assert started.status == 202


async def test_waiting_commands_are_measured_by_priority(stage: GatewayStage) -> None:
    queue = stage.broker.command_queue
    commands = [QueuedCommand("gpu", f"run-{n}", f"c{n}", 1, b"{}", priority) for n, priority in enumerate((9, 5, 5))]
    await queue.issue(commands, queue.fences)
    seen = await measured(stage.gateway)
    waiting = {
        name: count for name, count in seen.items() if name.startswith("noetl_pool_commands_waiting_by_priority")
    }
    assert waiting == {
        "noetl_pool_commands_waiting_by_priority gpu 9": 1,
        "noetl_pool_commands_waiting_by_priority gpu 5": 2,
    }


async def test_the_age_of_the_oldest_command_of_a_pool_is_measured(stage: GatewayStage) -> None:
    queue = stage.broker.command_queue
    await queue.issue([QueuedCommand("gpu", "run-1", "c1", 1, b"{}")], queue.fences)
    began_ms = stage.clock.now_ms()

    async def is_old() -> bool:
        seen = await measured(stage.gateway)
        age_s = (stage.clock.now_ms() - began_ms) / 1000
        assert seen.get("noetl_pool_oldest_command_age_seconds default", 0) == 0
        return 0.5 < seen.get("noetl_pool_oldest_command_age_seconds gpu", 0) <= age_s + 1

    await stage.until(is_old)


async def test_dead_letters_are_measured_until_they_are_settled(stage: GatewayStage) -> None:
    assert (await measured(stage.gateway))["noetl_dead_letters events"] == 0
    stage.broker.event_log.store_stray(0, "not.one!", b"\x00\xff")

    async def counted(letters: int) -> bool:
        return (await measured(stage.gateway))["noetl_dead_letters events"] == letters

    await stage.until(lambda: counted(1))
    (letter,) = (await stage.operations.cluster.dead_letters(10, None)).items
    await stage.operations.cluster.discard(letter.id, "token:ann")
    assert await counted(0)


async def test_a_pool_whose_queue_nats_cannot_read_is_measured(
    stage: GatewayStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def pools() -> list[QueuedPool]:
        return [QueuedPool("cpu", 0, 0, 0), QueuedPool("gpu", 0, 0, 0, unreadable="decoding error")]

    monkeypatch.setattr(stage.broker.command_queue, "pools", pools)
    seen = await measured(stage.gateway)
    assert (seen["noetl_pool_unreadable cpu"], seen["noetl_pool_unreadable gpu"]) == (0, 1)


async def test_measures_that_cannot_be_read_are_omitted(stage: GatewayStage, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object) -> None:
        raise Unreachable("away")

    monkeypatch.setattr(stage.store, "living_by_status", away)
    monkeypatch.setattr(stage.broker.command_queue, "pools", away)
    seen = await measured(stage.gateway)
    assert "noetl_gateway_connections" in seen
    assert not [name for name in seen if name.startswith(("noetl_executions", "noetl_pool"))]


async def test_a_caller_with_paths_sees_nothing_of_the_whole_system(stage: GatewayStage) -> None:
    one = Caller("token:team", "viewer", ("team",))
    seen = samples_of(await stage.gateway.status.shown_to(one))
    assert "noetl_gateway_connections" in seen and "noetl_memory_bytes server states" in seen
    assert not [name for name in seen if name.startswith(("noetl_executions", "noetl_pool", "noetl_partition"))]


async def test_metrics_of_a_token_are_those_of_the_status_address_and_what_others_hold(stage: GatewayStage) -> None:
    async with stage.client.get("/livez") as alive:
        assert alive.status == 200
    async with stage.client.get("/metrics") as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        shown = samples_in(await answer.text())
    own = await measured(stage.gateway)
    assert {name.partition(" ")[0] for name in own} <= {name.partition(" ")[0] for name in shown}
    assert "noetl_memory_bytes server states" in shown and "noetl_memory_bytes server states" not in own


async def test_how_full_the_stores_are_is_measured(stage: GatewayStage) -> None:
    class Seen:
        async def watch(self) -> None:
            raise NotImplementedError

        def uses(self) -> list[StoreUse]:
            return [StoreUse("EVENTS", 5, None), StoreUse("all streams", 7, 10, 120.0)]

    status = dataclasses.replace(stage.gateway.status, stores=Seen())
    found = {name: value for name, value in samples_of(await status.readings()).items() if "noetl_store" in name}
    assert found == {
        "noetl_store_bytes EVENTS": 5,
        "noetl_store_bytes all streams": 7,
        "noetl_store_limit_bytes all streams": 10,
        "noetl_store_full_in_seconds all streams": 120,
    }
