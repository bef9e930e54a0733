"""How commands run: their settings, who calls, and the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import getpass
import secrets
import signal
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from noetl_stream.concurrency import end_tasks
from noetl_stream.model.ids import uuid7
from noetl_stream.settings.environment import Settings

Value = TypeVar("Value")


def settings_for(home: Path | None) -> Settings:
    """The environment's settings; with a ``home``, those of the embedded stack in it."""
    settings = Settings.from_environment()
    if home is None:
        return settings
    return replace(settings, home_folder=home.expanduser().absolute(), nats_url=None, postgres_dsn=None)


def principal() -> str:
    """The name of the calling user, for events; ``""`` where the system has no name for the user id."""
    with contextlib.suppress(KeyError, OSError):
        return getpass.getuser()
    return ""


def new_id() -> str:
    """A unique id; ids sort by time."""
    return uuid7(time.time_ns() // 1_000_000, secrets.token_bytes(10))


def run_async(work: Coroutine[Any, Any, Value]) -> Value:
    """Runs ``work``, on uvloop except on Windows; SIGTERM and SIGHUP cancel it as Ctrl-C does."""
    gc.freeze()  # what was imported so far stays until the end: no collection needs to look at it
    try:
        return _run(work)
    finally:
        if "duckdb" in sys.modules:  # its binding calls leaked what is frozen when the interpreter ends, and prints it
            gc.unfreeze()


def _run(work: Coroutine[Any, Any, Value]) -> Value:
    if sys.platform == "win32":
        return asyncio.run(work)
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return runner.run(_cancelled_by_signals(work))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None


async def _cancelled_by_signals(work: Coroutine[Any, Any, Value]) -> Value:
    """Awaits ``work``. A signal cancels it, repeatedly, since a library may swallow a cancellation."""
    waiting, working = asyncio.current_task(), asyncio.ensure_future(work)
    assert waiting is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored under `nohup`
            asyncio.get_running_loop().add_signal_handler(number, waiting.cancel)
    try:
        await asyncio.wait({working})
    except asyncio.CancelledError:
        await end_tasks([working])
    return await working
