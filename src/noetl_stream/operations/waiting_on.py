"""The waits of an execution, and what would end each, as programs get them: values of ``ctx`` that guards compare with,
and keys of a signal's payload that templates read (LANGUAGE §4, §7, §8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from noetl_stream.engine.choices import evaluate_choice
from noetl_stream.engine.decide.routing import arcs_of
from noetl_stream.engine.decide.tokens import admission_of, is_allowed
from noetl_stream.engine.scope import admission_scope, arc_scope
from noetl_stream.engine.state import Execution, StepRun, Timer, WaitingToken
from noetl_stream.model.envelope import iso, iso_or_none
from noetl_stream.model.events import Evaluated, EvaluatedGuard, Token, Wait
from noetl_stream.model.ids import timer_of
from noetl_stream.model.json import codec
from noetl_stream.model.json.values import merge_patch
from noetl_stream.playbook.plan import Plan, RulePlan, StepPlan, TaskPlan, WaitPlan
from noetl_stream.ports.operations.cluster import AwaitedSlotDocument
from noetl_stream.ports.operations.waits import (
    AwaitedChildDocument,
    AwaitedJoinDocument,
    AwaitedPoolDocument,
    ExpectedKeyDocument,
    ExpectedValueDocument,
    GuardDocument,
    TimerDocument,
    WaitDocument,
    WaitingOnDocument,
)
from noetl_stream.template import Budget, ExpressionError, OverBudget, ReferenceNeeded, Scope

if TYPE_CHECKING:
    from noetl_stream.template import Guard, Template

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


MOST_VALUES: Final = 8
"""The most values that are tried for a wait, and keys of a payload that are named."""

LONGEST: Final = 64
"""The longest text that a person is expected to answer with, even if a guard compares with a longer one."""

SCHEMA_BYTES: Final = 16 * 1024

Ends = Callable[[Evaluated], tuple[bool, list[str]]]
Compared = tuple[tuple[str, ...], str | float]
"""A path, and the values it is compared with."""


def at_admission(plan: Plan, state: Execution, token: Token) -> list[ExpectedKeyDocument]:
    """Values of ``ctx`` that would admit the token, or are the other answer to a yes or no."""
    policy = plan.steps[token.step].admit
    if policy is None:
        return []
    guards = [rule.guard for rule in policy.rules]
    return _of_ctx(
        guards,
        state,
        lambda tried: evaluate_choice(admission_of(plan, tried, token, policy)),
        lambda evaluated: (is_allowed(policy, evaluated), []),
    )


def at_next(plan: Plan, state: Execution, run: StepRun) -> list[ExpectedKeyDocument]:
    """Values of ``ctx`` that would let an arc fire, or are the other answer to a yes or no, with where they lead."""
    arcs = plan.steps[run.step].arcs

    def ends(evaluated: Evaluated) -> tuple[bool, list[str]]:
        to = [arc.step for arc, held in zip(arcs, evaluated.guards, strict=False) if held]
        return bool(to), to

    return _of_ctx([arc.guard for arc in arcs], state, lambda tried: evaluate_choice(arcs_of(plan, tried, run)), ends)


def _of_ctx(
    guards: Iterable[Guard | None], state: Execution, choose: Callable[[Execution], Evaluated], ends: Ends
) -> list[ExpectedKeyDocument]:
    found: dict[tuple[str, ...], list[ExpectedValueDocument]] = {}
    tested = (one for guard in guards if guard is not None for one in guard.tested)
    compared = ((path[1:], value) for path, value in tested if path[0] == "ctx")
    for path, value in _candidates(compared):
        if not _is_open(state.ctx, path):
            continue
        try:
            evaluated = choose(replace(state, ctx=merge_patch(state.ctx, _nested(path, value))))
        except ReferenceNeeded:
            continue
        except OverBudget:
            break
        moves, to = ends(evaluated)
        if not evaluated.error and (moves or isinstance(value, bool)):
            found.setdefault(path, []).append(ExpectedValueDocument(value, moves, to))
    return [
        ExpectedKeyDocument(".".join(path), values, list(path) if len(path) > 1 else [])
        for path, values in found.items()
    ]


def _is_open(ctx: Mapping[str, Any], path: Sequence[str]) -> bool:
    """Whether a value can be set there without replacing another one on the way."""
    here: Any = ctx
    for key in path[:-1]:
        here = here.get(key)
        if here is None:
            return True
        if not isinstance(here, dict):
            return False
    return True


def _nested(path: Sequence[str], value: Any) -> dict[str, Any]:
    first, *rest = path
    return {first: _nested(rest, value) if rest else value}


def expected_payload(plan: Plan, step_name: str, task_name: str) -> WaitingOnDocument:
    """The expectations of a task that waits for a signal: ``expects`` has the keys that templates read of its result,
    each with the values that guards compare it with, ``schema`` is that of the playbook itself.
    """
    step = plan.steps[step_name]
    task = step.tasks[step.task_index(task_name)]
    keys: set[str] = set()
    tested: list[Compared] = []
    for owner in plan.steps.values():
        for text, by in _texts(owner):
            places = list(_places(step, task, owner, by))
            keys |= {key for path in text.paths if (key := _key_of(path, places))}
            literals = getattr(text, "tested", ())
            tested += (((key,), value) for path, value in literals if (key := _key_of(path, places)))
    values: dict[str, list[ExpectedValueDocument]] = {}
    for (key,), value in _candidates(tested):
        values.setdefault(key, []).append(ExpectedValueDocument(value))
    expects = [ExpectedKeyDocument(key, values.get(key, [])) for key in sorted(keys)[:MOST_VALUES]]
    content = None if task.schema is None else task.schema.content
    is_shown = content is not None and len(codec.encode(content)) <= SCHEMA_BYTES
    return WaitingOnDocument(expects=expects, schema=content if is_shown else None)


def _candidates(compared: Iterable[Compared]) -> Iterator[Compared]:
    """Paths and values worth trying, each once; of a yes or no both."""
    tried: set[tuple[tuple[str, ...], str]] = set()
    for path, literal in compared:
        if not path or (isinstance(literal, str) and len(literal) > LONGEST):
            continue
        for value in (True, False) if isinstance(literal, bool) else (literal,):
            one = path, repr(value)
            if one not in tried and len(tried) < MOST_VALUES:
                tried.add(one)
                yield path, value


def _places(step: StepPlan, task: TaskPlan, owner: StepPlan, by: TaskPlan | None) -> Iterator[tuple[str, ...]]:
    """The paths under which a template of a step, or of one of its tasks, reads the task's result."""
    is_last = task is step.tasks[-1] and step.loop is None
    if owner is step:
        yield "results", task.name
        if by is task:
            yield "outcome", "result"
        if is_last and by is None:
            yield "event", "result"
    yield "steps", step.name, "results", task.name
    if is_last:
        yield "steps", step.name


def _key_of(path: tuple[str, ...], places: Sequence[tuple[str, ...]]) -> str | None:
    """The key of the result that a path reads (LANGUAGE §2 *Results*)."""
    for place in places:
        if path[: len(place)] == place:
            rest = path[len(place) :]
            if place[0] in ("results", "steps") and rest[:1] == ("data",):
                rest = rest[1:]
            return rest[0] if rest and rest[0] not in ("outcome", "results") else None
    return None


def _texts(step: StepPlan) -> Iterator[tuple[Guard | Template, TaskPlan | None]]:
    """The templates of a step, those of a task with it."""
    for task in step.tasks:
        yield task.inputs, task
        for rule in () if task.policy is None else task.policy.rules:
            yield from ((text, task) for text in _texts_of_rule(rule))
    guards = [rule.guard for rule in step.admit.rules] if step.admit is not None else []
    guards += [arc.guard for arc in step.arcs]
    args = (arc.args for arc in step.arcs)
    yield from ((text, None) for text in (*guards, *args) if text is not None)


def _texts_of_rule(rule: RulePlan) -> Iterator[Guard | Template]:
    shared = (one.value for one in rule.set_shared.values())
    given = (rule.guard, rule.delay_s, *shared)
    yield from (text for text in given if text is not None)
    for patch in (rule.set_ctx, rule.set_iter, rule.set_vars, rule.set_label):
        yield from patch.values()
