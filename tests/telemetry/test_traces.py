"""The traceparent of callers, the settings of OpenTelemetry, and the export to a collector."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from msgspec.structs import replace

from measured import samples_of
from noetl_stream.adapters.otel import OtelTracing
from noetl_stream.adapters.trace_exporter import open_tracing
from noetl_stream.errors import UsageError
from noetl_stream.local.processes import choose_port
from noetl_stream.model.traces import Trace, Traceparent, read_traceparent, trace_of
from noetl_stream.ports.traces import Span, SpanLink
from noetl_stream.settings.monitoring import TraceSettings
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.settings.sources.process_environment import drop_engine_variables
from noetl_testkit.waiting import until
from otlp_collector import Collector, Seen, collecting
from rotel_collector import rotel_before

TRACE_ID, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SPAN = Span(TRACE_ID, CALLER, "", "execution one", 1000, 2000, {"noetl.execution.id": "one"})
HOME = {"HOME": "/home/ann"}
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.mark.parametrize(
    ("text", "caller_span"),
    [
        (f"00-{TRACE_ID}-{CALLER}-01", f"{CALLER}-01"),
        (f" 00-{TRACE_ID}-{CALLER}-00 ", f"{CALLER}-00"),
        (f"00-{TRACE_ID}-{CALLER}-03", f"{CALLER}-01"),
        (f"cc-{TRACE_ID}-{CALLER}-01-what-the-future-will-be", f"{CALLER}-01"),
    ],
)
def test_a_traceparent_says_the_trace_and_the_callers_span(text: str, caller_span: str) -> None:
    assert read_traceparent(text) == Traceparent(TRACE_ID, caller_span)


@pytest.mark.parametrize(
    "text",
    [
        *("", "00", f"00-{TRACE_ID}-{CALLER}", f"00-{TRACE_ID.upper()}-{CALLER}-01", f"ff-{TRACE_ID}-{CALLER}-01"),
        *(f"00-{'0' * 32}-{CALLER}-01", f"00-{TRACE_ID}-{'0' * 16}-01", f"00-{TRACE_ID}-{CALLER}-01-more"),
        f"00-{TRACE_ID}-{CALLER}-1",
    ],
)
def test_any_other_text_is_no_traceparent(text: str) -> None:
    assert read_traceparent(text) is None


def test_an_invalid_trace_of_an_execution_is_ignored() -> None:
    made = trace_of("one", "", "")
    assert made == trace_of("one", "0" * 32, f"{CALLER}-01") == trace_of("one", "x\r\n", "")
    assert made != trace_of("two", "", "")
    assert trace_of("one", TRACE_ID, f"{CALLER}-01\r\n") == Trace(TRACE_ID)
    assert trace_of("one", TRACE_ID, f"{CALLER}-01").forwarded_traceparent == f"00-{TRACE_ID}-{CALLER}-01"
    assert trace_of("one", TRACE_ID, "").forwarded_traceparent == ""


@pytest.mark.parametrize(
    ("given", "endpoint"),
    [
        ({ENDPOINT: "http://collector:4318"}, "http://collector:4318/v1/traces"),
        ({ENDPOINT: "http://collector:4318/otel/"}, "http://collector:4318/otel/v1/traces"),
        (
            {ENDPOINT: "http://other:1", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://collector/traces"},
            "https://collector/traces",
        ),
        ({}, None),
        ({ENDPOINT: "http://collector:4318", "OTEL_SDK_DISABLED": "TRUE"}, None),
        ({ENDPOINT: "http://collector:4318", "OTEL_TRACES_EXPORTER": "none"}, None),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "key=value"}, None),
    ],
)
def test_spans_go_where_the_standard_variables_say(given: dict[str, str], endpoint: str | None) -> None:
    found = Settings.from_environment(HOME | given).traces
    assert (found.endpoint if found is not None else None) == endpoint


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        (ENDPOINT, "collector:4318"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "many"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
    ],
)
def test_an_invalid_variable_is_named(variable: str, value: str) -> None:
    with pytest.raises(UsageError, match=variable):
        Settings.from_environment(HOME | {ENDPOINT: "http://collector:4318", variable: value})


def test_playbooks_cannot_read_the_key_of_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=hidden")
    monkeypatch.setenv(ENDPOINT, "http://collector:4318")
    settings = Settings.from_environment()
    assert drop_engine_variables() == []
    assert settings.traces is not None and settings.traces.headers == "api-key=hidden"
    assert "hidden" not in repr(settings)
    assert Settings.from_environment().traces == replace(settings.traces, headers="")


def to(url: str, **changes: Any) -> TraceSettings:
    return replace(TraceSettings(f"{url}/v1/traces", "", 2048), **changes)


def counted(tracing: OtelTracing) -> dict[str, float]:
    shown = samples_of(tracing.readings())
    return {result: shown[f"noetl_trace_spans_total {result}"] for result in ("exported", "refused", "dropped")}


async def test_a_collector_gets_spans_as_they_are() -> None:
    with collecting() as collector:
        tracing = OtelTracing(to(collector.url, headers="api-key=a%20b"), "server", "server-1")
        tracing.record(replace(SPAN, error="timeout", links=(SpanLink("1" * 32, "2" * 16),), parent_id="3" * 16))
        await tracing.close()
    (seen,) = collector.spans
    assert (seen.service, seen.trace_id, seen.span_id, seen.parent_id) == ("noetl-server", TRACE_ID, CALLER, "3" * 16)
    assert (seen.start_ns, seen.end_ns, seen.error) == (10**9, 2 * 10**9, "timeout")
    assert seen.about == {"noetl.execution.id": "one", "error.type": "timeout"}
    assert seen.links == (f"{'1' * 32}-{'2' * 16}",)
    assert collector.headers["api-key"] == "a b"
    assert counted(tracing) == {"exported": 1, "refused": 0, "dropped": 0}


async def export(url: str) -> None:
    """One span of everything that spans may have, and one of little."""
    tracing = OtelTracing(to(url), "worker", "worker-1")
    attributes = {"noetl.step": "söme", "noetl.task.attempt": 2, "noetl.loop.ok": 10**12}
    links = (SpanLink("1" * 32, "2" * 16), SpanLink(TRACE_ID, CALLER))
    more = {"attributes": attributes, "error": "timeout", "links": links, "parent_id": CALLER, "kind": "client"}
    tracing.record(replace(SPAN, span_id="3" * 16, **more))
    tracing.record(SPAN)
    await tracing.close()
    assert counted(tracing) == {"exported": 2, "refused": 0, "dropped": 0}


async def test_a_collector_of_others_passes_spans_on_as_they_are() -> None:
    with collecting() as direct, collecting() as behind:
        await export(direct.url)
        async with rotel_before(behind.url) as rotel:
            await export(rotel)
            await until(lambda: len(behind.spans) == 2)
    assert by_id(behind) == by_id(direct)


def by_id(collector: Collector) -> list[Seen]:
    return sorted(collector.spans, key=lambda span: span.span_id)


async def test_the_environment_names_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "orders")
    with collecting() as collector:
        tracing = OtelTracing(to(collector.url), "server", "server-1")
        tracing.record(SPAN)
        await tracing.close()
    assert collector.spans[0].service == "orders"


async def test_spans_for_an_unreachable_collector_are_bounded_and_counted() -> None:
    tracing = OtelTracing(to(f"http://127.0.0.1:{choose_port()}", max_queue=512), "server", "server-1")
    for _ in range(700):
        tracing.record(SPAN)
    tracing.drop(2)
    assert counted(tracing)["dropped"] == 190
    await tracing.close()
    assert counted(tracing) == {"exported": 0, "refused": 512, "dropped": 190}


async def test_a_collector_that_answers_no_is_counted() -> None:
    with collecting() as collector:
        tracing = OtelTracing(to(collector.url, endpoint=f"{collector.url}/elsewhere"), "server", "server-1")
        tracing.record(SPAN)
        await tracing.close()
    assert counted(tracing) == {"exported": 0, "refused": 1, "dropped": 0}


@pytest.mark.parametrize(
    ("sampler", "argument", "without_caller", "of_caller"),
    [
        ("parentbased_always_on", "", True, (True, False)),
        ("always_off", "", False, (False, False)),
        ("parentbased_traceidratio", "0", False, (True, False)),
        ("always_on", "", True, (True, True)),
    ],
)
async def test_the_sampler_is_the_one_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, sampler: str, argument: str, without_caller: bool, of_caller: tuple[bool, bool]
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", argument)
    tracing = OtelTracing(to("http://127.0.0.1:9"), "server", "server-1")
    assert tracing.is_sampled(Trace(TRACE_ID)) is without_caller
    assert (tracing.is_sampled(Trace(TRACE_ID, CALLER, True)), tracing.is_sampled(Trace(TRACE_ID, CALLER))) == of_caller
    await tracing.close()


def test_without_the_library_no_spans_are_made_and_one_line_reports_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "noetl_stream.adapters.otel", None)
    assert open_tracing(to("http://collector:4318"), "server", "server-1") is None
    (line,) = caplog.messages
    assert "install noetl-stream[otel]" in line


def test_without_an_endpoint_no_library_of_traces_is_imported() -> None:
    code = "import sys, noetl_stream.wiring.role_assembly, noetl_stream.server.server, noetl_stream.worker.worker"
    listed = f"{code}; print([name for name in sys.modules if name.startswith('opentelemetry')])"
    ran = subprocess.run([sys.executable, "-c", listed], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
    assert open_tracing(None, "server", "server-1") is None
