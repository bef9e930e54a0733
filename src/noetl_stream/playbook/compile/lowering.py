"""Lowers drafts to the plan, with templates bound at their place (LANGUAGE §2, §5).

The server reads the parts that :class:`Lowering` compiles, the worker those of :class:`PipelineLowering`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec.structs import replace

from noetl_stream.model.placement import Placement
from noetl_stream.playbook.check import bindings
from noetl_stream.playbook.check.bindings import Declarations, Visible
from noetl_stream.playbook.check.reads import FAILURE_KEYS, Expressions, union_of
from noetl_stream.playbook.check.step_graph import reach_of_joins
from noetl_stream.playbook.check.templates import EMPTY, NO_ARGS, batches_of, constant
from noetl_stream.playbook.kinds.keychain import SECRETS_KIND, secret_name
from noetl_stream.playbook.kinds.spec import GENERATED, KindSpec
from noetl_stream.playbook.model.document import ParsedPlaybook
from noetl_stream.playbook.model.ending import DEFAULT_COMPENSATION, FINALLY_DEADLINE_S
from noetl_stream.playbook.model.flow_control import ArcSpecDraft, LimitDraft
from noetl_stream.playbook.model.loop import LoopDraft
from noetl_stream.playbook.model.policy import ActionDraft, Write
from noetl_stream.playbook.model.step import StepDraft
from noetl_stream.playbook.model.task import TaskDraft
from noetl_stream.playbook.plan import (
    AdmitPlan,
    AdmitRule,
    ArcPlan,
    ArcSpecPlan,
    EmitPlan,
    LimitPlan,
    LoopPlan,
    Plan,
    PolicyPlan,
    ReadBy,
    Reads,
    RulePlan,
    SharedPlan,
    StepPlan,
    Steps,
    TaskPlan,
    compensation_of,
)
from noetl_stream.playbook.vocabulary.names import first_labels
from noetl_stream.playbook.yaml.nodes import Node, texts_of
from noetl_stream.template import Guard, Template, compile_text

DEFAULT_MAX_IN_FLIGHT: Final = 10
DEFAULT_DELAY_S: Final = 1.0

_SCOPE_NAMES: Final = ("workload", "ctx")
_REFLECTION: Final = re.compile(r"\b(?:globals|locals|vars|eval|exec|__builtins__|sys|inspect)\b")
"""Names by which code can reach variables without naming them."""


class Lowering(msgspec.Struct, frozen=True):
    """Compiles drafts to a plan and reports problems to the collector of ``expressions``."""

    document: ParsedPlaybook
    declared: Declarations
    expressions: Expressions

    def plan(self, digest: str, steps: list[StepDraft]) -> Plan:
        """Compiles the plan; meaningful only if no error was reported."""
        document = self.document
        result = None
        if document.result is not None:
            visible = self.declared.visible(bindings.RESULT, None)
            result = self.expressions.value(document.result, visible, on_server=True)
        ending = document.ending
        compensations = {step.name: self._step(step.compensation) for step in steps if step.compensation is not None}
        undoes = dict.fromkeys(compensations, True)
        if undoes or ending.compensation is not None:
            calling = (step.name for step in steps if step.calls_playbooks and step.name != ending.finally_step)
            undoes |= {name: False for name in calling if name not in undoes}
        plan = Plan(
            digest=digest,
            name=document.name,
            path=document.path,
            version=document.version,
            entry=document.entry_among([step.name for step in steps]) or "",
            steps=self._steps(steps, compensations),
            workload=document.workload,
            workload_schema=document.workload_schema,
            result=result,
            failure_mode=document.failure_mode,
            limits=document.limits,
            timeout_s=document.timeout_s,
            reference_first=document.reference_first,
            keychain=MappingProxyType(document.keychain),
            reaches=reach_of_joins(steps),
            labels=MappingProxyType(document.labels),
            label_templates=MappingProxyType(self._labels()),
            set_labels=frozenset(
                key.name
                for step in steps
                for one in step.pipelines
                for rule in one.rules
                for key, _ in rule.writes.get("label", ())
            ),
            priority=document.priority,
            concurrency=self._limit(document.concurrency, bindings.STARTING, None),
            undoes=MappingProxyType(undoes),
            compensation=(ending.compensation or DEFAULT_COMPENSATION) if undoes else None,
            finally_step=ending.finally_step,
            quotas=document.quotas,
            emits=any(step.emits for step in steps),
            tracing=self._attributes(document.tracing, bindings.STARTING, None),
            bundle=document.bundle,
        )
        by_tasks = any(task.tracing for step in plan.every_step for task in step.tasks)
        traces = bool(plan.tracing or any(step.tracing for step in steps) or by_tasks)
        self.expressions.warn_never_set()
        by_code = any(step.reads.execution for step in plan.every_step)
        read_by: ReadBy = "template" if self.expressions.read_execution else "code" if by_code else ""
        plan = replace(plan, reads_execution=read_by, traces=traces)
        return replace(plan, newer=_newer(plan))

    def _steps(self, steps: list[StepDraft], compensations: Mapping[str, StepPlan]) -> Steps:
        compiled = {step.name: self._step(step) for step in steps}
        last = self.document.ending.finally_step
        if last in compiled:
            deadline_s = compiled[last].deadline_s or FINALLY_DEADLINE_S
            compiled[last] = replace(compiled[last], failure_mode="best_effort", deadline_s=deadline_s)
        undoing = {
            name: replace(one, name=compensation_of(name), failure_mode="best_effort")
            for name, one in compensations.items()
        }
        return Steps(compiled, undoing)

    def _placement(self, step: StepDraft) -> Placement | None:
        """The placement of a step, by default the executor's; a pool named by one of them is the only one."""
        placement = (step.placement or self.document.placement) if step.tasks else None
        if placement is None:
            return None
        return replace(placement, pool=step.pool or (self.document.pool if self.document.names_pool else None))

    def _labels(self) -> dict[str, Template]:
        visible = self.declared.visible(bindings.STARTING, None)
        nodes = self.document.label_nodes
        return {name: self.expressions.value(node, visible, on_server=True) for name, node in nodes.items()}

    def _step(self, step: StepDraft) -> StepPlan:
        pipeline = PipelineLowering(self.declared, self.expressions, step)
        tasks = tuple(pipeline.task(task) for task in step.tasks)
        loop = self._loop(step.loop, step) if step.loop else None
        if step.query is not None and loop is not None:
            query = PipelineLowering(self.declared, self.expressions, step.query)
            tasks = (*(query.task(task) for task in step.query.tasks), *tasks)
            pipeline.add_reads(loop.max_in_flight)
            pipeline.add_pipeline(query)
        for inner in loop.levels()[1:] if loop else ():
            # Levels inside a local one start in the worker, so the command carries what their `in` reads.
            pipeline.add_reads(inner.items)
            pipeline.add_reads(inner.max_in_flight)
        return StepPlan(
            name=step.name,
            pool=step.pool or self.document.pool,
            placement=self._placement(step),
            line=step.at.mark.line,
            admit=self._admit(step),
            loop=loop,
            tasks=tasks,
            arcs=tuple(self._arcs(step)),
            emits=tuple(self._emits(step)),
            tracing=self._attributes(step.tracing, bindings.STARTED, step),
            routing=step.router.routing,
            next_wait=step.router.wait,
            failure_mode=(None if step.loop else step.failure.mode) or self.document.failure_mode,
            reads=pipeline.reads,
            desc=step.desc,
            join=step.join.tokens if step.join else None,
            timeout_s=None if step.timeout_s is None else self._step_timeout(step.timeout_s, step),
            deadline_s=step.deadline_s,
            schemas=frozenset(task.schema.address for task in tasks if task.schema and task.schema.address),
            limit=self._limit(step.limit, bindings.LOOP, step),
            has_limited_tasks=any(task.limit is not None for task in tasks),
            has_arc_specs=not all(arc.spec.is_empty for arc in step.arcs),
        )

    def _limit(self, draft: LimitDraft | None, names: frozenset[str], step: StepDraft | None) -> LimitPlan | None:
        if draft is None:
            return None
        # The key in a step is rendered once, before any iteration: it reads what `in` reads.
        visible = self.declared.visible(names, step, step.loop if step else None)
        key = EMPTY if draft.key is None else self.expressions.value(draft.key, visible, on_server=True)
        return LimitPlan(key, draft.concurrency, draft.rate, draft.on_limit)

    def _step_timeout(self, node: Node, step: StepDraft) -> Template:
        return self.expressions.value(node, self.declared.visible(bindings.STARTED, step, step.loop), on_server=True)

    def _admit(self, step: StepDraft) -> AdmitPlan | None:
        admit = step.admit
        if admit is None:
            return None
        visible = self.declared.visible(bindings.ADMISSION, step)
        rules = tuple(
            AdmitRule(
                self.expressions.guard(rule.when, visible),
                rule.allow,
                None if rule.token is None else self.expressions.value(rule.token, visible, on_server=True),
            )
            for rule in admit.rules
        )
        return AdmitPlan(rules, admit.wait, admit.mode, sets_token=bool(admit.token_keys))

    def _loop(self, loop: LoopDraft, step: StepDraft) -> LoopPlan:
        namespaces = bindings.LOOP if loop is step.loop else bindings.INNER_LOOP
        visible = self.declared.visible(namespaces, step, loop)
        limit = constant(1 if loop.mode == "sequential" else DEFAULT_MAX_IN_FLIGHT)
        if loop.max_in_flight is not None:
            written = self.expressions.value(loop.max_in_flight, visible, on_server=True)
            limit = written if loop.mode == "parallel" else limit
        mode = loop.failure.mode or step.failure.mode or "fail_fast"
        items = EMPTY
        if step.query is not None and loop.batch is not None:
            items = batches_of(step.query.tasks[0].name, loop.batch)
        elif loop.items is not None and not self.expressions.is_refused(loop.items):
            items = self.expressions.value(loop.items, visible, on_server=True)
            self.expressions.warn_of_items(items, loop.items, self.document.workload, visible)
        return LoopPlan(
            items=items,
            iterator=loop.iterator or "",
            mode=loop.mode,
            placement=loop.placement,
            failure_mode=mode,
            max_in_flight=limit,
            inner=self._loop(loop.inner, step) if loop.inner else None,
            tolerated=(loop.failure.tolerated or step.failure.tolerated) if mode == "best_effort" else None,
            batch=loop.batch,
        )

    def _arcs(self, step: StepDraft) -> Iterator[ArcPlan]:
        visible = self.declared.visible(bindings.ARC, step)
        keys: dict[int, Template] = {}  # those of `next.spec.policy` are the same node in each arc
        for node in (node for arc in step.arcs for node in arc.spec.keys.values()):
            if id(node) not in keys:
                keys[id(node)] = self.expressions.value(node, visible, on_server=True)
        for arc in step.arcs:
            guard = self.expressions.guard(arc.when, visible)
            reads = guard.reads if guard else frozenset()
            args = NO_ARGS if arc.args is None else self.expressions.value(arc.args, visible, on_server=True)
            yield ArcPlan(
                step=arc.step,
                guard=guard,
                args=args,
                handles_failure=any(name == "event" and (key is None or key in FAILURE_KEYS) for name, key in reads),
                line=arc.at.mark.line,
                spec=None if arc.spec.is_empty else _arc_spec(arc.spec, args, keys),
            )

    def _attributes(
        self, nodes: Mapping[str, Node], names: frozenset[str], step: StepDraft | None
    ) -> Mapping[str, Template]:
        if not nodes:
            return {}
        visible = self.declared.visible(names, step, step.loop if step else None)
        return {name: self.expressions.value(node, visible, on_server=True) for name, node in nodes.items()}

    def _emits(self, step: StepDraft) -> Iterator[EmitPlan]:
        visible = self.declared.visible(bindings.ARC, step) if step.emits else None
        for one in step.emits:
            assert visible is not None
            here = replace(visible, waits=False, emitted_on=one.on)
            yield EmitPlan(
                event=one.event,
                on=one.on,
                guard=self.expressions.guard(one.when, here),
                value=NO_ARGS if one.data is None else self.expressions.value(one.data, here, on_server=True),
                line=one.at.mark.line,
            )


class PipelineLowering:
    """Compiles the tasks of one step in order and collects their reads."""

    def __init__(self, declared: Declarations, expressions: Expressions, step: StepDraft) -> None:
        self._expressions: Final = expressions
        self._step: Final = step
        self._inputs = declared.visible(bindings.INPUTS, step)
        self._policy: Final = declared.visible(bindings.POLICY, step)
        self._declared: Final = declared
        self._sugar: Final = declared.visible(bindings.SUGAR, step)
        self._targets: Final = first_labels(task.name for task in step.tasks)
        self._read: Final[set[tuple[str, str | None]]] = set()
        self._opaque: Final = set(_namespaces_in_code(step))

    @property
    def reads(self) -> Reads:
        """The parts of the scope that a command of the step must carry for the tasks compiled so far."""
        return union_of(self._read, self._opaque)

    def add_reads(self, template: Template) -> None:
        """Adds the reads of another template that the worker renders."""
        self._read.update(template.reads)

    def add_pipeline(self, other: PipelineLowering) -> None:
        """Adds the reads of another pipeline of the step."""
        self._read.update(other._read)
        self._opaque.update(other._opaque)

    def task(self, task: TaskDraft) -> TaskPlan:
        self._expressions.check_schema(task)
        inputs = self._value(task.inputs, self._inputs, task.kind)
        verbatim = {name: node.plain() for name, node in task.verbatim.items()}
        if task.kind and task.kind.kind == SECRETS_KIND:
            readable = {*self._inputs.keychain, secret_name(task.name, verbatim)}
            self._inputs = replace(self._inputs, keychain=readable)
        rules = [self._rule(rule, task.kind) for rule in task.policy.rules] if task.policy else []
        return TaskPlan(
            name=task.name,
            kind=task.kind.kind if task.kind else "",
            inputs=inputs,
            line=task.at.mark.line,
            verbatim=verbatim,
            knobs=task.knobs,
            timeouts=task.timeouts,
            policy=PolicyPlan(tuple(rules), task.policy.on_unmatched) if task.policy else None,
            schema=task.schema,
            table=task.table,
            origin=task.origin,
            limit=self._limit(task.limit),
            timeout_template=None if task.timeout_templates is None else self._bound(task.timeout_templates),
            tracing={name: self._bound(node) for name, node in task.tracing.items()},
        )

    def _limit(self, draft: LimitDraft | None) -> LimitPlan | None:
        """Compiles the limit of a task. Its key is public and the same for all attempts, so it reads no secrets."""
        if draft is None:
            return None
        key = EMPTY if draft.key is None else self._value(draft.key, self._sugar)
        return LimitPlan(key, draft.concurrency, draft.rate)

    def _rule(self, rule: ActionDraft, kind: KindSpec | None) -> RulePlan:
        def values(writes: list[Write]) -> MappingProxyType[str, Template]:
            return MappingProxyType({key.name: self._value(node, self._policy, kind) for key, node in writes})

        shared = {
            one.key.name: SharedPlan(one.op, self._value(one.value, self._policy, kind) if one.value else None)
            for one in rule.shared
        }
        delay = constant(DEFAULT_DELAY_S) if rule.delay is None else self._value(rule.delay, self._policy, kind)
        return RulePlan(
            guard=self._guard(rule.when, kind),
            do=rule.do,
            line=rule.at.mark.line,
            attempts=None if rule.attempts is None else self._bound(rule.attempts),
            backoff=rule.backoff,
            delay_s=delay if rule.do == "retry" else None,
            max_delay_s=rule.max_delay_s,
            to=None if rule.to is None else self._targets.get(rule.to, rule.to),
            set_ctx=values(rule.writes.get("ctx", [])),
            set_iter=values(rule.writes.get("iter", [])),
            set_vars=values(rule.writes.get("vars", [])),
            set_shared=MappingProxyType(shared),
            set_label=values(rule.writes.get("label", [])),
        )

    @cached_property
    def _bounds(self) -> Visible:
        return self._declared.visible(bindings.BOUNDS, self._step)

    def _bound(self, node: Node) -> Template:
        return self._value(node, self._bounds)

    def _value(self, node: Node, visible: Visible, kind: KindSpec | None = None) -> Template:
        template = self._expressions.value(node, visible, kind)
        self._read.update(template.reads)
        return template

    def _guard(self, node: Node | None, kind: KindSpec | None) -> Guard | None:
        visible = self._sugar if kind is GENERATED else self._policy
        guard = self._expressions.guard(node, visible, kind)
        if guard:
            self._read.update(guard.reads)
        return guard


def _arc_spec(spec: ArcSpecDraft, args: Template, compiled: Mapping[int, Template]) -> ArcSpecPlan:
    keys = {name: compiled[id(node)] for name, node in spec.keys.items()}
    # One value of all parts, with their costs and needs; the parts have been checked.
    source = {"args": args.source, **{name: key.source for name, key in keys.items()}}
    value = compile_text(replace([args, *keys.values()][-1].text, source=source))
    assert isinstance(value, Template)
    return ArcSpecPlan(value, priority=spec.priority, **keys)


def _newer(plan: Plan) -> str:
    """The feature of a plan that servers of version 0.3 do not know; empty if there is none."""
    admissions = [step.admit for step in plan.steps.values() if step.admit is not None]
    has = {
        "loops over rows of a task": any(step.queries for step in plan.steps.values()),
        "has compensation or finally": plan.closes,
        "has quotas": plan.quotas is not None,
        "has a placement": plan.has_placement,
        "emits events": plan.emits,
        "names attributes of spans": plan.traces,
        "has an admission that is inclusive or adds metadata": any(
            admit.sets_token or admit.mode == "inclusive" for admit in admissions
        ),
        "has an arc with `spec`": any(step.has_arc_specs for step in plan.steps.values()),
        "has limits by key": plan.has_limits,
        "calls functions, which may send heartbeats": any(
            "function" in task.verbatim for step in plan.every_step for task in step.tasks
        ),
        "has a bundle": bool(plan.bundle),
        "reads `execution`": plan.reads_execution == "template",
    }
    return next((what for what, is_there in has.items() if is_there), "")


def _namespaces_in_code(step: StepDraft) -> Iterator[str]:
    """The namespaces of which the step's code may read any key, because it names them or uses reflection."""
    for task in step.tasks:
        if task.kind and task.kind.reads_scope:
            code = "\n".join(text for node in task.verbatim.values() for _, text in texts_of(node))
            reflects = _REFLECTION.search(code) is not None
            yield from (name for name in _SCOPE_NAMES if reflects or re.search(rf"\b{name}\b", code))
            if re.search(r"\bexecution\b", code):
                yield "execution"
