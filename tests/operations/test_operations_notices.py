"""The notices of an execution: which tokens it discarded, and what it warns of (LANGUAGE §4, §14)."""

from __future__ import annotations

from typing import Any

import pytest
from operations_stage import BY, OperationsStage

from noetl_stream.cli.execution.display.tables import print_ended, print_execution
from noetl_stream.operations.executions import direct
from noetl_stream.operations.executions.reading import documents
from noetl_stream.operations.executions.reading.documents import NOTICES_SHOWN, SUGGESTIONS, undeclared_workload
from noetl_stream.ports.operations.executions import (
    DiscardedTokenDocument,
    ExecutionDocument,
    RerunOptions,
    Start,
    WarningDocument,
)
from noetl_stream.ports.stores.store import StoredEvent
from noetl_testkit.simulation.work import playbook, then, work

REASON = "nothing left can change its admission"
DENIED = {"policy": {"admit": {"rules": [{"else": {"then": {"allow": False}}}]}}}
TWO_SHUT = playbook(
    "shut",
    [
        {
            "step": "start",
            "next": {"spec": {"mode": "inclusive"}, "arcs": [{"step": name} for name in ("shut", "open", "shut")]},
        },
        {"step": "shut", "spec": DENIED, "tool": work(1)},
        {"step": "open", "tool": work(2)},
    ],
)
TAKES = playbook("takes", [{"step": "only", "tool": work("{{ workload.name }}")}], workload={"name": "x", "more": {}})
BEST_EFFORT = {"policy": {"failure": {"mode": "best_effort"}}}
FETCH = {"in": [1, 2, 3], "iterator": "n", "spec": {"mode": "parallel"}}
TOLERANT = playbook(
    "tolerant", [{"step": "fetch", "spec": BEST_EFFORT, "loop": FETCH, "tool": work("{{ iter.n }}", failures=1)}]
)


@pytest.fixture(params=["whole", "long"])
def journal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether journals are read as a whole, or count as too long for that."""
    if request.param == "long":
        monkeypatch.setattr(direct, "DESCRIBED_EVENTS", 1)
        monkeypatch.setattr(documents, "EVENTS_AT_ONCE", 2)
    return str(request.param)


def discarded(found: ExecutionDocument) -> list[tuple[str, str]]:
    assert found.discarded is not None
    assert all(isinstance(one, DiscardedTokenDocument) and one.token for one in found.discarded)
    return [(one.step, one.reason) for one in found.discarded]


@pytest.mark.usefixtures("journal")
async def test_discarded_tokens_are_named_with_step_and_reason(stage: OperationsStage) -> None:
    ended = await stage.run(TWO_SHUT)
    assert (ended.status, ended.discarded_tokens, ended.warnings) == ("completed", 2, [])
    assert discarded(ended) == [("shut", REASON)] * 2
    (first, second) = ended.discarded or ()
    assert first.token != second.token


@pytest.mark.usefixtures("journal")
async def test_a_rerun_names_those_of_its_own(stage: OperationsStage) -> None:
    original = await stage.run(TWO_SHUT)
    again = await stage.executions.rerun(original.execution_id, RerunOptions("open"), BY)
    ended = await stage.executions.wait(again.execution_id, 60)
    assert len(discarded(ended)) == ended.discarded_tokens == 2


async def test_notices_beyond_those_shown_are_counted(stage: OperationsStage) -> None:
    many = {"spec": {"mode": "inclusive"}, "arcs": [{"step": "shut"}] * (NOTICES_SHOWN + 1)}
    steps = [{"step": "start", "next": many}, {"step": "shut", "spec": DENIED, "tool": work(1)}]
    ended = await stage.run(playbook("many", steps))
    assert (len(ended.discarded or ()), ended.discarded_tokens) == (NOTICES_SHOWN, NOTICES_SHOWN + 1)


@pytest.mark.usefixtures("journal")
async def test_failed_iterations_that_were_tolerated_are_a_warning(stage: OperationsStage) -> None:
    ended = await stage.run(TOLERANT)
    assert (ended.status, ended.error) == ("completed", None)
    assert ended.warnings == [WarningDocument("tolerated", "3 of 3 iterations of fetch failed", "fetch")]


@pytest.mark.usefixtures("journal")
async def test_a_limit_that_another_playbook_had_set_otherwise_is_a_warning(stage: OperationsStage) -> None:
    def limited(name: str, limit: int) -> str:
        policy = {"policy": {"concurrency": {"key": "acme", "limit": limit}}}
        return playbook(name, [{"step": "only", "tool": work(1)}], executor={"spec": policy})

    assert (await stage.run(limited("narrow", 1))).warnings == []
    (warning,) = (await stage.run(limited("wide", 3))).warnings or ()
    assert (warning.kind, warning.step) == ("limit_replaced", None)
    assert "key acme is 3 at once now, as playbook simulation/wide says" in warning.message
    assert (await stage.run(limited("wide", 3))).warnings == []


async def test_text_output_shows_notices_with_the_status(
    stage: OperationsStage, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = await stage.run(TOLERANT)
    print_ended(ended)
    assert "completed, 3 of 3 iterations of fetch failed, in " in capsys.readouterr().err
    print_execution(ended)
    shown = capsys.readouterr().out
    assert "status: completed, 3 of 3 iterations of fetch failed\n" in shown
    assert "warning" not in shown


async def test_a_warning_that_comes_after_the_start_is_printed_at_the_end(
    stage: OperationsStage, capsys: pytest.CaptureFixture[str]
) -> None:
    executor = {"spec": {"policy": {"quotas": {"task_runs": 1, "on_exceeded": "warn"}}}}
    ended = await stage.run(playbook("used", [{"step": "only", "tool": [work(1), work(2)]}], executor=executor))
    print_ended(ended)
    assert "warning: quotas.task_runs is 1" in capsys.readouterr().err
    print_ended(ended, warned=ended.warnings or ())
    assert "warning" not in capsys.readouterr().err


@pytest.mark.usefixtures("journal")
async def test_an_undeclared_key_of_the_request_is_a_warning(stage: OperationsStage) -> None:
    ended = await stage.run(TAKES, workload={"name": "y", "nmae": "z", "more": {"any": 1}})
    (warning,) = ended.warnings or ()
    assert (warning.kind, warning.step) == ("undeclared_workload", None)
    assert warning.message == "`workload.nmae` is not declared by the playbook; did you mean `workload.name`?"
    assert (await stage.run(TAKES, workload={"name": "y"})).warnings == []


async def test_undeclared_keys_are_known_as_soon_as_the_execution_has_started(stage: OperationsStage) -> None:
    started = await stage.executions.start(Start(playbook=TAKES, workload={"nmae": "z"}), BY)
    assert [one.kind for one in started.warnings or ()] == ["undeclared_workload"]


async def test_an_execution_with_a_long_journal_shows_its_steps_and_reads_only_what_has_grown(
    stage: OperationsStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = playbook(
        "slow", [{"step": "start", "tool": work(1, 5.0), "next": then("end")}, {"step": "end", "tool": work(2)}]
    )
    started = await stage.executions.start(Start(playbook=slow), BY)
    whole = (await stage.executions.wait(started.execution_id, 60)).steps
    monkeypatch.setattr(direct, "DESCRIBED_EVENTS", 1)
    again = await stage.executions.start(Start(playbook=slow), BY)
    assert [step.step for step in again.steps or ()] in ([], ["start"])
    ended = await stage.executions.wait(again.execution_id, 60)
    assert [(step.step, step.runs, step.status) for step in ended.steps or ()] == [
        (step.step, step.runs, step.status) for step in whole or ()
    ]
    read: list[int] = []
    journal = stage.store.journal

    async def noted(execution_id: str, after: int = 0, limit: int | None = None) -> list[StoredEvent]:
        read.append(after)
        return await journal(execution_id, after, limit)

    monkeypatch.setattr(stage.store, "journal", noted)
    assert (await stage.executions.get(again.execution_id)).steps == ended.steps
    assert max(read) == ended.position


async def test_a_long_journal_is_not_read_for_its_notices_while_it_grows(
    stage: OperationsStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "DESCRIBED_EVENTS", 1)
    slow = playbook(
        "slow", [{"step": "start", "tool": work(1, 5.0), "next": then("end")}, {"step": "end", "tool": work(2)}]
    )
    started = await stage.executions.start(Start(playbook=slow), BY)
    assert (started.discarded, started.warnings) == (None, None)


def test_many_undeclared_keys_cost_no_more_than_a_few_comparisons() -> None:
    found = list(undeclared_workload({f"name_{number}": 1 for number in range(10)}, {"name": 1}))
    assert [("did you mean" in warning.message) for warning in found] == [True] * SUGGESTIONS + [False] * 5


@pytest.mark.parametrize(
    ("given", "declared", "named"),
    [
        ({"a": 1}, {"a": 2}, []),
        ({"b": 1}, {}, ["`workload.b` is not declared by the playbook"]),
        ({"db": {"hots": 1}}, {"db": {"host": 2}}, ["`workload.db.host`"]),
        ({"db": {"any": 1}}, {"db": {}}, []),
        ({"db": {"any": 1}}, {"db": None}, []),
        ({"db": 1}, {"db": {"host": 2}}, []),
    ],
)
def test_a_key_is_declared_where_the_playbook_has_it(
    given: dict[str, Any], declared: dict[str, Any], named: list[str]
) -> None:
    found = [warning.message for warning in undeclared_workload(given, declared)]
    assert len(found) == len(named)
    assert all(name in message for name, message in zip(named, found, strict=True))
