"""What a worker was given to work with. Built once, shared by all its runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from noetl_stream.ports.blobs import Blobs
from noetl_stream.ports.bus import Bus
from noetl_stream.ports.clock import Clock
from noetl_stream.tools.contract import Tool
from noetl_stream.worker.asked_catalog import AskedCatalog
from noetl_stream.worker.keychain import Keychain
from noetl_stream.worker.pages import Pages
from noetl_stream.worker.plans import Plans
from noetl_stream.worker.report import Channel


@dataclass(frozen=True, slots=True)
class Equipment:
    """Ports, tools and names that every run uses. ``worker`` is this worker's name, as events show it."""

    worker: str
    channel: Channel
    bus: Bus
    blobs: Blobs
    clock: Clock
    tools: Mapping[str, Tool]
    plans: Plans
    catalog: AskedCatalog
    keychain: Keychain
    pages: Pages = field(default_factory=Pages)
