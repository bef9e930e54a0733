"""Proofs about the runs of a playbook by exploring its net: findings, each with a path of firings as evidence.

Guards that read data may hold or not: a finding of what *can* happen is true for some data, a finding of what *never*
happens for all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from noetl_stream.playbook.check.step_graph import Arcs, arcs_of, components, concurrent_steps, reach, reversed_arcs
from noetl_stream.playbook.check.workflow import keys_set
from noetl_stream.playbook.diagnostics import Firing, Problems
from noetl_stream.playbook.model.step import StepDraft
from noetl_stream.playbook.net.flow import Facts, Flow, Reached, firing_of, reach_of
from noetl_stream.playbook.net.petri import OMEGA
from noetl_stream.playbook.net.unfold import Inquiry, firings
from noetl_stream.playbook.plan import Plan, StepPlan, TaskPlan
from noetl_stream.playbook.suggestions import MAX_LISTED, list_names
from noetl_stream.template import Guard

Cycle = frozenset[str]


def cycles_of(reach: Reached) -> Iterator[Cycle]:
    """The strongly connected components in which a token can return, in the order in which runs reach them."""
    after = {step: list(reach.flow.successors(step)) for step in reach.arrived}
    component = {step: members for members in components(after) for step in members}
    for cycle in dict.fromkeys(component[step] for step in reach.arrived):
        if len(cycle) > 1 or any(step in after[step] for step in cycle):
            yield cycle


def has_exit(flow: Flow, cycle: Cycle) -> bool:
    """Whether a token in the cycle can leave it or end there without a failure that ends the execution."""
    for step in cycle:
        if flow.admits[step] is not True or flow.plan.steps[step].join not in (None, "all"):
            return True
        if any(cycle.isdisjoint(flow.targets(step, departure)) for departure in flow.departures[step]):
            return True
    return False


def steps_outside(flow: Flow, cycle: Cycle) -> frozenset[str]:
    """The steps that get tokens in addition to the one that stays in the cycle."""
    found: set[str] = set()
    for step in cycle:
        for departure in flow.departures[step]:
            targets = flow.targets(step, departure)
            if len(targets) > 1 and not cycle.isdisjoint(targets):
                found.update(targets)
    return frozenset(found)


def round_of(flow: Flow, cycle: Cycle, first: str) -> list[Firing]:
    """A shortest path of firings once round the cycle."""
    came: dict[str, Firing] = {}
    pending = [first]
    for step in pending:
        for departure in flow.departures[step]:
            for target in cycle.intersection(flow.targets(step, departure)):
                if target not in came:
                    came[target] = firing_of(flow, step, departure, repeats=True)
                    pending.append(target)
    way = [came[first]]
    while way[-1].step != first:
        way.append(came[way[-1].step])
    return way[::-1]


_END: Final = ""
_FIXED: Final = frozenset(["workload", "args", "steps", "execution_id", "execution"])
"""Namespaces that stay the same while a pipeline runs."""


def endless_task(step: StepPlan) -> TaskPlan | None:
    """The first reached task of a pipeline from which no rule leads to its end."""
    places = {task.name: index for index, task in enumerate(step.tasks)}
    names = [*places, _END]
    arcs = {task.name: list(_next_tasks(task, places, names[places[task.name] + 1])) for task in step.tasks}
    reached, ending = reach(names[:1], arcs), reach([_END], reversed_arcs(arcs))
    return next((task for task in step.tasks if task.name in reached and task.name not in ending), None)


def _next_tasks(task: TaskPlan, places: dict[str, int], following: str) -> Iterator[str]:
    """The tasks that may follow a task, except after a failure that no rule names."""
    rules = task.policy.rules if task.policy else ()
    repeats = task.origin and any(rule.guard and _is_fixed(rule.guard) for rule in rules)
    for rule in rules:
        holds = Facts().value(rule.guard)
        to = {"jump": rule.to, "continue": following, "retry": following}.get(rule.do) or _END
        is_back = to in places and places[to] <= places[task.name]
        if holds is not False and (is_back or not (repeats and task.name.endswith("__end"))):
            yield to
        if holds:
            return
    yield following


def _is_fixed(guard: Guard) -> bool:
    """Whether a guard reads data, and only data that is the same in each round."""
    return bool(guard.reads) and all(name in _FIXED for name, _ in guard.reads)


class Arrivals(NamedTuple):
    """The tokens that may wait at a join with a number.

    Attributes:
        wanted: The number of tokens that the join waits for.
        most: The most tokens that may wait there at once, counted up to one more than wanted; infinite after it has
            fired.
        path: A path to that number.
    """

    wanted: int
    most: float
    path: list[Firing]


def prove(plan: Plan, steps: list[StepDraft], problems: Problems) -> None:
    """Reports the findings about a plan by its net. The plan must have no errors."""
    questions = Inquiry()
    joins: dict[str, Arrivals] = {}
    failing: dict[str, Arrivals] = {}
    while True:
        reached = reach_of(plan, frozenset(failing))
        joins |= {name: found for name in reached.arrived if (found := _bounded_arrivals(reached, name, questions))}
        fewer = {name: arrivals for name, arrivals in joins.items() if arrivals.most < arrivals.wanted}
        if fewer.keys() <= failing.keys():
            break
        failing = fewer
    proof = _Proof(reached, {step.name: step for step in steps}, questions, problems)
    for step, arrivals in failing.items():
        proof.report_join(step, arrivals)
    proof.report_unreached()
    proof.report_endless_rounds()
    for cycle in cycles_of(reached):
        proof.report_endless(cycle)
        proof.report_piling_up(cycle)
    proof.report_competing([name for name, arrivals in joins.items() if arrivals.most <= arrivals.wanted])
    if not reached.is_complete:
        questions.unanswered.append("which guards hold before the steps that set what they read")
    if questions.unanswered:
        names = list(dict.fromkeys(questions.unanswered))
        more = [f"and {len(names) - MAX_LISTED} more"] if len(names) > MAX_LISTED else []
        unexplored = "; ".join([*names[:MAX_LISTED], *more])
        message = f"not explored within max_firings, max_transitions and max_counting: {unexplored}"
        problems.warn("not_explored", message, steps[0].at, "move part of the workflow to another playbook")


def _bounded_arrivals(reached: Reached, name: str, questions: Inquiry) -> Arrivals | None:
    """The tokens that may wait at the join of a step; an arc with a constant key of ``dedupe`` sends one."""
    plan = reached.flow.plan
    wanted = plan.steps[name].join
    if isinstance(wanted, int):
        arcs = (arc for step in plan.steps.values() if step.name in reached.arrived for arc in step.arcs)
        specs = [arc.spec for arc in arcs if arc.step == name]
        sends_once = all(spec is not None and spec.dedupe is not None and spec.dedupe.is_constant for spec in specs)
        most = len(specs) + (plan.entry == name)
        if sends_once and most < wanted:
            return Arrivals(wanted, most, [])
    return _count_arrivals(reached, name, questions)


def _count_arrivals(reached: Reached, name: str, questions: Inquiry) -> Arrivals | None:
    """The tokens that may wait at the join of a step; ``None`` for a join without a number, or without an answer."""
    wanted = reached.flow.plan.steps[name].join
    if not isinstance(wanted, int):
        return None
    arrivals, is_complete = Arrivals(wanted, 0, []), False
    explored = questions.arrivals(reached, name, f"how many tokens reach the join of `{name}`")
    for tokens, exploration in explored:
        here = {place.phase: count for place, count in tokens.items() if place.step == name}
        if here.keys() & {"run", "gate"} or here.get("join", 0) > wanted:
            return Arrivals(wanted, OMEGA, [])
        if here.get("join", 0) > arrivals.most:
            arrivals = Arrivals(wanted, here["join"], firings(exploration.path_to(tokens)))
    else:
        is_complete = arrivals.most > 0 and exploration.is_complete
    return arrivals if is_complete else None


class _Proof(msgspec.Struct, frozen=True):
    """Reports findings about the reached steps."""

    reached: Reached
    steps: Mapping[str, StepDraft]
    questions: Inquiry
    problems: Problems

    def report_join(self, name: str, arrivals: Arrivals) -> None:
        step = self.steps[name]
        assert step.join is not None
        wanted = f"it waits for {step.join.tokens} tokens, and at most {arrivals.most:g} can arrive"
        hint = "its runs fail with join_unsatisfied; write join: all for as many as arrive"
        message = f"the join of `{name}` never fires: {wanted}"
        self.problems.warn("join_never_fires", message, step.join.at, hint, arrivals.path)

    def report_unreached(self) -> None:
        """Reports closed admissions, and steps that no run reaches although arcs lead to them."""
        flow, arrived = self.reached.flow, self.reached.arrived
        for name in arrived:
            if flow.admits[name] is False and not self.problems.is_truncated:
                self._report_closed(name)
        arcs = arcs_of(self.steps.values())
        before = reversed_arcs(arcs)
        nearest = _nearest_starts(arrived, arcs)
        for name in sorted(nearest.keys() - arrived.keys()):
            if self.problems.is_truncated:
                break
            running = [source for source in before[name] if source in self.reached.runs]
            why = f"it comes only after {list_names(dict.fromkeys(before[name]))}"
            if running:
                line = next(arc.line for arc in flow.plan.steps[running[0]].arcs if arc.step == name)
                if self.problems.has_said("no_effect", line):
                    continue  # it follows from the arc
                why = f"the arc of `{running[0]}` on line {line} never fires"
            hint = "correct the guards of the arcs that lead there, or remove the step"
            message, path = f"no run reaches step `{name}`: {why}", self.reached.path_to(nearest[name])
            self.problems.warn("unreachable_step", message, self.steps[name].at, hint, path)

    def _report_closed(self, name: str) -> None:
        policy = self.reached.flow.plan.steps[name].admit
        assert policy is not None
        message = f"nothing in this playbook opens the admission of `{name}`: every token is held, then "
        ends = "the step fails" if policy.wait is not None and policy.wait.on_timeout == "fail" else "it is discarded"
        hint = "let an earlier step set what its rules read; for what comes from outside, add `admit.wait`"
        at = self.steps[name].at
        self.problems.warn("admission_never_opens", message + ends, at, hint, self.reached.path_to(name))

    def report_endless(self, cycle: Cycle) -> None:
        """Reports a cycle that a token never leaves."""
        flow = self.reached.flow
        if has_exit(flow, cycle):
            return
        first = next(step for step in self.reached.arrived if step in cycle)
        around = round_of(flow, cycle, first)
        steps = " → ".join([*(f"`{firing.step}`" for firing in around), f"`{first}`"])
        message = f"the cycle {steps} has no exit: only a failure, a cancel or a timeout ends it"
        hint = "give an arc that leads back a guard, or add an arc out of the cycle before it"
        path = [*self.reached.path_to(first), *around]
        self.problems.warn("endless_cycle", message, self.steps[first].at, hint, path)

    def report_endless_rounds(self) -> None:
        """Reports pipelines that jump back for ever."""
        plan = self.reached.flow.plan
        for name in self.reached.arrived:
            step = plan.steps[name]
            task = endless_task(step) if plan.timeout_s is None and step.timeout_s is None else None
            if task is not None:
                at = self.steps[name].tasks[step.tasks.index(task)].at
                shown = task.origin or f"task `{task.name}`"
                message = f"the rounds of {shown} have no exit: only a failure, a cancel or a timeout ends them"
                hint = "let a guard read what a round changes, break in a rule, or write lifecycle: { timeout_s: 600 }"
                self.problems.warn("endless_cycle", message, at, hint, self.reached.path_to(name))

    def report_piling_up(self, cycle: Cycle) -> None:
        """Reports a cycle in which each round leaves tokens behind."""
        left = steps_outside(self.reached.flow, cycle)
        if not left:
            return
        question = f"whether tokens pile up in the cycle of {list_names(sorted(cycle))}"
        for _, exploration in self.questions.markings(self.reached, cycle | left, question):
            growth = exploration.growth
            if growth is not None:
                again = [replace(firing, repeats=True) for firing in firings(growth.cycle)]
                names = list(dict.fromkeys(place.step for place in growth.places))
                message = f"tokens can pile up at {list_names(names)} without bound: each round of the cycle adds one"
                hint = "join the branches before the arc that leads back, or guard it so that the rounds end"
                at = self.steps[again[0].step].at
                self.problems.warn("tokens_pile_up", message, at, hint, [*firings(growth.path), *again])
                return

    def report_competing(self, merging: Collection[str]) -> None:
        """Reports steps that set the same key of ``ctx`` and may be concurrent: fold order decides (LANGUAGE §5).

        Args:
            merging: Steps whose join waits for all tokens that can arrive.
        """
        contested = {name: by_step for name, by_step in keys_set(self.steps.values()).items() if len(by_step) > 1}
        wanted = {name for by_step in contested.values() for name in by_step}
        together = concurrent_steps(list(self.steps.values()), wanted, merging)
        paths: dict[tuple[str, str], list[Firing] | None] = {}
        for name, by_step in contested.items():
            earlier = 0
            for step, key in by_step.items():
                for other in together.concurrent_with(step, earlier):
                    if self.questions.is_over:
                        self.questions.unanswered.append("which other steps may set a key at the same time")
                        return
                    if (other, step) not in paths:
                        paths[other, step] = self._path_to_both(other, step)
                    if (path := paths[other, step]) is not None:
                        both = f"`{other}` and `{step}` may run at the same time and both set `ctx.{name}`"
                        hint = "set different keys, run the steps in sequence, or use set_shared in both"
                        self.problems.warn("competing_writes", f"{both}: the last one wins", key, hint, path)
                        break
                earlier |= together.own[step]

    def _path_to_both(self, one: str, other: str) -> list[Firing] | None:
        question = f"whether `{one}` and `{other}` may run at the same time"
        for tokens, exploration in self.questions.markings(self.reached, [one, other], question):
            if {one, other} <= {place.step for place in tokens if place.phase == "run"}:
                return firings(exploration.path_to(tokens))
        return None


def _nearest_starts(starts: Iterable[str], arcs: Arcs) -> dict[str, str]:
    """The start from which the fewest arcs lead to each step."""
    nearest = {start: start for start in starts}
    pending = list(nearest)
    for step in pending:
        for target in arcs[step]:
            if target not in nearest:
                nearest[target] = nearest[step]
                pending.append(target)
    return nearest
