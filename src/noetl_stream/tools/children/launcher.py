"""Starts confined child processes through a zygote, which is itself started on demand and replaced when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Final

import msgspec

from noetl_stream.settings.children import ChildSettings
from noetl_stream.tools.child_process import kill_group, kill_trees
from noetl_stream.tools.children.confinement import CHILD_USERS
from noetl_stream.tools.children.messages import (
    HEADER_BYTES,
    PULSES,
    SILENT_S,
    ZYGOTE_DIED,
    Ended,
    Event,
    ExternalProgram,
    ReleaseChild,
    Setup,
    StartChild,
    Vacated,
    framed,
)
from noetl_stream.tools.children.process_tree import ChildrenList

ENVIRONMENT: Final = {"PATH": os.defpath, "LANG": "C.UTF-8"}
"""The environment of every child, with ``HOME`` and ``TMPDIR``, its own folder."""
_READ_BYTES: Final = 64 * 1024

_PROGRAM: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[3]);"
    "from noetl_stream.tools.children.zygote import main; main(int(sys.argv[1]), sys.argv[2])"
)


class _Slots:
    """Numbers of children, from which their users follow (:func:`~.confinement.user_of`), for all of this process.

    The first is random: workers that share a machine, also from different containers, seldom give their children the
    same users.
    """

    def __init__(self) -> None:
        self._next = count(secrets.randbelow(CHILD_USERS))
        self._vacated: list[int] = []

    def take(self) -> int:
        return heapq.heappop(self._vacated) if self._vacated else next(self._next)

    def give_back(self, slot: int) -> None:
        """Call it when no process is left that may have the slot's user."""
        heapq.heappush(self._vacated, slot)


_slots: Final = _Slots()


class Launcher:
    """Starts children of one tool.

    Args:
        environment: Variables of all children, visible to playbook code. Default: :data:`ENVIRONMENT`.
        server: The module that children without a program run (see :class:`Setup`). The zygote has imported it.
        preload: Further modules that the zygote imports first, so that children have them; they must start no thread.
        silent_s: After this long without a sign of life from this process, children are killed: if it is frozen, their
            commands belong to other workers by then.
    """

    def __init__(
        self,
        settings: ChildSettings,
        environment: Mapping[str, str] = ENVIRONMENT,
        *,
        server: str | None = None,
        preload: Sequence[str] = (),
        silent_s: float = SILENT_S,
    ) -> None:
        self._setup = Setup(settings, server, tuple(preload), silent_s)
        self._environment = environment
        self._zygote: _Zygote | None = None
        self._ending: set[asyncio.Task[Any]] = set()

    async def start(self, descriptors: Sequence[int], program: ExternalProgram | None = None) -> ChildProcess:
        """Starts a child, confined, in its own session and folder. See :class:`StartChild` for the descriptors.

        Raises:
            OSError: It could not be started.
        """
        if self._zygote is None or self._zygote.has_ended:
            self._zygote = _Zygote(self._setup, self._environment)
        child = self._zygote.start(descriptors, program)
        try:
            await asyncio.shield(child.started)
        except asyncio.CancelledError:
            child.started.add_done_callback(lambda started: self._abandon(started, child))
            raise
        return child

    async def close(self) -> None:
        """Ends the zygote, and with it every child. Nothing may be started at the same time."""
        while self._ending:
            await asyncio.wait(self._ending)
        if self._zygote is not None:
            await self._zygote.close()

    def _abandon(self, started: asyncio.Future[None], child: ChildProcess) -> None:
        if started.exception() is None:
            child.kill()
            task = asyncio.get_running_loop().create_task(child.end())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)


class ChildProcess:
    """A child. Its process id stays taken until :meth:`end`.

    Attributes:
        started: Raises ``OSError`` if it could not be.
        exit_code: Negative for a signal, as in :mod:`subprocess`.
    """

    def __init__(self, zygote: _Zygote, number: int, slot: int, home: str) -> None:
        loop = asyncio.get_running_loop()
        self.started: asyncio.Future[None] = loop.create_future()
        self.exit_code: asyncio.Future[int] = loop.create_future()
        self.process_id = 0
        self.number = number
        self.slot = slot
        self.home = home
        self._zygote = zygote
        self._children: ChildrenList | None = None

    def has_left_processes(self) -> bool:
        """Whether processes that it started live on: as its children, or as orphans of whichever child."""
        return bool(self._own_children()) or self._zygote.has_strangers()

    def kill(self) -> None:
        """Kills it and everything it started."""
        if not self._zygote.holds(self):
            return
        if not self.exit_code.done():
            if self._own_children():
                kill_trees([self.process_id])
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process_id, signal.SIGKILL)  # it may not lead a group yet
        kill_group(self.process_id)

    async def end(self) -> int:
        """Waits until it has ended, releases its process id and removes its folder."""
        exit_code = await asyncio.shield(self.exit_code)
        if self._children is not None:
            self._children.close()
        self._zygote.release(self)
        await asyncio.to_thread(shutil.rmtree, self.home, ignore_errors=True)
        return exit_code

    def _own_children(self) -> list[int]:
        if self._children is None:
            self._children = ChildrenList(self.process_id)
        return self._children.read()


class _Zygote:
    """The launcher's end of one zygote."""

    def __init__(self, setup: Setup, environment: Mapping[str, str]) -> None:
        self._homes = tempfile.mkdtemp(prefix="noetl-children-")
        os.chmod(self._homes, 0o711)  # noqa: PTH101, S103  # so that each child reaches its own, by name
        self._channel, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = _start_zygote(theirs, self._homes, environment)
        except BaseException:
            self._channel.close()
            os.rmdir(self._homes)  # noqa: PTH106
            raise
        loop = asyncio.get_running_loop()
        self.has_ended = False
        self._list = ChildrenList(self._process.pid)
        self._received = bytearray()
        self._children: dict[int, ChildProcess] = {}
        self._released: set[int] = set()
        self._numbers = count(1)
        self._taken_slots: set[int] = set()
        self._cleaning: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._channel, self._read)
        felt, pulse = os.pipe()
        self._send(framed(setup), [felt])
        os.close(felt)
        self._over = threading.Event()
        # A thread of its own: code that blocks the loop kills no children.
        beat = (pulse, setup.silent_s / PULSES, self._over)
        threading.Thread(target=_beat, args=beat, name="pulse", daemon=True).start()

    def start(self, descriptors: Sequence[int], program: ExternalProgram | None) -> ChildProcess:
        """Orders a child. The descriptors may be closed afterwards."""
        number = next(self._numbers)
        slot = _slots.take()
        self._taken_slots.add(slot)
        child = ChildProcess(self, number, slot, os.path.join(self._homes, str(number)))  # noqa: PTH118
        self._children[number] = child
        self._send(framed(StartChild(number, slot, child.home, program)), descriptors)
        return child

    def holds(self, child: ChildProcess) -> bool:
        """Whether the process id of the child is still its own."""
        return child.number in self._children and child.process_id > 0

    def has_strangers(self) -> bool:
        """Whether the zygote has children that nobody ordered."""
        if not all(child.process_id for child in self._children.values()):
            return False  # one is being started; the zygote looks itself when a child ends
        found = set(self._list.read())
        self._released &= found
        return not found <= {child.process_id for child in self._children.values()} | self._released

    def release(self, child: ChildProcess) -> None:
        """Gives the number and process id of an ended child back; its slot, when nothing that it started is left."""
        if self._children.pop(child.number, None) is not None:
            self._released.add(child.process_id)
            self._send(framed(ReleaseChild(child.number, child.slot)))

    async def close(self) -> None:
        """Ends it and waits until it has."""
        if not self.has_ended:
            self._channel.shutdown(socket.SHUT_WR)
        await asyncio.shield(self._cleaning)

    def _send(self, message: bytes, descriptors: Sequence[int] = ()) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has ended, as _read will find out
            sent = socket.send_fds(self._channel, [message], descriptors) if descriptors else 0
            self._channel.sendall(message[sent:])

    def _read(self) -> None:
        try:
            data = self._channel.recv(_READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._received += data
        while len(self._received) >= HEADER_BYTES:
            end = HEADER_BYTES + int.from_bytes(self._received[:HEADER_BYTES], "big")
            if len(self._received) < end:
                break
            event = _events.decode(bytes(self._received[HEADER_BYTES:end]))
            del self._received[:end]
            self._handle(event)
        if not data:
            self._on_end()

    def _handle(self, event: Event) -> None:
        if isinstance(event, Vacated):
            self._give_back(event.slots)
            return
        child = self._children[event.number]
        if isinstance(event, Ended):
            child.exit_code.set_result(event.exit_code)
        elif event.error:
            del self._children[event.number]
            self._give_back([child.slot])
            child.started.set_exception(OSError(event.error, os.strerror(event.error)))
        else:
            child.process_id = event.process_id
            child.started.set_result(None)

    def _on_end(self) -> None:
        self.has_ended = True
        self._over.set()
        self._list.close()
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._channel)
        self._channel.close()
        children, self._children = self._children, {}
        for child in children.values():
            if not child.process_id:
                child.started.set_exception(OSError(0, "the process that starts children has ended"))
            elif not child.exit_code.done():
                kill_group(child.process_id)
                child.exit_code.set_result(ZYGOTE_DIED)
        cleaning = loop.run_in_executor(None, self._clean)
        cleaning.add_done_callback(self._on_cleaned)

    def _on_cleaned(self, cleaning: asyncio.Future[int]) -> None:
        if cleaning.result() == 0:  # else something may be left
            self._give_back(list(self._taken_slots))
        self._cleaning.set_result(None)

    def _give_back(self, slots: Iterable[int]) -> None:
        for slot in slots:
            self._taken_slots.remove(slot)
            _slots.give_back(slot)

    def _clean(self) -> int:
        """Waits until the zygote has ended; returns its exit code."""
        exit_code = self._process.wait()
        shutil.rmtree(self._homes, ignore_errors=True)
        return exit_code


_events: Final = msgspec.msgpack.Decoder(Event)


def _beat(pulse: int, every_s: float, over: threading.Event) -> None:
    os.set_blocking(pulse, False)
    try:
        while not over.wait(every_s):
            with contextlib.suppress(BlockingIOError):
                os.write(pulse, b".")
    except BrokenPipeError:
        pass  # the zygote has ended
    finally:
        os.close(pulse)


def _start_zygote(channel: socket.socket, homes: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    # It has the worker's import path, but without the current folder that `python -m` puts first: children may not read
    # that, unless something is installed from it. -I ignores the rest of the environment (PYTHONSTARTUP, the user's
    # site folder).
    first = [entry for entry in sys.path[:1] if entry != os.getcwd()]  # noqa: PTH109
    path = json.dumps([entry for entry in (*first, *sys.path[1:]) if entry])
    return subprocess.Popen(
        [sys.executable, "-I", "-c", _PROGRAM, str(channel.fileno()), homes, path],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=(channel.fileno(),),
        env=environment,
        start_new_session=True,
    )
