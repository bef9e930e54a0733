"""Reasons in what has begun: commands in a queue or at a worker, and pipelines that wait (LANGUAGE §8)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from noetl_stream.client.why.environment import Environment
from noetl_stream.client.why.journal import Command, JournalHistory
from noetl_stream.client.why.reason import Reason, counted, seconds
from noetl_stream.engine.state import Assignment, Execution, StepRun
from noetl_stream.model.envelope import iso
from noetl_stream.model.events import Wait
from noetl_stream.model.ids import timer_of
from noetl_stream.model.messages import path_key
from noetl_stream.playbook.plan import Plan


def commands(history: JournalHistory, state: Execution, plan: Plan | None, around: Environment) -> Iterator[Reason]:
    """Each command that is owed an end; those of one step run that wait in its queue together."""
    queued: dict[str, list[Assignment]] = {}
    for assignment in state.assignments.values():
        if assignment.run is None:
            queued.setdefault(assignment.step_run_id, []).append(assignment)
        else:
            yield _running(history, state, assignment, around)
    for step_run_id, waiting in queued.items():
        run = state.runs.get(step_run_id)
        if run is not None:
            yield _queued(history, run, waiting, plan, around)


def suspended(history: JournalHistory, state: Execution, around: Environment) -> Iterator[Reason]:
    """Each pipeline that waits without a worker, and what for."""
    for command_id, assignment in state.suspensions.items():
        run = state.runs[assignment.step_run_id]
        for wait in assignment.waits.values():
            timer = state.timers.get(timer_of(command_id, "wait", wait.path))
            until = timer.due_ms if timer is not None else None
            yield _waiting(state, run, wait, until, around)
        if not assignment.waits:
            text = f"Step `{run.step}` has stopped between two iterations of its loop."
            yield Reason("suspended", text, "the execution goes on", step=run.step)


def _queued(
    history: JournalHistory, run: StepRun, waiting: list[Assignment], plan: Plan | None, around: Environment
) -> Reason:
    pool = plan.steps[run.step].pool if plan is not None else "default"
    since = min(history.commands.get(one.command_id, Command(0)).scheduled_ms for one in waiting)
    workers = around.workers_of(pool)
    slots, busy = sum(worker.slots for worker in workers), sum(worker.busy for worker in workers)
    what = f"Step `{run.step}`{_of_loop(run)}: {counted(len(waiting), 'command')} in the queue of pool `{pool}`"
    queue = around.pools.get(pool)
    details = {"pool": pool, "commands": len(waiting), "workers": len(workers), "slots": slots, "busy": busy}
    details |= {"queued": queue.queued} if queue is not None else {}
    if not workers:
        text = f"{what}, and no worker of that pool is alive."
        return Reason(
            "no_worker", text, f"start one: `noetl-stream worker --pool {pool}`", since, run.step, details=details
        )
    alive = f"{counted(len(workers), 'worker')} with {counted(slots, 'slot')}"
    if busy >= slots:
        text = f"{what}; {alive}, all of them busy."
        return Reason("slot", text, "a slot becomes free, or another worker starts", since, run.step, details=details)
    issues = max(one.issue for one in waiting)
    again = f"; it has been issued {issues} times" if issues > 1 else ""
    text = f"{what}, on its way to one of {alive} ({busy} busy){again}."
    return Reason("queued", text, "a worker takes it", since, run.step, details=details)


def _running(history: JournalHistory, state: Execution, assignment: Assignment, around: Environment) -> Reason:
    run = state.runs.get(assignment.step_run_id)
    step = run.step if run is not None else assignment.step_run_id
    command = history.commands.get(assignment.command_id, Command(0))
    since = command.task_ms or command.started_ms or command.scheduled_ms
    delivered = assignment.run.num_delivered if assignment.run is not None else 1
    times = f" It has been delivered {delivered} times; more than {state.limits.max_deliveries} fail the step."
    details = {"worker": command.worker, "delivered": delivered, "issue": assignment.issue, "attempt": command.attempt}
    where = f"Step `{step}`{_of_loop(run)}{_iteration(assignment.path)}"
    at: dict[str, Any] = {
        "since_ms": since,
        "step": step,
        "task": command.task,
        "iteration": assignment.path,
        "details": details,
    }
    if assignment.cancelling:
        text = f"{where} is told to stop ({assignment.cancelling}) and has not answered."
        return Reason("stopping", text, f"worker {command.worker} ends it, or the grace is over", **at)
    if command.worker and all(worker.name != command.worker for worker in around.workers):
        text = f"{where} was run by worker {command.worker}, which does not answer any more."
        text += times if delivered > 1 else ""
        return Reason(
            "worker_gone", text, "its lease ends 30 s after its last sign; then another worker takes it", **at
        )
    if command.next_ms:
        text = f"{where} waits until {iso(command.next_ms)} for attempt {command.attempt} of task `{command.task}`."
        return Reason("retry", text, "the time comes", until_ms=command.next_ms, **at)
    what = f"task `{command.task}`, attempt {command.attempt}" if command.task else "its pipeline"
    lasting = f" for {seconds(around.now_ms - since)}" if since else ""
    text = f"{where} runs {what}, at worker {command.worker or '(not named yet)'}{lasting}."
    text += times if delivered > 1 else ""
    return Reason("running", text, "the task ends, or its timeout", **at)


def _waiting(state: Execution, run: StepRun, wait: Wait, until: int | None, around: Environment) -> Reason:
    where = f"Task `{wait.task}` of step `{run.step}`{_iteration(wait.path)}"
    due = f" until {iso(until)}" if until is not None else ""
    at: dict[str, Any] = {
        "since_ms": wait.since_ms,
        "step": run.step,
        "task": wait.task,
        "iteration": wait.path,
        "until_ms": until,
    }
    if wait.signal is not None:
        queued = [name for name, payloads in state.signals.items() if payloads]
        other = f" Signals that nobody has taken: {', '.join(queued)}." if queued else ""
        text = f"{where} waits for the signal `{wait.signal}`{due}.{other}"
        moves = f"`noetl-stream execution signal {state.execution_id} {wait.signal}`; or its timeout"
        return Reason("signal", text, moves, details={"signal": wait.signal}, **at)
    if wait.child is not None:
        child = wait.child
        status = around.children.get(child.execution_id, "not begun")
        text = f"{where} waits for playbook `{child.path}`, execution {child.execution_id} ({status}){due}."
        moves = f"its end: `noetl-stream execution why {child.execution_id}`"
        return Reason("child", text, moves, details={"execution_id": child.execution_id, "status": status}, **at)
    if wait.delay_s is not None:
        text = f"{where} waits{due} for its next attempt ({wait.delay_s:g} s after the last)."
        return Reason("retry", text, "the time comes", **at)
    return Reason("timer", f"{where} waits{due}.", "the time comes", **at)


def _iteration(path: tuple[int, ...]) -> str:
    return f", iteration {path_key(path)}," if path else ""


def _of_loop(run: StepRun | None) -> str:
    if run is None or run.loop is None:
        return ""
    failed = f", {run.loop.failed} of them failed" if run.loop.failed else ""
    return f" ({run.loop.ended} of {run.loop.count} iterations ended{failed})"
