"""The status of a worker for probes and Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from noetl_stream.telemetry.measures import Durations, Labels, Measured, Metric, Reading, memory_readings
from noetl_stream.worker.worker import Worker
from noetl_stream.worker.worker_limits import CONTACT_LOST_AFTER_S

TASKS: Final = Metric(
    "histogram", "noetl_worker_task_duration_seconds", "Attempts of tasks, by kind and outcome.", ("kind", "outcome")
)
RETRIES: Final = Metric("counter", "noetl_worker_task_retries", "Attempts of tasks after the first.", ("kind",))
SLOTS: Final = Metric("gauge", "noetl_worker_slots", "Commands that this worker runs at once.", ("pool",))
RUNNING: Final = Metric("gauge", "noetl_worker_commands_running", "Commands that it runs now.", ("pool",))
COMMANDS: Final = Metric(
    "counter", "noetl_worker_commands", "Commands that were done, or returned to the queue.", ("result",)
)
QUEUE_WAIT: Final = Metric(
    "histogram",
    "noetl_worker_queue_wait_seconds",
    "How long commands waited in the queue until this worker began them, by playbook.",
    ("pool", "path"),
)
WAITING: Final = Metric(
    "gauge", "noetl_worker_results_waiting", "Commands whose result is not stored yet, since NATS does not take it."
)
RETRYING: Final = Metric("gauge", "noetl_worker_reports_retrying", "Reports that NATS has not taken at first.")
LOG_BYTES: Final = Metric("counter", "noetl_worker_log_bytes", "Bytes of logs of tasks that were published.")
LOG_LINES_DROPPED: Final = Metric(
    "counter", "noetl_worker_log_lines_dropped", "Lines of logs of tasks that were dropped at a limit."
)
CONTACT_LOST: Final = Metric(
    "counter", "noetl_worker_contact_losses", "How often NATS was away for so long that all runs were stopped."
)


class WorkerStatus:
    """The :class:`~noetl_stream.telemetry.measures.Role` of a worker.

    Args:
        is_connected: Returns whether the worker is connected to NATS.
    """

    def __init__(self, worker: Worker, is_connected: Callable[[], bool]) -> None:
        self._worker = worker
        self._is_connected = is_connected

    def reasons_to_replace(self) -> Sequence[str]:
        return ("the thread that renews leases has ended",) if self._worker.leases.has_ended else ()

    async def reasons_not_ready(self) -> Sequence[str]:
        return [*self._reasons_to_wait()]

    def _reasons_to_wait(self) -> Iterator[str]:
        worker = self._worker
        if worker.is_draining:
            yield "it drains: it finishes what it runs, and takes no more"
        elif not worker.opened.is_set():
            yield f"it is starting: no server has made the queue of pool {worker.pool!r} yet, or NATS does not answer"
        elif worker.fitness.why_not:
            yield f"it takes no commands until a self-test passes: {worker.fitness.why_not}"
        elif not self._is_connected():
            yield "it has lost the connection to NATS"
        elif worker.liveness.age_s > CONTACT_LOST_AFTER_S:
            yield f"NATS has not answered for {worker.liveness.age_s:.0f} s"
        elif worker.unstored:
            yield f"{worker.results_waiting} of its {worker.running} commands wait: {worker.unstored}"

    def _queue_waits(self) -> Reading:
        waits: dict[Labels, Durations] = {
            (self._worker.pool, path): found for path, found in self._worker.counts.waits.items()
        }
        return QUEUE_WAIT.read_each(waits)

    async def readings(self) -> Sequence[Reading]:
        worker, counts = self._worker, self._worker.counts
        return [
            TASKS.read_each(counts.tasks),
            RETRIES.read_each(counts.retries),
            SLOTS.read(worker.slots, worker.pool),
            RUNNING.read(worker.running, worker.pool),
            COMMANDS.read_each(counts.commands),
            self._queue_waits(),
            WAITING.read(worker.results_waiting),
            RETRYING.read(worker.channel.retrying),
            CONTACT_LOST.read(worker.liveness.losses),
            LOG_BYTES.read(worker.logs.bytes_published),
            LOG_LINES_DROPPED.read(worker.logs.lines_dropped),
            *memory_readings([worker.memory_use()]),
            *(worker.tracing.readings() if worker.tracing is not None else ()),
            *(reading for tool in worker.tools.values() if isinstance(tool, Measured) for reading in tool.readings()),
        ]
