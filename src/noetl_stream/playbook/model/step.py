"""Steps as read: name, ``spec``, loop, pipeline and router (LANGUAGE §3, §6, §7, §12; v10 §5, §7)."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping as MappingOf
from typing import Annotated, Any, ClassVar, Final

import msgspec
from msgspec.structs import replace

from noetl_stream.model.placement import Placement
from noetl_stream.playbook.codes import Code
from noetl_stream.playbook.diagnostics import Location, Position, Problems
from noetl_stream.playbook.kinds.spec import PLAYBOOK, WORKBOOK, Kinds
from noetl_stream.playbook.model.document import check_pool
from noetl_stream.playbook.model.ending import StepCompensation
from noetl_stream.playbook.model.flow_control import (
    ArcSpec,
    ArcSpecDraft,
    LimitDraft,
    RouterPolicy,
    read_arc_spec,
    read_limit,
)
from noetl_stream.playbook.model.layering import (
    Layer,
    knobs_of,
    read_layered,
    read_rendered_seconds,
    read_seconds,
    warn_unused,
)
from noetl_stream.playbook.model.loop import FailureDraft, LoopDraft, read_failure, read_loop
from noetl_stream.playbook.model.observability import EmitDraft, read_emit, read_tracing
from noetl_stream.playbook.model.placement import read_placement
from noetl_stream.playbook.model.policy import ActionDraft, AdmitDraft, NextWait, always_holds, read_admit, read_wait
from noetl_stream.playbook.model.sections import (
    MAPPING,
    SECONDS,
    Part,
    Placeholders,
    Required,
    Reserved,
    Schema,
    Section,
    described,
    entries,
    is_empty,
    is_null,
    keys_of,
    list_of,
    mapping_with,
    number_or_template,
    or_empty,
    or_null,
    pairs,
    ref,
    report_wrong_type,
    section,
)
from noetl_stream.playbook.model.sugar import Item, flatten, read_construct, word_of
from noetl_stream.playbook.model.task import (
    TaskDraft,
    label_of_task,
    name_of_task,
    read_rows,
    read_task,
    unlabel,
    with_rules_of_eval,
)
from noetl_stream.playbook.model.workbook import Workbook
from noetl_stream.playbook.plan import Join, Routing, WaitPlan
from noetl_stream.playbook.suggestions import did_you_mean, list_names
from noetl_stream.playbook.vocabulary import advice, hints
from noetl_stream.playbook.vocabulary.names import check_name, name_in_file, report_duplicate, result_name
from noetl_stream.playbook.yaml.nodes import Mapping, MappingKey, Node, Scalar, Sequence, child, kind_of

MERGED_ARGS: Final = ("by_step", "arrivals")
"""Names under which a join passes the merged args (LANGUAGE §7)."""

_JOINS: Final = "write join: all to wait for every token that can still arrive, any for the first, 2 for two"


class Step(Section):
    title = "a step"
    rejected = advice.STEP
    schema_rules: ClassVar[Schema] = {
        "anyOf": [{"required": ["tool"]}, {"required": ["next"]}],
        "dependentRequired": {"loop": ["tool"]},
        "if": mapping_with("spec", mapping_with("policy", mapping_with("limit", {"type": "object"}))),
        "then": {"required": ["tool"]},
    }

    step: Annotated[str, Required("- step: <name>")] = described(
        "The name of the step, unique in the playbook.", ref("name"), default=""
    )
    desc: str | None = described("What it does, for people.")
    spec: Part = described("How the step runs: pool, join, timeouts, policies.", section("StepSpec"))
    loop: Part = described("Runs the tasks once for each item.", ref("Loop"))
    tool: Part = described(
        "A task, or a list of tasks that run in order. A step without one only routes.",
        {"anyOf": [ref("entry"), ref("tasks")]},
    )
    next: Part = described("Where tokens go when the step has ended.", ref("Router"))


class StepSpec(Section):
    title = "a step's `spec`"
    rejected = advice.STEP_SPEC

    pool: str | None = described("The pool whose workers run this step.", or_null(ref("pool")))
    placement: Part = described("The labels of the pool whose workers run this step.", or_empty(ref("PlacementLabels")))
    resources: Part = described("What each worker of that pool must have at least.", or_empty(ref("Resources")))
    join: Part = described(
        "Waits for the tokens of other branches: all that can come, the first, or so many.",
        {"anyOf": [{"enum": ["all", "any", None]}, {"type": "integer", "minimum": 1}]},
    )
    timeout: Part = described("The timeouts of the tasks of this step.", ref("timeout"))
    policy: Part = described("Admission, lifecycle and failures of the step.", section("StepPolicy"))


class StepPolicy(Placeholders):
    title = "a step's policy"
    rejected = advice.STEP_POLICY

    mode: Annotated[Any, Reserved(("exclusive",))] = None
    admit: Part = described("Decides whether a token may enter; one that may not is held.", section("Admit"))
    lifecycle: Part = described("How long a run of the step may take.", section("Lifecycle"))
    failure: Part = described("What failed iterations do to the loop.", section("LoopFailure"))
    limit: Part = described("How many runs of this step, and how often, with the same key.", section("KeyLimit"))
    compensation: Part = described("What undoes a run of this step.", or_empty(ref("StepCompensation")))
    emit: Part = described("Events of its own that the step emits.", section("Emit"))
    tracing: Part = described("Attributes of the spans of its runs.", or_empty(ref("SpanAttributes")))


class Lifecycle(Section):
    title = "`lifecycle`"
    example = "write lifecycle: { timeout_s: 600 }"

    timeout_s: Part = described(
        "Seconds from the first start of the step, everything in it included.", number_or_template(or_null(SECONDS))
    )
    deadline_s: Part = described("Seconds from the arrival of its token.", or_null(SECONDS))


class Router(Section):
    title = "`next`"
    rejected = advice.NEXT

    spec: Part = described("How arcs are chosen.", section("RouterSpec"))
    arcs: Annotated[Part, Required("next: { arcs: [ { step: … } ] }")] = described(
        "The steps that may follow, each with its condition.", list_of(ref("Arc"))
    )


class RouterSpec(Section):
    title = "`next.spec`"

    mode: Routing = described(
        "`exclusive`: the first arc whose guard holds fires. `inclusive`: all of them.", default="exclusive"
    )
    wait: Part = described("Rests until a guard holds, when none does yet.", section("NextWait"))
    policy: Part = described("What holds for all arcs that do not say otherwise.", or_empty(ref("RouterPolicy")))


class Arc(Section):
    title = "an arc"
    rejected = advice.ARC

    step: Annotated[str, Required("{ step: <name>, when: …, args: { … } }")] = described(
        "The step that gets a token.", default=""
    )
    when: Part = described(
        "The condition: an expression over `event`, `ctx`, `workload` and results. Without one, always.", ref("guard")
    )
    args: Part = described("What the step gets as `args`.", MAPPING)
    spec: Part = described("Which tokens it sends, and how.", or_empty(ref("ArcSpec")))


class ArcDraft(msgspec.Struct, frozen=True):
    """An arc as read. ``target`` is the node with the step's name."""

    step: str
    target: Node
    when: Node | None
    args: Mapping | None
    at: Node
    spec: ArcSpecDraft = ArcSpecDraft()


class RouterDraft(msgspec.Struct, frozen=True):
    """The router ``next`` of a step as read."""

    arcs: list[ArcDraft] = msgspec.field(default_factory=list)
    routing: Routing = "exclusive"
    wait: WaitPlan | None = None


class JoinDraft(msgspec.Struct, frozen=True):
    """A join as read: the number of tokens a step waits for; ``at`` is its node."""

    tokens: Join
    at: Node


class StepDraft(msgspec.Struct, frozen=True):
    name: str
    at: Location
    pool: str | None
    tasks: list[TaskDraft]
    desc: str = ""
    join: JoinDraft | None = None
    timeout_s: Node | None = None
    deadline_s: float | None = None
    admit: AdmitDraft | None = None
    failure: FailureDraft = FailureDraft()
    loop: LoopDraft | None = None
    router: RouterDraft = RouterDraft()
    limit: LimitDraft | None = None
    compensation: StepDraft | None = None
    query: StepDraft | None = None
    placement: Placement | None = None
    emits: list[EmitDraft] = msgspec.field(default_factory=list)
    tracing: MappingOf[str, Node] = {}

    @property
    def pipelines(self) -> tuple[StepDraft, ...]:
        """The step, and what makes the rows of its loop and its compensation as steps of the same name, if it has
        them.
        """
        return (self, *(one for one in (self.query, self.compensation) if one is not None))

    @property
    def calls_playbooks(self) -> bool:
        return any(task.kind is PLAYBOOK for task in self.tasks)

    @property
    def arcs(self) -> list[ArcDraft]:
        return self.router.arcs

    @property
    def forks(self) -> bool:
        """Whether several arcs may fire at once."""
        return self.router.routing == "inclusive" and len(self.arcs) > 1

    @property
    def levels(self) -> list[LoopDraft]:
        """The levels of the step's loop, outermost first."""
        return self.loop.levels() if self.loop else []

    @property
    def rules(self) -> list[ActionDraft]:
        """All rules of the policies of the step's tasks."""
        return [rule for task in self.tasks if task.policy for rule in task.policy.rules]

    @property
    def results(self) -> list[str]:
        """The result names of the step's tasks and constructs (LANGUAGE §12 *Sugar*)."""
        return list(dict.fromkeys(name for task in self.tasks if (name := result_name(task.name))))


def read_steps(
    node: Node | None, kinds: Kinds, workbook: Workbook, layer: Layer, problems: Problems
) -> list[StepDraft]:
    """Reads the steps of the workflow in file order, including those with problems.

    Args:
        layer: The executor's defaults for all tasks.
    """
    if isinstance(node, Sequence) and not node.items:
        problems.error("invalid_value", "`workflow` has no steps", node, "workflow: [ { step: start, … } ]")
    is_one = isinstance(node, Mapping) and "step" in node.keys
    named = ", ".join(f"{{ step: {name}, … }}" for name in list(node.keys)[:3]) if isinstance(node, Mapping) else ""
    listed = f"workflow: [ {named or '{ step: start, … }'} ]"
    hint = "put `- ` before `step`: a workflow is a list" if is_one else f"write the names as `step`: {listed}"
    items = [] if is_null(node) else entries(node, "`workflow`", problems, hint)
    drafts = [draft for item in items if (draft := _read_step(item, kinds, workbook, layer, problems))]
    pipelines = [pipeline for draft in drafts for pipeline in draft.pipelines]
    warn_unused(layer, (task.kind for draft in pipelines for task in draft.tasks), "this playbook", problems)
    seen: dict[str, StepDraft] = {}
    for draft in drafts:
        first = seen.setdefault(draft.name, draft)
        if first is not draft and draft.name:
            rule = "step names must be unique in a workflow"
            report_duplicate(f"step `{draft.name}`", first.at.mark.line, draft.at, rule, problems)
    return drafts


def _read_step(node: Node, kinds: Kinds, workbook: Workbook, layer: Layer, problems: Problems) -> StepDraft | None:
    if not isinstance(node, Mapping):
        report_wrong_type(node, Step.title, "a mapping", problems, "- step: <name>")
        return None
    node = Step.recover(_with_tool(_with_eval_in_tool(node, problems), kinds, problems), problems)
    step = Step.from_node(node, problems)
    at: Location = node.values["step"] if "step" in node.keys else node
    if isinstance(at, Scalar) and isinstance(at.value, str):
        check_name(at.value, "a step's name", at, problems)
    if "tool" not in node.keys and "next" not in node.keys and node.keys.keys() <= set(keys_of(Step)):
        message = (
            f"step `{step.step}` needs `tool`, `next` or both" if step.step else "a step needs `tool`, `next` or both"
        )
        problems.error("missing_key", message, at, "tool: { kind: noop }")
    knobs = knobs_of(kinds)
    step_spec, spec, own = read_layered(step.spec, StepSpec, knobs, problems)
    check_pool(spec.pool, step_spec, problems)
    policy = StepPolicy.from_node(spec.policy, problems)
    lifecycle = Lifecycle.from_node(policy.lifecycle, problems)
    loop = read_loop(step.loop, node.keys["loop"], knobs, problems) if "loop" in node.keys else None
    if loop and "tool" not in node.keys:
        hint = "add the pipeline to run for each item"
        problems.error("missing_key", "a step with `loop` needs `tool`", node.keys["loop"], hint)
    for level in loop.levels() if loop else []:
        own = level.layer.merge_over(own)
    tool = _Tool(kinds, workbook, own.merge_over(layer), problems)
    tasks = tool.read(step.tool, step.step)
    placement = _read_placement(spec, step, problems)
    compensation = _read_compensation(policy.compensation, step, tool)
    if compensation is not None:
        compensation = replace(compensation, pool=spec.pool, placement=placement)
    query = None
    if loop is not None and loop.rows is not None:
        query = StepDraft(step.step, loop.rows, pool=None, tasks=[read_rows(loop.rows, kinds, tool.layer, problems)])
        _check_unique([*query.tasks, *tasks], problems)
    every = [task for pipeline in (query, compensation) if pipeline for task in pipeline.tasks] + tasks
    warn_unused(own, (task.kind for task in every), "this step", problems)
    return StepDraft(
        name=step.step,
        at=at,
        desc=step.desc or "",
        pool=spec.pool,
        placement=placement,
        join=_read_join(spec.join, problems),
        timeout_s=read_rendered_seconds(lifecycle.timeout_s, "`timeout_s`", problems),
        deadline_s=read_seconds(lifecycle.deadline_s, "`deadline_s`", problems),
        admit=read_admit(policy.admit, problems),
        failure=read_failure(policy.failure, problems),
        loop=loop,
        tasks=tasks,
        router=_read_router(step.next, problems) if "next" in node.keys else RouterDraft(),
        limit=_read_step_limit(policy.limit, node, problems),
        compensation=compensation,
        query=query,
        emits=read_emit(policy.emit, problems),
        tracing=read_tracing(policy.tracing, problems),
    )


def _read_placement(spec: StepSpec, step: Step, problems: Problems) -> Placement | None:
    placement = read_placement(spec.placement, spec.resources, problems)
    for name, node in (("placement", spec.placement), ("resources", spec.resources)):
        if step.tool is None and node is not None and not is_empty(node):
            message = f"`{name}` has no effect: no worker runs a step without `tool`"
            problems.warn("no_effect", message, node, "remove it")
    return placement


def _read_compensation(node: Node | None, step: Step, tool: _Tool) -> StepDraft | None:
    """Reads the compensation of a step, if it has one, as a step of the same name."""
    if node is None or is_empty(node):
        return None
    problems = tool.problems
    if isinstance(node, Mapping) and "kind" in node.keys and "tool" not in node.keys:
        hint = f"write compensation: {{ tool: {hints.shown_value(node.plain())} }}"
        problems.error("misplaced_key", "`kind` belongs under `tool`", node.keys["kind"], hint)
        key = MappingKey("tool", node.mark, node.pointer)
        node = Mapping(node.mark, node.pointer, {"tool": key}, {"tool": node})
    section = StepCompensation.from_node(node, problems)
    if step.tool is None:
        message = "`compensation` has no effect: a step without `tool` does nothing that could be undone"
        problems.error("no_effect", message, node, "put it on the step that does the work")
    return StepDraft(step.step, node, pool=None, tasks=tool.read(section.tool, step.step))


def _read_step_limit(limit: Node | None, step: Mapping, problems: Problems) -> LimitDraft | None:
    if limit is not None and not is_null(limit) and "tool" not in step.keys:
        message = "`limit` has no effect: a step without `tool` runs nothing"
        problems.error("no_effect", message, limit, "put it on the step that does the work")
    return read_limit(limit, problems)


def _with_eval_in_tool(node: Mapping, problems: Problems) -> Mapping:
    """Moves the ``eval`` of a step into the policy of its only task, after reporting it."""
    older = node.get("eval")
    if older is None or not older.plain() or not isinstance(node.get("tool"), Mapping):
        return node
    moved = with_rules_of_eval(node).move("eval", ("tool", "spec", "policy", "rules"))
    if moved is None:
        return node
    advice.STEP["eval"].report(node.keys["eval"], node, problems)
    return moved


def _with_tool(node: Mapping, kinds: Kinds, problems: Problems) -> Mapping:
    """Moves the keys of a task beside its kind into ``tool``, and a loop out of it, after reporting them."""
    tool = node.get("tool")
    if isinstance(tool, Mapping) and "loop" in tool.keys and "loop" not in node.keys:
        advice.TASK["loop"].report(tool.keys["loop"], tool, problems)
        outer = replace(node, values={**node.values, "tool": tool.drop_keys({"loop"})})
        return outer.with_value(("loop",), tool.keys["loop"], tool.values["loop"]) or node
    kind = node.get("kind") if tool is None else tool
    if not isinstance(kind, Scalar) or kind.value not in kinds:
        return node
    placed = {name for name, key in advice.STEP.items() if key.place}
    others = [name for name in node.keys if name != "kind" and name not in {*keys_of(Step), *placed}]
    inner = Mapping(kind.mark, kind.pointer, {"kind": MappingKey("kind", kind.mark, kind.pointer)}, {"kind": kind})
    inner = replace(
        inner,
        keys={**inner.keys, **{name: node.keys[name] for name in others}},
        values={**inner.values, **{name: node.values[name] for name in others}},
    )
    at = node.keys["kind"] if tool is None else kind
    if others or tool is None:
        shown = ", ".join(f"{name}: {hints.shown_value(value.plain())}" for name, value in inner.values.items())
        message = "`kind` belongs under `tool`" if tool is None else "`tool` must be a task, not the name of its kind"
        moved_keys = list_names(["kind" if tool is None else "tool", *others])
        where = f"in place of {moved_keys}, " if others else ""
        problems.error("legacy_syntax", message, at, f"{where}write tool: {{ {shown} }}")
        moved = node.drop_keys({"kind", "tool", *others}).with_value(("tool",), MappingKey("tool", *_place(at)), inner)
        return moved or node
    return node


def _place(at: Location) -> tuple[Position, str]:
    return at.mark, at.pointer


def _read_join(node: Node | None, problems: Problems) -> JoinDraft | None:
    """Reads a join: ``all``, ``any`` or a number of tokens, never a template: joins are decided before rendering."""
    if node is None or is_null(node):
        return None
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


def _read_router(node: Node, problems: Problems) -> RouterDraft:
    if not isinstance(node, Mapping):
        message = f"`next` must be a mapping, not {kind_of(node)}"
        problems.error("next_shape", message, node, _rewrite_next(node) or advice.NEXT_HINT)
        return RouterDraft([arc for item in _targets_in(node) if (arc := _read_arc(item, ArcSpecDraft(), problems))])
    node = _with_arcs(node, problems)
    router = Router.from_node(node, problems)
    spec = RouterSpec.from_node(router.spec, problems)
    found = [] if is_null(router.arcs) else entries(router.arcs, "`arcs`", problems, "write arcs: [ { step: … } ]")
    usual = read_arc_spec(spec.policy, RouterPolicy, problems)
    arcs = [arc for item in found if (arc := _read_arc(item, usual, problems))]
    if not is_null(spec.wait) and len(arcs) == len(found) and (not arcs or any(always_holds(arc.when) for arc in arcs)):
        why = "an arc always fires" if arcs else "there are no arcs"
        hint = "remove it, or give every arc a `when`: a branch rests only while no arc fires"
        problems.warn("no_effect", f"`wait` has no effect: {why}", spec.wait, hint)
    return RouterDraft(arcs, spec.mode, read_wait(spec.wait, NextWait, problems))


def _with_arcs(node: Mapping, problems: Problems) -> Mapping:
    """Moves the keys of an arc in ``next``, or a name in place of arcs, into a list of arcs."""
    arcs = node.get("arcs")
    arc = node.select_keys({"step", "when", "args"})
    if "step" in arc.keys and arcs is None:
        shown = hints.shown_value(arc.plain())
        problems.error("legacy_syntax", "`step` belongs in an arc", node.keys["step"], f"write arcs: [ {shown} ]")
        listed, key = Sequence([arc], node.mark, node.pointer), node.keys["step"]
        return node.drop_keys(set(arc.keys)).with_value(("arcs",), key, listed) or node
    if isinstance(arcs, Scalar) and isinstance(arcs.value, str):
        hint = f"write arcs: [ {{ step: {arcs.value} }} ]"
        problems.error("wrong_type", "`arcs` must be a list, not text", arcs, hint)
        return replace(node, values={**node.values, "arcs": Sequence(list(_targets_in(arcs)), arcs.mark, arcs.pointer)})
    return node


def _read_arc(node: Node, usual: ArcSpecDraft, problems: Problems) -> ArcDraft | None:
    if not isinstance(node, Mapping):
        hint = f"write {{ step: {node.value} }}" if isinstance(node, Scalar) else "write { step: … }"
        report_wrong_type(node, Arc.title, "a mapping", problems, hint)
        return None
    node = Arc.recover(node, problems)
    arc = Arc.from_node(node, problems)
    if not is_null(arc.args):
        pairs(arc.args, "`args`", problems)
    args = arc.args if isinstance(arc.args, Mapping) else None
    spec = read_arc_spec(arc.spec, ArcSpec, problems).over(usual)
    if not arc.step:
        return None
    return ArcDraft(step=arc.step, target=node.values["step"], when=arc.when, args=args, at=node, spec=spec)


def _targets_in(node: Node) -> Iterator[Mapping]:
    """The arcs of ``next`` in the older form of a list or a name."""
    for item in node.items if isinstance(node, Sequence) else [node]:
        if isinstance(item, Scalar) and isinstance(item.value, str):
            key = MappingKey("step", item.mark, item.pointer)
            yield Mapping(item.mark, item.pointer, {"step": key}, {"step": item})
        elif isinstance(item, Mapping) and "step" in item.keys:
            yield item


def _rewrite_next(node: Node) -> str | None:
    """The router equivalent to an older form of ``next``, where it is obvious."""
    if isinstance(node, Scalar) and isinstance(node.value, str):
        return f"write next: {{ arcs: [ {{ step: {node.value} }} ] }}"
    if not isinstance(node, Sequence):
        return None
    targets = [child(item, "step") if isinstance(item, Mapping) else item for item in node.items]
    names = [item.value for item in targets if isinstance(item, Scalar) and isinstance(item.value, str)]
    if not names or len(names) < len(targets):
        return None
    has_guards = any(isinstance(item, Mapping) and len(item.keys) > 1 for item in node.items)
    rest = ", …" if has_guards else ""
    return f"write next: {{ arcs: [ {', '.join(f'{{ step: {name}{rest} }}' for name in names)} ] }}"


class _Tool(msgspec.Struct, frozen=True):
    """Reads the pipelines of a step, at any depth of constructs. ``layer`` has the defaults of the outer scopes."""

    kinds: Kinds
    workbook: Workbook
    layer: Layer
    problems: Problems

    def read(self, node: Node | None, step: str) -> list[TaskDraft]:
        """Reads a pipeline of a step, in order; none without one."""
        if node is None:
            return []
        if isinstance(node, Scalar):
            code: Code = "legacy_syntax" if isinstance(node.value, str) else "wrong_type"
            message = f"`tool` must be a task or a list of tasks, not {kind_of(node)}"
            self.problems.error(code, message, node, "write tool: { kind: …, … }")
            return []
        if isinstance(node, Mapping):
            if (label := label_of_task(node)) is not None:
                hint = f"write tool: [ {{ {label.name}: {{ kind: …, … }} }} ]"
                self.problems.error("label_keyed_task", "a task under its label needs a list", label, hint)
            tasks = flatten([self.item(node, f"{step}_task")])
        else:
            if not node.items:
                hint = "add a task, or remove `tool` from a step that only routes"
                self.problems.error("invalid_value", "`tool` has no tasks", node, hint)
            tasks = flatten([self.item(item, f"task_{index}") for index, item in enumerate(node.items)])
        _check_unique(tasks, self.problems)
        return tasks

    def item(self, node: Node, synthetic: str) -> Item:
        if not isinstance(node, Mapping):
            report_wrong_type(node, "a task", "a mapping", self.problems, "write { kind: …, … }")
            self.problems.mark_unreadable(node.pointer)
            node = Mapping(node.mark, node.pointer)
        node = unlabel(node, self.problems)
        word = word_of(node)
        if word is not None:
            name = name_of_task(node, synthetic, self.problems)
            return read_construct(node, word, name, self.body, self.problems)
        task = read_task(node, synthetic, self.kinds, self.layer, self.problems)
        called = self.workbook.find_called(node, task.name, self.problems) if task.kind is WORKBOOK else None
        if called is None:
            return task
        node, origin = called
        return replace(read_task(node, task.name, self.kinds, self.layer, self.problems), at=task.at, origin=origin)

    def body(self, node: Node | None, what: str, prefix: str) -> list[Item]:
        """Reads the tasks of a branch or body."""
        if isinstance(node, Sequence) and not node.items:
            self.problems.error("invalid_value", f"{what} has no tasks", node, "write [ { kind: …, … } ]")
        items = entries(node, what, self.problems)
        return [self.item(item, f"{prefix}task_{index}") for index, item in enumerate(items)]


def _check_unique(tasks: list[TaskDraft], problems: Problems) -> None:
    seen: dict[str, Location] = {}
    for task in tasks:
        name = name_in_file(task.name)
        if name is None:
            continue
        if name in seen:
            rule = "task names must be unique in a step"
            report_duplicate(f"task `{name}`", seen[name].mark.line, task.at, rule, problems)
        seen.setdefault(name, task.at)
