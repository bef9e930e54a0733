"""The spans in an execution's journal: of the execution, its step runs and its tasks (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from noetl_stream.model import events
from noetl_stream.model.events import Path
from noetl_stream.model.events.journal_reader import IterationEnd, JournalReader, Recorded, RunEnd
from noetl_stream.model.messages import path_key
from noetl_stream.model.outcome import ErrorInfo, parse_shown_time
from noetl_stream.model.status import RunStatus
from noetl_stream.model.traces import Trace, execution_span, step_span, task_span
from noetl_stream.ports.traces import Span, SpanLink


class TracedExecution(msgspec.Struct, frozen=True, gc=False):
    """An execution as its spans name it.

    Attributes:
        caller: The calling execution; empty if there is none.
        caller_step_run: The calling step run.
        rerun_of: The execution that is rerun; empty for none.
    """

    execution_id: str
    trace: Trace
    path: str
    version: str | None
    caller: str
    caller_step_run: str
    rerun_of: str


class _Pipeline(msgspec.Struct):
    """A pipeline, outside loops or of one iteration: how many task runs it had, and when the present task began."""

    runs: int = 0
    began_ms: int | None = None


class _StepRun(msgspec.Struct):
    step_run_id: str
    step: str
    claimed_ms: int
    worker: str = ""
    pipelines: dict[Path, _Pipeline] = {}
    children: list[str] = []
    loop: dict[str, int] = {}

    def begin_task(self, path: Path, at_ms: int) -> _Pipeline:
        """Returns the pipeline of ``path``, and notes when its present task began, if that is not known."""
        pipeline = self.pipelines.setdefault(path, _Pipeline())
        if pipeline.began_ms is None:
            pipeline.began_ms = at_ms
        return pipeline


class JournalReading(JournalReader[_StepRun]):
    """An execution's journal, read up to ``position``. ``has_ended``: nothing that follows ends a span.

    Args:
        links: The links of the execution's span, except that to its caller.
    """

    def __init__(self, execution: TracedExecution, links: Sequence[SpanLink]) -> None:
        super().__init__(execution.execution_id)
        self.execution = execution
        self._links = links
        self._ended: list[Span] = []

    def take(self, recorded: Iterable[Recorded]) -> list[Span]:
        """The spans that end with these facts."""
        self._ended = []
        for one in recorded:
            self.read(one)
        return self._ended

    def run_began(self, at: Recorded, step: str, fact: events.TokenClaimed) -> _StepRun:
        return _StepRun(fact.step_run_id, step, at.at_ms)

    def run_started(self, at: Recorded, run: _StepRun, fact: events.StepStarted) -> None:
        run.worker = fact.worker

    def run_suspended(self, at: Recorded, run: _StepRun, fact: events.StepSuspended) -> None:
        for wait in fact.waits:
            run.begin_task(wait.path, at.at_ms)

    def child_requested(self, at: Recorded, run: _StepRun, fact: events.ChildRequested) -> None:
        run.children.append(fact.execution_id)

    def iteration_ended(self, at: Recorded, run: _StepRun, fact: IterationEnd) -> None:
        run.pipelines.pop(fact.path, None)

    def loop_ended(self, at: Recorded, run: _StepRun, fact: events.LoopDone) -> None:
        if not fact.path:
            run.loop = {"count": fact.count, "ok": fact.ok, "failed": fact.failed, "skipped": fact.skipped}

    def run_ended(self, at: Recorded, run: _StepRun, fact: RunEnd) -> None:
        del self.by_id[run.step_run_id]
        if fact.status != "reused":
            self._end(run, at.at_ms, fact.status, fact.error)

    def attempt_ended(self, at: Recorded, run: _StepRun, fact: events.TaskProcessed) -> None:
        """Ends the span of a task with its last attempt. Its times are those of its workers."""
        meta = fact.outcome.meta
        pipeline = run.begin_task(fact.path, _shown_ms(meta.started_at, at.at_ms))
        visit = pipeline.runs - (fact.attempt - 1)
        pipeline.runs += 1
        if fact.do == "retry":
            return
        began_ms, pipeline.began_ms = pipeline.began_ms, None
        attributes: dict[str, Any] = {"noetl.task": fact.task, "noetl.task.attempts": fact.attempt}
        if fact.path:
            attributes["noetl.iteration"] = path_key(fact.path)
        self._span(
            span_id=task_span(run.step_run_id, fact.path, fact.task, visit),
            parent_id=step_span(run.step_run_id),
            name=f"task {fact.task}",
            started_ms=began_ms,
            ended_ms=_shown_ms(meta.ended_at, at.at_ms),
            attributes=attributes | {"noetl.step": run.step, "noetl.step_run.id": run.step_run_id},
            error=fact.error or fact.outcome.error,
        )

    def _end(self, run: _StepRun, at_ms: int, status: RunStatus, error: ErrorInfo | None) -> None:
        """Ends the span of a step run, which began with its claim, so that the wait for a worker is seen."""
        attributes: dict[str, Any] = {
            "noetl.step": run.step,
            "noetl.step_run.id": run.step_run_id,
            "noetl.step.status": status,
            "noetl.worker": run.worker,
        }
        self._span(
            span_id=step_span(run.step_run_id),
            parent_id=execution_span(self.execution_id),
            name=f"step {run.step}",
            started_ms=run.claimed_ms,
            ended_ms=at_ms,
            attributes=attributes | {f"noetl.loop.{name}": count for name, count in run.loop.items()},
            error=error,
            links=[SpanLink(self.execution.trace.trace_id, execution_span(child)) for child in run.children],
        )

    def execution_finished(self, at: Recorded, fact: events.ExecutionFinished) -> None:
        for run in self.by_id.values():
            self._end(run, at.at_ms, "cancelled", ErrorInfo("cancelled", ""))
        about = self.execution
        attributes: dict[str, Any] = {"noetl.playbook.path": about.path, "noetl.execution.status": fact.status}
        if about.version is not None:
            attributes["noetl.playbook.version"] = about.version
        links = self._links
        if about.caller:
            links = (*links, SpanLink(about.trace.trace_id, execution_span(about.caller)))
        self._span(
            span_id=execution_span(about.execution_id),
            parent_id=step_span(about.caller_step_run) if about.caller else about.trace.caller,
            name=f"execution {about.path}",
            started_ms=self.begun_ms,
            ended_ms=at.at_ms,
            attributes=attributes,
            error=fact.outcome.error,
            links=links,
        )

    def _span(self, *, attributes: dict[str, Any], error: ErrorInfo | None, **more: Any) -> None:
        attributes["noetl.execution.id"] = self.execution_id
        shown = "" if error is None else error.kind
        self._ended.append(Span(trace_id=self.execution.trace.trace_id, attributes=attributes, error=shown, **more))


def _shown_ms(text: str, otherwise: int) -> int:
    try:
        return parse_shown_time(text)
    except ValueError:
        return otherwise
