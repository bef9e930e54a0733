"""Playbook code and its process: output, crashes, children, cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from textwrap import dedent, indent
from types import ModuleType
from typing import Any

import psutil
import pytest
import uvloop
from msgspec.structs import replace

from measured import samples_of
from noetl_stream.local.processes import is_alive, wait_until_ended
from noetl_stream.settings.children import ChildSettings
from noetl_stream.tools.children.confinement import import_folders
from noetl_stream.tools.contract import ToolFailure, ToolResult, WorkerUnfit
from noetl_stream.tools.python.output import MAX_OUTPUT_BYTES
from noetl_stream.tools.python.tool import PythonTool
from noetl_stream.worker.worker_limits import MAX_OUTPUT_CHARACTERS
from noetl_testkit.task_processes import own_number, task_process
from noetl_testkit.waiting import TIMEOUT_S

CALL_HOME = """
import json, os, socket
home = socket.socket(socket.AF_UNIX)
home.connect(path)
home.sendall(json.dumps(os.getpid()).encode() + b'\\n')
"""
"""Code that connects to the test, so that the connection lasts as long as its process and others that inherit it."""


class Home:
    """Accepts connections of the code under test, each with the process id that it sends."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.calls: asyncio.Queue[tuple[int | str, asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.calls.put_nowait((json.loads(await reader.readline()), reader, writer))


@pytest.fixture
def folder() -> Iterator[str]:
    """A folder that the operator has opened to tasks."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # noqa: PTH101  # the code may have a user of its own
        yield folder


@pytest.fixture
async def home(folder: str) -> AsyncIterator[Home]:
    home = Home(f"{folder}/home")
    server = await asyncio.start_unix_server(home.answer, home.path)
    os.chmod(home.path, 0o777)  # noqa: PTH101
    async with server:
        yield home
        server.close()
        while not home.calls.empty():
            home.calls.get_nowait()[2].close()


@pytest.fixture
async def tool(folder: str) -> AsyncIterator[PythonTool]:
    tool = PythonTool(ChildSettings(paths=(folder,)), max_children=2)
    yield tool
    await tool.close()


@pytest.fixture
def run(tool: PythonTool, make_call: Any) -> Any:
    async def run(code: str, **args: Any) -> ToolResult:
        return await tool.run(make_call({"code": code, "args": args}))

    return run


async def test_tasks_beyond_the_bound_wait_and_say_for_what(home: Home, tool: PythonTool, make_call: Any) -> None:
    seen: list[str] = []

    @contextlib.contextmanager
    def queued(what: str) -> Iterator[None]:
        seen.append(what)
        yield
        seen.append("begun")

    code = CALL_HOME + "home.recv(1)"
    call = replace(make_call({"code": code, "args": {"path": home.path}}), queued=queued)
    tasks = [asyncio.create_task(tool.run(call)) for _ in range(2)]
    ends = [(await home.calls.get())[2] for _ in tasks]
    tasks.append(asyncio.create_task(tool.run(call)))
    await asyncio.sleep(0)
    capacity = tool.capacity
    assert (capacity.most, capacity.busy, capacity.waiting) == (2, 2, 1)
    shown = samples_of(tool.readings())
    assert shown["noetl_worker_python_children_max"] == shown["noetl_worker_python_children_busy"] == 2
    assert shown["noetl_worker_tasks_waiting python"] == 1
    assert seen == ["a free Python child: 2 of 2 busy, NOETL_PYTHON_CHILDREN sets how many"]
    for end in ends:
        end.write(b"x")
    (await home.calls.get())[2].write(b"x")
    await asyncio.gather(*tasks)
    assert (capacity.busy, capacity.waiting, seen[1:]) == (0, 0, ["begun"])


async def test_long_tasks_of_a_namespace_leave_a_place_to_another(home: Home, tool: PythonTool, make_call: Any) -> None:
    call = make_call({"code": CALL_HOME + "home.recv(1)", "args": {"path": home.path}})
    loud = [asyncio.create_task(tool.run(replace(call, namespace="loud"))) for _ in range(3)]
    ends = [(await home.calls.get())[2] for _ in loud[1:]]
    quiet = asyncio.create_task(tool.run(replace(call, namespace="quiet")))
    (await home.calls.get())[2].write(b"x")
    await quiet
    assert (tool.capacity.busy, tool.capacity.waiting) == (2, 1)
    for end in ends:
        end.write(b"x")
    (await home.calls.get())[2].write(b"x")
    await asyncio.gather(*loud)


async def test_the_operator_says_how_many_run_at_once() -> None:
    tool = PythonTool(ChildSettings(python_children=7))
    assert tool.capacity.most == 7
    await tool.close()


async def expect_gone(reader: asyncio.StreamReader) -> None:
    """Returns when every process with the other end has ended."""
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""


async def test_cancelling_kills_the_child_and_what_it_started(run: Any, home: Home) -> None:
    code = CALL_HOME + "import subprocess\nsubprocess.run(['sleep', '600'], pass_fds=[home.fileno()])"
    task = asyncio.ensure_future(run(code, path=home.path))
    _, reader, writer = await home.calls.get()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await expect_gone(reader)
    writer.close()


FORKS_TWICE = """
import os
if os.fork() == 0:
    os.setsid()
    parent = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == parent:
        pass
    {orphan}
    os._exit(0)
os.wait()
"""
"""Code that leaves an orphan in its own session, which runs some code."""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only the process group ends")
async def test_cancelling_kills_an_orphan_that_left_the_group(run: Any, home: Home) -> None:
    orphan = indent(CALL_HOME + "os.read(home.fileno(), 1)", "    ").lstrip()
    task = asyncio.ensure_future(
        run(FORKS_TWICE.format(orphan=orphan) + "import time; time.sleep(600)", path=home.path)
    )
    _, reader, writer = await home.calls.get()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await expect_gone(reader)
    writer.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody adopts orphans")
async def test_orphans_that_end_leave_nothing_behind_for_the_next_run(run: Any) -> None:
    count = "import os\nresult = open(f'/proc/self/task/{os.getpid()}/children').read()"
    for _ in range(5):
        await run(FORKS_TWICE.format(orphan="pass"))
        assert (await run(count)).result == ""


async def test_code_that_never_returns_is_killed_too(run: Any, home: Home) -> None:
    code = CALL_HOME + "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True:\n    pass"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as limit:
            task = asyncio.ensure_future(run(code, path=home.path))
            _, reader, writer = await home.calls.get()
            limit.reschedule(asyncio.get_running_loop().time())
            await task
    await expect_gone(reader)
    writer.close()


async def test_a_new_child_takes_the_place_of_a_killed_one(run: Any) -> None:
    who = "import os\nresult = [os.getcwd(), os.getpid()]"
    first = (await run(who)).result
    with pytest.raises(ToolFailure):
        await run("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    second = (await run(who)).result
    assert second != first


async def until(condition: Callable[[], bool]) -> None:
    """Waits for what the kernel does in its own time, which sets no event of this loop."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0)


def _ids(child: psutil.Process) -> list[int]:
    return [process.pid for process in child.children()]


async def waiting_process(run: Any) -> tuple[psutil.Process, psutil.Process]:
    """The child that has run something, and its process for the next run: the first of two that it has forked ahead."""
    parent, ended = (await run("import os\nresult = [os.getppid(), os.getpid()]")).result
    child = task_process(parent)
    await until(lambda: {ended, None}.isdisjoint(numbers := [*map(own_number, _ids(child))]) and len(numbers) == 2)
    return child, min(child.children(), key=lambda process: process.pid)


async def test_an_idle_child_that_died_is_replaced(run: Any) -> None:
    folder = "import os\nresult = os.getcwd()"
    before = (await run(folder)).result
    child, waiting = await waiting_process(run)
    child.kill()
    await until(lambda: not (is_alive(child.pid) or is_alive(waiting.pid)))
    assert (await run(folder)).result != before


async def test_a_process_that_dies_before_it_has_read_its_job_is_replaced(run: Any, tool: PythonTool) -> None:
    _, waiting = await waiting_process(run)
    waiting.suspend()
    await until(lambda: waiting.status() == psutil.STATUS_STOPPED)
    number = own_number(waiting.pid)
    running = asyncio.create_task(run("import os\nresult = os.getpid()"))
    await until(lambda: tool.capacity.busy == 1)
    waiting.kill()
    assert (await running).result != number


async def test_a_child_that_forks_no_more_is_replaced_and_the_run_waits_for_it(make_call: Any) -> None:
    tool = PythonTool(max_children=1, answer_s=1)
    who = "import os\nresult = [os.getppid(), os.getcwd()]"
    number, folder = (await tool.run(make_call({"code": who}))).result
    await tool.run(make_call({"code": who}))
    task_process(number).suspend()
    await tool.run(make_call({"code": "pass"}))  # its process may have been forked before
    assert (await tool.run(make_call({"code": who}))).result[1] != folder
    await tool.close()


async def test_threads_are_known_in_the_process_of_a_run_and_in_those_that_it_forks(run: Any) -> None:
    code = """
import logging, os, threading
held, is_held = threading.Event(), threading.Event()
handler = logging.StreamHandler()
logging.root.addHandler(handler)
def hold():
    with handler.lock:
        is_held.set()
        held.wait()
threading.Thread(target=hold, daemon=True).start()
is_held.wait()
forked = os.fork()
if not forked:
    logging.error("logged")
    os._exit(10 + threading.active_count())
status = os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1])
return [threading.active_count(), status]
"""
    assert (await run(code)).result == [2, 11]


async def test_the_cause_of_death_of_a_process_is_known_though_the_worker_hears_late_of_it(make_call: Any) -> None:
    """The end of the process and the way it ended, which comes with the next process, wait to be read together."""
    tool = PythonTool(max_children=1)

    def until_the_next_one_is_ready(_: str, data: bytes) -> None:
        ids = [int(word) for word in data.split()]
        while ids:
            started = {own_number(process.pid) for process in task_process(ids[0]).children()}
            if len(started) == 2 and ids[1] not in started:
                ids = []

    code = "import os\nprint(os.getppid(), os.getpid())\nos.kill(os.getpid(), 9)"
    call = replace(make_call({"code": code}), write=until_the_next_one_is_ready)
    with pytest.raises(ToolFailure, match="signal SIGKILL"):
        await tool.run(call)
    await tool.close()


async def test_code_that_keeps_running_after_its_answer_is_killed(make_call: Any) -> None:
    tool = PythonTool(max_children=1, answer_s=1)
    code = """
import os, socket, stat, threading
fd = next(fd for fd in range(3, 64) if os.path.exists(f"/proc/self/fd/{fd}") and stat.S_ISSOCK(os.fstat(fd).st_mode))
answer = b'["early",null]'
os.write(fd, len(answer).to_bytes(4, "big") + answer)
threading.Event().wait()
"""
    assert (await tool.run(make_call({"code": code}))).result == "early"
    assert (await tool.run(make_call({"code": "return 'own'"}))).result == "own"
    await tool.close()


@pytest.mark.parametrize(
    ("code", "how", "retryable"),
    [
        ("import os\nprint('last words')\nos._exit(7)", "exit code 7", False),
        ("print('last words')\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "signal SIGKILL", True),
        ("print('last words')\nimport os\nos.abort()", "signal SIGABRT", False),
    ],
)
async def test_a_crash_is_reported_with_its_cause_and_output(run: Any, code: str, how: str, retryable: bool) -> None:
    with pytest.raises(ToolFailure) as failed:
        await run(code)
    error = failed.value.error
    assert error.kind == "crashed"
    assert how in error.message
    assert error.retryable is retryable
    assert failed.value.output.startswith("last words\n")


async def test_a_crash_in_native_code_names_the_line(run: Any) -> None:
    with pytest.raises(ToolFailure) as failed:
        await run("import ctypes\n\nctypes.string_at(0)")
    assert "signal SIGSEGV) on line 3" in failed.value.error.message


async def test_output_of_the_code_and_of_what_it_starts_is_captured_in_order(run: Any) -> None:
    code = """
import logging, os, subprocess, sys
print('one')
print('two', file=sys.stderr)
subprocess.run(['echo', 'three'])
os.write(2, b'four\\n')
sys.stdout.buffer.write(b'five\\n')
logging.warning('six')
print('no line end', end='')
"""
    done = await run(code)
    assert done.output == "one\ntwo\nthree\nfour\nfive\nWARNING:root:six\nno line end"
    assert (await run("pass")).output == ""


@pytest.mark.parametrize(
    "code",
    [
        "print('x' * 100_000, end='')",
        "import subprocess\nsubprocess.run(['head', '-c', '300000', '/dev/zero'])",
    ],
)
async def test_output_of_a_child_is_bounded(run: Any, code: str) -> None:
    assert len((await run(code)).output) == MAX_OUTPUT_BYTES
    assert (await run("print('next')")).output == "next\n"


def test_the_worker_marks_the_cut_of_all_output_that_was_bounded() -> None:
    longest_character_bytes = len("😀".encode())
    assert MAX_OUTPUT_BYTES // longest_character_bytes > MAX_OUTPUT_CHARACTERS


async def test_output_of_a_failed_run_is_kept(run: Any) -> None:
    with pytest.raises(ToolFailure) as failed:
        await run("print('so far')\nraise ValueError")
    assert failed.value.output == "so far\n"


async def test_a_file_that_does_not_exist_for_tasks_is_an_error_that_says_which_do(run: Any) -> None:
    with pytest.raises(ToolFailure, match="what the worker's NOETL_CHILD_PATHS allows: nothing else exists for it"):
        await run("open('/srv/no/such/file')")


async def test_standard_input_is_empty(run: Any) -> None:
    with pytest.raises(ToolFailure, match="EOFError"):
        await run("input()")


async def test_runs_share_the_children_and_wait_for_a_free_one(run: Any, home: Home) -> None:
    code = CALL_HOME.replace("getpid", "getcwd") + "result = [os.getcwd(), home.recv(1).decode()]"
    tasks = [asyncio.ensure_future(run(code, path=home.path)) for _ in range(3)]
    first, second = await home.calls.get(), await home.calls.get()
    assert first[0] != second[0]
    assert home.calls.empty()
    for _, _, writer in (first, second):
        writer.write(b"g")
    third = await home.calls.get()
    assert third[0] in (first[0], second[0])
    third[2].write(b"g")
    assert {tuple(done.result) for done in await asyncio.gather(*tasks)} == {(first[0], "g"), (second[0], "g")}
    for _, _, writer in (first, second, third):
        writer.close()


async def test_closing_kills_children_at_work(tool: PythonTool, run: Any, home: Home) -> None:
    task = asyncio.ensure_future(run(CALL_HOME + "import time\ntime.sleep(600)", path=home.path))
    _, reader, writer = await home.calls.get()
    await tool.close()
    await expect_gone(reader)
    with pytest.raises(ToolFailure):
        await task
    writer.close()


async def test_children_die_with_the_worker(home: Home, folder: str) -> None:
    worker = f"""
import asyncio
from noetl_stream.playbook.plan import Timeouts
from noetl_stream.settings.children import ChildSettings
from noetl_stream.tools.contract import ToolCall
from noetl_stream.tools.python.tool import PythonTool
code = {CALL_HOME!r} + "import subprocess\\nsubprocess.run(['sh', '-c', 'setsid sleep 600'], pass_fds=[home.fileno()])"
call = ToolCall(
    inputs={{"code": code, "args": {{"path": {home.path!r}}}}}, knobs={{}}, timeouts=Timeouts(), idempotency_key="k",
    execution_id="e", step="s", task="t", attempt=1, trust_domain="", scope={{}}, credential=None,
)
asyncio.run(PythonTool(ChildSettings(paths=({folder!r},))).run(call))
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", worker)
    async with asyncio.timeout(TIMEOUT_S):
        _, reader, writer = await home.calls.get()
        process.kill()
        await process.wait()
        await expect_gone(reader)
    writer.close()


FREEZING = """
import asyncio, os, sys
from noetl_stream.settings.children import ChildSettings
from noetl_stream.tools.children.launcher import Launcher
from noetl_stream.tools.children.messages import ExternalProgram

async def main(script: str) -> int:
    launcher = Launcher(ChildSettings(), silent_s=3)
    null, (read, write) = os.open(os.devnull, os.O_RDWR), os.pipe()
    program = ExternalProgram([b"sh", b"-c", script.encode()], {}, None)
    child = await launcher.start([null, null, null, write], program)
    print(child.process_id, flush=True)
    if sys.argv[2:]:
        sys.stdin.read()  # blocks the loop, and the pulse goes on
    code = await child.end()
    await launcher.close()
    return code

print(asyncio.run(main(sys.argv[1])))
"""
"""A worker with one child, which is killed 3 s after the worker has given no sign of life."""


def has_ended(line: bytes) -> bool:
    """Whether the child ends whose process id a worker has printed."""
    return wait_until_ended(int(line), 60)


async def test_children_of_a_worker_that_is_frozen_die_soon() -> None:
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FREEZING, "sleep 600", stdout=asyncio.subprocess.PIPE
    )
    assert worker.stdout is not None
    async with asyncio.timeout(60):
        child = await worker.stdout.readline()
        worker.send_signal(signal.SIGSTOP)
        assert await asyncio.to_thread(has_ended, child)
        worker.send_signal(signal.SIGCONT)
        assert (await worker.stdout.read()).split() == [str(-signal.SIGKILL).encode()]


@pytest.mark.verify
async def test_children_of_a_worker_whose_loop_is_blocked_live_on() -> None:
    """The child ends by itself, after twice the time in which that of a frozen worker is killed."""
    given, written = os.pipe()
    script = "sleep 6"
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FREEZING, script, "blocked", stdin=given, stdout=asyncio.subprocess.PIPE
    )
    os.close(given)
    assert worker.stdout is not None
    async with asyncio.timeout(60):
        assert await asyncio.to_thread(has_ended, await worker.stdout.readline())
        os.close(written)
        assert (await worker.stdout.read()).split() == [b"0"]


async def test_children_die_with_the_process_that_forked_them_and_another_takes_its_place(run: Any, home: Home) -> None:
    task = asyncio.ensure_future(run(CALL_HOME + "import time\ntime.sleep(600)", path=home.path))
    process_id, reader, writer = await home.calls.get()
    _, zygote = task_process(int(process_id)).parents()[:2]
    zygote.kill()
    await expect_gone(reader)
    with pytest.raises(ToolFailure, match="signal SIGKILL"):
        await task
    assert (await run("return 'next'")).result == "next"
    writer.close()


async def test_the_worker_s_environment_is_not_the_code_s(make_call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOETL_CREDENTIAL_BANK", "secret")
    tool = PythonTool()
    code = "import os\nresult = dict(os.environ)"
    assert set((await tool.run(make_call({"code": code}))).result) == {"PATH", "LANG", "HOME", "TMPDIR"}
    await tool.close()
    tool = PythonTool(environment={"TEAM": "blue"})
    assert "blue" in (await tool.run(make_call({"code": code}))).result["TEAM"]
    await tool.close()


async def test_code_imports_what_the_worker_can_but_nothing_from_the_current_folder(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "near").mkdir()
    (tmp_path / "near" / "near_module.py").write_text("")
    (tmp_path / "known_module.py").write_text("value = 5\n")
    monkeypatch.chdir(tmp_path / "near")
    monkeypatch.syspath_prepend(tmp_path)
    assert (await run("import known_module\nresult = known_module.value")).result == 5
    with pytest.raises(ToolFailure, match="No module named 'near_module'"):
        await run("import near_module")


async def test_a_worker_that_cannot_start_a_process_has_not_begun_the_task(
    make_call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(WorkerUnfit, match=r"cannot start a child process: .*/no/such/python"):
        await PythonTool().run(make_call({"code": "pass"}))


async def test_a_folder_of_a_child_that_cannot_be_made_is_named(
    make_call: Any, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    temporary = tmp_path_factory.mktemp("homes")
    for opened in (temporary, temporary.parent):
        opened.chmod(0o755)  # a child may have a user of its own
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    tool = PythonTool(ChildSettings(isolation="task"))
    await tool.run(make_call({"code": "pass"}))
    (homes,) = (one for one in temporary.glob("noetl-children-*") if one.suffix != ".stage")
    gone = homes.rename(temporary / "gone")  # nothing can be made there, as on a full disk
    with pytest.raises(WorkerUnfit, match=rf"cannot start a child process: .*No such file .*{homes}/\d+"):
        await tool.run(make_call({"code": "pass"}))
    gone.rename(homes)
    await tool.run(make_call({"code": "pass"}))
    await tool.close()


def test_children_work_on_uvloop_too(make_call: Any) -> None:
    async def runs() -> list[Any]:
        tool = PythonTool(max_children=1)
        first = (await tool.run(make_call({"code": "print('out')\nresult = 'x' * 200_000"}))).result
        with pytest.raises(ToolFailure, match="exit code 7"):
            await tool.run(make_call({"code": "import os\nos._exit(7)"}))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await tool.run(make_call({"code": "import time\ntime.sleep(600)"}))
        second = (await tool.run(make_call({"code": "print('out')"}))).output
        await tool.close()
        return [len(first), second]

    assert uvloop.run(runs()) == [200_000, "out\n"]


@pytest.mark.parametrize(("place", "found"), [(0, False), (-1, True)])
async def test_code_sees_the_current_folder_only_if_something_is_installed_from_it(
    place: int, found: bool, make_call: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`python -m` puts it first in the import path; an editable installation of a flat project, later."""
    (tmp_path / "own_module_of_this_test.py").write_text("")
    monkeypatch.chdir(tmp_path)
    entries = [entry for entry in sys.path if entry not in ("", str(tmp_path))]
    monkeypatch.setattr(sys, "path", [str(tmp_path), *entries] if place == 0 else [*entries, str(tmp_path)])
    tool = PythonTool()
    try:
        call = make_call(
            {"code": "import importlib.util as u\nreturn u.find_spec('own_module_of_this_test') is not None"}
        )
        assert (await tool.run(call)).result is found
    finally:
        await tool.close()


def test_code_can_import_packages_that_setuptools_installs_as_editable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its packages are found by a finder, not by the import path."""
    finder = ModuleType("__editable___shop_1_0_finder")
    finder.MAPPING = {"shop": "/srv/shop/src/shop", "till": "/srv/shop/src/till"}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, finder.__name__, finder)
    assert {"/srv/shop/src/shop", "/srv/shop/src/till.py"} <= {*import_folders()}


def test_imports_of_a_template_register_no_hook_that_each_fork_would_run() -> None:
    shown = """
        import os
        hooks = []
        os.register_at_fork = lambda **given: hooks.append(given)
        from noetl_stream.tools.children import zygote
        from noetl_stream.tools.python import child
        print(len(hooks))
    """
    ran = subprocess.run([sys.executable, "-c", dedent(shown)], capture_output=True, text=True, check=True)
    assert ran.stdout == "0\n"
