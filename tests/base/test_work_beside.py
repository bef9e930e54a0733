"""Answers of many bytes are made beside the loop, on which all others are answered."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from noetl_stream.concurrency import MANY_BYTES, beside
from noetl_stream.gateway.http.routes import Reply
from noetl_stream.gateway.http.serving import kept_answer
from noetl_stream.model.json import codec, pieces
from noetl_stream.operations.executions.reading import documents
from noetl_stream.ports.operations.executions import ResultDocument
from noetl_stream.ports.stores.store import ExecutionRow, StoredEvent

ROW = ExecutionRow(
    execution_id="execution-1",
    partition=0,
    status="running",
    path="p",
    version=None,
    digest="d",
    position=2,
    started_ms=0,
    updated_ms=0,
    finished_ms=None,
    result=None,
    error=None,
    ctx=b"{}",
    discarded=0,
)


class Threads:
    """The threads in which a function was called."""

    def __init__(self, function: Any) -> None:
        self.function, self.found = function, set[bool]()

    def __call__(self, *given: Any, **named: Any) -> Any:
        self.found.add(threading.current_thread() is threading.main_thread())
        return self.function(*given, **named)


@pytest.mark.parametrize(("size", "on_loop"), [(MANY_BYTES - 1, True), (MANY_BYTES, False)])
async def test_reading_many_bytes_runs_in_another_thread(size: int, on_loop: bool) -> None:
    work = Threads(lambda: 7)
    assert await beside(work, size) == 7
    assert work.found == {on_loop}


@pytest.mark.parametrize(("result", "on_loop"), [("x", True), ("x" * 100_000, False)])
async def test_events_with_large_results_become_envelopes_there(
    result: str, on_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    making = Threads(documents.event_document)
    monkeypatch.setattr(documents, "event_document", making)
    data = codec.encode({"task": "only", "attempt": 1, "path": [], "outcome": {"status": "ok", "result": result}})
    events = [StoredEvent(n, "task.processed", "worker", 0, "run", None, None, data) for n in (1, 2)]
    found = await documents.event_documents(ROW, events, {2: "worker-1"})
    assert [(event.position, event.actor) for event in found] == [(1, "worker"), (2, "worker-1")]
    assert making.found == {on_loop}


@pytest.mark.parametrize(("rows", "on_loop"), [(1, True), (10_000, False)])
async def test_long_answers_are_encoded_there(rows: int, on_loop: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    encoding = Threads(codec.encode)
    document = ResultDocument("execution-1", "completed", [{"a": n, "b": ["x"]} for n in range(rows)], None)
    expected = codec.encode(document)
    monkeypatch.setattr(codec, "encode", encoding)
    assert (await kept_answer(Reply(document))).body == expected
    assert encoding.found == {on_loop} and pieces.is_long(document) is not on_loop
