"""Steps as read: name, ``spec``, loop, tool and router (LANGUAGE §3, §6, §7; v10 §5)."""

from __future__ import annotations

from collections.abc import Mapping as MappingOf
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal

from noetl_stream.playbook.compile.layering import Layer, knobs_of, read_layered, warn_unused
from noetl_stream.playbook.diagnostics import Location, Problems, did_you_mean
from noetl_stream.playbook.kinds.spec import Kinds
from noetl_stream.playbook.model.document import PolicyFailure, check_pool
from noetl_stream.playbook.model.loop import LoopDraft, read_loop
from noetl_stream.playbook.model.policy import AdmitDraft, read_admit
from noetl_stream.playbook.model.sections import (
    Part,
    Placeholders,
    RejectedKey,
    Required,
    Reserved,
    Section,
    entries,
    is_null,
    pairs,
    read_section,
)
from noetl_stream.playbook.model.task import TaskDraft
from noetl_stream.playbook.model.timeouts import read_seconds
from noetl_stream.playbook.model.tool import read_tool
from noetl_stream.playbook.model.workbook import Workbook
from noetl_stream.playbook.plan import FailureMode, Join
from noetl_stream.playbook.vocabulary import legacy, misplaced
from noetl_stream.playbook.vocabulary.names import check_name, result_name
from noetl_stream.playbook.yaml.nodes import Mapping, Node, Scalar, Sequence, kind_of

Routing = Literal["exclusive", "inclusive"]

MERGED_ARGS: Final = ("by_step", "arrivals")
"""Names under which a join passes the merged args (LANGUAGE §7)."""

_JOINS: Final = "write join: all to wait for every token that can still arrive, any for the first, 2 for two"


class Step(Section):
    title = "a step"
    rejected: ClassVar[MappingOf[str, RejectedKey]] = legacy.STEP | misplaced.STEP

    step: Annotated[str, Required("- step: <name>")] = ""
    desc: str | None = None
    spec: Part = None
    loop: Part = None
    tool: Part = None
    next: Part = None


class StepSpec(Section):
    title = "a step's `spec`"
    rejected: ClassVar[MappingOf[str, RejectedKey]] = legacy.STEP_SPEC | misplaced.STEP_SPEC

    pool: str | None = None
    join: Part = None
    timeout: Part = None
    policy: Part = None


class StepPolicy(Placeholders):
    title = "a step's policy"
    rejected: ClassVar[MappingOf[str, RejectedKey]] = legacy.STEP_POLICY | legacy.CONTROL | misplaced.STEP_POLICY

    mode: Annotated[Any, Reserved(("exclusive",))] = None
    admit: Part = None
    lifecycle: Part = None
    failure: Part = None
    emit: Part = None


class Lifecycle(Section):
    title = "`lifecycle`"
    example = "write lifecycle: { timeout_s: 600 }"

    timeout_s: Part = None
    deadline_s: Part = None


class Emit(Section):
    title = "`emit`"

    events: Annotated[Any, Reserved()] = None


class Router(Section):
    title = "`next`"
    rejected: ClassVar[MappingOf[str, RejectedKey]] = legacy.NEXT

    spec: Part = None
    arcs: Annotated[Part, Required("next: { arcs: [ { step: … } ] }")] = None


class RouterSpec(Section):
    title = "`next.spec`"

    mode: Routing = "exclusive"
    policy: Annotated[Any, Reserved()] = None


class Arc(Section):
    title = "an arc"
    rejected: ClassVar[MappingOf[str, RejectedKey]] = legacy.ARC

    step: Annotated[str, Required("{ step: <name>, when: …, args: { … } }")] = ""
    when: Part = None
    args: Part = None
    spec: Annotated[Any, Reserved()] = None


@dataclass(frozen=True, slots=True)
class ArcDraft:
    """An arc as read. ``target`` is the node with the step's name."""

    step: str
    target: Node
    when: Node | None
    args: Mapping | None
    at: Node


@dataclass(frozen=True, slots=True)
class JoinDraft:
    """How many tokens a step waits for; ``at`` is the node that says so."""

    tokens: Join
    at: Node


@dataclass(frozen=True, slots=True)
class StepDraft:
    """A step as read."""

    name: str
    at: Location
    node: Mapping
    desc: str
    pool: str | None
    join: JoinDraft | None
    timeout_s: float | None
    deadline_s: float | None
    admit: AdmitDraft | None
    failure_mode: FailureMode | None
    failure_at: Location | None
    loop: LoopDraft | None
    tasks: list[TaskDraft]
    arcs: list[ArcDraft]
    routing: Routing

    @property
    def results(self) -> list[str]:
        """The result names of its tasks and constructs (LANGUAGE §12 *Sugar*)."""
        return list(dict.fromkeys(name for task in self.tasks if (name := result_name(task.name))))


def read_steps(
    node: Node | None, kinds: Kinds, workbook: Workbook, layer: Layer, problems: Problems
) -> list[StepDraft]:
    """The steps of the workflow in file order, including those with problems.

    Args:
        layer: The executor's defaults for all tasks.
    """
    if isinstance(node, Sequence) and not node.items:
        problems.error("invalid_value", "`workflow` has no steps", node, "workflow: [ { step: start, … } ]")
    items = [] if is_null(node) else entries(node, "`workflow`", problems, "workflow: [ { step: start, … } ]")
    drafts = [draft for item in items if (draft := _read_step(item, kinds, workbook, layer, problems))]
    warn_unused(layer, (task.kind for draft in drafts for task in draft.tasks), "this playbook", problems)
    seen: dict[str, StepDraft] = {}
    for draft in drafts:
        first = seen.setdefault(draft.name, draft)
        if first is not draft and draft.name:
            message = f"duplicate step `{draft.name}`, first on line {first.at.mark.line}"
            problems.error("duplicate_name", message, draft.at, "rename one: step names must be unique in a workflow")
    return drafts


def _read_step(node: Node, kinds: Kinds, workbook: Workbook, layer: Layer, problems: Problems) -> StepDraft | None:
    if not isinstance(node, Mapping):
        problems.error("wrong_type", f"a step must be a mapping, not {kind_of(node)}", node, "- step: <name>")
        return None
    step = read_section(node, Step, problems)
    at: Location = node.values["step"] if "step" in node.keys else node
    if isinstance(at, Scalar) and isinstance(at.value, str):
        check_name(at.value, "a step's name", at, problems)
    if "tool" not in node.keys and "next" not in node.keys:
        message = f"step `{step.step}` needs `tool`, `next` or both"
        problems.error("missing_key", message, at, "tool: { kind: noop }")
    knobs = knobs_of(kinds)
    spec, own = read_layered(step.spec, StepSpec, knobs, problems)
    if spec.pool is not None and isinstance(step.spec, Mapping):
        check_pool(spec.pool, step.spec.values["pool"], problems)
    policy = read_section(spec.policy, StepPolicy, problems)
    lifecycle = read_section(policy.lifecycle, Lifecycle, problems)
    read_section(policy.emit, Emit, problems)
    failure = read_section(policy.failure, PolicyFailure, problems)
    loop = read_loop(step.loop, node.keys["loop"], knobs, problems) if "loop" in node.keys else None
    if loop and "tool" not in node.keys:
        hint = "add the pipeline to run for each item"
        problems.error("missing_key", "a step with `loop` needs `tool`", node.keys["loop"], hint)
    for level in loop.levels() if loop else ():
        own = level.layer.over(own)
    tasks: list[TaskDraft] = []
    if step.tool is not None:
        tasks = read_tool(step.tool, step.step, kinds, workbook, own.over(layer), problems)
    warn_unused(own, (task.kind for task in tasks), "this step", problems)
    routing, arcs = _read_router(step.next, problems) if "next" in node.keys else ("exclusive", [])
    return StepDraft(
        name=step.step,
        at=at,
        node=node,
        desc=step.desc or "",
        pool=spec.pool,
        join=_read_join(spec.join, problems),
        timeout_s=read_seconds(lifecycle.timeout_s, "`timeout_s`", problems),
        deadline_s=read_seconds(lifecycle.deadline_s, "`deadline_s`", problems),
        admit=read_admit(policy.admit, problems),
        failure_mode=failure.mode,
        failure_at=policy.failure,
        loop=loop,
        tasks=tasks,
        arcs=arcs,
        routing=routing,
    )


def _read_join(node: Node | None, problems: Problems) -> JoinDraft | None:
    """``all``, ``any`` or a number of tokens. Not a template: joins are decided before any template is rendered."""
    if is_null(node):
        return None
    assert node is not None
    value = node.value if isinstance(node, Scalar) else None
    if value in ("all", "any"):
        return JoinDraft("all" if value == "all" else "any", node)
    if isinstance(value, int) and not isinstance(value, bool):
        if value >= 1:
            return JoinDraft(value, node)
        problems.error("invalid_value", f"`join` must be at least 1, not {value}", node, _JOINS)
        return None
    hint = (did_you_mean(value, ["all", "any"]) if isinstance(value, str) else None) or _JOINS
    shown = f"`{value}`" if isinstance(value, str | float) else kind_of(node)
    message = f"`join` must be `all`, `any` or a whole number of tokens, not {shown}"
    problems.error("invalid_value", message, node, hint)
    return None


def _read_router(node: Node, problems: Problems) -> tuple[Routing, list[ArcDraft]]:
    if not isinstance(node, Mapping):
        advice, shape = legacy.NEXT_SHAPE, kind_of(node)
        problems.error("next_shape", advice.message.format(shape=shape), node, _rewritten_next(node) or advice.hint)
        return "exclusive", []
    router = read_section(node, Router, problems)
    spec = read_section(router.spec, RouterSpec, problems)
    found = [] if is_null(router.arcs) else entries(router.arcs, "`arcs`", problems, "write arcs: [ { step: … } ]")
    return spec.mode, [arc for item in found if (arc := _read_arc(item, problems))]


def _read_arc(node: Node, problems: Problems) -> ArcDraft | None:
    if not isinstance(node, Mapping):
        hint = f"write {{ step: {node.value} }}" if isinstance(node, Scalar) else "write { step: … }"
        problems.error("wrong_type", f"an arc must be a mapping, not {kind_of(node)}", node, hint)
        return None
    arc = read_section(node, Arc, problems)
    if not is_null(arc.args):
        pairs(arc.args, "`args`", problems)
    args = arc.args if isinstance(arc.args, Mapping) else None
    if not arc.step:
        return None
    return ArcDraft(step=arc.step, target=node.values["step"], when=arc.when, args=args, at=node)


def _rewritten_next(node: Node) -> str | None:
    """The router equivalent to an older form of ``next``, where it is obvious."""
    if isinstance(node, Scalar) and isinstance(node.value, str):
        return f"write next: {{ arcs: [ {{ step: {node.value} }} ] }}"
    if not isinstance(node, Sequence):
        return None
    names = [_arc_name(item) for item in node.items]
    if not names or None in names:
        return None
    has_guards = any(isinstance(item, Mapping) and len(item.keys) > 1 for item in node.items)
    rest = ", …" if has_guards else ""
    return f"write next: {{ arcs: [ {', '.join(f'{{ step: {name}{rest} }}' for name in names)} ] }}"


def _arc_name(node: Node) -> str | None:
    inner = node.get("step") if isinstance(node, Mapping) else node
    return inner.value if isinstance(inner, Scalar) and isinstance(inner.value, str) else None
