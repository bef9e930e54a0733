"""Patches, signals, tokens, pause, resume and cancel, and what becomes of the execution (LANGUAGE §9)."""

from __future__ import annotations

from typing import Any

from server_stage import Stage
from waiting_stage import (
    EXECUTION,
    GATE,
    LostMessages,
    answer_row,
    before_and_after,
    begin_gate,
    error_of,
    hear,
    is_waiting,
    publish,
    result_of,
    signal,
    whole,
)

from noetl_stream.model.events import (
    CancelRequested,
    CtxPatched,
    PauseRequested,
    ResumeRequested,
    RetryNowRequested,
    TokenInjected,
)
from noetl_stream.model.json import codec
from noetl_stream.protocol import subjects
from noetl_testkit.simulation.work import playbook, work

# --- while an older server runs ---


async def test_a_request_that_an_older_server_could_not_read_is_refused_while_one_runs(stage: Stage) -> None:
    server = await stage.server()
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", GATE)
    await is_waiting(stage, EXECUTION)
    await stage.store.real.appear("older", "0.3.0", 2, 3600.0)
    await stage.until(lambda: not server.formats.know_aggregates)
    refused = await stage.ask(EXECUTION, RetryNowRequested("now"))
    assert isinstance(refused, str) and refused.startswith("a server of an older version still runs")
    assert isinstance(await stage.ask(EXECUTION, CtxPatched("p1", patch={"open": True})), dict)


# --- patches ---


async def ctx_of(stage: Stage) -> Any:
    row = await stage.store.real.execution(EXECUTION)
    assert row is not None
    return codec.decode_json(row.ctx)


async def test_a_flat_patch_sets_whole_keys_and_a_merge_goes_deep(stage: Stage) -> None:
    await begin_gate(stage)
    await stage.ask(EXECUTION, CtxPatched("p1", patch={"order": {"a": 1, "b": 2}, "none": None}))
    assert await ctx_of(stage) == {"order": {"a": 1, "b": 2}, "none": None}
    await stage.ask(EXECUTION, CtxPatched("p2", patch={"order": {"b": 3, "c": 4}, "none": None}, merge=True))
    assert await ctx_of(stage) == {"order": {"a": 1, "b": 3, "c": 4}}
    await stage.ask(EXECUTION, CtxPatched("p3", patch={"order": {"a": 5}}))
    assert await ctx_of(stage) == {"order": {"a": 5}}


async def test_a_patch_lets_a_held_token_in(stage: Stage) -> None:
    await begin_gate(stage)
    await stage.ask(EXECUTION, CtxPatched("p1", patch={"open": True}))
    assert result_of(await stage.ended(EXECUTION)) == {"open": True}


async def test_a_patch_of_another_version_than_it_expects_changes_nothing(stage: Stage) -> None:
    await begin_gate(stage)
    first = await stage.ask(EXECUTION, CtxPatched("p1", patch={"a": 1}))
    assert isinstance(first, dict)
    right = CtxPatched("p2", patch={"a": 2}, expected_version=first["position"])
    second = await stage.ask(EXECUTION, right)
    assert isinstance(second, dict)
    refused = await stage.ask(EXECUTION, CtxPatched("p3", patch={"a": 3}, expected_version=first["position"]))
    assert refused == f"ctx is at version {second['position']}, not {first['position']}: read it again"
    assert await ctx_of(stage) == {"a": 2}


async def test_one_of_two_patches_that_expect_the_same_version_is_refused(stage: Stage) -> None:
    await begin_gate(stage)
    for name in ("p1", "p2"):
        await publish(stage, CtxPatched(name, patch={name: 1}, expected_version=1))
    await stage.pass_time(1)
    answers = [(await answer_row(stage, name))["ok"] for name in ("p1", "p2")]
    assert answers == [True, False]


async def test_a_patch_that_would_make_ctx_too_large_is_refused_and_nothing_fails(stage: Stage) -> None:
    await begin_gate(stage)
    refused = await stage.ask(EXECUTION, CtxPatched("p1", patch={"a": "x" * 2000}))
    assert isinstance(refused, str)
    assert "limits.max_ctx_bytes is 2000" in refused and "ctx would have 20" in refused
    assert (await is_waiting(stage, EXECUTION)).status == "waiting"


# --- signals ---


async def test_signals_wait_for_their_wait_first_in_first_out(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    tasks = [{**hear(), "name": f"hear_{n}"} for n in range(3)]
    tasks.append({"name": "tell", **work(["{{ hear_0 }}", "{{ hear_1 }}", "{{ hear_2 }}"])})
    await stage.request(EXECUTION, "request-1", playbook("ear", [{"step": "ear", "tool": tasks}]))
    for n in range(3):
        await stage.ask(EXECUTION, signal(n, n))
    assert result_of(await stage.ended(EXECUTION)) == [0, 1, 2]


async def test_a_signal_that_many_wait_for_wakes_the_oldest_alone(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    loop = {"in": [0, 1, 2, 3], "iterator": "n", "spec": {"mode": "parallel"}}
    tasks = [{"name": "late", **work(0, "{{ iter.n }}")}, hear(), {"name": "tell", **work("{{ hear }}")}]
    await stage.request(EXECUTION, "request-1", playbook("ears", [{"step": "ear", "loop": loop, "tool": tasks}]))
    await is_waiting(stage, EXECUTION)
    for n in range(4):
        await stage.ask(EXECUTION, signal(n, f"signal {n}"))
    assert result_of(await stage.ended(EXECUTION)) == [f"signal {n}" for n in range(4)]


async def test_too_many_queued_signals_are_refused(stage: Stage) -> None:
    await begin_gate(stage)
    answers = [await stage.ask(EXECUTION, signal(n)) for n in range(5)]
    assert [isinstance(answer, dict) for answer in answers] == [True, True, True, False, False]
    assert answers[-1] == "3 signals are already queued (limits.max_queued_signals)"


# --- tokens ---


async def test_an_injected_token_runs_its_step_with_its_args(stage: Stage) -> None:
    await begin_gate(stage)
    await stage.ask(EXECUTION, TokenInjected("t", step="aside", args={"n": [1]}))
    await stage.pass_time(1)
    assert [effect.step for effect in stage.effects] == ["aside"]
    names = await whole(stage, EXECUTION)
    assert names.count("step.done") == 1


async def test_a_token_for_an_unknown_step_is_refused_with_the_known_ones(stage: Stage) -> None:
    await begin_gate(stage)
    refused = await stage.ask(EXECUTION, TokenInjected("t", step="asied"))
    assert refused == "playbook simulation/gate has no step asied; it has gate, aside"


async def test_args_that_are_too_large_are_refused(stage: Stage) -> None:
    await begin_gate(stage)
    refused = await stage.ask(EXECUTION, TokenInjected("t", step="aside", args={"n": "x" * 2000}))
    assert isinstance(refused, str) and "limits.max_ctx_bytes is 2000" in refused


# --- pause, resume, cancel ---


async def test_pause_and_resume_are_so_already_the_second_time(stage: Stage) -> None:
    await begin_gate(stage)
    assert await stage.ask(EXECUTION, ResumeRequested("r0")) == {"execution_id": EXECUTION, "already": True}
    assert "position" in await stage.ask(EXECUTION, PauseRequested("p1"))
    assert (await stage.store.real.execution(EXECUTION)).status == "paused"  # type: ignore[union-attr]
    assert await stage.ask(EXECUTION, PauseRequested("p2")) == {"execution_id": EXECUTION, "already": True}
    assert "position" in await stage.ask(EXECUTION, ResumeRequested("r1"))
    assert await stage.ask(EXECUTION, ResumeRequested("r2")) == {"execution_id": EXECUTION, "already": True}
    assert (await stage.store.real.execution(EXECUTION)).status == "waiting"  # type: ignore[union-attr]


async def test_a_paused_execution_starts_nothing_and_takes_everything(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    arcs = {"arcs": [{"step": "second"}]}
    steps = [{"step": "first", "tool": work(1, 2.0), "next": arcs}, {"step": "second", "tool": work("{{ ctx.a }}")}]
    await stage.request(EXECUTION, "request-1", playbook("two", steps))
    await stage.until(lambda: stage.effects)
    await stage.ask(EXECUTION, PauseRequested("p"))
    await stage.pass_time(10)
    assert [effect.step for effect in stage.effects] == ["first"]
    assert isinstance(await stage.ask(EXECUTION, CtxPatched("c", patch={"a": "patched"})), dict)
    assert isinstance(await stage.ask(EXECUTION, TokenInjected("t", step="second")), dict)
    await stage.pass_time(10)
    assert [effect.step for effect in stage.effects] == ["first"]
    await stage.ask(EXECUTION, ResumeRequested("r"))
    row = await stage.ended(EXECUTION)
    assert result_of(row) == "patched"
    assert [effect.step for effect in stage.effects].count("second") == 2


async def test_a_local_loop_stops_at_its_next_iteration_and_continues_where_it_was(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    loop = {"in": list(range(10)), "iterator": "n", "spec": {"mode": "sequential"}}
    steps = [{"step": "walk", "loop": loop, "tool": work("{{ iter.n }}", 1.0)}]
    await stage.request(EXECUTION, "request-1", playbook("walk", steps))
    await stage.until(lambda: len(stage.effects) == 3)
    await stage.ask(EXECUTION, PauseRequested("p"))
    await stage.pass_time(20)
    assert len(stage.effects) == 3
    stage.start_worker()
    await stage.ask(EXECUTION, ResumeRequested("r"))
    assert result_of(await stage.ended(EXECUTION)) == list(range(10))
    assert set(stage.effects.values()) == {1} and len(stage.effects) == 10


async def test_an_order_to_pause_that_was_lost_goes_out_again_with_the_next_report(stage: Stage) -> None:
    stage.start_server(stage.host("server", LostMessages(subjects.STOP, 1)))
    stage.start_worker()
    loop = {"in": list(range(10)), "iterator": "n", "spec": {"mode": "sequential"}}
    steps = [{"step": "walk", "loop": loop, "tool": work("{{ iter.n }}", 1.0)}]
    await stage.request(EXECUTION, "request-1", playbook("walk", steps))
    await stage.until(lambda: len(stage.effects) == 3)
    await stage.ask(EXECUTION, PauseRequested("p"))
    await stage.pass_time(20)
    assert len(stage.effects) <= 5
    await stage.ask(EXECUTION, ResumeRequested("r"))
    assert result_of(await stage.ended(EXECUTION)) == list(range(10))


async def test_an_order_to_stop_that_was_lost_goes_out_again_with_the_next_report(stage: Stage) -> None:
    stage.start_server(stage.host("server", LostMessages(subjects.STOP, 1)))
    stage.start_worker()
    tasks = [{"name": f"task_{n}", **work(1, 2.0)} for n in range(10)]
    await stage.request(EXECUTION, "request-1", playbook("long", [{"step": "long", "tool": tasks}]))
    await stage.pass_time(1)
    await stage.ask(EXECUTION, CancelRequested("c"))
    assert (await stage.ended(EXECUTION, 5)).status == "cancelled"


async def test_a_loop_that_pauses_while_one_iteration_waits_continues_with_the_others(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    loop = {
        "in": list(range(6)),
        "iterator": "n",
        "spec": {"mode": "parallel", "exec": "local", "max_in_flight": 2},
    }
    tasks: list[dict[str, Any]] = [
        {
            "name": "choose",
            **work("{{ iter.n }}", 1.0),
            "spec": {
                "policy": {"rules": [{"when": "{{ iter.n > 0 }}", "then": {"do": "jump", "to": "tell"}}]},
            },
        },
        hear(),
        {"name": "tell", **work("{{ iter.n }}", 1.0)},
    ]
    await stage.request(EXECUTION, "request-1", playbook("some", [{"step": "some", "loop": loop, "tool": tasks}]))
    await stage.pass_time(2.5)
    await stage.ask(EXECUTION, PauseRequested("p"))
    await stage.pass_time(20)
    await stage.ask(EXECUTION, ResumeRequested("r"))
    await stage.pass_time(30)
    done = {effect.idempotency_key for effect in stage.effects}
    assert len(done) == 6 + 5, "the others of the loop do not wait for the signal"
    await stage.ask(EXECUTION, signal())
    assert result_of(await stage.ended(EXECUTION)) == list(range(6))


async def test_cancel_stops_what_runs_and_what_waits(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    both = {"spec": {"mode": "inclusive"}, "arcs": [{"step": "ear"}, {"step": "long"}]}
    steps: list[dict[str, Any]] = [
        {"step": "start", "next": both},
        {"step": "ear", "tool": [hear()]},
        {"step": "long", "tool": work(1, 1000.0)},
    ]
    await stage.request(EXECUTION, "request-1", playbook("both", steps))
    await stage.until(lambda: stage.effects)
    await stage.ask(EXECUTION, CancelRequested("c", reason="enough"))
    row = await stage.ended(EXECUTION, 5)
    assert (row.status, error_of(row)["message"]) == ("cancelled", "enough")
    for fact in (signal(), CtxPatched("p", patch={"a": 1}), CancelRequested("again")):
        assert await stage.ask(EXECUTION, fact) == f"execution {EXECUTION} has ended (cancelled)"


async def test_during_a_cancel_a_second_one_is_redundant_and_the_rest_is_refused(stage: Stage) -> None:
    server = await stage.server()
    worker = stage.start_worker()
    await stage.request(EXECUTION, "request-1", playbook("long", [{"step": "long", "tool": work(1, 1000.0)}]))
    await stage.pass_time(1)
    worker.freeze()  # it does not answer: the grace has to run out
    assert "position" in await stage.ask(EXECUTION, CancelRequested("c1"))
    assert await stage.ask(EXECUTION, CancelRequested("c2")) == {"execution_id": EXECUTION, "already": True}
    for fact in (CtxPatched("p", patch={"a": 1}), signal(), PauseRequested("p2"), TokenInjected("t", step="long")):
        assert await stage.ask(EXECUTION, fact) == f"execution {EXECUTION} is being cancelled"
    server.stop()
    await stage.server()
    row = await stage.ended(EXECUTION, 40)
    assert row.status == "cancelled"


async def test_a_paused_execution_can_be_cancelled(stage: Stage) -> None:
    await begin_gate(stage)
    await stage.ask(EXECUTION, PauseRequested("p"))
    await stage.ask(EXECUTION, CancelRequested("c"))
    assert (await stage.ended(EXECUTION, 5)).status == "cancelled"


async def test_a_hundred_executions_are_signalled_in_bulk_over_two_servers(stage: Stage) -> None:
    first = await stage.server()
    await stage.server_beside(first)
    for _ in range(3):
        stage.start_worker()
    ids = [f"execution-{n}" for n in range(100)]
    for one in ids:
        await stage.request(one, f"request-{one}", before_and_after(hear()))
    for one in ids:
        await is_waiting(stage, one)
    for one in ids:
        await publish(stage, signal(), one)
    for one in ids:
        assert result_of(await stage.ended(one)) == "kept"
    assert set(stage.effects.values()) == {1}
    assert len(stage.effects) == 200
