"""Reasons that hold for the whole execution: nobody serves it, somebody paused it, it is ending."""

from __future__ import annotations

from collections.abc import Iterator

from noetl_stream.client.why.environment import Environment
from noetl_stream.client.why.journal import JournalHistory
from noetl_stream.client.why.reason import Reason, counted
from noetl_stream.engine.state import Execution
from noetl_stream.model.events import CancelRequested, ClientRequest, PauseRequested
from noetl_stream.model.outcome import EXECUTION


def the_whole(history: JournalHistory, state: Execution, around: Environment) -> Iterator[Reason]:
    """In order of weight: what stops everything comes first."""
    yield from _server(state, around)
    left = counted(len(state.assignments), "command")
    if state.cancelling:
        by, since = _asked(history, CancelRequested)
        text = f"It is being cancelled{by}; {left} yet to end."
        grace = next((timer.due_ms for timer in state.timers.values() if timer.purpose == "grace"), None)
        yield Reason("cancelling", text, "the last of them ends, or the grace is over", since, until_ms=grace)
    elif state.failing is not None:
        text = f"It has failed ({state.failing.kind}: {state.failing.message}); {left} yet to end."
        since = history.failing[1] if history.failing else 0
        yield Reason("failing", text, "the last of them ends, or the grace is over", since)
    elif state.paused_at_ms:
        by, _ = _asked(history, PauseRequested)
        held_up = f"; {left} yet to end" if state.assignments else ""
        text = f"It is paused{by}{held_up}."
        moves = f"`noetl-stream execution resume {state.execution_id}`"
        yield Reason("paused", text, moves, state.paused_at_ms)
    if state.awaited is not None and state.awaited.store == EXECUTION and not state.ending:
        text = f"It is a rerun, and what execution {state.awaited.key} has done is yet to be taken over."
        moves = "the server reads the journal of that execution, or finds that it cannot be run again"
        yield Reason("rerun", text, moves, history.begun_ms, details={"execution_id": state.awaited.key})
    elif state.awaited is not None and not state.ending:
        text = f"A decision reads a result of {state.awaited.size} bytes that the server has yet to load."
        moves = "the object store gives it, or is found to have lost it"
        yield Reason("reference", text, moves, history.awaited_ms, details={"key": state.awaited.key})


def _server(state: Execution, around: Environment) -> Iterator[Reason]:
    partition = around.partition
    if partition is None:
        return
    name, details = partition.partition, {"partition": partition.partition, "behind": partition.behind}
    if not partition.live:
        text = f"No server folds its partition ({name}): nothing of it can move."
        moves = (
            "start a server: `noetl-stream server`; one that is up takes over when the lease of the last has run out"
        )
        yield Reason("no_server", text, moves, details=details)
    elif partition.behind:
        text = f"The server of its partition ({name}) has {counted(partition.behind, 'message')} yet to fold."
        yield Reason("server_behind", text, "it catches up; if it falls behind, start more servers", details=details)


def _asked(history: JournalHistory, kind: type[ClientRequest]) -> tuple[str, int]:
    """`` by alice: too slow`` and since when; nothing where another execution has ordered it."""
    found = history.asked.get(kind)
    if found is None:
        return " by the execution that called it", 0
    fact, at_ms = found
    by = f" by {fact.principal}" if fact.principal else ""
    return f"{by}{f' ({fact.reason})' if fact.reason else ''}", at_ms
