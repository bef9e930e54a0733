"""The zygote: a small process of one thread that forks the children of tools (see :mod:`launcher`).

It has imported the modules that children need, so that a child starts in a millisecond. It has none of the worker's
memory, environment or descriptors. As their parent it keeps the process id of an ended child taken until the launcher
has released it, and kills the leftovers of children.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Final, NoReturn

import msgspec

from noetl_stream.settings.children import ChildSettings
from noetl_stream.tools.cgroups import Cgroup, Cgroups
from noetl_stream.tools.children.confinement import (
    Apart,
    ChildHome,
    closed_to,
    confine,
    fork_child,
    go_apart,
    home_of,
    make_home,
    seen_at,
    stage_of,
    user_of,
)
from noetl_stream.tools.children.frames import take_frames
from noetl_stream.tools.children.levels import confinement_level, least_level, reaches, try_separation
from noetl_stream.tools.children.linux import adopt_orphans, die_with_parent, hide_process
from noetl_stream.tools.children.messages import (
    BIND_NOW,
    Ended,
    Event,
    ExternalProgram,
    Order,
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
from noetl_stream.tools.children.namespaces import send_listener
from noetl_stream.tools.children.own_limits import OwnLimits, limit_cpu_time
from noetl_stream.tools.children.process_tree import ChildrenList, kill_adopted
from noetl_stream.tools.children.view import FILES, FILES_VARIABLE, clear_stage

_CHANNEL_AND_OUTPUT: Final = 2
_STANDARD_AND_ERRORS: Final = 4
"""The number of descriptors that come with the order of a child, without a program and with one."""
_LISTENER: Final = 1
"""The number of further ones for a child with a proxy."""
_READ_BYTES: Final = 64 * 1024
_KILLING_ROUNDS: Final = 1_000
"""The rounds of killing at the zygote's end, since killed processes may have started others."""
_CONFINEMENT_FAILED: Final = 70
"""The exit code of a child that could not be confined; ``EX_SOFTWARE`` of ``sysexits.h``."""

_SIGNAL_EXIT_CODE: Final = 128
"""The number added to that of the signal that ended a program, as in shells."""


def main(channel_fd: int, homes: str) -> None:
    """Serves the launcher until it closes the channel; then removes ``homes``.

    Exits with 0 if no process of any child is left.
    """
    os.set_inheritable(channel_fd, False)
    os.environ.pop(BIND_NOW, None)  # programs of tasks need not
    hide_process()
    adopt_orphans()
    try:
        has_left_nothing = Zygote(socket.socket(fileno=channel_fd), homes).serve()
    finally:
        if clear_stage(stage_of(homes)):
            remove_folder(homes)
    sys.exit(0 if has_left_nothing else 1)


class Zygote:
    """The loop of the zygote process."""

    def __init__(self, channel: socket.socket, homes: str) -> None:
        self._limits = OwnLimits()
        self._channel = channel
        self._received = bytearray()
        self._descriptors: deque[int] = deque()
        self._process_ids: dict[int, int] = {}
        self._ended: set[int] = set()
        self._groups: dict[int, Cgroup] = {}
        self._left: list[Cgroup] = []
        self._leaving: list[int] = []
        self._children = ChildrenList(os.getpid())
        while (setup := next(self._orders(), None)) is None:
            if not self._receive():
                sys.exit()
        assert isinstance(setup, Setup)
        self._pulse = self._descriptors.popleft()
        self._silent_s = setup.silent_s
        self._settings = setup.settings
        self._cgroups = Cgroups(setup.cgroups)
        server = None if setup.server is None else import_module(setup.server)
        for module in setup.preload:
            with contextlib.suppress(Exception):  # the child that imports it will say why it cannot
                import_module(module)
        if server is not None:
            server.prepare()
        self._serve = None if server is None else server.serve
        self._apart = _separation(self._settings, homes)
        user = user_of(0, self._settings) if self._apart is None or self._apart.has_users else None
        self._has_users = user is not None
        stage = self._apart.stage if self._apart is not None else None
        self._python_has_own_user = user is not None and closed_to(user, stage) is None
        self._send(Pong())

    def serve(self) -> bool:
        """Forks, reports and reaps until the channel is closed, and kills children whose worker is frozen.

        Returns whether no process of any child is left.
        """
        woken, waker = os.pipe()
        os.set_blocking(waker, False)
        os.set_blocking(woken, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        gc.freeze()  # children share these objects
        watch = select.poll()
        watch.register(self._channel, select.POLLIN)
        watch.register(woken, select.POLLIN)
        watch.register(self._pulse, select.POLLIN)
        silent_at_s = time.monotonic() + self._silent_s
        is_open = True
        while is_open:
            for order in self._orders():
                self._obey(order)
            ready = {descriptor for descriptor, _ in watch.poll(max(0.0, silent_at_s - time.monotonic()) * 1000)}
            self._limits.restore()  # if that is impossible, this process ends and is replaced
            if self._pulse in ready:
                os.read(self._pulse, 4096)
                silent_at_s = time.monotonic() + self._silent_s
            elif time.monotonic() >= silent_at_s:
                self._kill_children()
                silent_at_s = time.monotonic() + self._silent_s
            if woken in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(woken, 4096)
                self._report_ended()
            if self._channel.fileno() in ready:
                is_open = self._receive()
        is_alone = self._kill_all()
        for group in (*self._groups.values(), *self._left):
            group.remove()
        return is_alone

    def _obey(self, order: Order) -> None:
        if isinstance(order, ReleaseChild):
            process_id = self._process_ids.pop(order.number)
            self._ended.discard(order.number)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process_id, 0)
            self._leaving.append(order.slot)
            self._left.append(self._groups.pop(order.number))
            self._clear_up()
        elif isinstance(order, Ping):
            self._send(Pong())
        elif isinstance(order, StartChild):
            number = _CHANNEL_AND_OUTPUT if order.program is None else _STANDARD_AND_ERRORS
            number += _LISTENER if self._settings.network == "proxy" else 0
            descriptors = [self._descriptors.popleft() for _ in range(number)]
            try:
                self._send(self._start(order, descriptors))
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)

    def _start(self, order: StartChild, descriptors: Sequence[int]) -> Started:
        has_user = self._has_users if order.program is not None else self._python_has_own_user
        home = home_of(order.home, order.slot, self._settings, has_user=has_user)
        group = self._cgroups.of_child(os.getpid(), order.number)
        try:
            make_home(home)
        except OSError as error:  # the disk is full
            return Started(order.number, error=error.errno or 0, folder=home.path)
        try:
            group.make(self._settings.memory_bytes, self._settings.processes)
            process_id = fork_child(self._settings, self._apart)
        except OSError as error:
            group.remove()
            os.rmdir(home.path)  # noqa: PTH106
            return Started(order.number, error=error.errno or 0)
        if process_id == 0:
            self._become_child(order, home, group, descriptors)
        self._process_ids[order.number] = process_id
        self._groups[order.number] = group
        return Started(order.number, process_id)

    def _become_child(self, order: StartChild, home: ChildHome, group: Cgroup, descriptors: Sequence[int]) -> NoReturn:
        try:
            group.join()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            adopt_orphans()
            if self._settings.network == "proxy":
                *descriptors, listener = descriptors
                send_listener(listener)
            if order.program is not None:
                self._execute(order, order.program, home, descriptors)
            channel, output = descriptors
            _keep_only(channel, standard=(0, output, output))
            if (packages := self._enter(home, order.folders).get("packages")) is not None:
                sys.path.append(packages)
            assert self._serve is not None
            self._serve(channel, self._settings.cpu_s)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(_CONFINEMENT_FAILED)

    def _execute(
        self, order: StartChild, program: ExternalProgram, home: ChildHome, descriptors: Sequence[int]
    ) -> NoReturn:
        *standard, errors = descriptors
        try:
            _keep_only(errors, standard=standard)
            for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(ignored_by_python, signal.SIG_DFL)
            if not program.is_server:
                limit_cpu_time(self._settings.cpu_s)
            seen = self._enter(home, order.folders)
            words = [_with_places(word, seen) for word in program.words]
            if FILES in seen and not program.is_server:
                _link_files(seen[FILES])
            if self._apart is not None:
                _fork_below_first()
            os.chdir(program.folder or home.path)
            os.execvpe(words[0], words, os.environb | program.environment)  # noqa: S606
        except OSError as error:
            os.write(errors, str(error.errno or 0).encode())
        finally:
            os._exit(_CONFINEMENT_FAILED)

    def _enter(self, home: ChildHome, folders: Mapping[str, str]) -> dict[str, str]:
        """Changes into the folder of this child, confines the process; returns where it sees ``folders``."""
        os.environ |= {"HOME": home.path, "TMPDIR": home.path}
        os.chdir(home.path)
        seen = {name: seen_at(home, name, source, self._apart) for name, source in folders.items()}
        if FILES in seen:
            os.environ[FILES_VARIABLE] = seen[FILES]
        confine(self._settings, home, self._apart, {folders[name]: place for name, place in seen.items()})
        return seen

    def _report_ended(self) -> None:
        for number, process_id in self._process_ids.items():
            if number in self._ended:
                continue
            exit_code = _exit_code_if_ended(process_id)
            if exit_code is not None:
                self._ended.add(number)
                self._send(Ended(number, exit_code))
        self._clear_up()

    def _clear_up(self) -> None:
        """Kills processes of released children, and reports slots of which no process is left.

        Processes with the user of a slot descend from its child. A reaped process has already handed on its children,
        finally to this process: without strangers here, a released child has no descendant anywhere.
        """
        if self._kill_strangers() and self._leaving:
            self._send(Vacated(self._leaving))
            self._leaving = []
        self._left = [group for group in self._left if not group.remove()]

    def _kill_all(self) -> bool:
        """Kills every child, and then the orphans this makes. Returns whether no process is left."""
        self._kill_children()
        for process_id in self._process_ids.values():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process_id, 0)
        self._process_ids.clear()
        for _ in range(_KILLING_ROUNDS):
            if self._kill_strangers():
                return True
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, 0)
        return False

    def _kill_children(self) -> None:
        for process_id in self._process_ids.values():  # taken until they are released
            with contextlib.suppress(OSError):
                os.kill(process_id, signal.SIGKILL)
                os.killpg(process_id, signal.SIGKILL)

    def _kill_strangers(self) -> bool:
        """Kills orphans of children, which become children of this process. Returns whether none is left."""
        return kill_adopted(self._children, self._process_ids.values())

    def _orders(self) -> Iterator[Order]:
        """Yields the complete orders among the received messages."""
        return map(_orders.decode, take_frames(self._received))

    def _receive(self) -> bool:
        """Receives messages, with descriptors. Returns whether the channel is open."""
        data, descriptors, _, _ = socket.recv_fds(self._channel, _READ_BYTES, _STANDARD_AND_ERRORS + _LISTENER)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        self._descriptors += descriptors
        self._received += data
        return bool(data)

    def _send(self, event: Event) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the next order will be the end
            self._channel.sendall(encode_message(event))


_orders: Final = msgspec.msgpack.Decoder(Order)


def _separation(settings: ChildSettings, homes: str) -> Apart | None:
    """Returns the means to separate children from the system; ``None`` if they cannot be separated.

    Raises:
        SystemExit: They must be.
    """
    separation = try_separation(settings, homes)
    if separation.holds:
        return go_apart(settings, homes)
    if not reaches(confinement_level(separation), least_level(settings)):
        sys.exit(f"tasks cannot be confined to level {least_level(settings)}: {separation.why_not}")
    return None


def _link_files(folder: str) -> None:
    """Links each file beneath ``folder`` in the folder of this child, by its name."""
    for beneath, _, names in os.walk(folder):
        for name in names:
            os.symlink(os.path.join(beneath, name), name)  # noqa: PTH118, PTH211


def _with_places(word: bytes, places: Mapping[str, str]) -> bytes:
    for name, place in places.items():
        word = word.replace(f"{{{name}}}".encode(), os.fsencode(place))
    return word


def _fork_below_first() -> None:
    """Forks, and returns in the child; this process, the first of its namespace, ends as the child does.

    The first process itself could not be ended by signals as a program expects.
    """
    process_id = os.fork()
    if process_id == 0:
        die_with_parent()
        return
    os.closerange(0, os.sysconf("SC_OPEN_MAX"))
    ended = None
    while ended != process_id:
        ended, status = os.wait()
    exit_code = os.waitstatus_to_exitcode(status)
    os._exit(exit_code if exit_code >= 0 else _SIGNAL_EXIT_CODE - exit_code)


def _keep_only(kept: int, *, standard: Sequence[int]) -> None:
    """Makes ``standard`` descriptors 0, 1 and 2, and closes all others except ``kept``."""
    for number, descriptor in enumerate(standard):
        if descriptor != number:
            os.dup2(descriptor, number)
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))


def _exit_code_if_ended(process_id: int) -> int | None:
    if sys.platform == "darwin":  # there is no waitid() before Python 3.13: the process id is free at once
        ended, status = os.waitpid(process_id, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if ended else None
    info = os.waitid(os.P_PID, process_id, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if info is None:
        return None
    return info.si_status if info.si_code == os.CLD_EXITED else -info.si_status
