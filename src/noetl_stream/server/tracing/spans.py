"""The spans in an execution's journal: of the execution, its step runs and its tasks (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from noetl_stream.model import events
from noetl_stream.model.events import Fact, Path
from noetl_stream.model.messages import path_key
from noetl_stream.model.outcome import ErrorInfo, time_shown
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


class RecordedFacts(msgspec.Struct, frozen=True, gc=False):
    """Facts recorded together. ``step_run_id``: the step run of those that name none."""

    at_ms: int
    step_run_id: str
    facts: Sequence[Fact]


class _Pipeline(msgspec.Struct):
    """A pipeline, outside loops or of one iteration: how many task runs it had, and when the present task began."""

    runs: int = 0
    began_ms: int | None = None


class _StepRun(msgspec.Struct):
    step: str
    claimed_ms: int
    worker: str = ""
    pipelines: dict[Path, _Pipeline] = {}
    children: list[str] = []

    def begin_task(self, path: Path, at_ms: int) -> _Pipeline:
        """Returns the pipeline of ``path``, and notes when its present task began, if that is not known."""
        pipeline = self.pipelines.setdefault(path, _Pipeline())
        if pipeline.began_ms is None:
            pipeline.began_ms = at_ms
        return pipeline


class JournalReading:
    """The reading of an execution's journal up to ``position``. ``has_ended``: no later fact ends a span.

    Args:
        links: The links of the execution's span, except that to its caller.
    """

    def __init__(self, execution: TracedExecution, links: Sequence[SpanLink]) -> None:
        self.execution = execution
        self.position = 0
        self.has_ended = False
        self._links = links
        self._started_ms = 0
        self._steps: dict[str, str] = {}
        self._runs: dict[str, _StepRun] = {}

    def take(self, recorded: Iterable[RecordedFacts]) -> list[Span]:
        """Returns the spans that end with these facts. Composite facts must have been expanded."""
        return [span for given in recorded for fact in given.facts for span in self._take(fact, given)]

    def _take(self, fact: Fact, given: RecordedFacts) -> Iterator[Span]:
        run = self._runs.get(getattr(fact, "step_run_id", "") or given.step_run_id)
        match fact:
            case events.ExecutionRequested():
                self._started_ms = given.at_ms
            case events.ExecutionReused():
                for entry in fact.entries:
                    yield from self._take(entry, given)
            case events.TokenEnqueued():
                self._steps[fact.token.token_id] = fact.token.step
            case events.TokenClaimed():
                step = self._steps.pop(fact.token_id, "")
                self._runs[fact.step_run_id] = _StepRun(step, given.at_ms)
            case events.TokenDiscarded() | events.TokenAbsorbed():
                self._steps.pop(fact.token_id, None)
            case events.StepReused():
                self._runs.pop(fact.step_run_id, None)
            case events.StepStarted() if run is not None:
                run.worker = fact.worker
            case events.TaskProcessed() if run is not None:
                yield from self._task(given, run, fact)
            case events.StepSuspended() if run is not None:
                for wait in fact.waits:
                    run.begin_task(wait.path, given.at_ms)
            case events.ChildRequested() if run is not None:
                run.children.append(fact.execution_id)
            case events.LoopIterationDone() | events.LoopIterationFailed() if run is not None:
                run.pipelines.pop(fact.path, None)
            case events.StepDone() | events.StepFailed():
                yield from self._step(fact.step_run_id, given.at_ms, getattr(fact, "error", None))
            case events.LoopDone() if not fact.path:
                loop = {"count": fact.count, "ok": fact.ok, "failed": fact.failed, "skipped": fact.skipped}
                yield from self._step(fact.step_run_id, given.at_ms, None, loop)
            case events.ExecutionFinished():
                for step_run_id in [*self._runs]:
                    yield from self._step(step_run_id, given.at_ms, ErrorInfo("cancelled", ""))
                yield self._span_of_execution(fact, given.at_ms)
                self.has_ended = True

    def _task(self, given: RecordedFacts, run: _StepRun, fact: events.TaskProcessed) -> Iterator[Span]:
        """Yields the span of a task, when its last attempt has ended. Its times are those of its workers."""
        meta = fact.outcome.meta
        pipeline = run.begin_task(fact.path, _shown_ms(meta.started_at, given.at_ms))
        visit = pipeline.runs - (fact.attempt - 1)
        pipeline.runs += 1
        if fact.do == "retry":
            return
        began_ms, pipeline.began_ms = pipeline.began_ms, None
        attributes: dict[str, Any] = {"noetl.task": fact.task, "noetl.task.attempts": fact.attempt}
        if fact.path:
            attributes["noetl.iteration"] = path_key(fact.path)
        error = fact.error or fact.outcome.error
        yield self._span(
            span_id=task_span(given.step_run_id, fact.path, fact.task, visit),
            parent_id=step_span(given.step_run_id),
            name=f"task {fact.task}",
            started_ms=began_ms,
            ended_ms=_shown_ms(meta.ended_at, given.at_ms),
            attributes=attributes | {"noetl.step": run.step, "noetl.step_run.id": given.step_run_id},
            error="" if error is None else error.kind,
        )

    def _step(
        self, step_run_id: str, at_ms: int, error: ErrorInfo | None, loop: dict[str, int] | None = None
    ) -> Iterator[Span]:
        """Yields the span of a step run, from its claim on, so that the wait for a worker is seen."""
        run = self._runs.pop(step_run_id, None)
        if run is None:
            return
        status = "done" if error is None else "cancelled" if error.kind == "cancelled" else "failed"
        attributes: dict[str, Any] = {
            "noetl.step": run.step,
            "noetl.step_run.id": step_run_id,
            "noetl.step.status": status,
            "noetl.worker": run.worker,
        }
        yield self._span(
            span_id=step_span(step_run_id),
            parent_id=execution_span(self.execution.execution_id),
            name=f"step {run.step}",
            started_ms=run.claimed_ms,
            ended_ms=at_ms,
            attributes=attributes | {f"noetl.loop.{name}": count for name, count in (loop or {}).items()},
            error="" if error is None else error.kind,
            links=[SpanLink(self.execution.trace.trace_id, execution_span(child)) for child in run.children],
        )

    def _span_of_execution(self, fact: events.ExecutionFinished, at_ms: int) -> Span:
        about = self.execution
        attributes: dict[str, Any] = {"noetl.playbook.path": about.path, "noetl.execution.status": fact.status}
        if about.version is not None:
            attributes["noetl.playbook.version"] = about.version
        error, links = fact.outcome.error, self._links
        if about.caller:
            links = (*links, SpanLink(about.trace.trace_id, execution_span(about.caller)))
        return self._span(
            span_id=execution_span(about.execution_id),
            parent_id=step_span(about.caller_step_run) if about.caller else about.trace.caller,
            name=f"execution {about.path}",
            started_ms=self._started_ms,
            ended_ms=at_ms,
            attributes=attributes,
            error="" if error is None else error.kind,
            links=links,
        )

    def _span(self, *, attributes: dict[str, Any], **more: Any) -> Span:
        attributes["noetl.execution.id"] = self.execution.execution_id
        return Span(trace_id=self.execution.trace.trace_id, attributes=attributes, **more)


def _shown_ms(text: str, otherwise: int) -> int:
    try:
        return time_shown(text)
    except ValueError:
        return otherwise
