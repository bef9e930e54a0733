"""The health check of the image, against the status address of a role."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from noetl_stream.local.processes import choose_port
from noetl_stream.telemetry.measures import Reading
from noetl_stream.telemetry.status_server import open_status

SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "healthcheck.py"


class Ready:
    """A role that lacks nothing."""

    def reasons_to_replace(self) -> Sequence[str]:
        return ()

    async def reasons_not_ready(self) -> Sequence[str]:
        return ()

    async def readings(self) -> Sequence[Reading]:
        return ()


async def checked(address: str) -> tuple[int | None, str]:
    """The exit code of the check, and what it has printed."""
    check = await asyncio.create_subprocess_exec(
        *(sys.executable, "-IS", str(SCRIPT)),
        env={"NOETL_STATUS_ADDRESS": address},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    printed, _ = await check.communicate()
    return check.returncode, printed.decode()


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
async def test_a_role_is_healthy_once_it_is_ready(host: str) -> None:
    port = choose_port()
    async with open_status(host, port, "server") as status:
        code, printed = await checked(f"{host}:{port}")
        assert (code, "the server is starting" in printed) == (1, True)
        status.attach(Ready())
        code, printed = await checked(f"{host}:{port}")
        assert (code, '"ready":true' in printed.replace(" ", "")) == (0, True)


async def test_a_role_that_does_not_answer_is_not_healthy() -> None:
    code, _ = await checked(f"127.0.0.1:{choose_port()}")
    assert code == 1


async def test_a_container_without_a_status_address_counts_as_healthy() -> None:
    assert await checked("") == (0, "")
