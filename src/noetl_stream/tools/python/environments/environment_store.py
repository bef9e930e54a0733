"""The environments of a worker: each is made once for a lock, in a child of its own, and kept while there is room.

An environment gets its name when it is complete, by a rename. Its users hold a shared lock on its folder, and nobody
removes what another process uses: workers may share one folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import re
import stat
import tempfile
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

import noetl_stream
from noetl_stream.settings.children import (
    DEFAULT_INDEX,
    ENVIRONMENTS_VARIABLE,
    INDEX_VARIABLE,
    MAX_BYTES_VARIABLE,
    SDISTS_VARIABLE,
    ChildSettings,
    EnvironmentSettings,
)
from noetl_stream.settings.egress import ALLOW_VARIABLE
from noetl_stream.tools.child_process import CapturedOutput
from noetl_stream.tools.children.launcher import PROXY_ENVIRONMENT, Launcher
from noetl_stream.tools.children.messages import ExternalProgram
from noetl_stream.tools.children.mounts import remove_folder
from noetl_stream.tools.contract import OWN_TROUBLE, ToolCall, ToolFailure
from noetl_stream.tools.proxy.egress_proxy import EgressProxy
from noetl_stream.tools.python.environments.entry import MODULES, START
from noetl_stream.tools.python.environments.interpreters import Interpreter, chosen, interpreters_of, uv_program
from noetl_stream.tools.python.environments.requirements import Requirements
from noetl_stream.tools.scratch.folders import locked, made_folder, remove_folders_left

_MADE_IN: Final = "making-"
_ENVIRONMENT: Final = "environment"
_SIZE: Final = ".bytes"
_OF_CLIENT: Final = ("__init__", "tasks")
"""The modules of the client that functions use, and that a worker which has it shows to its environments."""

_MAX_SAID_BYTES: Final = 16 * 1024
_MAX_WORDS: Final = 1_500
_AWAY: Final = re.compile(
    "error sending request|failed to fetch|request failed|timed out|connection|dns error|status code: 5|503|502|429",
    re.IGNORECASE,
)
_FULL: Final = re.compile(r"os error (?:28|122)\b|no space left|quota exceeded", re.IGNORECASE)
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
DISK_FULL: Final = "disk_full"
INDEX_AWAY: Final = "index_away"
"""The error codes of failures that may be temporary."""
_ROOM: Final = f"make room there, or name another folder ({ENVIRONMENTS_VARIABLE})"
_REACH: Final = (
    f"see that it runs, and that workers may connect to it and where it leads ({ALLOW_VARIABLE}), or name another"
    f" ({INDEX_VARIABLE})"
)
_PIN: Final = re.compile(r"^[A-Za-z0-9][^\s;\\]*", re.MULTILINE)
_WHEELS: Final = re.compile("source distribution|no usable wheels|no-build|no wheels", re.IGNORECASE)
_SCRIPT: Final = (
    'set -e; uv="$1" python="$2"; shift 2; "$uv" venv -q --relocatable --python "$python" environment; '
    '"$uv" pip install --python environment/bin/python --link-mode copy --require-hashes --no-deps "$@" -r -; '
    '"$python" -I -S -m compileall -q environment/lib || true'
)
VARIABLES: Final = {
    b"UV_PYTHON_DOWNLOADS": b"never",
    b"UV_NO_CONFIG": b"1",
    b"UV_NO_CACHE": b"1",
    b"UV_SYSTEM_CERTS": b"1",
    b"UV_NO_PROGRESS": b"1",
}


class MadeEnvironment(NamedTuple):
    """A complete environment: the launcher of its children, and the program that they run."""

    launcher: Launcher
    folders: dict[str, str]
    program: ExternalProgram

    @property
    def folder(self) -> str:
        return self.folders[_ENVIRONMENT]


class MakingEnvironment(NamedTuple):
    """An environment that is being made."""

    name: str
    interpreter: Interpreter
    wanted: Requirements
    lock: bytes

    def packages_in(self, words: str) -> str:
        """The locked packages that a message names, with the task's requirements if those have other names."""
        pins, required = _PIN.findall(self.lock.decode()), ", ".join(self.wanted.requires)
        named = [pin for pin in pins if _names(words, pin)]
        if not named:
            return required
        is_required = any(_names(required, pin) for pin in named)
        return ", ".join(named) + ("" if is_required else f" (the task requires {required})")


class Environments:
    """The environments of one worker process.

    Args:
        guard: The proxy through which uv reaches the index if children use the network of this machine.
        used: Returns the folders of environments with live children.
    """

    def __init__(
        self,
        settings: EnvironmentSettings,
        children: ChildSettings,
        proxy: EgressProxy | None,
        guard: EgressProxy,
        used: Callable[[], Collection[str]],
    ) -> None:
        self._settings, self._children, self._proxy, self._used = settings, children, proxy, used
        self._guard = guard
        self._root = Path(settings.folder)
        self._interpreters: list[Interpreter] = []
        self._launcher: Launcher | None = None
        self._making, self._lock = "", -1
        self._held: dict[str, int] = {}
        self._running: Counter[str] = Counter()
        self._one_by_one: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @contextlib.asynccontextmanager
    async def of(self, wanted: Requirements, lock: bytes, call: ToolCall) -> AsyncIterator[MadeEnvironment]:
        """Yields the environment of a lock, which is made if there is none. It stays as long as the context.

        Raises:
            ToolFailure: ``environment``: it cannot be made.
            WorkerUnfit: No process can be started.
        """
        if not self._settings.folder:
            hint = f"the operator allows that with {ENVIRONMENTS_VARIABLE}"
            raise ToolFailure.of("environment", f"this worker makes no environments for what tasks require: {hint}")
        launcher = await self._ready()
        interpreter = chosen(self._interpreters, wanted.python)
        name = sha256(b"\0".join((lock, *map(os.fsencode, interpreter)))).hexdigest()[:32]
        self._running[name] += 1
        try:
            if not self._hold(name):
                number = len(_PIN.findall(lock.decode()))
                packages = "1 package is" if number == 1 else f"{number} packages are"
                with call.queued(f"its environment, for which {packages} installed"):
                    async with self._one_by_one[name]:
                        if not self._hold(name):
                            making = MakingEnvironment(name, interpreter, wanted, lock)
                            await self._make(making, launcher, call)
            folders = {_ENVIRONMENT: str(self._root / name), "runtime": str(Path(self._making, "runtime"))}
            words = (
                "{environment}/bin/python",
                "-I",
                "-c",
                START,
                "{runtime}",
                str(self._children.cpu_s),
                "{packages}",
                "{runtime}/client",
            )
            yield MadeEnvironment(
                launcher, folders, ExternalProgram([*map(str.encode, words)], {}, None, is_server=True)
            )
        finally:
            self._running[name] -= 1

    async def close(self) -> None:
        """Ends running installations. Environments stay."""
        if self._launcher is not None:
            await self._launcher.close()
        for folder in self._held.values():
            os.close(folder)
        self._held.clear()
        if self._making:
            await asyncio.to_thread(remove_folder, self._making)
            os.close(self._lock)
            self._making = ""

    async def _ready(self) -> Launcher:
        async with self._one_by_one[""]:
            if self._launcher is None:
                with _told(f"environments cannot be kept in {self._root}"):
                    await asyncio.to_thread(self._prepare)
                index = (self._settings.index,) if os.path.isabs(self._settings.index) else ()  # noqa: PTH117
                readable = (*(one.prefix for one in self._interpreters), *index)
                if self._settings.constraints:
                    readable = (*readable, self._settings.constraints)
                children = replace(self._children, readable=readable)
                self._launcher = Launcher(children, proxy=self._proxy, homes=self._making)
        return self._launcher

    def _prepare(self) -> None:
        self._root.mkdir(parents=True, exist_ok=True, mode=0o755)
        remove_folders_left(_MADE_IN, str(self._root))
        self._interpreters = interpreters_of(self._settings.interpreters)
        self._making, self._lock = made_folder(_MADE_IN, str(self._root))
        Path(self._making).chmod(0o711)
        runtime, client = Path(self._making, "runtime"), find_spec("noetl_stream_client")
        _copy(Path(noetl_stream.__file__).parent, runtime / "noetl_stream", MODULES)
        if client is not None and client.origin is not None:
            _copy(Path(client.origin).parent, runtime / "client" / "noetl_stream_client", _OF_CLIENT)

    def _hold(self, name: str) -> bool:
        """Marks an environment as used now; returns whether there is one."""
        try:
            if name not in self._held:
                self._held[name] = locked(str(self._root / name), fcntl.LOCK_SH)
            os.utime(self._held[name])
            return (self._root / name).exists() or not self._release(name)
        except OSError:  # it is not there, or somebody removes it
            return False

    def _release(self, name: str) -> bool:
        os.close(self._held.pop(name))
        return True

    async def _make(self, making: MakingEnvironment, launcher: Launcher, call: ToolCall) -> None:
        """Makes an environment. If the disk is full, removes unused environments and tries once more."""
        try:
            await self._install(making, launcher, call)
        except ToolFailure as failed:
            gone = self._make_room(self._settings.max_bytes) if failed.error.code == DISK_FULL else []
            if not gone:
                raise
            for folder in gone:
                await asyncio.to_thread(remove_folder, folder)
            await self._install(making, launcher, call)

    async def _install(self, making: MakingEnvironment, launcher: Launcher, call: ToolCall) -> None:
        with _told(f"its environment cannot be made in {self._root}"), contextlib.ExitStack() as closing:
            source = closing.enter_context(tempfile.TemporaryFile(dir=self._making))
            source.write(making.lock)
            source.seek(0)
            reading, writing = os.pipe()
            output = CapturedOutput(reading, _MAX_SAID_BYTES, partial(call.write, "stderr"))
            closing.callback(output.close)
            try:
                descriptors = [source.fileno(), writing, writing, writing]
                variables = closing.enter_context(self._way_to_index())
                process = await launcher.start(descriptors, self._program(making.interpreter, variables))
            finally:
                os.close(writing)
            try:
                exit_code = await asyncio.shield(process.exit_code)
                process.kill()  # its leftovers change nothing any more
                said = output.take()[0]
                if exit_code != 0:
                    raise failure_of(said or f"exit code {exit_code}", making, self._settings)
                await self._complete(making.name, Path(process.home, _ENVIRONMENT))
            finally:
                process.kill()
                await process.end()

    @contextlib.contextmanager
    def _way_to_index(self) -> Iterator[Mapping[bytes, bytes]]:
        """Yields the proxy variables that send a child in the network of this machine through the egress guard."""
        if self._children.network != "host" or not self._settings.index_addresses:
            yield {}
            return
        with contextlib.closing(self._guard.open()) as proxy:
            url = f"http://127.0.0.1:{proxy.listen_here()}".encode()
            yield {name.encode(): url for name in PROXY_ENVIRONMENT if name.lower() != "no_proxy"}

    def _program(self, interpreter: Interpreter, variables: Mapping[bytes, bytes]) -> ExternalProgram:
        index = self._settings.index
        options = ["--default-index", index or DEFAULT_INDEX]
        if os.path.isabs(index):  # noqa: PTH117
            options = ["--no-index", "--find-links", index]
        if not self._settings.sdists:
            options.append("--no-build")
        if self._settings.constraints:
            options += ["--constraint", self._settings.constraints]
        words = ["/bin/sh", "-c", _SCRIPT, "sh", uv_program(), interpreter.path, *options]
        return ExternalProgram([*map(os.fsencode, words)], {**VARIABLES, **variables}, None)

    async def _complete(self, name: str, made: Path) -> None:
        """Gives an environment its name, unless another worker was quicker."""
        size = await asyncio.to_thread(_take, made)
        if size > self._settings.max_bytes:
            most = f"the operator allows {self._settings.max_bytes:,} for all ({MAX_BYTES_VARIABLE})"
            raise ToolFailure.of("environment", f"the environment has {size:,} bytes: {most}")
        gone = self._make_room(size)
        with contextlib.suppress(OSError):  # another worker has made it: see below
            os.rename(made, self._root / name)  # noqa: PTH104
        is_held = self._hold(name)
        for folder in gone:
            await asyncio.to_thread(remove_folder, folder)
        if not is_held:
            raise ToolFailure.of("environment", "the environment was removed as it was made", retryable=True)

    def _make_room(self, size: int) -> list[str]:
        """Takes the names from environments that were unused for the longest time. Returns their paths."""
        used, gone = self._used(), list[str]()
        found: list[tuple[float, int, Path]] = []
        for folder in self._root.iterdir():
            with contextlib.suppress(OSError, ValueError):  # no environment, or another worker removes it
                found.append((folder.stat().st_mtime, int((folder / _SIZE).read_text()), folder))
        total = size + sum(one for _, one, _ in found)
        for _, own, folder in sorted(found):
            if total <= self._settings.max_bytes:
                break
            if not self._running[folder.name] and str(folder) not in used and self._takes_name(folder):
                gone.append(f"{self._making}/{folder.name}")
                total -= own
        return gone

    def _takes_name(self, folder: Path) -> bool:
        if folder.name in self._held:
            self._release(folder.name)
        try:
            lock = locked(str(folder))
        except OSError:  # another worker uses it, or removes it
            return False
        try:
            folder.rename(Path(self._making, folder.name))
        finally:
            os.close(lock)
        return True


def _names(words: str, pin: str) -> bool:
    """Returns true if a message contains the name of a locked package, in any normalization."""
    name = re.sub(r"[-_.]+", "[-_.]+", pin.partition("==")[0])
    return re.search(rf"(?<![\w.-]){name}(?![a-z])", words, re.IGNORECASE) is not None


def _copy(source: Path, target: Path, modules: Iterable[str]) -> None:
    for module in modules:
        file = Path(*module.split(".")).with_suffix(".py")
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        (target / file).write_bytes((source / file).read_bytes())


def lock_of(wanted: Requirements, packages: str) -> bytes:
    """The lock in the bundle whose folder of packages this is; empty: there is no bundle.

    Raises:
        ToolFailure: ``environment``: it has none.
    """
    with contextlib.suppress(FileNotFoundError):
        if packages:
            return Path(packages).parent.joinpath(wanted.lock_name).read_bytes()
    hint = "`noetl-stream deploy` and `run FILE` lock what tasks require"
    message = f"the playbook has no lock of {', '.join(wanted.requires) or 'its Python'}: {hint}"
    raise ToolFailure.of("environment", message)


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    """Converts the errors of the system to those of a task, which may pass if a disk is full, or a limit reached."""
    try:
        yield
    except OSError as error:
        is_full = error.errno in _NO_ROOM
        message = f"{what}: no space is left; {_ROOM}" if is_full else f"{what}: {error.strerror or error}"
        code = DISK_FULL if is_full else None
        raise ToolFailure.of("environment", message, retryable=error.errno in OWN_TROUBLE, code=code) from None


def _take(folder: Path) -> int:
    """Makes all in a folder this process's own, for everybody to read, and notes its bytes, which it returns."""
    size, is_root = 0, os.geteuid() == 0
    for around, folders, files in os.walk(folder, onerror=_raise):
        for path in (around, *(os.path.join(around, name) for name in (*folders, *files))):  # noqa: PTH118
            if is_root:
                os.chown(path, 0, 0, follow_symlinks=False)
            found = os.lstat(path)
            if stat.S_ISLNK(found.st_mode):
                continue
            size += 0 if path == around else found.st_blocks * 512
            Path(path).chmod((found.st_mode & 0o755) | (0o755 if stat.S_ISDIR(found.st_mode) else 0o644))
    noted = folder / _SIZE
    noted.unlink(missing_ok=True)
    with noted.open("x") as file:
        file.write(str(size))
    return size


def _raise(error: OSError) -> None:
    raise error


def failure_of(said: str, making: MakingEnvironment, settings: EnvironmentSettings) -> ToolFailure:
    """The failure of a task whose environment could not be made, from what uv said."""
    words = " ".join(said.split("error:", 1)[-1].split())[:_MAX_WORDS]
    what, code = "its environment cannot be made: ", None
    hint = f"; {SDISTS_VARIABLE}=on of the operator allows what is built here" if _WHEELS.search(words) else ""
    if "hash mismatch" in words.lower():
        hint = f"; {INDEX_VARIABLE} of this worker has another file than the one that was locked: deploy again"
    elif _FULL.search(words):
        what, code = (
            f"{what}no space is left in {settings.folder} for {making.packages_in(words)}; {_ROOM}: ",
            DISK_FULL,
        )
    elif _AWAY.search(words):
        what += f"the index {settings.index or DEFAULT_INDEX} does not give {making.packages_in(words)}; {_REACH}: "
        code = INDEX_AWAY
    return ToolFailure.of("environment", f"{what}{words}{hint}", retryable=code is not None, code=code)
