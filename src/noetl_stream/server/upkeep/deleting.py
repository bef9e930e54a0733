"""Deletes the data of an execution in NATS: objects, and the logs of its tasks (PROTOCOL §5 *Retention*)."""

from __future__ import annotations

from collections.abc import Iterable

from noetl_stream.ports.streams.blobs import Blobs
from noetl_stream.ports.streams.task_logs import TaskLogs
from noetl_stream.protocol import subjects


async def delete_kept(blobs: Blobs, task_logs: TaskLogs, keys: Iterable[str]) -> None:
    """Deletes objects by key, and the task logs that :func:`~noetl_stream.protocol.subjects.logs_key` names."""
    for key in keys:
        execution_id = subjects.named_by_logs_key(key)
        if execution_id is None:
            await blobs.delete(key)
        else:
            await task_logs.delete(execution_id)
