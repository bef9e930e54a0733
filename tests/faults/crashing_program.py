"""The program, killed at a crash point: ``python crashing_program.py ARMED ROLE …``.

The file ``ARMED`` names the point. The first process that comes to it removes the file and kills itself with SIGKILL.
Without the file it is the program.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from crash_points import CALLS, Call

from noetl_stream.cli.main import main

SENT_AFTER_S: Final = 0.05
"""When what a call sends without waiting has left the process."""


class Crash:
    """Kills this process at the point that the file names."""

    def __init__(self, armed: Path) -> None:
        self._armed = armed

    def at(self, point: str, kill: Callable[[], object]) -> None:
        try:
            if self._armed.read_text() != point:
                return
            self._armed.unlink()
        except FileNotFoundError:
            return
        kill()

    def wrap(self, call: Call) -> None:
        """Lets the method pass its two points."""
        setattr(call.adapter, call.method, self._passing(getattr(call.adapter, call.method), call.name))

    def _passing(self, real: Callable[..., Any], name: str) -> Callable[..., Any]:
        async def ended(work: Any) -> Any:
            value = await work
            self.at(f"{name}.after", kill)
            return value

        def passing(*arguments: Any, **named: Any) -> Any:
            self.at(f"{name}.before", kill)
            value = real(*arguments, **named)
            if inspect.isawaitable(value):
                return ended(value)
            self.at(f"{name}.after", kill_soon)
            return value

        return passing


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_soon() -> None:
    asyncio.get_running_loop().call_later(SENT_AFTER_S, kill)


if __name__ == "__main__":
    armed, role, *options = sys.argv[1:]
    crash = Crash(Path(armed))
    for one in CALLS:
        if one.role == role:
            crash.wrap(one)
    main([role, *options])
