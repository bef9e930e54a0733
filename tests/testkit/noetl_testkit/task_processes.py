"""Finds the processes of tasks, which know themselves by the numbers of a namespace of their own."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import psutil


def task_process(number: int) -> psutil.Process:
    """Returns the process started from here that knows itself by ``number``: of several the youngest, since tests
    before may have left others running.
    """
    if sys.platform != "linux":
        return psutil.Process(number)
    processes = [one for one in psutil.Process().children(recursive=True) if own_number(one.pid) == number]
    return max(processes, key=lambda one: one.create_time())


WHO: str = """
import os

def who():
    namespace = os.stat("/proc/self/ns/pid").st_ino if os.path.exists("/proc/self/ns/pid") else 0
    return f"{namespace} {os.getpid()}"
"""
"""Code with a function that names the process that runs it: no other one on this machine has that name."""


def process_named(name: str) -> psutil.Process | None:
    """Returns the process with a name that ``who()`` has given; ``None`` if it has ended."""
    namespace, number = map(int, name.split())
    with suppress(psutil.NoSuchProcess):
        if not namespace:
            return psutil.Process(number)
        for process_id in psutil.pids():
            if own_number(process_id) == number and _namespace(process_id) == namespace:
                return psutil.Process(process_id)
    return None


def _namespace(process_id: int) -> int:
    with suppress(OSError):
        return Path(f"/proc/{process_id}/ns/pid").stat().st_ino
    return 0


def own_number(process_id: int) -> int | None:
    """Returns the number by which a process knows itself; ``None`` if it has ended."""
    try:
        lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return next((int(line.split()[-1]) for line in lines if line.startswith("NSpid:")), process_id)


def zygotes() -> set[psutil.Process]:
    """Returns the processes that fork the children of tools here."""
    return {process for process in psutil.Process().children() if _is_zygote(process)}


def _is_zygote(process: psutil.Process) -> bool:
    with suppress(psutil.Error):  # it has ended
        return "children.zygote" in " ".join(process.cmdline())
    return False
