"""``advance``: fold one fact, decide, fold the decisions, until nothing follows; then say what the outside must do.

    after = evolve(state, fact)
    return (after, *decide(after, fact)) if after is not state else (state, (), ())

No change, no consequence (DESIGN §3). Decisions are facts too: each is folded before the next is decided.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from noetl_stream.engine.decide.client_requests import is_redundant, rejection_of
from noetl_stream.engine.decide.dispatch import decide
from noetl_stream.engine.decide.pending import pending_decisions
from noetl_stream.engine.decide.quiescence import move_on, retry_held
from noetl_stream.engine.decide.start import refuse
from noetl_stream.engine.effects import Effect
from noetl_stream.engine.effects.collect import effects_of
from noetl_stream.engine.evolve.dispatch import evolve
from noetl_stream.engine.evolve.run_lease import classify
from noetl_stream.engine.evolve.worker_facts import misfit
from noetl_stream.engine.state import Execution, RecordedFact
from noetl_stream.model.events import (
    ClientRequest,
    ExecutionFailing,
    Fact,
    ReferenceAwaited,
    TaskProcessed,
    TaskStarted,
)
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.model.rejection import Rejection
from noetl_stream.playbook.plan import Plan
from noetl_stream.template import ReferenceNeeded

_Seen: TypeAlias = tuple[object, object]


class Advanced(NamedTuple):
    """What an input led to.

    Attributes:
        taken: Whether it changed the state; then it stands in the journal, before ``journal``.
        journal: The decisions, in fold order.
        effects: What the outside must do once all of it is committed.
        refusal: Why it was not taken, of a request or a worker's fact.
    """

    state: Execution | None
    taken: bool
    journal: Sequence[Fact]
    effects: Sequence[Effect] = ()
    refusal: Rejection | NotTaken | None = None


class InvalidPlan(NamedTuple):
    """In place of a plan: why the playbook of a request cannot run."""

    reason: str
    diagnostics: list[dict[str, Any]]


def advance(plan: Plan | InvalidPlan, state: Execution | None, recorded: RecordedFact, execution_id: str) -> Advanced:
    """The state after an input, the decisions that followed from it, and their effects.

    Args:
        plan: The compiled playbook the state is pinned to, or why the requested one cannot run.
        state: ``None`` before ``execution.requested``.
        recorded: A reported fact, or one the server hands in (``step.scheduled`` with a higher issue).
    """
    runnable = None if isinstance(plan, InvalidPlan) else plan
    if state is not None and runnable is not None and isinstance(recorded.fact, ClientRequest):
        refusal = refuse_request(runnable, state, recorded.fact)
        if refusal is not None:
            return Advanced(state, False, (), refusal=refusal)
    after = evolve(state, recorded, execution_id)
    if after is state or after is None:
        return Advanced(state, False, (), refusal=why_not_taken(state, recorded))
    if _is_quiet(recorded.fact):
        return Advanced(after, True, ())
    if isinstance(plan, InvalidPlan):
        settled, journal = _settle(None, after, deque(refuse(plan.diagnostics, plan.reason)), _seen(after))
    else:
        follows = _asked(decide, plan, after, recorded.fact)
        catching_up = recorded.fact.kind.ends_halt
        tried = None if state is None or catching_up else _seen(state)
        settled, journal = _settle(plan, after, deque(follows), tried, catching_up)
    return Advanced(settled, True, journal, effects_of(runnable, state, settled, (recorded.fact, *journal)))


def _settle(
    plan: Plan | None, state: Execution, pending: deque[Fact], tried: _Seen | None, catching_up: bool = False
) -> tuple[Execution, Sequence[Fact]]:
    """Folds what is pending, and what follows, until nothing does.

    Args:
        tried: What admission saw when the held tokens were last tried; ``None``: they may have been neglected.
        catching_up: Whether decisions were left out so far, because the execution was halted.
    """
    journal: list[Fact] = []
    steps = 0
    while True:
        if plan is not None and (tried is None or tried[0] is not state.ctx or tried[1] is not state.steps):
            # Older held tokens go before what is newly routed.
            again = _asked(retry_held, plan, state)
            pending.extendleft(reversed(again))
            tried = tried if again else _seen(state)
        if not pending and plan is not None:
            if catching_up and (left_out := _asked(pending_decisions, plan, state)):
                steps = 0
                pending.extend(left_out)
            else:
                pending.extend(_asked(move_on, plan, state))
        if not pending:
            return state, journal
        fact = pending.popleft()
        after = evolve(state, RecordedFact(fact), state.execution_id)
        if after is state or after is None:
            continue
        state = after
        journal.append(fact)
        if fact.kind.ends_halt:
            catching_up, tried = True, None
        if not fact.kind.bounded:
            steps += 1
            if steps == state.limits.max_decisions_per_fact and not (state.ending or state.ended):
                pending.appendleft(_endless(state))
                continue
        if plan is not None:
            pending.extend(_asked(decide, plan, state, fact))


def _is_quiet(fact: Fact) -> bool:
    """Whether nothing can follow from it in a state that was at rest: what a worker says most often."""
    if type(fact) is TaskProcessed:
        return not (fact.set_ctx or fact.set_shared)
    return type(fact) is TaskStarted


def _seen(state: Execution) -> _Seen:
    """What admission guards read, apart from what never changes."""
    return state.ctx, state.steps


def _asked(decision: Callable[..., Sequence[Fact]], plan: Plan, state: Execution, *fact: Fact) -> Sequence[Fact]:
    """The decision; or, if it reads a result kept by reference, that this is awaited first (PROTOCOL §2)."""
    try:
        return decision(plan, state, *fact)
    except ReferenceNeeded as needed:
        return (ReferenceAwaited(needed.reference),)


def _endless(state: Execution) -> Fact:
    text = f"one fact led to limits.max_decisions_per_fact ({state.limits.max_decisions_per_fact}) decisions: a cycle"
    return ExecutionFailing(ErrorInfo("limit_exceeded", text))


class NotTaken(NamedTuple):
    """Why a fact changes nothing.

    ``redundant``: what is asked is so already. ``duplicate``, ``gap``, ``stale``, ``unknown``: see
    :func:`.classify_report`. ``misfit``: no fact of its command; ``text`` says why.
    """

    code: Literal["redundant", "duplicate", "gap", "stale", "unknown", "misfit"]
    text: str = ""


def refuse_request(plan: Plan, state: Execution, fact: ClientRequest) -> Rejection | NotTaken | None:
    """Why an execution does not take a request now; ``None`` if it does."""
    return rejection_of(plan, state, fact) or (NotTaken("redundant") if is_redundant(state, fact) else None)


def why_not_taken(state: Execution | None, recorded: RecordedFact) -> NotTaken | None:
    """Why ``evolve`` has not taken a worker's fact; ``None`` for any other fact."""
    if recorded.run is None:
        return None
    standing = classify(state, recorded)
    if standing != "next":
        return NotTaken(standing)
    reason = misfit(state, recorded) if state is not None else ""
    return NotTaken("misfit", reason) if reason else None
