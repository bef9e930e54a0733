"""The engine's ids, each derived from its cause (PROTOCOL §1 *Identity*)."""

from __future__ import annotations

from noetl_stream.model.events import Path
from noetl_stream.model.ids import derive, uuid7


def start_token(execution_id: str) -> str:
    return derive(execution_id, "start")


def arc_token(step_run_id: str, arc: int) -> str:
    return derive(step_run_id, "arc", arc)


def join_token(execution_id: str, step: str, firing: int) -> str:
    return derive(execution_id, "join", step, firing)


def injected_token(execution_id: str, request_id: str) -> str:
    return derive(execution_id, "injected", request_id)


def rerun_token(execution_id: str) -> str:
    return derive(execution_id, "rerun")


def step_run_of(execution_id: str, token_id: str) -> str:
    return derive(execution_id, "step_run", token_id)


def command_of(step_run_id: str, path: Path = (), segment: int = 0) -> str:
    """Each suspension begins a new segment of the pipeline, with its own command id (LANGUAGE §8)."""
    return derive(step_run_id, "command", *path, segment)


def paging_of(step_run_id: str, path: Path = ()) -> str:
    """The command that pages out the items of the level inside the iteration ``path``."""
    return derive(step_run_id, "paging", *path)


def timer_of(subject: str, purpose: str, path: Path = ()) -> str:
    return derive(subject, "timer", purpose, *path)


def child_of(command_id: str, path: Path, at_ms: int) -> str:
    """The execution id of a child; like every execution id it contains the start time."""
    return uuid7(at_ms, bytes.fromhex(derive(command_id, "child", *path)))
