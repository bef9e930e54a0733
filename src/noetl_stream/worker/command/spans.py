"""The trace of one run of a command: the spans of its attempts, and the ``traceparent`` of their calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noetl_stream.engine.pipeline import visit_of
from noetl_stream.engine.runner.lanes import RunTask
from noetl_stream.model.ids import RunId
from noetl_stream.model.messages import StepCommand, path_key
from noetl_stream.model.outcome import Outcome
from noetl_stream.model.traces import attempt_span, task_span, trace_of, traceparent
from noetl_stream.ports.traces import Span, Tracing
from noetl_stream.telemetry.measures import Exemplar

CALLING: Final = frozenset({"http", "postgres", "nats"})
"""The kinds whose tasks call a system outside the worker."""

HELPERS: Final[Mapping[str, tuple[str, str]]] = {
    "http": ("status", "http.response.status_code"),
    "postgres": ("sqlstate", "db.response.status_code"),
}
"""The member of an outcome's helper that a span shows, by kind: its key and the attribute."""


class RunTrace:
    """Records the spans of one run.

    Args:
        tracing: The exporter of spans; ``None``: calls belong to the span of the execution's starter.
    """

    def __init__(self, tracing: Tracing | None, command: StepCommand, run: RunId) -> None:
        self._tracing = tracing
        self._command = command
        self._run = run
        self._trace = trace_of(command.execution_id, command.trace_id, command.caller_span)
        self.is_sampled = tracing is not None and tracing.is_sampled(self._trace)

    def traceparent(self, action: RunTask) -> str:
        """Returns the ``traceparent`` that an attempt passes to its calls; empty if there is none."""
        if self._tracing is None:
            return self._trace.forwarded_traceparent
        return traceparent(self._trace.trace_id, self._span_of(action), sampled=self.is_sampled)

    def record_attempt(
        self, action: RunTask, began_ms: int, took_s: float, outcome: Outcome | None, about: Mapping[str, Any]
    ) -> Exemplar | None:
        """Records the span of an attempt, and returns its exemplar for a histogram; ``None`` if it is not sampled.

        Args:
            outcome: ``None`` if the attempt was stopped.
            about: Attributes of this attempt: its worker, and the target of its tool's call.
        """
        if self._tracing is None or not self.is_sampled:
            return None
        task, progress, path, command = action.task, action.progress, action.iteration.path, self._command
        attributes: dict[str, Any] = {
            **about,
            "noetl.execution.id": command.execution_id,
            "noetl.step": command.step,
            "noetl.step_run.id": command.step_run_id,
            "noetl.task": task.name,
            "noetl.task.kind": task.kind,
            "noetl.task.attempt": progress.attempt,
            "noetl.pool": command.pool,
        }
        if path:
            attributes["noetl.iteration"] = path_key(path)
        key, shown_as = HELPERS.get(task.kind, ("", ""))
        if outcome is not None and outcome.helper.get(key):
            attributes[shown_as] = outcome.helper[key]
        error = "cancelled" if outcome is None else outcome.error.kind if outcome.error is not None else ""
        span = Span(
            trace_id=self._trace.trace_id,
            span_id=self._span_of(action),
            parent_id=task_span(command.step_run_id, path, task.name, visit_of(progress)),
            name=f"attempt {task.label}",
            started_ms=began_ms,
            ended_ms=began_ms + took_s * 1000,
            attributes=attributes,
            error=error,
            kind="client" if task.kind in CALLING else "internal",
        )
        self._tracing.record(span)
        return Exemplar(span.trace_id, span.span_id, took_s, span.ended_ms / 1000)

    def _span_of(self, action: RunTask) -> str:
        progress = action.progress
        visit = visit_of(progress)
        return attempt_span(self._run, action.iteration.path, action.task.name, visit, progress.attempt)


def trace_of_run(tracing: Tracing | None, command: StepCommand, run: RunId) -> RunTrace | None:
    """Returns the trace of a run; ``None`` if no span is recorded and no ``traceparent`` is passed on."""
    return RunTrace(tracing, command, run) if tracing is not None or command.caller_span else None
