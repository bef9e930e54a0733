"""Rotel (https://rotel.dev), a collector of OpenTelemetry that others wrote, between the program and our collector."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from noetl_stream.local.processes import choose_port
from noetl_testkit.waiting import until


def rotel_program() -> Path:
    """The binary of the package; skips the test where there is none that runs: it needs Python as a library."""
    found = find_spec("rotel")
    if found is None or found.origin is None:
        pytest.skip("NO COLLECTOR OF OTHERS WAS TRIED: there is no package of Rotel for this system")
    program = Path(found.origin).with_name("rotel-agent")
    ran = subprocess.run([program, "version"], capture_output=True, text=True)
    if ran.returncode != 0:
        pytest.skip(f"NO COLLECTOR OF OTHERS WAS TRIED: Rotel does not run here: {ran.stderr}")
    return program


@asynccontextmanager
async def rotel_before(target: str) -> AsyncIterator[str]:
    """The URL of a Rotel that takes OTLP over HTTP and passes it on at once to the collector on this URL."""
    port = choose_port()
    command = [
        *(rotel_program(), "start", "--disable-batching"),
        *("--otlp-http-endpoint", f"127.0.0.1:{port}", "--otlp-grpc-endpoint", f"127.0.0.1:{choose_port()}"),
        *("--exporter", "otlp", "--otlp-exporter-protocol", "http", "--otlp-exporter-endpoint", target),
    ]
    process = await asyncio.create_subprocess_exec(*command)
    try:
        await until(lambda: _answers(port))
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
