"""Asynchronous playbook code that shares a process: what its runs share, and what stays apart (``python_shared``)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from textwrap import dedent, indent
from typing import Any

import pytest
import uvloop
from msgspec.structs import replace

from measured import samples_of
from noetl_stream.playbook.compile.compiler import check
from noetl_stream.settings.children import ChildSettings
from noetl_stream.tools.contract import ToolFailure, ToolResult
from noetl_stream.tools.python import shared
from noetl_stream.tools.python.tool import PythonTool
from noetl_stream.tools.registry import kinds_of, load_tools
from noetl_testkit.task_processes import WHO, process_named, task_process
from noetl_testkit.waiting import until

MEETING = f"""{WHO}
import asyncio, sys, types

def meeting():
    new = types.SimpleNamespace(begun=0, all_are_here=asyncio.Event())
    return sys.modules.setdefault("meeting", new)

async def main(n):
    here = meeting()
    here.begun += 1
    if here.begun == n:
        here.all_are_here.set()
    await here.all_are_here.wait()
    return [here.begun, who()]
"""
"""Code whose runs wait until ``n`` of them have begun."""

FOREVER = f"""{WHO}
import asyncio

async def main(ends=True):
    print(who())
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if ends:
                print("cancelled")
                raise
"""
"""Code that says that it has begun, and waits until it is cancelled, or longer."""


class Run(asyncio.Task[ToolResult]):
    """A run that goes on, and what it has written."""

    def __init__(self, tool: PythonTool, call: Any) -> None:
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()
        super().__init__(tool.run(replace(call, write=lambda _, data: data and self.lines.put_nowait(data))))


class Runner:
    """Runs code that shares a process, unless its knobs say otherwise."""

    def __init__(self, tool: PythonTool, make_call: Any) -> None:
        self.tool = tool
        self._make_call = make_call

    def begin(self, code: str, *, domain: str = "", execution: str = "e", shared: bool = True, **args: Any) -> Run:
        knobs = {"python_shared": shared}
        call = self._make_call({"code": code, "args": args}, knobs=knobs, trust_domain=domain, execution_id=execution)
        return Run(self.tool, call)

    async def __call__(self, code: str, **options: Any) -> Any:
        return (await self.begin(code, **options)).result

    async def begun(self, **options: Any) -> tuple[Run, str]:
        """A run of :data:`FOREVER`, and its process."""
        run = self.begin(FOREVER, **options)
        return run, (await run.lines.get()).decode().strip()


@pytest.fixture
async def tool() -> AsyncIterator[PythonTool]:
    tool = PythonTool(max_children=4)
    yield tool
    await tool.close()


@pytest.fixture
def run(tool: PythonTool, make_call: Any) -> Runner:
    return Runner(tool, make_call)


async def failure(run: Run) -> ToolFailure:
    with pytest.raises(ToolFailure) as failed:
        await run
    return failed.value


async def test_forty_runs_that_wait_for_one_another_end_with_four_places(run: Runner) -> None:
    runs = [run.begin(MEETING, n=40) for _ in range(40)]
    results = [(await one).result for one in runs]
    assert {begun for begun, _ in results} == {40}
    assert len({process for _, process in results}) == 1
    assert samples_of(run.tool.readings())["noetl_worker_python_children_started_total"] == 1


async def test_shared_runs_take_one_place_together(run: Runner) -> None:
    runs = [(await run.begun())[0] for _ in range(5)]
    assert (run.tool.capacity.busy, run.tool.capacity.waiting) == (1, 0)
    assert await run("return 'own'", shared=False) == "own"
    for one in runs:
        one.cancel()
    await asyncio.wait(runs)


async def test_runs_share_no_process_without_the_knob(run: Runner) -> None:
    first, second = [await run(MEETING, n=1, shared=False) for _ in range(2)]
    assert (first[0], second[0]) == (1, 1)
    assert first[1] != second[1]
    assert [(await run(MEETING, n=1))[0] for _ in range(2)] == [1, 2]


async def test_modules_are_shared_and_globals_are_not(run: Runner) -> None:
    code = """
        import math
        math.seen = getattr(math, "seen", 0) + 1
        own = globals().get("own", 0) + 1
        async def main():
            return [math.seen, own, __name__ in __import__("sys").modules]
    """
    assert [await run(dedent(code)) for _ in range(2)] == [[1, 1, True], [2, 1, True]]


@pytest.mark.parametrize("difference", [{"domain": "another playbook"}, {"domain": "another principal"}])
async def test_another_domain_has_another_process(run: Runner, difference: dict[str, str]) -> None:
    (first, _), (second, _) = await run(MEETING, n=1), await run(MEETING, n=1, **difference)
    assert (first, second) == (1, 1)


@pytest.mark.parametrize(("isolation", "begun"), [("shared", [1, 2, 3]), ("execution", [1, 2, 1]), ("task", [1, 1, 1])])
async def test_the_operator_narrows_what_is_shared(make_call: Any, isolation: Any, begun: list[int]) -> None:
    run = Runner(PythonTool(ChildSettings(isolation=isolation)), make_call)
    assert [(await run(MEETING, n=1, execution=one))[0] for one in ("a", "a", "b")] == begun
    await run.tool.close()


async def test_output_goes_to_the_run_that_writes_it(run: Runner) -> None:
    code = """
        import asyncio, logging, sys
        async def main(name):
            print("begin", name, end=" ")
            meeting = sys.modules.setdefault("barrier", asyncio.Barrier(2))
            await meeting.wait()
            logging.info(name)
            await asyncio.to_thread(print, "thread of", name)
            await asyncio.create_task(work(name))
            await meeting.wait()
            sys.stdout.buffer.write(f"bytes of {name}".encode())
        async def work(name):
            print("task of", name, file=sys.stderr)
    """
    runs = [run.begin(dedent(code), name=name) for name in ("a", "b")]
    for name, one in zip(("a", "b"), runs, strict=True):
        expected = f"begin {name} INFO:root:{name}\nthread of {name}\ntask of {name}\nbytes of {name}"
        assert (await one).output == expected


async def test_cancelling_one_shared_run_leaves_the_others(run: Runner) -> None:
    (first, process), (second, other) = await run.begun(), await run.begun()
    assert process == other
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert first.lines.get_nowait() == b"cancelled\n"
    assert (await run(MEETING, n=1))[1] == process
    assert not second.done()
    second.cancel()
    await asyncio.wait([second])


async def test_a_run_that_does_not_end_when_cancelled_ends_the_process(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "CANCEL_S", 0.1)
    stubborn, process = await run.begun(ends=False)
    other, _ = await run.begun()
    stubborn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stubborn
    failed = await failure(other)
    assert (failed.error.kind, failed.error.retryable) == ("crashed", True)
    assert failed.error.message == (
        "the process that ran step.task died (signal SIGKILL), and with it 1 more that share it (python_shared): a run "
        "did not end within 0.1 s of its cancellation"
    )
    assert (await run(MEETING, n=1))[1] != process


@pytest.mark.parametrize(
    ("end", "how"), [("os.kill(os.getpid(), 9)", "signal SIGKILL"), ("os._exit(7)", "exit code 7")]
)
async def test_the_end_of_the_process_fails_all_its_runs_with_words(run: Runner, end: str, how: str) -> None:
    runs = [(await run.begun())[0] for _ in range(2)]
    runs.append(run.begin(f"import os\nasync def main():\n    print('last words')\n    {end}"))
    for one in runs:
        failed = await failure(one)
        assert (failed.error.kind, failed.error.retryable) == ("crashed", True)
        assert f"died ({how}), and with it 2 more that share it (python_shared)" in failed.error.message
    assert failed.output == "last words\n"
    assert (await run(MEETING, n=1))[0] == 1
    assert samples_of(run.tool.readings())["noetl_worker_python_children_killed_total"] == 1


async def test_a_fault_in_native_code_names_the_line_and_no_run_has_what_programs_wrote(run: Runner) -> None:
    code = """
        import ctypes, os
        async def main():
            print("own")
            os.system("echo of a program")
            ctypes.string_at(0)
    """
    failed = await failure(run.begin(dedent(code)))
    assert failed.error.message == "the process that ran step.task died (signal SIGSEGV) on line 6"
    assert failed.output == "own\n"


async def test_a_run_that_had_not_begun_runs_in_the_next_process(run: Runner) -> None:
    blocking = run.begin("import os, time\nasync def main():\n    print(os.getpid())\n    time.sleep(600)")
    process = int(await blocking.lines.get())
    waiting = run.begin(MEETING, n=1)
    await asyncio.sleep(0)
    task_process(process).kill()
    assert (await failure(blocking)).error.kind == "crashed"
    assert (await waiting).result[0] == 1


async def test_a_task_that_a_run_has_left_may_exit_and_the_process_lives(run: Runner) -> None:
    code = """
        import asyncio, os, sys
        async def leave():
            sys.exit(3)
        async def main():
            asyncio.get_running_loop().call_soon(sys.exit, 4)
            try:
                await asyncio.create_task(leave())
            except SystemExit as exit:
                return [exit.code, who()]
    """
    (code_of_exit, first), (_, second) = await run(WHO + dedent(code)), await run(MEETING, n=1)
    assert (code_of_exit, first) == (3, second)


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        ("raise KeyError('k')", "exception", "KeyError: 'k' (line 2 of step.task)"),
        ("exit(3)", "exception", "SystemExit: the code called sys.exit(3) (line 2 of step.task)"),
        ("return object()", "result_not_json", "result: object cannot be converted to JSON"),
        ("return 'x' * 20_000_000", "result_too_large", "the limit is 16,777,216 (max_result_bytes)"),
    ],
)
async def test_failures_are_those_of_other_runs(run: Runner, body: str, kind: str, message: str) -> None:
    code = f"async def main():\n    {body}"
    own, alone = await failure(run.begin(code)), await failure(run.begin(code, shared=False))
    assert own.error == alone.error
    assert own.error.kind == kind
    assert message in own.error.message


SYNC = "with python_shared the code must define `async def main(…)`, which is awaited"


@pytest.mark.parametrize("code", ["return 1", "def main():\n    return 1", "def f():\n    async def main(): ...", ""])
async def test_code_that_is_not_asynchronous_is_refused_by_check_and_by_the_run(run: Runner, code: str) -> None:
    text = f"""
        apiVersion: noetl.io/v2
        kind: Playbook
        metadata: {{ name: p, path: p }}
        executor: {{ spec: {{ python_shared: SHARED }} }}
        workflow:
          - step: start
            tool:
              kind: python
              code: |
{indent(code, " " * 16)}
    """
    kinds = kinds_of(load_tools())
    [found] = check(dedent(text).replace("SHARED", "true"), kinds).diagnostics
    assert (found.code, found.severity, found.message, found.line) == ("invalid_value", "error", SYNC, 5)
    assert not check(dedent(text).replace("SHARED", "false"), kinds).diagnostics
    failed = await failure(run.begin(code))
    assert (failed.error.kind, failed.error.message) == ("invalid_input", SYNC)


async def test_code_that_returns_before_its_main_is_awaited_is_refused_by_the_run(run: Runner) -> None:
    failed = await failure(run.begin("async def main():\n    return 1\nreturn 2"))
    assert (failed.error.kind, failed.error.message) == ("invalid_input", SYNC)


async def test_code_that_does_not_parse_is_a_syntax_error(run: Runner) -> None:
    assert (await failure(run.begin("async def main("))).error.kind == "syntax"


async def test_a_process_without_runs_gives_its_place_to_whoever_waits(make_call: Any) -> None:
    run = Runner(PythonTool(max_children=1), make_call)
    await run(MEETING, n=1)
    assert run.tool.capacity.busy == 1
    assert await run("return 'own'", shared=False) == "own"
    assert (await run(MEETING, n=1))[0] == 1
    forever, _ = await run.begun()
    waiting = run.begin("return 'waited'", shared=False)
    await asyncio.sleep(0)
    assert run.tool.capacity.waiting == 1
    forever.cancel()
    assert (await waiting).result == "waited"
    await run.tool.close()


async def test_runs_wait_for_the_place_of_their_process_and_say_for_what(make_call: Any) -> None:
    run = Runner(PythonTool(max_children=1), make_call)
    seen: list[str] = []

    @contextlib.contextmanager
    def queued(what: str) -> Iterator[None]:
        seen.append(what)
        yield

    forever, _ = await run.begun(shared=False)
    call = make_call({"code": MEETING, "args": {"n": 2}}, knobs={"python_shared": True})
    runs = [asyncio.ensure_future(run.tool.run(replace(call, queued=queued))) for _ in range(3)]
    await asyncio.sleep(0)
    assert seen == ["a free Python child: 1 of 1 busy, NOETL_PYTHON_CHILDREN sets how many"] * 3
    runs.pop().cancel()
    forever.cancel()
    assert {(await one).result[0] for one in runs} == {2}
    await run.tool.close()


async def test_the_process_ends_after_a_rest(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "REST_S", 0.01)
    _, process = await run(MEETING, n=1)
    await until(lambda: process_named(process) is None)
    assert (await run(MEETING, n=1))[0] == 1


async def test_a_process_takes_runs_for_a_while_only_and_ends_with_the_last(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "RENEWAL_S", 0)
    (first, process), (second, other) = await run.begun(), await run.begun()
    assert process != other
    first.cancel()
    second.cancel()
    await asyncio.wait([first, second])
    await until(lambda: process_named(process) is process_named(other) is None)


async def test_runs_beyond_the_capacity_of_a_process_have_another(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "MAX_SHARED_JOBS", 2)
    runs = [await run.begun() for _ in range(3)]
    assert len({process for _, process in runs}) == 2
    for one, _ in runs:
        one.cancel()
    await asyncio.wait([one for one, _ in runs])


async def test_a_process_that_sends_anything_but_answers_is_killed(run: Runner) -> None:
    code = """
        import os, stat
        async def main():
            for fd in range(3, 64):
                if os.path.exists(f"/proc/self/fd/{fd}") and stat.S_ISSOCK(os.fstat(fd).st_mode):
                    os.write(fd, bytes([0, 0, 0, 2, 7, 7]))
    """
    assert (await failure(run.begin(dedent(code)))).error.kind == "crashed"


def test_runs_share_a_process_on_uvloop_too(make_call: Any) -> None:
    async def runs() -> set[int]:
        run = Runner(PythonTool(max_children=1), make_call)
        results = [await one for one in [run.begin(MEETING, n=3) for _ in range(3)]]
        await run.tool.close()
        return {one.result[0] for one in results}

    assert uvloop.run(runs()) == {3}
