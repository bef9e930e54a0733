"""What the clients of a simulation saw, judged by the checker of histories, which knows nothing of the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noetl_stream.model.events import Fact, StepDone, TaskProcessed
from noetl_stream.model.events.client import ClientRequest
from noetl_stream.model.json import codec
from noetl_stream.ports.stores.store import StoredEvent
from noetl_testkit.history.check import violations
from noetl_testkit.history.recorder import Recorder
from noetl_testkit.simulation.checks import end_of
from noetl_testkit.simulation.clients import TOUCHED
from noetl_testkit.simulation.faults import FaultPlan
from noetl_testkit.simulation.triggers import PLAIN, trigger_starts

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
        _read_events(history, execution_id, journal)
    for path, number in world.senders.answers:
        if path == PLAIN:
            history.note("due", source=path, of=number)
    async for start in trigger_starts(world):
        if start.origin.path == PLAIN:
            history.note("started", source=PLAIN, of=start.workload["n"], execution=start.execution_id)
    return [str(one) for one in violations(world.clients.seen.getvalue().splitlines())]


def _read_events(history: Recorder, execution_id: str, journal: Sequence[StoredEvent]) -> None:
    facts = [(event, codec.decode_fact(event.data)) for event in journal]
    jumping = {event.step_run_id for event, fact in facts if isinstance(fact, TaskProcessed) and fact.do == "jump"}
    for event, fact in facts:
        of = None if event.step_run_id in jumping else _identity(event, fact)
        told: dict[str, Any] = {"position": event.position, "event": event.name, "of": of}
        mark = fact.request_id if isinstance(fact, ClientRequest) else None
        history.note("fed", reader="reader", execution=execution_id, mark=mark, **told)


def _identity(event: StoredEvent, fact: Fact) -> str | None:
    """What can happen once, in a step run whose tasks are not visited again."""
    if isinstance(fact, TaskProcessed):
        return f"{event.step_run_id} {fact.task} {fact.path} {fact.attempt}"
    return event.step_run_id if isinstance(fact, StepDone) else None
