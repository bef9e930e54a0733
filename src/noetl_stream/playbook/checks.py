"""Checks over the whole workflow: targets exist, writes are allowed where they stand, nothing is without effect
(LANGUAGE §3, §5, §6, §7; formal specification §13)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from noetl_stream.playbook.diagnostics import Place, Problems, did_you_mean
from noetl_stream.playbook.document import Document
from noetl_stream.playbook.loop import READ_ONLY
from noetl_stream.playbook.nodes import Node, Scalar, Sequence, holds_template
from noetl_stream.playbook.policy import ActionDraft, PolicyDraft
from noetl_stream.playbook.step import StepDraft

_ANY_ERROR: Final = re.compile(
    r"\{\{-?\s*(?:outcome\.status\s*(?:==\s*['\"]error['\"]|!=\s*['\"]ok['\"])|outcome\.error)\s*-?\}\}\Z"
)
_SHARED: Final = 'set_shared: { %s: { op: add, value: "{{ … }}" } }'


def check_workflow(document: Document, steps: list[StepDraft], problems: Problems) -> None:
    """Reports what no single step can know."""
    names = [step.name for step in steps if step.name]
    _check_entry(document, names, problems)
    for step in steps:
        for arc in step.arcs:
            if arc.step not in names:
                hint = did_you_mean(arc.step, names) or f"steps: {', '.join(names)}"
                problems.error("unknown_step", f"there is no step `{arc.step}`", arc.target, hint)
        _check_jumps(step, problems)
        _check_writes(step, problems)
        _check_policies(step, problems)
        _check_failure_mode(step, problems)
        _check_in_flight(step, document, problems)
    if not problems.has_errors:
        _warn_unreachable(document, steps, problems)
    _warn_competing_writes(steps, problems)
    if document.workload_node is not None:
        _warn_templates(document.workload_node, problems)


def _check_entry(document: Document, names: list[str], problems: Problems) -> None:
    entry, at = document.entry, document.entry_at
    if entry is not None and at is not None and entry not in names:
        problems.error("unknown_step", f"there is no step `{entry}`", at, did_you_mean(entry, names))


def _rules(step: StepDraft) -> Iterator[ActionDraft]:
    for task in step.tasks:
        yield from task.policy.rules if task.policy else ()


def _check_jumps(step: StepDraft, problems: Problems) -> None:
    tasks = [task.name for task in step.tasks]
    for rule in _rules(step):
        if rule.to is not None and rule.to_node is not None and rule.do == "jump" and rule.to not in tasks:
            hint = did_you_mean(rule.to, tasks) or f"tasks of this pipeline: {', '.join(tasks)}"
            problems.error("unknown_task", f"there is no task `{rule.to}` in this pipeline", rule.to_node, hint)


def _check_writes(step: StepDraft, problems: Problems) -> None:
    loop = step.loop
    is_parallel = loop is not None and loop.mode == "parallel"
    read_only = {*READ_ONLY, *([loop.iterator] if loop and loop.iterator else [])}
    for rule in _rules(step):
        for key, _ in rule.writes.get("iter", ()) if loop else ():
            if key.name in read_only:
                message = f"`iter.{key.name}` is set by the loop and cannot be written"
                problems.error("read_only", message, key, "write another name")
        if not is_parallel:
            continue
        for key, _ in rule.writes.get("ctx", ()):
            message = f"`set_ctx` of `{key.name}` in a parallel loop: iterations would overwrite each other"
            hint = f"iterations share values with {_SHARED % key.name}, once this version has it; or set_iter"
            problems.error("set_ctx_in_parallel_loop", message, key, hint)
        for key, _ in rule.writes.get("vars", ()):
            message = f"`set_vars` of `{key.name}` in a parallel loop: iterations would overwrite each other"
            problems.error("set_vars_in_parallel_loop", message, key, "write it with set_iter")


def _check_policies(step: StepDraft, problems: Problems) -> None:
    for task in step.tasks:
        if task.policy and _error_may_pass(task.policy):
            message = f"an error of `{task.name}` that no rule matches passes as if nothing had happened"
            hint = "add { when: \"{{ outcome.status == 'error' }}\", then: { do: fail } } or on_unmatched: fail"
            problems.warn("unmatched_error", message, task.policy.at, hint)


def _error_may_pass(policy: PolicyDraft) -> bool:
    if policy.on_unmatched == "fail" or not policy.is_whole:
        return False
    return not any(rule.when is None or _takes_every_error(rule.when) for rule in policy.rules)


def _takes_every_error(when: Node) -> bool:
    value = when.plain()
    return value is True or (isinstance(value, str) and _ANY_ERROR.match(value.strip()) is not None)


def _check_failure_mode(step: StepDraft, problems: Problems) -> None:
    if step.loop is None and step.failure_mode == "best_effort" and step.failure_at is not None:
        message = "`failure.mode` of a step without a loop has no effect"
        hint = "route the failure with an arc, or set executor.spec.policy.failure.mode"
        problems.warn("no_effect", message, step.failure_at, hint)


def _check_in_flight(step: StepDraft, document: Document, problems: Problems) -> None:
    node, most = step.loop.max_in_flight if step.loop else None, document.limits.max_in_flight
    if isinstance(node, Scalar) and isinstance(node.value, int) and node.value > most:
        message = f"`max_in_flight` is {node.value}, limits.max_in_flight is {most}"
        problems.error("limit_exceeded", message, node, f"write {most} or less")


def _targets(steps: list[StepDraft]) -> dict[str, list[str]]:
    return {step.name: [arc.step for arc in step.arcs] for step in steps}


def _reach(start: str, targets: dict[str, list[str]]) -> set[str]:
    """``start`` and every step that a token can reach from it, guards ignored."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += targets.get(name, [])
    return found


def _warn_unreachable(document: Document, steps: list[StepDraft], problems: Problems) -> None:
    names = [step.name for step in steps]
    entry = document.entry_among(names)
    if entry is None or entry not in names:
        return
    reached = _reach(entry, _targets(steps))
    for step in steps:
        if step.name and step.name not in reached:
            message = f"no arc leads to the step `{step.name}` from the entry step `{entry}`"
            problems.warn("unreachable_step", message, step.at, "add an arc, or remove the step")


def _warn_competing_writes(steps: list[StepDraft], problems: Problems) -> None:
    """Steps after a fork that both set one key of ``ctx``: fold order decides (LANGUAGE §5)."""
    writes: dict[str, dict[str, Place]] = {}
    for step in steps:
        for rule in _rules(step):
            for key, _ in rule.writes.get("ctx", ()):
                writes.setdefault(step.name, {}).setdefault(key.name, key)
    if len(writes) < 2:
        return
    targets = _targets(steps)
    for fork in steps:
        if fork.routing != "inclusive":
            continue
        branches = [_reach(arc.step, targets) & writes.keys() for arc in fork.arcs]
        for index, branch in enumerate(branches):
            others: set[str] = set().union(*branches[index + 1 :])
            for one in sorted(branch):
                _warn_pairs(one, sorted(others - {one}), writes, problems)


def _warn_pairs(one: str, others: list[str], writes: dict[str, dict[str, Place]], problems: Problems) -> None:
    for other in others:
        for name in sorted(writes[one].keys() & writes[other].keys()):
            message = f"`{one}` and `{other}` may run together and both set `ctx.{name}`: the later one wins"
            later = max(writes[one][name], writes[other][name], key=lambda place: place.mark)
            problems.warn("competing_writes", message, later, "write different keys, or run them one after the other")


def _warn_templates(node: Node, problems: Problems) -> None:
    """Text in ``workload`` that looks like a template stays as it is (LANGUAGE §2 *What is rendered*)."""
    if isinstance(node, Scalar):
        if holds_template(node):
            message = "`workload` is never rendered, this template stays as it is"
            problems.warn("template_not_rendered", message, node, "put the template where the value is used")
        return
    for part in node.items if isinstance(node, Sequence) else node.values.values():
        _warn_templates(part, problems)
