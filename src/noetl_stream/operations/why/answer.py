"""The answer of ``why``: a summary and every reason, from the folded state, the journal and the environment."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from noetl_stream.engine.state import Execution
from noetl_stream.errors import NotFound, StoreMissing
from noetl_stream.model.envelope import iso
from noetl_stream.operations.cluster import awaited_slots, server_uses
from noetl_stream.operations.why.ended import why_ended
from noetl_stream.operations.why.journal import JournalHistory
from noetl_stream.operations.why.reason import Environment, reason
from noetl_stream.ports.operations.executions import ReasonDocument, WhyDocument
from noetl_stream.ports.operations.waits import WaitingOnDocument
from noetl_stream.ports.stores.store import ExecutionRow, Store
from noetl_stream.ports.streams.bus import Bus
from noetl_stream.template import Budget

if TYPE_CHECKING:
    from noetl_stream.playbook.plan import Plan
    from noetl_stream.ports.operations.cluster import Cluster, WorkerDocument

REASONS_SHOWN: Final = 50

ASKED_MOST: Final = 4
"""The number of times that workers are asked until those that run its commands have answered: a busy one answers late.
"""

GUARD_OPERATIONS: Final = 100_000
"""The total cost of the guards of one answer. Those beyond it are shown without their values."""


def explain(execution_id: str, history: JournalHistory, plan: Plan | None, around: Environment) -> WhyDocument:
    """The reasons, the most important first. Pure.

    Args:
        plan: ``None`` if the playbook does not compile here. Guards and joins are then named without their values.

    Raises:
        NotFound: the journal is empty.
    """
    state = history.state
    if state is None:
        raise NotFound(f"execution {execution_id} not found")
    state = replace(state, budget=Budget(GUARD_OPERATIONS))
    reasons = why_ended(history, state, plan) if state.ended else _why_not_ended(history, state, plan, around)
    return WhyDocument(
        execution_id=execution_id,
        status=state.shown_status,
        summary=_summary(state, reasons),
        since=(reasons[0].since if reasons else None) or iso(history.begun_ms),
        reasons=list(reasons[:REASONS_SHOWN]),
        more=max(0, len(reasons) - REASONS_SHOWN),
    )


def _why_not_ended(
    history: JournalHistory, state: Execution, plan: Plan | None, around: Environment
) -> Sequence[ReasonDocument]:
    from noetl_stream.operations.why import waiting  # with templates, which the explanation of an end does not need

    if around.missing is not None:
        return [_missing(around.missing)]
    reasons = [
        *waiting.the_whole(history, state, around),
        *waiting.slots(state, around),
        *waiting.commands(history, state, plan, around),
        *waiting.suspended(history, state, plan, around),
    ]
    if state.halted and not state.is_queued:
        reasons += waiting.halted_tokens(history, state)
    reasons += waiting.joins(history, state, plan)
    reasons += waiting.resting(history, state, plan)
    reasons += waiting.held_tokens(history, state, plan)
    if reasons:
        return reasons
    text = "No reason is recorded: either events are still being processed, or this is a defect of the engine."
    return [reason("unknown", text, "try again in a second; if nothing changes, report it with the journal")]


def _missing(error: StoreMissing) -> ReasonDocument:
    text = f"{error.message[0].upper()}{error.message[1:]}, so nothing moves; what has finished is kept meanwhile."
    return reason("store_missing", text, error.hint or "somebody makes it", waiting_on=WaitingOnDocument())


def _summary(state: Execution, reasons: Sequence[ReasonDocument]) -> str:
    first = reasons[0].sentence if reasons else f"It is {state.shown_status}."
    return first if len(reasons) < 2 else f"{first} (and {len(reasons) - 1} more)"


async def observe(
    cluster: Cluster,
    bus: Bus,
    store: Store,
    row: ExecutionRow,
    history: JournalHistory,
    now_ms: int,
    paths: Sequence[str],
) -> Environment:
    """The environment of an execution: workers, queues, its partition with its server, and the executions it called.

    Args:
        paths: The paths of playbooks whose executions are named; empty for all.
    """
    try:
        workers, pools, partitions, servers, children, awaited = await asyncio.gather(
            awaited_workers(cluster, history.workers),
            cluster.pools(),
            cluster.partitions(),
            server_uses(bus),
            store.listed_executions(history.called),
            awaited_slots(store, row.execution_id, paths),
        )
    except StoreMissing as error:
        return Environment(now_ms, missing=error)
    partition = next((one for one in partitions if one.partition == row.partition), None)
    owner = partition.owner if partition is not None and partition.live else None
    return Environment(
        now_ms,
        workers,
        {pool.pool: pool for pool in pools},
        partition,
        {execution_id: child.status for execution_id, child in children.items()},
        slots=awaited,
        unstored=[why for server in servers if server.process == owner for why in server.unstored],
    )


async def awaited_workers(cluster: Cluster, wanted: Collection[str]) -> Sequence[WorkerDocument]:
    """The workers that answer; they are asked again while one of those ``wanted`` has not."""
    found = await cluster.workers()
    for _ in range(ASKED_MOST - 1):
        if {worker.name for worker in found}.issuperset(wanted):
            break
        found = await cluster.workers()
    return found
