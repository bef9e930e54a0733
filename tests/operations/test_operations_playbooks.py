"""The catalog as people use it: registered, looked at, started, taken out again."""

from __future__ import annotations

import pytest
from operations_stage import BY, OperationsStage, labelled

from noetl_stream.errors import Conflict, NotFound, PlaybookRefused, UsageError
from noetl_stream.model.ids import digest_of
from noetl_stream.ports.operations.executions import Start
from noetl_stream.ports.operations.playbooks import RegisteredDocument
from noetl_stream.ports.operations.verbs import plain
from noetl_testkit.simulation.work import playbook, then, work

FLOW = playbook(
    "flow",
    [{"step": "start", "tool": work(1), "next": then("end", when="{{ ctx.go }}")}, {"step": "end", "tool": work(2)}],
)


async def register(stage: OperationsStage, source: str) -> RegisteredDocument:
    return await stage.playbooks.register(source.encode(), "file.yaml", BY)


async def test_a_check_says_what_is_wrong_and_stores_nothing(stage: OperationsStage) -> None:
    good = await stage.playbooks.check(FLOW.encode(), "file.yaml")
    assert (good.ok, good.path, good.digest) == (True, "simulation/flow", digest_of(FLOW))
    bad = await stage.playbooks.check(FLOW.replace('"tool"', '"tol"').encode(), "file.yaml")
    assert (bad.ok, bad.path, bad.diagnostics[0].file) == (False, None, "file.yaml")
    assert (await stage.playbooks.page("", {}, 10, None)).items == []


async def test_a_called_playbook_that_is_not_registered_is_a_warning(stage: OperationsStage) -> None:
    await register(stage, FLOW)
    calls = [
        {"path": "simulation/flow"},
        {"path": "/simulation/flow", "version": "1"},
        {"path": "simulation/flow", "version": "2.0"},
        {"path": "simulation/nothing"},
        {"path": "simulation/caller"},
        {"path": "{{ workload.path }}"},
    ]
    tool = [{"name": f"call{number}", "kind": "playbook", **call} for number, call in enumerate(calls)]
    caller = playbook("caller", [{"step": "start", "tool": tool}], workload={"path": ""})
    checked = await stage.playbooks.check(caller.encode(), "caller.yaml")
    assert [(one.severity, one.code, one.message, one.pointer) for one in checked.diagnostics] == [
        (
            "warning",
            "unregistered_playbook",
            "no playbook `simulation/flow@2.0` is registered",
            "/workflow/0/tool/2/path",
        ),
        (
            "warning",
            "unregistered_playbook",
            "no playbook `simulation/nothing` is registered",
            "/workflow/0/tool/3/path",
        ),
    ]
    assert checked.ok
    assert (await register(stage, caller)).created


async def test_a_check_draws_what_can_be_read_of_a_text(stage: OperationsStage) -> None:
    start = {"step": "start", "tol": {}, "next": then("end", "nowhere", mode="inclusive")}
    text = playbook("draft", [start, {"step": "end", "tool": work(1)}, {"tool": work(2)}]).encode()
    checked = await stage.playbooks.check(text, "draft.yaml", graph=True)
    assert not checked.ok and checked.graph is not None
    assert checked.graph.steps == ["start", "end"]
    assert [(arc.source, arc.to) for arc in checked.graph.arcs] == [("start", "end")]
    assert (await stage.playbooks.check(text, "draft.yaml")).graph is None
    assert (await stage.playbooks.check(b"workflow: [", "draft.yaml", graph=True)).graph is None


async def test_a_registered_playbook_is_shown_with_its_text(stage: OperationsStage) -> None:
    entry = await register(stage, FLOW)
    assert (entry.created, entry.revision, entry.registered_by) == (True, 1, BY)
    shown = plain(await stage.playbooks.get("/simulation/flow", None))
    assert shown == {**{key: value for key, value in plain(entry).items() if key != "created"}, "source": FLOW}
    await stage.clock.sleep(1)
    assert (await register(stage, FLOW)).created is False


async def test_a_playbook_that_cannot_be_registered_is_refused_with_the_reason(stage: OperationsStage) -> None:
    first, second = (
        FLOW.replace('"name": "flow"', f'"version": "1.0", "description": "{n}", "name": "flow"') for n in "ab"
    )
    await register(stage, first)
    with pytest.raises(Conflict, match="a different text"):
        await register(stage, second)
    with pytest.raises(PlaybookRefused) as refused:
        await register(stage, "workflow: [")
    assert refused.value.diagnostics


async def test_the_latest_of_each_path_come_page_by_page(stage: OperationsStage) -> None:
    for name in ("a", "b", "c"):
        await register(stage, labelled(name, [{"step": "only", "tool": work(1)}], team=name))
    first = await stage.playbooks.page("tests/", {}, 2, None)
    second = await stage.playbooks.page("tests/", {}, 2, first.next)
    assert [one.path for one in (*first.items, *second.items)] == ["tests/a", "tests/b", "tests/c"]
    assert second.next is None
    assert [one.path for one in (await stage.playbooks.page("", {"team": "b"}, 2, None)).items] == ["tests/b"]


async def test_a_list_can_say_which_execution_of_each_started_last(stage: OperationsStage) -> None:
    await register(stage, labelled("a", [{"step": "only", "tool": work(1)}]))
    await register(stage, labelled("b", [{"step": "only", "tool": work(1)}]))
    ids = [(await stage.executions.start(Start(path="tests/a"), BY)).execution_id for _ in range(2)]
    first, second = (await stage.playbooks.page("", {}, 10, None, last=True)).items
    assert first.last is not None and (first.last.execution_id, second.last) == (max(ids), None)
    assert [one.last for one in (await stage.playbooks.page("", {}, 10, None)).items] == [None, None]
    assert (await stage.playbooks.page("", {}, 10, None, kinds=["Schema"])).items == []


async def test_words_are_looked_for_in_any_case_and_are_few(stage: OperationsStage) -> None:
    await register(stage, labelled("a", [{"step": "only", "tool": work(1)}], team="sales"))
    found = await stage.playbooks.page("", {}, 2, None, words="SALES tests")
    assert [one.path for one in found.items] == ["tests/a"]
    with pytest.raises(UsageError, match="at most 8 words"):
        await stage.playbooks.page("", {}, 2, None, words="a " * 9)


async def test_plan_and_graph_are_those_of_the_text(stage: OperationsStage) -> None:
    await register(stage, FLOW)
    plan = await stage.playbooks.plan("simulation/flow", "1")
    assert [step["step"] for step in plan["steps"]] == ["start", "end"]
    graph = plain(await stage.playbooks.graph("simulation/flow", None))
    assert (graph["path"], graph["digest"], graph["steps"]) == ("simulation/flow", plan["digest"], ["start", "end"])
    [arc] = graph["arcs"]
    expected = {"from": "start", "to": "end", "when": "{{ ctx.go }}", "kind": "guarded", "is_else": False, "index": 0}
    assert arc == {**expected, "line": arc["line"]}


async def test_a_deleted_playbook_is_not_found_and_executions_keep_their_text(stage: OperationsStage) -> None:
    one, two = (playbook("flow", [{"step": "only", "tool": work(n)}]) for n in (1, 2))
    for source in (one, two):
        await register(stage, source)
    await stage.playbooks.delete("simulation/flow", "2", BY)
    assert [entry.revision for entry in await stage.playbooks.versions("simulation/flow")] == [1]
    await stage.playbooks.delete("simulation/flow", None, BY)
    for work_ in (
        stage.playbooks.get("simulation/flow", None),
        stage.playbooks.versions("simulation/flow"),
        stage.playbooks.plan("simulation/flow", "1"),
        stage.playbooks.delete("simulation/flow", None, BY),
        stage.playbooks.get("a b", None),
        stage.playbooks.versions("simulation/flow@1"),
    ):
        with pytest.raises(NotFound):
            await work_
    started = await stage.executions.start(Start(digest=digest_of(two)), BY)
    assert (await stage.executions.wait(started.execution_id, 60)).result == 2
