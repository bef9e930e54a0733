"""A worker's dependencies, built once and shared by all its runs, with its counters and its nonces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from noetl_stream.concurrency import Capacity
from noetl_stream.playbook.kinds.spec import Kinds
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.streams.blobs import Blobs, ObjectsByAddress
from noetl_stream.ports.streams.bus import Bus
from noetl_stream.ports.traces import Tracing
from noetl_stream.telemetry.measures import ByPath, Durations, Exemplar, long_durations
from noetl_stream.tools.contract import Tool
from noetl_stream.worker.child_playbooks import PlanClient
from noetl_stream.worker.command.reporter import Channel
from noetl_stream.worker.command.results import Pages, StoredBytes
from noetl_stream.worker.schemas import Schemas
from noetl_stream.worker.secrets.keychain import Keychain
from noetl_stream.worker.task_logs.publisher import LogPublisher

NONCE_BYTES: Final = 6
DRAWN_AT_ONCE: Final = 256


@dataclass(slots=True)
class WorkerCounts:
    """Counters of a worker since its start: plain numbers, written by its runs and read by :mod:`.status_report`.

    Attributes:
        tasks: The durations of task attempts, by kind and outcome: ``ok`` or ``error``.
        retries: Attempts after the first, by kind.
        commands: The commands that have left the worker, by result: ``done``, ``returned``.
        waits: The times that commands waited in the queue, by the path of their playbook.
    """

    tasks: dict[tuple[str, ...], Durations] = field(default_factory=dict)
    retries: Counter[str] = field(default_factory=Counter)
    commands: Counter[str] = field(default_factory=Counter)
    waits: ByPath[Durations] = field(default_factory=lambda: ByPath(long_durations))

    def count_attempt(self, kind: str, outcome: str, attempt: int, took_s: float) -> None:
        durations = self.tasks.get((kind, outcome))
        if durations is None:
            durations = self.tasks[kind, outcome] = Durations()
        durations.add(took_s)
        if attempt > 1:
            self.retries[kind] += 1

    def add_exemplar(self, kind: str, outcome: str, exemplar: Exemplar) -> None:
        """Shows the span of a counted attempt as an exemplar."""
        self.tasks[kind, outcome].show(exemplar)


class Nonces:
    """Generates the nonces of runs (PROTOCOL §1 *Identity*): random texts of twelve hexadecimal digits.

    Many are generated at a time: a system call for each would cost every step.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left: list[str] = []

    def draw(self) -> str:
        if not self._left:
            digits = self._clock.random_bytes(NONCE_BYTES * DRAWN_AT_ONCE).hex()
            length = 2 * NONCE_BYTES
            self._left = [digits[at : at + length] for at in range(0, len(digits), length)]
        return self._left.pop()


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Ports, tools and names used by every run. ``worker`` is the name in events, ``tracing`` exports spans.

    Attributes:
        max_result_bytes: The upper bound of the knobs ``max_…_bytes`` of one task.
        objects: Access to objects outside NATS.
        rendering: The turns of heavy templates, in threads that hold the interpreter while the loop waits for it.
    """

    worker: str
    channel: Channel
    bus: Bus
    blobs: Blobs
    clock: Clock
    nonces: Nonces
    tools: Mapping[str, Tool]
    kinds: Kinds
    plans: PlanClient
    keychain: Keychain
    log_publisher: LogPublisher
    max_result_bytes: int
    pages: Pages = field(default_factory=Pages)
    stored_bytes: StoredBytes = field(default_factory=StoredBytes)
    schemas: Schemas = field(default_factory=Schemas)
    rendering: Capacity = field(default_factory=lambda: Capacity(1))
    counts: WorkerCounts = field(default_factory=WorkerCounts)
    tracing: Tracing | None = None
    objects: ObjectsByAddress | None = None
