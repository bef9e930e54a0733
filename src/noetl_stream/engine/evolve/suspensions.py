"""Changes of suspensions, timers, signals, children and slots of limits (LANGUAGE §8, §15; PROTOCOL §3 *Segments*)."""

from __future__ import annotations

from operator import itemgetter
from typing import Any, Final

from msgspec.structs import replace

from noetl_stream.engine.evolve import Rules, with_undoing, without
from noetl_stream.engine.evolve.closing import note_call
from noetl_stream.engine.evolve.step_runs import drop_assignment
from noetl_stream.engine.state import Assignment, Execution, Slot, Timer
from noetl_stream.model import events
from noetl_stream.model.events import Wait
from noetl_stream.model.ids import child_of, slot_of, timer_of
from noetl_stream.model.json import codec
from noetl_stream.model.messages import path_key
from noetl_stream.model.outcome import ErrorInfo, Outcome


def suspend(state: Execution, assignment: Assignment, fact: events.StepSuspended) -> Execution:
    """Suspends a command with its waiting pipelines; some of their answers may have arrived already."""
    if state.ending or assignment.cancelling:
        return drop_assignment(state, assignment)
    command_id = assignment.command_id
    waits = {path_key(wait.path): _with_start(wait, assignment, state.at_ms) for wait in fact.waits}
    suspended = replace(assignment, waits=waits, answers={}, paused=fact.paused, run=None, next_number=0, taken=0)
    state = replace(
        state,
        assignments=without(state.assignments, command_id),
        suspensions={**state.suspensions, command_id: suspended},
    )
    for key, wait in waits.items():
        child_id = wait.child.execution_id if wait.child is not None else ""
        if wait.signal is not None and (queued := state.signals.get(wait.signal)):
            first, *rest = queued
            signals = {**state.signals, wait.signal: tuple(rest)} if rest else without(state.signals, wait.signal)
            state = _answer(replace(state, signals=signals), command_id, key, _ok(first))
        elif child_id in state.orphaned:
            outcome = state.orphaned[child_id]
            state = _answer(replace(state, orphaned=without(state.orphaned, child_id)), command_id, key, outcome)
        elif wait.slot_id and (slot := state.slots.get(wait.slot_id)) is not None and slot.granted:
            state = _answer(state, command_id, key, None)
    return state


def _with_start(wait: Wait, assignment: Assignment, at_ms: int) -> Wait:
    """The wait with its start time; that of a wait from an earlier segment is kept."""
    known = assignment.waits.get(path_key(wait.path)) if wait.since_ms else None
    if known is not None:
        return known
    child = wait.child
    if child is not None:
        child = replace(child, execution_id=child_of(assignment.command_id, wait.path, at_ms))
    slot_id = "" if wait.key is None else slot_of(assignment.command_id, wait.path)
    return replace(wait, child=child, since_ms=at_ms, slot_id=slot_id)


def _on_resumed(state: Execution, fact: events.StepResumed) -> Execution:
    """Hands the pipelines to the next segment, which reports the remaining waits when it suspends again."""
    suspended = state.suspensions.get(fact.suspended)
    if suspended is None or state.ending:
        return state
    timers = without(state.timers, *(timer_of(fact.suspended, "wait", wait.path) for wait in suspended.waits.values()))
    following = replace(suspended, command_id=fact.command_id, segment=suspended.segment + 1, issue=0, paused=False)
    return replace(
        state,
        timers=timers,
        suspensions=without(state.suspensions, fact.suspended),
        assignments={**state.assignments, fact.command_id: following},
    )


def _on_timer_set(state: Execution, fact: events.TimerSet) -> Execution:
    if fact.timer_id in state.timers or (state.ending and fact.purpose != "grace"):
        return state
    timer = Timer(fact.purpose, fact.due_ms, fact.subject, fact.path)
    return replace(state, timers={**state.timers, fact.timer_id: timer})


def _on_timer_fired(state: Execution, fact: events.TimerFired) -> Execution:
    timer = state.timers.get(fact.timer_id)
    if timer is None or state.halted:
        return state  # a timer that fires during a halt stays set and is due again afterwards
    state = replace(state, timers=without(state.timers, fact.timer_id))
    if timer.purpose == "grace":
        return replace(state, assignments={})
    if timer.purpose == "compensation" and state.closing is not None:
        return with_undoing(state, closing=replace(state.closing, timed_out=True))
    suspended = state.suspensions.get(timer.subject) if timer.purpose == "wait" else None
    for key, wait in suspended.waits.items() if suspended is not None else ():
        # All due answers of this command at once: each alone would cost a segment.
        other = state.timers.get(timer_of(timer.subject, "wait", wait.path))
        if wait.path == timer.path or (other is not None and other.due_ms <= state.at_ms):
            state = _answer(state, timer.subject, key, _timeout_outcome(wait))
    return state


def _timeout_outcome(wait: Wait) -> Outcome | None:
    if wait.delay_s is not None:
        return None
    if wait.signal is None and wait.child is None:
        return Outcome("ok")
    what = f"signal {wait.signal}" if wait.signal is not None else f"playbook {wait.child.path if wait.child else ''}"
    message = f"task {wait.task} waited for {what} longer than its timeout of {wait.timeout_s:g} s"
    return Outcome("error", error=ErrorInfo("timeout", message, retryable=True))


def on_signal_received(state: Execution, fact: events.SignalReceived) -> Execution:
    """Gives a signal to the oldest wait for it; otherwise queues it (LANGUAGE §8)."""
    waiting = [
        (wait.since_ms, command_id, key)
        for command_id, suspended in state.suspensions.items()
        for key, wait in suspended.waits.items()
        if wait.signal == fact.signal
    ]
    if waiting:
        _, command_id, key = min(waiting, key=itemgetter(0))
        return _answer(state, command_id, key, _ok(fact.payload))
    queued = (*state.signals.get(fact.signal, ()), fact.payload)
    return replace(state, signals={**state.signals, fact.signal: queued})


def on_retry_now_requested(state: Execution, fact: events.RetryNowRequested) -> Execution:
    """Ends every wait for a next attempt."""
    for command_id, suspended in state.suspensions.items():
        for key, wait in suspended.waits.items():
            if wait.delay_s is not None and not state.ending:
                state = _answer(state, command_id, key, None)
    return state


def _on_child_requested(state: Execution, fact: events.ChildRequested) -> Execution:
    if fact.execution_id in state.children:
        return state
    children = {**state.children, fact.execution_id: fact.step_run_id}
    noted = state.compensable.get(fact.step_run_id)
    if not fact.command_id and noted is not None:
        compensable = {**state.compensable, fact.step_run_id: replace(noted, begun=True)}
        return with_undoing(replace(state, children=children), compensable=compensable)
    if fact.command_id not in state.suspensions:
        return state
    if state.undoing.undoes and state.undoing.undoes.get(state.runs[fact.step_run_id].step) is False:
        call = replace(fact.call, workload={}, return_step=None, execution_id=fact.execution_id, pin="")
        state = with_undoing(state, calls={**state.undoing.calls, fact.execution_id: call})
    return replace(state, children=children)


def _on_child_finished(state: Execution, fact: events.ChildFinished) -> Execution:
    """Gives the child's outcome to its wait, or stores it until the next suspension if a worker runs its command."""
    if fact.execution_id not in state.children:
        return state
    step_run_id = state.children[fact.execution_id]
    state = replace(state, children=without(state.children, fact.execution_id))
    if state.undoing.undoes:
        state = note_call(state, step_run_id, fact)
        if state.closing is not None and step_run_id in state.compensable:
            return state
    for command_id, suspended in state.suspensions.items():
        for key, wait in suspended.waits.items():
            if wait.child is not None and wait.child.execution_id == fact.execution_id:
                return _answer(state, command_id, key, fact.outcome)
    return replace(state, orphaned={**state.orphaned, fact.execution_id: fact.outcome})


def answer_slot_wait(state: Execution, slot_id: str, slot: Slot) -> Execution:
    """Resumes the pipeline that waits for this slot, at its next suspension if a worker runs its command now."""
    key = path_key(slot.path)
    for command_id, suspended in state.suspensions.items():
        if key in suspended.waits and suspended.waits[key].slot_id == slot_id:
            return _answer(state, command_id, key, None)
    return state


def _answer(state: Execution, command_id: str, key: str, outcome: Outcome | None) -> Execution:
    suspended = state.suspensions[command_id]
    wait = suspended.waits[key]
    answered = replace(suspended, waits=without(suspended.waits, key), answers={**suspended.answers, key: outcome})
    return replace(
        state,
        suspensions={**state.suspensions, command_id: answered},
        timers=without(state.timers, timer_of(command_id, "wait", wait.path)),
    )


def _ok(value: Any) -> Outcome:
    return Outcome("ok", codec.payload_of(value))


def _on_child_ordered(state: Execution, fact: events.ChildOrdered) -> Execution:
    if fact.execution_id not in state.children:
        return state
    if fact.order != "cancel" or fact.awaited:
        return replace(state)
    return replace(state, children=without(state.children, fact.execution_id))


LIMIT_REACHED: Final = "limit_reached"
"""The error kind of an execution that found no free slot and was not to wait."""


def _on_requested(state: Execution, fact: events.SlotRequested) -> Execution:
    run_id, holder = fact.step_run_id, fact.slot_id or fact.step_run_id
    if holder in state.slots or state.ending or (run_id and _has_ended(state, run_id)):
        return state
    slot = Slot(
        fact.key,
        state.at_ms,
        on_limit=fact.on_limit,
        step_run_id=run_id,
        task=fact.task,
        path=fact.path,
        namespace=fact.namespace,
        partition=fact.partition,
    )
    return replace(state, slots={**state.slots, holder: slot})


def _on_granted(state: Execution, fact: events.SlotGranted) -> Execution:
    holder = fact.slot_id or fact.step_run_id
    slot = state.slots.get(holder)
    if slot is None or slot.granted or (slot.key, slot.namespace) != (fact.key, fact.namespace):
        return state
    granted = replace(slot, granted=True, since_ms=state.at_ms, warning=fact.warning)
    state = replace(state, slots={**state.slots, holder: granted})
    return answer_slot_wait(state, fact.slot_id, granted) if fact.slot_id else state


def _on_refused(state: Execution, fact: events.SlotRefused) -> Execution:
    slot = state.slots.get(fact.step_run_id)
    if slot is None or slot.granted or state.ending:
        return state
    state = replace(state, slots=without(state.slots, fact.step_run_id))
    if slot.on_limit == "discard":
        return replace(state, cancelling=fact.reason, paused_at_ms=0)
    return replace(state, failing=ErrorInfo(LIMIT_REACHED, fact.reason))


def _on_released(state: Execution, fact: events.SlotReleased) -> Execution:
    holder = fact.slot_id or fact.step_run_id
    return replace(state, slots=without(state.slots, holder)) if holder in state.slots else state


def _has_ended(state: Execution, step_run_id: str) -> bool:
    run = state.runs.get(step_run_id)
    return run is None or bool(run.ended)


RULES: Final[Rules] = {
    events.StepResumed: _on_resumed,
    events.TimerSet: _on_timer_set,
    events.TimerFired: _on_timer_fired,
    events.ChildRequested: _on_child_requested,
    events.ChildOrdered: _on_child_ordered,
    events.ChildFinished: _on_child_finished,
    events.SlotRequested: _on_requested,
    events.SlotGranted: _on_granted,
    events.SlotRefused: _on_refused,
    events.SlotReleased: _on_released,
}
