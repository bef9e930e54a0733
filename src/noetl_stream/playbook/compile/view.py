"""The compiled form of a playbook, as text or JSON, and its names mapped to places in the file (v10 §15 *debug map*).

``playbook show --compiled`` has a ``line`` for every task; a generated task also has an ``origin``, the construct or
entry it was made from. Events, messages and that view use names that the file does not have: tasks generated from
constructs, rules by their number, iterations by their path, timers by their purpose. ``playbook explain`` lists each
with its line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, get_args

import msgspec
from msgspec.structs import asdict

from noetl_stream.model.aggregates.key_limits import shown_limit
from noetl_stream.model.events import Boundary
from noetl_stream.model.limits import DEFAULT_LIMITS, Limits
from noetl_stream.playbook.plan import (
    AdmitPlan,
    ArcPlan,
    EmitPlan,
    FailureMode,
    LimitPlan,
    LoopPlan,
    Plan,
    RulePlan,
    SharedPlan,
    StepPlan,
    TablePlan,
    TaskPlan,
    WaitPlan,
)
from noetl_stream.playbook.yaml.nodes import Mapping as MappingNode
from noetl_stream.playbook.yaml.nodes import Node, child
from noetl_stream.template import Guard, Template

_INDENT: Final = "  "
_SHOWN_APART: Final = frozenset(["name", "kind", "line", "origin", "policy"])
"""Keys of a task that are shown in its heading or below as rules."""


def compiled_view(plan: Plan) -> dict[str, Any]:
    """The plan as JSON, with templates as written. Empty values are left out."""
    ending = plan.compensation
    return _without_empty(
        **_plain(plan, ("name", "path", "version", "digest", "entry", "failure_mode", "timeout_s")),
        reference_first=plan.reference_first or None,
        priority=plan.priority,
        limits=_lowered_limits(plan.limits),
        concurrency=_limit(plan.concurrency),
        tracing=_sources(plan.tracing),
        labels=dict(plan.labels),
        result=_source(plan.result),
        workload=dict(plan.workload),
        workload_schema=None if plan.workload_schema is None else plan.workload_schema.content,
        keychain={name: {"kind": entry.kind, "line": entry.line} for name, entry in plan.keychain.items()},
        finally_step=plan.finally_step,
        compensation=ending and {"on": sorted(ending.on), "timeout_s": ending.timeout_s},
        quotas=None if plan.quotas is None else {**plan.quotas.amounts, "on_exceeded": plan.quotas.on_exceeded},
        steps=[_step(step, plan.failure_mode) for step in plan.every_step],
    )


def compiled_text(plan: Plan) -> str:
    """The plan as text, one line per task, rule and arc."""
    view = compiled_view(plan)
    names = (
        *("version", "failure_mode", "timeout_s", "priority", "limits", "concurrency", "result"),
        *("finally_step", "compensation", "quotas", "tracing"),
    )
    marks = {name: view.get(name) for name in names}
    steps = (line for step in view["steps"] for line in _step_lines(step, plan.entry))
    return "\n".join([f"playbook {plan.path}  {_values_text(marks)}", *steps]) + "\n"


def _without_empty(**values: Any) -> dict[str, Any]:
    """Drops ``None`` and empty values of a mapping; keeps false and zero."""
    return {name: value for name, value in values.items() if value is not None and value not in ("", [], {})}


def _plain(plan: object, names: Sequence[str]) -> dict[str, Any]:
    """The fields of a part of the plan that are JSON values."""
    return {name: getattr(plan, name) for name in names}


def _lowered_limits(limits: Limits) -> dict[str, Any]:
    usual = msgspec.structs.asdict(DEFAULT_LIMITS)
    return {name: value for name, value in msgspec.structs.asdict(limits).items() if value != usual[name]}


def _source(template: Template | Guard | None) -> Any:
    return None if template is None else template.source


def _step(step: StepPlan, usual: FailureMode) -> dict[str, Any]:
    return _without_empty(
        step=step.name,
        **_plain(step, ("line", "desc", "pool")),
        placement=None if step.placement is None else _without_empty(**asdict(step.placement)),
        join=step.join,
        timeout_s=_source(step.timeout_s),
        deadline_s=step.deadline_s,
        failure_mode=step.failure_mode if step.failure_mode != usual else None,
        admit=None if step.admit is None else _admit(step.admit),
        limit=_limit(step.limit),
        loop=None if step.loop is None else _loop(step.loop),
        tasks=[_task(task) for task in step.tasks],
        routing=step.routing if step.arcs else None,
        wait=_wait(step.next_wait),
        arcs=[_arc(arc) for arc in step.arcs],
        emits=[_emit(one) for one in step.emits],
        tracing=_sources(step.tracing),
    )


def _admit(admit: AdmitPlan) -> dict[str, Any]:
    rules = [
        {"when": _source(rule.guard), "allow": rule.allow, **_without_empty(token=_source(rule.value))}
        for rule in admit.rules
    ]
    mode = admit.mode if admit.mode != "exclusive" else None
    return _without_empty(mode=mode, rules=rules, wait=_wait(admit.wait))


def _limit(limit: LimitPlan | None) -> dict[str, Any] | None:
    if limit is None:
        return None
    return _without_empty(
        key=_source(limit.key),
        concurrency=limit.concurrency,
        rate=None if limit.rate is None else asdict(limit.rate),
        on_limit=limit.on_limit if limit.on_limit != "queue" else None,
    )


def _wait(wait: WaitPlan | None) -> dict[str, Any] | None:
    return None if wait is None else asdict(wait)


def _loop(loop: LoopPlan) -> dict[str, Any]:
    return _without_empty(
        **_plain(loop, ("iterator", "mode")),
        exec=loop.placement,
        failure_mode=loop.failure_mode,
        tolerated=None if loop.tolerated is None else str(loop.tolerated),
        max_in_flight=_source(loop.max_in_flight),
        loop=None if loop.inner is None else _loop(loop.inner),
    ) | {"in": _source(loop.items)}


def _task(task: TaskPlan) -> dict[str, Any]:
    policy = task.policy
    return _without_empty(
        **_plain(task, ("name", "kind", "line", "origin")),
        inputs={**(_source(task.inputs) or {}), **task.verbatim},
        knobs=dict(task.knobs),
        timeout=_without_empty(**asdict(task.timeouts) | (_source(task.timeout_template) or {})),
        schema=None if task.schema is None else task.schema.address or task.schema.content,
        table=None if task.table is None else _result_table(task.table),
        limit=_limit(task.limit),
        tracing=_sources(task.tracing),
        policy=policy and {"on_unmatched": policy.on_unmatched, "rules": [_rule(rule) for rule in policy.rules]},
    )


def _result_table(table: TablePlan) -> dict[str, Any]:
    return {"columns": [asdict(one) for one in table.columns], "tolerated": str(table.tolerated)}


def _rule(rule: RulePlan) -> dict[str, Any]:
    is_retry = rule.do == "retry"
    return _without_empty(
        when=_source(rule.guard),
        do=rule.do,
        to=rule.to,
        line=rule.line,
        attempts=_source(rule.attempts),
        backoff=rule.backoff if is_retry else None,
        delay=_source(rule.delay_s),
        max_delay=rule.max_delay_s if is_retry else None,
        set_ctx=_sources(rule.set_ctx),
        set_iter=_sources(rule.set_iter),
        set_vars=_sources(rule.set_vars),
        set_shared={name: _shared_view(shared) for name, shared in rule.set_shared.items()},
        set_label=_sources(rule.set_label),
    )


def _sources(templates: Mapping[str, Template]) -> dict[str, Any]:
    return {name: template.source for name, template in templates.items()}


def _shared_view(shared: SharedPlan) -> dict[str, Any]:
    return {"op": shared.op} if shared.value is None else {"op": shared.op, "value": shared.value.source}


def _arc(arc: ArcPlan) -> dict[str, Any]:
    spec = None
    if arc.spec is not None:
        keys = {"dedupe": _source(arc.spec.dedupe), "partition": _source(arc.spec.partition)}
        spec = _without_empty(priority=arc.spec.priority, **keys)
    return _without_empty(step=arc.step, when=_source(arc.guard), args=arc.args.source, spec=spec, line=arc.line)


def _emit(emit: EmitPlan) -> dict[str, Any]:
    on = [boundary for boundary in get_args(Boundary) if boundary in emit.on]
    return _without_empty(event=emit.event, on=on, when=_source(emit.guard), data=emit.value.source, line=emit.line)


def _step_lines(step: Mapping[str, Any], entry: str) -> Iterator[str]:
    marks = {name: step.get(name) for name in ("pool", "join", "timeout_s", "deadline_s", "failure_mode", "tracing")}
    if step.get("routing") == "inclusive":
        marks["routing"] = "inclusive"
    first = "  (entry)" if step["step"] == entry else ""
    yield f"step {step['step']}{first}  line {step['line']}  {_values_text(marks)}".rstrip()
    admit = step.get("admit", {})
    for rule in admit.get("rules", []):
        token = f"  token: {_brief(rule['token'])}" if "token" in rule else ""
        yield f"{_INDENT}admit {_condition(rule)}: {'allow' if rule['allow'] else 'deny'}{token}"
    if "mode" in admit:
        yield f"{_INDENT}admit {admit['mode']}"
    if "wait" in admit:
        yield f"{_INDENT}admit {_waits(admit['wait'])}"
    if "limit" in step:
        yield f"{_INDENT}limit {_values_text(step['limit'])}"
    loop = step.get("loop")
    while loop:
        outer = {name: value for name, value in loop.items() if name not in ("in", "iterator", "loop")}
        yield f"{_INDENT}loop {loop['iterator']} in {_brief(loop['in'])}  {_values_text(outer)}"
        loop = loop.get("loop")
    for task in step.get("tasks", []):
        yield from _task_lines(task)
    for arc in step.get("arcs", []):
        args = f"  args: {_brief(arc['args'])}" if "args" in arc else ""
        args += f"  spec: {_values_text(arc['spec'])}" if "spec" in arc else ""
        yield f"{_INDENT}arc {_condition(arc, 'always')}: {arc['step']}{args}  line {arc['line']}"
    if "wait" in step:
        yield f"{_INDENT}next {_waits(step['wait'])}"
    for one in step.get("emits", []):
        data = f"  data: {_brief(one['data'])}" if "data" in one else ""
        when = f"{', '.join(one['on'])}, {_condition(one, 'always')}"
        yield f"{_INDENT}emit on {when}: {one['event']}{data}  line {one['line']}"


def _waits(wait: Mapping[str, Any]) -> str:
    return f"waits {wait['timeout_s']:g} s, then: {wait['on_timeout']}"


def _task_lines(task: Mapping[str, Any]) -> Iterator[str]:
    origin = f"  from {task['origin']}" if "origin" in task else ""
    yield f"{_INDENT}task {task['name']}  {task['kind']}  line {task['line']}{origin}"
    for name, value in task.items():
        if name not in _SHOWN_APART:
            yield f"{_INDENT * 2}{name}: {_brief(value)}"
    policy = task.get("policy", {"rules": []})
    for rule in policy["rules"]:
        rest = {name: value for name, value in rule.items() if name not in ("when", "do", "to", "line")}
        to = f" {rule['to']}" if "to" in rule else ""
        yield f"{_INDENT * 2}{_condition(rule)}: {rule['do']}{to}  {_values_text(rest)}".rstrip()
    if policy.get("on_unmatched") == "fail":
        yield f"{_INDENT * 2}unmatched: fail"


def _condition(rule: Mapping[str, Any], without: str = "else") -> str:
    return f"when {rule['when']}" if rule.get("when") is not None else without


def _values_text(values: Mapping[str, Any]) -> str:
    return "  ".join(f"{name}: {_brief(value)}" for name, value in values.items() if value is not None)


def _brief(value: Any) -> str:
    return value if isinstance(value, str) and "\n" not in value else json.dumps(value, ensure_ascii=False)


What = Literal["step", "task", "rule", "admission", "iteration", "arc", "timer", "limit"]


class ExplainedName(NamedTuple):
    """A name in a compiled playbook.

    Attributes:
        name: The step, then the part inside it: ``start.fetch``, ``start.fetch.rules[0]``, ``start[*]``.
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
    for index, step in enumerate(plan.every_step):
        node = child(child(root, "workflow"), index)
        yield ExplainedName(step.name, "step", step.line, step.desc)
        yield from _server_names(step, node)
        for depth, level in enumerate(step.loop.levels() if step.loop else ()):
            name = f"{step.name}{'[*]' * (depth + 1)}"
            about = f"{level.iterator}, as iteration {'.'.join('n' * (depth + 1))}"
            yield ExplainedName(name, "iteration", _line(node, "loop", *["loop"] * depth), about)
        for task in step.tasks:
            yield from _task_names(step, task)
        for number, arc in enumerate(step.arcs):
            condition = "always" if arc.guard is None else str(arc.guard.source)
            does = "".join(f", {name}: {value}" for name, value in _arc(arc).get("spec", {}).items())
            yield ExplainedName(f"{step.name}.next.arcs[{number}]", "arc", arc.line, f"{condition} → {arc.step}{does}")


def _server_names(step: StepPlan, node: Node | None) -> Iterator[ExplainedName]:
    """The names of admission rules, and of the timers that the server sets for the step."""
    policy = ("spec", "policy")
    for number, rule in enumerate(step.admit.rules if step.admit else ()):
        condition = "else" if rule.guard is None else str(rule.guard.source)
        line = _line(node, *policy, "admit", "rules", number)
        token = "" if rule.value is None else f", adds {', '.join(rule.value.source)}"
        about = f"{condition} → {'allow' if rule.allow else 'deny'}{token}"
        yield ExplainedName(f"{step.name}.admit.rules[{number}]", "admission", line, about)
    admit_wait, lifecycle = step.admit and step.admit.wait, (*policy, "lifecycle")
    for bound, name, path, about in (
        (admit_wait, "admission", (*policy, "admit", "wait"), "end of admit.wait, for each held token"),
        (step.next_wait, "next", ("next", "spec", "wait"), "end of next.spec.wait, for each resting branch"),
        (step.timeout_s, "step", (*lifecycle, "timeout_s"), "timeout of the step run, from its first step.started"),
        (step.deadline_s, "deadline", (*lifecycle, "deadline_s"), "deadline of each token, from when it is enqueued"),
    ):
        if bound is not None:
            yield ExplainedName(f"{step.name}.{name}", "timer", _line(node, *path), about)
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


def _line(node: Node | None, *path: str | int) -> int:
    """The line of the key at ``path``, as far as the path exists."""
    line = node.mark.line if node is not None else 1
    for part in path:
        if isinstance(node, MappingNode) and part in node.keys:
            line = node.keys[str(part)].mark.line
        node = child(node, part)
        if node is None:
            break
        if isinstance(part, int):
            line = node.mark.line
    return line
