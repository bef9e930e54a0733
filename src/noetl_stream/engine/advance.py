"""``advance``: fold a fact, decide, fold the decisions, until nothing follows; return the effects.

    after = evolve(state, fact)
    return (after, *decide(after, fact)) if after is not state else (state, (), ())

A fact that changes nothing has no consequences (DESIGN §3). Decisions are facts too: each is folded before the next
is decided.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from noetl_stream.engine.choices import EvaluationNeeded
from noetl_stream.engine.decide import Rules, executions, routing, suspensions, tokens
from noetl_stream.engine.decide.executions import is_redundant, refuse, rejection_of, while_unloaded
from noetl_stream.engine.decide.quiescence import finish, move_on, pending_decisions, retry_waiting
from noetl_stream.engine.decide.quotas import exceeded
from noetl_stream.engine.effects import Effect, effects_of
from noetl_stream.engine.evolve.dispatch import evolve, evolve_decision
from noetl_stream.engine.evolve.step_runs import classify
from noetl_stream.engine.evolve.tokens import enter_step
from noetl_stream.engine.evolve.worker_facts import misfit
from noetl_stream.engine.state import UNSETTLED, Execution, RecordedFact
from noetl_stream.model import events
from noetl_stream.model.events import (
    ExecutionFinished,
    ExecutionStarted,
    Fact,
    NextEvaluated,
    PlaybookProcessed,
    StepScheduled,
    TokenClaimed,
    TokenEnqueued,
)
from noetl_stream.model.events.composite import TokenPassed
from noetl_stream.model.ids import command_of, step_run_of
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.model.status import Rejection, RejectionCode
from noetl_stream.playbook.plan import Plan
from noetl_stream.template import ReferenceNeeded

Settled = tuple[Execution, Sequence[Fact]]
"""A quiescent state, and the decisions that led to it."""

_MOST_DECISIONS: Final = 5


def decide_straight(plan: Plan, state: Execution, follows: Sequence[Fact]) -> Settled | None:
    """The outcome of the straight path from ``follows``; ``None`` if only the general path can take these decisions."""
    if state.tokens or state.resting or state.suspensions or state.children or state.slots or plan.quotas is not None:
        return None
    if len(follows) == 3 and type(follows[1]) is ExecutionStarted:
        return _start(plan, state, *follows)
    if len(follows) != 1 or len(state.runs) != 1 or state.limits.max_decisions_per_fact <= _MOST_DECISIONS:
        return None
    (fact,) = follows
    if type(fact) is TokenPassed:
        is_watched = plan.steps[fact.step].timeout_s is not None
        return None if is_watched else (evolve_decision(state, fact), follows)
    return _end(plan, state, fact) if type(fact) is NextEvaluated else None


def _start(plan: Plan, state: Execution, evaluated: Fact, started: Fact, enqueued: Fact) -> Settled | None:
    """Starts the execution: admits its first token and issues the command of its step."""
    if type(enqueued) is not TokenEnqueued or enqueued.token.cause != "start":
        return None
    token, limits = enqueued.token, plan.limits
    is_open = plan.steps[token.step].admits_at_once and limits.max_step_runs > 0
    if not is_open or limits.max_decisions_per_fact <= _MOST_DECISIONS:
        return None
    state = evolve_decision(evolve_decision(state, evaluated), started)
    step_run_id = step_run_of(state.execution_id, token.token_id)
    claimed = TokenClaimed(token.token_id, step_run_id)
    scheduled = StepScheduled(step_run_id, command_of(step_run_id))
    after = enter_step(state, token, {}, claimed_at=state.position + 2)
    return replace(after, position=state.position + 3), (evaluated, started, enqueued, claimed, scheduled)


def _end(plan: Plan, state: Execution, evaluated: NextEvaluated) -> Settled | None:
    """Ends the execution: its only token has reached the end of a playbook whose result needs no template."""
    if evaluated.fired or plan.result is not None or plan.closes:
        return None
    state = evolve_decision(state, evaluated)
    (finished,) = finish(plan, state)
    assert type(finished) is ExecutionFinished
    processed = PlaybookProcessed(finished.status)
    return evolve_decision(evolve_decision(state, finished), processed), (evaluated, finished, processed)


_Inputs: TypeAlias = tuple[object, object]

_BEGINS_TO_WAIT: Final = (events.TokenHeld, events.NextResting)
"""Facts that the last retry did not include while they are pending: its guards were evaluated before them."""


class Advanced(msgspec.Struct, frozen=True, gc=False):
    """The result of advancing an execution by one input.

    Attributes:
        taken: Whether the input changed the state. If so, it precedes ``journal`` in the journal.
        journal: The decisions, in fold order.
        effects: The effects that the server carries out once the tick is committed.
        refusal: The reason for refusing a request or a worker's fact.
    """

    state: Execution | None
    taken: bool
    journal: Sequence[Fact]
    effects: Sequence[Effect] = ()
    refusal: Rejection | NotTaken | None = None


class InvalidPlan(NamedTuple):
    """A placeholder for the plan of a playbook that cannot run. ``kind`` is also the code of the answer."""

    reason: str
    diagnostics: list[dict[str, Any]]
    kind: RejectionCode = "invalid_playbook"


class Unloaded:
    """A placeholder for a plan that is still being loaded: until then the execution decides nothing else."""


UNLOADED: Final = Unloaded()


def advance(
    plan: Plan | InvalidPlan | Unloaded,
    state: Execution | None,
    recorded: RecordedFact,
    execution_id: str,
    *,
    shares_budget: bool = False,
) -> Advanced:
    """The state after an input, with the decisions that follow and their effects.

    Args:
        plan: The compiled playbook of the execution, or a placeholder.
        state: ``None`` before ``execution.requested``.
        recorded: A reported fact, or one from the server (``step.scheduled`` with a higher issue).
        shares_budget: Whether its decisions use the rest of the preceding fact's template budget; the facts of one
            report share a budget.
    """
    runnable = plan if isinstance(plan, Plan) else None
    fact = recorded.fact if recorded.run is None and not isinstance(plan, InvalidPlan) else None
    if state is not None and isinstance(fact, events.ClientRequest):
        rejection = rejection_of(runnable, state, fact)
        if rejection is not None or is_redundant(state, fact):
            return Advanced(state, False, (), refusal=rejection or NotTaken("redundant"))
    after = evolve(state, recorded, execution_id)
    if after is state or after is None:
        return Advanced(state, False, (), refusal=why_not_taken(state, recorded))
    if runnable is not None and not shares_budget:
        limits = runnable.limits if after.status == "pending" else after.limits
        after.budget.refill(limits.max_inline_operations)
    if _has_no_consequences(state, after, recorded.fact):
        return Advanced(after, True, ())
    if isinstance(plan, Plan):
        follows = routing.pass_on(plan, after, _decide_or_await(decide, plan, after, recorded.fact))
        catching_up = recorded.fact.kind.ends_halt and (state is None or state.halted)
        found = None if catching_up else decide_straight(plan, after, follows)
        if found is None:
            found = _settle(plan, after, deque(follows), state, catching_up)
        settled, journal = found
    elif isinstance(plan, InvalidPlan):
        settled, journal = _settle(None, after, deque(refuse(plan.diagnostics, plan.reason, plan.kind)), None)
    else:
        settled, journal = _settle(None, after, deque(while_unloaded(after, recorded.fact)), None)
    return Advanced(settled, True, journal, effects_of(runnable, state, settled, (recorded.fact, *journal)))


def _settle(
    plan: Plan | None, state: Execution, pending: deque[Fact], before: Execution | None, catching_up: bool = False
) -> tuple[Execution, Sequence[Fact]]:
    """Folds the pending facts and everything that follows from them.

    Args:
        before: The state before the fact; nothing followed from it unless the execution was halted.
        catching_up: Whether decisions were skipped because the execution was halted.
    """
    journal: list[Fact] = []
    tried: _Inputs | None = None  # the inputs of the guards at the last retry
    settled = UNSETTLED
    if before is not None and not before.halted:
        tried, settled = _admission_inputs(before), before
    steps = 0
    ahead = 0  # pending facts of the last retry; they are folded first
    # A decision is made once in a state: if it changes nothing, it would be made for ever.
    retried_in: Execution | None = None
    moved_in: Execution | None = None
    while True:
        changed = tried is None or tried[0] is not state.ctx or tried[1] is not state.steps
        if plan is not None and changed and not ahead and state is not retried_in:
            # Held tokens and resting branches are retried before newly routed tokens.
            retried = _decide_or_await(retry_waiting, plan, state) if state.tokens or state.resting else ()
            pending.extendleft(reversed(retried))
            ahead = len(retried)
            retried_in = state if retried else None
            if not retried and not (pending and any(isinstance(one, _BEGINS_TO_WAIT) for one in pending)):
                tried = _admission_inputs(state)
        if not pending and plan is not None and state is not moved_in:
            moved_in = state
            if catching_up and (undecided := _decide_or_await(pending_decisions, plan, state)):
                steps = 0
                pending.extend(undecided)
            else:
                pending.extend(_decide_or_await(move_on, plan, state, settled))
        if not pending:
            return state, journal
        fact = pending.popleft()
        ahead -= ahead > 0
        after = evolve_decision(state, fact)
        if after is state:
            continue
        ends_halt = fact.kind.ends_halt and state.halted
        state = after
        journal.append(fact)
        if ends_halt:
            catching_up, tried, settled = True, None, UNSETTLED
        if not fact.kind.bounded:
            steps += 1
            if steps == state.limits.max_decisions_per_fact and not (state.ending or state.ended):
                pending.appendleft(_too_many_decisions(state))
                continue
        if plan is not None and type(fact) in RULES:
            pending.extend(_decide_or_await(decide, plan, state, fact))


def _has_no_consequences(before: Execution | None, state: Execution, fact: Fact) -> bool:
    """Whether the fact, like most reports, has no consequences in the state, which was quiescent before it."""
    if type(fact) is events.TaskProcessed:
        slots_end = before is None or before.slots is not state.slots
        return not (fact.set_ctx or fact.set_shared or fact.set_label or slots_end or exceeded(state))
    return type(fact) is events.TaskStarted


def _admission_inputs(state: Execution) -> _Inputs:
    """The ``ctx`` and ``steps`` that guards of admission and arcs read."""
    return state.ctx, state.steps


def _decide_or_await(
    decision: Callable[..., Sequence[Fact]], plan: Plan, state: Execution, *given: object
) -> Sequence[Fact]:
    """Makes a decision, or waits for what it needs first: a result by reference, evaluated templates (PROTOCOL §2)."""
    try:
        return decision(plan, state, *given)
    except ReferenceNeeded as needed:
        return (events.ReferenceAwaited(needed.reference),)
    except EvaluationNeeded as needed:
        return (events.EvaluationAwaited(list(needed.choices)),)


def _too_many_decisions(state: Execution) -> Fact:
    text = f"one fact led to limits.max_decisions_per_fact ({state.limits.max_decisions_per_fact}) decisions: a cycle"
    return events.ExecutionFailing(ErrorInfo("limit_exceeded", text))


class NotTaken(NamedTuple):
    """The reason why a fact changes nothing in the execution.

    ``redundant``: the request asks for the present state. ``duplicate``, ``gap``, ``stale``, ``unknown``: see
    :func:`.classify`. ``misfit``: the fact does not belong to its command; ``text`` says why.
    """

    code: Literal["redundant", "duplicate", "gap", "stale", "unknown", "misfit"]
    text: str = ""


def why_not_taken(state: Execution | None, recorded: RecordedFact) -> NotTaken | None:
    """The reason why ``evolve`` ignored a worker's fact; ``None`` for any other fact."""
    if recorded.run is None:
        return None
    classification = classify(state, recorded)
    if classification != "next":
        return NotTaken(classification)
    reason = misfit(state, recorded) if state is not None else ""
    return NotTaken("misfit", reason) if reason else None


RULES: Final[Rules] = {**executions.RULES, **tokens.RULES, **suspensions.RULES, **routing.RULES}
"""The decision rules by kind of fact. Consequences of other kinds are found at quiescence."""


def decide(plan: Plan, state: Execution, fact: Fact) -> Sequence[Fact]:
    """The facts that follow from ``fact``, in the state that already holds it."""
    rule = RULES.get(type(fact))
    if rule is None or state.processed or (state.halted and not fact.kind.through_halt):
        return ()
    return rule(plan, state, fact)
