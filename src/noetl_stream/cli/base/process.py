"""How commands run: settings, the event loop, and background processes."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import secrets
import signal
import sys
import time
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from noetl_stream.model.ids import uuid7
from noetl_stream.settings.environment import Settings

Value = TypeVar("Value")


def settings_for(home: Path | None) -> Settings:
    """The environment's settings, with the home of ``--home`` if it is given: then the embedded stack is meant."""
    settings = Settings.from_environment()
    if home is None:
        return settings
    return replace(settings, home_folder=home.expanduser().absolute(), nats_url=None, postgres_dsn=None)


def principal() -> str:
    """The name of whoever calls, for the events; ``""`` target the system has none for a bare user id."""
    with contextlib.suppress(KeyError, OSError):
        return getpass.getuser()
    return ""


def new_id() -> str:
    """An id no other has, in the order of time."""
    return uuid7(time.time_ns() // 1_000_000, secrets.token_bytes(10))


def run_async(work: Coroutine[Any, Any, Value]) -> Value:
    """Runs ``work`` on uvloop target there is one; SIGTERM cancels it as Ctrl-C does."""
    if sys.platform == "win32":
        return asyncio.run(work)
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return runner.run(_cancelled_by_sigterm(work))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None


async def _cancelled_by_sigterm(work: Coroutine[Any, Any, Value]) -> Value:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await work
