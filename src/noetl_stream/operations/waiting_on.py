"""The waits of an execution, and what would end each, as programs get them (LANGUAGE §4, §7, §8)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from noetl_stream.engine.scope import admission_scope, arc_scope
from noetl_stream.engine.state import Execution, StepRun, Timer, WaitingToken
from noetl_stream.model.envelope import iso, iso_or_none
from noetl_stream.model.events import EvaluatedGuard, Wait
from noetl_stream.model.ids import timer_of
from noetl_stream.model.json import codec
from noetl_stream.playbook.plan import Plan, WaitPlan
from noetl_stream.ports.operations.cluster import AwaitedSlotDocument
from noetl_stream.ports.operations.waits import (
    AwaitedChildDocument,
    AwaitedJoinDocument,
    AwaitedPoolDocument,
    GuardDocument,
    TimerDocument,
    WaitDocument,
    WaitingOnDocument,
)
from noetl_stream.template import Budget, ExpressionError, OverBudget, ReferenceNeeded, Scope

if TYPE_CHECKING:
    from noetl_stream.template import Guard

VALUE_BYTES: Final = 4 * 1024
"""The size up to which a guard's value is shown, as JSON."""

COMMANDS_SHOWN: Final = 50

BYTES_PER_OPERATION: Final = 8
"""The template work of showing a value, so that the budget of an answer bounds its size."""


def on_admission(state: Execution, plan: Plan | None, waiting: WaitingToken) -> WaitingOnDocument:
    """The wait of a held token; without a plan, with its guards as they were when it was held."""
    token = waiting.token
    policy = plan.steps[token.step].admit if plan is not None else None
    timer = state.timers.get(timer_of(token.token_id, "admission"))
    if plan is None or policy is None:
        return _on_guards(map(_recorded, waiting.guards), timer, None)
    scope = admission_scope(plan, state, token)
    guards = [guard_document(rule.guard, scope) for rule in policy.rules if rule.guard is not None]
    return _on_guards(guards, timer, policy.wait)


def on_next(state: Execution, plan: Plan | None, step_run_id: str) -> WaitingOnDocument:
    """The wait of a resting branch; without a plan, with its guards as they were when it began to rest."""
    timer = state.timers.get(timer_of(step_run_id, "next"))
    if plan is None:
        return _on_guards(map(_recorded, state.resting[step_run_id].guards), timer, None)
    run = state.runs[step_run_id]
    step, scope = plan.steps[run.step], arc_scope(plan, state, run)
    guards = [guard_document(arc.guard, scope, to=arc.step) for arc in step.arcs if arc.guard is not None]
    return _on_guards(guards, timer, step.next_wait)


def on_timer(state: Execution, timer_id: str) -> WaitingOnDocument:
    """A wait without shown guards."""
    return _on_guards((), state.timers.get(timer_id), None)


def on_join(state: Execution, plan: Plan | None, step: str) -> WaitingOnDocument:
    """The wait of the tokens at a join."""
    tokens = [waiting.token for waiting in state.tokens.values() if waiting.joining and waiting.token.step == step]
    here = [token.from_step or "the start" for token in tokens]
    if plan is None:
        return WaitingOnDocument(join=AwaitedJoinDocument(None, here, []))
    return WaitingOnDocument(join=AwaitedJoinDocument(plan.steps[step].join, here, list(_coming(state, plan, step))))


def bound_ms(state: Execution, run: StepRun | None, *timers: str, own_ms: int | None = None) -> int | None:
    """The latest time at which a timeout ends a wait: one of these ``timers``, the step's or the execution's.

    Args:
        own_ms: The time of a timeout without a timer; ``None`` without one.
    """
    ids = [*timers, timer_of(state.execution_id, "execution")]
    if run is not None:
        ids += [timer_of(run.step_run_id, "step"), timer_of(run.token.token_id, "deadline")]
    dues = [state.timers[id].due_ms for id in ids if id in state.timers]
    return min(dues if own_ms is None else [*dues, own_ms], default=None)


def pool_of(state: Execution, plan: Plan | None, step: str) -> str:
    """The pool that runs a step in this execution."""
    default = plan.steps[step].pool if plan is not None and plan.steps.get(step) is not None else "default"
    return state.pools.get(step, default)


def on_pool(state: Execution, plan: Plan | None, step: str, command_ids: Sequence[str]) -> WaitingOnDocument:
    pool = None if plan is None else AwaitedPoolDocument(pool_of(state, plan, step))
    return WaitingOnDocument(commands=list(command_ids[:COMMANDS_SHOWN]), pool=pool)


def on_wait(state: Execution, command_id: str, wait: Wait, children: Mapping[str, str] = {}) -> WaitingOnDocument:
    """The wait of a suspended pipeline.

    Args:
        children: Status of called executions.
    """
    due = state.timers.get(timer_of(command_id, "wait", wait.path))
    timer = None if due is None else TimerDocument(due.purpose, iso(due.due_ms), None)
    child = wait.child
    if wait.key is not None:
        return WaitingOnDocument(slot=AwaitedSlotDocument(wait.key, state.keys.namespace_of(wait.key)))
    if child is None:
        return WaitingOnDocument(timer=timer, signal=wait.signal)
    status = children.get(child.execution_id)
    return WaitingOnDocument(timer=timer, child=AwaitedChildDocument(child.execution_id, child.path, status))


def guard_document(guard: Guard, scope: Scope, *, to: str | None = None) -> GuardDocument:
    """A guard with its current values; ``holds`` is ``None`` if it needs a result to be loaded, fails, or costs too
    much.
    """
    from noetl_stream.template.runtime.evaluation import NoValue, value_at  # needs Jinja, which most answers do not

    values: dict[str, Any] = {}
    missing: list[str] = []
    for path in sorted(guard.paths):
        name = ".".join(path)
        try:
            found = value_at(path, scope)
            if isinstance(found, NoValue):
                missing.append(name)
            else:
                values[name] = _shown(found, scope)
        except ReferenceNeeded as needed:
            values[name] = f"({needed.reference.size} bytes, stored by reference)"
        except OverBudget:
            values[name] = "(too much to show here)"
            break
    return GuardDocument(guard.source, _holds(guard, scope), values, missing, to)


def _shown(value: Any, scope: Scope) -> Any:
    size = len(codec.encode(value))
    if size > VALUE_BYTES:
        return f"({size} bytes)"
    if scope.budget is not None:
        scope.budget.spend(size // BYTES_PER_OPERATION)
    return value


def _holds(guard: Guard, scope: Scope) -> bool | None:
    from noetl_stream.template import holds

    try:
        return holds(guard, scope)
    except (ReferenceNeeded, ExpressionError, OverBudget):
        return None


def _recorded(guard: EvaluatedGuard) -> GuardDocument:
    return GuardDocument(guard.when, guard.value, {}, [guard.waits_for] if guard.waits_for else [], None)


def _on_guards(guards: Iterable[GuardDocument], timer: Timer | None, wait: WaitPlan | None) -> WaitingOnDocument:
    guards = list(guards)
    read = [path.split(".") for guard in guards for path in (*guard.values, *guard.missing)]
    over = wait.on_timeout if wait is not None else None
    return WaitingOnDocument(
        guards=guards,
        ctx=_second(read, "ctx"),
        steps=_second(read, "steps"),
        timer=None if timer is None else TimerDocument(timer.purpose, iso(timer.due_ms), over),
    )


def _second(paths: Sequence[Sequence[str]], first: str) -> list[str]:
    return sorted({path[1] for path in paths if path[0] == first and len(path) > 1})


def _coming(state: Execution, plan: Plan, step: str) -> Iterator[str]:
    """The tokens, branches and runs that can still reach a join."""
    for waiting in state.tokens.values():
        name = waiting.token.step
        if not (waiting.joining and name == step) and step in plan.reaches.get(name, ()):
            yield f"a token {'held' if waiting.held else 'waiting'} at `{name}`"
    for run in state.runs.values():
        if step in plan.reaches.get(run.step, ()):
            rests = run.step_run_id in state.resting
            yield f"a branch that rests at `{run.step}`" if rests else f"running step `{run.step}`"


GUARD_OPERATIONS: Final = 20_000
"""The total cost of the guards of an answer, or of a side of one. Others are shown without values."""

WAITS_EXPLAINED: Final = 50
"""The most held tokens, and the most resting branches, whose guards are shown."""


def awaited(state: Execution, plan: Plan | None) -> Iterator[WaitDocument]:
    """All waits of an execution (LANGUAGE §4, §7, §8); a command that a worker runs does not count.

    Args:
        plan: ``None`` if the playbook does not compile here. Guards are then shown as they were recorded.
    """
    state = replace(state, budget=Budget(GUARD_OPERATIONS))
    queued: dict[str, list[str]] = {}
    bounds: dict[str, int | None] = {}
    for assignment in state.assignments.values():
        run = state.runs.get(assignment.step_run_id)
        if assignment.run is None and run is not None:
            queued.setdefault(run.step, []).append(assignment.command_id)
            bounds.setdefault(run.step, bound_ms(state, run))
    for step, command_ids in queued.items():
        waiting_on = on_pool(state, plan, step, command_ids)
        pool = waiting_on.pool
        yield _wait(step, "a worker" if pool is None else f"a worker of pool {pool.pool}", bounds[step], waiting_on)
    for slot in state.slots.values():
        if not slot.granted and not slot.task:
            run = state.runs.get(slot.step_run_id)
            first = next((waiting.token.step for waiting in state.tokens.values()), "")
            on = WaitingOnDocument(slot=AwaitedSlotDocument(slot.key, slot.namespace))
            what = f"its turn in partition {slot.key}" if slot.partition else f"a slot of key {slot.key}"
            yield _wait(first if run is None else run.step, what, bound_ms(state, run), on)
    held = [waiting for waiting in state.tokens.values() if waiting.held]
    for number, waiting in enumerate(held):
        token, explained = waiting.token, number < WAITS_EXPLAINED
        timer = timer_of(token.token_id, "admission")
        on = on_admission(state, plan, waiting) if explained else on_timer(state, timer)
        yield _wait(token.step, "admission", bound_ms(state, None, timer), on)
    for number, step_run_id in enumerate(state.resting):
        explained, timer = number < WAITS_EXPLAINED, timer_of(step_run_id, "next")
        on = on_next(state, plan, step_run_id) if explained else on_timer(state, timer)
        yield _wait(state.runs[step_run_id].step, "next", bound_ms(state, None, timer), on)
    for step in dict.fromkeys(waiting.token.step for waiting in state.tokens.values() if waiting.joining):
        yield _wait(step, "join", bound_ms(state, None), on_join(state, plan, step))
    for command_id, suspended in state.suspensions.items():
        run = state.runs[suspended.step_run_id]
        for wait in suspended.waits.values():
            until_ms = bound_ms(state, run, timer_of(command_id, "wait", wait.path))
            yield _wait(run.step, _cause(wait), until_ms, on_wait(state, command_id, wait), wait)


def _wait(
    step: str, what: str, until_ms: int | None, waiting_on: WaitingOnDocument, wait: Wait | None = None
) -> WaitDocument:
    task, path = (wait.task, list(wait.path)) if wait is not None else (None, [])
    return WaitDocument(step, task, path, what, iso_or_none(until_ms), waiting_on)


def _cause(wait: Wait) -> str:
    if wait.signal is not None:
        return f"signal {wait.signal}"
    if wait.child is not None:
        return f"playbook {wait.child.path} ({wait.child.execution_id})"
    if wait.key is not None:
        return f"a slot of key {wait.key}"
    return "its next attempt" if wait.delay_s is not None else "its time"
