"""Spans of executions, steps and tasks: made of what is committed, once, whatever dies meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from server_stage import Stage
from waiting_stage import EXECUTION, before_and_after, hear, signal

from noetl_stream.model.events import CancelRequested, ExecutionRequested, Rerun
from noetl_stream.model.ids import digest_of
from noetl_stream.model.messages import Request
from noetl_stream.model.traces import execution_span
from noetl_stream.ports.traces import Span, SpanLink
from noetl_stream.server import traces
from noetl_testkit.keys import SIGNER
from noetl_testkit.memory.observation import MemoryTracing
from noetl_testkit.simulation.work import CALLED, playbook, work

RETRY = {"policy": {"rules": [{"when": "{{ outcome.status == 'error' }}", "then": {"do": "retry", "attempts": 3}}]}}
RETRIED = playbook("retried", [{"step": "only", "tool": {"name": "task", **work(1, failures=2), "spec": RETRY}}])
FAILING = playbook("failing", [{"step": "only", "tool": {"name": "task", **work(1, failures=9)}}])
LOOP = {"in": [1, 2], "iterator": "n", "spec": {"mode": "parallel", "max_in_flight": 2}}
LOOPING = playbook("looping", [{"step": "each", "loop": LOOP, "tool": {"name": "task", **work("{{ iter.n }}")}}])


def call(path: str) -> dict[str, Any]:
    return {"name": "calls", "kind": "playbook", "path": path}


CALLING = playbook("calling", [{"step": "only", "tool": call("simulation/called")}])
CHAIN = playbook(
    "chain",
    [
        {"step": "first", "tool": {"name": "before", **work(1)}, "next": {"arcs": [{"step": "second"}]}},
        {"step": "second", "tool": {"name": "after", **work(2, takes_s=20)}},
    ],
)


def traced(stage: Stage) -> MemoryTracing:
    """Where the spans of servers and workers of this stage go."""
    stage.tracing = found = MemoryTracing()
    return found


def shown(spans: list[Span]) -> list[tuple[str, str, str]]:
    """Name, name of the parent, error; but not of attempts, which are told at any moment."""
    names = {span.span_id: span.name for span in spans}
    return [
        (span.name, names.get(span.parent_id, span.parent_id), span.error)
        for span in spans
        if not span.name.startswith("attempt")
    ]


def named(spans: list[Span], name: str) -> list[Span]:
    return [span for span in spans if span.name == name]


async def runs(stage: Stage, source: str, execution_id: str = EXECUTION, **asked: Any) -> None:
    """Runs an execution to its end, and until its span is there."""
    fact = ExecutionRequested("request", digest_of(source), "tests/server", **asked)
    await stage.register(source)
    stage.broker.event_log.forget_message_ids()
    body = SIGNER.encode(Request(execution_id, "request", fact))
    await stage.broker.event_log.publish_request(execution_id, "request", body)
    await stage.ended(execution_id)


async def test_a_task_that_is_retried_is_one_span_around_its_attempts(stage: Stage) -> None:
    tracing = traced(stage)
    await stage.server()
    stage.start_worker()
    await runs(stage, RETRIED)
    assert shown(tracing.spans) == [
        ("task task", "step only", ""),
        ("step only", "execution simulation/retried", ""),
        ("execution simulation/retried", "", ""),
    ]
    (task,) = named(tracing.spans, "task task")
    attempts = named(tracing.spans, "attempt task")
    assert [attempt.error for attempt in attempts] == ["exception", "exception", ""]
    assert {attempt.parent_id for attempt in attempts} == {task.span_id}
    assert (task.started_ms, task.attributes["noetl.task.attempts"]) == (attempts[0].started_ms, 3)


async def test_spans_have_the_attributes_that_the_playbook_names(stage: Stage) -> None:
    tracing = traced(stage)
    await stage.server()
    stage.start_worker()
    step = {"step": "only", "tool": {"name": "task", **work(1)}}
    step["spec"] = {"policy": {"tracing": {"attributes": {"shop.n": "{{ workload.n + 1 }}"}}}}
    policy = {"tracing": {"attributes": {"shop.order": "{{ workload.order }}"}}}
    named_by = playbook("named", [step], workload={"n": 1}, executor={"spec": {"policy": policy}})
    await runs(stage, named_by, workload={"order": "A-7"})
    (whole,) = named(tracing.spans, "execution simulation/named")
    (only,) = named(tracing.spans, "step only")
    assert (whole.attributes["shop.order"], only.attributes["shop.n"]) == ("A-7", 2)
    assert "shop.order" not in only.attributes and only.attributes["noetl.step"] == "only"


async def test_a_failure_shows_its_kind_and_no_message(stage: Stage) -> None:
    tracing = traced(stage)
    await stage.server()
    stage.start_worker()
    await runs(stage, FAILING)
    assert [error for _, _, error in shown(tracing.spans)] == ["exception"] * 3
    (whole,) = named(tracing.spans, "execution simulation/failing")
    assert whole.attributes["noetl.execution.status"] == "failed"
    assert "fails" not in repr(tracing.spans)


async def test_each_iteration_of_a_loop_has_its_own_tasks(stage: Stage) -> None:
    tracing = traced(stage)
    await stage.server()
    stage.start_worker()
    await runs(stage, LOOPING)
    tasks = named(tracing.spans, "task task")
    assert sorted(str(task.attributes["noetl.iteration"]) for task in tasks) == ["0", "1"]
    assert {attempt.parent_id for attempt in named(tracing.spans, "attempt task")} == {task.span_id for task in tasks}
    (step,) = named(tracing.spans, "step each")
    assert (step.attributes["noetl.loop.count"], step.attributes["noetl.loop.ok"]) == (2, 2)


async def test_a_task_that_waits_lasts_from_its_suspension_to_its_answer(stage: Stage) -> None:
    tracing = traced(stage)
    await stage.server()
    stage.start_worker()
    source = before_and_after(hear())
    await stage.request(EXECUTION, "request", source)
    await stage.until(lambda: EXECUTION in stage.tables.executions and stage.tables.timers)
    await stage.pass_time(100)
    await stage.ask(EXECUTION, signal())
    await stage.ended(EXECUTION)
    (heard,) = named(tracing.spans, "task hear")
    assert heard.ended_ms - heard.started_ms >= 100_000


async def test_a_called_execution_hangs_under_the_attempt_of_the_task_that_calls_it(stage: Stage) -> None:
    tracing = traced(stage)
    await stage.server()
    stage.start_worker()
    await stage.register(CALLED)
    await runs(stage, CALLING, trace_id="1" * 32)
    names = {span.span_id: span.name for span in tracing.spans}
    (child,) = named(tracing.spans, "execution simulation/called")
    attempts, (task,) = named(tracing.spans, "attempt calls"), named(tracing.spans, "task calls")
    assert [names[attempt.parent_id] for attempt in attempts] == ["task calls"]
    assert (child.parent_id, names[task.parent_id]) == (attempts[0].span_id, "step only")
    assert child.trace_id == task.trace_id
    assert attempts[0].ended_ms - attempts[0].started_ms >= 700, "as long as the execution that it has called"
    assert attempts[0].attributes["noetl.task.kind"] == "playbook"


async def test_each_attempt_of_a_call_has_the_execution_that_it_called(stage: Stage) -> None:
    tracing = traced(stage)
    await stage.server()
    stage.start_worker()
    await stage.register(FAILING)
    await runs(stage, playbook("calling", [{"step": "only", "tool": {**call("simulation/failing"), "spec": RETRY}}]))
    attempts, children = named(tracing.spans, "attempt calls"), named(tracing.spans, "execution simulation/failing")
    assert [attempt.span_id for attempt in attempts] == [child.parent_id for child in children]
    assert [attempt.attributes["noetl.task.attempt"] for attempt in attempts] == [1, 2, 3]
    assert {attempt.error for attempt in attempts} == {"child_failed"}
    assert {attempt.parent_id for attempt in attempts} == {named(tracing.spans, "task calls")[0].span_id}


async def test_a_step_stopped_by_a_cancel_is_a_cancelled_span(stage: Stage) -> None:
    tracing = traced(stage)
    await stage.server()
    stage.start_worker()
    await stage.request(EXECUTION, "request", CHAIN)
    await stage.until(lambda: named(tracing.spans, "step first"))
    await stage.ask(EXECUTION, CancelRequested("cancel"))
    await stage.ended(EXECUTION)
    assert ("step second", "execution simulation/chain", "cancelled") in shown(tracing.spans)
    (whole,) = named(tracing.spans, "execution simulation/chain")
    assert whole.attributes["noetl.execution.status"] == "cancelled"


async def test_a_rerun_links_to_its_original_and_tells_nothing_again_that_it_reuses(stage: Stage) -> None:
    tracing = traced(stage)
    await stage.server()
    stage.start_worker()
    await runs(stage, CHAIN, trace_id="1" * 32)
    tracing.spans.clear()
    again = {"trace_id": "2" * 32, "rerun": Rerun(EXECUTION, "second"), "principal": "ann"}
    await runs(stage, CHAIN, "execution-again", **again)
    assert [name for name, _, _ in shown(tracing.spans)] == [
        "task after",
        "step second",
        "execution tests/server",
    ]
    assert {span.trace_id for span in tracing.spans} == {"2" * 32}
    assert tracing.spans[-1].links == (SpanLink("1" * 32, execution_span(EXECUTION)),)


async def test_the_caller_decides_whether_its_trace_is_recorded(stage: Stage) -> None:
    tracing = traced(stage)
    await stage.server()
    stage.start_worker()
    caller = {"trace_id": "1" * 32, "caller_span": f"{'2' * 16}-00"}
    await runs(stage, CHAIN, **caller)
    assert tracing.spans == []
    await runs(stage, CHAIN, "execution-2", **{**caller, "caller_span": f"{'2' * 16}-01"})
    assert shown(tracing.spans)[-1] == ("execution simulation/chain", "2" * 16, "")


async def test_another_server_makes_the_same_spans_of_what_a_dead_one_has_begun(stage: Stage) -> None:
    undisturbed, disturbed = Stage(), traced(stage)
    expected = traced(undisturbed)
    await undisturbed.server()
    undisturbed.start_worker()
    await runs(undisturbed, CHAIN)
    _, dying, _ = stage.start_server()
    working = stage.start_worker()
    await stage.request(EXECUTION, "request", CHAIN)
    await stage.until(lambda: named(disturbed.spans, "step first"))
    working.kill()
    dying.kill()
    await stage.server()
    stage.start_worker()
    await stage.ended(EXECUTION, 200)
    assert shown(disturbed.spans) == shown(expected.spans)
    ids = [span.span_id for span in disturbed.spans]
    assert len(set(ids)) == len(ids)
    of_server = {span.span_id for span in disturbed.spans if not span.name.startswith("attempt")}
    assert of_server == {span.span_id for span in expected.spans if not span.name.startswith("attempt")}
    (claimed,) = [row.at_ms for row in await stage.journal(EXECUTION) if row.name == "token.claimed"][1:]
    (second,) = named(disturbed.spans, "step second")
    assert second.started_ms == claimed


async def test_spans_beyond_the_buffer_are_dropped_counted_and_read_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracing = traced(stage)
    await stage.server()
    worker = await stage.manual_worker()
    await stage.request(EXECUTION, "request", CHAIN)
    first, delivery = await worker.take()
    with monkeypatch.context() as narrow:
        narrow.setattr(traces, "MAX_WAITING_BYTES", 0)
        await worker.finish(first, worker.run_of(first, delivery))
        second, delivery = await worker.take()
    assert (shown(tracing.spans), tracing.dropped) == ([], 1)
    await worker.finish(second, worker.run_of(second, delivery))
    await stage.ended(EXECUTION)
    assert [name for name, _, _ in shown(tracing.spans)] == [
        "task only",
        "step second",
        "execution simulation/chain",
    ]
