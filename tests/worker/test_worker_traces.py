"""Spans of attempts, what their calls are told of the trace, and the exemplars of their durations."""

from __future__ import annotations

import io
import json
import logging

from prometheus_client.openmetrics.parser import text_string_to_metric_families
from worker_stage import EXECUTION, Endless, Stage

from measured import samples_of
from noetl_stream.model.traces import task_span, trace_of
from noetl_stream.telemetry.status_server import exposition
from noetl_stream.telemetry.structured_logs import LineFormatter, json_line
from noetl_stream.tools.contract import ToolCall, ToolFailure
from noetl_stream.worker.status_report import WorkerStatus
from noetl_testkit.memory.observation import MemoryTracing

TRACE_ID, CALLER = "1" * 32, "2" * 16
ONE_TASK = "- step: start\n  tool: {name: first, kind: puppet}\n"
LOCAL = "- step: start\n  loop: {in: [1, 2], iterator: n}\n  tool: {name: first, kind: puppet}\n"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


async def test_each_attempt_is_a_span_of_its_task(stage: Stage) -> None:
    tracing = MemoryTracing()
    await stage.start(tracing=tracing)
    await stage.issue(stage.command(stage.plan(ONE_TASK), trace_id=TRACE_ID))
    (span,) = tracing.spans
    assert (span.trace_id, span.name, span.error, span.kind) == (TRACE_ID, "attempt first", "", "internal")
    assert span.parent_id == task_span("steprun-1", (), "first", 0)
    assert (span.attributes["noetl.task.kind"], span.attributes["noetl.task.attempt"]) == ("puppet", 1)
    (call,) = stage.puppet.calls
    assert call.traceparent == f"00-{TRACE_ID}-{span.span_id}-01"


async def test_an_attempt_has_the_attributes_that_its_task_names(stage: Stage) -> None:
    named = '{shop.order: "{{ workload.order }}", shop.try: "{{ _attempt }}", shop.bad: "{{ workload.no.such }}"}'
    task = f"{{name: first, kind: puppet, spec: {{policy: {{tracing: {{attributes: {named}}}}}}}}}"
    tracing = MemoryTracing()
    await stage.start(tracing=tracing)
    plan = stage.plan(f"- step: start\n  tool: {task}\n")
    await stage.issue(stage.command(plan, trace_id=TRACE_ID, workload={"order": "A-7"}))
    (span,) = tracing.spans
    shown = {name: value for name, value in span.attributes.items() if "shop" in name or "missing" in name}
    assert shown == {"shop.order": "A-7", "shop.try": 1, "noetl.tracing.missing": "shop.bad"}


async def test_no_attribute_shows_a_secret_that_the_worker_has_read(stage: Stage) -> None:
    named = '{shop.key: "{{ workload.key }}"}'
    task = f"{{name: first, kind: puppet, spec: {{policy: {{tracing: {{attributes: {named}}}}}}}}}"
    tracing = MemoryTracing()
    worker = await stage.start(tracing=tracing)
    worker.keychain.redactor.learn("hunter2-mango")
    plan = stage.plan(f"- step: start\n  tool: {task}\n")
    await stage.issue(stage.command(plan, trace_id=TRACE_ID, workload={"key": "my hunter2-mango"}))
    (span,) = tracing.spans
    assert str(span.attributes["shop.key"]).startswith("my ") and "hunter2" not in repr(tracing.spans)


async def test_each_iteration_of_a_local_loop_has_a_span(stage: Stage) -> None:
    tracing = MemoryTracing()
    await stage.start(tracing=tracing)
    await stage.issue(stage.command(stage.plan(LOCAL), trace_id=TRACE_ID, items=[1, 2], counts=[]))
    assert [span.attributes["noetl.iteration"] for span in tracing.spans] == ["0", "1"]
    assert len({span.span_id for span in tracing.spans}) == 2


async def test_an_attempt_that_is_stopped_is_a_cancelled_span(stage: Stage) -> None:
    tracing = MemoryTracing()
    stage.puppet.acts["first"] = Endless()
    await stage.start(tracing=tracing)
    await stage.issue(stage.command(stage.plan(ONE_TASK), trace_id=TRACE_ID))
    await stage.stop_commands("command-1")
    assert [span.error for span in tracing.spans] == ["cancelled"]


async def test_a_second_run_of_a_command_is_another_span_of_the_same_task(stage: Stage) -> None:
    tracing = MemoryTracing()
    await stage.start(tracing=tracing)
    plan = stage.plan(ONE_TASK)
    for step_run in ("command-1", "command-2"):
        await stage.issue(stage.command(plan, step_run, trace_id=TRACE_ID))
    first, second = tracing.spans
    assert first.parent_id == second.parent_id
    assert first.span_id != second.span_id


async def test_the_failure_of_an_attempt_shows_its_kind_and_no_message(stage: Stage) -> None:
    async def fails(_call: ToolCall) -> str:
        raise ToolFailure.of("exception", "hunter2")

    tracing = MemoryTracing()
    stage.puppet.acts["first"] = fails
    await stage.start(tracing=tracing)
    await stage.issue(stage.command(stage.plan(ONE_TASK), trace_id=TRACE_ID))
    assert [span.error for span in tracing.spans] == ["exception"]
    assert "hunter2" not in repr(tracing.spans)


async def test_a_span_shows_what_its_tool_says_of_the_call(stage: Stage) -> None:
    async def calls(call: ToolCall) -> int:
        call.attributes.update({"http.request.method": "GET", "server.address": "example.org", "server.port": 443})
        return 1

    tracing = MemoryTracing()
    stage.puppet.acts["first"] = calls
    await stage.start(tracing=tracing)
    await stage.issue(stage.command(stage.plan(ONE_TASK), trace_id=TRACE_ID))
    (span,) = tracing.spans
    shown = [span.attributes[name] for name in ("http.request.method", "server.address", "server.port")]
    assert (shown, span.attributes["noetl.worker"]) == (["GET", "example.org", 443], "worker-1")


async def test_log_lines_of_a_command_carry_its_trace(stage: Stage) -> None:
    async def fail(_call: ToolCall) -> int:
        raise ToolFailure.of("http", "status 503")

    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(LineFormatter(json_line))
    logging.getLogger("noetl_stream").addHandler(handler)
    stage.puppet.acts["first"] = fail
    await stage.start()
    await stage.issue(stage.command(stage.plan(ONE_TASK), trace_id=TRACE_ID))
    logging.getLogger("noetl_stream").removeHandler(handler)
    (line,) = [json.loads(one) for one in written.getvalue().splitlines() if "task failed" in one]
    assert (line["trace_id"], line["execution"]) == (TRACE_ID, EXECUTION)


async def test_without_tracing_calls_belong_to_the_span_of_the_caller(stage: Stage) -> None:
    await stage.start()
    plan = stage.plan(ONE_TASK)
    await stage.issue(stage.command(plan, trace_id=TRACE_ID, caller_span=f"{CALLER}-00"))
    await stage.issue(stage.command(plan, "command-2", trace_id=TRACE_ID))
    assert [call.traceparent for call in stage.puppet.calls] == [f"00-{TRACE_ID}-{CALLER}-00", ""]


async def test_a_trace_that_the_caller_does_not_sample_is_passed_on_and_not_recorded(stage: Stage) -> None:
    tracing = MemoryTracing()
    await stage.start(tracing=tracing)
    await stage.issue(stage.command(stage.plan(ONE_TASK), trace_id=TRACE_ID, caller_span=f"{CALLER}-00"))
    (call,) = stage.puppet.calls
    assert call.traceparent.startswith(f"00-{TRACE_ID}-") and call.traceparent.endswith("-00")
    assert CALLER not in call.traceparent
    assert tracing.spans == []


async def test_an_invalid_trace_id_is_replaced_by_one_of_the_execution(stage: Stage) -> None:
    tracing = MemoryTracing()
    await stage.start(tracing=tracing)
    await stage.issue(stage.command(stage.plan(ONE_TASK), trace_id="made by an older client"))
    (span,) = tracing.spans
    assert span.trace_id == trace_of(EXECUTION, "", "").trace_id
    assert len(span.trace_id) == 32


async def test_the_histogram_of_durations_shows_a_sampled_span_as_an_exemplar(stage: Stage) -> None:
    tracing = MemoryTracing()
    worker = await stage.start(tracing=tracing)
    await stage.issue(stage.command(stage.plan(ONE_TASK), trace_id=TRACE_ID))
    readings = await WorkerStatus(worker, lambda: True).readings()
    text = exposition(readings, OPEN_METRICS)[0].decode()
    shown = [
        sample.exemplar.labels
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.exemplar is not None
    ]
    assert shown == [{"trace_id": TRACE_ID, "span_id": tracing.spans[0].span_id}]
    assert samples_of(readings)["noetl_trace_spans_total exported"] == 1
    assert TRACE_ID not in exposition(readings, "text/plain")[0].decode()
