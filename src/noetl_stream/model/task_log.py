"""Log lines of tasks: the output of a running task, and its worker's lines about it."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from noetl_stream.model.events import Path

LogStream: TypeAlias = Literal["stdout", "stderr", "worker"]
"""The source of a log line: the task's output, or its worker."""


class LogLine(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A log line without line end. ``at_ms``: received by the worker, by its clock. ``iteration``: of a loop."""

    at_ms: int
    task: str
    text: str
    stream: LogStream = "stdout"
    attempt: int = 1
    iteration: Path = ()


class LogBatch(msgspec.Struct, frozen=True):
    """Log lines of one step run, as a worker publishes them together."""

    step: str
    step_run_id: str
    worker: str
    lines: list[LogLine]
