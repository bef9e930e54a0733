"""Joins: which tokens merge into one, and when (LANGUAGE §7 *Join*).

Each firing of a join is numbered; a token carries, per join, the last firing it descends from (``Token.waves``).
``any`` and ``<n>`` take tokens that descend from the latest firing and absorb the rest; ``all`` takes what has arrived
once no other live token can reach the join.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noetl_stream.engine.state import Execution
from noetl_stream.model.events import Fact, Token, TokenAbsorbed, TokenDiscarded, TokenEnqueued, TokenJoined
from noetl_stream.model.ids import derive
from noetl_stream.model.json import codec
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.plan import Plan


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
    """Why the step cannot run with the merged token: too few have arrived, or the args are too large."""
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
    merged = Token(token_id, step, "join", args, waves=waves)
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
