"""Reasons at the doors of steps: tokens that admission holds, and tokens that wait at a join (LANGUAGE §4, §7)."""

from __future__ import annotations

from collections.abc import Iterator

from noetl_stream.client.why.guards import guard_document, values_said
from noetl_stream.client.why.journal import JournalHistory
from noetl_stream.client.why.reason import Reason, counted
from noetl_stream.engine.scope import admission_scope
from noetl_stream.engine.state import Execution, WaitingToken
from noetl_stream.model.ids import timer_of
from noetl_stream.playbook.plan import Plan


def held_tokens(history: JournalHistory, state: Execution, plan: Plan | None) -> Iterator[Reason]:
    """Those that admission has said no to, with what its guards read now."""
    for token_id, waiting in state.tokens.items():
        if waiting.held:
            yield _held(history, state, plan, token_id, waiting)


def halted_tokens(history: JournalHistory, state: Execution) -> Iterator[Reason]:
    """Those that nobody has looked at, because nothing is decided now."""
    for token_id, waiting in state.tokens.items():
        if not (waiting.held or waiting.joining):
            step = waiting.token.step
            text = f"A token is at the door of step `{step}`, and nothing is decided until the execution goes on."
            yield Reason("token", text, "the execution goes on", history.tokens_ms.get(token_id, 0), step)


def joins(history: JournalHistory, state: Execution, plan: Plan | None) -> Iterator[Reason]:
    """Each join at which tokens wait, and what can still reach it."""
    arrived: dict[str, list[str]] = {}
    for token_id, waiting in state.tokens.items():
        if waiting.joining:
            arrived.setdefault(waiting.token.step, []).append(token_id)
    for step, token_ids in arrived.items():
        yield _join(history, state, plan, step, token_ids)


def _held(history: JournalHistory, state: Execution, plan: Plan | None, token_id: str, waiting: WaitingToken) -> Reason:
    token, timer = waiting.token, state.timers.get(timer_of(token_id, "admission"))
    policy = plan.steps[token.step].admit if plan is not None else None
    guards = []
    if plan is not None and policy is not None:
        scope = admission_scope(plan, state, token)
        guards = [guard_document(rule.guard, scope) for rule in policy.rules if rule.guard is not None]
    said = values_said(guards)
    tests = [f"`{guard.when}`" for guard in waiting.guards if guard.when != "else"]
    refused = f"{' and '.join(tests) or 'no rule'} {'do' if len(tests) > 1 else 'does'} not let it in"
    text = f"A token for step `{token.step}` is held at its admission: {refused}"
    text += f" ({said})." if said else "."
    moves = "a change of ctx or of a step's result that satisfies the guard"
    written = [path for guard in guards for path in (*guard["values"], *guard["missing"]) if path.startswith("ctx.")]
    if written:
        key = written[0].removeprefix("ctx.")
        moves += f", as by `noetl-stream execution patch {state.execution_id} --set {key.partition('.')[0]}=…`"
    if waiting.keeps_alive and policy is not None:
        end = "the step fails" if policy.on_timeout == "fail" else "the token is discarded"
        moves += f"; when its time is over {end}"
    else:
        moves += "; when nothing else lives it is discarded"
    kind = "admission" if waiting.keeps_alive else "held"
    until = timer.due_ms if timer is not None else None
    details = {"token_id": token_id, "from_step": token.from_step, "guards": guards}
    return Reason(kind, text, moves, history.tokens_ms.get(token_id, 0), token.step, until_ms=until, details=details)


def _join(history: JournalHistory, state: Execution, plan: Plan | None, step: str, token_ids: list[str]) -> Reason:
    here = [state.tokens[token_id].token.from_step or "the start" for token_id in token_ids]
    coming = list(_coming(state, plan, step)) if plan is not None else []
    mode = plan.steps[step].join if plan is not None else None
    wanted = f" of {mode}" if isinstance(mode, int) else ""
    text = f"Step `{step}` joins its branches (`join: {mode}`): {counted(len(here), 'token')}{wanted} arrived, from "
    text += f"{', '.join(f'`{name}`' for name in here)}"
    text += f"; it waits for {'; '.join(coming)}." if coming else "."
    moves = "the others arrive, or can no longer reach it"
    details = {"arrived": here, "coming": coming}
    since = min(history.tokens_ms.get(token_id, 0) for token_id in token_ids)
    return Reason("join", text, moves, since, step, details=details)


def _coming(state: Execution, plan: Plan, step: str) -> Iterator[str]:
    for waiting in state.tokens.values():
        name = waiting.token.step
        if not (waiting.joining and name == step) and step in plan.reaches.get(name, ()):
            yield f"a token {'held' if waiting.held else 'that waits'} at `{name}`"
    for run in state.runs.values():
        if step in plan.reaches.get(run.step, ()):
            yield f"step `{run.step}`, which runs"
