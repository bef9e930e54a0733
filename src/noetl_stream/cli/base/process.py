"""The run of a command: its settings, its caller, and the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import getpass
import secrets
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec.structs import replace

from noetl_stream.concurrency import end_tasks
from noetl_stream.model.ids import uuid7
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.settings.sources.process_environment import settings_place, take_settings

if TYPE_CHECKING:  # a command imports only what it calls
    from noetl_stream.wiring.endpoint import Endpoint

Value = TypeVar("Value")

GC_THRESHOLDS: Final = (20_000, 10, 10)
"""Messages and states make many containers and hardly any cycles: looking for those as often as Python does by default
(after 700) takes 6 % of a server's CPU and 20 % of a worker's."""


def settings_for(home: Path | None, *, worker: bool = False) -> Settings:
    """The settings of the environment and of its or the home's settings file; with a ``home``, the servers are those of
    the home.

    Args:
        worker: Whether to omit settings that a worker must not have.
    """
    folder = None if home is None else home.expanduser().absolute()
    place = settings_place(folder)
    if place is not None:
        from noetl_stream.local.home import read_settings_file  # most commands have no such file

        file, of_home = place
        take_settings(read_settings_file(file), file, of_home, worker=worker)
    settings = Settings.from_environment()
    return settings if folder is None else replace(settings, home_folder=folder)


def principal() -> str:
    """The name of the calling user, for events; ``""`` if the system has no name for the user id."""
    with contextlib.suppress(KeyError, OSError):
        return getpass.getuser()
    return ""


def new_id() -> str:
    """A unique id; ids sort by time."""
    return uuid7(time.time_ns() // 1_000_000, secrets.token_bytes(10))


def run_async(work: Coroutine[Any, Any, Value]) -> Value:
    """Runs the work of a command; except on Windows, SIGTERM and SIGHUP cancel it as Ctrl-C does."""
    return _run(work, None)


def run_on_stack(
    settings: Settings,
    identity: str,
    work: Callable[[Endpoint], Coroutine[Any, Any, Value]],
    *,
    prepares: bool = False,
) -> Value:
    """Runs the work of an operator on the stack of the settings, with the endpoint of an identity.

    Args:
        prepares: Whether an embedded stack is prepared first.
    """
    from noetl_stream.wiring.stack import open_stack, prepare_once

    with open_stack(settings) as stack:

        async def prepared() -> Value:
            if prepares:
                await prepare_once(stack)
            return await work(stack.endpoint_of(identity))

        return run_async(prepared())


def run_role(work: Coroutine[Any, Any, Value]) -> Value:
    """Like :func:`run_async`, on uvloop if available: it is faster, once its import has paid off."""
    if sys.platform == "win32":
        return _run(work, None)
    try:
        import uvloop
    except ModuleNotFoundError:  # in noetl-stream-cli
        work.close()
        raise

    return _run(work, uvloop.new_event_loop)


def _run(work: Coroutine[Any, Any, Value], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None) -> Value:
    gc.freeze()  # the imported modules stay until the end: no collection needs to examine them
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        try:
            return runner.run(work if sys.platform == "win32" else _cancelled_by_signals(work))
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
