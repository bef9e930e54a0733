from __future__ import annotations

import asyncio
import errno
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvloop

from noetl_stream.settings.children import ChildSettings
from noetl_stream.tools.children.measures import confinement_of
from noetl_stream.tools.contract import ToolFailure, ToolResult, WorkerUnfit
from noetl_stream.tools.shell import ShellTool
from noetl_testkit.task_processes import zygotes

Run = Callable[..., Awaitable[ToolResult]]

HOLDS_AND_WAITS = "exec 3> '{fifo}'; sleep 1000 & sh -c 'sleep 1000 & echo ready >&3; wait'"
"""A command, its child and its grandchild hold the pipe ``fifo`` open, so that it closes when all have ended."""

ESCAPES_AND_WAITS = (
    "exec 3> '{fifo}'; (setsid sh -c 'setsid sh -c \"echo away >&3; sleep 1000\" & wait' &); echo ready >&3; sleep 1000"
)
"""The same, but child and grandchild are orphans in their own sessions."""


@pytest.fixture
def tool(tmp_path: Path) -> ShellTool:
    """May use the files of the test, which belong to the worker's user."""
    return ShellTool(ChildSettings(user="worker", paths=(str(tmp_path),)))


@pytest.fixture
async def run(make_call: Any, tool: ShellTool) -> AsyncIterator[Run]:
    async def run(command: Any, knobs: Any = None, **inputs: Any) -> ToolResult:
        return await tool.run(make_call({"command": command, **inputs}, knobs=knobs))

    yield run
    await tool.close()


async def failure(running: Awaitable[ToolResult]) -> ToolFailure:
    with pytest.raises(ToolFailure) as failed:
        await running
    return failed.value


async def test_the_result_is_exit_code_and_both_outputs(run: Run) -> None:
    done = await run("echo out; echo err >&2")
    assert done.result == {"exit_code": 0, "stdout": "out\n", "stderr": "err\n"}


async def test_text_is_for_the_shell_and_a_list_is_not(run: Run) -> None:
    assert (await run("printf %s a | tr a b; echo $((1 + 1))")).result["stdout"] == "b2\n"
    assert (await run(["printf", "%s|", "$HOME", "a b; c", 5, 0.5])).result["stdout"] == "$HOME|a b; c|5|0.5|"


@pytest.mark.parametrize(
    ("command", "exit_code", "message"),
    [
        ("echo gone wrong >&2; exit 3", 3, "the command exited with 3: gone wrong"),
        (["false"], 1, "the command exited with 1"),
        ("kill -9 $$", 137, "the command exited with 137"),
        ("no-such-program", 127, "the command exited with 127: "),
    ],
)
async def test_another_exit_code_than_0_is_an_error_that_keeps_the_result(
    run: Run, command: Any, exit_code: int, message: str
) -> None:
    failed = await failure(run(command))
    assert (failed.error.kind, failed.error.code, failed.error.retryable) == ("exit_status", str(exit_code), False)
    assert failed.error.message.startswith(message)
    assert failed.result["exit_code"] == exit_code
    assert set(failed.result) == {"exit_code", "stdout", "stderr"}


async def test_the_environment_has_only_the_given_variables(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOETL_CREDENTIAL_BANK", "s3cret")
    lines = (await run(["env"], env={"PORT": 8080, "NAME": "a=b"})).result["stdout"].splitlines()
    own = {name: value for name, value in (line.split("=", 1) for line in lines) if name in ("HOME", "TMPDIR")}
    assert sorted(line for line in lines if not line.startswith(tuple(own))) == [
        "LANG=C.UTF-8",
        "NAME=a=b",
        "NOETL_IDEMPOTENCY_KEY=key-1",
        f"PATH={os.defpath}",
        "PORT=8080",
    ]
    assert own["HOME"] == own["TMPDIR"]


async def test_a_command_runs_in_the_given_folder(run: Run, tmp_path: Path) -> None:
    assert (await run("pwd -P", cwd=str(tmp_path))).result["stdout"].strip() == os.path.realpath(tmp_path)  # noqa: ASYNC240


async def test_by_default_it_runs_in_a_folder_of_its_own_that_is_removed(run: Run) -> None:
    folder = (await run('echo word > file; cat "$HOME/file" >&2; pwd')).result["stdout"].strip()
    assert not await asyncio.to_thread(Path(folder).exists)
    assert (await run("ls -A")).result["stdout"] == ""


async def test_standard_input_is_the_given_text_and_empty_by_default(run: Run) -> None:
    assert (await run("cat", stdin="é\n" * 100_000)).result["stdout"] == "é\n" * 100_000
    assert (await run("cat")).result["stdout"] == ""
    assert (await run("true", stdin="x" * 1_000_000)).result["exit_code"] == 0


async def test_output_over_the_cap_is_dropped_and_counted(run: Run) -> None:
    done = await run("printf 1234567; printf 123 >&2", {"max_output_bytes": 5})
    assert done.result == {"exit_code": 0, "stdout": "12345", "stderr": "123", "stdout_dropped_bytes": 2}
    done = await run("head -c 3000000 /dev/zero | tr '\\0' x")
    assert len(done.result["stdout"]) == 1024 * 1024
    assert done.result["stdout_dropped_bytes"] == 3_000_000 - 1024 * 1024


async def test_output_is_always_text(run: Run) -> None:
    assert (await run("printf 'a\\377b'")).result["stdout"] == "a\ufffdb"
    failed = await failure(run("printf 'a\\0b'"))
    assert (failed.error.kind, failed.error.message) == (
        "result_not_json",
        "stdout: text must not contain a NUL character",
    )


@pytest.mark.parametrize("on_uvloop", [False, True])
def test_cancelling_kills_the_command_and_what_it_started(
    make_call: Any, tool: ShellTool, tmp_path: Path, on_uvloop: bool
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    async def cancel() -> None:
        reader = asyncio.create_task(asyncio.to_thread(fifo.open))
        task = asyncio.create_task(tool.run(make_call({"command": HOLDS_AND_WAITS.format(fifo=fifo)})))
        with await reader as held:
            assert await asyncio.to_thread(held.readline) == "ready\n"
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(held.read) == ""  # ends when the last of them is gone

    with asyncio.Runner(loop_factory=uvloop.new_event_loop if on_uvloop else None) as runner:
        runner.run(asyncio.wait_for(cancel(), 30))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only the process group ends")
@pytest.mark.parametrize("on_uvloop", [False, True], ids=["asyncio", "uvloop"])
def test_cancelling_kills_what_left_the_group_and_its_parent(
    make_call: Any, tool: ShellTool, tmp_path: Path, on_uvloop: bool
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    async def cancel() -> None:
        reader = asyncio.create_task(asyncio.to_thread(fifo.open))
        task = asyncio.create_task(tool.run(make_call({"command": ESCAPES_AND_WAITS.format(fifo=fifo)})))
        with await reader as held:
            assert {await asyncio.to_thread(held.readline) for _ in range(2)} == {"ready\n", "away\n"}
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(held.read) == ""

    with asyncio.Runner(loop_factory=uvloop.new_event_loop if on_uvloop else None) as runner:
        runner.run(asyncio.wait_for(cancel(), 30))


async def test_background_processes_end_with_the_command(run: Run, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = asyncio.create_task(asyncio.to_thread(fifo.read_text))
    done = await run(f"exec 3> '{fifo}'; sleep 1000 & echo started")
    assert done.result["stdout"] == "started\n"
    assert await reader == ""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody adopts orphans")
async def test_a_process_that_left_the_group_ends_with_the_command_too(run: Run, tmp_path: Path) -> None:
    ready, held = tmp_path / "ready", tmp_path / "held"
    os.mkfifo(ready)
    os.mkfifo(held)
    reader = asyncio.create_task(asyncio.to_thread(held.read_text))
    away = f"exec 3> '{held}'; setsid sh -c \"echo away > '{ready}'; sleep 1000\" & read word < '{ready}'; echo $word"
    assert (await run(away)).result["stdout"] == "away\n"
    assert await reader == ""


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "command: field required"),
        ({"command": []}, "command: list should have at least 1 item"),
        ({"command": ["a", None]}, "command.1: input should be a valid"),
        ({"command": ["no-such-program"]}, "command: cannot start the command: No such file or directory"),
        ({"command": ["/"]}, "command: cannot start the command: Permission denied"),
        ({"command": "echo \0"}, "command, cwd and env must not contain a NUL character"),
        ({"command": "echo", "cwd": "/no/such/folder"}, "cwd: no such folder on this worker"),
        ({"command": "echo", "env": {"A=B": "x"}}, "env: invalid environment variable name 'A=B'"),
        ({"command": "echo", "env": {"A": None}}, "env.A: input should be a valid"),
        ({"command": "echo", "shell": True}, "shell: unknown input"),
    ],
)
async def test_wrong_inputs_are_refused(make_call: Any, inputs: dict[str, Any], message: str) -> None:
    failed = await failure(ShellTool().run(make_call(inputs)))
    assert failed.error.kind == "invalid_input"
    assert message in failed.error.message


@pytest.mark.parametrize(
    "inputs",
    [
        {"command": ["echo", "x" * 300_000]},
        {"command": "echo " + "x" * 300_000},
        {"command": ["echo"] + ["x" * 1000] * 10_000},
        {"command": "echo", "env": {"X": "x" * 300_000}},
    ],
    ids=["word", "text", "words", "variable"],
)
async def test_arguments_beyond_the_limit_of_a_program_are_refused_and_the_next_command_runs(
    run: Run, inputs: dict[str, Any]
) -> None:
    failed = await failure(run(**inputs))
    assert (failed.error.kind, failed.error.retryable) == ("invalid_input", False)
    assert "command: Argument list too long: command and env have" in failed.error.message
    assert failed.error.message.endswith("pass the data by stdin or in a file")
    assert (await run("echo hi")).result["stdout"] == "hi\n"


@pytest.mark.skipif(confinement_of(ChildSettings()).level != "full", reason="tasks see all folders here")
async def test_a_folder_that_the_operator_has_not_opened_is_no_working_folder(run: Run) -> None:
    with tempfile.TemporaryDirectory() as closed:
        failed = await failure(run("pwd", cwd=closed))
    assert failed.error.kind == "invalid_input"
    assert f"in {closed}, which NOETL_CHILD_PATHS has to allow: No such file" in failed.error.message


async def test_input_larger_than_a_socket_buffer_reaches_every_one_of_many_commands(run: Run) -> None:
    words = ["x" * 1000] * 1000
    done = await asyncio.gather(*(run(["sh", "-c", "echo $#", "sh", *words]) for _ in range(8)))
    assert {one.result["stdout"] for one in done} == {"1000\n"}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the test cannot find the process that forks")
async def test_a_process_that_starts_children_and_does_not_answer_is_replaced(make_call: Any, tmp_path: Path) -> None:
    """What it had not begun runs with the next one; what it had begun fails."""
    tool = ShellTool(ChildSettings(user="worker", paths=(str(tmp_path),)), answer_s=1)
    begun = tmp_path / "begun"
    os.mkfifo(begun)

    async def run(command: str) -> ToolResult:
        return await tool.run(make_call({"command": command}))

    others = zygotes()
    await run("true")
    (zygote,) = zygotes() - others
    running = asyncio.ensure_future(run(f"cd {tmp_path}; mkdir once || exit 1; echo > begun; exec sleep 1000"))
    await asyncio.to_thread(begun.read_text)
    zygote.suspend()
    waiting = [asyncio.ensure_future(run(f"echo {'x' * 100_000} | wc -c")) for _ in range(4)]
    assert {done.result["stdout"] for done in await asyncio.gather(*waiting)} == {"100001\n"}
    assert zygotes() - others - {zygote}
    assert (await failure(running)).error.kind == "exit_status"
    await tool.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the test cannot find the process that forks")
async def test_closing_ends_even_if_that_process_does_not_answer(make_call: Any) -> None:
    tool = ShellTool(ChildSettings(user="worker"), answer_s=1)
    others = zygotes()
    await tool.run(make_call({"command": "true"}))
    (zygote,) = zygotes() - others
    zygote.suspend()
    await tool.close()
    assert not psutil.pid_exists(zygote.pid)


async def test_a_worker_without_descriptors_has_not_begun_the_command(
    make_call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> tuple[int, int]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pipe", fail)
    with pytest.raises(WorkerUnfit, match="cannot start a command: Too many open files"):
        await ShellTool().run(make_call({"command": "echo"}))


async def test_a_command_knows_the_trace_it_belongs_to(make_call: Any, tool: ShellTool) -> None:
    seen = []
    for env in ({}, {"TRACEPARENT": "own"}):
        call = make_call({"command": "echo $TRACEPARENT", "env": env}, traceparent="00-1-2-01")
        seen.append((await tool.run(call)).result["stdout"])
    await tool.close()
    assert seen == ["00-1-2-01\n", "own\n"]
