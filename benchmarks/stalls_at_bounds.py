"""How long the loop of each role stands still for one thing of the largest size that a bound allows.

    python benchmarks/stalls_at_bounds.py [words of names]

No stack is needed: each thing is done on a loop of its own. Prints the longest time of the processor, of all threads,
between two turns, so that other work on the machine counts little, and what the thing took in all. What may take over
50 ms leaves the loop: a pause far above that is a defect.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Final

import msgspec

from noetl_stream.adapters.evaluation.pool import EvaluationPool
from noetl_stream.engine.advance import advance
from noetl_stream.engine.state import RecordedFact
from noetl_stream.gateway.http.routes import Reply
from noetl_stream.gateway.http.serving import kept_answer
from noetl_stream.mcp.answers import part_answer
from noetl_stream.model.events import CtxPatched, ExecutionRequested
from noetl_stream.model.json import codec
from noetl_stream.operations.executions.prepare import CheckedText, refuse_workload
from noetl_stream.operations.executions.reading.documents import event_documents
from noetl_stream.playbook.compile.compiler import compile_playbook
from noetl_stream.playbook.trigger.matching import Rules, match, webhook_event
from noetl_stream.ports.operations.executions import ResultDocument
from noetl_stream.ports.stores.store import ExecutionRow, StoredEvent
from noetl_stream.ports.streams.blobs import decoded, encoded
from noetl_stream.tools.http.response import read_body
from noetl_stream.trigger.signatures import WebhookDelivery
from noetl_stream.wiring.operations import kinds_without

BEAT_S: Final = 0.001
MIB: Final = 1024 * 1024
LARGE: Final = 16 * MIB

Thing = Callable[[], Awaitable[Any]]

SCHEMA: Final = {"properties": {"text": {"pattern": "^[a-z]+$"}, "rows": {"items": {"minimum": 0.5}}}}
PLAYBOOK: Final = (
    "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p, path: p}\n"
    f"executor: {{spec: {{workload: {msgspec.json.encode(SCHEMA).decode()}}}}}\n"
    "workflow:\n- step: start\n  tool: {kind: noop}\n"
)
ROW: Final = ExecutionRow(
    execution_id="e",
    partition=0,
    status="running",
    path="p",
    version=None,
    digest="d",
    position=1,
    started_ms=0,
    updated_ms=0,
    finished_ms=None,
    result=None,
    error=None,
    ctx=b"{}",
    discarded=0,
)


def shapes() -> Iterator[tuple[str, Any]]:
    """Values of 16 MiB of JSON."""
    yield "rows", [{"id": number, "name": "some name", "price": 1.25} for number in range(LARGE // 42)]
    yield "numbers", [1] * (LARGE // 2)
    yield "keys", {f"k{number}": number for number in range(LARGE // 15)}
    yield "empty lists", [[] for _ in range(LARGE // 3)]


async def at_once(work: Callable[[], Any]) -> None:
    """What a role does on its loop."""
    work()


def starts() -> Iterator[tuple[str, Thing]]:
    plan = compile_playbook(PLAYBOOK, kinds_without())

    def start(**workload: Any) -> None:
        request = ExecutionRequested("r", plan.digest, "p", workload)
        advance(plan, None, RecordedFact(request), "e")

    below = [number + 0.75 for number in range(11_000)]
    yield "server: start, compared within the budget", partial(at_once, partial(start, rows=below))
    yield "server: start, compared elsewhere", partial(at_once, partial(start, text="x" * MIB))
    state = advance(plan, None, RecordedFact(ExecutionRequested("r", plan.digest, "p")), "e").state
    patch = CtxPatched("p", patch={f"k{number}": number for number in range(MIB // 16)})
    yield "server: patch of a ctx of 1 MiB", partial(at_once, partial(advance, plan, state, RecordedFact(patch), "e"))
    pool, checked = EvaluationPool(), CheckedText("d", "p", {}, SCHEMA)
    yield "gateway: workload, compared elsewhere", partial(refuse_workload, checked, {"text": "x" * MIB}, pool)


def triggers() -> Iterator[tuple[str, Thing]]:
    rules = Rules("webhook", True, {f"k{number}": "{{ event.body }}" for number in range(64)}, None)
    event = webhook_event(WebhookDelivery(method="POST", headers={"content-type": "text/plain"}, body=b"x" * MIB))
    yield "server: trigger that copies 1 MiB 64 times", partial(at_once, partial(match, rules, event))


def exchanged() -> Iterator[tuple[str, Thing]]:
    for name, value in shapes():
        data = codec.encode(value)
        yield f"worker: decodes 16 MiB of {name}", partial(decoded, data)
        yield (
            f"worker: reads a body of 16 MiB of {name}",
            partial(asyncio.to_thread, read_body, "application/json", data),
        )
        yield f"worker: encodes 16 MiB of {name}", partial(encoded, value)
        document = ResultDocument("e", "completed", value, None)
        yield f"gateway: answers 16 MiB of {name}", partial(kept_answer, Reply(document))
        yield f"gateway: an agent asks for 16 MiB of {name}", partial(part_answer, document)
    result = {"status": "ok", "result": [{"n": number} for number in range(6_000)]}
    data = codec.encode({"task": "t", "attempt": 1, "path": [], "outcome": result})
    events = [StoredEvent(n, "task.processed", "worker", 0, "r", None, None, data) for n in range(1, 1_001)]
    yield "gateway: 1,000 events of 64 KiB", partial(event_documents, ROW, events, {})


async def longest_pause(until: asyncio.Event) -> float:
    """The longest time of the processor between two turns of the loop, in seconds."""
    longest = 0.0
    while not until.is_set():
        began = time.process_time()
        await asyncio.sleep(BEAT_S)
        longest = max(longest, time.process_time() - began)
    return longest


async def measure(name: str, thing: Thing) -> None:
    ended = asyncio.Event()
    pausing = asyncio.create_task(longest_pause(ended))
    await asyncio.sleep(10 * BEAT_S)
    began = time.process_time()
    await thing()
    took = time.process_time() - began
    await asyncio.sleep(10 * BEAT_S)
    ended.set()
    print(f"{name:52} longest {await pausing * 1000:7.1f} ms   of {took * 1000:7.0f} ms", flush=True)


async def main(words: list[str]) -> None:
    for things in (starts, triggers, exchanged):
        for name, thing in things():
            if all(word in name for word in words):
                await measure(name, thing)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
