"""The graph of a playbook, and what happened at each of its steps and arcs."""

from __future__ import annotations

from typing import Any

import pytest
from operations_stage import BY, OperationsStage

from noetl_stream.errors import NotFound, UsageError
from noetl_stream.model.events import CtxPatched
from noetl_stream.model.ids import digest_of
from noetl_stream.model.json import codec
from noetl_stream.operations.views import state
from noetl_stream.ports.operations.executions import Start
from noetl_stream.ports.operations.reading.graphs import ExecutionGraphDocument
from noetl_testkit.simulation.work import playbook, then, work

SET = {"rules": [{"else": {"then": {"do": "continue", "set_ctx": {"n": "{{ outcome.result }}"}}}}]}
ROUND = playbook(
    "round",
    [
        {
            "step": "start",
            "tool": work("{{ (ctx.n | default(0)) + 1 }}", spec={"policy": SET}),
            "next": {"arcs": [{"step": "start", "when": "{{ ctx.n < workload.rounds }}"}, {"step": "each"}]},
        },
        {
            "step": "each",
            "loop": {"in": [1, 2, 3, 4], "iterator": "n"},
            "tool": work("{{ iter.n }}"),
            "next": {"spec": {"mode": "inclusive"}, "arcs": [
                {"step": "end", "when": "{{ event.loop.failed == 0 }}"},
                {"step": "help", "when": "{{ event.name == 'step.failed' }}"},
            ]},
        },
        {"step": "end", "tool": work("end")},
        {"step": "help", "tool": work("help")},
    ],
    workload={"rounds": 3},
)  # fmt: skip


def arcs_of(found: ExecutionGraphDocument) -> dict[tuple[str, str], tuple[int, int]]:
    return {(arc.source, arc.to): (arc.fired, arc.skipped) for arc in found.arcs}


async def test_steps_and_arcs_are_those_of_the_drawing(stage: OperationsStage) -> None:
    await stage.playbooks.register(ROUND.encode(), "round", BY)
    found = await stage.playbooks.graph("simulation/round", None)
    assert found.steps == [node.step for node in found.nodes] == ["start", "each", "end", "help"]
    assert [(arc.source, arc.to, arc.kind, arc.is_else, arc.index) for arc in found.arcs] == [
        ("start", "start", "guarded", False, 0),
        ("start", "each", "always", True, 1),
        ("each", "end", "guarded", False, 0),
        ("each", "help", "failure", False, 1),
    ]
    by_step = {node.step: node for node in found.nodes}
    assert (by_step["start"].is_entry, by_step["each"].loop, by_step["each"].routing) == (
        True,
        ["n, sequential"],
        "inclusive",
    )


async def test_a_graph_is_found_by_the_digest_of_a_text_of_its_path(stage: OperationsStage) -> None:
    await stage.playbooks.register(ROUND.encode(), "round", BY)
    digest = digest_of(ROUND)
    assert (await stage.playbooks.graph("simulation/round", None, digest)).digest == digest
    with pytest.raises(NotFound):
        await stage.playbooks.graph("simulation/other", None, digest)
    with pytest.raises(UsageError, match="not both"):
        await stage.playbooks.graph("simulation/round", "1", digest)


async def test_arcs_say_how_often_they_fired_and_what_decided(stage: OperationsStage) -> None:
    ended = await stage.run(ROUND)
    found = await stage.views.graph(ended.execution_id)
    assert arcs_of(found) == {
        ("start", "start"): (2, 1),
        ("start", "each"): (1, 2),
        ("each", "end"): (1, 0),
        ("each", "help"): (0, 1),
    }
    again, on, end, _ = found.arcs
    assert again.last is not None and on.last is not None and end.last is not None
    assert (again.last.fired, again.last.held, on.last.fired) == (False, False, True)
    assert again.last.guard is not None
    assert again.last.guard.values == {"ctx.n": 3, "workload.rounds": 3}, "as they were then"
    assert end.last.guard is not None and end.last.guard.holds
    [event] = await stage.executions.events(ended.execution_id, again.last.position - 1, 1)
    assert (event.name, event.step_run_id) == ("next.evaluated", again.last.step_run_id)


async def test_steps_count_runs_and_iterations(stage: OperationsStage) -> None:
    ended = await stage.run(ROUND)
    by_step = {one.step: one for one in (await stage.views.graph(ended.execution_id)).steps}
    assert (by_step["start"].runs.done, by_step["end"].runs.done, by_step["help"].runs.done) == (3, 1, 0)
    assert by_step["each"].iterations is not None and by_step["each"].iterations.done == 4
    assert by_step["start"].iterations is None


async def test_tokens_that_wait_are_counted_where_they_are(stage: OperationsStage) -> None:
    admit = {"wait": {"timeout_s": 600}, "rules": [{"when": "{{ ctx.go is defined }}", "then": {"allow": True}}]}
    held = playbook(
        "held",
        [
            {"step": "gate", "spec": {"policy": {"admit": admit}}, "tool": work(1), "next": then("end")},
            {"step": "end", "tool": work(2)},
        ],
    )
    started = await stage.executions.start(Start(playbook=held), BY)
    await stage.until_status(started.execution_id, "waiting")
    before = await stage.views.graph(started.execution_id)
    assert [one.places for one in before.steps] == [{"admission": 1}, {}]
    await stage.ask(started.execution_id, CtxPatched, patch={"go": 1})
    await stage.executions.wait(started.execution_id, 60)
    after = await stage.views.graph(started.execution_id)
    assert [one.places for one in after.steps] == [{}, {}], "the index has read what is new"
    assert after.position > before.position


async def test_an_answer_has_the_size_of_the_playbook(stage: OperationsStage, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    for rounds in (2, 60):
        ended = await stage.run(ROUND, workload={"rounds": rounds})
        sizes.append(len(codec.encode(await stage.views.graph(ended.execution_id))))
    assert sizes[1] < sizes[0] + 100
    monkeypatch.setattr(state, "MOST_REPLAYED", 0)
    found = await stage.views.graph(ended.execution_id)
    last: list[Any] = [arc.last and arc.last.guard for arc in found.arcs]
    assert last == [None] * 4, "too far to replay: no values"
