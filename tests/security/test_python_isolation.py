"""What was done to children of ``python``, and what they could do to the worker. Each test fails without the mend."""

from __future__ import annotations

import asyncio
import os
import resource
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from noetl_stream.playbook.plan import Timeouts
from noetl_stream.settings.children import ChildSettings, ChildUser
from noetl_stream.tools.children.confinement import CHILD_USERS_FROM, closed_to
from noetl_stream.tools.children.landlock import SIGNALS_VERSION, landlock_version
from noetl_stream.tools.children.launcher import ChildProcess, Launcher
from noetl_stream.tools.children.messages import ExternalProgram
from noetl_stream.tools.children.seccomp import filters_calls
from noetl_stream.tools.contract import Tool, ToolCall, ToolFailure
from noetl_stream.tools.python.tool import PythonTool
from noetl_stream.tools.shell import ShellTool
from noetl_testkit.task_processes import own_number, task_process
from noetl_testkit.waiting import TIMEOUT_S

Run = Callable[..., Awaitable[Any]]

OUT_OF_REACH = "PermissionError|FileNotFoundError|ProcessLookupError|Read-only file system"
"""What a task gets that wants something of others: it may not have it, or does not see it."""

ANN, BOB = "digest-a ann", "digest-a bob"

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux offers it")
needs_landlock = pytest.mark.skipif(landlock_version() == 0, reason="this kernel has no Landlock")
needs_own_user = pytest.mark.skipif(
    os.geteuid() != 0 or closed_to(CHILD_USERS_FROM) is not None,
    reason="only root can give a child a user of its own, and only where others can read Python",
)
needs_filter = pytest.mark.skipif(not filters_calls(), reason="this kernel filters no system calls")
needs_signals = pytest.mark.skipif(
    landlock_version() < SIGNALS_VERSION and os.geteuid() != 0, reason="this kernel does not confine signals"
)


def call(inputs: dict[str, Any], domain: str = ANN, execution: str = "execution-1") -> ToolCall:
    async def credential(_name: str) -> str:
        raise AssertionError("no credential is used")

    return ToolCall(
        inputs=inputs,
        knobs={},
        timeouts=Timeouts(),
        idempotency_key="key",
        execution_id=execution,
        step="step",
        task="task",
        attempt=1,
        trust_domain=domain,
        scope={},
        credential=credential,
    )


async def result_of(tool: Tool, code: str, domain: str = ANN, execution: str = "execution-1", **args: Any) -> Any:
    async with asyncio.timeout(TIMEOUT_S):
        return (await tool.run(call({"code": code, "args": args}, domain, execution))).result


async def output_of(tool: Tool, command: str) -> str:
    async with asyncio.timeout(TIMEOUT_S):
        text: str = (await tool.run(call({"command": f"{command} 2>&1; true"}))).result["stdout"]
        return text


@pytest.fixture
async def run() -> AsyncIterator[Run]:
    """Runs code in the only child of a worker."""
    tool = PythonTool(max_children=1)

    async def run(code: str, domain: str = ANN, execution: str = "execution-1", **args: Any) -> Any:
        return await result_of(tool, code, domain, execution, **args)

    yield run
    await tool.close()


@pytest.fixture(params=["own", "worker"])
def user(request: pytest.FixtureRequest) -> ChildUser:
    """With root, a user of the child's own; and what holds without."""
    if request.param == "own" and os.geteuid() != 0:
        pytest.skip("only root can give a child a user of its own")
    user: ChildUser = request.param
    return user


@pytest.fixture
async def confined(user: ChildUser) -> AsyncIterator[PythonTool]:
    tool = PythonTool(ChildSettings(user=user, files=64, memory_bytes=512 * 1024**2))
    yield tool
    await tool.close()


@pytest.fixture
async def shell(user: ChildUser) -> AsyncIterator[ShellTool]:
    tool = ShellTool(ChildSettings(user=user))
    yield tool
    await tool.close()


@pytest.fixture
def key_file() -> Iterator[Path]:
    """A file as the embedded stack keeps its keys in: for the worker's user alone, in a folder that all may enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        file = Path(folder) / "credential.key"
        file.write_text("s3cret")
        file.chmod(stat.S_IRUSR | stat.S_IWUSR)
        yield file


PATCHES_THE_RUNNER = """
import sys
sys.modules["noetl_stream.tools.python.child"].run_job = lambda job: ["stolen", job["args"]]
"""


async def test_a_playbook_that_patches_the_runner_never_sees_another_run_s_inputs(run: Run) -> None:
    for domain in (ANN, "digest-b ann", BOB):
        await run(PATCHES_THE_RUNNER)
        assert await run("return 'own'", domain, secret="mine") == "own"


@pytest.mark.parametrize(("isolation", "children"), [("shared", 1), ("execution", 2), ("task", 3)])
async def test_isolation_says_which_runs_have_a_child_of_their_own(isolation: Any, children: int) -> None:
    tool = PythonTool(ChildSettings(isolation=isolation), max_children=1)
    code = "import os\nreturn os.getcwd()"
    found = {await result_of(tool, code, execution=execution) for execution in ("one", "one", "two")}
    await tool.close()
    assert len(found) == children


FORKS_AND_ANSWERS_THE_NEXT = """
import os, socket, stat
sockets = [fd for fd in range(3, 64) if os.path.exists(f"/proc/self/fd/{fd}") and stat.S_ISSOCK(os.fstat(fd).st_mode)]
if os.fork() == 0:
    if leave:
        os.setsid()
        if os.fork():
            os._exit(0)
    channel = socket.socket(fileno=sockets[0])
    while True:
        size = int.from_bytes(channel.recv(4, socket.MSG_WAITALL), "big")
        channel.recv(size, socket.MSG_WAITALL)
        answer = b'["of the first",null]'
        channel.sendall(len(answer).to_bytes(4, "big") + answer)
return os.getpid()
"""
"""A process that keeps the connection, waits for the next job on it and answers."""


@needs_linux
@pytest.mark.parametrize("leave", [False, True], ids=["child", "orphan"])
async def test_a_process_that_a_run_left_behind_gets_no_job(run: Run, leave: bool) -> None:
    first = await run(FORKS_AND_ANSWERS_THE_NEXT, leave=leave)
    for _ in range(3):
        assert await run("import os\nreturn ['own', os.getpid() == first]", first=first) == ["own", False]


@needs_linux
async def test_an_orphan_that_hides_itself_is_killed_too(run: Run) -> None:
    code = FORKS_AND_ANSWERS_THE_NEXT.replace(
        "if os.fork() == 0:", "import ctypes\nctypes.CDLL(None).prctl(36, 0, 0, 0, 0)\nif os.fork() == 0:", 1
    )
    first = await run(code, leave=True)
    assert await run("import os\nreturn ['own', os.getpid() == first]", first=first) == ["own", False]


ANSWERS_ITSELF = """
import os, socket, stat, threading
fd = next(fd for fd in range(3, 64) if os.path.exists(f"/proc/self/fd/{fd}") and stat.S_ISSOCK(os.fstat(fd).st_mode))
os.write(fd, bytes.fromhex(answer))
threading.Event().wait()
"""


@needs_linux
@pytest.mark.parametrize("answer", [b"\0\0\0\5wrong", b"\xff\xff\xff\xff"], ids=["no JSON", "longer than any result"])
async def test_a_run_that_answers_what_is_no_answer_is_killed(run: Run, answer: bytes) -> None:
    with pytest.raises(ToolFailure, match="SIGKILL") as failed:
        await run(ANSWERS_ITSELF, answer=answer.hex())
    assert failed.value.error.kind == "crashed"
    assert await run("return 'own'") == "own"


@needs_linux
@pytest.mark.parametrize("kind", ["NOFILE", "AS", "CPU"])
async def test_a_task_does_not_change_the_limits_of_the_worker(
    confined: PythonTool, shell: ShellTool, kind: str
) -> None:
    before = resource.prlimit(os.getpid(), getattr(resource, f"RLIMIT_{kind}"))
    code = f"import os, resource\nresource.prlimit(pid or os.getppid(), resource.RLIMIT_{kind}, (3, 3))"
    for pid in (os.getpid(), 0):
        with pytest.raises(ToolFailure, match=OUT_OF_REACH):
            await result_of(confined, code, pid=pid)
    await output_of(shell, f"prlimit --pid {os.getpid()} --{kind.lower()}=3:3")
    assert resource.prlimit(os.getpid(), getattr(resource, f"RLIMIT_{kind}")) == before
    assert await result_of(confined, "return 'next'") == "next"


@needs_filter
@pytest.mark.parametrize(
    "change",
    [
        "os.setpriority(os.PRIO_PROCESS, pid, 19)",
        "os.setpriority(os.PRIO_USER, os.getuid(), 19)",
        "os.sched_setaffinity(pid, {0})",
        "os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))",
    ],
)
async def test_nor_its_priority_or_processors(change: str) -> None:
    tool = PythonTool(ChildSettings(user="worker"))
    with pytest.raises(ToolFailure, match="PermissionError"):
        await result_of(tool, f"import os\n{change}", pid=os.getpid())
    await tool.close()


@needs_filter
async def test_a_task_may_change_its_own_limits_and_priority(confined: PythonTool, shell: ShellTool) -> None:
    code = "import os, resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (9, 9))\nreturn os.nice(0), os.nice(3)"
    before, after = await result_of(confined, code)
    assert after == min(19, before + 3)
    reads = "import os, resource\nreturn resource.prlimit(os.getpid(), resource.RLIMIT_CORE)"
    assert await result_of(confined, reads) == [0, 0]
    assert (await output_of(shell, "ulimit -n 20; ulimit -n; nice -n 3 nice")).split() == ["20", str(after)]


LOWERS_ITS_OWN_LIMITS = """
import asyncio, resource
from noetl_stream.testing.calls import tool_call
from noetl_stream.tools.contract import WorkerUnfit
from noetl_stream.tools.python.tool import PythonTool

async def main():
    tool = PythonTool(max_children=1)
    code = tool_call({"code": "return 1"})
    await tool.run(code)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    await tool.run(code)
    print(resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, soft - 1))
    try:
        await tool.run(code)
    except WorkerUnfit as unfit:
        print(unfit.for_good, unfit)
    await tool.close()

asyncio.run(main())
"""
"""A worker to which happens what code of its user could do where nothing refuses it."""


@needs_linux
async def test_a_worker_whose_limits_were_lowered_undoes_it_or_is_unfit() -> None:
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", LOWERS_ITS_OWN_LIMITS, stdout=asyncio.subprocess.PIPE
    )
    undone, unfit = (await worker.communicate())[0].decode().splitlines()
    assert undone == "True"
    assert unfit.startswith("True somebody has lowered the limits of this worker: RLIMIT_NOFILE is ")


@needs_linux
@pytest.mark.parametrize("hard", [False, True], ids=["soft", "hard"])
async def test_processes_that_fork_children_unhide_themselves_or_are_replaced(hard: bool) -> None:
    tool = PythonTool(ChildSettings(user="worker"), max_children=1)
    limit = (
        "import os, resource\n"
        "return [os.getcwd(), resource.getrlimit(resource.RLIMIT_NOFILE), os.getppid(), os.getpid()]"
    )
    first, files, parent, ended = await result_of(tool, limit)
    child = task_process(parent)
    while len({own_number(one.pid) for one in child.children()} - {ended, None}) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0)  # it forks one process ahead, with sockets
    zygote = child.parent()
    assert zygote is not None
    for process in (child, zygote):
        most = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (3, most - 1 if hard else most))
    await result_of(tool, "pass")  # its process was forked before
    second, now, *_ = await result_of(tool, limit)
    await tool.close()
    assert (second != first, now) == (hard, files)


async def test_a_child_is_given_nothing_of_the_worker(
    confined: PythonTool, shell: ShellTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOETL_NATS_NKEY", "SUSECRET")
    seen = await result_of(
        confined, "import os\nreturn [dict(os.environ), os.getcwd(), sorted(os.listdir('/proc/self/fd'), key=int)]"
    )
    environment, folder, descriptors = seen
    assert set(environment) == {"PATH", "LANG", "HOME", "TMPDIR"}
    assert environment["HOME"] == environment["TMPDIR"] == folder
    assert len(descriptors) == 5, "the standard ones, the channel and the listing itself"
    assert "SUSECRET" not in await output_of(shell, "env; cat /proc/$PPID/environ /proc/self/environ | tr '\\0' ' '")


@needs_linux
@pytest.mark.parametrize("file", ["environ", "mem", "maps", "fd/0", "root"])
async def test_the_worker_s_proc_is_closed(confined: PythonTool, shell: ShellTool, file: str) -> None:
    path = f"/proc/{os.getpid()}/{file}"
    with pytest.raises(ToolFailure, match=OUT_OF_REACH):
        await result_of(confined, f"import os\n(os.listdir if {file!r} == 'root' else open)({path!r}).read(1)")
    output = await output_of(shell, f"{'ls' if file == 'root' else 'head -c 1'} {path}")
    assert "denied" in output or "No such file" in output


@needs_linux
async def test_so_is_that_of_the_process_that_forks_children(confined: PythonTool) -> None:
    for code in ("open(f'/proc/{os.getppid()}/environ').read()", "open(f'/proc/{os.getppid()}/mem', 'r+b')"):
        with pytest.raises(ToolFailure, match=OUT_OF_REACH):
            await result_of(confined, f"import os\n{code}")


@needs_landlock
async def test_key_files_are_closed(confined: PythonTool, shell: ShellTool, key_file: Path) -> None:
    with pytest.raises(ToolFailure, match=OUT_OF_REACH):
        await result_of(confined, "open(path).read()", path=str(key_file))
    with pytest.raises(ToolFailure, match=OUT_OF_REACH):
        await result_of(confined, "open(path, 'w')", path=str(key_file.parent / "new"))
    assert "s3cret" not in await output_of(shell, f"cat {key_file}")


@needs_own_user
async def test_a_user_of_its_own_keeps_key_files_closed_without_landlock(key_file: Path) -> None:
    tool = PythonTool(ChildSettings(user="own", paths=("/",)))
    assert await result_of(tool, "import os\nreturn [os.getuid() != 0, os.getgroups()]") == [True, []]
    with pytest.raises(ToolFailure, match=OUT_OF_REACH):
        await result_of(tool, "open(path).read()", path=str(key_file))
    await tool.close()


@needs_landlock
async def test_files_that_the_operator_names_are_open(tmp_path: Path) -> None:
    tool = PythonTool(ChildSettings(user="worker", paths=(str(tmp_path),)))
    await result_of(tool, "open(path, 'w').write('word')", path=str(tmp_path / "file"))
    assert await asyncio.to_thread((tmp_path / "file").read_text) == "word"
    await tool.close()


@needs_signals
async def test_the_worker_cannot_be_signalled(confined: PythonTool, shell: ShellTool) -> None:
    for target in (f"{os.getpid()}", "os.getppid()"):
        with pytest.raises(ToolFailure, match=OUT_OF_REACH):
            await result_of(confined, f"import os\nos.kill({target}, 0)")
    output = await output_of(shell, f"kill -0 {os.getpid()}")
    assert "not permitted" in output or "No such process" in output


@needs_linux
async def test_no_program_gives_privileges(confined: PythonTool) -> None:
    code = "return dict(line.split(':\\t') for line in open('/proc/self/status').read().splitlines())"
    status = await result_of(confined, code)
    assert (int(status["CapEff"], 16), int(status["CapPrm"], 16), status["NoNewPrivs"]) == (0, 0, "1")


async def test_resources_of_a_child_are_limited(confined: PythonTool, shell: ShellTool) -> None:
    assert await result_of(confined, "import resource\nreturn resource.getrlimit(resource.RLIMIT_CORE)") == [0, 0]
    with pytest.raises(ToolFailure, match="Too many open files"):
        await result_of(confined, "files = [open('/dev/null') for _ in range(64)]")
    assert (await output_of(shell, "ulimit -c")).strip() == "0"


@needs_linux
async def test_memory_of_a_child_is_limited(confined: PythonTool) -> None:
    with pytest.raises(ToolFailure, match="MemoryError"):
        await result_of(confined, "b'x' * 600 * 1024 ** 2")


async def test_cpu_time_is_limited_for_each_run() -> None:
    python, shell = PythonTool(ChildSettings(cpu_s=1), max_children=1), ShellTool(ChildSettings(cpu_s=1))
    limit = "import resource\nreturn resource.getrlimit(resource.RLIMIT_CPU)[0]"
    soft = await result_of(python, limit)
    used = resource.getrusage(resource.RUSAGE_SELF)
    assert 1 < soft <= 3 + used.ru_utime
    with pytest.raises(ToolFailure, match=r"SIGXCPU.*NOETL_CHILD_CPU_S"):
        await result_of(python, "while True:\n    pass")
    assert (await output_of(shell, "ulimit -t; ulimit -Ht")).split() == ["2", "3"]
    await python.close()
    await shell.close()


@needs_own_user
async def test_processes_are_limited_where_a_child_has_its_own_user() -> None:
    tool = PythonTool(ChildSettings(processes=8))
    with pytest.raises(ToolFailure, match="Resource temporarily unavailable"):
        await result_of(tool, "import os, time\nfor _ in range(9):\n    os.fork() or time.sleep(600)")
    assert await result_of(tool, "return 'next'") == "next"
    await tool.close()


async def sleeping(launcher: Launcher) -> ChildProcess:
    """A child that has children."""
    program = ExternalProgram([b"sh", b"-c", b"sleep 600 & sleep 600 & wait"], {}, None)
    pipe = os.pipe()
    try:
        return await launcher.start([pipe[0], pipe[1], pipe[1], pipe[1]], program)
    finally:
        for descriptor in pipe:
            os.close(descriptor)


async def ended(child: ChildProcess) -> None:
    child.kill()
    await child.end()


@needs_linux
async def test_a_user_is_given_again_only_when_no_process_of_it_is_left() -> None:
    """What a killed child started counts as its user's until it is reaped, which may take long under load."""
    launcher = Launcher(ChildSettings())
    first = await sleeping(launcher)
    zygote = psutil.Process(first.process_id).parent()
    assert zygote is not None
    first.kill()
    await asyncio.shield(first.exit_code)
    zygote.suspend()  # it reaps nothing
    await first.end()
    starting = asyncio.ensure_future(sleeping(launcher))
    await asyncio.sleep(0)
    zygote.resume()
    second = await starting
    assert second.slot != first.slot
    await ended(second)
    while (child := await sleeping(launcher)).slot != first.slot:  # until all of it is reaped
        await ended(child)
    await ended(child)
    await launcher.close()


@needs_linux
async def test_no_two_launchers_share_a_user_and_a_closed_one_leaves_no_process() -> None:
    launchers = [Launcher(ChildSettings()) for _ in range(3)]
    children = [await sleeping(launcher) for launcher in launchers]
    assert len({child.slot for child in children}) == 3
    processes = [psutil.Process(child.process_id) for child in children]
    processes += [below for process in processes for below in process.children(recursive=True)]
    for launcher in launchers:
        await launcher.close()
    assert not any(process.is_running() for process in processes)
