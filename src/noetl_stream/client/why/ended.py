"""Why an execution has ended as it did: the task, its error, the rule that decided, the arcs that did not fire."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from noetl_stream.client.why.guards import guard_document, values_said
from noetl_stream.client.why.journal import Failed, JournalHistory, Routed
from noetl_stream.client.why.reason import Reason
from noetl_stream.engine.scope import arc_scope
from noetl_stream.engine.state import Execution
from noetl_stream.model.events import CancelRequested
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.plan import Plan, TaskPlan


def why_ended(history: JournalHistory, state: Execution, plan: Plan | None) -> Sequence[Reason]:
    """The reasons, the one that decided first."""
    if state.status == "completed":
        reasons = [Reason("completed", "It has completed.", "", state.at_ms)]
    elif state.status == "cancelled":
        reasons = [_cancelled(history, state)]
    else:
        reasons = list(_failed(history, state, plan))
    for step, reason in history.discarded:
        text = f"A token for step `{step}` was discarded: {reason}."
        reasons.append(Reason("discarded", text, "", step=step))
    return reasons


def _cancelled(history: JournalHistory, state: Execution) -> Reason:
    found, moves = history.asked.get(CancelRequested), f"`noetl-stream execution rerun {state.execution_id} STEP`"
    if found is None:
        text = f"It was cancelled: {state.cancelling}."
        return Reason("cancelled", text, moves, state.at_ms)
    fact, at_ms = found
    by = f" by {fact.principal}" if fact.principal else ""
    text = f"It was cancelled{by}{f': {fact.reason}' if fact.reason else ''}."
    return Reason("cancelled", text, moves, at_ms, details={"principal": fact.principal})


def _failed(history: JournalHistory, state: Execution, plan: Plan | None) -> Iterator[Reason]:
    error = state.outcome.error if state.outcome is not None else None
    if not state.evaluated or state.refused or history.failing is None:
        text = f"It failed: {_said(error)}."
        details: dict[str, Any] = {"error": _document(error), "diagnostics": state.refused}
        yield Reason("refused" if state.refused else "failed", text, _again(state), state.at_ms, details=details)
        return
    failing, at_ms = history.failing
    step = failing.step
    failed = history.failed.get(history.failed_run) if step is not None else None
    if failed is None:
        where = f" in step `{step}`" if step is not None else ""
        text = f"It failed{where}: {_said(failing.error)}."
        yield Reason("failed", text, _again(state), at_ms, step, details={"error": _document(failing.error)})
    else:
        yield _task(history, plan, failed, step or "", at_ms, state)
    routed = history.routed.get(history.failed_run)
    if routed is not None and step is not None and plan is not None:
        yield from _arcs(plan, routed, step)


def _task(
    history: JournalHistory, plan: Plan | None, failed: Failed, step: str, at_ms: int, state: Execution
) -> Reason:
    fact = failed.fact
    error = fact.error or fact.outcome.error
    task = plan.steps[step].tasks[plan.steps[step].task_index(fact.task)] if plan is not None else None
    decided = _rule(fact.rule, fact.unmatched, error, task)
    text = f"Task `{fact.task}` of step `{step}` failed at attempt {fact.attempt}: {_said(error)}; {decided}."
    worker = history.commands[failed.command_id].worker if failed.command_id in history.commands else ""
    details: dict[str, Any] = {
        "error": _document(error),
        "attempt": fact.attempt,
        "rule": fact.rule,
        "line": task.policy.rules[fact.rule].line if task and task.policy and fact.rule >= 0 else None,
        "guards": [{"rule": guard.rule, "when": guard.when, "holds": guard.value} for guard in fact.guards],
        "worker": worker,
    }
    return Reason(
        kind="failed",
        sentence=text,
        moves=_again(state),
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
        return "without a policy an error fails the step"
    line = f" (line {task.policy.rules[rule].line})" if task is not None and task.policy is not None else ""
    if error is not None and error.kind == "retries_exhausted":
        return f"rule {rule + 1} of its policy{line} has used up its attempts"
    return f"rule {rule + 1} of its policy{line} decided"


def _arcs(plan: Plan, routed: Routed, step: str) -> Iterator[Reason]:
    """What did not catch the failure."""
    run = routed.before.runs[routed.fact.step_run_id]
    scope = arc_scope(plan, routed.before, run)
    for arc in plan.steps[step].arcs:
        if arc.guard is None or not arc.handles_failure:
            why = "its guard reads neither event.name, event.status nor event.error: it is not for failures"
            guards: list[dict[str, Any]] = []
        else:
            guards = [guard_document(arc.guard, scope)]
            said = values_said(guards)
            why = f"`{arc.guard.source}` did not hold" + (f" ({said})" if said else "")
        text = f"The arc to `{arc.step}` (line {arc.line}) did not fire: {why}."
        yield Reason("arc", text, "", step=step, details={"to": arc.step, "line": arc.line, "guards": guards})


def _again(state: Execution) -> str:
    again = f"`noetl-stream execution retry {state.execution_id}`, or `execution rerun` from an earlier step"
    if state.evaluated and not state.refused:
        return again
    if state.rerun_of:
        return f"ask again for what can be: `noetl-stream execution get {state.rerun_of}` shows what the original did"
    return "mend the playbook and start it again"


def _said(error: ErrorInfo | None) -> str:
    return "no error is recorded" if error is None else f"{error.kind}: {error.message}".rstrip(".")


def _document(error: ErrorInfo | None) -> dict[str, Any] | None:
    if error is None:
        return None
    return {"kind": error.kind, "message": error.message, "task": error.task, "index": error.index, "code": error.code}
