"""NATS: connections, JetStream, and the ports they implement.

Loads the client library without what nothing here uses: aiohttp, which it imports for WebSocket (a fifth of what a
command imports), and its own JetStream (an eighth of what ``run`` imports), which loads if somebody looks into it.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

JETSTREAM = "nats.js"


def _load(name: str) -> Any:
    if sys.modules[JETSTREAM] is _placeholder:
        del sys.modules[JETSTREAM]
    return getattr(import_module(JETSTREAM), name)


_placeholder = ModuleType(JETSTREAM)
_placeholder.__getattr__ = _load  # type: ignore[method-assign]

if "nats" not in sys.modules:
    unused: dict[str, Any] = {JETSTREAM: _placeholder}
    if "aiohttp" not in sys.modules:
        unused["aiohttp"] = None
    sys.modules.update(unused)
    import nats

    nats.js = _placeholder
    if "aiohttp" in unused:
        del sys.modules["aiohttp"]
