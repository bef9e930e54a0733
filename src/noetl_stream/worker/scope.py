"""What the templates of a pipeline see on the worker (LANGUAGE §2, §5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noetl_stream.model.events import Path
from noetl_stream.model.messages import Progress, StepCommand
from noetl_stream.model.outcome import Outcome
from noetl_stream.playbook.plan import Plan, StepPlan, TaskPlan
from noetl_stream.template import ABSENT, ResultView, Scope
from noetl_stream.template.scope import outcome_view, result_of
from noetl_stream.tools.contract import Tool

NOTHING_SEEN: Final = Scope({})
"""The scope of what reads nothing: constant inputs, the default policy."""


class Iteration:
    """Which pass of the pipeline this is: ``()`` and no names outside loops.

    ``names`` are the read-only names under ``iter``: the iterator, ``index``, ``count``.
    """

    __slots__ = ("names", "path")

    def __init__(self, path: Path = (), names: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self.names = dict(names or {})


def iteration_of(step: StepPlan, index: int, item: Any, count: int) -> Iteration:
    """The pass for the item at ``index`` of the step's loop."""
    iterator = {step.loop.iterator: item} if step.loop is not None else {}
    return Iteration((index,), {**iterator, "index": index, "count": count})


class RunScope:
    """The namespaces of one step run. What cannot change during the run is made once, when it is first needed."""

    def __init__(
        self, plan: Plan, step: StepPlan, command: StepCommand, tools: Mapping[str, Tool], loaded: Mapping[str, Any]
    ) -> None:
        self.ctx: dict[str, Any] = command.ctx
        self._plan = plan
        self._step = step
        self._command = command
        self._tools = tools
        self._loaded = loaded
        self._fixed: dict[str, Any] | None = None

    def patch_ctx(self, patches: Mapping[str, Any]) -> None:
        """The step run has set these keys of ``ctx``; it sees them from here on."""
        self.ctx = {**self.ctx, **patches}

    def iter_of(self, progress: Progress, iteration: Iteration) -> dict[str, Any]:
        """``iter``: what the pipeline has set, under the loop's own names, which nothing can set."""
        return {**progress.iter, **iteration.names} if iteration.names else progress.iter

    def for_inputs(self, task: TaskPlan, progress: Progress, iteration: Iteration) -> Scope:
        """What the inputs of ``task`` see before this run of it."""
        return Scope(self._namespaces(task, progress, iteration, progress.results), self._loaded)

    def for_policy(self, task: TaskPlan, progress: Progress, iteration: Iteration, outcome: Outcome) -> Scope:
        """What the policy of ``task`` sees: the state before any rule, the task's own result and ``outcome``."""
        results = {**progress.results, task.name: outcome}
        namespaces = self._namespaces(task, progress, iteration, results)
        namespaces["outcome"] = outcome_view(outcome, self._tools[task.kind].spec.helper)
        return Scope(namespaces, self._loaded)

    def _namespaces(
        self, task: TaskPlan, progress: Progress, iteration: Iteration, results: Mapping[str, Outcome]
    ) -> dict[str, Any]:
        if self._fixed is None:
            self._fixed = self._unchanging()
        previous = progress.results[progress.previous] if progress.previous is not None else None
        return {
            **self._fixed,
            "ctx": self.ctx,
            "vars": progress.vars,
            "iter": self.iter_of(progress, iteration),
            "results": self._result_views(results),
            "_prev": ABSENT if previous is None else result_of(previous),
            "_task": task.name,
            "_attempt": progress.attempt,
        }

    def _unchanging(self) -> dict[str, Any]:
        command = self._command
        steps: dict[str, Any] = dict.fromkeys(self._plan.steps, ABSENT)
        steps |= {name: ResultView(value.outcome, value.results) for name, value in command.steps.items()}
        return {
            "workload": command.workload,
            "args": command.args,
            "execution_id": command.execution_id,
            "steps": steps,
        }

    def _result_views(self, results: Mapping[str, Outcome]) -> dict[str, Any]:
        views: dict[str, Any] = {}
        for task in self._step.tasks:
            outcome = results.get(task.name)
            helper = self._tools[task.kind].spec.helper
            views[task.name] = ABSENT if outcome is None else ResultView(outcome, helper=helper)
        return views
