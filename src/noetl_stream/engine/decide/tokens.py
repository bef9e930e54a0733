"""Decisions about tokens: they join, are admitted, and are consumed by a step run (LANGUAGE §4, §7, formal
specification §4.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noetl_stream.engine.choices import Choice, choice_outcome, is_current
from noetl_stream.engine.decide import Rules
from noetl_stream.engine.decide.joins import arrive, fire_if_enough, refusal_of
from noetl_stream.engine.decide.loops import open_loop
from noetl_stream.engine.decide.slots import ask_for_run
from noetl_stream.engine.scope import admission_scope, expression_failure
from noetl_stream.engine.state import Chosen, Execution, StepRun, WaitingToken, due_ms
from noetl_stream.model import events
from noetl_stream.model.events import Evaluated, EvaluatedGuard, Fact, TimerSet, Token
from noetl_stream.model.ids import command_of, step_run_of, timer_of
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.plan import AdmitPlan, Plan


def enter(plan: Plan, state: Execution, token: Token) -> Sequence[Fact]:
    """Handles a token that has reached its step: it joins, or asks for admission; its deadline starts here."""
    step = plan.steps[token.step]
    facts: Sequence[Fact] = ()
    if step.join is not None and not _is_past_the_join(token):
        facts = (arrive(plan, state, token),)
    elif (waiting := state.tokens.get(token.token_id)) is not None:
        refused = refusal_of(plan, state, token) if _is_past_the_join(token) else None
        facts = admit(plan, state, waiting) if refused is None else (claim(state, token.token_id, refused=refused),)
    timer_id = timer_of(token.token_id, "deadline")
    if step.deadline_s is None or timer_id in state.timers:
        return facts
    due = due_ms(state.at_ms, step.deadline_s)
    return (TimerSet(timer_id, "deadline", due, token.token_id), *facts)


def _is_past_the_join(token: Token) -> bool:
    """Whether a join has merged the token, or a rerun has placed it where a step run was."""
    return token.cause in ("join", "rerun")


def admit(plan: Plan, state: Execution, waiting: WaitingToken) -> Sequence[Fact]:
    """Admits a waiting token: ``token.claimed``, or ``token.held`` (once) with a timer if it may wait; nothing for a
    token that stays held.

    A guard that cannot be evaluated fails the execution (LANGUAGE §2).

    Raises:
        ReferenceNeeded: a guard reads a result that must be loaded first.
        EvaluationNeeded: the guards cost more than the server may spend on them here.
    """
    token = waiting.token
    policy = plan.steps[token.step].admit
    guards: list[EvaluatedGuard] = []
    if policy is not None:

        def is_valid(chosen: Chosen) -> bool:
            return is_allowed(policy, chosen.evaluated) or is_current(state, chosen)

        evaluated = choice_outcome(state, token.token_id, lambda: admission_of(plan, state, token, policy), is_valid)
        if evaluated.error:
            failure = expression_failure(f"admission of {token.step}", evaluated.error)
            return (events.ExecutionFailing(failure, token.step, failed_token=token.token_id),)
        guards = [
            EvaluatedGuard(
                rule.guard.source if rule.guard is not None else "else", held, index, evaluated.waits_for.get(index, "")
            )
            for index, (rule, held) in enumerate(zip(policy.rules, evaluated.guards, strict=False))
        ]
        if not is_allowed(policy, evaluated):
            return () if waiting.held else _hold(state, policy, token, guards)
    if state.step_runs >= state.limits.max_step_runs:
        reached = ErrorInfo("limit_exceeded", f"limits.max_step_runs ({state.limits.max_step_runs}) reached")
        return (events.ExecutionFailing(reached, token.step, failed_token=token.token_id),)
    return (claim(state, token.token_id, guards),)


def claim(
    state: Execution, token_id: str, guards: Sequence[EvaluatedGuard] = (), refused: ErrorInfo | None = None
) -> Fact:
    """Claims the token for a new step run; with ``refused`` that fails at once."""
    return events.TokenClaimed(token_id, step_run_of(state.execution_id, token_id), list(guards), refused)


def _hold(state: Execution, policy: AdmitPlan, token: Token, guards: list[EvaluatedGuard]) -> Sequence[Fact]:
    held = events.TokenHeld(token.token_id, guards, keeps_alive=policy.wait is not None)
    if policy.wait is None:
        return (held,)
    due = due_ms(state.at_ms, policy.wait.timeout_s)
    return (held, TimerSet(timer_of(token.token_id, "admission"), "admission", due, token.token_id))


def admission_of(plan: Plan, state: Execution, token: Token, policy: AdmitPlan) -> Choice:
    """The choice of the policy rule that admits or refuses the token: the first that holds."""
    return Choice(policy.rules, admission_scope(plan, state, token), waits=policy.wait is not None)


def is_allowed(policy: AdmitPlan, evaluated: Evaluated) -> bool:
    """Whether the rule that holds allows the token; without such a rule, it is refused."""
    return bool(evaluated.guards) and evaluated.guards[-1] and policy.rules[len(evaluated.guards) - 1].allow


def begin(plan: Plan, state: Execution, run: StepRun) -> Sequence[Fact]:
    """Begins a step run: its loop opens, its command is issued, or it is done (a step without tasks). A step run that
    needs a slot first asks for it, and begins when it is granted.
    """
    if run.refused is not None:
        return (events.StepFailed(run.step_run_id, run.refused),)
    step = plan.steps[run.step]
    if step.limit is not None and (asked := ask_for_run(plan, state, run, step.limit)) is not None:
        return asked
    if step.loop is not None:
        return open_loop(plan, state, run, step.loop)
    if not step.tasks:
        return (events.StepDone(run.step_run_id),)
    return (events.StepScheduled(run.step_run_id, command_of(run.step_run_id)),)


def _on_enqueued(plan: Plan, state: Execution, fact: events.TokenEnqueued) -> Sequence[Fact]:
    if state.ending:
        return (events.TokenDiscarded(fact.token.token_id, "the execution is ending"),)
    beside = fire_if_enough(plan, state, fact.token.step) if fact.joined else ()
    return (*enter(plan, state, fact.token), *beside)


def _on_joined(plan: Plan, state: Execution, fact: events.TokenJoined) -> Sequence[Fact]:
    waiting = state.tokens.get(fact.token_id)
    return () if waiting is None or state.ending else fire_if_enough(plan, state, waiting.token.step)


def _on_claimed(plan: Plan, state: Execution, fact: events.TokenClaimed) -> Sequence[Fact]:
    return begin(plan, state, state.runs[fact.step_run_id])


RULES: Final[Rules] = {
    events.TokenEnqueued: _on_enqueued,
    events.TokenJoined: _on_joined,
    events.TokenClaimed: _on_claimed,
}
