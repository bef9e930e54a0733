"""Starts confined child processes through a zygote, which is started on demand, and replaced when it fails."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import json
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Final

import msgspec
from msgspec.structs import replace

from noetl_stream.concurrency import start_among
from noetl_stream.settings.children import ChildSettings
from noetl_stream.tools.cgroups import Cgroup, Cgroups, own_cgroups
from noetl_stream.tools.child_process import kill_group, kill_trees
from noetl_stream.tools.children.confinement import CHILD_USERS, stage_of
from noetl_stream.tools.children.frames import take_frames
from noetl_stream.tools.children.messages import (
    ANSWER_S,
    BIND_NOW,
    PULSES,
    SILENT_S,
    START_S,
    ZYGOTE_DIED,
    Ended,
    Event,
    ExternalProgram,
    Ping,
    Pong,
    ReleaseChild,
    Setup,
    StartChild,
    Started,
    Vacated,
    encode_message,
)
from noetl_stream.tools.children.mounts import remove_folder
from noetl_stream.tools.children.namespaces import PROXY_PORT
from noetl_stream.tools.children.own_limits import LimitsLowered, OwnLimits
from noetl_stream.tools.children.process_tree import ChildrenList
from noetl_stream.tools.contract import WorkerUnfit
from noetl_stream.tools.proxy.egress_proxy import ChildProxy, EgressProxy

log = logging.getLogger(__name__)

ENVIRONMENT: Final = {"PATH": os.defpath, "LANG": "C.UTF-8"}
"""The environment of every child, with ``HOME`` and ``TMPDIR``, its own folder."""
_PROXY_URL: Final = f"http://127.0.0.1:{PROXY_PORT}"
_PROXY_VARIABLES: Final = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), _PROXY_URL) | {
    "NO_PROXY": "localhost,127.0.0.1,::1"  # the child itself
}
PROXY_ENVIRONMENT: Final = _PROXY_VARIABLES | {name.lower(): value for name, value in _PROXY_VARIABLES.items()}
"""Additional variables of children with a proxy; programs differ in the names that they read."""
_READ_BYTES: Final = 64 * 1024
_EMPTYING_S: Final = (0.01, 0.03, 0.1, 0.3, 1.0)
_TRIES: Final = 2
"""The number of successive zygotes that get an order that none has begun."""

_PROGRAM: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[3]);"
    "from noetl_stream.tools.children.zygote import main; main(int(sys.argv[1]), sys.argv[2])"
)


class _Slots:
    """Numbers of children, from which their users follow (:func:`~.confinement.user_of`), for the whole process.

    The first is random: workers that share a machine, also from different containers, seldom give their children the
    same users.
    """

    def __init__(self) -> None:
        self._next = count(secrets.randbelow(CHILD_USERS))
        self._vacated: list[int] = []

    def take(self) -> int:
        return heapq.heappop(self._vacated) if self._vacated else next(self._next)

    def give_back(self, slot: int) -> None:
        """Returns a slot once no process with its user is left."""
        heapq.heappush(self._vacated, slot)


_slots: Final = _Slots()


class Launcher:
    """Starts the child processes of one tool.

    Args:
        environment: Variables of all children, visible to playbook code. Default: :data:`ENVIRONMENT`.
        server: The module that children without a program run (see :class:`Setup`). The zygote has imported it.
        preload: Further modules that the zygote imports first, so that children have them; they must start no thread.
        proxy: The server of the children's proxies. Without it, ``proxy`` for a network gives them none.
        silent_s: The silence of this process after which children are killed: if it is frozen, their commands belong to
            other workers by then.
        answer_s: The silence of a zygote that must answer after which it is replaced.
        homes: The folder of the children's folders. Default: the folder for temporary files.
    """

    def __init__(
        self,
        settings: ChildSettings,
        environment: Mapping[str, str] = ENVIRONMENT,
        *,
        server: str | None = None,
        preload: Sequence[str] = (),
        proxy: EgressProxy | None = None,
        silent_s: float = SILENT_S,
        answer_s: float = ANSWER_S,
        homes: str | None = None,
    ) -> None:
        self._homes = homes
        self._limits = OwnLimits()
        self._answer_s = answer_s
        if settings.network == "proxy" and proxy is None:
            settings = replace(settings, network="none")
        self._proxy = proxy if settings.network == "proxy" else None
        self._setup = Setup(settings, server, tuple(preload), silent_s)
        self._environment = environment if self._proxy is None else {**PROXY_ENVIRONMENT, **environment}
        self._zygote: _Zygote | None = None
        self._ending: set[asyncio.Task[int]] = set()

    def check(self) -> None:
        """Restores limits of this process that others have changed.

        Raises:
            WorkerUnfit: The limits cannot be restored.
        """
        try:
            self._limits.restore()
        except LimitsLowered as lowered:
            raise WorkerUnfit(f"somebody has lowered the limits of this worker: {lowered}", for_good=True) from None

    async def start(
        self, descriptors: Sequence[int], program: ExternalProgram | None = None, *, folders: Mapping[str, str] = {}
    ) -> ChildProcess:
        """Starts a confined child in its own session and folder. See :class:`StartChild` for the arguments.

        Raises:
            WorkerUnfit: The child could not be started.
        """
        self.check()
        for _ in range(_TRIES):
            try:
                return await self._start_child(descriptors, program, folders)
            except ZygoteEnded as ended:
                log.warning("%s; another one is started", ended)
            except OSError as error:
                raise WorkerUnfit(f"cannot start a child process: {error}") from None
        raise WorkerUnfit(f"the process that starts children ended or stopped answering {_TRIES} times")

    async def _start_child(
        self, descriptors: Sequence[int], program: ExternalProgram | None, folders: Mapping[str, str]
    ) -> ChildProcess:
        zygote = self._living_zygote()
        proxy = self._proxy.open() if self._proxy is not None else None
        child = zygote.start(descriptors, program, proxy, folders)
        try:
            await asyncio.shield(child.started)
        except asyncio.CancelledError:
            child.started.add_done_callback(lambda started: self._abandon(started, child))
            raise
        return child

    def _living_zygote(self) -> _Zygote:
        if self._zygote is None or self._zygote.has_ended:
            setup = replace(self._setup, cgroups=own_cgroups().folders)
            self._zygote = _Zygote(setup, self._environment, self._answer_s, self._homes)
        return self._zygote

    async def close(self) -> None:
        """Ends the zygote, and with it every child. No child may be started at the same time."""
        while self._ending:
            await asyncio.wait(self._ending)
        if self._zygote is not None:
            await self._zygote.close()

    def _abandon(self, started: asyncio.Future[None], child: ChildProcess) -> None:
        if started.exception() is None:
            child.kill()
            start_among(self._ending, child.end())


class ZygoteEnded(Exception):
    """The zygote has ended, or was killed since it did not answer, before a child was started."""


class ChildProcess:
    """A child process. Its process id stays taken until :meth:`end`.

    Attributes:
        started: Resolves when the child has started, or to ``OSError`` or :class:`ZygoteEnded`.
        exit_code: Negative for a signal, as in :mod:`subprocess`.
        group: Its control group.
    """

    def __init__(
        self, zygote: _Zygote, number: int, slot: int, home: str, group: Cgroup, proxy: ChildProxy | None
    ) -> None:
        loop = asyncio.get_running_loop()
        self.started: asyncio.Future[None] = loop.create_future()
        self.exit_code: asyncio.Future[int] = loop.create_future()
        self.process_id = 0
        self.number = number
        self.slot = slot
        self.home = home
        self.group = group
        self._killed = 0
        self._proxy = proxy
        self._zygote = zygote
        self._children: ChildrenList | None = None

    def kill(self, *, alone: bool = False) -> None:
        """Kills the child and everything it started. ``alone``: it is known to have started no living process."""
        if not self._zygote.holds(self):
            return
        if not self.exit_code.done():
            if not alone and self._own_children():
                kill_trees([self.process_id])
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process_id, signal.SIGKILL)  # it may not lead a group yet
            self._zygote.expect_answer(Ping())
        kill_group(self.process_id)

    async def end(self) -> int:
        """Waits until the child has ended, releases its process id and removes its folder."""
        exit_code = await asyncio.shield(self.exit_code)
        if self._children is not None:
            self._children.close()
        self.close_proxy()
        self._zygote.release(self)
        with contextlib.suppress(OSError):  # descriptors are used up; the folder is removed with those of the zygote
            await asyncio.to_thread(remove_folder, self.home)
        return exit_code

    def lacked_memory(self) -> bool:
        """Returns whether processes of the child were killed since the last call because they used all their memory."""
        before, self._killed = self._killed, self.group.killed_for_memory()
        return self._killed > before

    def close_proxy(self) -> None:
        """Ends the connections that the child has by its proxy."""
        if self._proxy is not None:
            self._proxy.close()

    def _own_children(self) -> list[int]:
        if self._children is None:
            self._children = ChildrenList(self.process_id)
        return self._children.read()


class _Zygote:
    """The launcher's connection to one zygote."""

    def __init__(self, setup: Setup, environment: Mapping[str, str], answer_s: float, homes: str | None) -> None:
        with contextlib.ExitStack() as failing:
            felt, pulse = os.pipe()
            failing.callback(_close, (felt, pulse))
            self._homes = tempfile.mkdtemp(prefix="noetl-children-", dir=homes)
            failing.callback(os.rmdir, self._homes)
            os.chmod(self._homes, 0o711)  # noqa: PTH101, S103  # so that each child reaches its own, by name
            self._channel, theirs = socket.socketpair()
            failing.callback(self._channel.close)
            with theirs:
                self._process = _start_zygote(theirs, self._homes, environment, setup.settings.python_path)
            failing.pop_all()
        loop = asyncio.get_running_loop()
        self._cgroups = Cgroups(setup.cgroups)
        self.has_ended = False
        self._received = bytearray()
        self._unsent: deque[tuple[bytes, Sequence[int]]] = deque()
        self._answer_s = answer_s
        self._owed = 1
        """The number of answers that the zygote owes: the first is that it works."""
        self._silence = loop.call_later(START_S, self._process.kill)
        self._children: dict[int, ChildProcess] = {}
        self._numbers = count(1)
        self._taken_slots: set[int] = set()
        self._cleaning: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._channel, self._read)
        self._send(encode_message(setup), [felt])
        self._over = threading.Event()
        # In a thread of its own, so that code that blocks the loop kills no children.
        beat = (pulse, setup.silent_s / PULSES, self._over)
        threading.Thread(target=_beat, args=beat, name="pulse", daemon=True).start()

    def start(
        self,
        descriptors: Sequence[int],
        program: ExternalProgram | None,
        proxy: ChildProxy | None,
        folders: Mapping[str, str],
    ) -> ChildProcess:
        """Orders the zygote to start a child. The descriptors may be closed afterwards."""
        try:
            passed = _copies(descriptors if proxy is None else [*descriptors, proxy.child_end.fileno()])
        except OSError:
            if proxy is not None:
                proxy.close()
            raise
        if proxy is not None:
            proxy.child_end.close()
        number = next(self._numbers)
        slot = _slots.take()
        self._taken_slots.add(slot)
        home, group = os.path.join(self._homes, str(number)), self._cgroups.of_child(self._process.pid, number)  # noqa: PTH118
        child = ChildProcess(self, number, slot, home, group, proxy)
        self._children[number] = child
        self.expect_answer(StartChild(number, slot, child.home, program, dict(folders)), passed)
        return child

    def expect_answer(self, order: StartChild | Ping, descriptors: Sequence[int] = ()) -> None:
        """Sends the zygote an order. If no sign of life follows in time, it is killed, and then replaced.

        The descriptors are closed once they are sent.
        """
        self._send(encode_message(order), descriptors)
        if not self._owed and not self.has_ended:
            self._watch()
        self._owed += 1

    def _watch(self) -> None:
        self._silence = asyncio.get_running_loop().call_later(self._answer_s, self._process.kill)

    def holds(self, child: ChildProcess) -> bool:
        """Returns whether the process id of the child is still its own."""
        return child.number in self._children and child.process_id > 0

    def release(self, child: ChildProcess) -> None:
        """Releases the number and process id of an ended child, and its slot once none of its processes is left."""
        if self._children.pop(child.number, None) is not None:
            self._send(encode_message(ReleaseChild(child.number, child.slot)))

    async def close(self) -> None:
        """Ends the zygote and waits until it has ended."""
        if not self.has_ended:
            self.expect_answer(Ping())
            self._channel.shutdown(socket.SHUT_WR)
        await asyncio.shield(self._cleaning)

    def _send(self, message: bytes, descriptors: Sequence[int] = ()) -> None:
        self._unsent.append((message, descriptors))
        if len(self._unsent) == 1:
            self._write()

    def _write(self) -> None:
        """Writes as much as the socket takes now, and the rest when it takes more."""
        loop = asyncio.get_running_loop()
        while self._unsent:
            message, descriptors = self._unsent[0]
            try:
                sent = self._send_once(message, descriptors)
            except BlockingIOError:
                loop.add_writer(self._channel, self._write)
                return
            _close(descriptors)
            self._unsent[0] = (message[sent:], ())
            if sent == len(message):
                self._unsent.popleft()
        loop.remove_writer(self._channel)

    def _send_once(self, message: bytes, descriptors: Sequence[int]) -> int:
        passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))] if descriptors else []
        try:
            return self._channel.sendmsg([message], passed, socket.MSG_DONTWAIT)
        except (BrokenPipeError, ConnectionResetError):
            return len(message)  # it has ended, as _read will find out

    def _read(self) -> None:
        try:
            data = self._channel.recv(_READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._received += data
        for frame in take_frames(self._received):
            self._handle(_events.decode(frame))
        self._silence.cancel()
        if self._owed and data:
            self._watch()
        if not data:
            self._on_end()

    def _handle(self, event: Event) -> None:
        if isinstance(event, Pong | Started):
            self._owed -= 1
        if isinstance(event, Pong):
            return
        if isinstance(event, Vacated):
            self._give_back(event.slots)
            return
        child = self._children[event.number]
        if isinstance(event, Ended):
            child.exit_code.set_result(event.exit_code)
        elif event.error:
            del self._children[event.number]
            self._give_back([child.slot])
            child.close_proxy()
            place = [event.folder] if event.folder else []
            child.started.set_exception(OSError(event.error, os.strerror(event.error), *place))
        else:
            child.process_id = event.process_id
            child.started.set_result(None)

    def _on_end(self) -> None:
        self.has_ended = True
        self._over.set()
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._channel)
        loop.remove_writer(self._channel)
        for _, descriptors in self._unsent:
            _close(descriptors)
        self._channel.close()
        children, self._children = self._children, {}
        for child in children.values():
            if not child.process_id:
                child.close_proxy()
                child.started.set_exception(ZygoteEnded("the process that starts children ended or stopped answering"))
            elif not child.exit_code.done():
                kill_group(child.process_id)
                child.exit_code.set_result(ZYGOTE_DIED)
        cleaning = loop.run_in_executor(None, self._clean, [child.group for child in children.values()])
        cleaning.add_done_callback(self._on_cleaned)

    def _on_cleaned(self, cleaning: asyncio.Future[int]) -> None:
        if cleaning.result() == 0:  # else something may be left
            self._give_back(list(self._taken_slots))
        self._cleaning.set_result(None)

    def _give_back(self, slots: Iterable[int]) -> None:
        for slot in slots:
            self._taken_slots.remove(slot)
            _slots.give_back(slot)

    def _clean(self, groups: Sequence[Cgroup]) -> int:
        """Waits until the zygote has ended, and removes its leftovers; returns its exit code."""
        exit_code = self._process.wait()
        for pause_s in _EMPTYING_S:
            groups = [group for group in groups if not group.remove()]
            if not groups:
                break
            time.sleep(pause_s)  # its children end with it, but not at once
        with contextlib.suppress(OSError):
            os.rmdir(stage_of(self._homes))  # noqa: PTH106  # only a zygote, which has it for itself, sees what is there
        remove_folder(self._homes)
        return exit_code


_events: Final = msgspec.msgpack.Decoder(Event)


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _copies(descriptors: Sequence[int]) -> Sequence[int]:
    """Duplicates all of the descriptors, or none.

    Raises:
        OSError: The worker has no more of them.
    """
    copies: list[int] = []
    try:
        copies.extend(map(os.dup, descriptors))
    except OSError:
        _close(copies)
        raise
    return copies


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


def _start_zygote(
    channel: socket.socket, homes: str, environment: Mapping[str, str], python_path: Sequence[str]
) -> subprocess.Popen[bytes]:
    # It has the worker's import path, without the current folder that `python -m` puts first: children may not read
    # that folder, unless something is installed from it. -I ignores the rest of the environment (PYTHONSTARTUP, the
    # user's site folder). Authors' folders come last, so that the zygote, which is not confined, never imports them in
    # place of its own modules.
    first = [entry for entry in sys.path[:1] if entry != os.getcwd()]  # noqa: PTH109
    path = json.dumps([entry for entry in (*first, *sys.path[1:], *python_path) if entry])
    return subprocess.Popen(
        [sys.executable, "-I", "-c", _PROGRAM, str(channel.fileno()), homes, path],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=(channel.fileno(),),
        env={**environment, BIND_NOW: "1"},
        start_new_session=True,
    )
