"""Checks what rules write: only where it is allowed, and not from two steps at once (LANGUAGE §5, §6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from noetl_stream.playbook.check.graph import concurrent_steps
from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.model.loop import READ_ONLY
from noetl_stream.playbook.model.policy import ActionDraft
from noetl_stream.playbook.model.shared_values import SHOWN
from noetl_stream.playbook.model.step import StepDraft
from noetl_stream.playbook.yaml.nodes import MappingKey

_OVERWRITE: Final = "iterations would overwrite each other"


def rules_of(step: StepDraft) -> Iterator[ActionDraft]:
    """All rules of a step's task policies."""
    for task in step.tasks:
        yield from task.policy.rules if task.policy else ()


def check_writes(steps: list[StepDraft], problems: Problems) -> None:
    """Reports keys that rules must not write, and warns of keys that two steps may write at the same time."""
    for step in steps:
        _check_read_only(step, problems)
        _check_parallel(step, problems)
    _check_both_ways(steps, problems)
    _warn_competing(steps, problems)


def _check_read_only(step: StepDraft, problems: Problems) -> None:
    levels = list(step.loop.levels()) if step.loop else []
    read_only = READ_ONLY | {level.iterator for level in levels}
    for key in _written(step, "iter") if levels else ():
        if key.name in read_only:
            message = f"`iter.{key.name}` is set by the loop"
            problems.error("read_only", message, key, "use another name")


def _check_parallel(step: StepDraft, problems: Problems) -> None:
    levels = step.loop.levels() if step.loop else ()
    parallel = next((level for level in levels if level.mode == "parallel"), None)
    if parallel is None:
        return
    where = "a parallel loop" if parallel is step.loop else "a loop with a parallel level"
    for key in _written(step, "ctx"):
        message = f"`set_ctx` of `{key.name}` in {where}: {_OVERWRITE}"
        hint = f"write set_shared: {{ {key.name}: {SHOWN} }}, or set_iter for a value per iteration"
        problems.error("set_ctx_in_parallel_loop", message, key, hint)
    for key in _written(step, "vars"):
        message = f"`set_vars` of `{key.name}` in {where}: {_OVERWRITE}"
        hint = f"use set_iter, or share it in ctx with set_shared: {{ {key.name}: {SHOWN} }}"
        problems.error("set_vars_in_parallel_loop", message, key, hint)


def _check_both_ways(steps: list[StepDraft], problems: Problems) -> None:
    """A key with reducers must not be set as well: its value would depend on the order."""
    replaced: dict[str, MappingKey] = {}
    for step in steps:
        for key in _written(step, "ctx"):
            replaced.setdefault(key.name, key)
    for step in steps:
        for shared in (shared for rule in rules_of(step) for shared in rule.shared):
            other = replaced.get(shared.key.name)
            if other is not None:
                name = shared.key.name
                message = f"`{name}` is set with `set_shared` here and with `set_ctx` on line {other.mark.line}"
                hint = "rename one, or use set_shared in both places"
                problems.error("conflicting_keys", message, shared.key, hint)


def _warn_competing(steps: list[StepDraft], problems: Problems) -> None:
    """Concurrent steps that set the same key of ``ctx``: fold order decides (LANGUAGE §5)."""
    writers: dict[str, dict[str, MappingKey]] = {}
    for step in steps:
        for key in _written(step, "ctx"):
            writers.setdefault(key.name, {}).setdefault(step.name, key)
    contested = {name: by_step for name, by_step in writers.items() if len(by_step) > 1}
    if not contested:
        return
    concurrent = concurrent_steps(steps, {step for by_step in contested.values() for step in by_step})
    for name, by_step in contested.items():
        earlier: set[str] = set()
        for step_name, key in by_step.items():
            other = next((one for one in concurrent[step_name] if one in earlier), None)
            if other is not None:
                message = (
                    f"`{other}` and `{step_name}` may run at the same time and both set `ctx.{name}`: the last one wins"
                )
                hint = "set different keys, run the steps in sequence, or use set_shared in both"
                problems.warn("competing_writes", message, key, hint)
            earlier.add(step_name)


def _written(step: StepDraft, namespace: str) -> Iterator[MappingKey]:
    return (key for rule in rules_of(step) for key, _ in rule.writes.get(namespace, ()))
