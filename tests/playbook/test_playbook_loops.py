"""Nested loops: where each level runs, what `iter` holds at each place, what can be set (LANGUAGE §6)."""

from __future__ import annotations

import pytest
from playbook_building import checked, codes, found, start_of, workflow

from noetl_stream.playbook.plan import LoopPlan, Reads, Timeouts


def nested(*levels: str, tool: str = "{ kind: noop }", step: str = "{}") -> str:
    """A step with these levels: the ``spec`` of each, outermost first. Iterators are ``i0``, ``i1`` …"""
    loop = ""
    for depth, spec in reversed(list(enumerate(levels))):
        inner = f", loop: {loop}" if loop else ""
        loop = f"{{ in: [1], iterator: i{depth}, spec: {spec}{inner} }}"
    return workflow(f"- step: start\n  spec: {step}\n  loop: {loop}\n  tool: {tool}")


def levels_of(text: str) -> list[LoopPlan]:
    level, found = start_of(text).loop, []
    while level is not None:
        found.append(level)
        level = level.inner
    return found


def places(*levels: str) -> str:
    """The placements, abbreviated to ``l`` and ``d``."""
    return "".join(level.placement[0] for level in levels_of(nested(*levels)))


@pytest.mark.parametrize(
    ("levels", "where"),
    [
        (["{}", "{}", "{}"], "lll"),
        (["{ mode: parallel }", "{}", "{}"], "dll"),
        (["{}", "{ mode: parallel }", "{}"], "ddl"),
        (["{}", "{}", "{ mode: parallel }"], "ddd"),
        (["{}", "{}", "{ exec: distributed }"], "ddd"),
        (["{ exec: local }", "{ mode: parallel }", "{ mode: parallel }"], "lll"),
        (["{ mode: parallel }", "{ exec: local }", "{ mode: parallel }"], "dll"),
        (["{}", "{ mode: parallel, exec: local }", "{}"], "lll"),
        (["{ exec: distributed }", "{}", "{}"], "dll"),
        (["{ policy: { exec: local } }", "{ policy: { mode: parallel } }"], "ll"),
    ],
)
def test_a_level_spreads_out_where_it_or_one_inside_it_does_unless_it_is_local(levels: list[str], where: str) -> None:
    assert places(*levels) == where


def test_every_level_has_its_own_mode_window_and_items() -> None:
    outer, middle, inner = levels_of(
        nested("{ mode: parallel, max_in_flight: 3 }", "{}", '{ mode: parallel, max_in_flight: "{{ iter.i1 }}" }')
    )
    assert [level.mode for level in (outer, middle, inner)] == ["parallel", "sequential", "parallel"]
    assert [level.max_in_flight.source for level in (outer, middle, inner)] == [3, 1, "{{ iter.i1 }}"]
    assert [level.iterator for level in (outer, middle, inner)] == ["i0", "i1", "i2"]


def test_the_failure_mode_of_the_step_holds_at_every_level_without_its_own() -> None:
    fail_fast = "{ policy: { failure: { mode: fail_fast } } }"
    text = nested("{}", fail_fast, "{}", step="{ policy: { failure: { mode: best_effort } } }")
    assert [level.failure_mode for level in levels_of(text)] == ["best_effort", "fail_fast", "best_effort"]


def test_task_defaults_of_inner_levels_win_over_outer_ones() -> None:
    text = nested("{ timeout: { total: 9, read: 3 } }", "{ timeout: { total: 5 } }")
    assert start_of(text).tasks[0].timeouts == Timeouts(total=5.0, read=3.0)


CITIES = """
- step: start
  loop:
    in: "{{ workload.cities }}"
    iterator: city
    loop:
      in: "{{ %s }}"
      iterator: hotel
      loop: { in: "{{ %s }}", iterator: page }
  tool: { kind: noop, args: { a: "{{ %s }}" } }
  next: { arcs: [ { step: start, args: { given: 1 } } ] }
"""


@pytest.mark.parametrize(
    ("hotels", "pages", "task"),
    [
        ("city.hotels", "hotel.pages", "page"),
        ("iter.city.hotels", "iter.hotel.pages", "iter.page"),
        ("iter.index", "iter.parent.index", "iter.parent.parent.index"),
        ("iter.count", "iter.parent.city", "iter.parent.parent.city"),
        ("ctx.hotels[iter.city.name]", "city.pages", "iter.parent.hotel"),
        ("args.given", "given", "city ~ hotel ~ page"),
        ("steps.start", "workload.pages", "iter.parent"),
        ("execution_id", "iter.parent", "iter"),
    ],
)
def test_every_level_reads_the_levels_around_it(hotels: str, pages: str, task: str) -> None:
    assert codes(workflow(CITIES % (hotels, pages, task))) == []


@pytest.mark.parametrize(
    ("hotels", "pages", "task", "hint"),
    [
        ("iter.hotel", "[]", "1", None),
        ("iter.parent.city", "[]", "1", None),
        ("[]", "iter.city", "1", "write `iter.parent.city`"),
        ("[]", "iter.parent.hotel", "1", "write `iter.hotel`"),
        ("[]", "[]", "iter.city", "write `iter.parent.parent.city`"),
        ("[]", "[]", "iter.parent.parent.parent.city", None),
        ("[]", "[]", "iter.parent.citi", None),
    ],
)
def test_a_name_that_a_level_does_not_have_is_found(hotels: str, pages: str, task: str, hint: str | None) -> None:
    [problem] = checked(workflow(CITIES % (hotels, pages, task))).diagnostics
    assert (problem.severity, problem.code) == ("error", "unknown_name")
    assert hint is None or problem.hint == hint


def test_bare_iterators_are_bound_to_their_level() -> None:
    inputs = start_of(workflow(CITIES % ("[]", "[]", "city ~ hotel ~ page"))).tasks[0].inputs
    assert inputs.paths == {("iter", "parent", "parent", "city"), ("iter", "parent", "hotel"), ("iter", "page")}


def test_keys_set_by_rules_are_readable_in_the_pipeline_only() -> None:
    text = """
    - step: start
      loop: { in: [1], iterator: city, loop: { in: "{{ %s }}", iterator: hotel } }
      tool:
        kind: noop
        args: { a: "{{ iter.seen | default(0) }}", b: "{{ seen | default(0) }}" }
        spec: { policy: { rules: [ { else: { then: { do: continue, set_iter: { seen: 1 } } } } ] } }
    """
    assert codes(workflow(text % "city")) == []
    assert codes(workflow(text % "iter.seen")) == ["unknown_name"]
    assert codes(workflow(text % "seen")) == ["unbound_name"]


def test_the_outermost_level_has_no_iter() -> None:
    text = '- step: start\n  loop: { in: "{{ iter.x }}", iterator: item }\n  tool: { kind: noop }'
    [problem] = found(workflow(text), "namespace_not_here")
    assert problem.hint is not None and "inner loop" in problem.hint


def test_a_command_carries_what_the_inner_loops_of_the_worker_read() -> None:
    text = """
    - step: start
      loop:
        in: "{{ workload.outermost }}"
        iterator: city
        loop: { in: "{{ ctx.hotels[city] + workload.more + steps.start }}", iterator: hotel }
      tool: { kind: noop }
    """
    assert start_of(workflow(text)).reads == Reads(frozenset(["more"]), frozenset(["hotels"]), frozenset(["start"]))


WRITING = "{ kind: noop, spec: { policy: { rules: [ { else: { then: { do: continue, %s: { total: 1 } } } } ] } } }"


@pytest.mark.parametrize(
    ("levels", "allowed"),
    [
        (["{}", "{}"], True),
        (["{ mode: parallel }", "{}"], False),
        (["{}", "{ mode: parallel }"], False),
        (["{}", "{}", "{ mode: parallel, exec: local }"], False),
    ],
)
@pytest.mark.parametrize("word", ["set_ctx", "set_vars"])
def test_shared_values_of_iterations_are_not_replaced_where_any_level_is_parallel(
    levels: list[str], allowed: bool, word: str
) -> None:
    text = nested(*levels, tool=WRITING % word)
    problems = found(text, f"{word}_in_parallel_loop")
    assert (problems == []) is allowed
    assert all("set_shared: { total: { op: add, value" in str(problem.hint) for problem in problems)


@pytest.mark.parametrize("name", ["i0", "i1", "index", "count", "parent"])
def test_keys_set_by_the_levels_are_read_only(name: str) -> None:
    tool = WRITING.replace("total", name) % "set_iter"
    assert codes(nested("{}", "{}", tool=tool)) == ["read_only"]


def test_an_iterator_that_is_named_like_something_else_warns_where_it_is_used() -> None:
    text = nested("{}", "{}", tool='{ kind: noop, args: { a: "{{ i0 }}" } }')
    [warning] = found(text.replace("workflow:", "workload: { i0: 1 }\nworkflow:"), "shadowed_name")
    assert "means `iter.parent.i0` here" in warning.message
