"""Changes of slots of limits by key: requested, granted, refused, released (LANGUAGE §15)."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from noetl_stream.engine.evolve import Rules, without
from noetl_stream.engine.evolve.suspensions import answer_slot_wait
from noetl_stream.engine.state import Execution, Slot
from noetl_stream.model import events
from noetl_stream.model.outcome import ErrorInfo

LIMIT_REACHED: Final = "limit_reached"
"""The error kind of an execution that found no slot and was not to wait for one."""


def _on_requested(state: Execution, fact: events.SlotRequested) -> Execution:
    run_id, holder = fact.step_run_id, fact.slot_id or fact.step_run_id
    if holder in state.slots or state.ending or (run_id and _has_ended(state, run_id)):
        return state
    slot = Slot(fact.key, state.at_ms, on_limit=fact.on_limit, step_run_id=run_id, task=fact.task, path=fact.path)
    return replace(state, slots={**state.slots, holder: slot})


def _on_granted(state: Execution, fact: events.SlotGranted) -> Execution:
    holder = fact.slot_id or fact.step_run_id
    slot = state.slots.get(holder)
    if slot is None or slot.granted or slot.key != fact.key:
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
    events.SlotRequested: _on_requested,
    events.SlotGranted: _on_granted,
    events.SlotRefused: _on_refused,
    events.SlotReleased: _on_released,
}
