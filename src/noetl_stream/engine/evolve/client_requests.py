"""How client requests change the state (LANGUAGE §9)."""

from __future__ import annotations

from typing import Final

import msgspec

from noetl_stream.engine.evolve import Rules
from noetl_stream.engine.evolve.ctx import patched, with_ctx
from noetl_stream.engine.evolve.suspensions import signal_received
from noetl_stream.engine.state import Execution
from noetl_stream.model import events

replace = msgspec.structs.replace


def take_once(state: Execution, fact: events.ClientRequest) -> Execution:
    """The state after a request; the same value if the request was taken before."""
    if fact.request_id in state.requests:
        return state
    after = RULES[type(fact)](state, fact)
    return state if after is state else replace(after, requests=state.requests | {fact.request_id})


def _ctx_patched(state: Execution, fact: events.CtxPatched) -> Execution:
    if state.ending:
        return state
    return with_ctx(state, patched(state.ctx, fact), fact.patch, "")


def _cancel_requested(state: Execution, fact: events.CancelRequested) -> Execution:
    return state if state.ending else replace(state, cancelling=fact.reason or "on request", paused_at_ms=0)


def _noted(state: Execution, fact: events.ClientRequest) -> Execution:
    """Changes nothing by itself; the decision that follows does."""
    return state if state.ending else replace(state)


RULES: Final[Rules] = {
    events.CtxPatched: _ctx_patched,
    events.TokenInjected: _noted,
    events.SignalReceived: signal_received,
    events.CancelRequested: _cancel_requested,
    events.PauseRequested: _noted,
    events.ResumeRequested: _noted,
}
