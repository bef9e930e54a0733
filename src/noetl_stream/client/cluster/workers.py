"""The workers that are alive: each says so itself, when it is asked."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from noetl_stream.engine.state import Assignment
from noetl_stream.errors import PayloadRefused
from noetl_stream.model import codec
from noetl_stream.model.envelope import iso
from noetl_stream.model.messages import WorkerPresence
from noetl_stream.ports import subjects
from noetl_stream.ports.bus import Bus
from noetl_stream.ports.operations.cluster import RunningCommandDocument, WorkerDocument

log = logging.getLogger(__name__)

WORKERS_WAIT_S: Final = 0.3
"""How long answers are gathered. A worker that takes longer is missing from the list, and there again the next time."""


async def ask_workers(bus: Bus, wait_s: float = WORKERS_WAIT_S) -> list[WorkerPresence]:
    """Everyone who answers in time, by pool and name.

    Raises:
        Unreachable: NATS is away.
    """
    found = []
    for answer in await bus.ask_all(subjects.ASK_WORKERS, b"", wait_s):
        try:
            found.append(codec.decode_presence(answer))
        except PayloadRefused as error:
            log.warning("a worker's answer cannot be read: %s", error)
    return sorted(found, key=lambda worker: (worker.pool, worker.name))


def worker_document(worker: WorkerPresence) -> WorkerDocument:
    """A worker as people see it."""
    return WorkerDocument(
        name=worker.name,
        pool=worker.pool,
        slots=worker.slots,
        busy=worker.busy,
        since=iso(worker.since_ms),
        kinds=worker.kinds,
        draining=worker.draining,
        version=worker.version,
        running=[
            RunningCommandDocument(running.execution_id, running.command_id, running.step, running.delivered)
            for running in worker.running
        ],
    )


def times_delivered(owed: Assignment, workers: Iterable[WorkerDocument]) -> int:
    """How often this issue of a command has been given to a worker, as far as anybody but the queue can know.

    Every delivery after the first is claimed, and so stands in the journal; one that is not folded yet is known by the
    worker that holds it, if it names it. What is missed is a delivery whose worker died before it said anything, until
    the next one is claimed: that one's number counts it. 0: no worker is known to have had it.

    Args:
        workers: Those alive, as :func:`worker_document` shows them.
    """
    folded = owed.run.num_delivered if owed.run is not None and owed.run.issue == owed.issue else 0
    held = (
        running.delivered for worker in workers for running in worker.running if running.command_id == owed.command_id
    )
    return max(folded, *held, 0)
