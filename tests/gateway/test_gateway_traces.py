"""Spans of requests, and the trace of what they start."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import AsyncIterator

import pytest
from gateway_playbooks import FAILS
from gateway_stage import AS_ADMIN, GatewayStage

from measured import samples_of
from noetl_stream.settings.gateway_settings import GatewayLimits
from noetl_stream.telemetry.structured_logs import LineFormatter, json_line
from noetl_testkit.memory.observation import MemoryTracing

TRACE_ID, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
async def traced() -> AsyncIterator[tuple[GatewayStage, MemoryTracing]]:
    stage = GatewayStage(GatewayLimits())
    stage.tracing = MemoryTracing()
    async with stage.open():
        yield stage, stage.tracing


async def started(stage: GatewayStage, **headers: str) -> tuple[str, str]:
    """The trace of a new execution, and the span of its caller as its request says it."""
    async with stage.client.post("/api/v1/executions", json={"playbook": FAILS}, headers=headers) as answer:
        assert answer.status == 202
        document = await answer.json()
    journal = await stage.store.journal(document["execution_id"], 0)
    return document["trace_id"], json.loads(journal[0].data).get("caller_span", "")


async def test_a_request_that_starts_an_execution_begins_its_trace(traced: tuple[GatewayStage, MemoryTracing]) -> None:
    stage, tracing = traced
    trace_id, caller = await started(stage)
    (span,) = tracing.spans
    assert (span.trace_id, span.parent_id, f"{span.span_id}-01") == (trace_id, "", caller)
    assert (span.name, span.kind, span.error) == ("POST /api/v1/executions", "server", "")
    assert span.attributes == {
        "http.request.method": "POST",
        "http.route": "/api/v1/executions",
        "http.response.status_code": 202,
    }
    assert samples_of(await stage.gateway.status.readings())["noetl_trace_spans_total exported"] == 1


async def test_a_request_continues_the_trace_of_its_caller(traced: tuple[GatewayStage, MemoryTracing]) -> None:
    stage, tracing = traced
    trace_id, caller = await started(stage, traceparent=f"00-{TRACE_ID}-{CALLER}-01")
    (span,) = tracing.spans
    assert (span.trace_id, span.parent_id, trace_id) == (TRACE_ID, CALLER, TRACE_ID)
    assert caller == f"{span.span_id}-01"
    async with stage.client.get("/api/v1/workers", headers={"traceparent": f"00-{TRACE_ID}-{CALLER}-01"}):
        assert [one.name for one in tracing.spans[1:]] == ["GET /api/v1/workers"]


async def test_a_caller_that_does_not_sample_stays_the_caller(traced: tuple[GatewayStage, MemoryTracing]) -> None:
    stage, tracing = traced
    found = await started(stage, traceparent=f"00-{TRACE_ID}-{CALLER}-00")
    assert (found, tracing.spans) == ((TRACE_ID, f"{CALLER}-00"), [])


async def test_reads_and_anonymous_requests_make_no_spans(traced: tuple[GatewayStage, MemoryTracing]) -> None:
    stage, tracing = traced
    async with stage.client.get("/api/v1/workers") as read:
        assert read.status == 200
    given = {"traceparent": f"00-{TRACE_ID}-{CALLER}-01", "Authorization": "Bearer wrong"}
    async with stage.client.post("/api/v1/executions", json={"playbook": FAILS}, headers=given) as refused:
        assert refused.status == 401
    assert tracing.spans == []


async def test_without_an_exporter_an_execution_belongs_to_the_span_of_its_caller(stage: GatewayStage) -> None:
    assert await started(stage, traceparent=f"00-{TRACE_ID}-{CALLER}-01") == (TRACE_ID, f"{CALLER}-01")
    assert (await started(stage))[1] == ""


async def test_log_lines_of_a_request_carry_its_trace_and_those_after_it_do_not(
    stage: GatewayStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(LineFormatter(json_line))
    log = logging.getLogger("noetl_stream.gateway")
    log.addHandler(handler)

    async def failing(*_: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(stage.broker.command_queue, "pools", failing)
    try:
        for headers in ({"traceparent": f"00-{TRACE_ID}-{CALLER}-01"}, {}):
            async with stage.client.get("/api/v1/workers", headers={**AS_ADMIN, **headers}) as answer:
                assert answer.status == 500
    finally:
        log.removeHandler(handler)
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    assert [line.get("trace_id") for line in lines] == [TRACE_ID, None]
