from __future__ import annotations

import asyncio
from typing import Any

import pytest
from server_stage import KINDS, Stage, once
from waiting_stage import (
    EXECUTION,
    Dies,
    before_and_after,
    error_of,
    hear,
    is_waiting,
    rest,
    result_of,
    seconds_until,
    signal,
    whole,
)

from noetl_stream.adapters.evaluation.pool import MemoryEvaluator
from noetl_stream.engine.state import LATEST_MS
from noetl_stream.errors import Fenced, NoetlError, OutcomeUnknown
from noetl_stream.model.events import CtxPatched, PauseRequested, ResumeRequested
from noetl_stream.server.assembly import ServerPorts
from noetl_stream.server.inputs import waits
from noetl_stream.server.server import Server
from noetl_stream.storage.sealed_blobs import SealedBlobs
from noetl_testkit.entries import names_in
from noetl_testkit.keys import CAPABILITIES, OBJECT_KEYS, SIGNER
from noetl_testkit.simulation.work import playbook, work

UNKNOWN = OutcomeUnknown("no answer")


class OtherClock:
    """A machine's clock that goes wrong by so many seconds; it shares everything else with the test's."""

    def __init__(self, stage: Stage, wrong_s: float) -> None:
        self.wrong_s = wrong_s
        self._stage = stage

    def now_ms(self) -> int:
        return self._stage.clock.now_ms() + round(self.wrong_s * 1000)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stage.clock, name)


def server_with(stage: Stage, clock: Any) -> Server:
    host = stage.host("server")
    ports = ServerPorts(
        log=host.log,
        queue=host.queue,
        store=host.store,
        blobs=SealedBlobs(host.blobs, OBJECT_KEYS),
        task_logs=host.task_logs,
        bus=host.bus,
        clock=clock,
        catalog=stage.catalog,
        evaluator=MemoryEvaluator(),
        capabilities=CAPABILITIES,
        signer=SIGNER,
    )
    return Server(host.name, ports, KINDS)


def gated(timeout_s: float) -> str:
    """A step without tool, to be let in by a patch of ``ctx``."""
    rules = [{"when": "{{ ctx.open is defined }}", "then": {"allow": True}}]
    admit = {"rules": rules, "wait": {"timeout_s": timeout_s}}
    steps = [{"step": "gate", "spec": {"policy": {"admit": admit}}, "next": {"arcs": [{"step": "last"}]}}]
    return playbook("gated", [*steps, {"step": "last", "next": {"arcs": []}}])


async def starts(stage: Stage, source: str, execution_id: str = EXECUTION) -> None:
    await stage.request(execution_id, f"request-{execution_id}", source)


async def waits_for(stage: Stage, *ids: str) -> list[str]:
    return [timer.purpose for one in ids or (EXECUTION,) for timer in await stage.store.real.timers(one)]


@pytest.mark.parametrize("wrong_s", [-3600.0, -7.0, 0.0, 7.0, 3600.0])
async def test_a_timer_fires_by_the_clock_of_the_store(stage: Stage, wrong_s: float) -> None:
    server = server_with(stage, OtherClock(stage, wrong_s))
    stage.running.append(asyncio.create_task(server.run()))
    stage.start_worker()
    await starts(stage, before_and_after(rest(30)))
    await stage.ended(EXECUTION)
    assert 30 <= await seconds_until(stage, EXECUTION, "timer.fired") < 31


async def test_a_clock_that_drifts_is_compared_again_and_again(stage: Stage) -> None:
    clock = OtherClock(stage, 0)
    stage.running.append(asyncio.create_task(server_with(stage, clock).run()))
    stage.start_worker()
    await starts(stage, before_and_after(rest(60)))
    await is_waiting(stage, EXECUTION)
    for _ in range(50):
        clock.wrong_s -= 0.5
        await stage.pass_time(1)
    await stage.ended(EXECUTION)
    assert 59 <= await seconds_until(stage, EXECUTION, "timer.fired") < 63


async def test_work_before_a_wait_survives_it_and_is_not_repeated(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    await starts(stage, before_and_after(rest(30)))
    await is_waiting(stage, EXECUTION)
    stage.start_worker()
    row = await stage.ended(EXECUTION)
    assert (row.status, result_of(row)) == ("completed", "kept")
    assert sorted(stage.effects.values()) == [1, 1]
    assert {"step.suspended", "timer.set", "timer.fired", "step.resumed"} <= set(await whole(stage, EXECUTION))


async def test_a_timer_is_a_row_until_the_tick_that_folds_its_firing(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    fired: list[bool] = []

    def look(tick: Any) -> NoetlError | None:
        if "timer.fired" in names_in(tick):
            fired.append([key.execution_id for key in tick.timers_gone] == [EXECUTION] and not tick.timers)
        return None

    stage.store.before_commit = look
    await starts(stage, before_and_after(rest(30)))
    await is_waiting(stage, EXECUTION)
    assert await waits_for(stage) == ["wait"]
    await stage.ended(EXECUTION)
    assert fired == [True]
    assert await waits_for(stage) == []


@pytest.mark.parametrize("error", [Fenced("another has it"), UNKNOWN], ids=["fenced", "unknown"])
@pytest.mark.parametrize("committed", [False, True], ids=["not committed", "committed"])
async def test_a_timer_whose_tick_went_wrong_has_fired_exactly_once(
    stage: Stage, error: NoetlError, committed: bool
) -> None:
    await stage.server()
    stage.start_worker()
    wrong = once(error, lambda tick: "timer.fired" in names_in(tick))
    if committed:
        stage.store.after_commit = wrong
    else:
        stage.store.before_commit = wrong
    await starts(stage, before_and_after(rest(30)))
    row = await stage.ended(EXECUTION)
    assert row.status == "completed"
    assert (await whole(stage, EXECUTION)).count("timer.fired") == 1
    assert sorted(stage.effects.values()) == [1, 1]


async def test_a_timer_survives_the_death_of_its_server(stage: Stage) -> None:
    _, host, _ = stage.start_server()
    stage.start_worker()
    await starts(stage, before_and_after(rest(60)))
    await is_waiting(stage, EXECUTION)
    host.kill()
    await stage.server()
    row = await stage.ended(EXECUTION, 120)
    assert (row.status, result_of(row)) == ("completed", "kept")
    assert 60 <= await seconds_until(stage, EXECUTION, "timer.fired") < 61


async def test_a_timer_that_fell_due_while_no_server_lived_fires_when_one_does(stage: Stage) -> None:
    _, host, _ = stage.start_server()
    stage.start_worker()
    await starts(stage, before_and_after(rest(30)))
    await is_waiting(stage, EXECUTION)
    host.kill()
    await stage.pass_time(3600)
    await stage.server()
    row = await stage.ended(EXECUTION)
    assert row.status == "completed"
    assert 3600 <= await seconds_until(stage, EXECUTION, "timer.fired") < 3602


@pytest.mark.parametrize("point", ["store.commit", "store.commit.done"])
async def test_a_server_that_dies_while_a_timer_fires_leaves_it_to_the_next(stage: Stage, point: str) -> None:
    injector = Dies(point, 10**9)
    stage.start_server(stage.host("server", injector))
    stage.start_worker()
    await starts(stage, before_and_after(rest(30)))
    await is_waiting(stage, EXECUTION)
    injector.left = 1
    await stage.until(lambda: injector.left == 0)
    await stage.server()
    row = await stage.ended(EXECUTION)
    assert (row.status, result_of(row)) == ("completed", "kept")
    assert (await whole(stage, EXECUTION)).count("timer.fired") == 1
    assert sorted(stage.effects.values()) == [1, 1]


async def test_timers_go_with_their_partitions_from_one_server_to_another_and_back(stage: Stage) -> None:
    first = await stage.server()
    stage.start_worker()
    ids = [f"execution-{n}" for n in range(40)]
    for one in ids:
        await starts(stage, before_and_after(rest(60)), one)
    for one in ids:
        await is_waiting(stage, one)
    _, second, _ = stage.start_server()
    await stage.until(lambda: len(first.ownership) == 16)
    await stage.pass_time(5)
    second.kill()
    for one in ids:
        assert (await stage.ended(one, 120)).status == "completed"
        assert 60 <= await seconds_until(stage, one, "timer.fired") < 61
    assert set(stage.effects.values()) == {1}


async def test_many_timers_that_are_due_at_once_all_fire(stage: Stage) -> None:
    server = await stage.server()
    ids = [f"execution-{n}" for n in range(1200)]
    for one in ids:
        await starts(stage, gated(30), one)
    for one in ids:
        await is_waiting(stage, one)
    server.stop()
    await stage.pass_time(60)
    await stage.server()
    for one in ids:
        assert error_of(await stage.ended(one))["kind"] == "admission_timeout"


@pytest.mark.parametrize("restarted", [False, True], ids=["same server", "another server"])
async def test_a_wait_that_ended_otherwise_leaves_no_timer(stage: Stage, restarted: bool) -> None:
    server = await stage.server()
    stage.start_worker()
    await starts(stage, before_and_after(hear(30)))
    await is_waiting(stage, EXECUTION)
    await stage.ask(EXECUTION, signal())
    await stage.ended(EXECUTION)
    assert await waits_for(stage) == []
    if restarted:
        server.stop()
        await stage.server()
    await stage.pass_time(60)
    assert "timer.fired" not in await whole(stage, EXECUTION)


async def test_a_server_forgets_timers_that_are_no_longer_awaited(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = 100
    monkeypatch.setattr(waits, "FEW", few)
    server = await stage.server()
    await starts(stage, gated(600), "stays")
    await is_waiting(stage, "stays")
    for n in range(2 * few):
        one = f"execution-{n}"
        await starts(stage, gated(1e6), one)
        await stage.ask(one, CtxPatched("open", patch={"open": True}))
    assert len(server.waits) < 3 * few // 2
    assert await waits_for(stage, "stays") == ["admission"]
    assert error_of(await stage.ended("stays", 600))["kind"] == "admission_timeout"


async def test_iterations_of_one_command_whose_time_is_over_together_continue_together(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    spec = {"mode": "parallel", "exec": "local", "max_in_flight": 50}
    loop = {"in": list(range(50)), "iterator": "n", "spec": spec}
    tasks = [rest(30), {"name": "after", **work("{{ iter.n }}")}]
    await starts(stage, playbook("all", [{"step": "all", "loop": loop, "tool": tasks}]))
    assert result_of(await stage.ended(EXECUTION)) == list(range(50))
    names = await whole(stage, EXECUTION)
    assert (names.count("step.suspended"), names.count("timer.set")) == (1, 50)


def limited(seconds: float) -> dict[str, tuple[str, str]]:
    """Every kind of timer a playbook can ask for: a playbook, and the purpose of its timer."""

    def within(lifecycle: str) -> str:
        spec = {"policy": {"lifecycle": {lifecycle: seconds}}}
        return playbook("slow", [{"step": "slow", "spec": spec, "tool": [hear()]}])

    whole_execution = {"spec": {"timeout_s": seconds}}
    return {
        "signal": (before_and_after(hear(seconds)), "wait"),
        "lifecycle": (within("timeout_s"), "step"),
        "deadline": (within("deadline_s"), "deadline"),
        "execution": (playbook("slow", [{"step": "slow", "tool": [hear()]}], executor=whole_execution), "execution"),
        "admission": (gated(seconds), "admission"),
    }


@pytest.mark.parametrize("timed", limited(30))
@pytest.mark.parametrize("pauses", [0, 1, 3])
async def test_time_paused_does_not_count_towards_any_timeout(stage: Stage, timed: str, pauses: int) -> None:
    source, purpose = limited(30)[timed]
    await stage.server()
    stage.start_worker()
    await starts(stage, source)
    await is_waiting(stage, EXECUTION)
    for turn in range(pauses):
        assert isinstance(await stage.ask(EXECUTION, PauseRequested(f"pause-{turn}")), dict)
        await stage.pass_time(100)
        assert purpose in await waits_for(stage)
        assert isinstance(await stage.ask(EXECUTION, ResumeRequested(f"resume-{turn}")), dict)
        await stage.pass_time(1)
    row = await stage.ended(EXECUTION, 400)
    assert row.status == "failed"
    assert "timeout" in error_of(row)["kind"]
    fired_s = await seconds_until(stage, EXECUTION, "timer.fired")
    assert 30 + 100 * pauses <= fired_s < 32 + 101 * pauses
    assert (await whole(stage, EXECUTION)).count("timer.fired") == 1


async def test_a_wait_that_falls_due_while_paused_acts_on_resume(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    await starts(stage, before_and_after(rest(30)))
    await is_waiting(stage, EXECUTION)
    await stage.ask(EXECUTION, PauseRequested("pause"))
    await stage.pass_time(100)
    row = await stage.store.real.execution(EXECUTION)
    assert row is not None and row.status == "paused"
    assert "timer.fired" not in await whole(stage, EXECUTION)
    await stage.ask(EXECUTION, ResumeRequested("resume"))
    assert (await stage.ended(EXECUTION, 5)).status == "completed"


async def test_a_paused_execution_taken_over_fires_nothing_until_it_continues(stage: Stage) -> None:
    _, host, _ = stage.start_server()
    stage.start_worker()
    await starts(stage, before_and_after(hear(30)))
    await is_waiting(stage, EXECUTION)
    await stage.ask(EXECUTION, PauseRequested("pause"))
    await stage.pass_time(1)
    host.kill()
    await stage.pass_time(1000)
    await stage.server()
    await stage.pass_time(100)
    assert "timer.fired" not in await whole(stage, EXECUTION)
    await stage.ask(EXECUTION, ResumeRequested("resume"))
    await stage.pass_time(20)
    assert "timer.fired" not in await whole(stage, EXECUTION)
    await stage.ask(EXECUTION, signal(payload="late"))
    assert result_of(await stage.ended(EXECUTION)) == "kept"


async def test_a_long_retry_delay_frees_the_worker_and_survives_a_takeover(stage: Stage) -> None:
    rule = {"when": "{{ outcome.status == 'error' }}", "then": {"do": "retry", "attempts": 3, "delay": 60}}
    tasks = [{"name": "try", **work("at last", failures=2), "spec": {"policy": {"rules": [rule]}}}]
    _, host, _ = stage.start_server()
    stage.start_worker(slots=1)
    await starts(stage, playbook("stubborn", [{"step": "try", "tool": tasks}]))
    await is_waiting(stage, EXECUTION)
    await starts(stage, playbook("other", [{"step": "other", "tool": work("quick")}]), "execution-2")
    assert result_of(await stage.ended("execution-2", 5)) == "quick"
    host.kill()
    await stage.server()
    row = await stage.ended(EXECUTION, 200)
    assert (row.status, result_of(row)) == ("completed", "at last")
    assert sorted(effect.attempt for effect in stage.effects if effect.execution_id == EXECUTION) == [1, 2, 3]


@pytest.mark.parametrize("seconds", [1e12, 1e17, 1.7e308])
@pytest.mark.parametrize("timed", [*limited(30), "time", "delay"])
async def test_a_wait_longer_than_any_calendar_stops_no_server(stage: Stage, timed: str, seconds: float) -> None:
    rule = {"when": "{{ outcome.status == 'error' }}", "then": {"do": "retry", "attempts": 2, "delay": seconds}}
    tried = {
        **work(1, failures=1),
        "spec": {"policy": {"rules": [{**rule, "then": rule["then"] | {"max_delay": seconds}}]}},
    }
    others = {
        "time": before_and_after(rest(seconds)),
        "delay": playbook("tries", [{"step": "try", "tool": [{"name": "try", **tried}]}]),
    }
    await stage.server()
    stage.start_worker()
    await starts(stage, others.get(timed) or limited(seconds)[timed][0])
    await is_waiting(stage, EXECUTION)
    due = [timer.due_ms for timer in await stage.store.real.timers(EXECUTION)]
    assert due and max(due) == LATEST_MS
    await stage.ask(EXECUTION, PauseRequested("pause"))
    await stage.pass_time(10)
    await stage.ask(EXECUTION, ResumeRequested("resume"))
    assert max(timer.due_ms for timer in await stage.store.real.timers(EXECUTION)) == LATEST_MS
    assert not stage.running[0].done()
