"""Pending decisions of a state: the same ones as resume_or_wait from facts, found again after a halt.

While an execution is paused or waits for a reference, facts are folded but nothing is decided (PROTOCOL §2). The
state shows what is undecided: tokens not yet admitted, step runs not begun or not routed, suspensions.
"""

from __future__ import annotations

from collections.abc import Sequence

from noetl_stream.engine.decide.ctx import on_ctx
from noetl_stream.engine.decide.joins import fire_if_enough
from noetl_stream.engine.decide.routing import route
from noetl_stream.engine.decide.suspension import resume_or_wait
from noetl_stream.engine.decide.tokens import begin, enter
from noetl_stream.engine.state import Execution
from noetl_stream.model.events import (
    Fact,
)
from noetl_stream.playbook.plan import Plan


def pending_decisions(plan: Plan, state: Execution) -> Sequence[Fact]:
    """The first pending decisions of this state; empty if there are none."""
    if state.ending or state.ended or state.halted:
        return ()
    if facts := on_ctx(state):
        return facts
    begun = {assignment.step_run_id for assignment in (*state.assignments.values(), *state.suspensions.values())}
    for run in state.runs.values():
        if run.ended:
            return route(plan, state, run)
        if run.loop is None and run.step_run_id not in begun:
            return begin(plan, state, run)
    for waiting in state.tokens.values():
        if not (waiting.held or waiting.joining) and (facts := enter(plan, state, waiting.token)):
            return facts
    joined = {waiting.token.step for waiting in state.tokens.values() if waiting.joining}
    for step in joined:
        if facts := fire_if_enough(plan, state, step):
            return facts
    for suspended in state.suspensions.values():
        if facts := resume_or_wait(state, suspended):
            return facts
    return ()
