"""The reasons for the end of an execution: the task, its error, the deciding rule, the arcs that did not fire; and the
origin of a failure, in an execution or in those that it called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from noetl_stream.engine.state import Execution, StepRun
from noetl_stream.model.events import CancelRequested, ToleratedFailures
from noetl_stream.model.outcome import NOT_UNDONE, ErrorInfo
from noetl_stream.model.rights import covers
from noetl_stream.operations.executions.reading.documents import error_of, tolerated_text
from noetl_stream.operations.why.journal import LONG_EVENTS, Failed, JournalHistory, Routed
from noetl_stream.operations.why.reason import reason, values_text
from noetl_stream.ports.operations.executions import FailureDocument, ReasonDocument
from noetl_stream.ports.operations.verbs import document_from, plain
from noetl_stream.ports.operations.waits import GuardDocument
from noetl_stream.ports.stores.store import ExecutionRow, Store

if TYPE_CHECKING:
    from noetl_stream.model.events import Path
    from noetl_stream.playbook.plan import Plan, TaskPlan


_FAILURE_READS: Final = "event.name, event.status or event.error"


def why_ended(history: JournalHistory, state: Execution, plan: Plan | None) -> Sequence[ReasonDocument]:
    """The reasons, the decisive one first."""
    if state.status == "completed":
        failed = [tolerated_text(failures) for failures in state.tolerated.values()]
        reasons = [reason("completed", f"The execution completed{', '.join(['', *failed])}.", "", state.at_ms)]
    elif state.status == "cancelled":
        reasons = [_cancelled(history, state)]
    else:
        reasons = list(_failed(history, state, plan))
    reasons += (_tolerated(history, failures, plan) for failures in state.tolerated.values())
    for one in history.compensations:
        if one.undone:
            reasons.append(reason("undone", f"What step `{one.step}` had done was undone.", "", step=one.step))
        else:
            moves = f"`noetl-stream execution compensate {state.execution_id}`, unless it was undone otherwise"
            text = f"What step `{one.step}` has done was not undone: {one.reason}."
            reasons.append(reason("not_undone", text, moves, step=one.step))
    reasons += _repeated_arcs(history, plan)
    for step, why in history.discarded:
        text = f"A token for step `{step}` was discarded: {why}."
        reasons.append(reason("discarded", text, "", step=step))
    return reasons


def _repeated_arcs(history: JournalHistory, plan: Plan | None) -> Iterator[ReasonDocument]:
    """The arcs that have sent nothing because they had sent a token with the same key before."""
    for (step, index), (key, count) in history.repeated.items():
        arc = None if plan is None else plan.steps[step].arcs[index]
        to = f"The arc to `{arc.step}` (line {arc.line})" if arc is not None else f"Arc {index + 1}"
        times = f"{count} times" if count > 1 else "once"
        text = f"{to} of step `{step}` sent no token {times}: its `dedupe` had sent the key `{key}` before"
        text += ", or with another that came again." if count > 1 else "."
        details = {"to": None if arc is None else arc.step, "arc": index, "key": key, "count": count}
        yield reason("arc", text, "", step=step, details=details)


def _tolerated(history: JournalHistory, failures: ToleratedFailures, plan: Plan | None) -> ReasonDocument:
    first = history.failed_iterations.get(failures.step) if failures.failed_leaves else None
    error = first.error if first is not None else history.tolerated.get(failures.step)
    place = f", {'.'.join(map(str, first.path))}" if first is not None else ""
    shown = f"; the first{place}: {_described(error)}" if error is not None else ""
    is_finally = plan is not None and plan.finally_step == failures.step
    why = (
        "which changes nothing, as it is the step of `finally`"
        if is_finally
        else "as `failure.mode: best_effort` tolerates"
    )
    text = f"{tolerated_text(failures)}, {why}{shown}."
    return reason(
        "tolerated",
        text,
        "",
        step=failures.step,
        iteration=first.path if first is not None else (),
        details={
            "count": failures.count,
            "failed": failures.failed,
            "failed_leaves": failures.failed_leaves,
            "runs": failures.runs,
            "error": _document(error) if error is not None else None,
        },
    )


def _cancelled(history: JournalHistory, state: Execution) -> ReasonDocument:
    found = history.requests.get(CancelRequested)
    moves = _from_undone(history, state) or f"`noetl-stream execution rerun {state.execution_id} STEP`"
    if found is None:
        text = f"The execution was cancelled: {state.cancelling}."
        return reason("cancelled", text, moves, state.at_ms)
    fact, at_ms = found
    by = f" by {fact.principal}" if fact.principal else ""
    text = f"The execution was cancelled{by}{f': {fact.reason}' if fact.reason else ''}."
    return reason("cancelled", text, moves, at_ms, details={"principal": fact.principal})


def _failed(history: JournalHistory, state: Execution, plan: Plan | None) -> Iterator[ReasonDocument]:
    error = state.outcome.error if state.outcome is not None else None
    if not state.evaluated or state.refused or history.failing is None:
        text = f"The execution failed: {_described(error)}."
        details: dict[str, Any] = {"error": _document(error), "diagnostics": state.refused}
        yield reason(
            "refused" if state.refused else "failed", text, _again(history, state), state.at_ms, details=details
        )
        return
    failing, at_ms = history.failing
    step = failing.step
    failed = history.failed.get(history.failed_run) if step is not None else None
    if failed is None:
        where = f" in step `{step}`" if step is not None else ""
        text = f"The execution failed{where}: {_described(failing.error)}."
        yield reason("failed", text, _again(history, state), at_ms, step, details={"error": _document(failing.error)})
    else:
        yield _task(history, plan, failed, step or "", at_ms, state)
    routed = history.routed.get(history.failed_run)
    if routed is not None and step is not None and plan is not None:
        yield from _arcs(plan, state, routed, step)


def _task(
    history: JournalHistory, plan: Plan | None, failed: Failed, step: str, at_ms: int, state: Execution
) -> ReasonDocument:
    fact = failed.fact
    error = fact.error or fact.outcome.error
    task = plan.steps[step].tasks[plan.steps[step].task_index(fact.task)] if plan is not None else None
    decided = _rule(fact.rule, fact.unmatched, error, task)
    text = f"Task `{fact.task}` of step `{step}` failed at attempt {fact.attempt}: {_described(error)}; {decided}."
    details: dict[str, Any] = {
        "error": _document(error),
        "attempt": fact.attempt,
        "rule": fact.rule,
        "line": task.policy.rules[fact.rule].line if task and task.policy and fact.rule >= 0 else None,
        "guards": [{"rule": guard.rule, "when": guard.when, "holds": guard.value} for guard in fact.guards],
        "worker": _worker_of(history, failed),
    }
    return reason(
        kind="failed",
        sentence=text,
        moves=_again(history, state),
        since_ms=at_ms,
        step=step,
        task=fact.task,
        iteration=fact.path,
        details=details,
    )


def _rule(rule: int, unmatched: bool, error: ErrorInfo | None, task: TaskPlan | None) -> str:
    if unmatched:
        return "no rule of its policy matched"
    if rule < 0:
        return "without a policy, an error fails the step"
    line = f" (line {task.policy.rules[rule].line})" if task is not None and task.policy is not None else ""
    if error is not None and error.kind == "retries_exhausted":
        return f"rule {rule + 1} of its policy{line} has no attempts left"
    return f"rule {rule + 1} of its policy{line} decided"


def _arcs(plan: Plan, state: Execution, routed: Routed, step: str) -> Iterator[ReasonDocument]:
    """The arcs that did not catch the failure, or did not fire in time."""
    from noetl_stream.engine.scope import arc_scope
    from noetl_stream.operations.waiting_on import guard_document  # what completed is explained without expressions

    run = routed.before.runs[routed.fact.step_run_id]
    scope = arc_scope(plan, replace(routed.before, budget=state.budget), run)
    for arc in plan.steps[step].arcs:
        guards: list[GuardDocument] = []
        if arc.guard is None and run.error is not None:
            why = f"it has no guard, and a failure is handled only by an arc whose guard reads {_FAILURE_READS}"
        elif arc.guard is None or not (arc.handles_failure or run.error is None):
            why = f"its guard does not read {_FAILURE_READS}, so it does not handle failures"
        else:
            guards = [guard_document(arc.guard, scope)]
            values = values_text(guards)
            why = f"`{arc.guard.source}` did not hold" + (f" ({values})" if values else "")
        text = f"The arc to `{arc.step}` (line {arc.line}) did not fire: {why}."
        yield reason("arc", text, "", step=step, details={"to": arc.step, "line": arc.line, "guards": plain(guards)})


def _again(history: JournalHistory, state: Execution) -> str:
    if state.evaluated and not state.refused:
        retry = f"`noetl-stream execution retry {state.execution_id}`, or `execution rerun` from an earlier step"
        return _from_undone(history, state) or retry
    if state.rerun_of:
        return f"change the request; the original is shown by `noetl-stream execution get {state.rerun_of}`"
    return "fix the playbook and start it again"


def _from_undone(history: JournalHistory, state: Execution) -> str:
    """What can be run again after something was undone, or of what only undoes; empty if nothing was undone."""
    if state.outcome is not None and state.outcome.error is not None and state.outcome.error.kind == NOT_UNDONE:
        return f"`noetl-stream execution compensate {state.execution_id}`, which undoes what is left"
    first = next((one.step for one in reversed(history.compensations) if one.undone), None)
    rerun = f"`noetl-stream execution rerun {state.execution_id} {first}`"
    return f"{rerun}, or from before it: what was undone is not reused" if first is not None else ""


def _described(error: ErrorInfo | None) -> str:
    return "no error recorded" if error is None else f"{error.kind}: {error.message}".rstrip(".")


def _document(error: ErrorInfo | None) -> dict[str, Any] | None:
    if error is None:
        return None
    return {"kind": error.kind, "message": error.message, "task": error.task, "index": error.index, "code": error.code}


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


def _worker_of(history: JournalHistory, failed: Failed | None) -> str:
    return history.commands[failed.command_id].worker if failed and failed.command_id in history.commands else ""


def failure_of(row: ExecutionRow, history: JournalHistory, plan: Plan | None) -> FailureDocument:
    """The place and the error of an execution's failure. Pure."""
    failing = history.failing[0] if history.failing is not None else None
    failed = _last_failed(history)
    fact = failed.fact if failed is not None else None
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
        worker=_worker_of(history, failed),
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


def _last_failed(history: JournalHistory) -> Failed | None:
    """The task that failed the execution."""
    in_step = history.failing is not None and history.failing[0].step is not None
    return history.failed.get(history.failed_run) if in_step else None


def _called(history: JournalHistory) -> str | None:
    """The execution whose failure failed the task."""
    failed = _last_failed(history)
    error = failed.fact.outcome.error if failed is not None else None
    if failed is None or error is None or error.kind != "child_failed":
        return None
    return history.calls.get((history.failed_run, failed.fact.path, failed.fact.task))


def _traceback(helper: dict[str, Any]) -> str:
    """The traceback in the block of a task's kind; of a long one the end."""
    found = helper.get("traceback")
    return found[-MAX_TRACEBACK_CHARACTERS:] if isinstance(found, str) else ""
