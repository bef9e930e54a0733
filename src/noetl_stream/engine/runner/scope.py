"""The scope of templates in a pipeline (LANGUAGE §2, §5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from noetl_stream.engine.pipeline import outcome_before, results_after, share
from noetl_stream.engine.scope import level_names, step_views
from noetl_stream.model.events import Path, SharedValue
from noetl_stream.model.messages import Progress, StepCommand
from noetl_stream.model.outcome import Outcome
from noetl_stream.playbook.kinds.keychain import SECRETS_KIND, secret_name
from noetl_stream.playbook.kinds.spec import Kinds
from noetl_stream.playbook.plan import LoopPlan, Plan, TaskPlan
from noetl_stream.playbook.vocabulary.names import result_name
from noetl_stream.template import ABSENT, Budget, ResultView, Scope
from noetl_stream.template.runtime.scope import Carried, References, outcome_view, result_of

NOTHING_SEEN: Final = Scope({})
"""The scope of templates that read nothing: constant inputs, the default policy."""

NO_SECRETS: Final[Mapping[str, Any]] = {}


class Iteration:
    """A pass of the pipeline: ``()`` and no names outside loops.

    ``names`` are the read-only names under ``iter``: the iterator, ``index``, ``count``, and in an inner loop
    ``parent``, the same of the iteration around it.
    """

    __slots__ = ("names", "path")

    def __init__(self, path: Path = (), names: dict[str, Any] | None = None) -> None:
        self.path = path
        self.names = names or {}


OUTSIDE: Final = Iteration()
"""The iteration around a pipeline without loop, and around the outermost level of a loop."""


def iteration_of(level: LoopPlan, index: int, item: Any, count: int, around: Iteration = OUTSIDE) -> Iteration:
    """The iteration for the item at ``index`` of a level, in the iteration ``around`` it."""
    return Iteration((*around.path, index), level_names(level, index, item, count, around.names))


class Namespaces(dict[str, Any]):
    """The namespaces that templates of a pipeline read; ``made`` computes missing ones on first use.

    Args:
        made: The value of a namespace. Raises :class:`KeyError` for an unknown one.
    """

    __slots__ = ("_made",)

    def __init__(self, known: Mapping[str, Any], made: Callable[[str], Any]) -> None:
        super().__init__(known)
        self._made = made

    def __missing__(self, name: str) -> Any:
        value = self[name] = self._made(name)
        return value


class RunScope:
    """The namespaces of one step run. A namespace that is constant during the run is made once, on first use."""

    def __init__(self, plan: Plan, command: StepCommand, kinds: Kinds, references: References) -> None:
        self.ctx: dict[str, Any] = command.ctx
        self.keychain = plan.keychain
        self._plan = plan
        self._step = plan.steps[command.step].run_by(paging=command.paging)
        self._command = command
        self._kinds = kinds
        self._references = references
        self._fixed: dict[str, Any] | None = None

    def patch_ctx(self, patches: Mapping[str, Any]) -> None:
        """Sets keys of ``ctx`` that the step run has patched and reads from now on."""
        self.ctx = {**self.ctx, **patches}

    def share(self, contributions: Mapping[str, SharedValue]) -> None:
        """Adds contributions of a rule outside loops to keys of ``ctx``, which the step run reads from now on."""
        self.patch_ctx(share(self.ctx, contributions))

    def iter_of(self, progress: Progress, iteration: Iteration) -> dict[str, Any]:
        """The namespace ``iter``: values set by the pipeline, and the loop's own names, which cannot be set."""
        return {**progress.iter, **iteration.names} if iteration.names else progress.iter

    def readable_credentials(self, progress: Progress) -> list[str]:
        """The credentials that ``kind: secrets`` tasks have made readable as ``keychain.<name>`` (LANGUAGE §11)."""
        if not progress.results:
            return []
        return [
            secret_name(task.name, task.verbatim)
            for task in self._step.tasks
            if task.kind == SECRETS_KIND and result_name(task.name) in progress.results
        ]

    def for_inputs(
        self, task: TaskPlan, progress: Progress, iteration: Iteration, keychain: Mapping[str, Any] = NO_SECRETS
    ) -> Scope:
        """The scope of the inputs of ``task`` before this run of it."""
        namespaces = self._namespaces(task, progress, iteration)
        namespaces["keychain"] = keychain
        return self._scope(namespaces)

    def for_policy(self, task: TaskPlan, progress: Progress, iteration: Iteration, outcome: Outcome) -> Scope:
        """The scope of the policy of ``task``: the state before any rule, the task's own result and ``outcome``."""
        return self._scope(self._namespaces(task, progress, iteration, outcome))

    def for_level(self, around: Iteration) -> Scope:
        """The scope of ``in`` and ``max_in_flight`` of a level inside the iteration ``around``."""
        return self._scope({**self._fixed_namespaces(), "ctx": self.ctx, "iter": around.names})

    def _scope(self, namespaces: Mapping[str, Any]) -> Scope:
        limits = self._command.limits
        return Scope(namespaces, self._references, limits, Budget(limits.max_inline_operations))

    def _namespaces(
        self, task: TaskPlan, progress: Progress, iteration: Iteration, outcome: Outcome | None = None
    ) -> Namespaces:
        known = {
            **self._fixed_namespaces(),
            "ctx": self.ctx,
            "vars": progress.vars,
            "iter": self.iter_of(progress, iteration),
            "_task": task.name,
            "_attempt": progress.attempt,
        }
        return Namespaces(known, partial(self._outcome_namespace, task, progress, outcome))

    def _outcome_namespace(self, task: TaskPlan, progress: Progress, outcome: Outcome | None, namespace: str) -> Any:
        """The namespaces with views of outcomes: those before this run of the task, and ``outcome``."""
        if namespace == "results":
            ended = progress.results if outcome is None else results_after(progress, task.name, outcome)
            return self._result_views(ended)
        if namespace == "_prev":
            before = outcome_before(progress)
            return ABSENT if before is None else result_of(before)
        if namespace == "outcome" and outcome is not None:
            return outcome_view(outcome, self._helper(task))
        raise KeyError(namespace)

    def _fixed_namespaces(self) -> dict[str, Any]:
        if self._fixed is None:
            command = self._command
            is_whole = self._step.reads.workload is None
            self._fixed = {
                "workload": command.workload if is_whole else Carried(command.workload, self._plan.workload),
                "args": command.args,
                "execution_id": command.execution_id,
                "execution": command.execution,
                "steps": step_views(self._plan, command.steps),
            }
            if command.token is not None:
                self._fixed["token"] = command.token
        return self._fixed

    def _result_views(self, results: Mapping[str, Outcome]) -> dict[str, Any]:
        views: dict[str, Any] = {}
        for task in self._step.tasks:
            name = result_name(task.name)
            if name is None:
                continue
            outcome, helper = results.get(name), self._helper(task) if name == task.name else None
            views[name] = ABSENT if outcome is None else ResultView(outcome, helper=helper)
        return views

    def _helper(self, task: TaskPlan) -> str | None:
        kind = self._kinds.get(task.kind)  # kinds built into the language may be missing, and have no helper
        return None if kind is None else kind.helper
