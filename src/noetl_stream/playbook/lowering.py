"""Drafts → the plan: compiles every template with the names of its place and checks what it reads (LANGUAGE §2)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from noetl_stream.playbook import bindings
from noetl_stream.playbook.bindings import Declared, Visible
from noetl_stream.playbook.document import Document
from noetl_stream.playbook.kinds import KindSpec
from noetl_stream.playbook.nodes import Node, Scalar
from noetl_stream.playbook.plan import (
    AdmitRule,
    ArcPlan,
    LoopPlan,
    Plan,
    PolicyPlan,
    RulePlan,
    StepPlan,
    TaskPlan,
)
from noetl_stream.playbook.policy import ActionDraft, PolicyDraft, Write
from noetl_stream.playbook.readings import FAILURE_KEYS, ReadingChecks, union_of
from noetl_stream.playbook.step import ArcDraft, StepDraft
from noetl_stream.playbook.task import TaskDraft
from noetl_stream.playbook.templates import EMPTY, NO_ARGS, Templates, constant
from noetl_stream.playbook.timeouts import overlay
from noetl_stream.template import Guard, Template

DEFAULT_DELAY_S: Final = 1.0
DEFAULT_MAX_IN_FLIGHT: Final = 10

_SCOPE_NAMES: Final = ("workload", "ctx")
_REFLECTION: Final = re.compile(r"\b(?:globals|locals|vars|eval|exec|__builtins__|sys|inspect)\b")
"""Ways of code to its names without naming them."""

ReadKeys = set[tuple[str, str | None]]


@dataclass(frozen=True, slots=True)
class Lowering:
    """Compiles drafts. Problems go to the collector behind ``templates`` and ``checks``."""

    document: Document
    declared: Declared
    templates: Templates
    checks: ReadingChecks

    def plan(self, digest: str, steps: list[StepDraft]) -> Plan:
        """The whole plan; meaningful only when no error was reported."""
        document = self.document
        result = None
        if document.result is not None:
            result = self._server_template(document.result, self.declared.visible(bindings.RESULT, None), None)
        return Plan(
            digest=digest,
            name=document.name,
            path=document.path,
            version=document.version,
            entry=document.entry_among([step.name for step in steps]) or "",
            steps=MappingProxyType({step.name: self._step(step) for step in steps}),
            workload=document.workload,
            result=result,
            failure_mode=document.failure_mode,
            limits=document.limits,
        )

    def _step(self, step: StepDraft) -> StepPlan:
        reads: ReadKeys = set()
        tasks = tuple(self._task(task, step, reads) for task in step.tasks)
        return StepPlan(
            name=step.name,
            pool=step.pool or self.document.pool,
            line=step.at.mark.line,
            admit=self._admit(step),
            loop=self._loop(step),
            tasks=tasks,
            arcs=self._arcs(step),
            routing=step.routing,
            reads=union_of(reads, set(_opaque(step))),
            desc=step.desc,
        )

    def _admit(self, step: StepDraft) -> tuple[AdmitRule, ...] | None:
        if step.admit is None:
            return None
        visible = self.declared.visible(bindings.ADMISSION, step)
        return tuple(
            AdmitRule(None if rule.when is None else self._guard(rule.when, visible, step), rule.allow)
            for rule in step.admit
        )

    def _loop(self, step: StepDraft) -> LoopPlan | None:
        loop = step.loop
        if loop is None:
            return None
        visible = self.declared.visible(bindings.LOOP, step)
        limit = constant(1)
        if loop.max_in_flight is not None:
            limit = self._server_template(loop.max_in_flight, visible, step)
        elif loop.mode == "parallel":
            limit = constant(DEFAULT_MAX_IN_FLIGHT)
        return LoopPlan(
            items=self._server_template(loop.items, visible, step) if loop.items is not None else EMPTY,
            iterator=loop.iterator or "",
            mode=loop.mode,
            placement=loop.placement,
            failure_mode=loop.failure_mode or step.failure_mode or "fail_fast",
            max_in_flight=limit if loop.mode == "parallel" else constant(1),
        )

    def _arcs(self, step: StepDraft) -> tuple[ArcPlan, ...]:
        visible = self.declared.visible(bindings.ARC, step)
        return tuple(self._arc(arc, visible, step) for arc in step.arcs)

    def _arc(self, arc: ArcDraft, visible: Visible, step: StepDraft) -> ArcPlan:
        guard = self._guard(arc.when, visible, step) if arc.when is not None else None
        reads = guard.reads if guard else frozenset()
        return ArcPlan(
            step=arc.step,
            guard=guard,
            args=NO_ARGS if arc.args is None else self._server_template(arc.args, visible, step),
            handles_failure=any(name == "event" and (key is None or key in FAILURE_KEYS) for name, key in reads),
            line=arc.at.mark.line,
        )

    def _task(self, task: TaskDraft, step: StepDraft, reads: ReadKeys) -> TaskPlan:
        inputs = self.templates.template(task.inputs, self.declared.visible(bindings.INPUTS, step))
        self.checks.check(self.templates.readings(inputs.reads, task.inputs), step, task.kind)
        reads.update(inputs.reads)
        return TaskPlan(
            name=task.name,
            kind=task.kind.kind if task.kind else "",
            inputs=inputs,
            line=task.at.mark.line,
            verbatim={name: node.plain() for name, node in task.verbatim.items()},
            knobs=task.knobs,
            timeouts=overlay(overlay(self.document.timeouts, step.timeouts), task.timeouts),
            policy=self._policy(task.policy, task.kind, step, reads) if task.policy else None,
        )

    def _policy(self, policy: PolicyDraft, kind: KindSpec | None, step: StepDraft, reads: ReadKeys) -> PolicyPlan:
        visible = self.declared.visible(bindings.POLICY, step)
        rules = tuple(self._rule(rule, visible, kind, step, reads) for rule in policy.rules)
        return PolicyPlan(rules, policy.on_unmatched)

    def _rule(
        self, rule: ActionDraft, visible: Visible, kind: KindSpec | None, step: StepDraft, reads: ReadKeys
    ) -> RulePlan:
        def value(node: Node) -> Template:
            template = self.templates.template(node, visible)
            self.checks.check(self.templates.readings(template.reads, node), step, kind)
            reads.update(template.reads)
            return template

        def values(writes: list[Write]) -> MappingProxyType[str, Template]:
            return MappingProxyType({key.name: value(node) for key, node in writes})

        guard = None if rule.when is None else self._guard(rule.when, visible, step, kind)
        if guard:
            reads.update(guard.reads)
        delay = value(rule.delay) if rule.delay is not None else constant(DEFAULT_DELAY_S)
        return RulePlan(
            guard=guard,
            do=rule.do,
            line=rule.at.mark.line,
            attempts=rule.attempts,
            backoff=rule.backoff,
            delay_s=delay if rule.do == "retry" else None,
            max_delay_s=rule.max_delay_s,
            to=rule.to,
            set_ctx=values(rule.writes.get("ctx", [])),
            set_iter=values(rule.writes.get("iter", [])),
            set_vars=values(rule.writes.get("vars", [])),
        )

    def _guard(self, node: Node, visible: Visible, step: StepDraft, kind: KindSpec | None = None) -> Guard | None:
        guard = self.templates.guard(node, visible)
        if guard:
            self.checks.check(self.templates.readings(guard.reads, node), step, kind)
            self.checks.compare(guard, lambda space, key: self.templates.find(space, key, node), step)
        return guard

    def _server_template(self, node: Node, visible: Visible, step: StepDraft | None) -> Template:
        template = self.templates.template(node, visible, on_server=True)
        self.checks.check(self.templates.readings(template.reads, node), step)
        return template


def _opaque(step: StepDraft) -> Iterator[str]:
    """Namespaces that code of this step can see as a whole: code that names them may read any key."""
    for task in step.tasks:
        if task.kind and task.kind.reads_scope:
            texts = [node.value for node in task.verbatim.values() if isinstance(node, Scalar)]
            code = "\n".join(text for text in texts if isinstance(text, str))
            looks_around = _REFLECTION.search(code) is not None
            yield from (name for name in _SCOPE_NAMES if looks_around or re.search(rf"\b{name}\b", code))
