"""Maps compiled names back to the file: ``playbook explain`` (v10 §15 *debug map*).

Events, messages and the compiled view name what the file does not: tasks generated from constructs, rules by their
number, iterations by their path, timers by their purpose. Each name is listed with the line that it comes from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from noetl_stream.model.aggregates.key_limits import shown_limit
from noetl_stream.playbook.plan import LimitPlan, LoopPlan, Plan, StepPlan, TaskPlan
from noetl_stream.playbook.yaml.nodes import Mapping, Node, child

What = Literal["step", "task", "rule", "admission", "iteration", "arc", "timer", "limit"]


class ExplainedName(NamedTuple):
    """A name in a compiled playbook.

    Attributes:
        name: The step, then what is inside it: ``start.fetch``, ``start.fetch.rules[0]``, ``start[*]``.
        line: The line it comes from, from 1.
        about: The meaning of the name: the guard of a rule or arc, the kind of a task, the purpose of a timer, the
            key of a limit.
        origin: The construct that a generated name was made from.
    """

    name: str
    what: What
    line: int
    about: str = ""
    origin: str = ""


def explain_names(plan: Plan, root: Node) -> Iterator[ExplainedName]:
    """Every name of a plan, in the order of its steps.

    Args:
        root: The tree of the text that compiled to ``plan``.
    """
    if plan.timeout_s is not None:
        yield ExplainedName(
            "execution", "timer", _line(root, "executor", "spec", "timeout_s"), "timeout of the execution"
        )
    if plan.concurrency is not None:
        yield _limit_name("execution", _line(root, "executor", "spec", "policy", "concurrency"), plan.concurrency)
    for index, step in enumerate(plan.steps.values()):
        node = child(child(root, "workflow"), index)
        yield ExplainedName(step.name, "step", step.line, step.desc)
        yield from _server_names(step, node)
        for depth, level in enumerate(_levels(step.loop)):
            name = f"{step.name}{'[*]' * (depth + 1)}"
            about = f"{level.iterator}, as iteration {'.'.join('n' * (depth + 1))}"
            yield ExplainedName(name, "iteration", _line(node, "loop", *["loop"] * depth), about)
        for task in step.tasks:
            yield from _task_names(step, task)
        for number, arc in enumerate(step.arcs):
            condition = "always" if arc.guard is None else str(arc.guard.source)
            yield ExplainedName(f"{step.name}.next.arcs[{number}]", "arc", arc.line, f"{condition} → {arc.step}")


def _server_names(step: StepPlan, node: Node | None) -> Iterator[ExplainedName]:
    """The names of admission rules, and of the timers that the server sets for the step."""
    policy = ("spec", "policy")
    for number, rule in enumerate(step.admit.rules if step.admit else ()):
        condition = "else" if rule.guard is None else str(rule.guard.source)
        line = _line(node, *policy, "admit", "rules", number)
        about = f"{condition} → {'allow' if rule.allow else 'deny'}"
        yield ExplainedName(f"{step.name}.admit.rules[{number}]", "admission", line, about)
    if step.admit is not None and step.admit.wait is not None:
        line = _line(node, *policy, "admit", "wait")
        yield ExplainedName(f"{step.name}.admission", "timer", line, "end of admit.wait, for each held token")
    if step.next_wait is not None:
        line = _line(node, "next", "spec", "wait")
        yield ExplainedName(f"{step.name}.next", "timer", line, "end of next.spec.wait, for each resting branch")
    if step.timeout_s is not None:
        line = _line(node, *policy, "lifecycle", "timeout_s")
        yield ExplainedName(f"{step.name}.step", "timer", line, "timeout of the step run, from its first step.started")
    if step.deadline_s is not None:
        line = _line(node, *policy, "lifecycle", "deadline_s")
        yield ExplainedName(f"{step.name}.deadline", "timer", line, "deadline of each token, from when it is enqueued")
    if step.limit is not None:
        yield _limit_name(step.name, _line(node, *policy, "limit"), step.limit)


def _task_names(step: StepPlan, task: TaskPlan) -> Iterator[ExplainedName]:
    name = f"{step.name}.{task.name}"
    yield ExplainedName(name, "task", task.line, task.kind, task.origin)
    if task.limit is not None:
        yield _limit_name(name, task.line, task.limit)
    for number, rule in enumerate(task.policy.rules if task.policy else ()):
        condition = "else" if rule.guard is None else str(rule.guard.source)
        directive = rule.do if rule.to is None else f"{rule.do} to {rule.to}"
        yield ExplainedName(f"{name}.rules[{number}]", "rule", rule.line, f"{condition} → {directive}", task.origin)
    if task.kind in ("wait", "playbook"):
        yield ExplainedName(f"{name}.wait", "timer", task.line, "end of the wait", task.origin)


def _limit_name(name: str, line: int, limit: LimitPlan) -> ExplainedName:
    about = f"key {limit.key.source}: {shown_limit(limit.concurrency, limit.rate)}, {limit.on_limit}"
    return ExplainedName(f"{name}.limit", "limit", line, about)


def _levels(loop: LoopPlan | None) -> Iterator[LoopPlan]:
    while loop is not None:
        yield loop
        loop = loop.inner


def _line(node: Node | None, *path: str | int) -> int:
    """The line of the key at ``path``, as far as the path exists."""
    line = node.mark.line if node is not None else 1
    for part in path:
        if isinstance(node, Mapping) and part in node.keys:
            line = node.keys[str(part)].mark.line
        node = child(node, part)
        if node is None:
            break
        if isinstance(part, int):
            line = node.mark.line
    return line
