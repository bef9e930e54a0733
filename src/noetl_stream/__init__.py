"""noetl-stream: durable NoETL playbooks on NATS JetStream and Postgres."""

from typing import Any

DISTRIBUTION = "noetl-stream-cli"
"""The distribution of this package. ``noetl-stream`` adds what servers and workers need."""


def __getattr__(name: str) -> Any:
    """``__version__``, looked up on first use: that costs more than the rest of a fast command."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:  # running from a source tree that was never installed
        return "0+unknown"
