from __future__ import annotations

from typing import Any

import pytest
from server_stage import Stage, once
from waiting_stage import EXECUTION, result_of, whole

from noetl_stream.errors import Fenced, NoetlError, OutcomeUnknown
from noetl_stream.model.events import ChildRequested
from noetl_stream.ports.stores.store import ObjectUseRow
from noetl_testkit.entries import names_in
from noetl_testkit.simulation.work import CALLED, CALLED_PATH, playbook, work

LIMITS = {"policy": {"limits": {"max_inline_bytes": 300}}}
LARGE = [{"n": n, "text": "x" * 20} for n in range(40)]
CHILD, MIDDLE = "simulation/child", "simulation/middle"


def book(name: str, step: dict[str, Any], **result: str) -> str:
    """A playbook of one step; without another ``result`` it hands on what that gives, however large."""
    return playbook(name, [step], executor={"spec": {**LIMITS, **result}})


def large() -> str:
    return book("child", {"step": "big", "tool": work(LARGE)})


def calls(name: str, path: str, loop: dict[str, Any] | None = None, **result: str) -> str:
    task = {"name": "call", "kind": "playbook", "path": path}
    return book(name, {"step": "call", "tool": [task], **(loop or {})}, **result)


async def child_of(stage: Stage, execution_id: str) -> str:
    (found,) = [fact.execution_id for fact in await stage.facts(execution_id) if isinstance(fact, ChildRequested)]
    return found


async def runs(stage: Stage, source: str, *known: str) -> Any:
    """Its result, once it has ended."""
    await stage.server()
    stage.start_worker()
    for one in known:
        await stage.register(one)
    await stage.request(EXECUTION, "request-1", source)
    row = await stage.ended(EXECUTION)
    assert row.status == "completed", row.error
    return result_of(row)


def uses(stage: Stage) -> set[ObjectUseRow]:
    return set(stage.tables.object_uses.values())


async def test_a_parent_records_its_use_of_a_large_child_result(stage: Stage) -> None:
    assert await runs(stage, calls("parent", CHILD, result="{{ call[39].n }}"), large()) == 39
    child = await child_of(stage, EXECUTION)
    (key,) = [key for key in stage.broker.blobs.keys if key.startswith(f"{child}/")]
    assert await stage.store.real.objects_used_elsewhere(child) == [
        ObjectUseRow(execution_id=EXECUTION, key=key, store="nats", owner=child)
    ]
    assert await stage.store.real.objects_used_elsewhere(EXECUTION) == []


async def test_the_row_is_written_with_the_record_and_not_before(stage: Stage) -> None:
    seen: list[tuple[bool, bool]] = []

    def look(tick: Any) -> None:
        finished = "child.finished" in names_in(tick)
        seen.append((finished, bool(tick.object_uses)))

    stage.store.before_commit = look
    await runs(stage, calls("parent", CHILD), large())
    assert (True, True) in seen and set(seen) <= {(False, False), (True, True)}


@pytest.mark.parametrize("error", [Fenced("another has it"), OutcomeUnknown("no answer")], ids=["fenced", "unknown"])
@pytest.mark.parametrize("committed", [False, True], ids=["not committed", "committed"])
async def test_a_failed_tick_names_a_used_object_once(stage: Stage, error: NoetlError, committed: bool) -> None:
    wrong = once(error, lambda tick: tick.object_uses)
    if committed:
        stage.store.after_commit = wrong
    else:
        stage.store.before_commit = wrong
    await runs(stage, calls("parent", CHILD), large())
    assert len(uses(stage)) == 1
    assert (await whole(stage, EXECUTION)).count("child.finished") == 1


async def test_a_result_handed_up_is_used_by_every_parent_it_came_through(stage: Stage) -> None:
    await runs(stage, calls("top", MIDDLE, result="{{ call[0].n }}"), large(), calls("middle", CHILD))
    middle = await child_of(stage, EXECUTION)
    child = await child_of(stage, middle)
    assert {(use.execution_id, use.owner) for use in uses(stage)} == {(middle, child), (EXECUTION, child)}


async def test_a_list_that_a_childs_journal_holds_is_used_by_its_name(stage: Stage) -> None:
    loop = {"loop": {"in": list(range(40)), "iterator": "n", "spec": {"mode": "parallel"}}}
    child = book("child", {"step": "all", "tool": work("x" * 20), **loop})
    assert await runs(stage, calls("parent", CHILD, result="{{ call | length }}"), child) == 40
    owner = await child_of(stage, EXECUTION)
    (use,) = await stage.store.real.objects_used_elsewhere(owner)
    assert (use.store, use.owner) == ("journal", owner) and use.key.startswith(f"{owner}.")


async def test_each_child_of_a_loop_is_named(stage: Stage) -> None:
    loop = {"loop": {"in": [1, 2, 3], "iterator": "n", "spec": {"mode": "parallel"}}}
    await runs(stage, calls("parent", CHILD, loop), large())
    assert len({use.owner for use in uses(stage)}) == 3


async def test_the_args_of_a_child_are_values_and_need_no_use_row(stage: Stage) -> None:
    called = book("child", {"step": "count", "tool": work("{{ workload.big | length }}")}, result="{{ count }}")
    call = {"name": "call", "kind": "playbook", "path": CHILD, "args": {"big": "{{ big }}"}}
    steps: list[dict[str, Any]] = [
        {"step": "big", "tool": work(LARGE), "next": {"arcs": [{"step": "call"}]}},
        {"step": "call", "tool": [call]},
    ]
    assert await runs(stage, playbook("parent", steps, executor={"spec": LIMITS}), called) == 40
    assert uses(stage) == set()


async def test_small_results_cost_no_row(stage: Stage) -> None:
    await runs(stage, calls("parent", CALLED_PATH), CALLED)
    assert uses(stage) == set()
