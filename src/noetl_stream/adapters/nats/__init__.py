"""NATS: connections, JetStream, and the adapters of ports on it.

Loads the client library without its unused parts: aiohttp, which it imports for WebSocket (a fifth of a command's
imports), and its own JetStream (an eighth of ``run``'s), which loads once more than its header names is used.
"""

import sys
from enum import StrEnum
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

JETSTREAM = "nats.js"


class Header(StrEnum):
    """The names that the client looks up in ``nats.js.api`` when a message has headers."""

    CONSUMER_STALLED = "Nats-Consumer-Stalled"
    DESCRIPTION = "Description"
    STATUS = "Status"


def _load(name: str) -> Any:
    """Loads the library's JetStream on the first use of an attribute, and returns that."""
    return getattr(import_module(JETSTREAM), name)


if "nats" not in sys.modules:
    placeholder = ModuleType(JETSTREAM)
    placeholder.__getattr__ = _load  # type: ignore[method-assign]
    placeholder.api = SimpleNamespace(Header=Header)  # type: ignore[attr-defined]
    unused: dict[str, Any] = {JETSTREAM: placeholder}
    if "aiohttp" not in sys.modules:
        unused["aiohttp"] = None
    sys.modules.update(unused)
    import nats

    nats.js = placeholder  # until it or its parts are imported, which must not find it among the modules
    for name in unused:
        del sys.modules[name]
