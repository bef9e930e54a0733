"""A worker's dependencies, built once and shared by all its runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from noetl_stream.playbook.kinds.spec import Kinds
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.streams.blobs import Blobs, ObjectsByAddress
from noetl_stream.ports.streams.bus import Bus
from noetl_stream.ports.traces import Tracing
from noetl_stream.tools.contract import Tool
from noetl_stream.worker.child_playbooks import PlanClient
from noetl_stream.worker.command.reporter import Channel
from noetl_stream.worker.command.results import Pages
from noetl_stream.worker.command.stored_bytes import StoredBytes
from noetl_stream.worker.counts import WorkerCounts
from noetl_stream.worker.nonces import Nonces
from noetl_stream.worker.schemas import Schemas
from noetl_stream.worker.secrets.keychain import Keychain
from noetl_stream.worker.task_logs.publisher import LogPublisher


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Ports, tools and names used by every run. ``worker`` is the name in events, ``tracing`` exports spans.

    Attributes:
        max_result_bytes: The upper bound of the knobs ``max_…_bytes`` of one task.
        objects: Access to objects outside NATS.
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
    counts: WorkerCounts = field(default_factory=WorkerCounts)
    tracing: Tracing | None = None
    objects: ObjectsByAddress | None = None
