"""A chain of Python steps: started, followed to its end, and its journal checked."""

from __future__ import annotations

import json
from collections import Counter

from noetl_stream.concurrency import set_within
from noetl_stream.model.json import codec
from noetl_stream.ports.stores.store import Store, StoredEvent
from noetl_stream.storage.journal import events_of
from noetl_stream.wiring.operations import make_client
from noetl_stream.wiring.stores import Connected
from noetl_testkit.following import Submission, Watcher, submit

STEPS = 5
PATIENCE_S = 120.0


def chain(steps: int) -> str:
    """A playbook of this many Python steps, each of which passes a number on."""
    workflow = [
        {
            "step": f"s{n}",
            "tool": {"kind": "python", "args": {"n": f"{{{{ s{n - 1} }}}}" if n else 0}, "code": "result = n + 1"},
            **({"next": {"arcs": [{"step": f"s{n + 1}"}]}} if n + 1 < steps else {}),
        }
        for n in range(steps)
    ]
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "chain", "path": "tests/chain"}}
    return json.dumps({**head, "workflow": workflow})


async def submit_and_end(connected: Connected, source: str) -> str:
    client = make_client(connected)
    submission = Submission.new(source, "tests/chain", {}, connected.clock)
    follower = await Watcher(connected.bus, submission.execution_id).open()
    try:
        await submit(client, submission, follower)
        assert await set_within(follower.finished, PATIENCE_S)
    finally:
        await follower.close()
    return submission.execution_id


def runs_by_step(journal: list[StoredEvent]) -> Counter[str]:
    """How often each task was processed."""
    return Counter(codec.decode_json(row.data)["task"] for row in journal if row.name == "task.processed")


async def check_completed(store: Store, execution_ids: list[str]) -> None:
    rows = await store.executions(execution_ids)
    assert Counter(row.status for row in rows.values()) == {"completed": len(execution_ids)}
    assert {bytes(codec.decode_payload(row.result or b"").value) for row in rows.values()} == {str(STEPS).encode()}
    for execution_id, entries in (await store.journals(dict.fromkeys(execution_ids, 0))).items():
        journal = list(events_of(execution_id, entries))
        assert [row.position for row in journal] == list(range(1, len(journal) + 1))
        assert runs_by_step(journal) == {f"s{n}_task": 1 for n in range(STEPS)}
        assert sum(row.name == "step.done" for row in journal) == STEPS
