"""Whether an input is taken: asked of the engine once, before it is folded (PROTOCOL §3 *Binding*, *Numbering*)."""

from __future__ import annotations

from typing import Literal, NamedTuple

from noetl_stream.engine.decide.client_requests import is_redundant, rejection_of
from noetl_stream.engine.evolve.run_lease import classify
from noetl_stream.engine.report_validation import misfit
from noetl_stream.engine.state import Execution, RecordedFact
from noetl_stream.model.events import ClientRequest
from noetl_stream.model.rejection import Rejection
from noetl_stream.playbook.plan import Plan


class NotTaken(NamedTuple):
    """Why a fact changes nothing.

    ``redundant``: what is asked is so already. ``duplicate``, ``gap``, ``stale``, ``unknown``: see
    :func:`.classify_report`. ``misfit``: no fact of its command; ``text`` says why.
    """

    code: Literal["redundant", "duplicate", "gap", "stale", "unknown", "misfit"]
    text: str = ""


def refuse_input(plan: Plan, state: Execution, recorded: RecordedFact) -> Rejection | NotTaken | None:
    """Why an execution does not take an input now; ``None`` if nothing is known against it."""
    fact = recorded.fact
    if recorded.run is not None:
        standing = classify(state, recorded)
        if standing != "next":
            return NotTaken(standing)
        reason = misfit(state, recorded)
        return NotTaken("misfit", reason) if reason else None
    if not isinstance(fact, ClientRequest):
        return None
    return rejection_of(plan, state, fact) or (NotTaken("redundant") if is_redundant(state, fact) else None)
