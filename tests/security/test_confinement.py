"""What tasks reach of what is not theirs, tried with every call, file, socket and memory that we can name.

The table of the threat model says what they reach, by level; this tries it in each kind of worker.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confined_worker import NOBODY, OTHER_USERS

from noetl_stream.tools.children.confinement import closed_to
from noetl_stream.tools.children.landlock import SIGNALS_VERSION, landlock_version
from noetl_stream.tools.children.seccomp import REFUSED, filters_calls

MEMORY_BYTES = 512 * 1024**2
KEY = 4_711_471
"""Of shared memory that nobody else uses."""
PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "threat-model.md"

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux confines tasks this far"),
    pytest.mark.skipif(landlock_version() < SIGNALS_VERSION, reason="the table tells what Landlock 6 gives"),
]

ATTEMPTS = {
    "read a key file of the worker": "open(f'{folder}/key').read()",
    "change the mode of a key file": "os.chmod(f'{folder}/key', 0o604)",
    "give a file of the worker a setuid bit": "os.chmod(f'{folder}/program', 0o4755)",
    "connect to a Unix socket of the worker's user": "socket.socket(socket.AF_UNIX).connect(f'{folder}/engine')",
    "connect to an abstract Unix socket": "socket.socket(socket.AF_UNIX).connect('\\0' + folder)",
    "signal the worker": "os.kill(worker, 0)",
    "change limits of the worker": "resource.prlimit(worker, resource.RLIMIT_NICE, (0, 0))",
    "see the worker in /proc": "os.stat(f'/proc/{worker}')",
    "trace the process before it": "call(101 if x86 else 117, 16, os.getppid(), 0, 0)",
    "read memory of the worker": "call(310 if x86 else 270, worker, 0, 0, 0, 0, 0)",
    "write to /proc/sys": "open('/proc/sys/kernel/core_pattern', 'r+').write('x')",
    "keep something in the kernel's keyring": "call(248 if x86 else 217, b'user', b'team', b'x', 1, -5)",
    "make namespaces": "call(272 if x86 else 97, 0x10000000)",
    "mount": "call(165 if x86 else 40, b'none', b'/tmp', b'tmpfs', 0, None)",
    "use io_uring": "call(425, 1, ctypes.create_string_buffer(120))",
    "use userfaultfd": "call(323 if x86 else 282, 1)",
    "use bpf": "call(321 if x86 else 280, 0, None, 0)",
    "use perf_event_open": "call(298 if x86 else 241, None, 0, -1, -1, 0)",
    "talk to the hypervisor": "socket.socket(socket.AF_VSOCK)",
    "leave files in /dev/shm": "open('/dev/shm/' + os.path.basename(folder), 'x').write('x')",
    "leave shared memory of System V": f"call(29 if x86 else 194, {KEY}, 100, 0o3600)",
    "fill /dev/shm past the limit": "fill('/dev/shm/fill')",
    "fill a memory file past the limit": "fill(os.memfd_create('fill'))",
    "map shared memory past the limit": "touch(mmap.mmap(-1, most))",
    "start processes past the limit": "many()",
}
"""Code that raises ``OSError`` where it is refused, or what it wants does not exist. It runs twice, for two teams: some
leaves what the other finds.
"""

TRY = """
import ctypes, mmap, os, resource, signal, socket, time

x86 = os.uname().machine == "x86_64"
most = 3 * {memory} // 2

def call(number, *arguments):
    words = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(number), *words) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

def fill(file):
    out = os.open(file, os.O_RDWR | os.O_CREAT) if isinstance(file, str) else file
    try:
        os.posix_fallocate(out, 0, most)
    finally:
        os.truncate(out, 0)

def touch(memory):
    for at in range(0, len(memory), 4096):
        memory[at] = 1
    memory.close()

def many():
    started = []
    try:
        for _ in range(24):
            process = os.fork()
            if not process:
                signal.pause()
            started.append(process)
    finally:
        for process in started:
            os.kill(process, 9)
            os.waitpid(process, 0)

try:
    {attempt}
except (OSError, ValueError, MemoryError) as error:
    return [False, repr(error)]
return [True, ""]
"""


def asked_of(mode: str, codes: list[str], folder: str, *, team: str | None = None, **settings: Any) -> dict[str, Any]:
    request = {"folder": folder, "files": ["key", "program"], "codes": codes, "team": team, "settings": settings}
    command = [sys.executable, str(Path(__file__).with_name("confined_worker.py")), mode]
    ended = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


@pytest.fixture(params=["root", "private", "user", "masked", "container"])
def mode(request: pytest.FixtureRequest) -> str:
    mode: str = request.param
    if mode in ("root", "private", "masked") and os.geteuid() != 0:
        pytest.skip("only root can be root")
    if mode != "private" and os.geteuid() == 0 and (closed := closed_to(NOBODY)):
        pytest.skip(f"only root can read {closed}")
    return mode


@pytest.fixture
def folder(mode: str) -> Iterator[str]:
    """A home: a folder of the worker's user that others may enter, with a socket that only this user may use."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        socket.socket(socket.AF_UNIX) as engine,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        for one, address in ((engine, f"{folder}/engine"), (abstract, f"\0{folder}")):
            one.bind(address)
            one.listen(100)
        Path(folder, "engine").chmod(0o600)
        if mode in OTHER_USERS and os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
            os.chown(f"{folder}/engine", NOBODY, NOBODY)
        Path(folder).chmod(0o755)
        yield folder
        Path("/dev/shm", Path(folder).name).unlink(missing_ok=True)
        subprocess.run(["ipcrm", "-M", str(KEY)], capture_output=True)


def expected(level: str) -> dict[str, bool]:
    """What tasks reach at a level, as the threat model says."""
    rows = re.findall(r"^\| ([^|]+?) \| (yes|no) \| (yes|no) \|$", PAGE.read_text(), re.MULTILINE)
    return {attempt: (full if level == "full" else landlock) == "yes" for attempt, full, landlock in rows}


def test_tasks_reach_only_what_the_threat_model_allows(mode: str, folder: str) -> None:
    codes = [
        TRY.format(memory=MEMORY_BYTES, attempt=attempt) for attempt in ATTEMPTS.values() for _ in ("team", "other")
    ]
    asked = asked_of(mode, codes, folder, memory_bytes=MEMORY_BYTES, processes=16)
    tried = dict(zip(ATTEMPTS, zip(asked["answers"][::2], asked["answers"][1::2], strict=True), strict=True))
    reached = {attempt: any(answer[0] for answer in answers) for attempt, answers in tried.items()}
    for attempt in (attempt for attempt in ATTEMPTS if attempt.startswith("leave ")):
        (made, _), (made_again, _) = tried[attempt]
        reached[attempt] = made and not made_again
    assert asked["level"] == ("landlock" if mode == "container" else "full")
    differs = {attempt for attempt, found in reached.items() if found != expected(asked["level"]).get(attempt)}
    differs.discard({"private": "start processes past the limit", "masked": "see the worker in /proc"}.get(mode, ""))
    assert {attempt: tried[attempt] for attempt in differs} == {}
    assert list(expected(asked["level"])) == list(ATTEMPTS)


CALLS = """
import ctypes
libc, allowed = ctypes.CDLL(None, use_errno=True), []
for name, number, error in {calls}:
    ctypes.set_errno(0)
    found = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(0x3fff_ffff)] * 6), ctypes.get_errno()
    if found != (-1, error):
        allowed.append([name, *found])
return allowed
"""
"""Makes each call with arguments of which no exception speaks, and which do nothing where the call is allowed."""


@pytest.mark.skipif(not filters_calls(), reason="this kernel filters no calls")
def test_every_call_that_the_filter_names_is_refused_to_tasks(mode: str, folder: str) -> None:
    machine = os.uname().machine
    calls = [(one.name, one.numbers[machine], one.error) for one in REFUSED if machine in one.numbers]
    assert asked_of(mode, [CALLS.format(calls=calls)], folder)["answers"] == [[]]


def test_files_outlive_tasks_that_may_write_beside_them(mode: str, folder: str) -> None:
    Path(folder).chmod(0o777)
    write = """
import os, tempfile
tempfile.mkdtemp(dir=folder)
assert tempfile.mkdtemp().startswith(os.environ["HOME"])
"""
    asked = asked_of(mode, [write, write], folder, paths=[folder])
    assert asked["answers"] == [None, None]
    assert asked["files"] == {"key": "s3cret", "program": "s3cret"}


LEAVES_A_PROCESS = """
import os, time
os.set_inheritable(os.open(f"{folder}/alive", os.O_WRONLY), True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
os.wait()
"""


def test_processes_that_a_task_leaves_end_before_the_next_one(mode: str, folder: str) -> None:
    os.mkfifo(f"{folder}/alive", 0o666)
    Path(folder, "alive").chmod(0o666)
    reading = os.open(f"{folder}/alive", os.O_RDONLY | os.O_NONBLOCK)
    ended = "import os\nreturn os.read(os.open(f'{folder}/alive', os.O_RDONLY | os.O_NONBLOCK), 1).decode()"
    asked = asked_of(mode, [LEAVES_A_PROCESS, ended], folder, paths=[folder], python_children=1, team="one")
    os.close(reading)
    assert asked["answers"] == [None, ""]


WHO_IS_REACHED = """
import http.client, socket
with socket.create_server(("127.0.0.1", 0)) as own:
    socket.create_connection(own.getsockname()).close()
reached = []
try:
    socket.create_connection(("127.0.0.1", port), 60).close()
    reached.append("directly")
except OSError:
    pass
try:
    proxy = http.client.HTTPConnection("127.0.0.1", 3128, timeout=60)
    proxy.set_tunnel("127.0.0.1", port)
    proxy.connect()
    reached.append("by proxy")
except OSError:
    pass
return reached
"""


@pytest.mark.parametrize(("network", "reached"), [("host", ["directly"]), ("none", []), ("proxy", ["by proxy"])])
def test_a_task_reaches_the_network_as_its_operator_says(
    mode: str, folder: str, network: str, reached: list[str]
) -> None:
    if mode == "container":
        pytest.skip("the network cannot be taken away")
    with socket.create_server(("127.0.0.1", 0)) as service:
        code = f"port = {service.getsockname()[1]}\n{WHO_IS_REACHED}"
        asked = asked_of(mode, [code], folder, network=network)
    assert asked["answers"] == [reached]
