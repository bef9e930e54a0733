"""noetl-stream: durable NoETL playbooks on NATS JetStream and Postgres."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("noetl-stream")
except PackageNotFoundError:  # running from a source tree that was never installed
    __version__ = "0+unknown"
