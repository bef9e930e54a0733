"""Two executions side by side: where they part first, and what differs."""

from __future__ import annotations

from typing import Any

import pytest
from operations_stage import BY, OperationsStage

from noetl_stream.errors import NotFound, UsageError
from noetl_stream.model.events import CtxPatched, SignalReceived
from noetl_stream.model.json import codec
from noetl_stream.operations.diff import course
from noetl_stream.operations.paging import cursor_of
from noetl_stream.ports.operations.executions import RerunOptions, Start
from noetl_stream.ports.operations.reading.diffs import DiffRowDocument, ExecutionDiffDocument
from noetl_testkit.simulation.work import playbook, then, work


def policy(*rules: dict[str, Any]) -> dict[str, Any]:
    return {"policy": {"rules": rules}}


GO_ON = {"else": {"then": {"do": "continue"}}}
ROUTE = playbook(
    "route",
    [
        {
            "step": "fetch",
            "tool": {"name": "count", **work({"total": "{{ workload.total }}", "at": "{{ execution_id }}"})},
            "next": {"arcs": [{"step": "big", "when": "{{ event.result.total > 10 }}"}, {"step": "small"}]},
        },
        {"step": "big", "tool": work("big"), "next": then("end")},
        {"step": "small", "tool": work("small"), "next": then("end")},
        {"step": "end", "tool": work("end")},
    ],
    workload={"total": 3},
)
LOOP = playbook(
    "loop",
    [
        {
            "step": "each",
            "loop": {
                "in": "{{ workload.items }}",
                "iterator": "item",
                "spec": {"mode": "parallel", "max_in_flight": 3},
            },
            "tool": {"name": "add", **work("{{ iter.item * workload.factor }}")},
        },
    ],
    workload={"items": [1, 2, 3], "factor": 1},
)


async def diff(stage: OperationsStage, a: str, b: str, **options: Any) -> ExecutionDiffDocument:
    wanted = {"rows": "all", "limit": 100, "cursor": None, **options}
    return await stage.views.diff(a, b, *wanted.values())


async def pair(stage: OperationsStage, source: str, a: dict[str, Any], b: dict[str, Any]) -> ExecutionDiffDocument:
    ids = [(await stage.run(source, **given)).execution_id for given in (a, b)]
    return await diff(stage, *ids)


def first_of(found: ExecutionDiffDocument) -> str:
    return "" if found.first is None else found.first.text


def choice_of(found: ExecutionDiffDocument) -> str:
    return "" if found.first_choice is None else found.first_choice.text


def states(found: ExecutionDiffDocument) -> list[tuple[str, str]]:
    return [(row.step, row.state) for row in found.rows if row.iteration is None]


async def test_two_executions_that_did_the_same_do_not_part(stage: OperationsStage) -> None:
    found = await pair(stage, ROUTE, {}, {})
    assert found.first is None and found.first_choice is None
    assert states(found) == [("fetch", "same"), ("small", "same"), ("end", "same")]
    assert found.workload.items == found.ctx.items == found.result.items == []


async def test_times_and_ids_are_shown_and_are_no_divergence(stage: OperationsStage) -> None:
    said = {"at": "{{ workload.at }}", "own": "s3://runs/{{ execution_id }}/x", "n": 1}
    source = playbook("says", [{"step": "say", "tool": work(said)}], workload={"at": ""})
    a, b = [await stage.run(source, workload={"at": f"2026-11-{day}T10:00:00Z"}) for day in (21, 22)]
    found = await diff(stage, a.execution_id, b.execution_id)
    assert found.first is None
    (said_by,) = found.results
    assert [(one.pointer, one.is_volatile) for one in said_by.differences.items] == [
        ("/result/at", True),
        ("/result/own", True),
    ]


async def test_the_first_choice_is_named_with_its_guard_and_the_values_that_decided(stage: OperationsStage) -> None:
    found = await pair(stage, ROUTE, {"workload": {"total": 12}}, {"workload": {"total": 7}})
    assert first_of(found) == "the workloads differ: /workload/total is 12 in A and 7 in B"
    assert choice_of(found) == (
        "step `fetch` goes on to `big` in A and to `small` in B: "
        "`{{ event.result.total > 10 }}` read event.result.total = 12 in A and event.result.total = 7 in B"
    )
    assert states(found) == [("fetch", "different"), ("big", "only_a"), ("small", "only_b"), ("end", "same")]
    assert [(one.pointer, one.a, one.b) for one in found.workload.items] == [("/total", 12, 7)]


async def test_a_rerun_is_compared_with_what_its_original_did(stage: OperationsStage) -> None:
    a = await stage.run(ROUTE, workload={"total": 12})
    begun = await stage.executions.rerun(a.execution_id, RerunOptions("big", ctx={"fixed": True}, args={"n": 1}), BY)
    b = await stage.executions.wait(begun.execution_id, 60)
    found = await diff(stage, a.execution_id, b.execution_id)
    assert first_of(found) == "step `big` begins with other arguments: /args/n is nothing in A and 1 in B"
    assert found.first_choice is None
    assert states(found) == [("fetch", "same"), ("big", "different"), ("end", "same")]
    fetch = found.rows[0]
    assert fetch.b is not None and fetch.b.status == "reused"
    assert [(one.pointer, one.in_a, one.b) for one in found.ctx.items] == [("/fixed", False, True)]
    begun = await stage.executions.rerun(a.execution_id, RerunOptions("big", ctx={"fixed": True}), BY)
    await stage.executions.wait(begun.execution_id, 60)
    found = await diff(stage, a.execution_id, begun.execution_id)
    assert first_of(found) == "ctx is patched (`fixed`) only in B: A has ended (completed) without it"


async def test_a_task_that_fails_in_one_is_named_with_its_error(stage: OperationsStage) -> None:
    retried = policy({"when": "{{ outcome.status == 'error' }}", "then": {"do": "retry", "attempts": 3}}, GO_ON)
    task = {"name": "load", **work(1, failures="{{ workload.failures }}", spec=retried)}
    source = playbook("retries", [{"step": "load", "tool": task}], workload={"failures": 0})
    found = await pair(stage, source, {}, {"workload": {"failures": 1}})
    choice = found.first_choice
    assert choice is not None and (choice.kind, choice.task) == ("task", "load")
    assert choice.text.startswith("task `load` of step `load` succeeds in A and fails (")
    assert "and its policy says retry in B" in choice.text
    assert 'outcome.status = "error" in B' in choice.text
    assert [guard.values for guard in choice.b.guards] == [{"outcome.status": "error"}]


async def test_an_execution_that_waits_is_named_with_what_it_waits_for(stage: OperationsStage) -> None:
    admit = {"rules": [{"when": "{{ ctx.approved == true }}", "then": {"allow": True}}], "wait": {"timeout_s": 900}}
    steps = [
        {"step": "plan", "tool": work("plan"), "next": then("deploy")},
        {"step": "deploy", "spec": {"policy": {"admit": admit}}, "tool": work("deployed")},
    ]
    source = playbook("gate", steps)
    a = await stage.executions.start(Start(playbook=source), BY)
    b = await stage.executions.start(Start(playbook=source), BY)
    for one in (a, b):
        await stage.until_status(one.execution_id, "waiting")
    same = await diff(stage, a.execution_id, b.execution_id)
    assert same.first is None
    await stage.ask(b.execution_id, CtxPatched, patch={"approved": True})
    await stage.executions.wait(b.execution_id, 60)
    found = await diff(stage, a.execution_id, b.execution_id)
    assert first_of(found) == "ctx is patched (`approved`) only in B: A is not so far"
    assert choice_of(found) == (
        "step `deploy` has its token admitted only in B: A waits at the admission: "
        "`{{ ctx.approved == true }}` reads no ctx.approved"
    )


async def test_another_signal_is_named(stage: OperationsStage) -> None:
    ear = [{"name": "hear", "kind": "wait", "signal": "go", "timeout_s": 600}]
    ids = []
    for payload in ("left", "right"):
        started = await stage.executions.start(Start(playbook=playbook("ear", [{"step": "ear", "tool": ear}])), BY)
        await stage.until_status(started.execution_id, "waiting")
        await stage.ask(started.execution_id, SignalReceived, signal="go", payload={"way": payload})
        await stage.executions.wait(started.execution_id, 60)
        ids.append(started.execution_id)
    assert first_of(await diff(stage, *ids)) == 'other signals: /payload/way is "left" in A and "right" in B'


async def test_iterations_are_aligned_by_index_whatever_ran_first(stage: OperationsStage) -> None:
    found = await pair(stage, LOOP, {}, {"workload": {"items": [1, 5, 3, 4]}})
    assert choice_of(found) == "the loop of step `each` has 3 items in A and 4 in B"
    each, *iterations = found.rows
    assert (each.state, each.iterations) == ("different", 2)
    assert [(row.iteration, row.state) for row in iterations] == [([1], "different"), ([3], "only_b")]
    assert iterations[0].difference is not None
    assert iterations[0].difference.text == (
        "task `add` of step `each`, iteration 1 ends with something else: /result is 2 in A and 5 in B"
    )


async def test_branches_side_by_side_are_aligned_whatever_ran_first(stage: OperationsStage) -> None:
    def of(left: float, right: float) -> str:
        steps = [
            {"step": "start", "next": then("left", "right", mode="inclusive")},
            {"step": "left", "tool": work("left", left), "next": then("both")},
            {"step": "right", "tool": work("right", right), "next": then("both")},
            {"step": "both", "spec": {"join": "all"}, "tool": work("both"), "next": then("end")},
            {"step": "end", "tool": work("end")},
        ]
        return playbook("branches", steps)

    a, b = await stage.run(of(1, 2)), await stage.run(of(2, 1))
    found = await diff(stage, a.execution_id, b.execution_id)
    assert found.first is None
    assert {row.state for row in found.rows} == {"same"}
    assert found.a.digest != found.b.digest
    left = next(step for step in found.steps if step.step == "left")
    assert left.duration_a_s < left.duration_b_s


async def test_a_new_arc_in_a_later_version_is_no_divergence_until_it_fires(stage: OperationsStage) -> None:
    def of(*arcs: dict[str, str]) -> str:
        steps = [{"step": "start", "tool": work(1), "next": {"arcs": [*arcs, {"step": "end"}]}}]
        return playbook("arcs", [*steps, {"step": "end", "tool": work(2)}, {"step": "help", "tool": work(3)}])

    quiet, loud = [{"step": "help", "when": f"{{{{ event.result == {n} }}}}"} for n in (7, 1)]
    a, b, c = [(await stage.run(text)).execution_id for text in (of(), of(quiet), of(loud))]
    assert (await diff(stage, a, b)).first is None
    assert first_of(await diff(stage, a, c)) == (
        "step `start` goes on to `end` in A and to `help` in B: `{{ event.result == 1 }}` reads event.result = 1 in B"
    )


async def test_rounds_are_aligned_one_by_one(stage: OperationsStage) -> None:
    counted = policy({"else": {"then": {"do": "continue", "set_ctx": {"n": "{{ outcome.result }}"}}}})
    again = {"arcs": [{"step": "round", "when": "{{ ctx.n < workload.rounds }}"}]}
    step = {"step": "round", "tool": work("{{ (ctx.n | default(0)) + 1 }}", spec=counted), "next": again}
    found = await pair(stage, playbook("rounds", [step], workload={"rounds": 2}), {}, {"workload": {"rounds": 4}})
    assert states(found) == [("round", "same"), ("round", "different"), ("round", "only_b"), ("round", "only_b")]
    assert choice_of(found) == (
        "step `round` goes on nowhere in A and to `round` in B: `{{ ctx.n < workload.rounds }}` read "
        "ctx.n = 2, workload.rounds = 2 in A and ctx.n = 2, workload.rounds = 4 in B"
    )


async def test_executions_with_nothing_in_common_are_compared_step_by_step(stage: OperationsStage) -> None:
    a, b = await stage.run(ROUTE), await stage.run(LOOP)
    found = await diff(stage, a.execution_id, b.execution_id)
    assert first_of(found).startswith("the workloads differ: /workload/")
    assert choice_of(found) == "step `fetch` is reached only in A: B has ended (completed) without it"
    assert [row.state for row in found.rows] == ["only_a", "only_a", "only_a", "only_b"]


@pytest.mark.parametrize("rows", ["all", "different"])
async def test_rows_of_a_diff_come_in_pages_of_unchanged_journals(stage: OperationsStage, rows: str) -> None:
    a, b = [await stage.run(LOOP, workload={"items": list(range(20)), "factor": n}) for n in (1, 2)]
    found: list[DiffRowDocument] = []
    cursor: str | None = None
    while cursor is not None or not found:
        page = await diff(stage, a.execution_id, b.execution_id, rows=rows, limit=6, cursor=cursor)
        found += page.rows
        cursor = page.next
    assert len(found) == page.row_count == 20
    assert [row.iteration for row in found] == [None, *([n] for n in range(1, 20))]  # nothing times two is nothing


async def test_a_large_value_is_shown_by_its_size_and_many_by_their_number(stage: OperationsStage) -> None:
    source = playbook("large", [{"step": "say", "tool": work("{{ workload.said }}")}], workload={"said": ""})
    found = await pair(stage, source, {"workload": {"said": "a" * 5000}}, {"workload": {"said": "b" * 5000}})
    assert found.workload.items[0].a == {"$large": {"size": 5002}}
    found = await pair(stage, source, *({"workload": {"said": [n] * 1000}} for n in (1, 2)))
    assert (len(found.workload.items), found.workload.left_out) == (50, 950)
    assert len(codec.encode(found)) < 100_000


async def test_only_the_beginning_of_very_long_journals_is_compared(
    stage: OperationsStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = [await stage.run(LOOP, workload={"items": list(range(n))}) for n in (30, 20)]
    monkeypatch.setattr(course, "MOST_FACTS", 15)
    found = await diff(stage, a.execution_id, b.execution_id)
    assert found.a.compared < found.a.position and found.b.compared < found.b.position
    assert all(row.state != "only_a" for row in found.rows)


async def test_a_cursor_cannot_lead_beyond_the_journals(stage: OperationsStage) -> None:
    a, b = [(await stage.run(ROUTE, workload={"total": n})).execution_id for n in (1, 2)]
    found = await diff(stage, a, b, cursor=cursor_of([2**70, 2**70, 2**70]))
    assert (found.rows, found.next, found.row_count) == ([], None, 3)


async def test_an_execution_that_does_not_exist_cannot_be_compared(stage: OperationsStage) -> None:
    a = await stage.run(ROUTE)
    for one, other in ((a.execution_id, "nobody"), ("nobody", a.execution_id)):
        with pytest.raises(NotFound, match="execution nobody not found"):
            await diff(stage, one, other)
    for cursor in ("WzEsMl0", "eyJhIjoxfQ", "!"):
        with pytest.raises(UsageError, match="is not a cursor"):
            await diff(stage, a.execution_id, a.execution_id, cursor=cursor)


async def test_a_loop_that_a_rerun_has_reused_is_the_same(stage: OperationsStage) -> None:
    each = {"step": "each", "loop": {"in": [1, 2], "iterator": "n"}, "tool": work("{{ iter.n }}"), "next": then("end")}
    a = await stage.run(playbook("loops", [each, {"step": "end", "tool": work("end")}]))
    begun = await stage.executions.rerun(a.execution_id, RerunOptions("end"), BY)
    b = await stage.executions.wait(begun.execution_id, 60)
    found = await diff(stage, a.execution_id, b.execution_id)
    assert found.first is None
    assert states(found) == [("each", "same"), ("end", "same")]


async def test_the_headers_of_a_response_are_no_divergence(stage: OperationsStage) -> None:
    said = {"status": 200, "headers": {"x-request": "{{ workload.n }}"}, "data": "{{ workload.n > 8 }}"}
    source = playbook("http", [{"step": "get", "tool": work(said)}], workload={"n": 0})
    ids = [(await stage.run(source, workload={"n": n})).execution_id for n in (1, 2, 9)]
    same, other = await diff(stage, *ids[:2]), await diff(stage, *ids[1:])
    assert same.first_choice is None and states(same) == [("get", "same")]
    (row,) = other.rows
    assert row.difference is not None
    assert [one.pointer for one in row.difference.differences.items] == ["/result/data"]


async def test_a_diff_in_the_other_direction_shows_the_same(stage: OperationsStage) -> None:
    a, b = [(await stage.run(LOOP, workload={"items": items})).execution_id for items in ([1, 2], [1, 3, 4])]
    there, back = await diff(stage, a, b), await diff(stage, b, a)
    turned = {"same": "same", "different": "different", "only_a": "only_b", "only_b": "only_a"}
    assert [turned[row.state] for row in there.rows] == [row.state for row in back.rows]
    assert (there.first and there.first.kind) == (back.first and back.first.kind) == "workload"
    assert choice_of(back) == "the loop of step `each` has 3 items in A and 2 in B"
