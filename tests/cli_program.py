"""The program as a person starts it: another process, its output, its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

NOETL = (sys.executable, "-m", "noetl_stream")
PATIENCE_S = 60.0

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\n"

ONE_STEP = (
    HEAD
    + """\
metadata: {name: one, path: tests/one}
workload: {who: world, deep: {left: 1, right: 2}}
workflow:
  - step: greet
    tool:
      kind: python
      args: {who: "{{ workload.who }}", deep: "{{ workload.deep }}"}
      code: |
        result = {"hello": who, "deep": deep}
"""
)

FAILING = (
    HEAD
    + """\
metadata: {name: failing, path: tests/failing}
workflow:
  - step: fail
    tool: {kind: python, code: "raise ValueError('it is broken')"}
"""
)

WAITING = (
    HEAD
    + """\
metadata: {name: waiting, path: tests/waiting}
workload: {gate: ""}
workflow:
  - step: wait
    tool:
      kind: python
      spec: {timeout: 60}
      args: {gate: "{{ workload.gate }}"}
      code: |
        import socket
        with socket.create_connection(("127.0.0.1", int(gate))) as line:
            result = line.recv(100).decode()
"""
)
"""Its step says that it runs by connecting to the port ``gate``, and ends when it is told something there."""


def environment(**settings: str) -> dict[str, str]:
    """This environment without a developer's own settings, and with these."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("NOETL_")}
    return own | settings


def noetl(
    *arguments: object, timeout_s: float = PATIENCE_S, cwd: Path | None = None, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Runs one command to its end; ``settings`` are environment variables."""
    return subprocess.run(
        [*NOETL, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        cwd=cwd,
        env=environment(**settings),
        check=False,
    )


def start(*arguments: object, **settings: str) -> subprocess.Popen[str]:
    """Starts one command; the test ends it."""
    return subprocess.Popen(
        [*NOETL, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**settings),
    )


def only_json(found: subprocess.CompletedProcess[str]) -> Any:
    """The one JSON document that is all of stdout."""
    assert found.stdout.endswith("\n")
    assert found.stdout.count("\n") == 1, found.stdout
    return json.loads(found.stdout)


def one_clear_line(found: subprocess.CompletedProcess[str]) -> str:
    """What a mistake is answered with: one line on stderr, a hint below it at most, and nothing on stdout."""
    assert found.stdout == ""
    assert "Traceback" not in found.stderr
    first, *hints = found.stderr.splitlines()
    assert first.startswith("noetl-stream: "), found.stderr
    assert len(hints) <= 1, found.stderr
    assert all(hint.startswith("  ") for hint in hints)
    return found.stderr


def processes_of(home: Path) -> list[psutil.Process]:
    """Living processes that have the home on their command line."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        if process.info["status"] != psutil.STATUS_ZOMBIE and any(
            word == str(home) or word.startswith(f"{home}/") for word in words
        ):
            found.append(process)
    return found


def all_gone(processes: list[psutil.Process], timeout_s: float = PATIENCE_S) -> bool:
    """Whether all of them end in time; what does not is killed, so that a failed test leaves nothing."""
    _, left = psutil.wait_procs(processes, timeout=timeout_s)
    for process in left:
        process.kill()
    return not left
