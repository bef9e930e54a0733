"""What the clients of a simulation saw, judged by the checker of histories, which knows nothing of the engine."""

from __future__ import annotations

from typing import Any

from noetl_stream.model.events import Fact, StepDone, TaskProcessed
from noetl_stream.model.events.client import ClientRequest
from noetl_stream.model.json import codec
from noetl_stream.ports.stores.store import StoredEvent
from noetl_testkit.history.check import violations
from noetl_testkit.simulation.checks import end_of
from noetl_testkit.simulation.clients import TOUCHED
from noetl_testkit.simulation.faults import FaultPlan

FOREVER = 1e9


async def seen_problems(faults: FaultPlan) -> list[str]:
    """Lets a client read all that was accepted, and its journal, at the end; returns what no legal history explains."""
    world, history = faults.world, faults.world.clients.history
    if faults.touches or faults.poison is not None:
        history.note("fault", at=0.0, kind=TOUCHED, until=FOREVER)
    for execution_id in world.clients.accepted:
        row, journal = world.store.tables.executions.get(execution_id), await world.store.journal(execution_id)
        call = history.asked("reader", "read", execution=execution_id)
        if row is None:
            history.answered(call, "refused", status=404)
            continue
        shown = {"execution_id": execution_id, "position": row.position, "result": end_of(row, journal)["result"]}
        history.answered(call, "accepted", {**shown, "status": row.status})
        facts = [codec.decode_fact(event.data) for event in journal]
        jumping = {
            event.step_run_id
            for event, fact in zip(journal, facts, strict=True)
            if isinstance(fact, TaskProcessed) and fact.do == "jump"
        }
        for event, fact in zip(journal, facts, strict=True):
            told: dict[str, Any] = {
                "reader": "reader",
                "execution": execution_id,
                "position": event.position,
                "event": event.name,
            }
            is_once = event.step_run_id not in jumping
            history.note("fed", **told, of=_identity(event, fact) if is_once else None, mark=_mark(fact))
    return [str(one) for one in violations(world.clients.seen.getvalue().splitlines())]


def _identity(event: StoredEvent, fact: Fact) -> str | None:
    """What can happen once, in a step run whose tasks are not visited again."""
    if isinstance(fact, TaskProcessed):
        return f"{event.step_run_id} {fact.task} {fact.path} {fact.attempt}"
    return event.step_run_id if isinstance(fact, StepDone) else None


def _mark(fact: Fact) -> str | None:
    return fact.request_id if isinstance(fact, ClientRequest) else None
