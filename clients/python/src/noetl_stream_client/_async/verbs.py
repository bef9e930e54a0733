"""The verbs of the HTTP API, a method each. Made by scripts/client_code.py: do not edit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from noetl_stream_client._async.asking import AsyncAsking
from noetl_stream_client.lazy import LazyModule

if TYPE_CHECKING:
    from noetl_stream_client import documents
else:
    documents = LazyModule("noetl_stream_client.documents")


class StartOptions(TypedDict, total=False):
    """How to start an execution, beside its path and workload."""

    version: str
    digest: str
    playbook: str
    ctx: Mapping[str, Any]
    labels: Mapping[str, str | int | float | bool | None]
    key: str
    unique: bool
    priority: int
    reason: str
    correlation_id: str
    traceparent: str


class AsyncVerbs(AsyncAsking):
    """The verbs of the HTTP API by their operation ids. What is ``None`` is not sent; ``request_id`` is the
    Idempotency-Key: asking again with it does nothing twice, and one is drawn where none is given.

    Each raises :class:`~noetl_stream_client.problems.ApiError` for a refusal.
    """

    async def start_execution(
        self,
        *,
        path: str | None = None,
        version: str | None = None,
        digest: str | None = None,
        playbook: str | None = None,
        workload: Mapping[str, Any] | None = None,
        ctx: Mapping[str, Any] | None = None,
        labels: Mapping[str, str | int | float | bool | None] | None = None,
        key: str | None = None,
        unique: bool | None = None,
        priority: int | None = None,
        wait: str | None = None,
        reason: str | None = None,
        correlation_id: str | None = None,
        traceparent: str | None = None,
        request_id: str | None = None,
    ) -> documents.Execution:
        """Start an execution.

        The request is committed when this answers. A text of your own, `playbook`, takes an author.

        Args:
            workload: Merged deeply over the playbook's own.
            ctx: Set before the first step.
            labels: Added to the playbook's labels, and override them.
            key: Its business key.
            unique: If an execution of the playbook has the key, answer with it, and start nothing.
            priority: What waits in a pool comes from the highest. Default: the playbook's, else 5.
            wait: How long to wait for the end, as in `30s`; at most 300s.
        """
        return await self._ask("start_execution", documents.Execution, locals())

    async def list_executions(
        self,
        *,
        status: Sequence[
            Literal[
                "waiting",
                "paused",
                "compensating",
                "quarantined",
                "pending",
                "running",
                "completed",
                "failed",
                "cancelled",
            ]
        ]
        | None = None,
        path: str | None = None,
        label: Mapping[str, object] | Sequence[str] | None = None,
        started_from: datetime | None = None,
        started_before: datetime | None = None,
        error: str | None = None,
        key: str | None = None,
        input: Mapping[str, object] | Sequence[str] | None = None,
        failed_step: str | None = None,
        worker: str | None = None,
        longer_than: timedelta | str | None = None,
        due: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> documents.ExecutionPage:
        """List executions, newest first.

        Args:
            status: Any of these.
            path: Of this playbook, or of playbooks below it.
            started_from: ISO 8601 with its zone.
            started_before: ISO 8601 with its zone.
            error: Words that the error has.
            key: Its business key.
            failed_step: The step that failed.
            worker: A worker that ran a step.
            longer_than: It has ended, and took at least so long: 90s, 2h.
            due: Due then, by the clocks of its schedule: 2026-12-20, 2026-12-01..2026-12-20.
            limit: Maximum number of items.
            cursor: `next` of the page before.
        """
        return await self._ask("list_executions", documents.ExecutionPage, locals())

    async def count_executions(
        self,
        *,
        status: Sequence[
            Literal[
                "waiting",
                "paused",
                "compensating",
                "quarantined",
                "pending",
                "running",
                "completed",
                "failed",
                "cancelled",
            ]
        ]
        | None = None,
        path: str | None = None,
        label: Mapping[str, object] | Sequence[str] | None = None,
        started_from: datetime | None = None,
        started_before: datetime | None = None,
        error: str | None = None,
        key: str | None = None,
        input: Mapping[str, object] | Sequence[str] | None = None,
        failed_step: str | None = None,
        worker: str | None = None,
        longer_than: timedelta | str | None = None,
        due: str | None = None,
        bars: int | None = None,
    ) -> documents.ExecutionHistogram:
        """Count executions by status over the time of their start.

        Of the last 24 hours, unless `started_from` and `started_before` say otherwise.

        Args:
            status: Any of these.
            path: Of this playbook, or of playbooks below it.
            started_from: ISO 8601 with its zone.
            started_before: ISO 8601 with its zone.
            error: Words that the error has.
            key: Its business key.
            failed_step: The step that failed.
            worker: A worker that ran a step.
            longer_than: It has ended, and took at least so long: 90s, 2h.
            due: Due then, by the clocks of its schedule: 2026-12-20, 2026-12-01..2026-12-20.
            bars: At most so many.
        """
        return await self._ask("count_executions", documents.ExecutionHistogram, locals())

    async def group_executions(
        self,
        *,
        by: str,
        status: Sequence[
            Literal[
                "waiting",
                "paused",
                "compensating",
                "quarantined",
                "pending",
                "running",
                "completed",
                "failed",
                "cancelled",
            ]
        ]
        | None = None,
        path: str | None = None,
        label: Mapping[str, object] | Sequence[str] | None = None,
        started_from: datetime | None = None,
        started_before: datetime | None = None,
        error: str | None = None,
        key: str | None = None,
        input: Mapping[str, object] | Sequence[str] | None = None,
        failed_step: str | None = None,
        worker: str | None = None,
        longer_than: timedelta | str | None = None,
        due: str | None = None,
    ) -> documents.ExecutionGroups:
        """Count executions by status and by path or a label.

        Args:
            by: `path`, or `label:NAME`.
            status: Any of these.
            path: Of this playbook, or of playbooks below it.
            started_from: ISO 8601 with its zone.
            started_before: ISO 8601 with its zone.
            error: Words that the error has.
            key: Its business key.
            failed_step: The step that failed.
            worker: A worker that ran a step.
            longer_than: It has ended, and took at least so long: 90s, 2h.
            due: Due then, by the clocks of its schedule: 2026-12-20, 2026-12-01..2026-12-20.
        """
        return await self._ask("group_executions", documents.ExecutionGroups, locals())

    async def get_execution(self, execution_id: str, *, wait: str | None = None) -> documents.Execution:
        """Get an execution, as it is or as it is after `wait`.

        Args:
            wait: How long to wait for the end, as in `30s`; at most 300s.
        """
        return await self._ask("get_execution", documents.Execution, locals())

    async def delete_execution(self, execution_id: str) -> None:
        """Delete an ended execution."""
        await self._ask("delete_execution", type(None), locals())

    async def get_result(self, execution_id: str) -> documents.Result:
        """Get the result of an ended execution, whole.

        A result kept by reference is loaded unless it is very large.
        """
        return await self._ask("get_result", documents.Result, locals())

    async def list_steps(
        self,
        execution_id: str,
        *,
        limit: int | None = None,
        first: int | None = None,
        step: str | None = None,
        step_run_id: str | None = None,
        order: Literal["began", "duration"] | None = None,
    ) -> documents.StepRuns:
        """List its step runs, in the order they began.

        Without `limit` all of them, else a page, by `order`.

        Args:
            limit: Of a page; without it the answer has all of them.
            first: Where the page begins.
            step: Only runs of this step, in a page.
            step_run_id: Only this one, in a page.
            order: Of a page: by when they began, or the longest first, before them those that have not ended.
        """
        return await self._ask("list_steps", documents.StepRuns, locals())

    async def get_table(
        self,
        execution_id: str,
        *,
        key: str,
        size: int,
        checksum: str,
        seal: str | None = None,
        rows: int | None = None,
        first: int | None = None,
        limit: int | None = None,
    ) -> documents.StoredTable:
        """Look at a table that an execution holds: its columns, how often which values are in them, its first rows.

        Args:
            limit: Maximum number of first rows; fewer of many columns.
        """
        return await self._ask("get_table", documents.StoredTable, locals())

    async def get_step_result(self, execution_id: str, step_run_id: str) -> documents.StepRunResult:
        """Get the result of a step run, whole, from wherever it is kept."""
        return await self._ask("get_step_result", documents.StepRunResult, locals())

    async def list_iterations(
        self, execution_id: str, step_run_id: str, *, limit: int | None = None, cursor: str | None = None
    ) -> documents.IterationPage:
        """List the iterations of a loop step's run.

        Args:
            limit: Maximum number of items.
            cursor: `next` of the page before.
        """
        return await self._ask("list_iterations", documents.IterationPage, locals())

    async def explain_execution(self, execution_id: str) -> documents.Why:
        """Explain why it is where it is, and what would move it."""
        return await self._ask("explain_execution", documents.Why, locals())

    async def list_events(
        self,
        execution_id: str,
        *,
        after: int | None = None,
        before: int | None = None,
        name: Sequence[str] | None = None,
        step: str | None = None,
        task: str | None = None,
        iteration: str | None = None,
        text: str | None = None,
        field: Sequence[
            Literal[
                "event_id",
                "execution_id",
                "position",
                "ts",
                "source",
                "name",
                "entity",
                "entity_id",
                "status",
                "step_run_id",
                "report_id",
                "cause_id",
                "trace_id",
                "actor",
                "task",
                "attempt",
                "iteration",
                "tokens_consumed",
                "tokens_produced",
                "guards",
                "digest",
                "data",
                "step",
            ]
        ]
        | None = None,
        limit: int | None = None,
    ) -> documents.EventPage:
        """List its journal, by position.

        Events are searched as they are shown, at most 10,000 for a page. A page ends after 1 MiB.

        Args:
            after: A position: those above it, the first ones.
            before: A position: those below it; without `after` the last ones.
            name: Only events of these names.
            step: Only events of this step.
            task: Only events of this task.
            text: What `data` contains, in any case; no pattern.
            field: Only these fields; all without it.
            limit: Maximum number of items.
        """
        return await self._ask("list_events", documents.EventPage, locals())

    async def get_state(self, execution_id: str, *, position: int | None = None) -> documents.ExecutionState:
        """Get its state at a position of its journal: tokens, `ctx`, results.

        Args:
            position: After the event there; as it is without it.
        """
        return await self._ask("get_state", documents.ExecutionState, locals())

    async def get_execution_graph(self, execution_id: str, *, so_far: bool | None = None) -> documents.ExecutionGraph:
        """Get the graph of its playbook, with what happened at each step and arc.

        Args:
            so_far: Answer with what is read of a long journal by now, and read on: `position` says how far. Ask
                again while it is below that of the execution.
        """
        return await self._ask("get_execution_graph", documents.ExecutionGraph, locals())

    async def diff_executions(
        self,
        execution_id: str,
        other: str,
        *,
        rows: Literal["different", "all"] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> documents.ExecutionDiff:
        """Compare it (A) with another (B): where they part first, and what differs.

        Args:
            rows: All rows, or those that differ.
            limit: Maximum number of rows.
            cursor: `next` of the page before.
        """
        return await self._ask("diff_executions", documents.ExecutionDiff, locals())

    async def get_timeline(
        self,
        execution_id: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        width: int | None = None,
        step: str | None = None,
        first: int | None = None,
        limit: int | None = None,
        folded: bool | None = None,
        toggled: Sequence[str] | None = None,
        so_far: bool | None = None,
    ) -> documents.Timeline:
        """Get what went on when: step runs, iterations, attempts, waits.

        Args:
            since: Where it begins; without it with the first event.
            until: Where it ends; without it with the last event.
            width: Columns.
            step: Only this step.
            first: Rows of the range before those that are answered.
            limit: Maximum number of rows.
            folded: Of steps only their runs are rows.
            toggled: Steps that are folded if others are not, or not if others are.
            so_far: Answer with what is read of a long journal by now, and read on: `position` says how far. Ask
                again while it is below that of the execution.
        """
        return await self._ask("get_timeline", documents.Timeline, locals())

    async def get_strip(
        self,
        execution_id: str,
        step_run_id: str,
        *,
        first: int | None = None,
        end: int | None = None,
        within: str | None = None,
        buckets: int | None = None,
    ) -> documents.LoopStrip:
        """Get the iterations of a loop by status, in buckets.

        Args:
            first: The index of an iteration.
            end: Iterations before this one; without it to the last.
            within: The iteration around a loop inside a loop.
        """
        return await self._ask("get_strip", documents.LoopStrip, locals())

    async def list_iteration_summaries(
        self,
        execution_id: str,
        step_run_id: str,
        *,
        first: int | None = None,
        end: int | None = None,
        within: str | None = None,
        status: Literal["waiting", "running", "done", "failed", "cancelled", "reused", "skipped"] | None = None,
        limit: int | None = None,
    ) -> documents.IterationSummaries:
        """List the iterations of a loop in a range, without their results.

        Args:
            first: The index of an iteration.
            end: Iterations before this one; without it to the last.
            within: The iteration around a loop inside a loop.
            status: Only iterations with this status.
            limit: Maximum number of items.
        """
        return await self._ask("list_iteration_summaries", documents.IterationSummaries, locals())

    async def list_ctx_changes(
        self, execution_id: str, *, limit: int | None = None, cursor: str | None = None, key: str | None = None
    ) -> documents.KeyChangePage:
        """List the changes of its `ctx` by key, with the values before and after.

        Args:
            limit: Maximum number of items.
            cursor: `next` of the page before.
            key: Only this key.
        """
        return await self._ask("list_ctx_changes", documents.KeyChangePage, locals())

    async def list_lineage(
        self, execution_id: str, *, limit: int | None = None, cursor: str | None = None
    ) -> documents.LineagePage:
        """List which task has read and written which files and tables.

        Args:
            limit: Maximum number of items.
            cursor: `next` of the page before.
        """
        return await self._ask("list_lineage", documents.LineagePage, locals())

    async def list_calls(
        self, execution_id: str, *, limit: int | None = None, cursor: str | None = None
    ) -> documents.CallPage:
        """List the executions that it has called, with their statuses.

        Args:
            limit: Maximum number of items.
            cursor: `next` of the page before.
        """
        return await self._ask("list_calls", documents.CallPage, locals())

    async def inject_token(
        self,
        execution_id: str,
        *,
        step: str,
        args: Mapping[str, Any] | None = None,
        reason: str | None = None,
        correlation_id: str | None = None,
        request_id: str | None = None,
    ) -> documents.Accepted:
        """Inject a token at a step."""
        return await self._ask("inject_token", documents.Accepted, locals())

    async def send_signal(
        self,
        execution_id: str,
        name: str,
        *,
        payload: Any = None,
        reason: str | None = None,
        correlation_id: str | None = None,
        request_id: str | None = None,
    ) -> documents.Accepted:
        """Send a signal to the waits for it."""
        return await self._ask("send_signal", documents.Accepted, locals())

    async def cancel_execution(
        self,
        execution_id: str,
        *,
        now: bool | None = None,
        reason: str | None = None,
        correlation_id: str | None = None,
        request_id: str | None = None,
    ) -> documents.Accepted:
        """Cancel it, and the executions it has called."""
        return await self._ask("cancel_execution", documents.Accepted, locals())

    async def pause_execution(
        self,
        execution_id: str,
        *,
        reason: str | None = None,
        correlation_id: str | None = None,
        request_id: str | None = None,
    ) -> documents.Accepted:
        """Pause it: no step starts until it is resumed."""
        return await self._ask("pause_execution", documents.Accepted, locals())

    async def resume_execution(
        self,
        execution_id: str,
        *,
        reason: str | None = None,
        correlation_id: str | None = None,
        request_id: str | None = None,
    ) -> documents.Accepted:
        """Resume it after a pause or a quarantine."""
        return await self._ask("resume_execution", documents.Accepted, locals())

    async def retry_now(
        self,
        execution_id: str,
        *,
        reason: str | None = None,
        correlation_id: str | None = None,
        request_id: str | None = None,
    ) -> documents.Accepted:
        """Begin the next attempts of its tasks that wait for them."""
        return await self._ask("retry_now", documents.Accepted, locals())

    async def rerun_execution(
        self,
        execution_id: str,
        *,
        step: str | None = None,
        step_run_id: str | None = None,
        ctx: Mapping[str, Any] | None = None,
        args: Mapping[str, Any] | None = None,
        priority: int | None = None,
        wait: str | None = None,
        reason: str | None = None,
        correlation_id: str | None = None,
        request_id: str | None = None,
    ) -> documents.Execution:
        """Run an ended execution again from one of its steps.

        Args:
            priority: Default: that of the original.
            wait: How long to wait for the end, as in `30s`; at most 300s.
        """
        return await self._ask("rerun_execution", documents.Execution, locals())

    async def retry_execution(
        self,
        execution_id: str,
        *,
        ctx: Mapping[str, Any] | None = None,
        args: Mapping[str, Any] | None = None,
        priority: int | None = None,
        wait: str | None = None,
        reason: str | None = None,
        correlation_id: str | None = None,
        request_id: str | None = None,
    ) -> documents.Execution:
        """Run an ended execution again from the step run that failed.

        Args:
            priority: Default: that of the original.
            wait: How long to wait for the end, as in `30s`; at most 300s.
        """
        return await self._ask("retry_execution", documents.Execution, locals())

    async def compensate_execution(
        self,
        execution_id: str,
        *,
        wait: str | None = None,
        reason: str | None = None,
        correlation_id: str | None = None,
        request_id: str | None = None,
    ) -> documents.Execution:
        """Undo what is left to undo of an execution that failed or was cancelled, in a new one.

        Args:
            wait: How long to wait for the end, as in `30s`; at most 300s.
        """
        return await self._ask("compensate_execution", documents.Execution, locals())

    async def cancel_executions(
        self,
        *,
        status: Sequence[
            Literal[
                "waiting",
                "paused",
                "compensating",
                "quarantined",
                "pending",
                "running",
                "completed",
                "failed",
                "cancelled",
            ]
        ]
        | None = None,
        path: str | None = None,
        label: Mapping[str, object] | Sequence[str] | None = None,
        started_from: datetime | None = None,
        started_before: datetime | None = None,
        error: str | None = None,
        key: str | None = None,
        input: Mapping[str, object] | Sequence[str] | None = None,
        failed_step: str | None = None,
        worker: str | None = None,
        longer_than: timedelta | str | None = None,
        due: str | None = None,
        ids: Sequence[str] | None = None,
        dry_run: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        reason: str | None = None,
        correlation_id: str | None = None,
        request_id: str | None = None,
    ) -> documents.Bulk:
        """Cancel executions, and those they have called.

        Args:
            status: Any of these.
            path: Of this playbook, or of playbooks below it.
            started_from: ISO 8601 with its zone.
            started_before: ISO 8601 with its zone.
            error: Words that the error has.
            key: Its business key.
            failed_step: The step that failed.
            worker: A worker that ran a step.
            longer_than: It has ended, and took at least so long: 90s, 2h.
            due: Due then, by the clocks of its schedule: 2026-12-20, 2026-12-01..2026-12-20.
            cursor: `next` of the page before.
        """
        return await self._ask("cancel_executions", documents.Bulk, locals())

    async def pause_executions(
        self,
        *,
        status: Sequence[
            Literal[
                "waiting",
                "paused",
                "compensating",
                "quarantined",
                "pending",
                "running",
                "completed",
                "failed",
                "cancelled",
            ]
        ]
        | None = None,
        path: str | None = None,
        label: Mapping[str, object] | Sequence[str] | None = None,
        started_from: datetime | None = None,
        started_before: datetime | None = None,
        error: str | None = None,
        key: str | None = None,
        input: Mapping[str, object] | Sequence[str] | None = None,
        failed_step: str | None = None,
        worker: str | None = None,
        longer_than: timedelta | str | None = None,
        due: str | None = None,
        ids: Sequence[str] | None = None,
        dry_run: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        reason: str | None = None,
        correlation_id: str | None = None,
        request_id: str | None = None,
    ) -> documents.Bulk:
        """Pause executions.

        Args:
            status: Any of these.
            path: Of this playbook, or of playbooks below it.
            started_from: ISO 8601 with its zone.
            started_before: ISO 8601 with its zone.
            error: Words that the error has.
            key: Its business key.
            failed_step: The step that failed.
            worker: A worker that ran a step.
            longer_than: It has ended, and took at least so long: 90s, 2h.
            due: Due then, by the clocks of its schedule: 2026-12-20, 2026-12-01..2026-12-20.
            cursor: `next` of the page before.
        """
        return await self._ask("pause_executions", documents.Bulk, locals())

    async def resume_executions(
        self,
        *,
        status: Sequence[
            Literal[
                "waiting",
                "paused",
                "compensating",
                "quarantined",
                "pending",
                "running",
                "completed",
                "failed",
                "cancelled",
            ]
        ]
        | None = None,
        path: str | None = None,
        label: Mapping[str, object] | Sequence[str] | None = None,
        started_from: datetime | None = None,
        started_before: datetime | None = None,
        error: str | None = None,
        key: str | None = None,
        input: Mapping[str, object] | Sequence[str] | None = None,
        failed_step: str | None = None,
        worker: str | None = None,
        longer_than: timedelta | str | None = None,
        due: str | None = None,
        ids: Sequence[str] | None = None,
        dry_run: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        reason: str | None = None,
        correlation_id: str | None = None,
        request_id: str | None = None,
    ) -> documents.Bulk:
        """Resume executions after a pause or a quarantine.

        Args:
            status: Any of these.
            path: Of this playbook, or of playbooks below it.
            started_from: ISO 8601 with its zone.
            started_before: ISO 8601 with its zone.
            error: Words that the error has.
            key: Its business key.
            failed_step: The step that failed.
            worker: A worker that ran a step.
            longer_than: It has ended, and took at least so long: 90s, 2h.
            due: Due then, by the clocks of its schedule: 2026-12-20, 2026-12-01..2026-12-20.
            cursor: `next` of the page before.
        """
        return await self._ask("resume_executions", documents.Bulk, locals())

    async def retry_executions(
        self,
        *,
        status: Sequence[
            Literal[
                "waiting",
                "paused",
                "compensating",
                "quarantined",
                "pending",
                "running",
                "completed",
                "failed",
                "cancelled",
            ]
        ]
        | None = None,
        path: str | None = None,
        label: Mapping[str, object] | Sequence[str] | None = None,
        started_from: datetime | None = None,
        started_before: datetime | None = None,
        error: str | None = None,
        key: str | None = None,
        input: Mapping[str, object] | Sequence[str] | None = None,
        failed_step: str | None = None,
        worker: str | None = None,
        longer_than: timedelta | str | None = None,
        due: str | None = None,
        ids: Sequence[str] | None = None,
        dry_run: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        ctx: Mapping[str, Any] | None = None,
        args: Mapping[str, Any] | None = None,
        priority: int | None = None,
        reason: str | None = None,
        correlation_id: str | None = None,
        request_id: str | None = None,
    ) -> documents.Bulk:
        """Run failed executions again, each from the step run that failed.

        Args:
            status: Any of these.
            path: Of this playbook, or of playbooks below it.
            started_from: ISO 8601 with its zone.
            started_before: ISO 8601 with its zone.
            error: Words that the error has.
            key: Its business key.
            failed_step: The step that failed.
            worker: A worker that ran a step.
            longer_than: It has ended, and took at least so long: 90s, 2h.
            due: Due then, by the clocks of its schedule: 2026-12-20, 2026-12-01..2026-12-20.
            cursor: `next` of the page before.
            priority: Default: that of the original.
        """
        return await self._ask("retry_executions", documents.Bulk, locals())

    async def rerun_executions(
        self,
        *,
        step: str,
        status: Sequence[
            Literal[
                "waiting",
                "paused",
                "compensating",
                "quarantined",
                "pending",
                "running",
                "completed",
                "failed",
                "cancelled",
            ]
        ]
        | None = None,
        path: str | None = None,
        label: Mapping[str, object] | Sequence[str] | None = None,
        started_from: datetime | None = None,
        started_before: datetime | None = None,
        error: str | None = None,
        key: str | None = None,
        input: Mapping[str, object] | Sequence[str] | None = None,
        failed_step: str | None = None,
        worker: str | None = None,
        longer_than: timedelta | str | None = None,
        due: str | None = None,
        ids: Sequence[str] | None = None,
        dry_run: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        ctx: Mapping[str, Any] | None = None,
        args: Mapping[str, Any] | None = None,
        priority: int | None = None,
        reason: str | None = None,
        correlation_id: str | None = None,
        request_id: str | None = None,
    ) -> documents.Bulk:
        """Run ended executions again from one of their steps.

        Args:
            status: Any of these.
            path: Of this playbook, or of playbooks below it.
            started_from: ISO 8601 with its zone.
            started_before: ISO 8601 with its zone.
            error: Words that the error has.
            key: Its business key.
            failed_step: The step that failed.
            worker: A worker that ran a step.
            longer_than: It has ended, and took at least so long: 90s, 2h.
            due: Due then, by the clocks of its schedule: 2026-12-20, 2026-12-01..2026-12-20.
            cursor: `next` of the page before.
            priority: Default: that of the original.
        """
        return await self._ask("rerun_executions", documents.Bulk, locals())

    async def delete_executions(
        self,
        *,
        status: Sequence[
            Literal[
                "waiting",
                "paused",
                "compensating",
                "quarantined",
                "pending",
                "running",
                "completed",
                "failed",
                "cancelled",
            ]
        ]
        | None = None,
        path: str | None = None,
        label: Mapping[str, object] | Sequence[str] | None = None,
        started_from: datetime | None = None,
        started_before: datetime | None = None,
        error: str | None = None,
        key: str | None = None,
        input: Mapping[str, object] | Sequence[str] | None = None,
        failed_step: str | None = None,
        worker: str | None = None,
        longer_than: timedelta | str | None = None,
        due: str | None = None,
        ids: Sequence[str] | None = None,
        dry_run: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        reason: str | None = None,
        correlation_id: str | None = None,
        request_id: str | None = None,
    ) -> documents.Bulk:
        """Delete ended executions.

        Args:
            status: Any of these.
            path: Of this playbook, or of playbooks below it.
            started_from: ISO 8601 with its zone.
            started_before: ISO 8601 with its zone.
            error: Words that the error has.
            key: Its business key.
            failed_step: The step that failed.
            worker: A worker that ran a step.
            longer_than: It has ended, and took at least so long: 90s, 2h.
            due: Due then, by the clocks of its schedule: 2026-12-20, 2026-12-01..2026-12-20.
            cursor: `next` of the page before.
        """
        return await self._ask("delete_executions", documents.Bulk, locals())

    async def get_ctx(self, execution_id: str) -> documents.Ctx:
        """Get its `ctx`, and who changed what when."""
        return await self._ask("get_ctx", documents.Ctx, locals())

    async def patch_ctx(
        self,
        execution_id: str,
        changes: Mapping[str, Any],
        *,
        reason: str | None = None,
        correlation_id: str | None = None,
        if_match: str | None = None,
        media: Literal["application/json", "application/merge-patch+json"] = "application/json",
        request_id: str | None = None,
    ) -> documents.Accepted:
        """Change its `ctx`."""
        return await self._ask("patch_ctx", documents.Accepted, locals())

    async def check_playbook(
        self, source: str | bytes, *, name: str | None = None, graph: bool | None = None
    ) -> documents.Checked:
        """Check a text; nothing is stored.

        Args:
            name: What diagnostics call the text.
            graph: Whether to answer its steps and arcs, too.
        """
        return await self._ask("check_playbook", documents.Checked, locals())

    async def register_playbook(
        self, source: str | bytes, *, name: str | None = None, request_id: str | None = None
    ) -> documents.Registered:
        """Register a playbook.

        Args:
            name: What diagnostics call the text.
        """
        return await self._ask("register_playbook", documents.Registered, locals())

    async def list_playbooks(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        prefix: str | None = None,
        label: Mapping[str, object] | Sequence[str] | None = None,
        words: str | None = None,
        kind: Sequence[Literal["Playbook", "Schedule", "Trigger", "Schema"]] | None = None,
        last: bool | None = None,
    ) -> documents.PlaybookPage:
        """List playbooks by path, the latest version of each.

        Args:
            limit: Maximum number of items.
            cursor: `next` of the page before.
            prefix: What the path begins with.
            words: What is in the path, name, description, tags or labels: each word anywhere, at most eight.
            kind: What they may be.
            last: Whether to answer the execution of each that started last.
        """
        return await self._ask("list_playbooks", documents.PlaybookPage, locals())

    async def get_playbook(self, path: str, *, version: str | None = None) -> documents.PlaybookWithSource:
        """Get a playbook with its text.

        Args:
            version: `metadata.version`, or a revision; the latest without it.
        """
        return await self._ask("get_playbook", documents.PlaybookWithSource, locals())

    async def delete_playbook(self, path: str, *, version: str | None = None) -> None:
        """Delete a version, or without one all of them, from the catalog.

        Executions keep their text.

        Args:
            version: `metadata.version`, or a revision; the latest without it.
        """
        await self._ask("delete_playbook", type(None), locals())

    async def get_source(self, path: str, *, version: str | None = None) -> str:
        """Get its text alone.

        Args:
            version: `metadata.version`, or a revision; the latest without it.
        """
        return await self._ask("get_source", str, locals())

    async def put_bundle(self, path: str, source: str | bytes, *, request_id: str | None = None) -> documents.Bundle:
        """Store the Python packages of a project.

        `path` is that of the project. Stored again, the same bytes change nothing.
        """
        return await self._ask("put_bundle", documents.Bundle, locals())

    async def get_bundle(self, path: str, *, digest: str) -> documents.StoredBundle:
        """Get the Python packages of a project.

        Args:
            digest: What its name has after the `@`.
        """
        return await self._ask("get_bundle", documents.StoredBundle, locals())

    async def get_plan(self, path: str, *, version: str | None = None) -> dict[str, Any]:
        """Get the plan it compiles to.

        Args:
            version: `metadata.version`, or a revision; the latest without it.
        """
        return await self._ask("get_plan", dict[str, Any], locals())

    async def get_graph(self, path: str, *, version: str | None = None, digest: str | None = None) -> documents.Graph:
        """Get its steps and arcs.

        Args:
            version: `metadata.version`, or a revision; the latest without it.
            digest: Of a text of this path, in place of a version.
        """
        return await self._ask("get_graph", documents.Graph, locals())

    async def list_versions(self, path: str) -> documents.PlaybookVersions:
        """List every version of a playbook."""
        return await self._ask("list_versions", documents.PlaybookVersions, locals())

    async def diff_versions(
        self, path: str, *, before: str | None = None, after: str | None = None
    ) -> documents.PlaybookDiff:
        """Compare two versions: text, steps and arcs.

        Args:
            before: A version; without it the one registered before `after`.
            after: A version; without it the latest.
        """
        return await self._ask("diff_versions", documents.PlaybookDiff, locals())

    async def diff_text(
        self, path: str, source: str | bytes, *, name: str | None = None, before: str | None = None
    ) -> documents.PlaybookDiff:
        """Compare a text with a version; nothing is stored.

        Args:
            name: What diagnostics call the text.
            before: A version; without it the latest.
        """
        return await self._ask("diff_text", documents.PlaybookDiff, locals())

    async def get_statistics(self, path: str, *, since: datetime | None = None) -> documents.PlaybookStatistics:
        """Get how its executions ended and how long they and its steps took.

        Of at most 10,000 executions, the newest. For steps, journals of at most 200 of those that have ended are
        read, the newest, up to 20,000 events.

        Args:
            since: Of executions that started then or later; without it of seven days.
        """
        return await self._ask("get_statistics", documents.PlaybookStatistics, locals())

    async def get_schema(self, *, kind: Literal["Playbook", "Schedule", "Trigger"] | None = None) -> dict[str, Any]:
        """Get the JSON Schema of a kind of documents; that of playbooks has the tool kinds there are.

        Args:
            kind: Of which documents.
        """
        return await self._ask("get_schema", dict[str, Any], locals())

    async def list_schedules(
        self, *, limit: int | None = None, cursor: str | None = None, prefix: str | None = None
    ) -> documents.SchedulePage:
        """List schedules by path, each with its next time.

        Args:
            limit: Maximum number of items.
            cursor: `next` of the page before.
            prefix: What the path begins with.
        """
        return await self._ask("list_schedules", documents.SchedulePage, locals())

    async def get_schedule(self, path: str) -> documents.RegisteredSchedule:
        """Get a schedule: when it starts next, what runs and waits, whether it is paused and why."""
        return await self._ask("get_schedule", documents.RegisteredSchedule, locals())

    async def delete_schedule(self, path: str, *, reason: str | None = None, correlation_id: str | None = None) -> None:
        """Delete it, its history, and its document in all versions.

        What it has started goes on.
        """
        await self._ask("delete_schedule", type(None), locals())

    async def list_upcoming(
        self, path: str, *, count: int | None = None, after: datetime | None = None
    ) -> documents.UpcomingOccurrences:
        """List when it is due next, paused or not.

        Args:
            count: How many.
            after: Those after this time; without it those to come.
        """
        return await self._ask("list_upcoming", documents.UpcomingOccurrences, locals())

    async def list_occurrences(
        self,
        path: str,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        status: Literal["waiting", "started", "skipped", "completed", "failed", "cancelled"] | None = None,
    ) -> documents.OccurrencePage:
        """List what became of its occurrences: started, or skipped with the reason.

        Args:
            limit: Maximum number of items.
            cursor: `next` of the page before.
            status: Only of this status.
        """
        return await self._ask("list_occurrences", documents.OccurrencePage, locals())

    async def pause_schedule(
        self, path: str, *, reason: str | None = None, correlation_id: str | None = None, request_id: str | None = None
    ) -> documents.RegisteredSchedule:
        """Pause it: it starts nothing until it is resumed."""
        return await self._ask("pause_schedule", documents.RegisteredSchedule, locals())

    async def resume_schedule(
        self, path: str, *, reason: str | None = None, correlation_id: str | None = None, request_id: str | None = None
    ) -> documents.RegisteredSchedule:
        """Resume it from now on."""
        return await self._ask("resume_schedule", documents.RegisteredSchedule, locals())

    async def trigger_schedule(
        self, path: str, *, reason: str | None = None, correlation_id: str | None = None, request_id: str | None = None
    ) -> documents.Occurrence:
        """Let it be due now, once, also if it is paused."""
        return await self._ask("trigger_schedule", documents.Occurrence, locals())

    async def backfill_schedule(
        self,
        path: str,
        *,
        from_: datetime,
        before: datetime,
        overlap: Literal["skip", "queue_one", "queue_all", "cancel", "terminate", "allow"] | None = None,
        reason: str | None = None,
        correlation_id: str | None = None,
        request_id: str | None = None,
    ) -> documents.Backfilled:
        """Let the occurrences of a range in the past be due now, in order.

        Args:
            from_: ISO 8601 with its zone.
            before: ISO 8601 with its zone.
        """
        return await self._ask("backfill_schedule", documents.Backfilled, locals())

    async def list_credentials(self) -> documents.Credentials:
        """List credentials by name, without their values."""
        return await self._ask("list_credentials", documents.Credentials, locals())

    async def rotate_credentials(
        self, *, reason: str | None = None, correlation_id: str | None = None, request_id: str | None = None
    ) -> documents.Rotated:
        """Encrypt what is under an older key with the current one."""
        return await self._ask("rotate_credentials", documents.Rotated, locals())

    async def get_credential(self, name: str) -> documents.Credential:
        """Get a credential without its value."""
        return await self._ask("get_credential", documents.Credential, locals())

    async def put_credential(
        self,
        name: str,
        *,
        value: str | dict[str, Any],
        kind: str | None = None,
        description: str | None = None,
        tags: Sequence[str] | None = None,
        reason: str | None = None,
        correlation_id: str | None = None,
    ) -> documents.Credential:
        """Store a credential, or its next version."""
        return await self._ask("put_credential", documents.Credential, locals())

    async def delete_credential(
        self, name: str, *, reason: str | None = None, correlation_id: str | None = None
    ) -> None:
        """Delete a credential."""
        await self._ask("delete_credential", type(None), locals())

    async def get_grants(self, *, revision: int | None = None) -> documents.Grants:
        """Get the grants in force, or a revision of those that were registered."""
        return await self._ask("get_grants", documents.Grants, locals())

    async def put_grants(
        self, revision: int, source: str | bytes, *, reason: str | None = None, correlation_id: str | None = None
    ) -> documents.Grants:
        """Register grants as the next revision.

        `revision` is one more than that of the grants you changed, 1 if there were none. Every server and gateway has
        them within a few seconds.
        """
        return await self._ask("put_grants", documents.Grants, locals())

    async def get_playbook_grants(self, path: str) -> documents.PlaybookGrants:
        """List what the playbook at a path may use, whether it is registered or not."""
        return await self._ask("get_playbook_grants", documents.PlaybookGrants, locals())

    async def list_workers(self) -> documents.Workers:
        """List the workers that are alive."""
        return await self._ask("list_workers", documents.Workers, locals())

    async def list_pools(self) -> documents.Pools:
        """List pools, with what is queued and running in each."""
        return await self._ask("list_pools", documents.Pools, locals())

    async def list_partitions(self) -> documents.Partitions:
        """List partitions: which server folds them, and how far behind it is."""
        return await self._ask("list_partitions", documents.Partitions, locals())

    async def list_limits(self, *, limit: int | None = None, cursor: str | None = None) -> documents.LimitPage:
        """List the keys of limits that are held or waited for.

        Args:
            limit: Maximum number of items.
            cursor: `next` of the page before.
        """
        return await self._ask("list_limits", documents.LimitPage, locals())

    async def get_limit(self, key: str, *, namespace: str | None = None) -> documents.LimitWithSlots:
        """Get the limit of a key, with who holds it and who waits.

        Args:
            namespace: That of the key; empty: namespaces share it.
        """
        return await self._ask("get_limit", documents.LimitWithSlots, locals())

    async def list_dead_letters(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> documents.DeadLetterPage:
        """List messages and commands that were given up, newest first, without bodies.

        Args:
            limit: Maximum number of items.
            cursor: `next` of the page before.
        """
        return await self._ask("list_dead_letters", documents.DeadLetterPage, locals())

    async def get_dead_letter(self, letter_id: str) -> documents.DeadLetterWithBody:
        """Get a dead letter with its body."""
        return await self._ask("get_dead_letter", documents.DeadLetterWithBody, locals())

    async def discard_dead_letter(
        self, letter_id: str, *, reason: str | None = None, correlation_id: str | None = None
    ) -> None:
        """Take it off the list for good."""
        await self._ask("discard_dead_letter", type(None), locals())

    async def requeue_dead_letter(
        self,
        letter_id: str,
        *,
        reason: str | None = None,
        correlation_id: str | None = None,
        request_id: str | None = None,
    ) -> documents.DeadLetter:
        """Send it again where it came from, and take it off the list."""
        return await self._ask("requeue_dead_letter", documents.DeadLetter, locals())

    async def examine(self) -> documents.Checks:
        """Look for what is wrong with the system, check by check, with what mends it."""
        return await self._ask("examine", documents.Checks, locals())

    async def list_storage(self) -> documents.Storage:
        """List what streams and tables take on disk."""
        return await self._ask("list_storage", documents.Storage, locals())

    async def list_logs(
        self,
        execution_id: str,
        *,
        step: str | None = None,
        task: str | None = None,
        iteration: str | None = None,
        since: datetime | None = None,
        grep: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> documents.LogPage:
        """List what its tasks have written.

        Lines are searched as they are shown. A page may be empty and have a `next` page.

        Args:
            step: Only lines of this step.
            task: Only lines of this task.
            since: ISO 8601 with its zone.
            grep: A text that the lines contain, no pattern.
            after: The id of a line: from the one after it.
            limit: Maximum number of items.
        """
        return await self._ask("list_logs", documents.LogPage, locals())

    async def create_token(
        self,
        *,
        name: str,
        role: Literal["viewer", "operator", "author", "admin"],
        paths: Sequence[str] | None = None,
        expires: datetime | Literal["never"] | None = None,
        request_id: str | None = None,
    ) -> documents.NewApiToken:
        """Create an API token.

        Args:
            expires: ISO 8601 with its zone.
        """
        return await self._ask("create_token", documents.NewApiToken, locals())

    async def list_tokens(self) -> documents.ApiTokens:
        """List tokens in the order they were created, without their secrets."""
        return await self._ask("list_tokens", documents.ApiTokens, locals())

    async def revoke_token(
        self, token_id: str, *, reason: str | None = None, correlation_id: str | None = None
    ) -> None:
        """Revoke a token, within two seconds on every gateway."""
        await self._ask("revoke_token", type(None), locals())

    async def list_audit(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        principal: str | None = None,
        operation: str | None = None,
        target: str | None = None,
        refused: bool | None = None,
    ) -> documents.AuditPage:
        """List calls that changed something, and calls that were refused, newest first.

        Args:
            limit: Maximum number of items.
            cursor: `next` of the page before.
            principal: Only what this principal did.
            operation: Only calls of this operation.
            target: Only what was done to this.
            refused: Only what was refused, or only what was not.
        """
        return await self._ask("list_audit", documents.AuditPage, locals())

    async def check_audit(self, *, cursor: str | None = None) -> documents.AuditCheck:
        """Check whether entries of the audit were changed, removed or inserted.

        Args:
            cursor: `next` of the page before.
        """
        return await self._ask("check_audit", documents.AuditCheck, locals())

    async def list_triggers(
        self, *, limit: int | None = None, cursor: str | None = None, prefix: str | None = None
    ) -> documents.TriggerPage:
        """List triggers by path.

        Args:
            limit: Maximum number of items.
            cursor: `next` of the page before.
            prefix: What the path begins with.
        """
        return await self._ask("list_triggers", documents.TriggerPage, locals())

    async def get_trigger(self, path: str) -> documents.TriggerState:
        """Get a trigger as it is now."""
        return await self._ask("get_trigger", documents.TriggerState, locals())

    async def delete_trigger(self, path: str, *, reason: str | None = None, correlation_id: str | None = None) -> None:
        """Forget a trigger and its events. What it has started goes on."""
        await self._ask("delete_trigger", type(None), locals())

    async def pause_trigger(
        self, path: str, *, reason: str | None = None, correlation_id: str | None = None, request_id: str | None = None
    ) -> documents.TriggerState:
        """Ignore events until the trigger is resumed."""
        return await self._ask("pause_trigger", documents.TriggerState, locals())

    async def resume_trigger(
        self, path: str, *, reason: str | None = None, correlation_id: str | None = None, request_id: str | None = None
    ) -> documents.TriggerState:
        """Start executions on events again."""
        return await self._ask("resume_trigger", documents.TriggerState, locals())

    async def list_trigger_events(
        self,
        path: str,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        status: Literal["started", "waiting", "repeated", "ignored"] | None = None,
    ) -> documents.TriggerEventPage:
        """List events and what became of them, newest first.

        Args:
            limit: Maximum number of items.
            cursor: `next` of the page before.
            status: What became of them.
        """
        return await self._ask("list_trigger_events", documents.TriggerEventPage, locals())

    async def get_trigger_event(self, path: str, number: int) -> documents.TriggerEvent:
        """Get an event in full."""
        return await self._ask("get_trigger_event", documents.TriggerEvent, locals())

    async def resend_trigger_event(
        self,
        path: str,
        number: int,
        *,
        reason: str | None = None,
        correlation_id: str | None = None,
        request_id: str | None = None,
    ) -> documents.TriggerEvent:
        """Send an event again, as a new one."""
        return await self._ask("resend_trigger_event", documents.TriggerEvent, locals())

    async def create_sign_in_code(self, *, request_id: str | None = None) -> documents.SignInCode:
        """Create a code that signs a browser in with the rights of this token."""
        return await self._ask("create_sign_in_code", documents.SignInCode, locals())

    async def me(self) -> documents.Caller:
        """Who the caller is, and what it may do."""
        return await self._ask("me", documents.Caller, locals())
