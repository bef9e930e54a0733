"""The reasons why an execution has not ended: those of the whole execution, of its tokens and resting branches
(LANGUAGE §4, §7), and of its commands and suspended pipelines (LANGUAGE §8).
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec.structs import replace

from noetl_stream.durations import duration_text
from noetl_stream.engine.state import Assignment, Execution, StepRun, WaitingToken
from noetl_stream.model.envelope import iso
from noetl_stream.model.events import CancelRequested, ClientRequest, PauseRequested, Wait
from noetl_stream.model.ids import timer_of
from noetl_stream.model.messages import path_key
from noetl_stream.model.outcome import EXECUTION, PLAYBOOK
from noetl_stream.model.priorities import DEFAULT_PRIORITY
from noetl_stream.operations import waiting_on as waits
from noetl_stream.operations.why.ended import retry_details
from noetl_stream.operations.why.journal import Command, JournalHistory
from noetl_stream.operations.why.reason import Environment, counted, reason, values_text
from noetl_stream.playbook.plan import Plan, TaskPlan
from noetl_stream.ports.operations.cluster import AwaitedSlotDocument, SlotDocument, WorkerDocument
from noetl_stream.ports.operations.executions import ReasonDocument
from noetl_stream.ports.operations.waits import AwaitedPoolDocument, TimerDocument, WaitingOnDocument
from noetl_stream.ports.streams.command_queue import UNREADABLE_MENDED

DETAILS_CHARS: Final = 200
"""The most characters of a heartbeat's details in a sentence."""
_REFUSED: Final = re.compile(r"(NATS refused) \S+(?=: )")
"""The prefix of the reason for a refusal, with the subject of the message."""

MENDED: Final = "a worker passes its self-test, which it repeats; or another worker of the pool starts"


def the_whole(history: JournalHistory, state: Execution, around: Environment) -> Iterator[ReasonDocument]:
    """Reasons of the whole execution, the most important first."""
    yield from _server(state, around)
    left = counted(len(state.assignments), "command")
    if state.quarantined:
        text = f"The execution is quarantined, because an input of it could not be folded: {state.quarantined}."
        resume = f"`noetl-stream execution resume {state.execution_id}` once the cause is gone"
        moves = f"{resume}, or `noetl-stream execution cancel {state.execution_id}`"
        yield reason("quarantined", text, moves, state.paused_at_ms, waiting_on=WaitingOnDocument(request="resume"))
    elif state.cancelling:
        by, since = _requested(history, CancelRequested)
        text = f"The execution is being cancelled{by}; {left} still running."
        grace = next((timer.due_ms for timer in state.timers.values() if timer.purpose == "grace"), None)
        moves = "the last command ends, or the grace period ends"
        yield reason("cancelling", text, moves, since, until_ms=grace, waiting_on=_on_commands(state))
    elif state.failing is not None:
        text = f"The execution failed ({state.failing.kind}: {state.failing.message}); {left} still running."
        since = history.failing[1] if history.failing else 0
        moves = "the last command ends, or the grace period ends"
        yield reason("failing", text, moves, since, waiting_on=_on_commands(state))
    elif state.closing is not None and state.is_compensating:
        undone = sum(one.undone for one in state.compensable.values())
        text = (
            f"The execution undoes what it has done, and then ends as {state.closing.status}; {undone} undone so far."
        )
        until = next((timer.due_ms for timer in state.timers.values() if timer.purpose == "compensation"), None)
        waiting_on = _on_commands(state)
        yield reason("compensating", text, "the last compensation ends", 0, until_ms=until, waiting_on=waiting_on)
    elif state.paused_at_ms:
        by = "" if history.quota is not None else _requested(history, PauseRequested)[0]
        running = f"; {left} still running" if state.assignments else ""
        text = f"The execution is paused{by}{running}."
        if history.quota is not None:
            text = f"The execution is paused, since {history.quota.text}{running}."
        moves = f"`noetl-stream execution resume {state.execution_id}`"
        moves += "; it may then use as much again" if history.quota is not None else ""
        yield reason("paused", text, moves, state.paused_at_ms, waiting_on=WaitingOnDocument(request="resume"))
    if state.awaited is not None and state.awaited.store == EXECUTION and not state.ending:
        text = f"The execution is a rerun, and the results of execution {state.awaited.key} are still being read."
        moves = "the server has read the journal of that execution, or rejects the rerun"
        yield reason("rerun", text, moves, history.begun_ms, waiting_on=WaitingOnDocument(execution=state.awaited.key))
    elif state.awaited is not None and state.awaited.store == PLAYBOOK and not state.ending:
        text = "The execution has not started: the server is still loading its playbook."
        moves = "the playbook is loaded, or turns out to be missing"
        waiting_on = WaitingOnDocument(reference=state.awaited.key)
        yield reason("reference", text, moves, history.awaited_ms, waiting_on=waiting_on)
    elif state.awaited is not None and not state.ending:
        text = f"A decision needs a result of {state.awaited.size} bytes that the server is still loading."
        moves = "the result is loaded, or turns out to be lost"
        waiting_on = WaitingOnDocument(reference=state.awaited.key)
        yield reason("reference", text, moves, history.awaited_ms, waiting_on=waiting_on)
    elif state.evaluation is not None and not state.ending:
        text = "The guards of a decision cost too much for the server's loop; another process is evaluating them."
        moves = "they are evaluated, or exceed a limit"
        if state.request is not None:
            text = "The execution has not started: another process is comparing its workload with the schema."
            moves = "they are compared"
        waiting_on = WaitingOnDocument(choices=list(state.evaluation.choices))
        yield reason("evaluation", text, moves, history.awaited_ms, waiting_on=waiting_on)


def slots(state: Execution, around: Environment) -> Iterator[ReasonDocument]:
    """The awaited slots of limits by key."""
    if state.ending:
        return
    for holder, slot in state.slots.items():
        if slot.granted:
            continue
        run = state.runs.get(slot.step_run_id)
        what = "The execution"
        if run is not None:
            what = f"Task `{slot.task}` of step `{run.step}`" if slot.task else f"Step `{run.step}`"
            what += _iteration(slot.path)
        waiting_on = WaitingOnDocument(slot=around.slots.get(holder) or AwaitedSlotDocument(slot.key, slot.namespace))
        at: dict[str, Any] = {
            "since_ms": slot.since_ms,
            "until_ms": waits.bound_ms(state, run),
            "step": run.step if run is not None else None,
            "task": slot.task or None,
            "iteration": slot.path,
            "waiting_on": waiting_on,
        }
        if slot.partition and run is not None:
            same = [one for one in state.runs.values() if one.step == run.step and not one.ended]
            before = [one for one in same if one.token.partition == slot.key]
            text = f"{what} waits for its turn in partition `{slot.key}`: step run {before[0].step_run_id} has it"
            text += f", and {place - 1} more wait before it." if (place := before.index(run)) > 1 else "."
            yield reason("partition", text, "the step run before it ends", **at)
            continue
        whose = f" of namespace `{slot.namespace}`" if slot.namespace else ""
        text = f"{what} waits for a slot of key `{slot.key}`{whose}{_place(waiting_on.slot)}."
        yield reason("limit", text, _moves(waiting_on.slot), **at)


def _place(slot: AwaitedSlotDocument | None) -> str:
    if slot is None or slot.place is None:
        return ""
    place = f": it is number {slot.place} of {slot.queued} in the queue"
    if slot.concurrency is None:
        return place
    holders = [f"execution {one.execution_id}{_part(one)}" for one in slot.holders]
    more = (slot.held or 0) - len(holders)
    named = "; ".join(holders) + (f"; and {more} more" if more > 0 else "")
    return f"{place}, {slot.held} of {slot.concurrency} are held" + (f" by {named}" if holders else "")


def _part(holder: SlotDocument) -> str:
    """The part of its execution that holds a slot."""
    if holder.step is None:
        return ""
    return f", step `{holder.step}`" + (f", task `{holder.task}`" if holder.task is not None else "")


def _moves(slot: AwaitedSlotDocument | None) -> str:
    if slot is not None and slot.catching_up:
        return "Postgres has caught up with EVENTS, and all who hold the key are known: `noetl-stream database verify`"
    if slot is not None and slot.next_at is not None:
        return f"its rate gives the next slot at {slot.next_at}"
    return "a slot is given back: when an execution, step or task that holds it ends"


def _server(state: Execution, around: Environment) -> Iterator[ReasonDocument]:
    partition = around.partition
    if partition is None:
        return
    name, waiting_on = partition.partition, WaitingOnDocument(partition=partition.partition)
    details = {"behind": partition.behind}
    if not partition.live:
        text = f"No server owns the partition of the execution ({name})."
        moves = "start a server: `noetl-stream server`; a running one takes over when the lease of the last one expires"
        yield reason("no_server", text, moves, details=details, waiting_on=waiting_on)
    elif partition.behind:
        text = f"The server of its partition ({name}) is {counted(partition.behind, 'message')} behind."
        moves = "the server catches up; start more if it falls behind"
        yield reason("server_behind", text, moves, details=details, waiting_on=waiting_on)
    for why in around.unstored:  # a refused message may be of another execution, which is not named
        said = _REFUSED.sub(r"\1 a message", why)
        text = f"The server of its partition ({name}) cannot store what it decides: {said}."
        moves = "there is room, of which `noetl-stream doctor` says more; the server tries again every few seconds"
        yield reason("server_cannot_store", text, moves, details=details, waiting_on=waiting_on)


def _on_commands(state: Execution) -> WaitingOnDocument:
    grace = next((timer for timer in state.timers.values() if timer.purpose == "grace"), None)
    timer = TimerDocument("grace", iso(grace.due_ms), None) if grace is not None else None
    return WaitingOnDocument(commands=list(state.assignments)[: waits.COMMANDS_SHOWN], timer=timer)


def _requested(history: JournalHistory, kind: type[ClientRequest]) -> tuple[str, int]:
    """The words `` by alice (too slow)`` and the time in ms; 0 if the calling execution requested it."""
    found = history.requests.get(kind)
    if found is None:
        return " by the execution that called it", 0
    fact, at_ms = found
    by = f" by {fact.principal}" if fact.principal else ""
    return f"{by}{f' ({fact.reason})' if fact.reason else ''}", at_ms


def held_tokens(history: JournalHistory, state: Execution, plan: Plan | None) -> Iterator[ReasonDocument]:
    """The tokens that admission holds, with the current values of its guards."""
    for token_id, waiting in state.tokens.items():
        if waiting.held:
            yield _held(history, state, plan, token_id, waiting)


def halted_tokens(history: JournalHistory, state: Execution) -> Iterator[ReasonDocument]:
    """The tokens that are not considered, because decisions are on hold."""
    for token_id, waiting in state.tokens.items():
        if not (waiting.held or waiting.joining):
            step = waiting.token.step
            text = f"A token waits at step `{step}`, and decisions are on hold until the execution resumes."
            since, waiting_on = history.tokens_ms.get(token_id, 0), WaitingOnDocument(request="resume")
            yield reason("token", text, "the execution resumes", since, step, waiting_on=waiting_on)


def joins(history: JournalHistory, state: Execution, plan: Plan | None) -> Iterator[ReasonDocument]:
    """The joins at which tokens wait, and the steps that can still reach them."""
    arrived: dict[str, list[str]] = {}
    for token_id, waiting in state.tokens.items():
        if waiting.joining:
            arrived.setdefault(waiting.token.step, []).append(token_id)
    for step, token_ids in arrived.items():
        yield _join(history, state, plan, step, token_ids)


def _held(
    history: JournalHistory, state: Execution, plan: Plan | None, token_id: str, waiting: WaitingToken
) -> ReasonDocument:
    token, waiting_on = waiting.token, waits.on_admission(state, plan, waiting)
    if plan is not None:
        waiting_on = replace(waiting_on, expects=waits.at_admission(plan, state, token))
    values = values_text(waiting_on.guards)
    tests = [f"`{guard.when}`" for guard in waiting.guards if guard.when != "else"]
    refused = f"{' and '.join(tests) or 'no rule'} {'do' if len(tests) > 1 else 'does'} not admit it"
    text = f"A token for step `{token.step}` is held at admission: {refused}"
    text += f" ({values})." if values else "."
    moves = f"a change of ctx or of a step result that satisfies the guard{_by_patch(state, waiting_on)}"
    if waiting.keeps_alive:
        over = waiting_on.timer.on_timeout if waiting_on.timer is not None else None
        moves += f"; after its timeout {'the token is discarded' if over == 'discard' else 'the step fails'}"
    else:
        moves += "; it is discarded when nothing else is active"
    return reason(
        kind="admission" if waiting.keeps_alive else "held",
        sentence=text,
        moves=moves,
        since_ms=history.tokens_ms.get(token_id, 0),
        step=token.step,
        until_ms=waits.bound_ms(state, None, timer_of(token_id, "admission")),
        details={"token_id": token_id, "from_step": token.from_step},
        waiting_on=waiting_on,
    )


def resting(history: JournalHistory, state: Execution, plan: Plan | None) -> Iterator[ReasonDocument]:
    """The branches that rest at ``next``, with the current values of the guards of their arcs."""
    for step_run_id in state.resting:
        step, waiting_on = state.runs[step_run_id].step, waits.on_next(state, plan, step_run_id)
        if plan is not None:
            waiting_on = replace(waiting_on, expects=waits.at_next(plan, state, state.runs[step_run_id]))
        guards = [f"`{guard.when}`{f' to `{guard.to}`' if guard.to else ''}" for guard in waiting_on.guards]
        values = values_text(waiting_on.guards)
        text = f"A branch rests at `next` of step `{step}`: no arc fires yet: {', '.join(guards)}"
        moves = f"a change of ctx or of a step result that lets an arc fire{_by_patch(state, waiting_on)}"
        over = waiting_on.timer.on_timeout if waiting_on.timer is not None else None
        ends = "the branch ends" if over == "discard" else "that is a failure of the step"
        yield reason(
            kind="next",
            sentence=f"{text} ({values})." if values else f"{text}.",
            moves=f"{moves}; when its time has passed, an arc for `next.timed_out` fires, or {ends}",
            since_ms=history.tokens_ms.get(step_run_id, 0),
            step=step,
            until_ms=waits.bound_ms(state, None, timer_of(step_run_id, "next")),
            details={"step_run_id": step_run_id},
            waiting_on=waiting_on,
        )


def _by_patch(state: Execution, waiting_on: WaitingOnDocument) -> str:
    """An example of a patch that may end the wait."""
    missing = [path for guard in waiting_on.guards for path in guard.missing if path.startswith("ctx.")]
    known = [
        f"{one.key}={_word(value.value)}{' --merge' if one.path else ''}"
        for one in waiting_on.expects
        for value in one.values
        if value.moves and not any("." in key for key in one.path or [one.key])  # a dot means "inside" there
    ]
    sets = known or [f"{key}=…" for key in ([path.split(".")[1] for path in missing] or waiting_on.ctx)]
    return f", e.g. `noetl-stream execution patch {state.execution_id} --set {sets[0]}`" if sets else ""


def _word(value: Any) -> str:
    """A value as a word of the shell; the command line reads it as JSON if it is valid."""
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            json.loads(value)
            return shlex.quote(text)
        text = value
    return shlex.quote(text)


def _join(
    history: JournalHistory, state: Execution, plan: Plan | None, step: str, token_ids: list[str]
) -> ReasonDocument:
    waiting_on = waits.on_join(state, plan, step)
    assert waiting_on.join is not None
    here, coming = waiting_on.join.arrived, waiting_on.join.coming
    mode = plan.steps[step].join if plan is not None else None
    wanted = f" of {mode}" if isinstance(mode, int) else ""
    text = (
        f"Step `{step}` waits for its branches (`join: {mode}`): {counted(len(here), 'token')}{wanted} arrived, from "
    )
    text += f"{', '.join(f'`{name}`' for name in here)}"
    text += f"; missing: {'; '.join(coming)}." if coming else "."
    moves = "the other tokens arrive, or can no longer reach it"
    since = min(history.tokens_ms.get(token_id, 0) for token_id in token_ids)
    return reason("join", text, moves, since, step, until_ms=waits.bound_ms(state, None), waiting_on=waiting_on)


def commands(
    history: JournalHistory, state: Execution, plan: Plan | None, around: Environment
) -> Iterator[ReasonDocument]:
    """The commands that have not ended; the queued ones of a step run together."""
    queued: dict[str, list[Assignment]] = {}
    for assignment in state.assignments.values():
        if assignment.run is None:
            queued.setdefault(assignment.step_run_id, []).append(assignment)
        else:
            yield _running(history, state, assignment, plan, around)
    for step_run_id, waiting in queued.items():
        run = state.runs.get(step_run_id)
        if run is not None:
            yield _queued(history, state, run, waiting, plan, around)


def suspended(
    history: JournalHistory, state: Execution, plan: Plan | None, around: Environment
) -> Iterator[ReasonDocument]:
    """The pipelines that wait without a worker, with their waits."""
    expected: dict[tuple[str, str], WaitingOnDocument] = {}
    for command_id, assignment in state.suspensions.items():
        run = state.runs[assignment.step_run_id]
        for wait in (one for one in assignment.waits.values() if one.key is None):  # the others are among the slots
            timer = state.timers.get(timer_of(command_id, "wait", wait.path))
            until = timer.due_ms if timer is not None else None
            waiting_on = waits.on_wait(state, command_id, wait, around.children)
            if wait.signal is not None and plan is not None:
                place = run.step, wait.task
                known = expected[place] = expected.get(place) or waits.expected_payload(plan, *place)
                waiting_on = replace(waiting_on, expects=known.expects, schema=known.schema)
            retry = retry_details(history, plan, run, wait.path, wait.task) if wait.delay_s is not None else {}
            yield _waiting(state, run, wait, until, waiting_on, retry)
        if not assignment.waits:
            text = f"Step `{run.step}` is suspended between two iterations of its loop."
            waiting_on = WaitingOnDocument(request="resume")
            yield reason("suspended", text, "the execution resumes", step=run.step, waiting_on=waiting_on)


def _queued(
    history: JournalHistory,
    state: Execution,
    run: StepRun,
    waiting: list[Assignment],
    plan: Plan | None,
    around: Environment,
) -> ReasonDocument:
    pool = waits.pool_of(state, plan, run.step)
    since = min(history.commands.get(one.command_id, Command(0)).scheduled_ms for one in waiting)
    workers = around.workers_of(pool)
    slots, busy = sum(worker.slots for worker in workers), sum(worker.busy for worker in workers)
    what = f"Step `{run.step}`{_of_loop(run)}: {counted(len(waiting), 'command')} in the queue of pool `{pool}`"
    queue = around.pools.get(pool)
    queued = queue.queued if queue is not None else None
    at_each, own = queue.by_priority if queue is not None else {}, state.priority_of(run.step_run_id)
    higher = sum(count for priority, count in at_each.items() if int(priority) > own)
    ahead = None if queue is None else higher
    if len(at_each) > 1 or own != DEFAULT_PRIORITY:
        what += f" with priority {own}"
        what += f", behind {counted(ahead, 'command')} with a higher one" if ahead else ""
    served = AwaitedPoolDocument(pool, len(workers), slots, busy, queued, priority=own, ahead=ahead)
    ids = [one.command_id for one in waiting[: waits.COMMANDS_SHOWN]]
    at: dict[str, Any] = {
        "since_ms": since,
        "until_ms": waits.bound_ms(state, run),
        "step": run.step,
        "details": {"commands": len(waiting)},
        "waiting_on": WaitingOnDocument(commands=ids, pool=served),
    }
    if queue is not None and queue.unreadable:
        text = f"{what}, but NATS gives out none of them: {queue.unreadable}."
        return reason("queue_unreadable", text, UNREADABLE_MENDED, **at)
    if not workers:
        text = f"{what}, but no worker of that pool is running."
        return reason("no_worker", text, f"start a worker: `noetl-stream worker --pool {pool}`", **at)
    alive = f"{counted(len(workers), 'worker')} with {counted(slots, 'slot')}"
    if busy >= slots:
        text = f"{what}; {alive}, all busy."
        return reason("slot", text, "a slot becomes free, or another worker starts", **at)
    if unfit := _unfit(workers):
        return reason("worker_unfit", f"{what}, but {unfit}.", MENDED, **at)
    issues = max(one.issue for one in waiting)
    again = f"; issued {issues} times, since its queue lost it" if issues > 1 else ""
    text = f"{what}, about to be taken by one of {alive} ({busy} busy){again}."
    return reason("queued", text, "a worker takes it", **at)


def _unfit(workers: Sequence[WorkerDocument]) -> str:
    """The words that no worker of the pool can begin tasks; empty if one can, or there is none."""
    if not workers or any(not worker.unfit for worker in workers):
        return ""
    whose = "its worker cannot" if len(workers) == 1 else f"none of its {len(workers)} workers can"
    return f"{whose} begin tasks: {workers[0].unfit}"


def _running(
    history: JournalHistory, state: Execution, assignment: Assignment, plan: Plan | None, around: Environment
) -> ReasonDocument:
    run = state.runs.get(assignment.step_run_id)
    step = run.step if run is not None else assignment.step_run_id
    command = history.commands.get(assignment.command_id, Command(0))
    until = waits.bound_ms(state, run, own_ms=_attempt_ends_ms(plan, step, command))
    since = command.task_ms or command.started_ms or command.scheduled_ms
    delivered = assignment.run.num_delivered if assignment.run is not None else 1
    times = f" It was delivered {delivered} times; the step fails after {state.limits.max_deliveries} deliveries."
    details = {"worker": command.worker, "delivered": delivered, "issue": assignment.issue, "attempt": command.attempt}
    where = f"Step `{step}`{_of_loop(run)}{_iteration(assignment.path)}"
    at: dict[str, Any] = {
        "since_ms": since,
        "step": step,
        "task": command.task,
        "iteration": assignment.path,
        "details": details,
        "waiting_on": WaitingOnDocument(commands=[assignment.command_id], worker=command.worker or None),
    }
    if assignment.cancelling:
        text = f"{where} was told to stop ({assignment.cancelling}) and has not answered yet."
        return reason("stopping", text, f"worker {command.worker} ends it, or the grace period ends", **at)
    if command.returned:
        pool = waits.pool_of(state, plan, step)
        unfit = _unfit(around.workers_of(pool))
        text = f"{where} could not begin at worker {command.returned}; its command waits for a worker of pool `{pool}`"
        return reason("worker_unfit", f"{text}, but {unfit}." if unfit else f"{text}.", MENDED, **at)
    if command.worker and all(worker.name != command.worker for worker in around.workers):
        text = f"{where} was run by worker {command.worker}, which no longer answers: it is gone, or too busy."
        text += times if delivered > 1 else ""
        moves = "another worker takes it when its lease expires, within 30 s, unless the worker goes on"
        return reason("worker_gone", text, moves, until_ms=until, **at)
    shown = around.running(command.worker, assignment.command_id)
    if shown is not None and shown.waits_for:
        text = f"{where} has ended at worker {command.worker}, which keeps the result: {shown.waits_for}."
        return reason("unreported", text, "the worker can report it; it tries again every second", **at)
    if command.next_ms:
        retry = {} if run is None else retry_details(history, plan, run, assignment.path, command.task or "")
        at["details"] = {**details, **retry}
        attempt = _attempt({"attempt": command.attempt, **retry})
        text = f"{where} waits until {iso(command.next_ms)} for {attempt} of task `{command.task}`{_last_error(retry)}."
        return reason("retry", text, "the time is reached", until_ms=command.next_ms, **at)
    if shown is not None and shown.task_waits_for:
        text = f"{where} waits at worker {command.worker} for {shown.task_waits_for}."
        moves = f"another task of that worker ends, or what it waits for is ready{_or_timeout(until)}"
        return reason("worker_full", text, moves, until_ms=until, **at)
    what = f"task `{command.task}`, attempt {command.attempt}" if command.task else "its pipeline"
    lasting = f" for {duration_text((around.now_ms - since) / 1000)}" if since else ""
    text = f"{where} runs {what}, at worker {command.worker or '(not named yet)'}{lasting}."
    if command.heartbeat_ms:
        ago = duration_text((around.now_ms - command.heartbeat_ms) / 1000)
        text += (
            f" Its last heartbeat came {ago} ago: {json.dumps(command.details, ensure_ascii=False)[:DETAILS_CHARS]}."
        )
        details |= {"heartbeat": command.details}
    text += times if delivered > 1 else ""
    task = _task_of(plan, step, command)
    ends = ", or its timeout" if task is not None and _is_rendered(task) else _or_timeout(until)
    return reason("running", text, f"the task ends{ends}", until_ms=until, **at)


def _attempt_ends_ms(plan: Plan | None, step: str, command: Command) -> int | None:
    """The time at which the timeout ends the running attempt; ``None`` also if only its worker knows."""
    task = _task_of(plan, step, command)
    total_s = None if task is None or not command.task_ms or _is_rendered(task) else task.timeouts.total
    return None if total_s is None else command.task_ms + round(total_s * 1000)


def _task_of(plan: Plan | None, step: str, command: Command) -> TaskPlan | None:
    tasks = plan.steps[step].tasks if plan is not None and step in plan.steps else ()
    return next((task for task in tasks if task.name == command.task), None)


def _is_rendered(task: TaskPlan) -> bool:
    """Whether the time of an attempt is a template."""
    return task.timeout_template is not None and "total" in task.timeout_template.source


def _or_timeout(until_ms: int | None) -> str:
    return "; it has no timeout" if until_ms is None else ", or its timeout"


def _waiting(
    state: Execution,
    run: StepRun,
    wait: Wait,
    until: int | None,
    waiting_on: WaitingOnDocument,
    retry: dict[str, Any],
) -> ReasonDocument:
    where = f"Task `{wait.task}` of step `{run.step}`{_iteration(wait.path)}"
    due = f" until {iso(until)}" if until is not None else ""
    at: dict[str, Any] = {
        "since_ms": wait.since_ms,
        "step": run.step,
        "task": wait.task,
        "iteration": wait.path,
        "until_ms": (bound := waits.bound_ms(state, run, own_ms=until)),
        "waiting_on": waiting_on,
    }
    if wait.signal is not None:
        queued = [name for name, payloads in state.signals.items() if payloads]
        other = f" Other queued signals: {', '.join(queued)}." if queued else ""
        text = f"{where} waits for the signal `{wait.signal}`{due}.{other}"
        moves = f"`noetl-stream execution signal {state.execution_id} {wait.signal}`; or its timeout"
        return reason("signal", text, moves, **at)
    if wait.child is not None:
        child = wait.child
        status = (waiting_on.child and waiting_on.child.status) or "not begun"
        text = f"{where} waits for playbook `{child.path}`, execution {child.execution_id} ({status}){due}."
        moves = f"its end: `noetl-stream execution why {child.execution_id}`{_or_timeout(bound)}"
        return reason("child", text, moves, **at)
    if wait.delay_s is not None:
        after = f"{duration_text(wait.delay_s)} after the last"
        text = f"{where} waits{due} for {_attempt(retry)} ({after}){_last_error(retry)}."
        moves = f"the time is reached; or `noetl-stream execution retry-now {state.execution_id}`"
        return reason("retry", text, moves, details=retry, **at)
    return reason("timer", f"{where} waits{due}.", "the time is reached", **at)


def _attempt(retry: dict[str, Any]) -> str:
    """``attempt 4 of 10``."""
    if "attempt" not in retry:
        return "its next attempt"
    most = f" of {retry['attempts']}" if retry.get("attempts") else ""
    return f"attempt {retry['attempt']}{most}"


def _last_error(retry: dict[str, Any]) -> str:
    error = retry.get("error")
    return "" if error is None else f"; the last error: {error['kind']}: {error['message']}".rstrip(".")


def _iteration(path: tuple[int, ...]) -> str:
    return f", iteration {path_key(path)}," if path else ""


def _of_loop(run: StepRun | None) -> str:
    if run is None or run.loop is None:
        return ""
    failed = f", {run.loop.failed} of them failed" if run.loop.failed else ""
    return f" ({run.loop.ended} of {run.loop.count} iterations ended{failed})"
