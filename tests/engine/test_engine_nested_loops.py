"""LANGUAGE §6: loops inside loops, at any depth and in any placement; long lists; large results."""

from __future__ import annotations

import sys
from itertools import pairwise, product
from random import Random
from statistics import median
from typing import Any

import pytest
from engine_scenarios import limits, started

from noetl_stream.engine.advance import advance
from noetl_stream.engine.state import LoopState, RecordedFact
from noetl_stream.model.events import (
    LoopDone,
    LoopIterationFailed,
    NextEvaluated,
    Path,
    StepCancelled,
    StepFailed,
    StepScheduled,
)
from noetl_stream.model.json.codec import encode
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.diagnostics import InvalidPlaybook
from noetl_testkit.scenario.scenario import Scenario

SEQUENTIAL, PARALLEL = "mode: sequential", "mode: parallel"
PLACES = [f"{mode}, exec: {place}" for mode, place in product((SEQUENTIAL, PARALLEL), ("local", "distributed"))]
BEST = ", policy: {failure: {mode: best_effort}}"


def nested(
    outer: str = PARALLEL, inner: str = PARALLEL, items: str = "[[1, 2], [], [3]]", arcs: str = "", root: str = ""
) -> Scenario:
    """A step that loops over rows, and over each row's cells."""
    routing = f"\n  next: {{arcs: [{arcs}]}}" if arcs else ""
    return started(
        f"""
- step: start
  loop:
    in: {items}
    iterator: row
    spec: {{{outer}}}
    loop: {{in: "{{{{ row }}}}", iterator: cell, spec: {{{inner}}}}}
  tool:
    kind: noop
    args: {{at: ["{{{{ iter.parent.index }}}}", "{{{{ iter.index }}}}"], cell: "{{{{ cell }}}}"}}{routing}
- step: after
  tool: {{kind: noop}}
- step: rescue
  tool: {{kind: noop}}
""",
        root,
    )


def work_off(scenario: Scenario, seed: int = 0) -> None:
    """Runs what is owed, in some order, until nothing is."""
    random = Random(seed)
    while scenario.execution.assignments:
        step, index = random.choice(scenario.working)
        run = scenario.take(step, index=index)
        if scenario.owed(step, index).run is not None:
            scenario.claim(run)
        run.begin()
        while not run.over:
            run.answer(path=random.choice(run.ready))


def cells(*rows: list[int]) -> list[Any]:
    return [[{"at": [i, j], "cell": cell} for j, cell in enumerate(row)] for i, row in enumerate(rows)]


# --- placements -------------------------------------------------------------------------------------------------------


def is_allowed(places: tuple[str, ...]) -> bool:
    """Inside a local level all is local."""
    return not any("local" in around and "distributed" in inside for around, inside in pairwise(places))


@pytest.mark.parametrize(("outer", "inner"), [pair for pair in product(PLACES, PLACES) if is_allowed(pair)])
def test_two_levels_give_a_list_of_lists_wherever_they_run(outer: str, inner: str) -> None:
    for seed in range(3):
        scenario = nested(outer, inner)
        work_off(scenario, seed)
        assert scenario.result == cells([1, 2], [], [3])
        assert scenario.replayed() == scenario.state


@pytest.mark.parametrize("places", [places for places in product(PLACES, repeat=3) if is_allowed(places)])
def test_three_levels_give_the_same_wherever_they_run(places: tuple[str, ...]) -> None:
    scenario = started(
        f"""
        - step: start
          loop:
            in: {{a: [[1, 2], [3]], b: []}}
            iterator: city
            spec: {{{places[0]}}}
            loop:
              in: "{{{{ city.value }}}}"
              iterator: hotel
              spec: {{{places[1]}}}
              loop: {{in: "{{{{ hotel }}}}", iterator: page, spec: {{{places[2]}}}}}
          tool:
            kind: noop
            args:
              name: "{{{{ city.key }}}}"
              path: "{{{{ [iter.parent.parent.index, iter.parent.index, iter.index] }}}}"
              counts: "{{{{ [iter.parent.parent.count, iter.parent.count, iter.count] }}}}"
              page: "{{{{ page }}}}"
        """
    )
    work_off(scenario, seed=len(places[0]))
    at = {"name": "a"}
    assert scenario.result == [
        [
            [
                at | {"path": [0, 0, 0], "counts": [2, 2, 2], "page": 1},
                at | {"path": [0, 0, 1], "counts": [2, 2, 2], "page": 2},
            ],
            [at | {"path": [0, 1, 0], "counts": [2, 2, 1], "page": 3}],
        ],
        [],
    ]


def test_distributed_levels_are_one_command_an_innermost_iteration() -> None:
    scenario = nested(items="[[1, 2], [3]]")
    assert scenario.working == [("start", (0, 0)), ("start", (0, 1)), ("start", (1, 0))]
    command = scenario.take("start", index=(0, 1)).command
    assert (command.chain, command.counts, command.items) == ([[1, 2], 2], [2, 2], None)


def test_a_local_level_inside_a_distributed_one_is_one_command_an_outer_iteration() -> None:
    scenario = nested(PARALLEL, SEQUENTIAL, items="[[1, 2], [3]]")
    assert scenario.working == [("start", 0), ("start", 1)]
    command = scenario.take("start", index=0).command
    assert (command.chain, command.counts, command.items) == ([[1, 2]], [2], [1, 2])


def test_a_level_inside_a_local_one_is_local_and_cannot_be_written_otherwise() -> None:
    assert nested(SEQUENTIAL + ", exec: local", PARALLEL).working == [("start", None)]
    with pytest.raises(InvalidPlaybook, match="distributed"):
        nested(SEQUENTIAL + ", exec: local", PARALLEL + ", exec: distributed")


def test_windows_of_both_levels_bound_what_is_in_flight() -> None:
    outer, inner = PARALLEL + ", max_in_flight: 2", PARALLEL + ', max_in_flight: "{{ row[0] }}"'
    scenario = nested(outer, inner, items="[[1, 5, 5], [2, 5, 5], [3, 5]]")
    assert scenario.working == [("start", (0, 0)), ("start", (1, 0)), ("start", (1, 1))]
    for index in (0, 1, 2):
        scenario.done("start", index=(0, index))
    assert scenario.working[-2:] == [("start", (2, 0)), ("start", (2, 1))]


def test_a_sequential_outer_level_begins_its_next_inner_loop_when_the_one_before_has_ended() -> None:
    scenario = nested(SEQUENTIAL + ", exec: distributed", PARALLEL, items="[[1, 2], [3, 4]]")
    scenario.done("start", index=(0, 1))
    assert scenario.working == [("start", (0, 0))]
    scenario.done("start", index=(0, 0))
    assert scenario.working == [("start", (1, 0)), ("start", (1, 1))]


def test_the_in_of_an_inner_level_is_evaluated_when_that_level_starts() -> None:
    scenario = started(
        """
        - step: start
          loop:
            in: [1, 2]
            iterator: n
            spec: {mode: sequential, exec: distributed}
            loop: {in: "{{ range(n + (ctx.more | default(0))) | list }}", iterator: m, spec: {mode: sequential}}
          tool:
            name: work
            kind: noop
            args: {m: "{{ m }}"}
            spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {more: "{{ m + 1 }}"}}}}]}}
        """
    )
    work_off(scenario)
    assert scenario.result == [[{"m": 0}], [{"m": 0}, {"m": 1}, {"m": 2}]]


@pytest.mark.parametrize("outer", [place for place in PLACES if "distributed" in place])
@pytest.mark.parametrize("inner", PLACES)
def test_levels_that_are_all_empty_end_at_once(outer: str, inner: str) -> None:
    scenario = nested(outer, inner, items="[[], [], []]", arcs='{step: after, args: {loop: "{{ event.loop }}"}}')
    assert scenario.working == [("after", None)]
    command = scenario.take("after").command
    assert command.args == {"loop": {"count": 3, "ok": 3, "failed": 0, "skipped": 0, "failed_leaves": 0}}
    assert [fact.path for fact in scenario.facts(LoopDone)] == [(0,), (1,), (2,), ()]


def test_inner_ends_are_events_only_and_the_outermost_is_routed() -> None:
    scenario = nested(arcs="{step: after, when: \"{{ event.name == 'loop.done' }}\"}")
    work_off(scenario)
    assert scenario.names.count("loop.done") == 4
    assert [fact.event for fact in scenario.facts(NextEvaluated)] == ["loop.done", "step.done"]


@pytest.mark.parametrize("inner", [PARALLEL, SEQUENTIAL])
def test_an_inner_in_that_cannot_be_evaluated_fails_the_iteration_around_it(inner: str) -> None:
    scenario = nested(PARALLEL + BEST, inner, items="[[1], 7, [2]]")
    work_off(scenario)
    assert scenario.result == [[{"at": [0, 0], "cell": 1}], None, [{"at": [2, 0], "cell": 2}]]
    (failed,) = scenario.facts(LoopIterationFailed)
    assert failed.path == (1,) and failed.error.kind == "expression_error"


@pytest.mark.parametrize("outer", PLACES)
def test_and_under_fail_fast_the_step(outer: str) -> None:
    scenario = nested(outer, SEQUENTIAL, items="[[1], 7, [2]]")
    work_off(scenario)
    assert (scenario.status, scenario.error.kind, scenario.error.index) == ("failed", "expression_error", 1)


# --- failure ----------------------------------------------------------------------------------------------------------


def rows(*failing: Path) -> Any:
    """Runs every owed command; those of the named iterations fail."""

    def run(scenario: Scenario) -> None:
        while "start" in dict(scenario.working):
            step, index = scenario.working[0]
            taken = scenario.take(step, index=index)
            taken.begin()
            while not taken.over:
                taken.answer(error=ErrorInfo("exception", "it broke") if taken.path in failing else None)

    return run


LOCAL = SEQUENTIAL + ", exec: local"
TOGETHER = [
    (PARALLEL, PARALLEL),
    (PARALLEL, SEQUENTIAL),
    (LOCAL, LOCAL),
    (SEQUENTIAL + ", exec: distributed", PARALLEL),
]


@pytest.mark.parametrize(("outer", "inner"), TOGETHER)
def test_best_effort_inside_fail_fast_keeps_the_failure_inside(outer: str, inner: str) -> None:
    scenario = nested(outer, inner + BEST, items="[[1, 2], [3]]")
    rows((0, 0))(scenario)
    assert scenario.result == [[None, {"at": [0, 1], "cell": 2}], [{"at": [1, 0], "cell": 3}]]
    inner_done = [fact for fact in scenario.facts(LoopDone) if fact.path == (0,)]
    assert [(fact.ok, fact.failed, fact.skipped) for fact in inner_done] == [(1, 1, 0)]


@pytest.mark.parametrize(("outer", "inner"), TOGETHER)
def test_fail_fast_inside_best_effort_loses_only_its_own_row(outer: str, inner: str) -> None:
    arcs = '{step: after, args: {loop: "{{ event.loop }}", got: "{{ start }}"}}'
    scenario = nested(outer + BEST, inner, items="[[1, 2], [3], [4, 5]]", arcs=arcs)
    rows((0, 0), (2, 1))(scenario)
    assert scenario.take("after").command.args == {
        "loop": {"count": 3, "ok": 1, "failed": 2, "skipped": 0, "failed_leaves": 2},
        "got": [None, [{"at": [1, 0], "cell": 3}], None],
    }
    failed = [fact for fact in scenario.facts(LoopIterationFailed) if len(fact.path) == 1]
    assert {fact.path for fact in failed} == {(0,), (2,)}


@pytest.mark.parametrize(("outer", "inner"), TOGETHER)
def test_fail_fast_at_both_levels_fails_the_step_with_the_index_of_the_row(outer: str, inner: str) -> None:
    guard = '{step: rescue, when: "{{ event.error is not none }}", args: {index: "{{ event.error.index }}"}}'
    scenario = nested(outer, inner, items="[[1], [2, 3, 4], [5]]", arcs=guard)
    rows((1, 1))(scenario)
    (failed,) = scenario.facts(StepFailed)
    assert (failed.error.kind, failed.error.index) == ("exception", 1)


def test_best_effort_at_both_levels_runs_everything() -> None:
    scenario = nested(PARALLEL + BEST, PARALLEL + BEST, items="[[1, 2], [3]]")
    rows((0, 0), (0, 1), (1, 0))(scenario)
    assert scenario.result == [[None, None], [None]]


def test_an_inner_failure_cancels_what_is_in_flight_in_its_row_only() -> None:
    scenario = nested(PARALLEL + BEST, PARALLEL, items="[[1, 2, 3], [4, 5]]")
    begun = scenario.take("start", index=(0, 2))
    begun.begin()
    scenario.failed("start", index=(0, 0))
    assert scenario.working == [("start", (0, 2)), ("start", (1, 0)), ("start", (1, 1))]
    assert len(scenario.facts(StepCancelled)) == 2
    begun.stop()
    work_off(scenario)
    assert scenario.result == [None, cells([], [4, 5])[1]]


def test_an_outer_failure_cancels_what_is_in_flight_everywhere() -> None:
    scenario = nested(PARALLEL, PARALLEL, items="[[1, 2], [4, 5]]")
    begun = scenario.take("start", index=(1, 1))
    begun.begin()
    scenario.failed("start", index=(0, 0))
    assert scenario.working == [("start", (1, 1))]
    assert scenario.status == "running"
    begun.finish()
    assert (scenario.status, scenario.error.index) == ("failed", 0)


def test_an_inner_loop_that_waits_is_cancelled_with_its_row() -> None:
    scenario = started(
        """
        - step: start
          loop:
            in: [[1, 2], [3]]
            iterator: row
            spec: {mode: parallel, policy: {failure: {mode: best_effort}}}
            loop: {in: "{{ row }}", iterator: cell, spec: {mode: parallel, exec: local}}
          tool:
          - {name: first, kind: noop}
          - {name: nap, kind: wait, for_s: 60}
        """
    )
    run = scenario.take("start", index=0)
    run.answer(path=(0, 0))
    run.answer(path=(0, 0))
    run.answer(error=ErrorInfo("exception", "it broke"), path=(0, 1))
    assert run.over and scenario.suspended == []
    scenario.done("start", index=1)
    scenario.wait(60)
    scenario.done("start", index=1)
    assert scenario.result == [None, [None]]


def test_nothing_of_an_inner_loop_that_has_ended_stays_behind() -> None:
    """The passes that a fail-fast inner level has given up are forgotten with it."""
    scenario = started(
        """
        - step: start
          loop:
            in: [[1, 2], [3]]
            iterator: row
            spec: {mode: parallel, exec: local, policy: {failure: {mode: best_effort}}}
            loop: {in: "{{ row }}", iterator: cell, spec: {mode: parallel}}
          tool: [{name: one, kind: noop}, {name: two, kind: noop}]
        """
    )
    run = scenario.take("start")
    run.answer(path=(0, 0))
    run.answer(path=(1, 0))
    assert list(scenario.owed("start").progress) == ["0.0", "1.0"]
    run.answer(error=ErrorInfo("exception", "it broke"), path=(0, 1))
    assert list(scenario.owed("start").progress) == ["1.0"]
    run.finish("good")
    assert scenario.result == [None, ["good"]]


# --- long and large ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inner", [PARALLEL, SEQUENTIAL])
def test_a_large_nested_result_is_a_reference_that_leads_to_the_same_list(inner: str) -> None:
    scenario = nested(PARALLEL, inner, root=limits(max_inline_bytes=60))
    work_off(scenario)
    outcome = scenario.execution.outcome
    assert outcome is not None and outcome.result.reference is not None
    assert outcome.result.reference.store == "journal"
    assert scenario.result == cells([1, 2], [], [3])


def test_the_size_of_a_large_result_counts_every_iteration() -> None:
    """What reads it decides by its size whether it can be loaded (LANGUAGE §10)."""
    scenario = nested(PARALLEL, PARALLEL, items="[[1, 2, 3, 4, 5], [6, 7, 8, 9]]", root=limits(max_inline_bytes=100))
    while scenario.execution.assignments:
        step, index = scenario.working[0]
        scenario.done(step, "x" * 50, index=index)
    outcome = scenario.execution.outcome
    assert outcome is not None and outcome.result.reference is not None
    exact = len(encode(scenario.result))
    assert exact <= outcome.result.reference.size <= exact + 10


def test_an_in_reads_a_result_kept_by_reference() -> None:
    scenario = started(
        """
        - step: fetch
          tool: {kind: noop}
          next: {arcs: [{step: each}]}
        - step: each
          loop:
            in: "{{ fetch.rows }}"
            iterator: row
            spec: {mode: parallel}
            loop: {in: "{{ row[fetch.key] }}", iterator: cell, spec: {mode: parallel}}
          tool: {kind: noop, args: {cell: "{{ cell }}"}}
        """
    )
    scenario.objects.takes = lambda data: len(data) > 20
    scenario.done("fetch", {"rows": [{"k": [1, 2]}, {"k": []}], "key": "k"})
    assert scenario.working == []
    scenario.look_into()
    assert scenario.working == [("each", (0, 0)), ("each", (0, 1))]
    work_off(scenario)
    assert scenario.result == [[{"cell": 1}, {"cell": 2}], []]
    assert scenario.names.count("reference.awaited") == 1


def test_the_state_of_a_loop_does_not_depend_on_how_many_iterations_have_ended() -> None:
    """What an iteration costs is what its facts cost: counts and a window, nothing that grows (DESIGN §3)."""
    scenario = started(
        """
        - step: start
          loop: {in: "{{ ctx.numbers }}", iterator: n, spec: {mode: parallel, max_in_flight: 3}}
          tool: {kind: noop, args: {n: "{{ n }}"}}
        """,
        limits(max_inline_bytes=64),
        ctx={"numbers": list(range(2000))},
    )

    def grown(loop: LoopState) -> tuple[int, int, int]:
        return loop.done.bit_length(), len(loop.inner), 0 if loop.results is None else 1

    sizes = set()
    for index in range(300):
        scenario.done("start", index=index)
        (run,) = scenario.execution.runs.values()
        assert run.loop is not None
        if index > 10:
            sizes.add((grown(run.loop), len(scenario.execution.assignments), len(scenario.execution.tokens)))
    assert sizes == {((0, 0, 0), 3, 0)}
    ordered = [fact.path for fact in scenario.facts(StepScheduled)]
    assert ordered == [(index,) for index in range(303)]


@pytest.mark.parametrize("inner", ["", ", loop: {in: [1], iterator: m, spec: {mode: parallel}}"])
def test_a_late_iteration_costs_as_many_calls_as_an_early_one(inner: str) -> None:
    """In Python calls, which no busy machine changes; ``benchmarks/loop_cost.py`` measures time."""
    shared = '{list: {op: append, value: "{{ n }}"}, times: {op: count}}'
    scenario = started(
        f"""
        - step: start
          loop: {{in: "{{{{ ctx.numbers }}}}", iterator: n, spec: {{mode: parallel, max_in_flight: 4}}{inner}}}
          tool: {{name: work, kind: noop, spec: {{policy: {{rules: [
            {{else: {{then: {{do: continue, set_shared: {shared}}}}}}}]}}}}}}
        """,
        limits(max_inline_bytes=200),
        ctx={"numbers": list(range(400))},
    )

    def calls_of(index: int) -> int:
        counted = 0

        def count(_frame: Any, event: str, _argument: Any) -> None:
            nonlocal counted
            counted += event in ("call", "c_call")

        def tell(recorded: RecordedFact) -> None:
            sys.setprofile(count)
            try:
                advanced = advance(scenario.plan, scenario.state, recorded, scenario.execution_id)
            finally:
                sys.setprofile(None)
            scenario.state = advanced.state

        scenario.take("start", index=(index, 0) if inner else index, sink=tell).finish()
        return counted

    costs = [calls_of(index) for index in range(390)]
    assert median(costs[300:]) == median(costs[50:150])
