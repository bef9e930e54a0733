"""Runs code as tasks of a worker that may be less than the tests are: ``confined_worker.py MODE`` reads a JSON request.

Modes: ``root``; ``private``: root whose tasks have its own user; ``user``: another user; ``masked``: another user who
sees parts of ``/proc`` only, as in a unit of systemd; ``container``: another user whose kernel gives it no namespaces,
as the default filter of container engines.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from noetl_stream.settings.children import ChildSettings
from noetl_stream.settings.egress import egress_rules
from noetl_stream.testing.calls import tool_call
from noetl_stream.tools.children.linux import hide_process, refuse_new_privileges
from noetl_stream.tools.children.measures import confinement_of
from noetl_stream.tools.children.mounts import bind, keep_mounts_private
from noetl_stream.tools.children.namespaces import MOUNTS, enter
from noetl_stream.tools.children.seccomp import refuse_calls
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.egress import Egress
from noetl_stream.tools.proxy.egress_proxy import EgressProxy
from noetl_stream.tools.python.tool import PythonTool

NOBODY = 65_534
OTHER_USERS = ("user", "masked", "container")


def become(mode: str) -> None:
    """Becomes what a worker of this mode is."""
    if mode == "masked":
        enter(MOUNTS)
        keep_mounts_private()
        bind("/proc/sys", "/proc/sys", read_only=True)
    if mode in OTHER_USERS and os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    if mode == "container":
        refuse_new_privileges()
        refuse_calls()
    hide_process()


async def answers(settings: ChildSettings, codes: list[str], arguments: dict[str, Any], team: str | None) -> list[Any]:
    tool = PythonTool(settings, proxy=EgressProxy(Egress(egress_rules("loopback"))))
    given = {**arguments, "worker": os.getpid(), "user": os.geteuid()}
    found: list[Any] = []
    for number, code in enumerate(codes):
        call = tool_call({"code": code, "args": given}, trust_domain=team or f"team {number}")
        try:
            found.append((await tool.run(call)).result)
        except ToolFailure as failed:
            found.append(failed.error.message)
    await tool.close()
    return found


def main() -> None:
    mode = sys.argv[1]
    asked = json.load(sys.stdin)
    become(mode)
    folder = Path(asked["folder"])
    files = [folder / name for name in asked["files"]]
    for file in files:
        file.write_text("s3cret")
        file.chmod(0o600)
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in asked["settings"].items()}
    settings = ChildSettings(user="worker" if mode == "private" else "own", **given)
    found = asyncio.run(answers(settings, asked["codes"], {"folder": str(folder)}, asked["team"]))
    kept = {file.name: file.read_text() for file in files}
    print(json.dumps({"level": confinement_of(settings).level, "answers": found, "files": kept}))


if __name__ == "__main__":
    main()
