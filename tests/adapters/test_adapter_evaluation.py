"""Processes that evaluate templates: reused, without environment, killed when they exceed their limits."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from noetl_stream.adapters.evaluation import pool as evaluation_pool
from noetl_stream.adapters.evaluation.child import MAX_MEMORY_BYTES
from noetl_stream.adapters.evaluation.pool import EvaluationPool
from noetl_stream.engine.choices import Choice, Rendering, ask, decode_answers
from noetl_stream.errors import EvaluationEnded
from noetl_stream.model.events import Evaluated
from noetl_stream.model.json import codec
from noetl_stream.model.limits import DEFAULT_LIMITS, Limits
from noetl_stream.template import Scope, compile_template
from noetl_stream.tools.children.landlock import landlock_version
from noetl_stream.tools.children.seccomp import filters_calls


def question(template: str, limits: Limits = DEFAULT_LIMITS, **ctx: Any) -> bytes:
    compiled = compile_template(template, namespaces=frozenset({"ctx"}), bindings={}, expressions_only=True)
    scope = Scope({"ctx": ctx}, limits=limits)
    return codec.encode(ask({"result": Choice([Rendering(None, compiled, "result")], scope)}, limits))


@asynccontextmanager
async def pool(**settings: Any) -> AsyncIterator[EvaluationPool]:
    others = psutil.Process().children()  # of tests before, which may have left some that have ended
    made = EvaluationPool(**settings)
    yield made
    await made.close()
    assert set(psutil.Process().children()) <= set(others)


def children() -> list[psutil.Process]:
    alive = (child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE)
    return [child for child in alive if "adapters.evaluation" in " ".join(child.cmdline())]


async def test_evaluations_share_one_process() -> None:
    async with pool() as evaluator:
        first = decode_answers(await evaluator.evaluate(question("{{ ctx.n + 1 }}", n=1)))
        (child,) = children()
        second = decode_answers(await evaluator.evaluate(question("{{ ctx.n | upper }}", n="a")))
        assert children() == [child]
    assert first.chosen == {"result": Evaluated([True], [2])}
    assert second.chosen == {"result": Evaluated([True], ["A"])}


async def test_several_work_at_once_up_to_the_limit() -> None:
    async with pool(max_processes=2) as evaluator:
        work = [evaluator.evaluate(question("{{ ctx.n }}", n=number)) for number in range(6)]
        answers = [decode_answers(answer) for answer in await asyncio.gather(*work)]
        assert len(children()) == 2
    assert [answer.chosen["result"].values for answer in answers] == [[number] for number in range(6)]


async def test_what_a_namespace_asks_does_not_keep_another_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    answered, asked, let_go = evaluation_pool.exchange, asyncio.Queue[bytes](), asyncio.Event()

    async def held(process: Process, questions: bytes) -> bytes:
        asked.put_nowait(questions)
        if b"loud" in questions:
            await let_go.wait()
        return await answered(process, questions)

    monkeypatch.setattr(evaluation_pool, "exchange", held)
    async with pool(max_processes=2) as evaluator:
        of_loud = question("{{ ctx.n }}", n="loud")
        loud = [asyncio.create_task(evaluator.evaluate(of_loud, "loud")) for _ in range(3)]
        assert [await asked.get() for _ in loud[1:]] == [of_loud, of_loud]
        answers = decode_answers(await evaluator.evaluate(question("{{ ctx.n }}", n=1), "quiet"))
        assert answers.chosen["result"].values == [1] and asked.get_nowait() != of_loud and asked.empty()
        let_go.set()
        await asyncio.gather(*loud)


async def test_a_process_that_evaluates_too_long_is_killed_and_replaced() -> None:
    async with pool(max_s=0) as evaluator:
        with pytest.raises(EvaluationEnded, match="took more than 0 s"):
            await evaluator.evaluate(question("{{ 1 }}"))
        assert children() == []
    async with pool() as evaluator:
        assert decode_answers(await evaluator.evaluate(question("{{ 1 }}"))).chosen["result"].values == [1]


async def test_a_process_that_dies_ends_its_work_alone() -> None:
    async with pool(max_processes=1) as evaluator:
        with pytest.raises(EvaluationEnded, match="memory or time"):
            await evaluator.evaluate(b"no question")
        assert decode_answers(await evaluator.evaluate(question("{{ 1 }}"))).chosen["result"].values == [1]


async def test_its_memory_is_limited() -> None:
    """Limits that an operator has raised allow a value larger than the process may hold."""
    if sys.platform != "linux":
        pytest.skip("only Linux limits the address space of a process")
    raised = Limits(max_template_output_chars=2**40, max_template_operations=2**40)
    async with pool() as evaluator:
        large = question("{{ ('x' * ctx.n) | length }}", raised, n=2 * MAX_MEMORY_BYTES)
        answers = decode_answers(await evaluator.evaluate(large))
        assert "not enough memory" in answers.chosen["result"].error


async def test_cancelling_kills_the_process() -> None:
    async with pool() as evaluator:
        await evaluator.evaluate(question("{{ 1 }}"))
        task = asyncio.create_task(evaluator.evaluate(question("{{ range(90000) | map('string') | list | length }}")))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_an_evaluator_gets_no_environment_and_no_open_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux shows a process's environment and files")
    monkeypatch.setenv("NOETL_POSTGRES_DSN", "postgres://owner:s3cret@localhost/noetl")
    (tmp_path / "open").write_text("s3cret")
    with (tmp_path / "open").open() as opened:
        os.set_inheritable(opened.fileno(), True)
        async with pool() as evaluator:
            await evaluator.evaluate(question("{{ 1 }}"))
            (child,) = children()
            place = Path("/proc") / str(child.pid)
            assert (place / "environ").read_bytes() == b""
            assert sorted(path.name for path in (place / "fd").iterdir()) == ["0", "1", "2"]
            assert (place / "cwd").resolve() == Path("/")


REACHES = """
import json, os, socket, sys
sys.path[:] = json.loads(sys.argv[1])
from noetl_stream.adapters.evaluation.child import confine_self
confine_self()
tries = {
    "reads a file of the server's user": lambda: open(sys.argv[2]).read(),
    "reads the environment of the server": lambda: open(f"/proc/{os.getppid()}/environ").read(),
    "lists a folder": lambda: os.listdir(os.path.dirname(sys.argv[2])),
    "writes a file": lambda: open(sys.argv[2], "w"),
    "starts a process": os.fork,
    "becomes another program": lambda: os.execv("/bin/true", ["true"]),
    "signals the server": lambda: os.kill(os.getppid(), 0),
    "makes a connection": socket.socket,
    "makes a Unix socket": lambda: socket.socket(socket.AF_UNIX),
    "imports a module late": lambda: __import__("wave"),
}
def try_it(one):
    try:
        one()
        return True
    except OSError:
        return False
print(json.dumps([name for name, one in tries.items() if try_it(one)]))
"""


@pytest.mark.skipif(landlock_version() == 0 or not filters_calls(), reason="needs Landlock, and a filter of calls")
def test_code_that_escaped_from_a_template_would_reach_nothing_of_its_user(tmp_path: Path) -> None:
    (tmp_path / "gateway.token").write_text("s3cret")
    words = [sys.executable, "-I", "-c", REACHES, json.dumps(sys.path), tmp_path / "gateway.token"]
    ended = subprocess.run(words, capture_output=True, text=True, env={})
    assert json.loads(ended.stdout) == ["imports a module late"], ended.stderr


@pytest.mark.skipif(not filters_calls(), reason="needs a filter of calls")
async def test_a_process_is_confined_before_it_answers() -> None:
    async with pool() as evaluator:
        await evaluator.evaluate(question("{{ 1 }}"))
        (child,) = children()
        status = (Path("/proc") / str(child.pid) / "status").read_text().split()
        assert [status[status.index(name) + 1] for name in ("NoNewPrivs:", "Seccomp:")] == ["1", "2"]
