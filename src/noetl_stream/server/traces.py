"""Spans of committed journals, made beside the loop that commits them: of executions, their step runs and their tasks.

Law: a commit costs a copy of references, and only for executions that are sampled. Waiting segments are bounded; the
excess is dropped and counted. A span is made from the journal alone, so it is the same whichever server makes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from noetl_stream.engine.state import Execution
from noetl_stream.errors import NoetlError
from noetl_stream.lru import LruCache
from noetl_stream.model import events
from noetl_stream.model.events import Path
from noetl_stream.model.events.journal_reader import IterationEnd, JournalReader, Recorded, RunEnd
from noetl_stream.model.messages import path_key
from noetl_stream.model.outcome import ErrorInfo, parse_shown_time
from noetl_stream.model.secrets.credential import Redactor
from noetl_stream.model.status import RunStatus
from noetl_stream.model.traces import Trace, call_span, execution_span, step_span, task_span, trace_of
from noetl_stream.ports.stores.store import Store
from noetl_stream.ports.traces import Span, SpanLink, Tracing
from noetl_stream.server.ticks.tick import JournalSegment, PendingTick
from noetl_stream.storage.journal import fact_of, facts_of, pieces
from noetl_stream.storage.used_secrets import UsedSecrets


class TracedExecution(msgspec.Struct, frozen=True, gc=False):
    """An execution as its spans name it.

    Attributes:
        caller: The calling execution; empty if there is none.
        rerun_of: The original of a rerun; else empty.
    """

    execution_id: str
    trace: Trace
    path: str
    version: str | None
    caller: str
    rerun_of: str


class _Pipeline(msgspec.Struct):
    """A pipeline, outside loops or of one iteration: the number of its task runs, and when the present task began.

    ``called`` is the execution called by the present attempt, else empty; ``called_ms`` the time of the call.
    """

    runs: int = 0
    began_ms: int | None = None
    called: str = ""
    called_ms: int = 0


class _StepRun(msgspec.Struct):
    step_run_id: str
    step: str
    claimed_ms: int
    worker: str = ""
    pipelines: dict[Path, _Pipeline] = {}
    children: list[str] = []
    loop: dict[str, int] = {}
    own: dict[str, Any] = {}

    def begin_task(self, path: Path, at_ms: int) -> _Pipeline:
        """Returns the pipeline of ``path``, and notes the start of its present task if it is unknown."""
        pipeline = self.pipelines.setdefault(path, _Pipeline())
        if pipeline.began_ms is None:
            pipeline.began_ms = at_ms
        return pipeline


class JournalReading(JournalReader[_StepRun]):
    """An execution's journal, read up to ``position``. ``has_ended``: no later entry ends a span.

    Args:
        links: The links of the execution's span, except that to its caller.

    Attributes:
        names_attributes: Whether the playbook names attributes of these spans, which may contain its values.
    """

    def __init__(self, execution: TracedExecution, links: Sequence[SpanLink]) -> None:
        super().__init__(execution.execution_id)
        self.execution = execution
        self._links = links
        self._ended: list[Span] = []
        self._own: dict[str, Any] = {}
        self.names_attributes = False

    def take(self, recorded: Iterable[Recorded]) -> list[Span]:
        """Returns the spans that end with these facts."""
        self._ended = []
        for one in recorded:
            self.read(one)
        return self._ended

    def run_began(self, at: Recorded, step: str, fact: events.TokenClaimed) -> _StepRun:
        self.names_attributes |= bool(fact.tracing)
        return _StepRun(fact.step_run_id, step, at.at_ms, own=fact.tracing)

    def execution_started(self, at: Recorded, fact: events.ExecutionStarted) -> None:
        self._own = fact.tracing
        self.names_attributes |= bool(fact.tracing)

    def run_started(self, at: Recorded, run: _StepRun, fact: events.StepStarted) -> None:
        run.worker = fact.worker

    def run_suspended(self, at: Recorded, run: _StepRun, fact: events.StepSuspended) -> None:
        for wait in fact.waits:
            run.begin_task(wait.path, at.at_ms)

    def child_requested(self, at: Recorded, run: _StepRun, fact: events.ChildRequested) -> None:
        run.children.append(fact.execution_id)
        pipeline = run.begin_task(fact.path, at.at_ms)
        pipeline.called, pipeline.called_ms = fact.execution_id, at.at_ms

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
        span_id = task_span(run.step_run_id, fact.path, fact.task, visit)
        attributes: dict[str, Any] = {"noetl.task": fact.task}
        attributes |= {"noetl.step": run.step, "noetl.step_run.id": run.step_run_id}
        if fact.path:
            attributes["noetl.iteration"] = path_key(fact.path)
        if pipeline.called:
            self._end_call(pipeline, span_id, at.at_ms, fact, attributes)
        if fact.do == "retry":
            return
        began_ms, pipeline.began_ms = pipeline.began_ms, None
        self._span(
            span_id=span_id,
            parent_id=step_span(run.step_run_id),
            name=f"task {fact.task}",
            started_ms=began_ms,
            ended_ms=_shown_ms(meta.ended_at, at.at_ms),
            attributes=attributes | {"noetl.task.attempts": fact.attempt},
            error=fact.error or fact.outcome.error,
        )

    def _end_call(
        self, pipeline: _Pipeline, parent_id: str, at_ms: int, fact: events.TaskProcessed, about: Mapping[str, Any]
    ) -> None:
        """Ends the span of an attempt that has called a playbook: no worker held it."""
        called, pipeline.called = pipeline.called, ""
        self._span(
            span_id=call_span(called),
            parent_id=parent_id,
            name=f"attempt {fact.task}",
            started_ms=pipeline.called_ms,
            ended_ms=at_ms,
            attributes={**about, "noetl.task.kind": "playbook", "noetl.task.attempt": fact.attempt},
            error=fact.outcome.error,
        )

    def _end(self, run: _StepRun, at_ms: int, status: RunStatus, error: ErrorInfo | None) -> None:
        """Ends the span of a step run, which began with its claim, so that it shows the wait for a worker."""
        attributes: dict[str, Any] = {
            **run.own,
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

    def execution_stopped(self, at: Recorded, fact: events.ExecutionClosing | events.ExecutionFinished) -> None:
        for run in self.by_id.values():
            self._end(run, at.at_ms, "cancelled", ErrorInfo("cancelled", ""))
        self.by_id.clear()

    def execution_finished(self, at: Recorded, fact: events.ExecutionFinished) -> None:
        about = self.execution
        attributes: dict[str, Any] = {**self._own, "noetl.playbook.path": about.path}
        attributes["noetl.execution.status"] = fact.status
        if about.version is not None:
            attributes["noetl.playbook.version"] = about.version
        links = self._links
        if about.caller:
            links = (*links, SpanLink(about.trace.trace_id, execution_span(about.caller)))
        self._span(
            span_id=execution_span(about.execution_id),
            parent_id=call_span(about.execution_id) if about.caller else about.trace.caller,
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


log = logging.getLogger(__name__)

MAX_WAITING_BYTES: Final = 32 * 1024 * 1024
READINGS_KEPT: Final = 10_000
AT_ONCE_BYTES: Final = 64 * 1024
"""The size from which a segment is read in a thread, so that the loop continues meanwhile."""

CLOSE_S: Final = 2.0


class _Committed(NamedTuple):
    execution: TracedExecution
    segment: JournalSegment


class ServerTraces:
    """Makes the spans of the executions of a server.

    Args:
        store: The store with the journals of executions that another server has begun.
        used: The redactor of secrets in attributes that playbooks name; ``None`` without secrets.
    """

    def __init__(self, tracing: Tracing, store: Store, used: UsedSecrets | None = None) -> None:
        self.tracing = tracing
        self._store = store
        self._used = used
        self._waiting: deque[_Committed] = deque()
        self._waiting_bytes = 0
        self._is_wanted = asyncio.Event()
        self._readings: LruCache[str, JournalReading] = LruCache(READINGS_KEPT)

    def add_segments(self, tick: PendingTick) -> None:
        """Takes the journal segments of a committed tick."""
        for execution_id, segment in tick.segments.items():
            execution = _traced_execution(tick.touched[execution_id].state)
            if not self.tracing.is_sampled(execution.trace):
                continue
            if self._waiting_bytes + segment.size > MAX_WAITING_BYTES:
                self.tracing.drop(len(segment.entries))
                continue
            self._waiting_bytes += segment.size
            self._waiting.append(_Committed(execution, segment))
            self._is_wanted.set()

    async def run(self) -> None:
        """Makes spans until cancelled."""
        while True:
            await self._is_wanted.wait()
            self._is_wanted.clear()
            await self._make_waiting_spans()

    async def close(self) -> None:
        """Makes the waiting spans, within :data:`CLOSE_S`, and exports them."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._make_waiting_spans()
        except TimeoutError:
            self.tracing.drop(sum(len(one.segment.entries) for one in self._waiting))
        await self.tracing.close()

    async def _make_waiting_spans(self) -> None:
        while self._waiting:
            execution, segment = self._waiting.popleft()
            self._waiting_bytes -= segment.size
            try:
                await self._make_spans(execution, segment)
            except NoetlError as error:
                self._readings.drop(execution.execution_id)
                self.tracing.drop(len(segment.entries))
                log.info("spans are dropped: %s", error, extra={"execution": execution.execution_id})
            await asyncio.sleep(0)

    async def _make_spans(self, execution: TracedExecution, segment: JournalSegment) -> None:
        reading = await self._reading_before(execution, segment.first_position)
        facts = (fact for one in segment.entries for fact in facts_of(one.row(execution.execution_id)))
        if segment.size <= AT_ONCE_BYTES:
            spans = reading.take(facts)
        else:
            spans = await asyncio.to_thread(reading.take, facts)
        if reading.names_attributes and spans and self._used is not None:
            redactor = (await self._used.redactors((execution.execution_id,))).get(execution.execution_id)
            if redactor is not None:
                spans = await asyncio.to_thread(_hidden_in, spans, redactor)
        for span in spans:
            self.tracing.record(span)
        if reading.has_ended:
            self._readings.drop(execution.execution_id)

    async def _reading_before(self, execution: TracedExecution, position: int) -> JournalReading:
        """Returns the reading of the journal before ``position``, a new one if the cached one has a gap."""
        execution_id = execution.execution_id
        reading = self._readings.get(execution_id)
        if reading is not None and reading.position == position - 1:
            return reading
        reading = JournalReading(execution, await self._links(execution))
        if position > 1:
            async for piece in pieces(self._store, execution_id):
                before = [row for row in piece if row.position < position]
                reading.take(map(fact_of, before))
                if len(before) < len(piece):
                    break
        self._readings.put(execution_id, reading)
        return reading

    async def _links(self, execution: TracedExecution) -> Sequence[SpanLink]:
        """Returns the link from a rerun to its original, in the original's trace."""
        row = await self._store.execution(execution.rerun_of) if execution.rerun_of else None
        if row is None:
            return ()
        original = trace_of(row.execution_id, row.trace_id, "")
        return (SpanLink(original.trace_id, execution_span(row.execution_id)),)


def _hidden_in(spans: Sequence[Span], redactor: Redactor) -> list[Span]:
    """Returns the spans without secrets in attributes that playbooks name."""
    shown = []
    for span in spans:
        own = {name: value for name, value in span.attributes.items() if not name.startswith("noetl.")}
        shown.append(msgspec.structs.replace(span, attributes={**span.attributes, **redactor.value(own)}))
    return shown


def _traced_execution(state: Execution) -> TracedExecution:
    parent = state.parent
    return TracedExecution(
        execution_id=state.execution_id,
        trace=trace_of(state.execution_id, state.trace_id, state.caller_span),
        path=state.path,
        version=state.version,
        caller="" if parent is None else parent.execution_id,
        rerun_of=state.rerun_of,
    )
