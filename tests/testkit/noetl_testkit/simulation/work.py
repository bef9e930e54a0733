"""The work of simulations: a tool whose effects are counted, and playbooks whose correct results are known."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

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
    """Kind ``work``: counts its effect and tells who sees it, takes its time, then returns ``value``."""

    spec = KindSpec("work", WorkInputs, Knobs)

    def __init__(
        self,
        clock: Clock,
        effects: Counter[Effect],
        awake: Callable[[], Awaitable[None]],
        saw: Callable[[Effect], None] = lambda effect: None,
    ) -> None:
        self._clock = clock
        self._saw = saw
        self._effects = effects
        self._awake = awake

    async def run(self, call: ToolCall) -> ToolResult:
        """See :class:`WorkInputs`.

        Raises:
            ToolFailure: kind ``exception``, for the first ``failures`` attempts.
        """
        inputs = validated(WorkInputs, call.inputs)
        await self._awake()
        effect = Effect(call.execution_id, call.step, call.idempotency_key, call.attempt)
        self._effects[effect] += 1
        self._saw(effect)
        await self._clock.sleep(inputs.takes_s)
        await self._awake()
        if call.attempt <= inputs.failures:
            raise ToolFailure(ErrorInfo("exception", f"attempt {call.attempt} fails", retryable=True))
        return ToolResult(inputs.value)

    async def close(self) -> None:
        """Does nothing."""


Ending = Literal["as given", "as without faults", "anyhow"]


@dataclass(frozen=True, slots=True)
class Job:
    """A playbook with its expected outcome. ``result`` is that of a completed one.

    ``ends``: as ``status`` and ``result`` say, as it does without faults, or anyhow.
    ``asks``: it needs a client to send the signal :data:`SIGNAL` and set ``ctx.approved``. ``retried`` is the
    result of its retry, with ``ctx.mended``, which follows its end.
    """

    name: str
    source: str
    status: str = ""
    result: Any = None
    ends: Ending = "as given"
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


def then(*steps: str, mode: str = "exclusive", when: str | None = None, **spec: Any) -> dict[str, Any]:
    """A step's ``next``."""
    guard = {"when": when} if when else {}
    return {"spec": {"mode": mode, **spec}, "arcs": [{"step": step, **guard} for step in steps]}


def _counting(key: str) -> dict[str, Any]:
    patch = {key: f"{{{{ (ctx.{key} | default(0)) + outcome.result }}}}"}
    return {"name": "count", **work(1, 0.4), "spec": _rules({"else": _continue(set_ctx=patch)})}


def _rules(*rules: dict[str, Any]) -> dict[str, Any]:
    return {"policy": {"rules": rules}}


def _continue(**effects: Any) -> dict[str, Any]:
    return {"then": {"do": "continue", **effects}}


def _retry(attempts: int, delay: float) -> dict[str, Any]:
    return _rules(
        {"when": "{{ outcome.status == 'error' }}", "then": {"do": "retry", "attempts": attempts, "delay": delay}}
    )


def _admit(when: str, **more: Any) -> dict[str, Any]:
    return {"policy": {"admit": {"rules": [{"when": when, "then": {"allow": True}}], **more}}}


def _arguing(step: str, name: str, value: str) -> dict[str, Any]:
    return {"arcs": [{"step": step, "args": {name: value}}]}


def _routing() -> Iterator[Job]:
    """Patches, held tokens, joins, failures, a retry, a refusal."""
    steps: list[dict[str, Any]] = [
        {"step": "a", "tool": [_counting("total")], "next": then("b")},
        {"step": "b", "tool": work("{{ ctx.total + 1 }}", 2.0), "next": then("c")},
        {"step": "c", "tool": work({"of_b": "{{ b }}", "total": "{{ ctx.total }}"})},
    ]
    yield Job("chain", playbook("chain", steps), "completed", {"of_b": 2, "total": 1})

    admit = _admit("{{ ctx.left is defined and ctx.right is defined }}")
    steps = [
        {"step": "start", "next": then("left", "right", "last", mode="inclusive")},
        {"step": "left", "tool": [_counting("left")]},
        {"step": "right", "tool": [_counting("right")]},
        {"step": "last", "spec": admit, "tool": work("{{ ctx.left + ctx.right }}", 0.2)},
    ]
    yield Job("branches", playbook("branches", steps, "{{ last }}"), "completed", 2)

    steps = [
        {"step": "start", "next": then("left", "right", "never", mode="inclusive")},
        {"step": "left", "tool": work(1, 1.0), "next": _arguing("both", "left", "{{ left }}")},
        {"step": "right", "tool": work(2, 0.2), "next": _arguing("both", "right", "{{ right }}")},
        {"step": "never", "tool": work(3, 0.5), "next": then("both", when="{{ event.result == 'odd' }}")},
        {"step": "both", "spec": {"join": "all"}, "tool": work("{{ args.left + args.right }}")},
    ]
    yield Job("diamond", playbook("diamond", steps), "completed", 3)

    steps = [
        {"step": "start", "next": then("long", "breaks", mode="inclusive")},
        {"step": "long", "tool": work("never seen", 8.0)},
        {"step": "breaks", "tool": work(1, 1.0, failures=9)},
    ]
    yield Job("failing", playbook("failing", steps), "failed")

    steps = [
        {"step": "start", "next": then("kept", "breaks", mode="inclusive")},
        {"step": "kept", "tool": [_counting("kept")], "next": then("both")},
        {"step": "breaks", "tool": work(1, 2.0, failures="{{ 0 if ctx.mended else 9 }}"), "next": then("both")},
        {"step": "both", "spec": {"join": "all"}, "tool": work("{{ [ctx.kept, breaks] }}")},
    ]
    yield Job("mended", playbook("mended", steps), "failed", retried=[1, 1])

    spared = {"policy": {"failure": {"mode": "best_effort"}}}
    steps = [
        {"step": "start", "next": then("breaks", "goes_on", mode="inclusive")},
        {"step": "breaks", "spec": spared, "tool": work(1, 0.5, failures=9)},
        {"step": "goes_on", "tool": work("to the end", 3.0)},
    ]
    yield Job("spared", playbook("spared", steps), "completed", "to the end")

    bounded = {"executor": {"spec": {"policy": {"quotas": {"step_runs": 2}}}}}
    steps = [
        {"step": "start", "tool": work(1, 0.5), "next": then("goes_on")},
        {"step": "goes_on", "tool": work(2, 0.5), "next": then("too_many")},
        {"step": "too_many", "tool": work(3)},
    ]
    yield Job("bounded", playbook("bounded", steps, **bounded), "failed")

    yield Job("refused", playbook("refused", [{"step": "a", "tol": {}}]), "failed", accepted=False)


def _loops() -> Iterator[Job]:
    """Loops of both placements, nested and paged ones, reducers."""
    loop: dict[str, Any] = {"in": [5, 6, 7, 8, 9], "iterator": "n", "spec": {"mode": "parallel", "max_in_flight": 3}}
    steps: list[dict[str, Any]] = [
        {"step": "fan", "loop": loop, "tool": work("{{ iter.n * 2 }}", 1.5), "next": then("sum")},
        {"step": "sum", "tool": work("{{ fan | sum }}")},
    ]
    yield Job("fan", playbook("fan", steps), "completed", 70)

    loop = {"in": [1, 2, 3, 4], "iterator": "n", "spec": {"mode": "sequential"}}
    seen = _continue(set_ctx={"seen": "{{ (ctx.seen | default([])) + [outcome.result] }}"})
    task: dict[str, Any] = {"name": "see", **work("{{ iter.n }}", 0.7), "spec": _rules({"else": seen})}
    steps = [{"step": "walk", "loop": loop, "tool": [task]}]
    yield Job("walk", playbook("walk", steps, "{{ ctx.seen }}"), "completed", [1, 2, 3, 4])

    loop = {"in": [0, 9, 0, 0, 0, 0], "iterator": "failures", "spec": {"mode": "parallel", "max_in_flight": 4}}
    task = work(1, 1.0, failures="{{ iter.failures }}")
    steps = [
        {"step": "breaks", "loop": loop, "tool": task, "next": then("mend", when=FAILED)},
        {"step": "mend", "tool": work("mended", 0.1)},
    ]
    yield Job("broken_loop", playbook("broken_loop", steps), "completed", "mended")

    policy = {"failure": {"mode": "best_effort", "tolerated": "50%"}}
    loop = {"in": "{{ workload.failures }}", "iterator": "failures", "spec": {"mode": "parallel", "policy": policy}}
    ended = {"arcs": [{"step": "said", "args": {"failed": "{{ event.loop.failed_leaves }}"}}]}
    steps = [
        {"step": "try", "loop": loop, "tool": work("fine", 0.8, failures="{{ iter.failures }}"), "next": ended},
        {"step": "said", "tool": work({"failed": "{{ args.failed }}", "of": "{{ try }}"})},
    ]
    text = playbook("tolerant", steps, workload={"failures": [0, 9, 0, 9]})
    yield Job("tolerant", text, "completed", {"failed": 2, "of": ["fine", None, "fine", None]})

    inner = {"in": "{{ iter.row }}", "iterator": "n", "spec": {"mode": "parallel", "max_in_flight": 2}}
    loop = {"in": [[1, 2, 3], [], [4]], "iterator": "row", "spec": {"mode": "parallel"}, "loop": inner}
    append = _continue(set_shared={"all": {"op": "append", "value": "{{ outcome.result }}"}})
    task = {"name": "see", **work("{{ iter.n + iter.parent.index }}", 0.8), "spec": _rules({"else": append})}
    steps = [{"step": "nest", "loop": loop, "tool": [task]}]
    text = playbook("nested", steps, {"rows": "{{ nest }}", "all": "{{ ctx.all }}"})
    yield Job("nested", text, "completed", {"rows": [[1, 2, 3], [], [6]], "all": [1, 2, 3, 6]})

    # Over a result too large for the server, level by level and in one worker.
    rows = [{"n": 1, "cells": [1, 2]}, {"n": 2, "cells": []}, {"n": 3, "cells": [4]}]
    cells = {"in": "{{ row.cells }}", "iterator": "cell", "spec": {"mode": "parallel"}}
    each = {"in": "{{ rows }}", "iterator": "row", "spec": {"mode": "parallel"}, "loop": cells}
    loop = {"in": "{{ rows }}", "iterator": "row"}
    steps = [
        {"step": "rows", "tool": work(rows, 0.2), "next": then("each")},
        {"step": "each", "loop": each, "tool": work("{{ cell * row.n }}", 0.6), "next": then("walk")},
        {"step": "walk", "loop": loop, "tool": work("{{ row.n }}", 0.3), "next": then("all")},
        {"step": "all", "tool": work("{{ [each, walk] }}")},
    ]
    limits = {"max_inline_bytes": 50, "max_resolve_bytes": 20, "max_loop_items_bytes": 20}
    text = playbook("paged", steps, executor={"spec": {"policy": {"limits": limits}}})
    yield Job("paged", text, "completed", [[[1, 2], [], [12]], [1, 2, 3]])


def _waits() -> Iterator[Job]:
    """Retries, suspensions, timeouts, calls, signals."""
    task = {"name": "try", **work("at last", 0.3, failures=2), "spec": _retry(4, 0.5)}
    yield Job("retry", playbook("retry", [{"step": "stubborn", "tool": [task]}]), "completed", "at last")

    tasks: list[dict[str, Any]] = [
        {"name": "before", **work("kept", 0.2)},
        {"name": "rest", "kind": "wait", "for_s": 3},
        {"name": "late", **work("{{ before }}", 0.2, failures=1), "spec": _retry(2, 9)},
    ]
    yield Job("waiting", playbook("waiting", [{"step": "patient", "tool": tasks}]), "completed", "kept")

    tasks = [{"name": "rest", "kind": "wait", "for_s": 4000}]
    lifecycle = {"policy": {"lifecycle": {"timeout_s": 6}}}
    steps: list[dict[str, Any]] = [
        {"step": "slow", "spec": lifecycle, "tool": tasks, "next": then("mend", when=FAILED)},
        {"step": "mend", "tool": work("in time")},
    ]
    yield Job("overdue", playbook("overdue", steps), "completed", "in time")

    loop = {"in": [1, 2], "iterator": "n", "spec": {"mode": "parallel"}}
    call = {"kind": "playbook", "path": CALLED_PATH, "args": {"n": "{{ iter.n }}"}}
    steps = [{"step": "call", "loop": loop, "tool": call}]
    yield Job("calling", playbook("calling", steps), "completed", [10, 20])

    tasks = [
        {"name": "hear", "kind": "wait", "signal": SIGNAL, "timeout_s": 3000},
        {"name": "tell", **work("{{ hear }}")},
    ]
    yield Job("signalled", playbook("signalled", [{"step": "ear", "tool": tasks}]), "completed", SIGNAL, asks=True)

    admit = _admit("{{ ctx.approved is defined }}", wait={"timeout_s": 3000})
    steps = [{"step": "gate", "spec": admit, "tool": work("{{ ctx.approved }}")}]
    yield Job("approved", playbook("approved", steps), "completed", True, asks=True)

    asked = then("order", when="{{ ctx.approved }}", wait={"timeout_s": 3000})
    steps = [
        {"step": "ask", "tool": work(20, 0.3), "next": asked},
        {"step": "order", "tool": work("{{ ask }}", 0.5)},
    ]
    yield Job("ordered", playbook("ordered", steps), "completed", 20, asks=True)

    overdue = then("remind", when="{{ event.name == 'next.timed_out' }}", wait={"timeout_s": 6})
    steps = [
        {"step": "ask", "tool": work(20, 0.3), "next": overdue},
        {"step": "remind", "tool": work("please", 0.5)},
    ]
    yield Job("reminded", playbook("reminded", steps), "completed", "please")


CALLED_PATH = "simulation/called"
CALLED = playbook("called", [{"step": "start", "tool": work("{{ workload.n * 10 }}", 0.7)}], workload={"n": 0})
_SLOW = [{"step": "start", "tool": [work(1, 0.3), {"kind": "wait", "for_s": 5}]}]
_FAILING = [{"step": "start", "tool": work(1, 0.3, failures=9)}]
REGISTERED: Final = {
    CALLED_PATH: CALLED,
    "simulation/called_slow": playbook("called_slow", _SLOW),
    "simulation/called_failing": playbook("called_failing", _FAILING),
}
"""The playbooks that others call, by path."""

FAILED = "{{ event.status == 'error' }}"
SIGNAL = "go"

JOBS: tuple[Job, ...] = (*_routing(), *_loops(), *_waits())
"""One of each shape."""


def job(name: str) -> Job:
    """The job of :data:`JOBS` with this name."""
    return next(one for one in JOBS if one.name == name)
