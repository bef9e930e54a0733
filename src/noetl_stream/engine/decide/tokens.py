"""Decisions about tokens: they join, are admitted, and are consumed by a step run (LANGUAGE §4, §7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from noetl_stream.engine.attributes import attributes_of
from noetl_stream.engine.choices import Choice, choice_outcome, is_current
from noetl_stream.engine.decide import Rules
from noetl_stream.engine.decide.emission import emit
from noetl_stream.engine.decide.loops import open_loop
from noetl_stream.engine.decide.quotas import exceeded, failure_of, on_exceeded
from noetl_stream.engine.decide.slots import ask_for_run, ask_for_turn
from noetl_stream.engine.scope import admission_scope, expression_failure
from noetl_stream.engine.state import Chosen, Execution, StepRun, WaitingToken, due_ms
from noetl_stream.model import events
from noetl_stream.model.events import (
    Evaluated,
    EvaluatedGuard,
    Fact,
    TimerSet,
    Token,
    TokenAbsorbed,
    TokenDiscarded,
    TokenEnqueued,
    TokenJoined,
)
from noetl_stream.model.ids import command_of, derive, step_run_of, timer_of
from noetl_stream.model.json import codec
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.plan import AdmitPlan, AdmitRule, Plan
from noetl_stream.template import Scope


def arrive(plan: Plan, state: Execution, token: Token) -> Fact:
    """Decides the fate of a token that has reached a step with a join."""
    if plan.steps[token.step].join != "all" and _is_late(state, token):
        return _absorb(token)
    return TokenJoined(token.token_id)


def fire_if_enough(plan: Plan, state: Execution, step: str) -> Sequence[Fact]:
    """Fires an ``any`` or ``<n>`` join once enough tokens have arrived; surplus tokens are absorbed."""
    join = plan.steps[step].join
    wanted = 1 if join == "any" else join
    if not isinstance(wanted, int):
        return ()
    tokens = _tokens_at(state, step)
    if step in state.waves and (late := [token for token in tokens if _is_late(state, token)]):
        return tuple(map(_absorb, late))
    return (_merge(plan, state, step, tokens[:wanted]),) if len(tokens) >= wanted else ()


def fire_complete(plan: Plan, state: Execution) -> Sequence[Fact]:
    """Fires the join with the oldest token that no other live token or step run can reach."""
    waiting = state.tokens.values()
    joins = dict.fromkeys([token.token.step for token in waiting if token.joining])
    if not joins:
        return ()
    live = {token.token.step for token in waiting if not token.joining}
    live |= {run.step for run in state.runs.values()}
    reached = set().union(*[plan.reaches[step] for step in live], *[plan.reaches[step] - {step} for step in joins])
    step = next((step for step in joins if step not in reached), None)
    return () if step is None else (_merge(plan, state, step, _tokens_at(state, step)),)


def break_deadlock(plan: Plan, state: Execution) -> Sequence[Fact]:
    """Breaks a deadlock in which every live token is joining or held: held tokens that could reach a join are
    discarded, then the join with the oldest token fires. Nothing if a token with ``admit.wait`` could still reach it.
    """
    arrived = _tokens_at_joins(state)
    joins = frozenset(arrived)
    discarded = tuple(
        TokenDiscarded(waiting.token.token_id, "a join waits for this token, and nothing left can change its admission")
        for waiting in state.tokens.values()
        if waiting.held and not waiting.keeps_alive and joins & plan.reaches[waiting.token.step]
    )
    if discarded:
        return discarded
    waited = [waiting.token.step for waiting in state.tokens.values() if waiting.keeps_alive]
    for step, tokens in arrived.items():
        if not any(step in plan.reaches[other] for other in waited):
            return (_merge(plan, state, step, tokens),)
    return ()


def refusal_of(plan: Plan, state: Execution, merged: Token) -> ErrorInfo | None:
    """The reason why the step cannot run with the merged token: too few tokens, or args that are too large."""
    arrivals, join = merged.args.get("arrivals"), plan.steps[merged.step].join
    if merged.cause == "rerun" and not isinstance(arrivals, list):
        return None  # a rerun with args of its own, or a step without a join
    if arrivals is None:
        at_most = f"limits.max_ctx_bytes ({state.limits.max_ctx_bytes})"
        return ErrorInfo("limit_exceeded", f"the joined args of step {merged.step} exceed {at_most}")
    if isinstance(join, int) and len(arrivals) < join:
        text = f"{len(arrivals)} of the {join} tokens that step {merged.step} joins have arrived, and no more can"
        return ErrorInfo("join_unsatisfied", text)
    return None


def _is_late(state: Execution, token: Token) -> bool:
    """Whether the join has already fired without this token."""
    return token.waves.get(token.step, 0) < state.waves.get(token.step, 0)


def _absorb(token: Token) -> Fact:
    return TokenAbsorbed(token.token_id, f"the join of {token.step} has fired without it")


def _tokens_at_joins(state: Execution) -> dict[str, list[Token]]:
    """The tokens waiting at joins, by step; steps and tokens in order of arrival."""
    arrived: dict[str, list[Token]] = {}
    for waiting in state.tokens.values():
        if waiting.joining:
            arrived.setdefault(waiting.token.step, []).append(waiting.token)
    return arrived


def _tokens_at(state: Execution, step: str) -> list[Token]:
    return [one.token for one in state.tokens.values() if one.joining and one.token.step == step]


def _merge(plan: Plan, state: Execution, step: str, tokens: list[Token]) -> TokenEnqueued:
    firing = state.waves.get(step, 0) + 1
    waves: dict[str, int] = {}
    for token in tokens:
        for join, wave in token.waves.items():
            waves[join] = max(wave, waves.get(join, 0))
    waves[step] = firing
    token_id = derive(state.execution_id, "join", step, firing)
    args = _merged_args(plan, tokens)
    if len(codec.encode(args)) > state.limits.max_ctx_bytes:
        args = {}
    priority = max((token.priority for token in tokens if token.priority is not None), default=None)
    partition = next((token.partition for token in reversed(tokens) if token.partition), "")
    merged = Token(token_id, step, "join", args, waves=waves, priority=priority, partition=partition)
    return TokenEnqueued(merged, [token.token_id for token in tokens])


def _merged_args(plan: Plan, tokens: list[Token]) -> dict[str, Any]:
    order = {name: index for index, name in enumerate(plan.steps)}
    by_file = sorted(tokens, key=lambda token: order.get(token.from_step or "", -1))
    args: dict[str, Any] = {}
    for token in by_file:
        args |= token.args
    args["by_step"] = {token.from_step: token.args for token in by_file if token.from_step}
    args["arrivals"] = [{"step": token.from_step, "args": token.args} for token in tokens]
    return args


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
    """Whether a join has merged the token, or a rerun has put it in the place of a step run."""
    return token.cause in ("join", "rerun")


def admit(plan: Plan, state: Execution, waiting: WaitingToken) -> Sequence[Fact]:
    """Admits a waiting token: ``token.claimed``, or ``token.held`` (once) with a timer if it may wait; nothing for a
    token that is held already.

    A guard that cannot be evaluated fails the execution (LANGUAGE §2).

    Raises:
        ReferenceNeeded: a guard reads a result that must be loaded first.
        EvaluationNeeded: the guards cost more than the server may spend on them here.
    """
    token = waiting.token
    policy = plan.steps[token.step].admit
    guards: list[EvaluatedGuard] = []
    metadata: dict[str, Any] = {}
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
        metadata = _metadata(policy, evaluated)
        if error := size_error(state, "the metadata of the token has", metadata):
            failure = expression_failure(f"admission of {token.step}", error)
            return (events.ExecutionFailing(failure, token.step, failed_token=token.token_id),)
    if state.step_runs >= state.limits.max_step_runs and state.closing is None:
        reached = ErrorInfo("limit_exceeded", f"limits.max_step_runs ({state.limits.max_step_runs}) reached")
        return (events.ExecutionFailing(reached, token.step, failed_token=token.token_id),)
    step_run_id = step_run_of(state.execution_id, token.token_id)
    tracing = _attributes(plan, state, token) if plan.steps[token.step].tracing else {}
    claimed = events.TokenClaimed(token.token_id, step_run_id, guards, None, metadata or None, tracing)
    quotas = exceeded(state, step_runs=1) if state.usage is not None else ()
    if not quotas:
        return (claimed,)
    if quotas[0].on_exceeded == "fail":
        return (events.ExecutionFailing(failure_of(quotas[0]), token.step, failed_token=token.token_id),)
    return (*on_exceeded(state, quotas), *([claimed] if quotas[0].on_exceeded == "warn" else ()))


def _attributes(plan: Plan, state: Execution, token: Token) -> dict[str, Any]:
    """The attributes of the span of the step run that consumes the token."""
    names = {
        "workload": state.workload,
        "ctx": state.ctx,
        "args": token.args,
        "execution_id": state.execution_id,
        "execution": state.execution,
    }
    return attributes_of(plan.steps[token.step].tracing, Scope(names, {}, state.limits, state.budget))


def claim(state: Execution, token_id: str, refused: ErrorInfo) -> Fact:
    """Claims the token for a new step run that fails at once."""
    return events.TokenClaimed(token_id, step_run_of(state.execution_id, token_id), refused=refused)


def _hold(state: Execution, policy: AdmitPlan, token: Token, guards: list[EvaluatedGuard]) -> Sequence[Fact]:
    held = events.TokenHeld(token.token_id, guards, keeps_alive=policy.wait is not None)
    if policy.wait is None:
        return (held,)
    due = due_ms(state.at_ms, policy.wait.timeout_s)
    return (held, TimerSet(timer_of(token.token_id, "admission"), "admission", due, token.token_id))


def admission_of(plan: Plan, state: Execution, token: Token, policy: AdmitPlan) -> Choice:
    """The choice of the admission rules that apply."""
    return Choice(
        policy.rules,
        admission_scope(plan, state, token),
        first=policy.mode == "exclusive",
        waits=policy.wait is not None,
        has_else=policy.rules[-1].guard is None,
    )


def is_allowed(policy: AdmitPlan, evaluated: Evaluated) -> bool:
    """Whether the applying rules allow the token; if no rule applies, it is refused."""
    taken = _taken(policy, evaluated)
    return bool(taken) and all(rule.allow for rule in taken)


def _taken(policy: AdmitPlan, evaluated: Evaluated) -> list[AdmitRule]:
    return [rule for rule, held in zip(policy.rules, evaluated.guards, strict=False) if held]


def _metadata(policy: AdmitPlan, evaluated: Evaluated) -> dict[str, Any]:
    """The metadata that the applying rules add to the token; for each key the last rule wins."""
    metadata: dict[str, Any] = {}
    for rendered in evaluated.values:
        metadata |= rendered
    return metadata


def size_error(state: Execution, what: str, value: Any) -> str:
    """The error of a value that is too large to go with a token; empty if it fits."""
    at_most = state.limits.max_ctx_bytes
    size = len(codec.encode(value)) if value else 0
    return f"{what} {size} bytes; limits.max_ctx_bytes is {at_most}" if size > at_most else ""


def begin(plan: Plan, state: Execution, run: StepRun) -> Sequence[Fact]:
    """Begins a step run: opens its loop, issues its command or, for a step without tasks, ends it. A step run that
    needs a slot first asks for it, and begins when it is granted.
    """
    if run.refused is not None:
        return (events.StepFailed(run.step_run_id, run.refused),)
    step = plan.steps[run.step]
    if run.token.partition and (turn := ask_for_turn(state, run)) is not None:
        return turn
    if step.limit is not None and (asked := ask_for_run(plan, state, run, step.limit)) is not None:
        return asked
    emitted = emit(plan, state, run, "started") if step.emits else ()
    if emitted and isinstance(emitted[-1], events.ExecutionFailing):
        return emitted
    if step.loop is not None:
        return (*emitted, *open_loop(plan, state, run, step.loop))
    if not step.tasks:
        return (*emitted, events.StepDone(run.step_run_id))
    return (*emitted, events.StepScheduled(run.step_run_id, command_of(run.step_run_id)))


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
