"""What an execution waits for, as a person asks it: which signal, until when, which playbook (LANGUAGE §4, §8)."""

from __future__ import annotations

from collections.abc import Iterator

from noetl_stream.engine.state import Execution
from noetl_stream.model.envelope import iso
from noetl_stream.model.events import Wait
from noetl_stream.model.ids import timer_of
from noetl_stream.ports.operations.executions import WaitDocument


def awaited(state: Execution) -> Iterator[WaitDocument]:
    """Everything that waits."""
    for token_id, waiting in state.tokens.items():
        if waiting.keeps_alive:
            yield _described(state, waiting.token.step, None, [], "admission", timer_of(token_id, "admission"))
    for command_id, suspended in state.suspensions.items():
        run = state.runs[suspended.step_run_id]
        for wait in suspended.waits.values():
            timer_id = timer_of(command_id, "wait", wait.path)
            yield _described(state, run.step, wait.task, list(wait.path), _what(wait), timer_id)


def _what(wait: Wait) -> str:
    if wait.signal is not None:
        return f"signal {wait.signal}"
    if wait.child is not None:
        return f"playbook {wait.child.path} ({wait.child.execution_id})"
    return "its next attempt" if wait.delay_s is not None else "its time"


def _described(
    state: Execution, step: str, task: str | None, iteration: list[int], what: str, timer_id: str
) -> WaitDocument:
    timer = state.timers.get(timer_id)
    until = None if timer is None else iso(timer.due_ms)
    return WaitDocument(step, task, iteration, what, until)
