"""Rotel (https://rotel.dev), a collector of OpenTelemetry that others wrote, between the program and our collector."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from cli_program import PATIENCE_S
from noetl_stream.local.processes import choose_port


def rotel_program() -> Path:
    """The binary of the package; skips the test where there is no package."""
    found = find_spec("rotel")
    if found is None or found.origin is None:
        pytest.skip("NO COLLECTOR OF OTHERS WAS TRIED: there is no package of Rotel for this system")
    return Path(found.origin).with_name("rotel-agent")


def rotel_command(listens: str, target: str) -> list[str]:
    """Has Rotel take OTLP over HTTP on ``host:port`` and pass it on at once to a collector on a URL."""
    return [
        *("start", "--otlp-http-endpoint", listens, "--otlp-grpc-endpoint", f"127.0.0.1:{choose_port()}"),
        *("--disable-batching", "--exporter", "otlp"),
        *("--otlp-exporter-endpoint", target, "--otlp-exporter-protocol", "http"),
    ]


@contextmanager
def rotel_before(target: str) -> Iterator[str]:
    """The URL of a Rotel that passes everything on to the collector on this URL."""
    port = choose_port()
    command = [str(rotel_program()), *rotel_command(f"127.0.0.1:{port}", target)]
    with subprocess.Popen(command) as process:
        try:
            give_up_at = time.monotonic() + PATIENCE_S
            while not _answers(port):
                assert process.poll() is None and time.monotonic() < give_up_at, "Rotel does not start"
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        time.sleep(0.02)
        return False
    return True
