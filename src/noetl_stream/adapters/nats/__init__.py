"""NATS: connections, JetStream, and the ports they implement."""

import sys

if "aiohttp" not in sys.modules:
    # The client library imports it for WebSocket, which nothing here uses: a fifth of what a command imports.
    sys.modules["aiohttp"] = None  # type: ignore[assignment]
    import nats.aio.transport  # noqa: F401

    del sys.modules["aiohttp"]
