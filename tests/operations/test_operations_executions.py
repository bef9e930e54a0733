"""Executions as people use them: started, looked at, asked of, forgotten."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from operations_stage import BY, OperationsStage

from noetl_stream.adapters.evaluation.pool import MemoryEvaluator
from noetl_stream.engine.replay import replay
from noetl_stream.engine.snapshot import SNAPSHOT_FORMAT, digest_of_snapshot, encode_state
from noetl_stream.errors import (
    Conflict,
    EvaluationEnded,
    NotFound,
    PlaybookRefused,
    Unreachable,
    UsageError,
    VersionMismatch,
    WorkloadRefused,
)
from noetl_stream.model.events import CancelRequested, CtxPatched, PauseRequested, SignalReceived, TokenInjected
from noetl_stream.model.ids import digest_of, uuid7
from noetl_stream.model.limits import DEFAULT_LIMITS
from noetl_stream.operations.executions.direct import DESCRIBED_EVENTS, DirectExecutions
from noetl_stream.operations.executions.prepare import CheckedText, PlaybookChecker, refuse_workload
from noetl_stream.operations.executions.submit import PATIENCE_S
from noetl_stream.ports.operations.executions import (
    ExecutionFilter,
    LoopCountsDocument,
    RequestIds,
    RerunOptions,
    Start,
    StepRunRange,
    StepRunsDocument,
)
from noetl_stream.ports.stores.store import SnapshotRow
from noetl_testkit.simulation.work import playbook, then, work

ONE = playbook("one", [{"step": "only", "tool": work("{{ workload.n }}")}], workload={"n": 1})
HEAR = {"name": "hear", "kind": "wait", "signal": "go", "timeout_s": 60}
HEARS = playbook("hears", [{"step": "ear", "tool": [HEAR]}])
FAILS = playbook("fails", [{"step": "only", "tool": {"name": "call", **work("x", failures=9)}}])
BIG = "x" * (DEFAULT_LIMITS.max_inline_bytes + 1)
UNKNOWN = "0199aaaa-0000-7000-8000-000000000000"


async def test_a_text_is_started_and_is_there_when_that_is_answered(stage: OperationsStage) -> None:
    wanted = Start(playbook=ONE, workload={"n": 7}, ctx={"a": 1}, reason="to see", correlation_id="c-1")
    started = await stage.executions.start(wanted, BY)
    assert (started.path, started.principal, started.ctx) == ("simulation/one", BY, {"a": 1})
    assert (started.digest, started.parent, started.rerun_of) == (digest_of(ONE), None, None)
    ended = await stage.executions.wait(started.execution_id, 60)
    assert (ended.status, ended.result, ended.error) == ("completed", 7, None)
    assert [step.status for step in ended.steps] == ["done"]
    assert ended.finished >= ended.started == started.started


async def test_a_registered_playbook_is_started_by_path_version_and_digest(stage: OperationsStage) -> None:
    older, newer = (playbook("kept", [{"step": "only", "tool": work(n)}]) for n in (1, 2))
    for source in (older, newer):
        await stage.playbooks.register(source.encode(), "file", BY)
    results = []
    for wanted in (
        Start(path="simulation/kept"),
        Start(path="/simulation/kept", version="1"),
        Start(digest=digest_of(older)),
    ):
        started = await stage.executions.start(wanted, BY)
        results.append((await stage.executions.wait(started.execution_id, 60)).result)
    assert results == [2, 1, 1]


@pytest.mark.parametrize(
    ("wanted", "error", "message"),
    [
        (Start(), UsageError, "not none"),
        (Start(playbook=ONE, digest="d"), UsageError, "not playbook and digest"),
        (Start(playbook=ONE, version="1"), UsageError, "a version needs a path"),
        (Start(path="simulation/none"), NotFound, "no playbook simulation/none"),
        (Start(path="a b"), NotFound, "not an address"),
        (Start(digest="d" * 64), NotFound, "no playbook with digest"),
        (Start(playbook="workflow: ["), PlaybookRefused, "playbook:"),
        (Start(playbook=ONE, workload={"n": BIG * 20}), UsageError, "limits.max_workload_bytes"),
    ],
)
async def test_a_start_that_cannot_be_done_is_refused_with_the_reason(
    stage: OperationsStage, wanted: Start, error: type[UsageError], message: str
) -> None:
    with pytest.raises(error, match=message):
        await stage.executions.start(wanted, BY)


async def test_a_playbook_with_errors_reaches_no_stream(stage: OperationsStage) -> None:
    with pytest.raises(PlaybookRefused) as refused:
        await stage.executions.start(Start(playbook=ONE.replace('"tool"', '"tol"')), BY)
    assert refused.value.diagnostics[0]["line"] == 1
    assert stage.broker.event_log.stored == []


INPUTS = {"properties": {"rows": {"type": "integer"}, "order": {"type": "object", "properties": {"id": {}}}}}
DECLARED = playbook(
    "declared",
    [{"step": "start", "tool": work("{{ workload.rows }}")}],
    executor={"spec": {"workload": INPUTS}},
    workload={"rows": 1},
)


async def test_a_workload_that_does_not_match_reaches_no_stream(stage: OperationsStage) -> None:
    with pytest.raises(WorkloadRefused, match="does not match its schema at `/rows`") as refused:
        await stage.executions.start(Start(playbook=DECLARED, workload={"rows": "ten"}), BY)
    assert (refused.value.pointer, refused.value.reason) == ("/rows", 'the value is not of type "integer"')
    assert stage.broker.event_log.stored == []


async def test_a_long_comparison_of_a_workload_is_made_by_another_process() -> None:
    schema = {"properties": {"text": {"pattern": "^[a-z]+$"}}}
    checked, evaluator = CheckedText("digest", "path", {}, schema), MemoryEvaluator()
    await refuse_workload(checked, {"text": "short"}, evaluator)
    assert evaluator.answered == 0
    await refuse_workload(checked, {"text": "x" * 400_000}, evaluator)
    with pytest.raises(WorkloadRefused, match="does not match its schema at `/text`") as refused:
        await refuse_workload(checked, {"text": "x" * 400_000 + "!"}, evaluator)
    assert (refused.value.pointer, refused.value.reason) == ("/text", 'the value does not match "^[a-z]+$"')
    assert evaluator.answered == 2


async def test_a_server_compares_workloads_that_another_process_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator, asked = MemoryEvaluator(), []

    async def ended(questions: bytes) -> bytes:
        asked.append(questions)
        raise EvaluationEnded("too long")

    monkeypatch.setattr(evaluator, "evaluate", ended)
    schema = {"properties": {"text": {"pattern": "^[a-z]+$"}}}
    await refuse_workload(CheckedText("digest", "path", {}, schema), {"text": "x" * 400_000 + "!"}, evaluator)
    assert len(asked) == 1


async def test_a_key_that_a_schema_declares_is_not_undeclared(stage: OperationsStage) -> None:
    started = await stage.executions.start(
        Start(playbook=DECLARED, workload={"rows": 2, "order": {"id": 1, "nr": 2}}), BY
    )
    assert [one.message for one in started.warnings or ()] == ["`workload.order.nr` is not declared by the playbook"]


async def test_ids_that_were_handed_in_before_start_nothing_twice(stage: OperationsStage) -> None:
    ids = RequestIds(*(uuid7(stage.clock.now_ms(), bytes([n] * 10)) for n in (1, 2)))
    first = await stage.executions.start(Start(playbook=ONE), BY, ids)
    assert first.execution_id == ids.execution_id
    await stage.executions.wait(ids.execution_id, 60)
    stage.broker.event_log.forget_message_ids()
    again = await stage.executions.start(Start(playbook=ONE), BY, ids)
    assert again.status == "completed"
    assert set(stage.effects.values()) == {1}


async def test_two_at_once_with_the_same_ids_are_one(stage: OperationsStage) -> None:
    ids = RequestIds(*(uuid7(stage.clock.now_ms(), bytes([n] * 10)) for n in (1, 2)))
    starts = (stage.executions.start(Start(playbook=ONE), BY, ids) for _ in range(3))
    found = await asyncio.gather(*starts)
    assert {one.execution_id for one in found} == {ids.execution_id}
    await stage.executions.wait(ids.execution_id, 60)
    assert set(stage.effects.values()) == {1}


async def test_without_a_server_the_call_fails_and_the_request_stays() -> None:
    stage = OperationsStage()
    with pytest.raises(Unreachable, match=f"no server answered within {PATIENCE_S:g} s") as raised:
        await stage.executions.start(Start(playbook=ONE), BY)
    await stage.begin()
    while not (found := (await stage.executions.page(ExecutionFilter(), 10, None)).items):
        await stage.clock.sleep(0.1)
    assert found[0].execution_id in str(raised.value.hint), "who repeats it would have two"
    ended = await stage.executions.wait(found[0].execution_id, 60)
    assert ended.status == "completed"
    await stage.close()


async def test_waiting_ends_with_the_time(stage: OperationsStage) -> None:
    started = await stage.executions.start(Start(playbook=HEARS), BY)
    began_s = stage.clock.monotonic_s()
    found = await stage.executions.wait(started.execution_id, 7)
    assert (found.status, found.waits[0].what) == ("waiting", "signal go")
    assert 7 <= stage.clock.monotonic_s() - began_s < 8


async def test_for_the_answer_to_a_start_of_a_text_that_was_checked_before_nothing_is_replayed(
    stage: OperationsStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    checking = PlaybookChecker(dict, DEFAULT_LIMITS, [CheckedText(digest_of(HEARS), "tests/hears", {})])
    executions = DirectExecutions(stage.execution_ports, checking, lambda: stage.cluster)
    monkeypatch.setattr("noetl_stream.engine.replay.replay", None)
    started = await executions.start(Start(playbook=HEARS), BY)
    assert (started.status, started.waits) == ("running", None)


async def test_an_unknown_execution_is_not_found(stage: OperationsStage) -> None:
    executions = stage.executions
    for work_ in (
        executions.get(UNKNOWN),
        executions.get("no/id"),
        executions.wait(UNKNOWN, 1),
        executions.result(UNKNOWN),
        executions.steps(UNKNOWN),
        executions.iterations(UNKNOWN, "run", 10, None),
        executions.events(UNKNOWN, 0, 10),
        executions.ctx(UNKNOWN),
        executions.why(UNKNOWN),
        executions.rerun(UNKNOWN, RerunOptions(), BY),
        executions.delete(UNKNOWN, BY),
        stage.ask(UNKNOWN, CancelRequested),
    ):
        with pytest.raises(NotFound, match="not found"):
            await work_


async def test_a_large_result_is_shown_as_reference_and_loaded_as_result(stage: OperationsStage) -> None:
    ended = await stage.run(playbook("big", [{"step": "only", "tool": work(BIG)}]))
    assert set(ended.result) == {"$reference"}
    assert (await stage.executions.result(ended.execution_id)).result == BIG
    stage.broker.blobs.lose(ended.result["$reference"]["key"])
    with pytest.raises(NotFound, match="lost"):
        await stage.executions.result(ended.execution_id)


async def test_the_result_of_a_long_loop_is_gathered(stage: OperationsStage) -> None:
    loop = {"in": "{{ range(40) | list }}", "iterator": "n", "spec": {"mode": "parallel"}}
    big = "{{ 'x' * 4000 ~ iter.n }}"
    ended = await stage.run(playbook("gathers", [{"step": "all", "loop": loop, "tool": work(big)}]))
    assert ended.result["$reference"]["store"] == "journal"
    result = (await stage.executions.result(ended.execution_id)).result
    assert [one[4000:] for one in result] == [str(n) for n in range(40)]


async def test_a_running_execution_has_no_result(stage: OperationsStage) -> None:
    started = await stage.executions.start(Start(playbook=HEARS), BY)
    with pytest.raises(Conflict, match="has not ended"):
        await stage.executions.result(started.execution_id)
    with pytest.raises(Conflict, match="has not ended"):
        await stage.executions.rerun(started.execution_id, RerunOptions(), BY)


async def test_step_runs_are_shown_in_the_order_they_began(stage: OperationsStage) -> None:
    retry = {"when": "{{ outcome.status == 'error' }}", "then": {"do": "retry", "attempts": 3}}
    steps: list[dict[str, Any]] = [
        {"step": "start", "tool": work(1), "next": then("tries")},
        {"step": "tries", "tool": {"name": "try", **work(2, failures=1), "spec": {"policy": {"rules": [retry]}}}},
    ]
    ended = await stage.run(playbook("two", steps))
    first, second = await stage.executions.steps(ended.execution_id)
    assert (first.step, first.status, first.attempts, first.result) == ("start", "done", 1, 1)
    assert (second.attempts, second.retries, second.worker) == (2, 1, "worker")
    assert second.token.from_step_run_id == first.step_run_id
    failed = await stage.run(FAILS)
    (only,) = await stage.executions.steps(failed.execution_id)
    assert (only.status, only.error.kind) == ("failed", failed.error.kind)


async def test_step_runs_come_page_by_page_by_step_or_one_alone(stage: OperationsStage) -> None:
    steps: list[dict[str, Any]] = [
        {"step": "start", "tool": work(1), "next": {"spec": {"mode": "inclusive"}, "arcs": [{"step": "each"}] * 3}},
        {"step": "each", "tool": work(2)},
    ]
    one = (await stage.run(playbook("several", steps))).execution_id
    everything = await stage.executions.steps(one)
    first = await stage.executions.runs(one, StepRunRange(limit=3))
    assert (first.items, first.count, first.next) == (everything[:3], 4, 3)
    assert await stage.executions.runs(one, StepRunRange(3, 3)) == StepRunsDocument(everything[3:], 4)
    assert (await stage.executions.runs(one, StepRunRange(1, 1, "each"))).items == [everything[2]]
    only = await stage.executions.runs(one, StepRunRange(step_run_id=everything[2].step_run_id))
    assert (only.items, only.count) == ([everything[2]], 1)
    assert (await stage.executions.runs(one, StepRunRange(step_run_id="nowhere"))).items == []


async def test_step_runs_come_by_their_duration_page_by_page_those_that_go_on_first(stage: OperationsStage) -> None:
    steps: list[dict[str, Any]] = [
        {"step": "start", "next": then("short", "long", "endless", "later", mode="inclusive")},
        {"step": "short", "tool": work(1, 0.5)},
        {"step": "long", "tool": work(1, 3.0)},
        {"step": "endless", "tool": [{"name": "hear", "kind": "wait", "signal": "go", "timeout_s": 600}]},
        {"step": "later", "tool": work(1, 5.0)},
    ]
    one = (await stage.executions.start(Start(playbook=playbook("sorted", steps)), BY)).execution_id
    await stage.until_status(one, "waiting")
    first = await stage.executions.runs(one, StepRunRange(0, 3, order="duration"))
    rest = await stage.executions.runs(one, StepRunRange(3, 3, order="duration"))
    assert [run.step for run in (*first.items, *rest.items)] == ["endless", "later", "long", "short", "start"]
    assert (first.count, first.next, rest.next) == (5, 3, None)


async def test_the_result_of_a_step_run_is_loaded_from_its_place(stage: OperationsStage) -> None:
    large = "x" * 8_000
    steps = [{"step": "start", "tool": work(BIG), "next": then("more")}, {"step": "more", "tool": work(large)}]
    one = (await stage.run(playbook("kept", steps))).execution_id
    kept, inline = await stage.executions.steps(one)
    assert "$reference" in kept.result and "$large" in inline.result
    assert (await stage.executions.run_result(one, kept.step_run_id)).result == BIG
    assert (await stage.executions.run_result(one, inline.step_run_id)).result == large
    with pytest.raises(NotFound, match="no step run"):
        await stage.executions.run_result(one, "nowhere")


async def test_iterations_come_page_by_page(stage: OperationsStage) -> None:
    loop = {"in": "{{ range(25) | list }}", "iterator": "n", "spec": {"mode": "parallel", "max_in_flight": 25}}
    tool = {**work("{{ iter.n * 2 }}"), "takes_s": "{{ 5 - iter.n % 5 }}"}
    ended = await stage.run(playbook("loops", [{"step": "all", "loop": loop, "tool": tool}]))
    (step,) = await stage.executions.steps(ended.execution_id)
    assert step.loop == LoopCountsDocument(count=25, ok=25, failed=0, skipped=0, failed_leaves=0)
    seen, cursor = [], None
    while True:
        page = await stage.executions.iterations(ended.execution_id, step.step_run_id, 3, cursor)
        seen += [(*one.path, one.result, one.status) for one in page.items]
        cursor = page.next
        if cursor is None:
            break
    assert seen == [(n, 2 * n, "done") for n in range(25)]


async def test_events_are_envelopes_by_position(stage: OperationsStage) -> None:
    ended = await stage.run(ONE)
    events = await stage.executions.events(ended.execution_id, 0, 1000)
    assert [event.position for event in events] == list(range(1, ended.position + 1))
    assert (events[0].name, events[0].actor) == ("execution.requested", BY)
    assert await stage.executions.events(ended.execution_id, 3, 2) == events[3:5]


async def test_the_history_of_ctx_says_who_changed_what_and_why(stage: OperationsStage) -> None:
    sets = {"else": {"then": {"do": "continue", "set_ctx": {"b": 2, "c": 3}}}}
    shares = {"else": {"then": {"do": "continue", "set_shared": {"sum": {"op": "add", "value": "{{ iter.n }}"}}}}}
    loop = {"in": [1, 2, 3], "iterator": "n"}
    steps: list[dict[str, Any]] = [
        {
            "step": "start",
            "tool": {"name": "set", **work(1), "spec": {"policy": {"rules": [sets]}}},
            "next": then("all"),
        },
        {
            "step": "all",
            "loop": loop,
            "tool": {"name": "add", **work(1), "spec": {"policy": {"rules": [shares]}}},
            "next": then("ear"),
        },
        {"step": "ear", "tool": [HEAR]},
    ]
    started = await stage.executions.start(Start(playbook=playbook("ctx", steps), ctx={"a": 1}, reason="first"), BY)
    execution_id = started.execution_id
    await stage.until_status(execution_id, "waiting")
    await stage.ask(execution_id, CtxPatched, patch={"a": 9}, reason="approved", correlation_id="t-7")
    found = await stage.executions.ctx(execution_id)
    assert found.ctx == {"a": 9, "b": 2, "c": 3, "sum": 6}
    changes = [(one.keys, one.principal, one.reason, one.step, one.task) for one in found.history]
    assert changes == [
        (["a"], BY, "first", None, None),
        (["b", "c"], "", "", "start", "set"),
        (["sum"], "", "", "all", None),
        (["a"], BY, "approved", None, None),
    ]
    assert found.version == found.history[-1].position
    assert found.history[-1].correlation_id == "t-7"
    assert (await stage.executions.get(execution_id)).ctx_version == found.version


async def test_a_request_is_answered_or_refused_by_its_kind(stage: OperationsStage) -> None:
    started = await stage.executions.start(Start(playbook=HEARS), BY)
    execution_id = started.execution_id
    await stage.until_status(execution_id, "waiting")
    with pytest.raises(VersionMismatch):
        await stage.ask(execution_id, CtxPatched, patch={"a": 1}, expected_version=999)
    with pytest.raises(UsageError, match="no step nowhere"):
        await stage.ask(execution_id, TokenInjected, step="nowhere")
    assert (await stage.ask(execution_id, PauseRequested)).position
    assert (await stage.ask(execution_id, PauseRequested)).already is True
    assert (await stage.ask(execution_id, CancelRequested)).position
    await stage.executions.wait(execution_id, 60)
    with pytest.raises(Conflict, match="has ended"):
        await stage.ask(execution_id, SignalReceived, signal="go")


async def test_a_failed_run_is_run_again_from_its_step(stage: OperationsStage) -> None:
    steps: list[dict[str, Any]] = [
        {"step": "start", "tool": work(1), "next": then("gate")},
        {"step": "gate", "tool": work("{{ ctx.name }}")},
    ]
    failed = await stage.run(playbook("again", steps))
    assert failed.status == "failed"
    began = await stage.executions.rerun(
        failed.execution_id, RerunOptions("gate", ctx={"name": "ada"}, reason="set"), BY
    )
    assert (began.rerun_of, began.principal) == (failed.execution_id, BY)
    ended = await stage.executions.wait(began.execution_id, 60)
    assert (ended.status, ended.result) == ("completed", "ada")
    assert sorted(effect.step for effect in stage.effects) == ["gate", "start"]
    shown = [(step.step, step.status, step.result) for step in await stage.executions.steps(began.execution_id)]
    assert shown == [("start", "reused", 1), ("gate", "done", "ada")]
    (change,) = (await stage.executions.ctx(began.execution_id)).history
    assert (change.keys, change.reason) == (["name"], "set")


async def test_an_execution_that_cannot_be_rerun_is_refused_with_the_reason(stage: OperationsStage) -> None:
    ended = await stage.run(ONE)
    with pytest.raises(Conflict, match="has not failed"):
        await stage.executions.rerun(ended.execution_id, RerunOptions(), BY)
    with pytest.raises(UsageError, match="no step nowhere"):
        await stage.executions.rerun(ended.execution_id, RerunOptions("nowhere"), BY)
    assert list(stage.store.tables.executions) == [ended.execution_id], "nothing has begun"


async def test_why_is_answered_for_what_waits_and_what_has_ended(stage: OperationsStage) -> None:
    started = await stage.executions.start(Start(playbook=HEARS), BY)
    execution_id = started.execution_id
    await stage.until_status(execution_id, "waiting")
    assert "signal" in (await stage.executions.why(execution_id)).summary
    failed = await stage.run(FAILS)
    assert "`call`" in (await stage.executions.why(failed.execution_id)).summary


async def test_a_look_at_a_long_journal_shows_steps_and_not_what_it_waits_for(stage: OperationsStage) -> None:
    ended = await stage.run(ONE)
    row = await stage.store.execution(ended.execution_id)
    assert row is not None
    stage.store.tables.executions[row.execution_id] = replace(row, position=DESCRIBED_EVENTS + 1)
    found = await stage.executions.get(row.execution_id)
    assert [step.step for step in found.steps or ()] == ["only"]
    assert (found.waits, found.principal, found.result) == (None, BY, 1)


async def test_waits_of_a_long_execution_are_known_from_its_last_snapshot(stage: OperationsStage) -> None:
    started = await stage.executions.start(Start(playbook=HEARS), BY)
    await stage.until_status(started.execution_id, "waiting")
    short = await stage.executions.get(started.execution_id)
    row = await stage.store.execution(started.execution_id)
    state = replay(started.execution_id, await stage.store.journal(started.execution_id))
    assert row is not None and state is not None and short.waits
    long = replace(state, position=DESCRIBED_EVENTS + 1)
    stage.store.tables.executions[row.execution_id] = replace(row, position=long.position)
    assert (await stage.executions.get(row.execution_id)).waits is None, "its whole journal is not read"
    body = encode_state(long)
    stage.store.tables.snapshots[row.execution_id, long.position] = SnapshotRow(
        execution_id=row.execution_id,
        position=long.position,
        format=SNAPSHOT_FORMAT,
        digest=digest_of_snapshot(row.execution_id, long.position, body),
        body=body,
    )
    assert (await stage.executions.get(row.execution_id)).waits == short.waits


async def test_a_task_longer_than_a_lease_runs_once(stage: OperationsStage) -> None:
    ended = await stage.run(playbook("long", [{"step": "long", "tool": work("done", 60)}]))
    assert ended.status == "completed"
    assert list(stage.effects.values()) == [1]
