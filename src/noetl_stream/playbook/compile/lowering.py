"""Lowers drafts to the plan: the parts that the server reads, with templates bound at their place (LANGUAGE §2)."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from noetl_stream.playbook.check import bindings
from noetl_stream.playbook.check.bindings import Declarations, Visible
from noetl_stream.playbook.check.graph import reach_of_joins
from noetl_stream.playbook.check.reads import FAILURE_KEYS, Expressions
from noetl_stream.playbook.check.templates import EMPTY, NO_ARGS, constant
from noetl_stream.playbook.compile.task_lowering import PipelineLowering
from noetl_stream.playbook.model.document import ParsedPlaybook
from noetl_stream.playbook.model.loop import LoopDraft
from noetl_stream.playbook.model.step import ArcDraft, StepDraft
from noetl_stream.playbook.plan import AdmitPlan, AdmitRule, ArcPlan, LoopPlan, Plan, StepPlan

DEFAULT_MAX_IN_FLIGHT: Final = 10


@dataclass(frozen=True, slots=True)
class Lowering:
    """Compiles drafts and reports problems to the collector of ``expressions``."""

    document: ParsedPlaybook
    declared: Declarations
    expressions: Expressions

    def plan(self, digest: str, steps: list[StepDraft]) -> Plan:
        """The plan; meaningful only if no error was reported."""
        document = self.document
        result = None
        if document.result is not None:
            result = self.expressions.server_value(document.result, self.declared.visible(bindings.RESULT, None))
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
            timeout_s=document.timeout_s,
            reference_first=document.reference_first,
            keychain=MappingProxyType(document.keychain),
            reaches=reach_of_joins(steps),
            labels=MappingProxyType(document.labels),
        )

    def _step(self, step: StepDraft) -> StepPlan:
        pipeline = PipelineLowering(self.declared, self.expressions, step)
        tasks = tuple(pipeline.task(task) for task in step.tasks)
        loop = self._loop(step.loop, step) if step.loop else None
        inner = loop.inner if loop else None
        while inner:
            # Levels inside a local one start in the worker, so the command carries what their `in` reads.
            pipeline.add_reads(inner.items)
            pipeline.add_reads(inner.max_in_flight)
            inner = inner.inner
        return StepPlan(
            name=step.name,
            pool=step.pool or self.document.pool,
            line=step.at.mark.line,
            admit=self._admit(step),
            loop=loop,
            tasks=tasks,
            arcs=self._arcs(step),
            routing=step.routing,
            reads=pipeline.reads,
            desc=step.desc,
            join=step.join.tokens if step.join else None,
            timeout_s=step.timeout_s,
            deadline_s=step.deadline_s,
        )

    def _admit(self, step: StepDraft) -> AdmitPlan | None:
        admit = step.admit
        if admit is None:
            return None
        visible = self.declared.visible(bindings.ADMISSION, step)
        rules = tuple(
            AdmitRule(None if rule.when is None else self.expressions.guard(rule.when, visible), rule.allow)
            for rule in admit.rules
        )
        return AdmitPlan(rules, admit.wait_s, admit.on_timeout)

    def _loop(self, loop: LoopDraft, step: StepDraft) -> LoopPlan:
        namespaces = bindings.LOOP if loop is step.loop else bindings.INNER_LOOP
        visible = self.declared.visible(namespaces, step, loop)
        limit = constant(1 if loop.mode == "sequential" else DEFAULT_MAX_IN_FLIGHT)
        if loop.max_in_flight is not None:
            written = self.expressions.server_value(loop.max_in_flight, visible)
            limit = written if loop.mode == "parallel" else limit
        return LoopPlan(
            items=self.expressions.server_value(loop.items, visible) if loop.items is not None else EMPTY,
            iterator=loop.iterator or "",
            mode=loop.mode,
            placement=loop.placement,
            failure_mode=loop.failure_mode or step.failure_mode or "fail_fast",
            max_in_flight=limit,
            inner=self._loop(loop.inner, step) if loop.inner else None,
        )

    def _arcs(self, step: StepDraft) -> tuple[ArcPlan, ...]:
        visible = self.declared.visible(bindings.ARC, step)
        return tuple(self._arc(arc, visible) for arc in step.arcs)

    def _arc(self, arc: ArcDraft, visible: Visible) -> ArcPlan:
        guard = self.expressions.guard(arc.when, visible) if arc.when is not None else None
        reads = guard.reads if guard else frozenset()
        return ArcPlan(
            step=arc.step,
            guard=guard,
            args=NO_ARGS if arc.args is None else self.expressions.server_value(arc.args, visible),
            handles_failure=any(name == "event" and (key is None or key in FAILURE_KEYS) for name, key in reads),
            line=arc.at.mark.line,
        )
