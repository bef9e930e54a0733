from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from worker_stage import Endless, Stage, inputs_of, numbers_without_holes

from noetl_stream.engine.decide.loops import PAGE_BYTES
from noetl_stream.model.events import (
    Fact,
    LoopDone,
    LoopIterationDone,
    LoopIterationFailed,
    LoopIterationStarted,
    LoopStarted,
    StepFailed,
    TaskProcessed,
    Wait,
)
from noetl_stream.model.json import codec
from noetl_stream.model.json.codec import payload_of
from noetl_stream.model.limits import Limits
from noetl_stream.model.messages import Go, LoopProgress, Progress, StepCommand
from noetl_stream.model.outcome import ErrorInfo, Outcome, Payload, Reference, StepValue
from noetl_stream.tools.contract import ToolCall, ToolFailure

CITIES = [{"name": "x", "hotels": ["x0", "x1"]}, {"name": "y", "hotels": ["y0"]}]


def nested(outer: str = "{}", inner: str = "{}", hotels: str = "{{ city.hotels }}", spec: str = "{}") -> str:
    return f"""
- step: start
  spec: {spec}
  loop:
    in: [1]
    iterator: city
    spec: {outer}
    loop:
      in: "{hotels}"
      iterator: hotel
      spec: {inner}
  tool:
  - name: act
    kind: puppet
    hotel: "{{{{ hotel }}}}"
    iter: "{{{{ iter }}}}"
"""


AT_ONCE = "{mode: parallel, exec: local, max_in_flight: 2}"


async def run(stage: Stage, text: str, items: list[Any] | None = None, **changes: Any) -> StepCommand:
    command = stage.command(stage.plan(text), items=CITIES if items is None else items, **changes)
    await stage.start()
    await stage.issue(command)
    return command


def loop_facts(stage: Stage) -> list[Fact]:
    kinds = LoopStarted | LoopIterationStarted | LoopIterationDone | LoopIterationFailed | LoopDone
    return [fact for fact in stage.facts if isinstance(fact, kinds)]


def fails_for(hotel: str) -> Any:
    async def act(call: ToolCall) -> str:
        if call.inputs["hotel"] == hotel:
            raise ToolFailure(ErrorInfo("exception", f"{hotel} is closed"))
        return "done"

    return act


async def test_a_nested_loop_reports_its_levels_in_order(stage: Stage) -> None:
    await run(stage, nested())
    run_id, worker = "steprun-1", "worker-1"
    assert loop_facts(stage) == [
        LoopStarted(run_id, 2, local=True),
        LoopIterationStarted((0,), worker),
        LoopStarted(run_id, 2, items=["x0", "x1"], local=True, path=(0,)),
        LoopIterationStarted((0, 0), worker),
        LoopIterationDone((0, 0)),
        LoopIterationStarted((0, 1), worker),
        LoopIterationDone((0, 1)),
        LoopDone(run_id, 2, 2, 0, 0, path=(0,)),
        LoopIterationStarted((1,), worker),
        LoopStarted(run_id, 1, items=["y0"], local=True, path=(1,)),
        LoopIterationStarted((1, 0), worker),
        LoopIterationDone((1, 0)),
        LoopDone(run_id, 1, 1, 0, 0, path=(1,)),
        LoopDone(run_id, 2, 2, 0, 0),
    ]
    assert numbers_without_holes(stage.reports)
    assert await stage.queued() == set()


async def test_iter_is_the_innermost_level_and_its_parents_are_around_it(stage: Stage) -> None:
    await run(stage, nested(), CITIES[:1])
    assert stage.puppet.calls[1].inputs["iter"] == {
        "hotel": "x1",
        "index": 1,
        "count": 2,
        "parent": {"city": CITIES[0], "index": 0, "count": 1},
    }


async def test_a_mapping_runs_over_its_keys_and_values(stage: Stage) -> None:
    items = [{"hotels": {"one": 1, "two": 2}}]
    await run(stage, nested(), items)
    assert inputs_of(stage.puppet.calls, "hotel") == [{"key": "one", "value": 1}, {"key": "two", "value": 2}]


async def test_an_empty_inner_loop_is_done_at_once(stage: Stage) -> None:
    await run(stage, nested(), [{"hotels": []}])
    assert stage.names == ["loop.started", "loop.iteration.started", "loop.started", "loop.done", "loop.done"]
    assert stage.facts[-2:] == [LoopDone("steprun-1", 0, 0, 0, 0, path=(0,)), LoopDone("steprun-1", 1, 1, 0, 0)]


async def test_each_level_runs_no_more_at_once_than_it_may(stage: Stage) -> None:
    stage.puppet.acts["act"] = endless = Endless()
    cities = [{"hotels": [f"{city}{hotel}" for hotel in range(3)]} for city in "xyz"]
    await run(stage, nested(AT_ONCE, AT_ONCE), cities, max_in_flight=2)
    assert sorted(inputs_of(stage.puppet.calls, "hotel")) == ["x0", "x1", "y0", "y1"]
    endless.release.set()
    await stage.settle(300)
    assert len(stage.puppet.calls) == 9
    assert stage.facts[-1] == LoopDone("steprun-1", 3, 3, 0, 0)


async def test_an_inner_window_may_be_a_template_over_the_iteration_around(stage: Stage) -> None:
    inner = "{mode: parallel, exec: local, max_in_flight: '{{ city.at_once }}'}"
    await run(stage, nested(inner=inner), [{"hotels": [1, 2, 3], "at_once": 3}])
    assert [fact.max_in_flight for fact in stage.facts if isinstance(fact, LoopStarted)] == [1, 3]


async def test_an_inner_loop_reads_references_args_steps_and_its_own_ctx(stage: Stage) -> None:
    data = codec.encode({"hotels": ["far", "away"]})
    await stage.broker.blobs.put("some/key", data)
    other = StepValue(Outcome("ok", Payload(reference=Reference("nats", "some/key", len(data)))))
    hotels = "{{ other.hotels + args.more + [ctx.seen | default('none'), city] }}"
    text = nested(hotels=hotels) + (
        "    spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {seen: '{{ hotel }}'}}}}]}}\n"
        "  next: {arcs: [{step: other}]}\n"
        "- step: other\n  tool: {kind: noop}\n"
    )
    await run(stage, text, ["x", "y"], args={"more": ["m"]}, steps={"other": other})
    found = inputs_of(stage.puppet.calls, "hotel")
    assert found == ["far", "away", "m", "none", "x", "far", "away", "m", "x", "y"]


@pytest.mark.parametrize(
    ("hotels", "reason"),
    [("{{ city.rooms }}", "rooms"), ("{{ city.name }}", "must be a list or a mapping"), ("{{ city.hotels / 0 }}", "")],
)
async def test_an_inner_loop_over_nothing_that_can_be_known_fails_the_iteration_around_it(
    stage: Stage, hotels: str, reason: str
) -> None:
    await run(stage, nested(hotels=hotels))
    failed = stage.facts[-1]
    assert isinstance(failed, StepFailed) and failed.error.kind == "expression_error"
    assert reason in failed.error.message
    assert stage.puppet.calls == []


async def test_best_effort_continues_after_an_iteration_whose_inner_loop_cannot_open(stage: Stage) -> None:
    best_effort = "{policy: {failure: {mode: best_effort}}}"
    cities = [{"name": "x"}, *CITIES[1:]]
    await run(stage, nested(outer=best_effort), cities)
    assert [fact.path for fact in stage.facts if isinstance(fact, LoopIterationFailed)] == [(0,)]
    assert stage.facts[-1] == LoopDone("steprun-1", 2, 1, 1, 0, failed_leaves=1)
    assert inputs_of(stage.puppet.calls, "hotel") == ["y0"]


async def test_an_inner_loop_over_a_lost_result_fails_the_step_and_names_it(stage: Stage) -> None:
    lost = StepValue(Outcome("ok", Payload(reference=Reference("nats", "lost/key", 100))))
    other = "  next: {arcs: [{step: other}]}\n- step: other\n  tool: {kind: noop}\n"
    await run(stage, nested(hotels="{{ other.hotels }}") + other, steps={"other": lost})
    failed = stage.facts[-1]
    assert isinstance(failed, StepFailed) and failed.error.kind == "result_lost"
    assert "lost/key" in failed.error.message


async def test_an_inner_window_that_is_not_a_number_fails_the_step(stage: Stage) -> None:
    inner = "{mode: parallel, exec: local, max_in_flight: '{{ city.name }}'}"
    await run(stage, nested(inner=inner))
    failed = stage.facts[-1]
    assert isinstance(failed, StepFailed) and "max_in_flight" in failed.error.message


async def test_inner_items_too_many_for_an_event_are_paged_out_before_the_loop_starts(stage: Stage) -> None:
    await run(stage, nested(), limits=Limits(max_loop_items_bytes=8))
    inner = [fact for fact in stage.facts if isinstance(fact, LoopStarted) and fact.path]
    assert [(fact.count, fact.items, len(fact.pages)) for fact in inner] == [(2, [], 1), (1, ["y0"], 0)]
    assert codec.decode_json(await stage.blobs.get(inner[0].pages[0].reference.key)) == ["x0", "x1"]
    assert inputs_of(stage.puppet.calls, "hotel") == ["x0", "x1", "y0"]


async def test_an_inner_loop_that_was_paged_out_continues_from_its_pages(stage: Stage) -> None:
    await run(stage, nested(), limits=Limits(max_loop_items_bytes=8))
    (first, *_) = [fact.pages for fact in stage.facts if isinstance(fact, LoopStarted) and fact.path]
    stage.puppet.calls.clear()
    plan = next(iter(stage.plans.plans.values()))
    stands = LoopProgress(inner={0: LoopProgress(low=1, ok=1, items=[], pages=first)})
    command = stage.command(plan, items=CITIES, segment=1, resume=Go(0, loop=stands))
    await stage.issue(msgspec.structs.replace(command, command_id="command-2"))
    assert inputs_of(stage.puppet.calls, "hotel") == ["x1", "y0"]


async def test_more_pages_than_a_loop_may_have_fail_the_step_and_name_the_limit(stage: Stage) -> None:
    items = [{"hotels": ["x" * PAGE_BYTES] * 3}]
    await run(stage, nested(), items, limits=Limits(max_loop_items_bytes=8, max_loop_pages=2))
    failed = stage.facts[-1]
    assert isinstance(failed, StepFailed) and failed.error.kind == "limit_exceeded"
    assert "limits.max_loop_pages is 2" in failed.error.message


async def test_an_inner_loop_that_cannot_open_ends_what_runs_beside_it(stage: Stage) -> None:
    stage.puppet.acts["act"] = Endless()
    await run(stage, nested(AT_ONCE), [{"hotels": ["x0"]}, {}], max_in_flight=2)
    assert stage.puppet.cancelled == ["act"]
    assert isinstance(stage.facts[-1], StepFailed)


async def test_a_failure_inside_ends_the_enclosing_levels_one_by_one(stage: Stage) -> None:
    stage.puppet.acts["act"] = fails_for("x1")
    await run(stage, nested())
    failures = [(fact.path, fact.error.index) for fact in stage.facts if isinstance(fact, LoopIterationFailed)]
    assert failures == [((0, 1), None), ((0,), 1)]
    assert inputs_of(stage.puppet.calls, "hotel") == ["x0", "x1"]
    failed = stage.facts[-1]
    assert isinstance(failed, StepFailed)
    assert (failed.error.kind, failed.error.index, failed.error.task) == ("exception", 0, "act")


async def test_an_inner_level_may_continue_where_the_outer_one_does_not(stage: Stage) -> None:
    stage.puppet.acts["act"] = fails_for("x0")
    await run(stage, nested(inner="{policy: {failure: {mode: best_effort}}}"))
    assert inputs_of(stage.puppet.calls, "hotel") == ["x0", "x1", "y0"]
    dones = [fact for fact in stage.facts if isinstance(fact, LoopDone)]
    assert dones[0] == LoopDone("steprun-1", 2, ok=1, failed=1, skipped=0, path=(0,), failed_leaves=1)
    assert dones[-1] == LoopDone("steprun-1", 2, ok=2, failed=0, skipped=0, failed_leaves=1)


async def test_the_outer_level_may_continue_where_the_inner_one_does_not(stage: Stage) -> None:
    stage.puppet.acts["act"] = fails_for("x0")
    outer, inner = "{policy: {failure: {mode: best_effort}}}", "{policy: {failure: {mode: fail_fast}}}"
    await run(stage, nested(outer, inner))
    assert inputs_of(stage.puppet.calls, "hotel") == ["x0", "y0"]
    failures = [fact.path for fact in stage.facts if isinstance(fact, LoopIterationFailed)]
    assert failures == [(0, 0), (0,)]
    assert stage.facts[-1] == LoopDone("steprun-1", 2, ok=1, failed=1, skipped=0, failed_leaves=1)


async def test_a_failure_cancels_iterations_of_other_branches(stage: Stage) -> None:
    bad, endless = fails_for("x1"), Endless()

    async def act(call: ToolCall) -> Any:
        return await (bad(call) if call.inputs["hotel"] == "x1" else endless(call))

    stage.puppet.acts["act"] = act
    await run(stage, nested(AT_ONCE, AT_ONCE), max_in_flight=2)
    assert stage.puppet.cancelled == ["act"] * 2
    assert isinstance(stage.facts[-1], StepFailed)
    assert await stage.queued() == set()


async def test_a_failure_is_reported_when_all_that_it_cancels_has_ended_at_every_level(stage: Stage) -> None:
    """The inner level waits for a tool that takes its time to end when the outer level fails, too."""
    ends, fails = asyncio.Event(), asyncio.Event()

    async def act(call: ToolCall) -> Any:
        if call.inputs["hotel"] == "x1":
            raise ToolFailure(ErrorInfo("exception", "x1 is closed"))
        if call.inputs["hotel"] == "y0":
            await fails.wait()
            raise ToolFailure(ErrorInfo("exception", "y0 is closed"))
        try:
            return await asyncio.Event().wait()
        finally:
            await ends.wait()

    stage.puppet.acts["act"] = act
    await run(stage, nested(AT_ONCE, AT_ONCE), max_in_flight=2)
    fails.set()
    await stage.settle()
    await stage.advance(0.1)
    assert [fact.path for fact in stage.facts if isinstance(fact, LoopIterationFailed)] == [(0, 1), (1, 0), (1,)]
    assert "step.failed" not in stage.names
    ends.set()
    await stage.settle()
    assert stage.names[-1] == "step.failed"
    assert await stage.queued() == set()


COUNTING = """seen: "{{ vars.seen | default(0) }}"
    total: "{{ ctx.total | default('') }}"
    spec:
      policy:
        rules:
        - else:
            then:
              do: continue
              set_vars: {seen: "{{ vars.seen | default(0) + 1 }}"}
              set_ctx: {total: "{{ (ctx.total | default('')) ~ hotel }}"}
"""


async def test_variables_and_ctx_pass_through_all_levels_of_an_ordered_loop(stage: Stage) -> None:
    await run(stage, nested().replace('iter: "{{ iter }}"\n', COUNTING))
    assert inputs_of(stage.puppet.calls, "seen") == [0, 1, 2]
    assert inputs_of(stage.puppet.calls, "total") == ["", "x0", "x0x1"]


async def test_three_levels_have_two_parents(stage: Stage) -> None:
    steps = """
- step: start
  loop:
    in: [1]
    iterator: a
    loop:
      in: "{{ a }}"
      iterator: b
      loop:
        in: "{{ b }}"
        iterator: c
  tool: [{name: act, kind: puppet, at: "{{ [iter.parent.parent.index, iter.parent.index, iter.index, c, a] }}"}]
"""
    items = [[[1, 2], [3]], [[4]]]
    await run(stage, steps, items)
    assert inputs_of(stage.puppet.calls, "at") == [
        [0, 0, 0, 1, items[0]],
        [0, 0, 1, 2, items[0]],
        [0, 1, 0, 3, items[0]],
        [1, 0, 0, 4, items[1]],
    ]
    assert [fact.path for fact in stage.facts if isinstance(fact, LoopDone)] == [(0, 0), (0, 1), (0,), (1, 0), (1,), ()]
    assert [fact.path for fact in stage.facts if isinstance(fact, TaskProcessed)][2] == (0, 1, 0)


DISTRIBUTED: Mapping[str, Any] = {"path": (2,), "chain": [{"name": "z"}], "counts": [5]}


async def test_an_iteration_of_a_distributed_level_ends_with_its_inner_loop(stage: Stage) -> None:
    await run(stage, nested(), ["z0", "z1"], **DISTRIBUTED)
    assert loop_facts(stage) == [
        LoopIterationStarted((2,), "worker-1"),
        LoopStarted("steprun-1", 2, local=True, path=(2,)),
        LoopIterationStarted((2, 0), "worker-1"),
        LoopIterationDone((2, 0)),
        LoopIterationStarted((2, 1), "worker-1"),
        LoopIterationDone((2, 1)),
        LoopDone("steprun-1", 2, 2, 0, 0, path=(2,)),
    ]
    parent = {"city": {"name": "z"}, "index": 2, "count": 5}
    assert stage.puppet.calls[1].inputs["iter"] == {"hotel": "z1", "index": 1, "count": 2, "parent": parent}


async def test_an_iteration_of_a_distributed_level_fails_with_its_inner_loop(stage: Stage) -> None:
    stage.puppet.acts["act"] = fails_for("z0")
    await run(stage, nested(), ["z0", "z1"], **DISTRIBUTED)
    failed = stage.facts[-1]
    assert isinstance(failed, LoopIterationFailed)
    assert (failed.path, failed.error.kind) == ((2,), "exception")


async def test_an_iteration_of_two_distributed_levels_knows_both_elements(stage: Stage) -> None:
    command = stage.command(stage.plan(nested()), path=(2, 1), chain=[{"name": "z"}, "z1"], counts=[5, 3])
    await stage.start()
    await stage.issue(command)
    parent = {"city": {"name": "z"}, "index": 2, "count": 5}
    assert stage.puppet.calls[0].inputs["iter"] == {"hotel": "z1", "index": 1, "count": 3, "parent": parent}
    assert stage.names[-1] == "loop.iteration.done"


TWO_BEGUN = LoopProgress(
    inner={
        0: LoopProgress(low=1, ok=1, items=["x0", "x1"]),
        1: LoopProgress(items=["old"]),
    }
)


async def test_a_run_that_takes_over_continues_at_every_level(stage: Stage) -> None:
    await stage.answer_claims(lambda report: Go(loop=TWO_BEGUN))
    await run(stage, nested(AT_ONCE, AT_ONCE), max_in_flight=2, issue=2)
    assert sorted(inputs_of(stage.puppet.calls, "hotel")) == ["old", "x1"]
    assert "loop.started" not in stage.names
    dones = {fact.path: fact for fact in stage.facts if isinstance(fact, LoopDone)}
    assert dones[(0,)] == LoopDone("steprun-1", 2, 2, 0, 0, path=(0,))
    assert dones[(1,)].count == 1
    assert stage.facts[-1] == LoopDone("steprun-1", 2, 2, 0, 0)


async def test_a_run_that_takes_over_a_broken_inner_loop_only_ends_it(stage: Stage) -> None:
    error = ErrorInfo("timeout", "too slow", index=1)
    broken = LoopProgress(inner={0: LoopProgress(low=2, ok=1, failed=1, first_error=error, items=["x0", "x1", "x2"])})
    await stage.answer_claims(lambda report: Go(loop=broken))
    await run(stage, nested(), issue=2)
    assert stage.puppet.calls == []
    assert stage.facts[-2:] == [
        LoopIterationFailed((0,), error),
        StepFailed("steprun-1", ErrorInfo("timeout", "too slow", index=0)),
    ]


async def test_a_run_that_takes_over_an_inner_loop_that_has_ended_only_reports_the_end(stage: Stage) -> None:
    over = LoopProgress(inner={0: LoopProgress(low=2, ok=2, items=["x0", "x1"])})
    await stage.answer_claims(lambda report: Go(loop=over))
    await run(stage, nested(), CITIES[:1], issue=2)
    assert stage.puppet.calls == []
    assert stage.facts[-2:] == [LoopDone("steprun-1", 2, 2, 0, 0, path=(0,)), LoopDone("steprun-1", 1, 1, 0, 0)]


WAITING = nested().replace(
    "  - name: act\n",
    '  - {name: rest, kind: wait, signal: "go-{{ hotel }}", timeout_s: 60}\n  - name: act\n',
)


def waiting(path: tuple[int, ...], hotel: str, **changes: Any) -> Wait:
    return Wait(path, "rest", signal=f"go-{hotel}", timeout_s=60, **changes)


def at_once(steps: str) -> str:
    return steps.replace("    spec: {}\n", f"    spec: {AT_ONCE}\n")


async def test_an_ordered_nested_loop_waits_for_one_thing_at_a_time(stage: Stage) -> None:
    command = await run(stage, WAITING)
    assert stage.waits == [waiting((0, 0), "x0")]
    inner = LoopProgress(items=["x0", "x1"])
    go = Go(1, loop=LoopProgress(inner={0: inner}), answers={"0.0": Outcome("ok", payload_of(1))})
    await stage.resume(command, go)
    assert stage.waits == [waiting((0, 1), "x1")]
    assert inputs_of(stage.puppet.calls, "hotel") == ["x0"]


async def test_waits_of_all_branches_are_gathered(stage: Stage) -> None:
    command = await run(stage, at_once(WAITING), max_in_flight=2)
    assert stage.waits == [waiting((0, 0), "x0"), waiting((0, 1), "x1"), waiting((1, 0), "y0")]
    noted = {"0.0": waiting((0, 0), "x0", since_ms=5), "0.1": waiting((0, 1), "x1", since_ms=5)}
    inner = {0: LoopProgress(items=["x0", "x1"]), 1: LoopProgress(items=["y0"])}
    go = Go(1, loop=LoopProgress(inner=inner), answers={"1.0": Outcome("ok", payload_of(1))}, waits=noted)
    before = len(stage.facts)
    await stage.resume(command, go)
    assert stage.waits == list(noted.values())
    assert [type(fact).__name__ for fact in stage.facts[before:]] == [
        *("LoopIterationStarted", "TaskProcessed", "TaskStarted", "TaskProcessed", "LoopIterationDone"),
        *("LoopDone", "StepSuspended"),
    ]


async def test_a_run_that_takes_over_in_an_inner_iteration_continues_in_it(stage: Stage) -> None:
    two = nested() + "  - {name: after, kind: puppet, act: '{{ act }}'}\n"
    begun = Progress(task="after", runs=1, previous="act", results={"act": Outcome("ok", payload_of("before"))})
    inner = {0: LoopProgress(low=1, ok=1, items=["x0", "x1"])}
    await stage.answer_claims(lambda report: Go(progress={"0.1": begun}, loop=LoopProgress(inner=inner)))
    await run(stage, two, CITIES[:1], issue=2)
    assert [(call.task, call.inputs.get("act")) for call in stage.puppet.calls] == [("after", "before")]


async def test_empty_inner_loops_let_other_commands_run(stage: Stage) -> None:
    await stage.start()
    noop = stage.plan("- step: start\n  tool: {kind: noop}\n")
    cities: list[Any] = [{"hotels": []}] * 2_000
    await stage.issue(stage.command(stage.plan(nested()), items=cities))
    await stage.issue(stage.command(noop, "short", step_run_id="steprun-2"))
    await stage.until(lambda: "step.done" in stage.names)
    assert LoopDone("steprun-1", 2_000, 2_000, 0, 0) not in stage.facts
    await stage.until(lambda: LoopDone("steprun-1", 2_000, 2_000, 0, 0) in stage.facts)
