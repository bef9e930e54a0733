"""Playbooks whose end and effects are known."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Final

LARGE: Final = 200_000
"""Characters of a result that is kept in the object store."""

ITERATIONS: Final = 4


@dataclass(frozen=True, slots=True)
class Job:
    """A playbook. ``effects`` is how many idempotency keys its tasks use, ``steps`` how many of its steps end."""

    name: str
    source: str
    status: str
    result: Any
    effects: int
    steps: int


def effect(n: Any) -> dict[str, Any]:
    """A task that the ledger writes down; its result's ``data.n`` is one more than ``n``."""
    return {"kind": "http", "method": "POST", "url": "{{ workload.ledger }}/{{ execution_id }}", "json": {"n": n}}


def then(*steps: str, mode: str = "exclusive") -> dict[str, Any]:
    return {"next": {"spec": {"mode": mode}, "arcs": [{"step": step} for step in steps]}}


def job(name: str, workflow: list[dict[str, Any]], result: Any, effects: int, reads: str = "") -> Job:
    """A job that completes with ``result``, which the template ``reads`` gives."""
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": name, "path": f"faults/{name}"}}
    executor = {"executor": {"spec": {"result": reads}}} if reads else {}
    return Job(
        name, json.dumps({**head, **executor, "workflow": workflow}), "completed", result, effects, len(workflow)
    )


def _chain() -> Job:
    steps = [
        {"step": "one", "tool": effect(0), **then("two")},
        {"step": "two", "tool": effect("{{ one.data.n }}"), **then("three")},
        {"step": "three", "tool": effect("{{ two.data.n }}")},
    ]
    return job("chain", steps, 3, 3, "{{ three.data.n }}")


def _loop() -> Job:
    loop = {"in": list(range(ITERATIONS)), "iterator": "n", "spec": {"mode": "parallel"}}
    steps = [
        {"step": "each", "loop": loop, "tool": effect("{{ iter.n }}"), **then("count")},
        {"step": "count", "tool": {"kind": "noop", "args": {"found": "{{ each | map(attribute='data.n') | sum }}"}}},
    ]
    return job("loop", steps, {"found": sum(range(1, ITERATIONS + 1))}, ITERATIONS)


def _wide() -> Job:
    """A server gathers its results into an object, for the step that reads them."""
    loop = {"in": list(range(ITERATIONS)), "iterator": "n", "spec": {"mode": "parallel"}}
    steps = [
        {"step": "each", "loop": loop, "tool": {"kind": "python", "code": f"result = 'x' * {LARGE}"}, **then("count")},
        {"step": "count", "tool": effect("{{ each | length }}")},
    ]
    return job("wide", steps, ITERATIONS + 1, 1, "{{ count.data.n }}")


def _large() -> Job:
    steps = [
        {"step": "make", "tool": {"kind": "python", "code": f"result = 'x' * {LARGE}"}, **then("measure")},
        {"step": "measure", "tool": effect("{{ make | length }}")},
    ]
    return job("large", steps, LARGE + 1, 1, "{{ measure.data.n }}")


def _waiting() -> Job:
    steps = [
        {"step": "before", "tool": effect(0), **then("rest")},
        {"step": "rest", "tool": [{"name": "rest_a_while", "kind": "wait", "for_s": 2}], **then("after")},
        {"step": "after", "tool": effect("{{ before.data.n }}")},
    ]
    return job("waiting", steps, 2, 2, "{{ after.data.n }}")


def _branches() -> Job:
    steps = [
        {"step": "start", "tool": {"kind": "noop"}, **then("left", "right", mode="inclusive")},
        {"step": "left", "tool": effect(1), **then("both")},
        {"step": "right", "tool": effect(2), **then("both")},
        {"step": "both", "spec": {"join": "all"}, "tool": effect("{{ left.data.n + right.data.n }}")},
    ]
    return job("branches", steps, 6, 3, "{{ both.data.n }}")


JOBS: Final = {one.name: one for one in (_chain(), _loop(), _wide(), _large(), _waiting(), _branches())}


def named(one: Job, name: str) -> Job:
    """The same job as a playbook that was never stored."""
    text = json.loads(one.source)
    return replace(one, source=json.dumps({**text, "metadata": {**text["metadata"], "description": name}}))


CANCELLED: Final = Job(
    "cancelled",
    json.dumps(
        {
            "apiVersion": "noetl.io/v2",
            "kind": "Playbook",
            "metadata": {"name": "cancelled", "path": "faults/cancelled"},
            "executor": {"spec": {"pool": "nobody"}},
            "workflow": [{"step": "never", "tool": effect(0)}],
        }
    ),
    "cancelled",
    None,
    0,
    0,
)
"""Its command waits for a pool without workers until a client cancels the execution."""
