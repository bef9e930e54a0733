"""Why an input is not taken (PROTOCOL §3 *Binding*, *Numbering*)."""

from __future__ import annotations

from typing import Literal, NamedTuple

from noetl_stream.engine.decide.client_requests import is_redundant, rejection_of
from noetl_stream.engine.evolve.run_lease import classify
from noetl_stream.engine.evolve.worker_facts import misfit
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
