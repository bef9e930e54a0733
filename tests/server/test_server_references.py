from __future__ import annotations

from typing import Any

import pytest
from server_stage import Stage, once
from waiting_stage import EXECUTION, Dies, error_of, hear, result_of, signal, whole

from noetl_stream.errors import Fenced, NoetlError, NotReady, OutcomeUnknown
from noetl_stream.model.events import CancelRequested, CtxPatched, PauseRequested, ReferenceAwaited, ResumeRequested
from noetl_testkit.entries import names_in
from noetl_testkit.simulation.host import FaultInjector, SimulatedHost
from noetl_testkit.simulation.work import playbook, work

SMALL = {"spec": {"policy": {"limits": {"max_inline_bytes": 300}}}}
LARGE = [{"n": n, "text": "x" * 20} for n in range(40)]


def branching(guard: str = "{{ (big | length) == 40 }}", **more: Any) -> str:
    """A step with a large result, and an arc whose guard looks into it."""
    steps: list[dict[str, Any]] = [
        {
            "step": "big",
            "tool": work(LARGE),
            "next": {"arcs": [{"step": "large", "when": guard}, {"step": "small"}]},
        },
        {"step": "large", "tool": work("{{ big[39].n }}")},
        {"step": "small", "tool": work("small")},
    ]
    return playbook("branching", steps, **{"executor": SMALL, **more})


async def starts(stage: Stage, source: str, execution_id: str = EXECUTION) -> None:
    await stage.request(execution_id, f"request-{execution_id}", source)


async def parks(stage: Stage, execution_id: str = EXECUTION) -> str:
    """The key of the reference it looks into, once it does."""
    rows = stage.tables.executions
    await stage.until(lambda: execution_id in rows and rows[execution_id].looks_into)
    return str(rows[execution_id].looks_into)


class Slow(FaultInjector):
    """Once there is an execution, one kind of call takes its time, as long as ``takes_s`` says."""

    def __init__(self, stage: Stage, point: str, takes_s: float) -> None:
        self.point = point
        self.takes_s = takes_s
        self._stage = stage

    async def inject(self, host: SimulatedHost, point: str) -> None:
        if point == self.point and self._stage.tables.executions:
            await self._stage.clock.sleep(self.takes_s)


def slow_server(stage: Stage, takes_s: float) -> Slow:
    injector = Slow(stage, "blobs.get", takes_s)
    stage.start_server(stage.host("server", injector))
    return injector


async def test_a_guard_reads_a_large_result(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    await starts(stage, branching())
    await starts(stage, branching("{{ (big | length) == 41 }}"), "execution-2")
    assert result_of(await stage.ended(EXECUTION)) == 39
    assert result_of(await stage.ended("execution-2")) == "small"
    names = await whole(stage, EXECUTION)
    assert names.index("reference.awaited") < names.index("reference.resolved") < names.index("next.evaluated")


async def test_an_execution_that_reads_a_result_names_it_in_its_row(stage: Stage) -> None:
    slow_server(stage, 5.0)
    stage.start_worker()
    await starts(stage, branching())
    key = await parks(stage)
    (awaited,) = [fact for fact in await stage.facts(EXECUTION) if isinstance(fact, ReferenceAwaited)]
    assert awaited.reference.key == key and awaited.reference.checksum.startswith("sha256:")
    await stage.ended(EXECUTION)
    row = await stage.store.real.execution(EXECUTION)
    assert row is not None and row.looks_into is None


async def test_while_it_looks_facts_are_folded_and_nothing_is_decided(stage: Stage) -> None:
    slow_server(stage, 5.0)
    stage.start_worker()
    source = branching("{{ (big | length) == 40 and ctx.late is defined }}")
    await starts(stage, source)
    await parks(stage)
    answer = await stage.ask(EXECUTION, CtxPatched("late", patch={"late": True}))
    assert isinstance(answer, dict)
    assert "next.evaluated" not in await whole(stage, EXECUTION)
    assert result_of(await stage.ended(EXECUTION)) == 39
    names = await whole(stage, EXECUTION)
    order = ["reference.awaited", "ctx.patched", "reference.resolved", "next.evaluated"]
    assert sorted(order, key=names.index) == order


async def test_other_executions_continue_while_a_reference_is_loaded(stage: Stage) -> None:
    slow = slow_server(stage, 0.0)
    stage.start_worker()
    quick = playbook("quick", [{"step": "only", "tool": work("quick")}])
    for number, source in enumerate((quick, branching())):
        await starts(stage, source, f"known-{number}")
        await stage.ended(f"known-{number}")
    slow.takes_s = 30.0
    await starts(stage, branching())
    await parks(stage)
    await starts(stage, quick, "execution-2")
    assert result_of(await stage.ended("execution-2", 2)) == "quick"
    assert result_of(await stage.ended(EXECUTION)) == 39


async def test_the_successor_of_a_dead_server_loads_its_pending_result(stage: Stage) -> None:
    _, host, _ = stage.start_server(stage.host("server", Slow(stage, "blobs.get", 1e9)))
    stage.start_worker()
    await starts(stage, branching())
    await parks(stage)
    host.kill()
    await stage.server()
    assert result_of(await stage.ended(EXECUTION)) == 39
    assert (await whole(stage, EXECUTION)).count("reference.awaited") == 1


@pytest.mark.parametrize("point", ["store.commit", "store.commit.done"])
async def test_a_server_that_dies_with_the_value_in_its_hand_is_replaced(stage: Stage, point: str) -> None:
    injector = Dies(point, 10**9)
    slow = Slow(stage, "blobs.get", 3.0)

    class Both(FaultInjector):
        async def inject(self, host: SimulatedHost, at: str) -> None:
            await slow.inject(host, at)
            await injector.inject(host, at)

    stage.start_server(stage.host("server", Both()))
    stage.start_worker()
    await starts(stage, branching())
    await parks(stage)
    injector.left = 1
    await stage.until(lambda: injector.left == 0)
    await stage.server()
    assert result_of(await stage.ended(EXECUTION)) == 39
    assert (await whole(stage, EXECUTION)).count("reference.resolved") == 1
    assert set(stage.effects.values()) == {1}


@pytest.mark.parametrize("error", [Fenced("another has it"), OutcomeUnknown("no answer")], ids=["fenced", "unknown"])
@pytest.mark.parametrize("committed", [False, True], ids=["not committed", "committed"])
async def test_a_value_whose_tick_went_wrong_is_looked_up_again(
    stage: Stage, error: NoetlError, committed: bool
) -> None:
    await stage.server()
    stage.start_worker()
    wrong = once(error, lambda tick: "reference.resolved" in names_in(tick))
    if committed:
        stage.store.after_commit = wrong
    else:
        stage.store.before_commit = wrong
    await starts(stage, branching())
    assert result_of(await stage.ended(EXECUTION)) == 39
    assert set(stage.effects.values()) == {1}


async def test_a_result_that_is_lost_fails_the_execution_by_name(stage: Stage) -> None:
    slow = slow_server(stage, 5.0)
    stage.start_worker()
    await starts(stage, branching())
    stage.broker.blobs.lose(await parks(stage))
    slow.takes_s = 0
    row = await stage.ended(EXECUTION)
    assert (row.status, error_of(row)["kind"]) == ("failed", "result_lost")
    assert "cannot read a result of" in error_of(row)["message"]


async def test_a_result_that_has_changed_counts_as_lost(stage: Stage) -> None:
    slow_server(stage, 5.0)
    stage.start_worker()
    await starts(stage, branching())
    key = await parks(stage)
    stage.broker.blobs.lose(key)
    await stage.broker.blobs.put(key, b"[]")
    row = await stage.ended(EXECUTION)
    assert (error_of(row)["kind"], "its checksum differs" in error_of(row)["message"]) == ("result_lost", True)


async def test_a_deleted_object_store_ends_the_server_with_an_error(stage: Stage) -> None:
    class Gone(FaultInjector):
        async def inject(self, host: SimulatedHost, point: str) -> None:
            if point == "blobs.get" and stage.tables.executions:
                raise NotReady("there is no stream OBJ_noetl-results")

    _, _, task = stage.start_server(stage.host("server", Gone()))
    stage.start_worker()
    await starts(stage, branching())
    with pytest.raises(NotReady, match="there is no stream"):
        await task
    await stage.server()
    assert result_of(await stage.ended(EXECUTION)) == 39


async def test_an_object_store_that_is_away_is_waited_for(stage: Stage) -> None:
    slow_server(stage, 3.0)
    stage.start_worker()
    await starts(stage, branching())
    await parks(stage)
    stage.broker.stop()
    await stage.pass_time(20)
    stage.broker.start()
    assert result_of(await stage.ended(EXECUTION)) == 39


async def test_a_database_that_is_away_while_a_loop_is_gathered_is_waited_for(stage: Stage) -> None:
    slow = Slow(stage, "store.iteration_results", 3.0)
    stage.start_server(stage.host("server", slow))
    stage.start_worker()
    loop = {"in": list(range(40)), "iterator": "n", "spec": {"mode": "parallel"}}
    arcs = {"arcs": [{"step": "sum", "when": "{{ (all | length) == 40 }}"}]}
    steps = [{"step": "all", "loop": loop, "tool": work("x" * 20), "next": arcs}, {"step": "sum", "tool": work("yes")}]
    await starts(stage, playbook("gathers", steps, executor=SMALL))
    await parks(stage)
    stage.store.away = True
    await stage.pass_time(10)
    stage.store.away = False
    assert result_of(await stage.ended(EXECUTION)) == "yes"


@pytest.mark.parametrize("restarted", [False, True], ids=["same server", "another server"])
async def test_a_paused_execution_may_read_a_result_and_decides_on_resume(stage: Stage, restarted: bool) -> None:
    slow = Slow(stage, "blobs.get", 5.0)
    _, host, _ = stage.start_server(stage.host("server", slow))
    stage.start_worker()
    await starts(stage, branching())
    await parks(stage)
    assert isinstance(await stage.ask(EXECUTION, PauseRequested("pause")), dict)
    if restarted:
        host.kill()
        await stage.server()
    await stage.pass_time(20)
    row = await stage.store.real.execution(EXECUTION)
    assert row is not None and row.status == "paused"
    await stage.ask(EXECUTION, ResumeRequested("resume"))
    assert result_of(await stage.ended(EXECUTION)) == 39


async def test_an_execution_cancelled_while_it_looks_ends(stage: Stage) -> None:
    slow_server(stage, 1e6)
    stage.start_worker()
    await starts(stage, branching())
    await parks(stage)
    await stage.ask(EXECUTION, CancelRequested("cancel"))
    assert (await stage.ended(EXECUTION, 5)).status == "cancelled"


async def test_a_signal_that_comes_while_it_looks_is_not_lost(stage: Stage) -> None:
    steps: list[dict[str, Any]] = [
        {"step": "start", "next": {"spec": {"mode": "inclusive"}, "arcs": [{"step": "ear"}, {"step": "big"}]}},
        {"step": "ear", "tool": [hear()]},
        {"step": "big", "tool": work(LARGE, 1.0), "next": {"arcs": [{"step": "end", "when": "{{ big[0].n == 0 }}"}]}},
        {"step": "end", "tool": work("end")},
    ]
    slow_server(stage, 5.0)
    stage.start_worker()
    await starts(
        stage, playbook("both", steps, "{{ ear }}", executor={"spec": {**SMALL["spec"], "result": "{{ ear }}"}})
    )
    await parks(stage)
    await stage.ask(EXECUTION, signal(payload="heard"))
    assert result_of(await stage.ended(EXECUTION)) == "heard"


DOORS: dict[str, tuple[list[dict[str, Any]], Any]] = {
    "args of an arc": (
        [
            {"step": "big", "tool": work(LARGE), "next": {"arcs": [{"step": "last", "args": {"n": "{{ big[3].n }}"}}]}},
            {"step": "last", "tool": work("{{ args.n }}")},
        ],
        3,
    ),
    "in of an inner distributed loop": (
        [
            {"step": "big", "tool": work(LARGE), "next": {"arcs": [{"step": "each"}]}},
            {
                "step": "each",
                "loop": {
                    "in": [1],
                    "iterator": "batch",
                    "spec": {"mode": "parallel"},
                    "loop": {"in": "{{ big[:3] }}", "iterator": "one", "spec": {"mode": "parallel"}},
                },
                "tool": work("{{ iter.one.n }}"),
            },
        ],
        [[0, 1, 2]],
    ),
    "in of an inner local loop": (
        [
            {"step": "big", "tool": work(LARGE), "next": {"arcs": [{"step": "each"}]}},
            {
                "step": "each",
                "loop": {
                    "in": [1],
                    "iterator": "batch",
                    "spec": {"mode": "parallel"},
                    "loop": {"in": "{{ big[:3] }}", "iterator": "one", "spec": {"mode": "sequential"}},
                },
                "tool": work("{{ iter.one.n }}"),
            },
        ],
        [[0, 1, 2]],
    ),
    "admission": (
        [
            {"step": "big", "tool": work(LARGE), "next": {"arcs": [{"step": "gate"}]}},
            {
                "step": "gate",
                "spec": {
                    "policy": {"admit": {"rules": [{"when": "{{ steps.big[5].n == 5 }}", "then": {"allow": True}}]}}
                },
                "tool": work("in"),
            },
        ],
        "in",
    ),
    "two results at once": (
        [
            {"step": "big", "tool": work(LARGE), "next": {"arcs": [{"step": "bigger"}]}},
            {
                "step": "bigger",
                "tool": work([*LARGE, *LARGE]),
                "next": {"arcs": [{"step": "last", "when": "{{ (big | length) * 2 == (bigger | length) }}"}]},
            },
            {"step": "last", "tool": work("both")},
        ],
        "both",
    ),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("restarted", [False, True], ids=["same server", "another server"])
async def test_every_server_side_expression_reads_large_results(stage: Stage, door: str, restarted: bool) -> None:
    steps, expected = DOORS[door]
    slow = Slow(stage, "blobs.get", 2.0)
    _, host, _ = stage.start_server(stage.host("server", slow))
    stage.start_worker()
    await starts(stage, playbook("doors", steps, executor=SMALL))
    await parks(stage)
    if restarted:
        host.kill()
        await stage.server()
    row = await stage.ended(EXECUTION)
    assert (row.status, result_of(row)) == ("completed", expected), row.error


async def test_the_result_of_an_execution_may_read_a_large_one(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    spec = {**SMALL["spec"], "result": {"last": "{{ big[39].n }}"}}
    await starts(stage, playbook("ends", [{"step": "big", "tool": work(LARGE)}], executor={"spec": spec}))
    assert result_of(await stage.ended(EXECUTION)) == {"last": 39}


async def test_a_result_above_the_limit_of_the_server_is_an_error_that_says_what_to_do(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    spec = {"spec": {"policy": {"limits": {"max_inline_bytes": 300, "max_resolve_bytes": 400}}}}
    await starts(stage, branching(executor=spec))
    error = error_of(await stage.ended(EXECUTION))
    assert error["kind"] == "expression_error"
    assert "limits.max_resolve_bytes" in error["message"] and "set_ctx" in error["message"]
