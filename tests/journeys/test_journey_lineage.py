"""Lineage of a real stack arrives at a receiver that was away, though the server that was to tell it is killed."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from journey_stack import LiveStack

from noetl_stream.settings.monitoring import LINEAGE_VARIABLE
from noetl_testkit.waiting import until
from warm_program import noetl

pytestmark = [pytest.mark.xdist_group("journeys"), pytest.mark.verify]

PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: lineage, path: tests/lineage }
workflow:
  - step: load
    tool: { kind: duckdb, command: select 1 as id, into: table }
    next: { arcs: [ { step: read } ] }
  - step: read
    tool: { kind: duckdb, tables: { t: "{{ load.table }}" }, command: from t }
"""


class Receiver:
    """Answers ``503`` until it is open, and keeps what it is sent then."""

    def __init__(self) -> None:
        self.url = ""
        self.is_open = Event()
        self.asked = Event()
        self.got: list[dict[str, Any]] = []


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    found = Receiver()

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if found.is_open.is_set():
                found.got.append(json.loads(body))
            self.send_response(201 if found.is_open.is_set() else 503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            found.asked.set()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        found.url = f"http://127.0.0.1:{server.server_port}/api/v1/lineage"
        monkeypatch.setenv(LINEAGE_VARIABLE, found.url)
        Thread(target=server.serve_forever, daemon=True).start()
        yield found
        server.shutdown()


async def test_each_event_arrives_at_least_once(
    receiver: Receiver, start_stack: Callable[[int, int], LiveStack], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = await asyncio.to_thread(start_stack, 1, 1)
    (tmp_path / "lineage.yaml").write_text(PLAYBOOK)
    ran = await asyncio.to_thread(
        noetl, "execution", "start", tmp_path / "lineage.yaml", "--wait", "--home", stack.home, "-o", "name"
    )
    assert ran.returncode == 0, ran.stderr
    await until(receiver.asked.is_set)
    stack.kill("server")
    receiver.is_open.set()
    await until(
        lambda: [one["eventType"] for one in receiver.got if one["job"]["name"] == "tests/lineage"][-1:] == ["COMPLETE"]
    )
    told = Counter((one["eventType"], one["job"]["name"], one["run"]["runId"]) for one in receiver.got)
    assert {(kind, name) for kind, name, _ in told} == {
        *((kind, "tests/lineage") for kind in ("START", "COMPLETE")),
        *((kind, f"tests/lineage.{step}.{step}_task") for step in ("load", "read") for kind in ("START", "COMPLETE")),
    }
    ended = [one for one in receiver.got if one["eventType"] == "COMPLETE"]
    (written,) = ended[0]["outputs"]
    assert [one["name"] for one in ended[1]["inputs"]] == [written["name"]]
    assert {run for kind, name, run in told if name == "tests/lineage"} == {ran.stdout.strip()}
