"""One attempt of one task: renders the inputs, calls the tool within its timeout, returns an outcome (LANGUAGE §5)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from noetl_stream.concurrency import Capacity
from noetl_stream.engine.attributes import MAX_CHARS, MISSING, attributes_of
from noetl_stream.engine.pipeline import visit_of
from noetl_stream.engine.runner.lanes import RunTask
from noetl_stream.engine.runner.scope import NOTHING_SEEN, RunScope
from noetl_stream.errors import PayloadRefused
from noetl_stream.model.events import ChildCall, Path, TaskHeartbeat, Wait
from noetl_stream.model.ids import derive
from noetl_stream.model.json import codec
from noetl_stream.model.json.values import TOO_DEEP
from noetl_stream.model.limits import VARIABLE_PREFIX
from noetl_stream.model.messages import Progress, StepCommand
from noetl_stream.model.outcome import MAX_WARNING_CHARACTERS, ErrorInfo, Meta, Outcome, Payload, RunWarning, shown_time
from noetl_stream.playbook.kinds.spec import SUSPENDING_KINDS, PlaybookInputs, WaitInputs
from noetl_stream.playbook.plan import TaskPlan
from noetl_stream.playbook.results.result_schema import ResultSchema
from noetl_stream.template import ExpressionError, OverBudget, ReferenceNeeded, Scope, Template, ValueNeeded, render
from noetl_stream.tools.contract import Tool, ToolCall, ToolFailure, ToolResult, WorkerUnfit, Write, unfit_for
from noetl_stream.tools.inputs import bounded_knobs, validated
from noetl_stream.worker.child_playbooks import PlanUnknown, PlaybookUnknown, pin_playbook
from noetl_stream.worker.command.data import AttemptData
from noetl_stream.worker.command.heartbeats import AttemptHeartbeats, Heartbeats
from noetl_stream.worker.command.results import ReferenceUnavailable, RunResults, StorageExhausted
from noetl_stream.worker.command.spans import RunTrace
from noetl_stream.worker.command.table_checks import CheckedTool
from noetl_stream.worker.dependencies import Dependencies
from noetl_stream.worker.schemas import SchemaUnusable
from noetl_stream.worker.secrets.run_secrets import RunSecrets, SecretNeeded, TaskSecrets
from noetl_stream.worker.task_logs.step_log import StepLog, TaskLog
from noetl_stream.worker.waiting import Asker
from noetl_stream.worker.worker_limits import MAX_MESSAGE_CHARACTERS, MAX_OUTPUT_CHARACTERS

log = logging.getLogger(__name__)
Value = TypeVar("Value")

_Told: TypeAlias = tuple[Write, AttemptHeartbeats, dict[str, Any], AttemptData]
"""The listeners of a running attempt: its log, its heartbeats, the attributes of its span, and its data."""


class Attempts:
    """Runs the tasks of one step run, one attempt per call. ``log`` is the log of the run."""

    def __init__(
        self,
        dependencies: Dependencies,
        command: StepCommand,
        scope: RunScope,
        results: RunResults,
        asker: Asker,
        why_stopped: Callable[[], str],
        give_back: Callable[[str, WorkerUnfit], None],
        report: Callable[[TaskHeartbeat], None],
        trace: RunTrace | None = None,
    ) -> None:
        """Makes the attempts of one run.

        Args:
            why_stopped: Returns the reason for an interruption of the run; empty if there is none.
            give_back: Interrupts the run and returns its command to the queue, or raises :class:`ToolFailure`.
            report: Adds a fact to the report of the run.
            trace: The trace of the run; ``None`` without tracing.
        """
        self._dependencies = dependencies
        self._command = command
        self._scope = scope
        self._results = results
        self._asker = asker
        self._why_stopped = why_stopped
        self._give_back = give_back
        self._trace = trace
        self._waits: dict[str, int] = {}
        self._heartbeats = Heartbeats(report, dependencies.clock)
        self._secrets = RunSecrets(dependencies.keychain, scope.keychain, asker)
        self.log = StepLog(dependencies.log_publisher, command, self._secrets)

    async def run(self, action: RunTask, current: asyncio.Task[Any]) -> Outcome | Wait:
        """Returns the outcome of one attempt, or its wait, within the asyncio task ``current``. Cancelling that task
        cancels the tool and its work.
        """
        clock, task, progress = self._dependencies.clock, action.task, action.progress
        if action.answer is not None:
            answer = await self._check_answer(task, action.answer)
            return self._with_meta(answer, progress, clock.now_ms(), 0.0)
        began_ms, began_s = clock.now_ms(), clock.monotonic_s()
        secrets = TaskSecrets(self._secrets, self._scope.readable_credentials(progress))
        attributes: dict[str, Any] = {}
        lines = TaskLog(self.log, action, began_ms, began_s)
        beats = AttemptHeartbeats(self._heartbeats, action)
        data = AttemptData(self._results, beats.begin_writing, self._without_secrets)
        try:
            try:
                if task.tracing and self._trace is not None and self._trace.is_sampled:
                    attributes.update(await self._named_attributes(action))
                if task.timeout_template is not None:
                    task = await self._with_timeouts(action, task.timeout_template)
                    action = msgspec.structs.replace(action, task=task)
                inputs = (
                    render(task.inputs, NOTHING_SEEN)
                    if task.inputs.is_constant
                    else await self._inputs(action, secrets)
                )
                if task.kind in SUSPENDING_KINDS:
                    secrets.check_unread(task.kind)
                    return await self._wait(task, inputs, action.iteration.path)
                calling = self._call_tool(action, inputs, secrets, (lines.write, beats, attributes, data), current)
                total_s = None if self._is_debugged(task) else task.timeouts.total
                result = await (calling if total_s is None else _with_timeout(total_s, task, calling))
            except (ExpressionError, ReferenceUnavailable) as error:
                kind = error.kind if isinstance(error, ReferenceUnavailable) else "expression_error"
                outcome = await self._failure_outcome(ToolFailure.of(kind, f"the inputs of task {task.label}: {error}"))
            except ToolFailure as failure:
                outcome = await self._failure_outcome(failure)
            else:
                outcome = await self._success_outcome(task, result)
            took_s = clock.monotonic_s() - began_s
            self._note_end(task, progress.attempt, outcome, took_s)
            if self._trace is not None:
                self._record_span(action, began_ms, took_s, outcome, attributes)
            outcome = data.noted_in(self._with_meta(outcome, progress, began_ms, took_s), self._secrets.used)
            if outcome.error is not None or lines.has_begun:
                lines.ended(outcome)
            if outcome.error is not None:
                beats.end()
        except BaseException:
            beats.end()
            if self._trace is not None:
                self._record_span(action, began_ms, clock.monotonic_s() - began_s, None, attributes)
            lines.stopped(self._why_stopped() or "stopped: its loop goes no further")
            raise
        finally:
            self.log.publisher.running.forget(lines)
        return outcome

    def _note_end(self, task: TaskPlan, attempt: int, outcome: Outcome, took_s: float) -> None:
        self._dependencies.counts.count_attempt(task.kind, outcome.status, attempt, took_s)
        if outcome.error is not None:
            about = {
                "execution": self._command.execution_id,
                "step": self._command.step,
                "task": task.label,
                "attempt": attempt,
                "kind": outcome.error.kind,
                "code": outcome.error.code,
            }
            log.warning("task failed", extra=about)

    def _record_span(
        self, action: RunTask, began_ms: int, took_s: float, outcome: Outcome | None, attributes: Mapping[str, Any]
    ) -> None:
        assert self._trace is not None
        about = {**attributes, "noetl.worker": self._dependencies.worker}
        exemplar = self._trace.record_attempt(action, began_ms, took_s, outcome, about)
        if exemplar is not None and outcome is not None:
            self._dependencies.counts.add_exemplar(action.task.kind, outcome.status, exemplar)

    async def _wait(self, task: TaskPlan, inputs: Mapping[str, Any], path: Path) -> Wait:
        """Returns the wait of the pipeline of iteration ``path``.

        Raises:
            ToolFailure: the inputs are invalid, no such playbook exists, or the task's timeout ends before the wait.
        """
        if task.kind == "wait":
            return _wait_of(task, validated(WaitInputs, inputs), path, self._dependencies.clock.now_ms())
        call = validated(PlaybookInputs, inputs)
        try:
            pinned = await pin_playbook(self._asker, call.path, call.version)
        except PlaybookUnknown as error:
            raise ToolFailure.of("invalid_playbook", str(error)) from error
        child = ChildCall(pinned.digest, pinned.path, pinned.version, call.args or {}, call.return_step, pin=pinned.pin)
        return Wait(path, task.name, child=child, timeout_s=task.timeouts.total)

    def _with_meta(self, outcome: Outcome, progress: Progress, began_ms: int, duration_s: float) -> Outcome:
        given = outcome.meta
        meta = Meta(
            progress.attempt,
            given.started_at or shown_time(began_ms),
            given.ended_at or shown_time(began_ms + round(duration_s * 1000)),
            given.duration_s or round(duration_s * 1_000_000) / 1_000_000,  # to digits, `round` takes ten times as long
            self._dependencies.worker,
            self._command.trace_id,
        )
        return msgspec.structs.replace(outcome, meta=meta)

    async def _inputs(self, action: RunTask, secrets: TaskSecrets) -> dict[str, Any]:
        """Renders the inputs of the task. Loads the results by reference and the secrets that they read.

        Raises:
            ReferenceUnavailable: a result cannot be read.
            ToolFailure: kind ``credential``: a secret cannot be resolved.
        """
        scope = self._scope.for_inputs(action.task, action.progress, action.iteration, secrets)
        return await when_loaded(partial(self._render, action.task.inputs, scope), self._results)

    async def _render(self, template: Template, scope: Scope) -> dict[str, Any]:
        return await render_inputs(template, scope, self._dependencies.rendering, self._command.share.namespace)

    async def evaluate(self, work: Callable[[], Any]) -> Any:
        """Evaluates heavy templates of the pipeline as those of inputs are."""
        async with self._dependencies.rendering.place(namespace=self._command.share.namespace):
            return await asyncio.to_thread(work)

    async def _named_attributes(self, action: RunTask) -> dict[str, Any]:
        """Returns the attributes of the attempt's span that the playbook names, without secrets."""
        scope = self._scope.for_inputs(action.task, action.progress, action.iteration)

        async def found() -> dict[str, Any]:
            named = attributes_of(action.task.tracing, scope)
            return await asyncio.to_thread(self._dependencies.keychain.redactor.value, named)

        try:
            return await when_loaded(found, self._results)
        except ReferenceUnavailable:
            return {MISSING: ", ".join(action.task.tracing)[:MAX_CHARS]}

    async def _with_timeouts(self, action: RunTask, timeouts: Template) -> TaskPlan:
        """Returns the task with the timeouts of this attempt.

        Raises:
            ToolFailure: kind ``expression_error``: they cannot be rendered, or are no seconds.
            ReferenceUnavailable: a result that they read cannot be read.
        """
        task = action.task
        scope = self._scope.for_inputs(task, action.progress, action.iteration)
        try:
            rendered = await when_loaded(partial(self._render, timeouts, scope), self._results)
        except ExpressionError as error:
            raise ToolFailure.of("expression_error", f"the timeout of task {task.label}: {error}") from error
        for part, value in rendered.items():
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < inf
            ):
                message = f"the timeout of task {task.label}: `{part}` is {value!r:.60}, not seconds above 0"
                raise ToolFailure.of("expression_error", message)
        return msgspec.structs.replace(task, timeouts=msgspec.structs.replace(task.timeouts, **rendered))

    async def _call_tool(
        self, action: RunTask, inputs: dict[str, Any], secrets: TaskSecrets, told: _Told, current: asyncio.Task[Any]
    ) -> ToolResult:
        """Calls the tool; calls it again, with fresh tokens, if the old ones were rejected.

        Raises:
            ToolFailure: for any error, including a defect of the tool.
        """
        tool = self._dependencies.tools[action.task.kind]
        if action.task.table is not None:
            tool = CheckedTool(tool, action.task.table, self._dependencies.tools)
        try:
            try:
                return await _run_tool(tool, self._tool_call(tool, action, inputs, secrets, told), current)
            except ToolFailure as failure:
                if not secrets.renew_after(failure):
                    raise
            fresh = await self._inputs(action, secrets)
            return await _run_tool(tool, self._tool_call(tool, action, fresh, secrets, told), current)
        except WorkerUnfit as unfit:
            self._give_back(action.task.kind, unfit)
            await asyncio.get_running_loop().create_future()  # never done: ends by cancellation
            raise

    def _tool_call(
        self, tool: Tool, action: RunTask, inputs: dict[str, Any], secrets: TaskSecrets, told: _Told
    ) -> ToolCall:
        write, beats, attributes, data = told
        command, task, progress, iteration = self._command, action.task, action.progress, action.iteration
        seen: dict[str, Any] = {}
        if tool.spec.reads_scope:
            seen = {
                "workload": command.workload,
                "ctx": self._scope.ctx,
                "iter": self._scope.iter_of(progress, iteration),
                "execution_id": command.execution_id,
            }
            if command.execution:
                seen["execution"] = command.execution
        return ToolCall(
            inputs={**inputs, **task.verbatim} if task.verbatim else inputs,
            knobs=bounded_knobs(tool.spec.knobs, task.knobs, self._dependencies.max_result_bytes),
            timeouts=task.timeouts,
            idempotency_key=derive(command.step_run_id, *iteration.path, task.name, visit_of(progress)),
            execution_id=command.execution_id,
            step=command.step,
            task=task.name,
            attempt=progress.attempt,
            trust_domain=f"{command.digest} {command.principal}",
            namespace=command.share.namespace,
            scope=seen,
            credential=secrets.credential,
            describe_credential=secrets.describe,
            is_operators=secrets.is_operators,
            queued=self._note_waiting,
            write=write,
            beat=lambda details: beats.beat(self._without_secrets(details)),
            previous_details=beats.previous_details,
            traceparent=self._trace.traceparent(action) if self._trace is not None else "",
            attributes=attributes,
            data=data,
            bundle=command.bundle,
            read_bundle=self._read_bundle,
        )

    def _is_debugged(self, task: TaskPlan) -> bool:
        return getattr(self._dependencies.tools[task.kind], "debugger", None) is not None  # of a Debugged

    def _without_secrets(self, details: Any) -> Any:
        return details if self._secrets.used is None else self._secrets.used.value(details)

    async def _read_bundle(self) -> bytes:
        try:
            with self._note_waiting(f"the packages {self._command.bundle}"):
                return await self._results.read_bundle()
        except ReferenceUnavailable as error:
            raise ToolFailure.of("bundle_lost", error.message) from None

    @contextmanager
    def _note_waiting(self, what: str) -> Iterator[None]:
        self._waits[what] = self._waits.get(what, 0) + 1
        try:
            yield
        finally:
            self._waits[what] -= 1

    @property
    def waits_for(self) -> str:
        """The condition that tasks wait for at the worker before they begin; empty if none waits."""
        texts = [(what, count) for what, count in self._waits.items() if count]
        return "; ".join(what if count == 1 else f"{what} ({count} tasks wait)" for what, count in texts)

    async def _check_answer(self, task: TaskPlan, answer: Outcome) -> Outcome:
        """Compares the answer that the task waited for with the schema of its result."""
        if task.schema is None or answer.status != "ok":
            return answer
        try:
            reference = answer.result.reference
            if reference is not None and reference.key not in self._results.loaded:
                await self._results.load(reference)
            value = answer.result.value if reference is None else self._results.loaded[reference.key]
        except ReferenceUnavailable as unavailable:
            error = ErrorInfo(unavailable.kind, unavailable.message)
        else:
            found = await self._mismatch(task.schema, value)
            if found is None:
                return answer
            error = found
        return msgspec.structs.replace(answer, status="error", error=error)

    async def _mismatch(self, schema: ResultSchema, value: Any) -> ErrorInfo | None:
        """Returns the error of a ``value`` that does not match the schema of its task's result; ``None`` if it matches.

        Raises:
            PayloadRefused: the value is not JSON.
        """
        try:
            found = await self._dependencies.schemas.mismatch(value, schema, self._command, self._asker)
        except (PlanUnknown, SchemaUnusable) as error:
            return ErrorInfo("schema_unavailable", error.message, retryable=isinstance(error, PlanUnknown))
        if found is None:
            return None
        return ErrorInfo("schema_mismatch", f"the result does not match its schema {found}", code=found.pointer)

    async def _success_outcome(self, task: TaskPlan, result: ToolResult) -> Outcome:
        try:
            if self._secrets.used is not None:
                result = await asyncio.to_thread(self._secrets.used.result, result)
            payload = await self._results.keep(result.result)
            error = None if task.schema is None else await self._mismatch(task.schema, result.result)
        except RecursionError:
            return Outcome("error", error=ErrorInfo("result_not_json", f"the result is {TOO_DEEP}"))
        except PayloadRefused as refused:
            return Outcome("error", error=ErrorInfo("result_not_json", f"the result is {refused.message}"))
        except StorageExhausted as exhausted:
            error = ErrorInfo(exhausted.kind, f"the result cannot be stored: {exhausted}")
            return Outcome("error", error=error, output=result.output, warnings=result.warnings)
        status: Literal["ok", "error"] = "ok" if error is None else "error"
        return self._cut_outcome(
            Outcome(status, payload, error, helper=dict(result.helper), output=result.output, warnings=result.warnings)
        )

    async def _failure_outcome(self, failure: ToolFailure) -> Outcome:
        used, payload, left_out = self._secrets.used, Payload(), ""
        try:
            failure = failure if used is None else await asyncio.to_thread(used.failure, failure)
            if failure.result is not None:
                payload = await self._results.keep(failure.result)
        except RecursionError:
            failure, left_out = ToolFailure(failure.error, output=failure.output, warnings=failure.warnings), TOO_DEEP
            failure = failure if used is None else used.failure(failure)
        except (PayloadRefused, StorageExhausted) as refused:
            left_out = refused.message
        error = failure.error
        if left_out:
            error = msgspec.structs.replace(error, message=f"{error.message} (its result is left out: {left_out})")
        if len(error.message) > MAX_MESSAGE_CHARACTERS:
            error = msgspec.structs.replace(error, message=f"{error.message[:MAX_MESSAGE_CHARACTERS]}…")
        return self._cut_outcome(
            Outcome("error", payload, error, helper=failure.helper, output=failure.output, warnings=failure.warnings)
        )

    def _cut_outcome(self, outcome: Outcome) -> Outcome:
        """Cuts the outcome to fit a report. A helper block that is too large makes it an error."""
        if outcome.warnings:
            warnings = [RunWarning(one.kind, one.message[:MAX_WARNING_CHARACTERS]) for one in outcome.warnings]
            outcome = msgspec.structs.replace(outcome, warnings=tuple(warnings))
        if len(outcome.output) > MAX_OUTPUT_CHARACTERS:
            outcome = msgspec.structs.replace(outcome, output=f"{outcome.output[:MAX_OUTPUT_CHARACTERS]}…")
        if not outcome.helper:
            return outcome
        limit = self._command.limits.max_inline_bytes
        try:
            encoded = codec.encode(outcome.helper)
            if len(encoded) <= limit:
                codec.check_depth(encoded)
                return outcome
        except PayloadRefused as refused:
            error = ErrorInfo("internal", f"the tool's helper block is {refused.message}")
        else:
            over = f"what `outcome` has of this kind of task, such as headers, is {len(encoded):,} bytes"
            bound = f"limits.max_inline_bytes is {limit:,}, at most what the operator allows"
            message = f"{over}; {bound} ({VARIABLE_PREFIX}MAX_INLINE_BYTES)"
            error = ErrorInfo("output_too_large", message)
        return msgspec.structs.replace(outcome, status="error", error=error, helper={})


async def when_loaded(evaluate: Callable[[], Awaitable[Value]], results: RunResults) -> Value:
    """The value of an evaluation, once the results by reference and the secrets that it reads are loaded."""
    while True:
        try:
            return await evaluate()
        except ValueNeeded as needed:
            missing = needed.all
        for one in missing:
            if isinstance(one, ReferenceNeeded):
                await results.load(one.reference)
            elif isinstance(one, SecretNeeded):
                await one.load()


async def render_inputs(template: Template, scope: Scope, turns: Capacity, namespace: str) -> dict[str, Any]:
    """Renders the template; heavy work is done in a thread, in turns of namespaces, so that other commands continue."""
    inputs: dict[str, Any]
    try:
        inputs = render(template, scope)
    except OverBudget:
        async with turns.place(namespace=namespace):
            inputs = await asyncio.to_thread(render, template, msgspec.structs.replace(scope, budget=None))
    return inputs


def _wait_of(task: TaskPlan, inputs: WaitInputs, path: Path, now_ms: int) -> Wait:
    total_s = task.timeouts.total
    if inputs.signal is not None:
        bounds = [seconds for seconds in (inputs.timeout_s, total_s) if seconds is not None]
        return Wait(path, task.name, signal=inputs.signal, timeout_s=min(bounds))
    until_ms = inputs.until_ms
    left_s = inputs.for_s if until_ms is None else (until_ms - now_ms) / 1000
    if total_s is not None and left_s is not None and left_s > total_s:
        message = f"task {task.name} would wait {left_s:g} s, longer than its timeout of {total_s:g} s"
        raise ToolFailure.of("timeout", message)
    return Wait(path, task.name, for_s=inputs.for_s, until_ms=until_ms)


async def _with_timeout(total_s: float, task: TaskPlan, running: Awaitable[ToolResult]) -> ToolResult:
    """Awaits the tool; raises :class:`ToolFailure` ``timeout`` after ``total_s``."""
    try:
        async with asyncio.timeout(total_s):
            return await running
    except TimeoutError:
        # The tool's own TimeoutError has become a ToolFailure in _run_tool.
        message = f"task {task.name} took longer than its timeout of {total_s:g} s"
        raise ToolFailure.of("timeout", message, retryable=True) from None


async def _run_tool(tool: Tool, call: ToolCall, current: asyncio.Task[Any]) -> ToolResult:
    """Runs the tool and returns its result, unless ``current`` was cancelled.

    Raises:
        ToolFailure: for any error, including a defect of the tool.
        WorkerUnfit: the task has not begun.
    """
    try:
        result = await tool.run(call)
    except (ToolFailure, WorkerUnfit):
        _check_not_cancelled(current)
        raise
    except asyncio.CancelledError:
        _check_not_cancelled(current)
        raise _defect(call, "it cancelled itself") from None
    except RecursionError as error:
        _check_not_cancelled(current)
        log.exception("the tool of task %s (step %s) recursed too deeply", call.task, call.step)
        raise ToolFailure.of("result_not_json", f"what the tool of task {call.task} reads is {TOO_DEEP}") from error
    except (Exception, SystemExit) as error:
        _check_not_cancelled(current)
        if isinstance(error, OSError) and (unfit := unfit_for("begin the task", error)) is not None:
            raise unfit from None
        log.exception("the tool of task %s (step %s) has a defect", call.task, call.step)
        raise _defect(call, f"{type(error).__name__}: {error}") from error
    _check_not_cancelled(current)
    return result


def _check_not_cancelled(current: asyncio.Task[Any]) -> None:
    """Raises ``CancelledError`` if the task was cancelled: a cancelled tool has no outcome, however it reacted."""
    if current.cancelling():
        raise asyncio.CancelledError


def _defect(call: ToolCall, what: str) -> ToolFailure:
    return ToolFailure.of("internal", f"the tool of task {call.task} has a defect: {what}")
