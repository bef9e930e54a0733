"""The possible departures of each step, and the steps that can run at all.

A departure is the set of arcs that fire together when a step ends, guards unknown unless they are certain (LANGUAGE §4,
§7). There may be more departures than ever happen, since a guard that reads data may hold or not, but never fewer. The
steps that run are the least solution: a guard that reads a key of ``ctx`` set only by steps behind it, or the result of
such a step, cannot hold because of them (a cyclic wait); the steps known to run therefore grow from the entry until
nothing is added. For this, a guard is read with what is known for certain where it is evaluated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Final, NamedTuple

import msgspec
from jinja2 import nodes
from msgspec.structs import replace

from noetl_stream.model.outcome import Payload, Reference
from noetl_stream.playbook.check.step_graph import reversed_arcs
from noetl_stream.playbook.diagnostics import Firing
from noetl_stream.playbook.plan import AdmitRule, Plan, StepPlan
from noetl_stream.template import ABSENT, Budget, ExpressionError, Guard, OverBudget, ReferenceNeeded, Scope, holds
from noetl_stream.template.compile.evaluators import ENVIRONMENT
from noetl_stream.template.compile.parsing import TextError, parse, single_expression
from noetl_stream.template.runtime.scope import LazyResult, OutcomeEnvelope

UNKNOWN: Final = LazyResult(Payload(reference=Reference("", "unknown", 0)))
"""An unknown value: reading it raises :class:`ReferenceNeeded`."""

_SPENT_PER_GUARD: Final = 10_000
_OPPOSITES: Final = {
    "eq": "ne",
    "ne": "eq",
    "lt": "gteq",
    "gteq": "lt",
    "gt": "lteq",
    "lteq": "gt",
    "in": "notin",
    "notin": "in",
}


class Partial(dict[str, Any]):
    """A partly known namespace: other keys are :data:`UNKNOWN`, except those known to be undefined."""

    def __init__(self, known: Mapping[str, Any], undefined: Collection[str] = ()) -> None:
        super().__init__(known)
        self._undefined = undefined

    def __missing__(self, key: str) -> Any:
        if key in self._undefined:
            raise KeyError(key)
        return UNKNOWN


class Asked(NamedTuple):
    """A guard as the text of its syntax tree, with the texts of guards that hold exactly when it does not.

    The opposite of ``a`` is ``not a``, of ``a < b`` also ``a >= b``: two guards are opposite if the text of one is an
    opposite of the other.
    """

    tree: str
    opposite: frozenset[str] = frozenset()


class Opposites:
    """The opposites of guards. Each text is parsed once."""

    def __init__(self) -> None:
        self._known: dict[str, Asked] = {}

    def parse(self, guard: Guard | None) -> Asked:
        """The opposites of ``guard``; an omitted one has none."""
        if guard is None:
            return Asked("")
        if guard.source not in self._known:
            self._known[guard.source] = _parse_guard(guard.source)
        return self._known[guard.source]


class Facts(msgspec.Struct, frozen=True):
    """The facts that are certain where guards are evaluated.

    Attributes:
        unset: Keys of ``ctx`` that no rule can have set.
        unrun: Steps that cannot have run.
        asked: The opposites of guards.
    """

    unset: frozenset[str] = frozenset()
    unrun: frozenset[str] = frozenset()
    asked: Opposites = msgspec.field(default_factory=Opposites)

    def value(self, guard: Guard | None, **namespaces: Mapping[str, Any]) -> bool | None:
        """The guard's value in all runs; ``None`` if it varies. An omitted guard is true.

        Args:
            namespaces: ``event`` or ``token``, where the guard can read it.
        """
        if guard is None:
            return True
        if any(key is None and name not in namespaces for name, key in guard.reads):
            return None  # a namespace as a whole, or by a computed key
        known: dict[str, Any] = {name: UNKNOWN for name, _ in guard.reads}
        known["ctx"] = Partial({}, self.unset)
        known["steps"] = Partial(dict.fromkeys(self.unrun.intersection(guard.steps), ABSENT))
        try:
            return holds(guard, Scope(known | namespaces, budget=Budget(_SPENT_PER_GUARD)))
        except (ReferenceNeeded, ExpressionError, OverBudget):
            return None


def ended_event(name: str, step: str) -> Mapping[str, Any]:
    """The known part of the namespace ``event`` after the end of ``step``, by the event's name."""
    failed = name == "step.failed"
    return OutcomeEnvelope(
        name=name,
        step=step,
        status="error" if failed else "success",
        result=ABSENT if failed else UNKNOWN,
        error=UNKNOWN if failed else ABSENT,
        loop=UNKNOWN,
    )


def _parse_guard(source: str) -> Asked:
    try:
        expression = single_expression(parse(ENVIRONMENT, source))
    except TextError:
        expression = None
    if expression is None:
        return Asked("")
    inner = expression.node if isinstance(expression, nodes.Not) else None
    found = (nodes.Not(expression), inner, _opposite_of(expression))
    return Asked(repr(expression), frozenset(repr(one) for one in found if one is not None))


def _opposite_of(expression: nodes.Expr) -> nodes.Expr | None:
    """The comparison that holds when this one does not; ``None`` for any other expression."""
    if not isinstance(expression, nodes.Compare) or len(expression.ops) != 1:
        return None
    [operand] = expression.ops
    return nodes.Compare(expression.expr, [nodes.Operand(_OPPOSITES[operand.op], operand.expr)])


MAX_OPEN_ARCS: Final = 4
"""The most arcs with unknown guards at one inclusive router for which all combinations are tried. For more, only none
of them, each alone, and all are tried, which give the most and the fewest tokens.
"""


class Departure(msgspec.Struct, frozen=True):
    """A possible departure of tokens after a step run.

    Attributes:
        event: The event that ended the run: ``step.done``, ``loop.done``, ``step.failed`` or ``next.timed_out``.
        arcs: Indexes of the arcs that fire together; without any, the branch ends.
        rests: Whether the branch rests first, at a router with ``wait``.
    """

    event: str
    arcs: tuple[int, ...]
    rests: bool = False


class Flow(msgspec.Struct, frozen=True):
    """The possible departures of every step, and the decision of its admission.

    Attributes:
        departures: The departures by step. A failure that ends the execution is not listed.
        admits: By step, whether a token is admitted: ``None`` if it depends on data.
        dead: Arcs that never fire, by step and index.
    """

    plan: Plan
    facts: Facts
    departures: Mapping[str, Sequence[Departure]]
    admits: Mapping[str, bool | None]
    dead: frozenset[tuple[str, int]]

    def targets(self, step: str, departure: Departure) -> tuple[str, ...]:
        """The steps that a departure sends tokens to."""
        return tuple(self.plan.steps[step].arcs[index].step for index in departure.arcs)

    def successors(self, step: str) -> dict[str, None]:
        """The steps that can get a token from a step, in the order of its arcs."""
        return dict.fromkeys(
            arc.step for index, arc in enumerate(self.plan.steps[step].arcs) if (step, index) not in self.dead
        )


def flow_of(plan: Plan, facts: Facts, failing: frozenset[str]) -> Flow:
    """Finds the flow of a plan.

    Args:
        failing: Steps whose join always fails: they never run, but their failure may be routed.
    """
    departures = {
        step.name: list(
            dict.fromkeys(
                repeated
                for departure in _departures(step, facts, is_failing=step.name in failing)
                for repeated in _with_repeats(step, departure)
            )
        )
        for step in plan.steps.values()
    }
    sources = _sources(plan, _dead_arcs(plan, departures))
    admits = {step.name: _admits(plan, step, facts, sources[step.name]) for step in plan.steps.values()}
    for name in (name for name, admitted in admits.items() if admitted is False):
        departures[name] = [departure for departure in departures[name] if departure.event == "step.failed"]
    return Flow(plan, facts, departures, admits, _dead_arcs(plan, departures))


def _dead_arcs(plan: Plan, departures: Mapping[str, Sequence[Departure]]) -> frozenset[tuple[str, int]]:
    every = {(step.name, index) for step in plan.steps.values() for index in range(len(step.arcs))}
    return frozenset(every - {(step, index) for step in departures for one in departures[step] for index in one.arcs})


def _departures(step: StepPlan, facts: Facts, *, is_failing: bool) -> Iterator[Departure]:
    done = "loop.done" if step.loop is not None else "step.done"
    if not is_failing:
        yield from _route(step, facts, done, range(len(step.arcs)))
    if _can_fail(step):
        handling = [index for index, arc in enumerate(step.arcs) if arc.handles_failure]
        for departure in _route(step, facts, "step.failed", handling):
            if departure.arcs or step.failure_mode == "best_effort":
                yield departure


def _with_repeats(step: StepPlan, departure: Departure) -> Iterator[Departure]:
    """The departure, and those in which arcs with ``dedupe`` send nothing, since they have sent their key before."""
    yield departure
    if step.has_arc_specs:
        specs = {index: step.arcs[index].spec for index in departure.arcs}
        deduped = [index for index, spec in specs.items() if spec is not None and spec.dedupe is not None]
        for silent in _subsets(deduped):
            if silent:
                yield replace(departure, arcs=tuple(index for index in departure.arcs if index not in silent))


def _can_fail(step: StepPlan) -> bool:
    times_out = step.admit is not None and step.admit.wait is not None and step.admit.wait.on_timeout == "fail"
    return bool(step.tasks) or isinstance(step.join, int) or step.deadline_s is not None or times_out


def _route(step: StepPlan, facts: Facts, event: str, indexes: Sequence[int]) -> Iterator[Departure]:
    """The departures after one event, of the arcs that are candidates then."""
    known = _values(step, facts, event, indexes)
    wait = step.next_wait if event != "step.failed" else None
    for fired in _combinations(step, facts.asked, indexes, known):
        if fired or wait is None:
            yield Departure(event, fired)
    if wait is None or () not in set(_combinations(step, facts.asked, indexes, known)):
        return
    for fired in _combinations(step, facts.asked, indexes, known):  # when a fact has changed `ctx` or a result
        if fired:
            yield Departure(event, fired, rests=True)
    late = _values(step, facts, "next.timed_out", indexes)
    for fired in _combinations(step, facts.asked, indexes, late):
        if fired or wait.on_timeout == "discard" or step.failure_mode == "best_effort":
            yield Departure("next.timed_out", fired, rests=True)


def _values(step: StepPlan, facts: Facts, event: str, indexes: Iterable[int]) -> dict[int, bool | None]:
    if step.next_wait is not None:
        facts = Facts(unrun=facts.unrun)  # unset keys may still be set from outside (LANGUAGE §4)
    seen = ended_event(event, step.name)
    return {index: facts.value(step.arcs[index].guard, event=seen) for index in indexes}


def _combinations(
    step: StepPlan, asked: Opposites, indexes: Sequence[int], known: Mapping[int, bool | None]
) -> Iterator[tuple[int, ...]]:
    """The arcs that may fire together; the empty tuple if none may fire."""
    possible = [index for index in indexes if known[index] is not False]
    if step.routing == "exclusive":
        passed: set[str] = set()
        for index in possible:
            guard = asked.parse(step.arcs[index].guard)
            yield (index,)
            if known[index] or not passed.isdisjoint(guard.opposite):
                return
            passed.add(guard.tree)
        yield ()
        return
    certain = [index for index in possible if known[index]]
    opened = [index for index in possible if known[index] is None]
    for chosen in _subsets(opened):
        if not _contradicts(step, asked, opened, set(chosen)):
            yield tuple(sorted((*certain, *chosen)))


def _subsets(indexes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    sizes: Iterable[int] = range(len(indexes), -1, -1)
    if len(indexes) > MAX_OPEN_ARCS:
        sizes = (len(indexes), 1, 0)
    for size in sizes:
        yield from combinations(indexes, size)


def _contradicts(step: StepPlan, asked: Opposites, opened: Sequence[int], chosen: set[int]) -> bool:
    """Whether both or neither of two opposite guards would hold."""
    if len(opened) > MAX_OPEN_ARCS:
        return False
    guards = [(index in chosen, asked.parse(step.arcs[index].guard)) for index in opened]
    return any(
        fires == other_fires and guard.tree in other.opposite
        for (fires, guard), (other_fires, other) in combinations(guards, 2)
    )


def _sources(plan: Plan, dead: frozenset[tuple[str, int]]) -> dict[str, list[Mapping[str, Any]]]:
    """The possible values of ``token`` in the admission of each step."""
    sources: dict[str, set[str | None]] = {name: set() for name in plan.steps}
    sources[plan.entry].add(None)
    for step in plan.steps.values():
        for index, arc in enumerate(step.arcs):
            if (step.name, index) not in dead:
                sources[arc.step].add(None if plan.steps[arc.step].join is not None else step.name)
    # A person may inject a token into any step, so its cause is never certain.
    return {name: [{"from_step": one, "cause": UNKNOWN} for one in found] for name, found in sources.items()}


def _admits(plan: Plan, step: StepPlan, facts: Facts, sources: Sequence[Mapping[str, Any]]) -> bool | None:
    policy = step.admit
    if policy is None:
        return True
    if policy.wait is not None:
        facts = Facts(unrun=facts.unrun)
    decide = _decision if policy.mode == "exclusive" else _common_decision
    decided = {
        decide([facts.value(rule.guard, token=token) for rule in policy.rules], policy.rules) for token in sources
    }
    return decided.pop() if len(decided) == 1 else None


def _decision(values: Sequence[bool | None], rules: Sequence[AdmitRule]) -> bool | None:
    """The decision of the first rule that holds; ``None`` if it depends on data."""
    possible = set()
    for value, rule in zip(values, rules, strict=True):
        if value is not False:
            possible.add(rule.allow)
        if value:
            break
    else:
        possible.add(False)
    return possible.pop() if len(possible) == 1 else None


def _common_decision(values: Sequence[bool | None], rules: Sequence[AdmitRule]) -> bool | None:
    """The decision of all rules that hold, ``else`` if none does; ``None`` if it depends on data."""
    *others, last = zip(values, rules, strict=True)
    if last[1].guard is not None:
        others.append(last)
    if any(value and not rule.allow for value, rule in others):
        return False
    may_hold = [rule.allow for value, rule in others if value is not False]
    if not any(value for value, _ in others):  # perhaps none holds
        may_hold.append(last[1].guard is None and last[1].allow)
    return may_hold[0] if len(set(may_hold)) == 1 else None


MAX_LOOKED_AT: Final = 20_000
"""The most steps and arcs examined in all rounds; beyond, every step counts as running, even one that never runs."""
MIN_ROUNDS: Final = 10


class Reached(msgspec.Struct, frozen=True):
    """The steps that runs reach.

    Attributes:
        arrived: Steps that a token can reach, nearest first, each with the step and the departure that send it there
            on a shortest path; ``None`` for the entry.
        before: The arrived steps that can send a token to each step.
        runs: The arrived steps that can run, instead of only being held or refused.
        is_complete: Whether the rounds sufficed to exclude further steps.
    """

    flow: Flow
    arrived: Mapping[str, tuple[str, Departure] | None]
    before: Mapping[str, list[str]]
    runs: frozenset[str]
    is_complete: bool = True

    def path_to(self, step: str) -> list[Firing]:
        """A shortest sequence of firings that brings a token to a step."""
        path: list[Firing] = []
        while (came := self.arrived[step]) is not None:
            step, departure = came
            path.append(firing_of(self.flow, step, departure))
        return path[::-1]


def firing_of(flow: Flow, step: str, departure: Departure, *, repeats: bool = False) -> Firing:
    """A departure as a firing in a path."""
    line = flow.plan.steps[step].line
    return Firing(step, departure.event, line, to=flow.targets(step, departure), repeats=repeats)


def reach_of(plan: Plan, failing: frozenset[str] = frozenset()) -> Reached:
    """Finds the steps that runs of a plan reach.

    Args:
        failing: Steps whose join always fails.
    """
    writers = _writers(plan)
    asked = Opposites()
    size = sum(1 + len(step.arcs) for step in plan.steps.values())
    runs: frozenset[str] = frozenset()
    for _ in range(max(MIN_ROUNDS, MAX_LOOKED_AT // max(size, 1))):
        unset = frozenset(key for key, steps in writers.items() if runs.isdisjoint(steps))
        reached = _reach_with(plan, Facts(unset, frozenset(plan.steps) - runs, asked), failing)
        if reached.runs == runs:
            return reached
        runs = reached.runs
    return replace(_reach_with(plan, Facts(asked=asked), failing), is_complete=False)


def _reach_with(plan: Plan, facts: Facts, failing: frozenset[str]) -> Reached:
    """Finds the steps that runs reach under these facts."""
    flow = flow_of(plan, facts, failing)
    arrived = _arrivals(flow)
    runs = frozenset(step for step in arrived if flow.admits[step] is not False and step not in failing)
    before = reversed_arcs({step: list(flow.successors(step)) for step in arrived})
    return Reached(flow, arrived, before, runs)


def _writers(plan: Plan) -> dict[str, set[str]]:
    """The steps whose rules set each key of ``ctx`` or contribute to it."""
    writers: dict[str, set[str]] = {}
    for step in plan.steps.values():
        for rule in (rule for task in step.tasks if task.policy for rule in task.policy.rules):
            for key in (*rule.set_ctx, *rule.set_shared):
                writers.setdefault(key, set()).add(step.name)
    return writers


def _arrivals(flow: Flow) -> dict[str, tuple[str, Departure] | None]:
    entry = flow.plan.entry
    arrived: dict[str, tuple[str, Departure] | None] = {entry: None}
    pending = [entry]
    for step in pending:
        for departure in flow.departures[step]:
            for target in flow.targets(step, departure):
                if target not in arrived:
                    arrived[target] = (step, departure)
                    pending.append(target)
    return arrived
