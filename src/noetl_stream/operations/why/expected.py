"""The expectations of a waiting execution: values of ``ctx`` that guards compare with, and keys of a signal's payload
that templates read (LANGUAGE §4, §7, §8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from noetl_stream.engine.choices import evaluate_choice
from noetl_stream.engine.decide.routing import arcs_of
from noetl_stream.engine.decide.tokens import admission_of, is_allowed
from noetl_stream.engine.state import Execution, StepRun
from noetl_stream.model.events import Evaluated, Token
from noetl_stream.model.json import codec
from noetl_stream.model.json.values import merge_patch
from noetl_stream.playbook.plan import Plan, RulePlan, StepPlan, TaskPlan
from noetl_stream.ports.operations.waits import ExpectedKeyDocument, ExpectedValueDocument, WaitingOnDocument
from noetl_stream.template import OverBudget, ReferenceNeeded

if TYPE_CHECKING:
    from noetl_stream.template import Guard, Template

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
