"""The origin of a failure: that of an execution, and those of the executions that it called."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from noetl_stream.model.rights import covers
from noetl_stream.operations.executions.reading.documents import error_of
from noetl_stream.operations.why.journal import LONG_EVENTS, Failed, JournalHistory
from noetl_stream.ports.operations.executions import FailureDocument
from noetl_stream.ports.operations.verbs import document_from, plain
from noetl_stream.ports.stores.store import ExecutionRow, Store

if TYPE_CHECKING:
    from noetl_stream.engine.state import StepRun
    from noetl_stream.model.events import Path
    from noetl_stream.playbook.plan import Plan

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
