"""Lowers drafts to the plan: the parts that the worker reads, tasks and their policies (LANGUAGE §2, §5)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from noetl_stream.playbook.check import bindings
from noetl_stream.playbook.check.bindings import Declarations
from noetl_stream.playbook.check.reads import Expressions, union_of
from noetl_stream.playbook.check.templates import constant
from noetl_stream.playbook.kinds.keychain import SECRETS_KIND, secret_name
from noetl_stream.playbook.kinds.language import GENERATED
from noetl_stream.playbook.kinds.spec import KindSpec
from noetl_stream.playbook.model.policy import ActionDraft, PolicyDraft, Write
from noetl_stream.playbook.model.shared_values import SharedDraft
from noetl_stream.playbook.model.step import StepDraft
from noetl_stream.playbook.model.task import TaskDraft
from noetl_stream.playbook.plan import PolicyPlan, Reads, RulePlan, SharedPlan, TaskPlan
from noetl_stream.playbook.vocabulary.names import label_of
from noetl_stream.playbook.yaml.nodes import Node, Scalar
from noetl_stream.template import Guard, Template

DEFAULT_DELAY_S: Final = 1.0

_SCOPE_NAMES: Final = ("workload", "ctx")
_REFLECTION: Final = re.compile(r"\b(?:globals|locals|vars|eval|exec|__builtins__|sys|inspect)\b")
"""Names by which code can reach variables without naming them."""


class PipelineLowering:
    """Compiles the tasks of one step in order and collects what they read."""

    def __init__(self, declared: Declarations, expressions: Expressions, step: StepDraft) -> None:
        self._expressions: Final = expressions
        self._step: Final = step
        self._inputs = declared.visible(bindings.INPUTS, step)
        self._policy: Final = declared.visible(bindings.POLICY, step)
        self._sugar: Final = declared.visible(bindings.SUGAR, step)
        self._read: Final[set[tuple[str, str | None]]] = set()

    @property
    def reads(self) -> Reads:
        """What a command of the step must carry for the tasks compiled so far."""
        return union_of(self._read, set(_opaque(self._step)))

    def add_reads(self, template: Template) -> None:
        """Adds the reads of another template that the worker renders."""
        self._read.update(template.reads)

    def task(self, task: TaskDraft) -> TaskPlan:
        """The plan of a task."""
        inputs = self._expressions.value(task.inputs, self._inputs, task.kind)
        self._read.update(inputs.reads)
        verbatim = {name: node.plain() for name, node in task.verbatim.items()}
        if task.kind and task.kind.kind == SECRETS_KIND:
            readable = {*self._inputs.keychain, secret_name(task.name, verbatim)}
            self._inputs = replace(self._inputs, keychain=readable)
        return TaskPlan(
            name=task.name,
            kind=task.kind.kind if task.kind else "",
            inputs=inputs,
            line=task.at.mark.line,
            verbatim=verbatim,
            knobs=task.knobs,
            timeouts=task.timeouts,
            policy=self._policy_plan(task.policy, task.kind) if task.policy else None,
            origin=task.origin,
        )

    def _policy_plan(self, policy: PolicyDraft, kind: KindSpec | None) -> PolicyPlan:
        return PolicyPlan(tuple(self._rule(rule, kind) for rule in policy.rules), policy.on_unmatched)

    def _rule(self, rule: ActionDraft, kind: KindSpec | None) -> RulePlan:
        def values(writes: list[Write]) -> MappingProxyType[str, Template]:
            return MappingProxyType({key.name: self._value(node, kind) for key, node in writes})

        delay = self._value(rule.delay, kind) if rule.delay is not None else constant(DEFAULT_DELAY_S)
        return RulePlan(
            guard=None if rule.when is None else self._guard(rule.when, kind),
            do=rule.do,
            line=rule.at.mark.line,
            attempts=rule.attempts,
            backoff=rule.backoff,
            delay_s=delay if rule.do == "retry" else None,
            max_delay_s=rule.max_delay_s,
            to=None if rule.to is None else label_of(rule.to, (task.name for task in self._step.tasks)),
            set_ctx=values(rule.writes.get("ctx", [])),
            set_iter=values(rule.writes.get("iter", [])),
            set_vars=values(rule.writes.get("vars", [])),
            set_shared=MappingProxyType({one.key.name: self._shared(one, kind) for one in rule.shared}),
        )

    def _shared(self, shared: SharedDraft, kind: KindSpec | None) -> SharedPlan:
        return SharedPlan(shared.op, self._value(shared.value, kind) if shared.value else None)

    def _value(self, node: Node, kind: KindSpec | None) -> Template:
        template = self._expressions.value(node, self._policy, kind)
        self._read.update(template.reads)
        return template

    def _guard(self, node: Node, kind: KindSpec | None) -> Guard | None:
        visible = self._sugar if kind is GENERATED else self._policy
        guard = self._expressions.guard(node, visible, kind)
        if guard:
            self._read.update(guard.reads)
        return guard


def _opaque(step: StepDraft) -> Iterator[str]:
    """Namespaces of which the step's code may read any key, because it names them or uses reflection."""
    for task in step.tasks:
        if task.kind and task.kind.reads_scope:
            texts = [node.value for node in task.verbatim.values() if isinstance(node, Scalar)]
            code = "\n".join(text for text in texts if isinstance(text, str))
            reflects = _REFLECTION.search(code) is not None
            yield from (name for name in _SCOPE_NAMES if reflects or re.search(rf"\b{name}\b", code))
