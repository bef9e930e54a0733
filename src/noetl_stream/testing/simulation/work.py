"""The work of simulations: a tool whose effects are counted, and playbooks whose correct results are known."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.kinds.spec import KindSpec
from noetl_stream.ports.clock import Clock
from noetl_stream.tools.contract import ToolCall, ToolFailure, ToolResult
from noetl_stream.tools.inputs import Inputs, Knobs, validated


class Effect(NamedTuple):
    """One attempt of one task of one step run: what should happen exactly once."""

    execution_id: str
    step: str
    idempotency_key: str
    attempt: int


class WorkInputs(Inputs):
    """Inputs of ``work``: what it returns, how long it takes, how many attempts fail."""

    value: Any = None
    takes_s: float = 0.0
    failures: int = 0


class WorkTool:
    """Kind ``work``: counts its effect, takes its time, then returns ``value``."""

    spec = KindSpec("work", WorkInputs, Knobs)

    def __init__(self, clock: Clock, effects: Counter[Effect], awake: Callable[[], Awaitable[None]]) -> None:
        self._clock = clock
        self._effects = effects
        self._awake = awake

    async def run(self, call: ToolCall) -> ToolResult:
        """See :class:`WorkInputs`.

        Raises:
            ToolFailure: kind ``exception``, for the first ``failures`` attempts.
        """
        inputs = validated(WorkInputs, call.inputs)
        await self._awake()
        self._effects[Effect(call.execution_id, call.step, call.idempotency_key, call.attempt)] += 1
        await self._clock.sleep(inputs.takes_s)
        await self._awake()
        if call.attempt <= inputs.failures:
            raise ToolFailure(ErrorInfo("exception", f"attempt {call.attempt} fails", retryable=True))
        return ToolResult(inputs.value)

    async def close(self) -> None:
        """Does nothing."""


@dataclass(frozen=True, slots=True)
class Job:
    """A playbook with its expected outcome. ``result`` is that of a completed one.

    ``asks``: it needs a client to send the signal :data:`SIGNAL` and set ``ctx.approved``. ``retried`` is the
    result of its retry, with ``ctx.mended``, which follows its end.
    """

    name: str
    source: str
    status: str
    result: Any = None
    accepted: bool = True
    asks: bool = False
    retried: Any = None


def work(value: Any, takes_s: float = 0.0, **more: Any) -> dict[str, Any]:
    """A step's ``tool``."""
    return {"kind": "work", "value": value, "takes_s": takes_s, **more}


def playbook(name: str, workflow: list[dict[str, Any]], result: Any = None, **more: Any) -> str:
    """The text of a playbook (JSON is YAML)."""
    spec = {"executor": {"spec": {"result": result}}} if result is not None else {}
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": name, "path": f"simulation/{name}"}}
    return json.dumps({**head, **spec, **more, "workflow": workflow})


def then(*steps: str, mode: str = "exclusive", when: str | None = None) -> dict[str, Any]:
    """A step's ``next``."""
    guard = {"when": when} if when else {}
    return {"spec": {"mode": mode}, "arcs": [{"step": step, **guard} for step in steps]}


def _counting(task: str, key: str) -> dict[str, Any]:
    patch = {key: f"{{{{ (ctx.{key} | default(0)) + outcome.result }}}}"}
    return {"name": task, **work(1, 0.4), "spec": {"policy": {"rules": [_always(patch)]}}}


def _always(patch: dict[str, str]) -> dict[str, Any]:
    return {"else": {"then": {"do": "continue", "set_ctx": patch}}}


def _chain() -> Job:
    steps: list[dict[str, Any]] = [
        {"step": "a", "tool": [_counting("count", "total")], "next": then("b")},
        {"step": "b", "tool": work("{{ ctx.total + 1 }}", 2.0), "next": then("c")},
        {"step": "c", "tool": work({"of_b": "{{ b }}", "total": "{{ ctx.total }}"})},
    ]
    return Job("chain", playbook("chain", steps), "completed", {"of_b": 2, "total": 1})


def _fan() -> Job:
    loop = {"in": [5, 6, 7, 8, 9], "iterator": "n", "spec": {"mode": "parallel", "max_in_flight": 3}}
    steps = [
        {"step": "fan", "loop": loop, "tool": work("{{ iter.n * 2 }}", 1.5), "next": then("sum")},
        {"step": "sum", "tool": work("{{ fan | sum }}")},
    ]
    return Job("fan", playbook("fan", steps), "completed", 70)


def _walk() -> Job:
    loop = {"in": [1, 2, 3, 4], "iterator": "n", "spec": {"mode": "sequential"}}
    patch = {"seen": "{{ (ctx.seen | default([])) + [outcome.result] }}"}
    task = {"name": "see", **work("{{ iter.n }}", 0.7), "spec": {"policy": {"rules": [_always(patch)]}}}
    steps = [{"step": "walk", "loop": loop, "tool": [task]}]
    return Job("walk", playbook("walk", steps, "{{ ctx.seen }}"), "completed", [1, 2, 3, 4])


def _retry() -> Job:
    again = {"when": "{{ outcome.status == 'error' }}", "then": {"do": "retry", "attempts": 4, "delay": 0.5}}
    task = {"name": "try", **work("at last", 0.3, failures=2), "spec": {"policy": {"rules": [again]}}}
    steps = [{"step": "stubborn", "tool": [task]}]
    return Job("retry", playbook("retry", steps), "completed", "at last")


def _branches() -> Job:
    admit = {"rules": [{"when": "{{ ctx.left is defined and ctx.right is defined }}", "then": {"allow": True}}]}
    steps: list[dict[str, Any]] = [
        {"step": "start", "next": then("left", "right", "last", mode="inclusive")},
        {"step": "left", "tool": [_counting("count", "left")]},
        {"step": "right", "tool": [_counting("count", "right")]},
        {"step": "last", "spec": {"policy": {"admit": admit}}, "tool": work("{{ ctx.left + ctx.right }}", 0.2)},
    ]
    return Job("branches", playbook("branches", steps, "{{ last }}"), "completed", 2)


def _broken_loop() -> Job:
    spec = {"mode": "parallel", "max_in_flight": 4}
    loop = {"in": [0, 9, 0, 0, 0, 0], "iterator": "failures", "spec": spec}
    handled = then("mend", when="{{ event.status == 'error' }}")
    steps = [
        {"step": "breaks", "loop": loop, "tool": work(1, 1.0, failures="{{ iter.failures }}"), "next": handled},
        {"step": "mend", "tool": work("mended", 0.1)},
    ]
    return Job("broken_loop", playbook("broken_loop", steps), "completed", "mended")


def _failing() -> Job:
    steps = [
        {"step": "start", "next": then("long", "breaks", mode="inclusive")},
        {"step": "long", "tool": work("never seen", 8.0)},
        {"step": "breaks", "tool": work(1, 1.0, failures=9)},
    ]
    return Job("failing", playbook("failing", steps), "failed")


def _mended() -> Job:
    steps: list[dict[str, Any]] = [
        {"step": "start", "next": then("kept", "breaks", mode="inclusive")},
        {"step": "kept", "tool": [_counting("count", "kept")], "next": then("both")},
        {"step": "breaks", "tool": work(1, 2.0, failures="{{ 0 if ctx.mended else 9 }}"), "next": then("both")},
        {"step": "both", "spec": {"join": "all"}, "tool": work("{{ [ctx.kept, breaks] }}")},
    ]
    return Job("mended", playbook("mended", steps), "failed", retried=[1, 1])


def _refused() -> Job:
    return Job("refused", playbook("refused", [{"step": "a", "tol": {}}]), "failed", accepted=False)


def _nested() -> Job:
    inner = {"in": "{{ iter.row }}", "iterator": "n", "spec": {"mode": "parallel", "max_in_flight": 2}}
    loop = {"in": [[1, 2, 3], [], [4]], "iterator": "row", "spec": {"mode": "parallel"}, "loop": inner}
    rule = {"do": "continue", "set_shared": {"all": {"op": "append", "value": "{{ outcome.result }}"}}}
    policy = {"rules": [{"else": {"then": rule}}]}
    task = {"name": "see", **work("{{ iter.n + iter.parent.index }}", 0.8), "spec": {"policy": policy}}
    steps = [{"step": "nest", "loop": loop, "tool": [task]}]
    result = {"rows": "{{ nest }}", "all": "{{ ctx.all }}"}
    right = {"rows": [[1, 2, 3], [], [6]], "all": [1, 2, 3, 6]}
    return Job("nested", playbook("nested", steps, result), "completed", right)


def _paged() -> Job:
    """Loops over a result too large for the server, level by level and in one worker."""
    rows = [{"n": 1, "cells": [1, 2]}, {"n": 2, "cells": []}, {"n": 3, "cells": [4]}]
    cells = {"in": "{{ row.cells }}", "iterator": "cell", "spec": {"mode": "parallel"}}
    each = {"in": "{{ rows }}", "iterator": "row", "spec": {"mode": "parallel"}, "loop": cells}
    walk = {"in": "{{ rows }}", "iterator": "row"}
    steps: list[dict[str, Any]] = [
        {"step": "rows", "tool": work(rows, 0.2), "next": then("each")},
        {"step": "each", "loop": each, "tool": work("{{ cell * row.n }}", 0.6), "next": then("walk")},
        {"step": "walk", "loop": walk, "tool": work("{{ row.n }}", 0.3), "next": then("all")},
        {"step": "all", "tool": work("{{ [each, walk] }}")},
    ]
    limits = {"max_inline_bytes": 50, "max_resolve_bytes": 20, "max_loop_items_bytes": 20}
    executor = {"spec": {"policy": {"limits": limits}}}
    right = [[[1, 2], [], [12]], [1, 2, 3]]
    return Job("paged", playbook("paged", steps, executor=executor), "completed", right)


def _diamond() -> Job:
    steps: list[dict[str, Any]] = [
        {"step": "start", "next": then("left", "right", "never", mode="inclusive")},
        {"step": "left", "tool": work(1, 1.0), "next": _arguing("both", "left", "{{ left }}")},
        {"step": "right", "tool": work(2, 0.2), "next": _arguing("both", "right", "{{ right }}")},
        {"step": "never", "tool": work(3, 0.5), "next": then("both", when="{{ event.result == 'odd' }}")},
        {"step": "both", "spec": {"join": "all"}, "tool": work("{{ args.left + args.right }}")},
    ]
    return Job("diamond", playbook("diamond", steps), "completed", 3)


def _waiting() -> Job:
    again = {"when": "{{ outcome.status == 'error' }}", "then": {"do": "retry", "attempts": 2, "delay": 9}}
    tasks = [
        {"name": "before", **work("kept", 0.2)},
        {"name": "rest", "kind": "wait", "for_s": 3},
        {"name": "late", **work("{{ before }}", 0.2, failures=1), "spec": {"policy": {"rules": [again]}}},
    ]
    steps = [{"step": "patient", "tool": tasks}]
    return Job("waiting", playbook("waiting", steps), "completed", "kept")


def _overdue() -> Job:
    lifecycle = {"policy": {"lifecycle": {"timeout_s": 6}}}
    tasks = [{"name": "rest", "kind": "wait", "for_s": 4000}]
    steps: list[dict[str, Any]] = [
        {"step": "slow", "spec": lifecycle, "tool": tasks, "next": then("mend", when="{{ event.status == 'error' }}")},
        {"step": "mend", "tool": work("in time")},
    ]
    return Job("overdue", playbook("overdue", steps), "completed", "in time")


def _calling() -> Job:
    loop = {"in": [1, 2], "iterator": "n", "spec": {"mode": "parallel"}}
    call = {"kind": "playbook", "path": CALLED_PATH, "args": {"n": "{{ iter.n }}"}}
    steps = [{"step": "call", "loop": loop, "tool": call}]
    return Job("calling", playbook("calling", steps), "completed", [10, 20])


def _signalled() -> Job:
    tasks = [
        {"name": "hear", "kind": "wait", "signal": SIGNAL, "timeout_s": 3000},
        {"name": "tell", **work("{{ hear }}")},
    ]
    return Job("signalled", playbook("signalled", [{"step": "ear", "tool": tasks}]), "completed", SIGNAL, asks=True)


def _approved() -> Job:
    rules = [{"when": "{{ ctx.approved is defined }}", "then": {"allow": True}}]
    admit = {"rules": rules, "wait": {"timeout_s": 3000}}
    steps = [{"step": "gate", "spec": {"policy": {"admit": admit}}, "tool": work("{{ ctx.approved }}")}]
    return Job("approved", playbook("approved", steps), "completed", True, asks=True)


def _arguing(step: str, name: str, value: str) -> dict[str, Any]:
    return {"arcs": [{"step": step, "args": {name: value}}]}


CALLED_PATH = "simulation/called"
CALLED = playbook("called", [{"step": "start", "tool": work("{{ workload.n * 10 }}", 0.7)}], workload={"n": 0})
SIGNAL = "go"

JOBS: tuple[Job, ...] = (
    _chain(), _fan(), _walk(), _retry(), _branches(), _broken_loop(), _failing(), _mended(), _refused(),
    _nested(), _paged(), _diamond(), _waiting(), _overdue(), _calling(), _signalled(), _approved(),
)  # fmt: skip
"""One of each shape: routing with patches, loops of both placements, nested and paged ones, reducers, retries,
held tokens, joins, suspensions, timeouts, calls, signals, patches, failures, a retry, a refusal.
"""
