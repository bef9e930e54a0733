"""``decide``: the facts that follow from a fact, by the state after it (DESIGN §3, PROTOCOL §2 *Decide*)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noetl_stream.engine.decide import (
    NOTHING,
    Rules,
    client_requests,
    ctx,
    routing,
    start,
    suspension,
    termination,
    timers,
    tokens,
)
from noetl_stream.engine.state import Execution
from noetl_stream.model.events import Fact
from noetl_stream.playbook.plan import Plan

RULES: Final[Rules] = {
    **start.RULES,
    **client_requests.RULES,
    **ctx.RULES,
    **tokens.RULES,
    **suspension.RULES,
    **timers.RULES,
    **routing.RULES,
    **termination.RULES,
}
"""Kinds not listed have no direct consequences; what follows from them is found at quiescence."""


def decide(plan: Plan, state: Execution, fact: Fact) -> Sequence[Fact]:
    """The facts that follow from ``fact``, in the state that already holds it."""
    rule = RULES.get(type(fact))
    if rule is None or state.processed or (state.halted and not fact.kind.through_halt):
        return NOTHING
    return rule(plan, state, fact)
