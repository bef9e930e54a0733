"""A compiled plan for people and programs: what a playbook means once names, defaults and sugar are worked out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec

from noetl_stream.playbook.plan import AdmitPlan, ArcPlan, LoopPlan, Plan, PolicyPlan, StepPlan, TaskPlan
from noetl_stream.template import Guard, Template


def compiled_json(plan: Plan) -> dict[str, Any]:
    """All of the plan as JSON values; templates and guards are their text."""
    found: dict[str, Any] = _plain(plan)
    return found


def compiled_text(plan: Plan) -> str:
    """Steps, tasks and arcs, one line each, in the order in which they are tried."""
    version = f"@{plan.version}" if plan.version else ""
    lines = [f"{plan.path}{version} ({plan.digest[:12]}), begins at {plan.entry}"]
    for step in plan.steps.values():
        lines += ["", *_step(step)]
    return "\n".join(lines)


def _plain(value: Any) -> Any:
    match value:
        case Template() | Guard():
            return value.source
        case Mapping():
            return {key: _plain(part) for key, part in value.items()}
        case frozenset():
            return sorted(value)
        case list() | tuple():
            return [_plain(part) for part in value]
        case msgspec.Struct():
            return msgspec.structs.asdict(value)
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return value


def _step(step: StepPlan) -> Iterator[str]:
    join = f", joins {step.join}" if step.join is not None else ""
    yield f"step {step.name} (line {step.line}): pool {step.pool}{join}"
    if step.admit is not None:
        yield from _admit(step.admit)
    loop, indent = step.loop, "  "
    while loop is not None:
        yield indent + _loop(loop)
        loop, indent = loop.inner, indent + "  "
    for task in step.tasks:
        yield from _task(task, indent)
    for arc in step.arcs:
        yield "  " + _arc(arc)


def _admit(admit: AdmitPlan) -> Iterator[str]:
    for rule in admit.rules:
        yield f"  {_when(rule.guard)}: {'admit' if rule.allow else 'hold'}"
    if admit.wait_s is not None:
        yield f"  held for {admit.wait_s:g} s: {admit.on_timeout}"


def _loop(loop: LoopPlan) -> str:
    window = f", {_text(loop.max_in_flight)} in flight" if loop.mode == "parallel" else ""
    return f"loop {loop.iterator} in {_text(loop.items)}: {loop.mode}, {loop.placement}{window}, {loop.failure_mode}"


def _task(task: TaskPlan, indent: str) -> Iterator[str]:
    """A generated task says where in the file it comes from."""
    origin = f", from {task.origin}" if task.origin else ""
    yield f"{indent}task {task.name} (line {task.line}{origin}): {task.kind}"
    if task.policy is not None:
        yield from (f"{indent}  {line}" for line in _policy(task.policy))


def _policy(policy: PolicyPlan) -> Iterator[str]:
    for rule in policy.rules:
        target = f" to {rule.to}" if rule.to else ""
        attempts = f", {rule.attempts} attempts" if rule.attempts else ""
        patches = [
            f", {name} {', '.join(keys)}"
            for name in ("set_ctx", "set_iter", "set_vars", "set_shared")
            if (keys := getattr(rule, name))
        ]
        yield f"{_when(rule.guard)}: {rule.do}{target}{attempts}{''.join(patches)}"
    yield f"unmatched: {policy.on_unmatched}"


def _arc(arc: ArcPlan) -> str:
    return f"→ {arc.step} {_when(arc.guard)}" if arc.guard else f"→ {arc.step}"


def _when(guard: Guard | None) -> str:
    return f"when {guard.source}" if guard else "else"


def _text(template: Template) -> str:
    return template.source if isinstance(template.source, str) else json.dumps(template.source, ensure_ascii=False)
