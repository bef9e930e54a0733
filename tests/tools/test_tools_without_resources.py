"""A worker's own trouble is told from the failures of its tasks, which have not begun."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Mapping
from typing import Any

import pytest

from noetl_stream.settings.egress import egress_rules
from noetl_stream.tools.contract import SelfTested, Tool, ToolFailure, WorkerUnfit
from noetl_stream.tools.duckdb.tool import DuckdbTool
from noetl_stream.tools.egress import Egress
from noetl_stream.tools.http.tool import HttpTool
from noetl_stream.tools.nats.tool import NatsTool
from noetl_stream.tools.postgres.pool import ConnectionPools
from noetl_stream.tools.postgres.tool import PostgresTool
from noetl_stream.tools.python.child import send_next
from noetl_stream.tools.python.tool import PythonTool
from noetl_stream.tools.shell import ShellTool
from noetl_testkit.descriptors import few_descriptors, no_descriptors

LOOPBACK = egress_rules("loopback")


async def outcome(tool: Tool, call: Any) -> str:
    """Returns ``began``, also with a failure; or why the task could not begin."""
    try:
        await tool.run(call)
    except ToolFailure:
        return "began"
    except WorkerUnfit as unfit:
        return str(unfit)
    return "began"


@pytest.mark.parametrize(
    ("make", "inputs", "what"),
    [
        (lambda: HttpTool(Egress(LOOPBACK)), {"url": "http://127.0.0.1:{port}/"}, "open a connection"),
        (
            lambda: PostgresTool(ConnectionPools(Egress(LOOPBACK))),
            {"auth": "postgres", "command": "select 1"},
            "open a connection",
        ),
        (
            lambda: NatsTool(Egress(LOOPBACK)),
            {"auth": "nats", "action": "publish", "subject": "s"},
            "open a connection",
        ),
        (ShellTool, {"command": "true"}, "start a command"),
        (PythonTool, {"code": "result = 1"}, "start a Python process"),
        (DuckdbTool, {"command": "select 1"}, "start a DuckDB process"),
    ],
    ids=["http", "postgres", "nats", "shell", "python", "duckdb"],
)
async def test_a_task_cannot_begin_without_descriptors_and_can_when_there_are_some(
    make: Any, inputs: Mapping[str, Any], what: str, make_call: Any, unused_tcp_port: int
) -> None:
    given = {name: str(value).replace("{port}", str(unused_tcp_port)) for name, value in inputs.items()}
    with few_descriptors():
        tool = make()
        urls = {
            "postgres": f"postgresql://me@127.0.0.1:{unused_tcp_port}/",
            "nats": f"nats://127.0.0.1:{unused_tcp_port}",
        }
        call = make_call(given, credentials=urls)
        if not isinstance(tool, SelfTested):
            assert await outcome(tool, call) == "began"  # and its library is loaded
        with no_descriptors():
            assert (await outcome(tool, call)).startswith(f"cannot {what}: ")
            if isinstance(tool, SelfTested):
                with pytest.raises(WorkerUnfit):
                    await tool.self_test()
        if isinstance(tool, SelfTested):
            await tool.self_test()
        assert await outcome(tool, call) == "began"
        await tool.close()


def test_a_process_for_jobs_waits_while_others_of_its_user_have_too_many_descriptors_on_their_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []
    really_send = socket.send_fds

    def send(*arguments: Any) -> int:
        if len(waits) < 3:
            raise OSError(errno.ETOOMANYREFS, os.strerror(errno.ETOOMANYREFS))
        return really_send(*arguments)

    monkeypatch.setattr(socket, "send_fds", send)
    monkeypatch.setattr(time, "sleep", waits.append)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send_next(theirs, 3, theirs)
        message, descriptors, *_ = socket.recv_fds(ours, 4, 1)
    os.close(descriptors[0])
    assert (message, len(waits)) == (b"\x00\x00\x00\x03", 3)
