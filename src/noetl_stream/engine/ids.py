"""The engine's ids, each a function of its cause (PROTOCOL §1 *Identity*)."""

from __future__ import annotations

from noetl_stream.model.events import Path
from noetl_stream.model.ids import derive

SEGMENT = 0
"""A pipeline's first stretch; a suspension begins the next (LANGUAGE §8), with a command id of its own."""


def start_token(execution_id: str) -> str:
    return derive(execution_id, "start")


def arc_token(step_run_id: str, arc: int) -> str:
    return derive(step_run_id, "arc", arc)


def step_run_of(execution_id: str, token_id: str) -> str:
    return derive(execution_id, "step_run", token_id)


def command_of(step_run_id: str, path: Path = ()) -> str:
    return derive(step_run_id, "command", *path, SEGMENT)
