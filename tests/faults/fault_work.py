"""Playbooks whose end and effects are known."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

LARGE: Final = 200_000
"""Characters of a result that is kept in the object store."""

ITERATIONS: Final = 4
SIGNAL: Final = "go"


@dataclass(frozen=True, slots=True)
class Job:
    """A playbook.

    Attributes:
        effects: How many idempotency keys the tasks of each step use.
        steps: How many of its steps end.
        after: The steps whose effects come before those of a step.
    """

    name: str
    source: str
    status: str
    result: Any
    effects: Mapping[str, int]
    steps: int
    after: Mapping[str, Sequence[str]] = field(default_factory=dict)


def effect(step: str, n: Any) -> dict[str, Any]:
    """A task of this step that the ledger writes down; its result's ``data.n`` is one more than ``n``."""
    url = f"{{{{ workload.ledger }}}}/{{{{ execution_id }}}}/{step}"
    return {"kind": "http", "method": "POST", "url": url, "json": {"n": n}}


def then(*steps: str, mode: str = "exclusive") -> dict[str, Any]:
    return {"next": {"spec": {"mode": mode}, "arcs": [{"step": step} for step in steps]}}


def job(
    name: str, workflow: list[dict[str, Any]], result: Any, effects: Mapping[str, int], reads: str = "", **after: Any
) -> Job:
    """A job that completes with ``result``, which the template ``reads`` gives; ``after`` as in :class:`Job`."""
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": name, "path": f"faults/{name}"}}
    executor = {"executor": {"spec": {"result": reads}}} if reads else {}
    source = json.dumps({**head, **executor, "workflow": workflow})
    return Job(name, source, "completed", result, effects, len(workflow), after)


def _chain() -> Job:
    steps = [
        {"step": "one", "tool": effect("one", 0), **then("two")},
        {"step": "two", "tool": effect("two", "{{ one.data.n }}"), **then("three")},
        {"step": "three", "tool": effect("three", "{{ two.data.n }}")},
    ]
    effects = {"one": 1, "two": 1, "three": 1}
    return job("chain", steps, 3, effects, "{{ three.data.n }}", two=["one"], three=["two"])


def _loop() -> Job:
    loop = {"in": list(range(ITERATIONS)), "iterator": "n", "spec": {"mode": "parallel"}}
    steps = [
        {"step": "each", "loop": loop, "tool": effect("each", "{{ iter.n }}"), **then("count")},
        {"step": "count", "tool": {"kind": "noop", "args": {"found": "{{ each | map(attribute='data.n') | sum }}"}}},
    ]
    return job("loop", steps, {"found": sum(range(1, ITERATIONS + 1))}, {"each": ITERATIONS})


def _wide() -> Job:
    """A server gathers its results into an object, for the step that reads them."""
    loop = {"in": list(range(ITERATIONS)), "iterator": "n", "spec": {"mode": "parallel"}}
    steps = [
        {"step": "each", "loop": loop, "tool": {"kind": "python", "code": f"result = 'x' * {LARGE}"}, **then("count")},
        {"step": "count", "tool": effect("count", "{{ each | length }}")},
    ]
    return job("wide", steps, ITERATIONS + 1, {"count": 1}, "{{ count.data.n }}")


def _large() -> Job:
    steps = [
        {"step": "make", "tool": {"kind": "python", "code": f"result = 'x' * {LARGE}"}, **then("measure")},
        {"step": "measure", "tool": effect("measure", "{{ make | length }}")},
    ]
    return job("large", steps, LARGE + 1, {"measure": 1}, "{{ measure.data.n }}")


def _waiting() -> Job:
    steps = [
        {"step": "before", "tool": effect("before", 0), **then("rest")},
        {"step": "rest", "tool": [{"name": "rest_a_while", "kind": "wait", "for_s": 2}], **then("after")},
        {"step": "after", "tool": effect("after", "{{ before.data.n }}")},
    ]
    return job("waiting", steps, 2, {"before": 1, "after": 1}, "{{ after.data.n }}", after=["before"])


def _branches() -> Job:
    steps = [
        {"step": "start", "tool": {"kind": "noop"}, **then("left", "right", mode="inclusive")},
        {"step": "left", "tool": effect("left", 1), **then("both")},
        {"step": "right", "tool": effect("right", 2), **then("both")},
        {"step": "both", "spec": {"join": "all"}, "tool": effect("both", "{{ left.data.n + right.data.n }}")},
    ]
    effects = {"left": 1, "right": 1, "both": 1}
    return job("branches", steps, 6, effects, "{{ both.data.n }}", both=["left", "right"])


def _told() -> Job:
    """It goes on once a client has sent the signal :data:`SIGNAL`."""
    steps = [
        {"step": "before", "tool": effect("before", 0), **then("hear")},
        {
            "step": "hear",
            "tool": [{"name": "hear", "kind": "wait", "signal": SIGNAL, "timeout_s": 3000}],
            **then("after"),
        },
        {"step": "after", "tool": effect("after", "{{ before.data.n }}")},
    ]
    return job("told", steps, 2, {"before": 1, "after": 1}, "{{ after.data.n }}", after=["before"])


JOBS: Final = {one.name: one for one in (_chain(), _loop(), _wide(), _large(), _waiting(), _branches(), _told())}


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
            "workflow": [{"step": "never", "tool": effect("never", 0)}],
        }
    ),
    "cancelled",
    None,
    {},
    0,
)
"""Its command waits for a pool without workers until a client cancels the execution."""
