"""The scope of server expressions: admission, ``loop.in``, arcs, the execution's result (LANGUAGE §2, §4, §7)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypeAlias

from noetl_stream.engine.state import Execution, LoopState, StepRun
from noetl_stream.model.events import Path, Token
from noetl_stream.model.outcome import ErrorInfo, ItemPosition, Payload, StepValue, place_of
from noetl_stream.playbook.plan import AdmitRule, EmitPlan, LoopPlan, Plan, StepPlan
from noetl_stream.template import ABSENT, ExpressionError, ResultView, Scope, Template
from noetl_stream.template.runtime.scope import Carried, LazyResult, References, event_view

Read: TypeAlias = Collection[str | None]
"""The steps whose results templates read; ``None`` for all of them."""

ALL: Final[Read] = (None,)


class PagedItem(LazyResult):
    """An item of a paged-out list: its page is loaded when the item is read."""

    __slots__ = ("_index",)

    def __init__(self, place: ItemPosition) -> None:
        super().__init__(Payload(reference=place.page))
        self._index = place.index

    def value(self, references: References) -> Any:
        """The item of the list.

        Raises:
            ReferenceNeeded: its page is not in ``references``.
        """
        return super().value(references)[self._index]


def admission_scope(plan: Plan, state: Execution, token: Token) -> Scope:
    """The scope of an admission, with its ``token``, in the current state."""
    policy = plan.steps[token.step].admit
    read = _steps_read_by(policy.rules) if policy is not None else ()
    cause = {"from_step": token.from_step, "cause": token.cause}
    return Scope(
        _state_namespaces(plan, state, read) | {"args": token.args, "token": cause},
        state.resolved,
        state.limits,
        state.budget,
    )


def snapshot_scope(plan: Plan, state: Execution, run: StepRun, *templates: Template, path: Path = ()) -> Scope:
    """The scope of a loop's or limit's templates: the step run's snapshot, and the iteration around the level."""
    namespaces = {
        "workload": state.workload,
        "ctx": {**run.ctx, **run.patches} if run.patches else run.ctx,
        "args": run.token.args,
        "steps": step_views(plan, run.steps, _steps_read_by(templates)),
        "execution_id": state.execution_id,
        "execution": state.execution,
    }
    if plan.steps[run.step].sets_token:
        namespaces["token"] = run.token_seen
    outermost = plan.steps[run.step].loop
    if path and outermost is not None:
        chain, counts = around(run.loop, path)
        seen = [PagedItem(item) if isinstance(item, ItemPosition) else item for item in chain]
        namespaces["iter"] = iteration_names(outermost, path, seen, counts)
    return Scope(namespaces, state.resolved, state.limits, state.budget)


def around(loop: LoopState | None, path: Path) -> tuple[list[Any], list[int]]:
    """The element at each level of the iteration ``path``, and the number of elements of each level.

    For a paged-out level the element is its :class:`~noetl_stream.model.outcome.ItemPosition`.
    """
    chain, counts = [], []
    for index in path:
        assert loop is not None
        chain.append(place_of(loop.pages, index) if loop.pages else loop.items[index])
        counts.append(loop.count)
        loop = loop.inner.get(index)
    return chain, counts


def level_names(level: LoopPlan, index: int, item: Any, count: int, parent: dict[str, Any]) -> dict[str, Any]:
    """The read-only names under ``iter`` in an iteration of one level; ``parent`` are those around it, if any."""
    names = {level.iterator: item, "index": index, "count": count}
    return {**names, "parent": parent} if parent else names


def level_at(step: StepPlan, depth: int) -> LoopPlan:
    """The level of the step's loop that is inside ``depth`` others."""
    level = step.loop
    for _ in range(depth):
        level = level and level.inner
    assert level is not None
    return level


def iteration_names(outermost: LoopPlan, path: Path, chain: Sequence[Any], counts: Sequence[int]) -> dict[str, Any]:
    """The read-only names under ``iter`` in iteration ``path``: the innermost level's, and ``parent`` (LANGUAGE §6)."""
    names: dict[str, Any] = {}
    level: LoopPlan | None = outermost
    for index, item, count in zip(path, chain, counts, strict=True):
        assert level is not None
        names = level_names(level, index, item, count, names)
        level = level.inner
    return names


def arc_scope(plan: Plan, state: Execution, run: StepRun, emitted: Sequence[EmitPlan] = ()) -> Scope:
    """The scope of the arcs of an ended step run, or of the events ``emitted`` when it begins or ends; ``event.result``
    is its own, whatever ran since.
    """
    loop = run.loop
    counts = None if loop is None else _loop_counts(loop)
    event = event_view(
        name=run.ended or "step.started",
        step=run.step,
        result=run.value.outcome.result if run.value is not None else None,
        error=run.error,
        loop=counts,
    )
    step = plan.steps[run.step]
    seen = _state_namespaces(plan, state, _steps_read_by(emitted) if emitted else step.read_by_arcs)
    seen["args"], seen["vars"], seen["event"] = run.token.args, run.vars, event
    if step.sets_token:
        seen["token"] = run.token_seen
    return Scope(seen, state.resolved, state.limits, state.budget)


def _loop_counts(loop: LoopState) -> dict[str, int]:
    skipped = loop.count - loop.ok - loop.failed
    return {
        "count": loop.count,
        "ok": loop.ok,
        "failed": loop.failed,
        "skipped": skipped,
        "failed_leaves": loop.failed_leaves,
    }


def result_scope(plan: Plan, state: Execution) -> Scope:
    """The scope of ``executor.spec.result``."""
    return Scope(_state_namespaces(plan, state), state.resolved, state.limits, state.budget)


def expression_failure(where: str, error: ExpressionError | str) -> ErrorInfo:
    """The error that fails an execution whose guard, ``args`` or ``in`` cannot be evaluated."""
    return ErrorInfo("expression_error", f"{where}: {error}")


def step_views(plan: Plan, values: Mapping[str, StepValue], read: Read = ALL) -> dict[str, Any]:
    """The views of all steps of the plan, or of those that are read: the result, or absent while there is none."""
    whole = None in read
    names = (
        [*plan.steps, *values] if whole else [name for name in read if name and (name in plan.steps or name in values)]
    )
    views = {
        name: ResultView(values[name].outcome, values[name].results) if name in values else ABSENT for name in names
    }
    return views if whole else Carried(views, plan.steps)


def _steps_read_by(readers: Sequence[EmitPlan | AdmitRule | Template]) -> Read:
    return {step for reader in readers for step in reader.steps}


def _state_namespaces(plan: Plan, state: Execution, read: Read = ALL) -> dict[str, Any]:
    live = {
        "workload": state.workload,
        "ctx": state.ctx,
        "execution_id": state.execution_id,
        "execution": state.execution,
    }
    if read:
        live["steps"] = step_views(plan, state.steps, read)
    return live
