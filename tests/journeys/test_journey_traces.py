"""One trace from a caller through gateway, server and workers to what a task calls, as a real collector sees it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from journey_stack import LiveStack

from cli_program import PATIENCE_S
from noetl_stream.local.gateway_address import gateways_of
from noetl_testkit.waiting import until
from otlp_collector import ENDPOINT, Collector, Seen, collecting
from warm_program import noetl

pytestmark = [pytest.mark.xdist_group("journeys"), pytest.mark.verify]

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE_ID}-{CALLER}-01"

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\n"
CHILD = (
    HEAD
    + """\
metadata: {name: child, path: tests/traces/child}
workflow:
  - step: reads
    tool: {name: reads, kind: python, code: "import os; return os.environ['TRACEPARENT']"}
"""
)
PARENT = (
    HEAD
    + """\
metadata: {name: parent, path: tests/traces/parent}
workload: {target: ""}
workflow:
  - step: fetch
    tool:
      - {name: fetch, kind: http, method: POST, url: "{{ workload.target }}"}
      - name: shell
        kind: shell
        command: 'echo $TRACEPARENT'
    next: {arcs: [{step: tries}]}
  - step: tries
    tool:
      name: flaky
      kind: http
      method: POST
      url: "{{ workload.target }}flaky"
      spec:
        policy:
          rules:
            - {when: "{{ outcome.status == 'error' }}", then: {do: retry, attempts: 3, delay: 0.01}}
            - else: {then: {do: continue}}
    next: {arcs: [{step: calls}]}
  - step: calls
    tool: {name: calls, kind: playbook, path: tests/traces/child}
"""
)


GATED = (
    HEAD
    + """\
metadata: {name: gated, path: tests/traces/gated}
workload: {gate: ""}
workflow:
  - step: first
    tool: {name: first, kind: noop}
    next: {arcs: [{step: second}]}
  - step: second
    tool:
      name: second
      kind: python
      args: {gate: "{{ workload.gate }}"}
      code: |
        import socket
        with socket.create_connection(("127.0.0.1", int(gate))) as line:
            return line.recv(100).decode()
"""
)


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that the stack of a test exports to, at once."""
    with collecting() as found:
        monkeypatch.setenv(ENDPOINT, found.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=hidden")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        yield found


class Target:
    """What tasks call. ``seen``: the ``traceparent`` of the last call of each path; the first of ``/flaky`` fails."""

    def __init__(self) -> None:
        self.url = ""
        self.seen: dict[str, str] = {}

    def status_of(self, path: str, traceparent: str) -> int:
        fails = path == "/flaky" and "/flaky?" not in self.seen
        self.seen[path + "?" * fails] = traceparent
        return 503 if fails else 200


@pytest.fixture
def target() -> Iterator[Target]:
    found = Target()

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(found.status_of(self.path, self.headers.get("traceparent", "")))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    found.url = f"http://127.0.0.1:{server.server_port}/"
    Thread(target=server.serve_forever, daemon=True).start()
    yield found
    server.shutdown()
    server.server_close()


def noetl_at_gateway(stack: LiveStack, *words: object) -> dict[str, Any]:
    """What a command says that asks the gateway."""
    (gateway,) = gateways_of(stack.home)
    done = noetl(*words, "--url", gateway.url, "--home", stack.home, "-o", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def parents(spans: list[Seen]) -> dict[str, str]:
    """The name of each span's parent, or its id if that is not among them."""
    names = {span.span_id: span.name for span in spans}
    return {span.name: names.get(span.parent_id, span.parent_id) for span in spans}


def one(spans: list[Seen], name: str) -> Seen:
    (found,) = (span for span in spans if span.name == name)
    return found


def within(inner: Seen, outer: Seen) -> bool:
    """As far as workers, who round to milliseconds, and servers agree about the time."""
    return outer.start_ns - 10**6 <= inner.start_ns <= inner.end_ns <= outer.end_ns + 10**6


async def test_a_trace_leads_from_the_caller_to_what_a_task_calls(
    collector: Collector, target: Target, start_stack: Callable[[int, int], LiveStack], tmp_path: Path
) -> None:
    stack = await asyncio.to_thread(start_stack, 1, 1)
    (tmp_path / "child.yaml").write_text(CHILD)
    (tmp_path / "parent.yaml").write_text(PARENT)
    await asyncio.to_thread(noetl_at_gateway, stack, "playbook", "register", tmp_path / "child.yaml")
    start = ("execution", "start", tmp_path / "parent.yaml", "--wait", "--set", f"target={target.url}")
    ended = await asyncio.to_thread(noetl_at_gateway, stack, *start, "--traceparent", TRACEPARENT)
    await until(lambda: collector.named("execution tests/traces/parent", "attempt reads", "attempt flaky"))
    spans = collector.of(TRACE_ID)
    assert parents(spans) == {
        "noetl-stream execution start": CALLER,
        "POST /api/v1/executions": "noetl-stream execution start",
        "execution tests/traces/parent": "POST /api/v1/executions",
        **dict.fromkeys(("step fetch", "step tries", "step calls"), "execution tests/traces/parent"),
        "task fetch": "step fetch",
        "attempt fetch": "task fetch",
        "task shell": "step fetch",
        "attempt shell": "task shell",
        "task flaky": "step tries",
        "attempt flaky": "task flaky",
        "task calls": "step calls",
        "attempt calls": "task calls",
        "execution tests/traces/child": "attempt calls",
        "step reads": "execution tests/traces/child",
        "task reads": "step reads",
        "attempt reads": "task reads",
    }
    by_worker = {"attempt fetch", "attempt shell", "attempt flaky", "attempt reads"}
    assert {span.service for span in spans if span.name in by_worker} == {"noetl-worker"}
    assert one(spans, "noetl-stream execution start").service == "noetl-cli"
    assert one(spans, "POST /api/v1/executions").service == "noetl-gateway"
    by_server = [span for span in spans if span.name.startswith(("execution", "step", "task", "attempt calls"))]
    assert {span.service for span in by_server} == {"noetl-server"}
    failed, again = sorted((span for span in spans if span.name == "attempt flaky"), key=lambda span: span.start_ns)
    assert (failed.error, failed.about["http.response.status_code"]) == ("http_status", 503)
    assert (failed.about["http.request.method"], failed.about["server.address"]) == ("POST", "127.0.0.1")
    assert (again.error, again.about["noetl.task.attempt"]) == ("", 2)
    whole, child = one(spans, "execution tests/traces/parent"), one(spans, "execution tests/traces/child")
    assert whole.about["noetl.execution.id"] == ended["execution_id"]
    assert child.links == (f"{TRACE_ID}-{whole.span_id}",)
    assert one(spans, "step calls").links == (f"{TRACE_ID}-{child.span_id}",)
    assert all(within(span, whole) for span in spans if span.service in ("noetl-server", "noetl-worker"))
    assert within(child, one(spans, "task calls"))
    assert target.seen == {
        "/": f"00-{TRACE_ID}-{one(spans, 'attempt fetch').span_id}-01",
        "/flaky?": f"00-{TRACE_ID}-{failed.span_id}-01",
        "/flaky": f"00-{TRACE_ID}-{again.span_id}-01",
    }
    assert ended["result"] == f"00-{TRACE_ID}-{one(spans, 'attempt reads').span_id}-01"
    assert collector.headers["api-key"] == "hidden"


async def test_killed_servers_and_workers_leave_no_span_that_is_exported_twice(
    collector: Collector, start_stack: Callable[[int, int], LiveStack], tmp_path: Path
) -> None:
    stack = await asyncio.to_thread(start_stack, 1, 1)
    (tmp_path / "gated.yaml").write_text(GATED)
    with socket.create_server(("127.0.0.1", 0)) as gate:
        gate.settimeout(PATIENCE_S)
        port = gate.getsockname()[1]
        start = ("execution", "start", tmp_path / "gated.yaml", "--set", f"gate={port}")
        begun = await asyncio.to_thread(noetl_at_gateway, stack, *start)
        line, _ = await asyncio.to_thread(gate.accept)  # the second step runs: the first has been told
        await until(lambda: collector.named("task first", "attempt first"))
        stack.kill("server")
        line.sendall(b"go")
        line.close()
        wait = ("execution", "wait", begun["execution_id"])
        ended = await asyncio.to_thread(noetl_at_gateway, stack, *wait)
    assert ended["status"] == "completed"
    await until(lambda: collector.named("execution tests/traces/gated"))
    spans = collector.of(begun["trace_id"])
    assert Counter(span.span_id for span in spans).most_common(1)[0][1] == 1
    assert parents(spans) == {
        "noetl-stream execution start": "",
        "POST /api/v1/executions": "noetl-stream execution start",
        "execution tests/traces/gated": "POST /api/v1/executions",
        **dict.fromkeys(("step first", "step second"), "execution tests/traces/gated"),
        "task first": "step first",
        "attempt first": "task first",
        "task second": "step second",
        "attempt second": "task second",
    }
    assert one(spans, "step second").start_ns < one(spans, "attempt second").end_ns
