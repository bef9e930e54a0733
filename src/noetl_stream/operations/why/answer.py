"""The answer of ``why``: a summary and every reason, from the folded state, the journal and the environment; and the
origin of a failure, in an execution or in those that it called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from noetl_stream.engine.state import Execution, StepRun
from noetl_stream.errors import NotFound, StoreMissing
from noetl_stream.model.envelope import iso
from noetl_stream.model.rights import covers
from noetl_stream.operations.cluster import awaited_slots, server_uses
from noetl_stream.operations.executions.reading.documents import error_of
from noetl_stream.operations.why.ended import why_ended
from noetl_stream.operations.why.journal import LONG_EVENTS, Failed, JournalHistory
from noetl_stream.operations.why.reason import Environment, reason
from noetl_stream.ports.operations.executions import FailureDocument, ReasonDocument, WhyDocument
from noetl_stream.ports.operations.verbs import document_from, plain
from noetl_stream.ports.operations.waits import WaitingOnDocument
from noetl_stream.ports.stores.store import ExecutionRow, Store
from noetl_stream.ports.streams.bus import Bus
from noetl_stream.template import Budget

if TYPE_CHECKING:
    from noetl_stream.model.events import Path
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


MOST_CAUSES: Final = 16
"""The most executions that are named from the failed one down to the cause."""

MAX_TRACEBACK_CHARACTERS: Final = 8_000


async def causes_of(
    store: Store,
    row: ExecutionRow,
    history: JournalHistory,
    plan_of: Callable[[ExecutionRow], Awaitable[Plan | None]],
    paths: Sequence[str] = (),
) -> list[FailureDocument]:
    """The failure of an execution, then that of the called execution that caused it, and so on to the origin.

    Of a called execution with a long journal only its error is known, and its own calls are omitted.

    Args:
        history: Of the execution, to its end.
        plan_of: Returns the plan of a playbook; ``None`` if that does not compile here.
        paths: The paths of playbooks whose executions may be named; empty for all.
    """
    if history.failing is None and row.status != "failed":
        return []
    found = [failure_of(row, history, await plan_of(row))]
    while (called := _called(history)) is not None and len(found) < MOST_CAUSES:
        below = await store.execution(called)
        if below is None or below.status not in ("failed", "cancelled") or not covers(paths, below.path):
            break
        history = JournalHistory(called)
        if below.position < LONG_EVENTS:
            await asyncio.to_thread(history.take, await store.journal(called))
        found.append(failure_of(below, history, await plan_of(below)))
    return found


def failure_of(row: ExecutionRow, history: JournalHistory, plan: Plan | None) -> FailureDocument:
    """The place and the error of an execution's failure. Pure."""
    failing = history.failing[0] if history.failing is not None else None
    failed = _failed(history)
    fact = failed.fact if failed is not None else None
    worker = history.commands[failed.command_id].worker if failed and failed.command_id in history.commands else ""
    error = error_of(row) or (failing.error if failing is not None else None)
    if fact is not None:
        error = fact.outcome.error or fact.error or error
    step = failing.step if failing is not None else None
    return document_from(
        FailureDocument,
        row,
        step=step,
        step_run_id=history.failed_run or None if step is not None else None,
        task=None if fact is None else fact.task,
        iteration=[] if fact is None else list(fact.path),
        attempt=None if fact is None else fact.attempt,
        attempts=None if step is None or fact is None else attempts_of(plan, step, fact.task),
        worker=worker,
        error=error,
        traceback="" if fact is None else _traceback(fact.outcome.helper),
    )


def retry_details(history: JournalHistory, plan: Plan | None, run: StepRun, path: Path, task: str) -> dict[str, Any]:
    """The next ``attempt`` of a task that is retried, the number of ``attempts``, and the ``error`` of the last."""
    last = history.retried.get((run.step_run_id, path, task))
    if last is None:
        return {}
    error = plain(last.outcome.error) if last.outcome.error is not None else None
    return {"attempt": last.attempt + 1, "attempts": attempts_of(plan, run.step, task), "error": error}


def attempts_of(plan: Plan | None, step: str, task: str) -> int | None:
    """The most attempts that the policy of a task allows; ``None`` if it does not say."""
    found = next((one for one in plan.steps[step].tasks if one.name == task), None) if plan is not None else None
    rules = found.policy.rules if found is not None and found.policy is not None else ()
    known = [one.source for rule in rules if (one := rule.attempts) is not None and one.is_constant]
    return max(known, default=None)


def _failed(history: JournalHistory) -> Failed | None:
    """The task that failed the execution."""
    in_step = history.failing is not None and history.failing[0].step is not None
    return history.failed.get(history.failed_run) if in_step else None


def _called(history: JournalHistory) -> str | None:
    """The execution whose failure failed the task."""
    failed = _failed(history)
    error = failed.fact.outcome.error if failed is not None else None
    if failed is None or error is None or error.kind != "child_failed":
        return None
    return history.calls.get((history.failed_run, failed.fact.path, failed.fact.task))


def _traceback(helper: dict[str, Any]) -> str:
    """The traceback in the block of a task's kind; of a long one the end."""
    found = helper.get("traceback")
    return found[-MAX_TRACEBACK_CHARACTERS:] if isinstance(found, str) else ""
