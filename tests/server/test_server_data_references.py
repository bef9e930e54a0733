"""References to files that executions hand to each other: calls, their results, reruns and triggers (ADR 48)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from server_stage import PATIENCE_S, Stage
from waiting_stage import EXECUTION, result_of

from noetl_stream.errors import Conflict
from noetl_stream.model.aggregates import EndedExecutions, TriggerRegistered, TriggerTerms
from noetl_stream.model.events import ChildRequested, ExecutionRequested, Rerun
from noetl_stream.model.ids import digest_of
from noetl_stream.model.messages import Request
from noetl_stream.operations.executions.submit import ask_aggregate
from noetl_stream.playbook.kinds.spec import KindSpec
from noetl_stream.server.answers.responder import delete_kept
from noetl_stream.server.ticks.watching import READ_EVERY_S
from noetl_stream.storage.deletion import delete_execution
from noetl_stream.tools.contract import ToolCall, ToolFailure, ToolResult
from noetl_stream.tools.inputs import Inputs, Knobs, validated
from noetl_stream.tools.pipeline import NoopTool
from noetl_testkit.simulation.roles import run_worker
from noetl_testkit.simulation.work import WorkTool, playbook

CONTENT = "n\n1\n2\n"
CHILD, OTHER = "simulation/child", "simulation/other"
SMALL = {"spec": {"policy": {"limits": {"max_inline_bytes": 300}}}}


class FileInputs(Inputs):
    """Inputs of ``file``: what it writes, or what it reads; ``padding`` makes its result large."""

    write: str = ""
    read: Any = None
    padding: int = 0


class FileTool:
    """Kind ``file``: writes a file, or returns what a file holds; ``data`` for what it may not open."""

    spec = KindSpec("file", FileInputs, Knobs)

    async def run(self, call: ToolCall) -> ToolResult:
        inputs = validated(FileInputs, call.inputs)
        if inputs.write:
            return ToolResult({"file": await call.data.save(pieces(), name=inputs.write), "more": "x" * inputs.padding})
        reference = call.data.reference(inputs.read)
        if reference is None:
            return ToolResult("data")
        try:
            return ToolResult(b"".join([part async for part in call.data.read(reference)]).decode())
        except ToolFailure as failure:
            return ToolResult(failure.error.kind)

    async def close(self) -> None:
        """Does nothing."""


async def pieces() -> AsyncIterator[bytes]:
    yield CONTENT.encode()


@pytest.fixture
async def running(stage: Stage) -> Stage:
    """A server, and a worker that has files."""
    stage.kinds = {**stage.kinds, "file": FileTool.spec}
    await stage.server()
    host = stage.host("worker")
    tools = {"file": FileTool(), "work": WorkTool(stage.clock, stage.effects, host.awake), "noop": NoopTool()}
    stage.running.append(asyncio.create_task(run_worker(host, tools, 8)))
    return stage


def step(name: str, tool: Any, to: str = "", **args: str) -> dict[str, Any]:
    arc = {"step": to, "args": args} if args else {"step": to}
    return {"step": name, "tool": tool, **({"next": {"arcs": [arc]}} if to else {})}


def write(to: str = "", padding: int = 0, **args: str) -> dict[str, Any]:
    return step("write", {"kind": "file", "write": "n.csv", "padding": padding}, to, **args)


def read(value: str, to: str = "") -> dict[str, Any]:
    return step("read", {"kind": "file", "read": value}, to)


def call(path: str, to: str = "", **args: str) -> dict[str, Any]:
    return step("call", [{"name": "child", "kind": "playbook", "path": path, "args": args}], to)


def given(path: str = CHILD) -> str:
    """A playbook that reads the file it is given, and returns it, too."""
    found = {"text": "{{ read }}", "file": "{{ workload.file }}"}
    return playbook(path.rpartition("/")[2], [read("{{ workload.file }}")], executor={"spec": {"result": found}})


async def run(stage: Stage, source: str, *known: str, execution_id: str = EXECUTION) -> Any:
    for one in known:
        await stage.register(one)
    await stage.request(execution_id, f"request-{execution_id}", source)
    row = await stage.ended(execution_id)
    assert row.status == "completed", row.error
    return result_of(row)


async def child_of(stage: Stage, execution_id: str = EXECUTION) -> str:
    (found,) = [fact.execution_id for fact in await stage.facts(execution_id) if isinstance(fact, ChildRequested)]
    return found


async def delete(stage: Stage, execution_id: str) -> None:
    async def delete_objects(keys: Any) -> None:
        await delete_kept(stage.broker.blobs, stage.broker.task_logs, keys)

    await delete_execution(stage.store.real, delete_objects, execution_id)


def users(stage: Stage) -> set[tuple[str, str]]:
    """Who uses an object of whom."""
    return {(use.execution_id, use.owner) for use in stage.tables.object_uses.values() if use.store == "nats"}


async def test_a_called_playbook_reads_the_file_it_is_given(running: Stage) -> None:
    source = playbook("parent", [write("call"), call(CHILD, file="{{ write.file }}")], result="{{ call.text }}")
    assert await run(running, source, given()) == CONTENT
    assert users(running) == {(await child_of(running), EXECUTION)}
    assert await running.rebuilt_differences() == []


async def test_a_caller_reads_the_file_that_it_gets_back(running: Stage) -> None:
    source = playbook("parent", [call(CHILD, "read"), read("{{ call.file }}")], result="{{ read }}")
    assert await run(running, source, playbook("child", [write()], result="{{ write }}")) == CONTENT
    assert users(running) == {(EXECUTION, await child_of(running))}
    assert await running.rebuilt_differences() == []


@pytest.mark.parametrize("to", ["worker", "server"])
async def test_a_caller_reads_the_file_in_a_large_result(running: Stage, to: str) -> None:
    """Its reference is read from the object by a worker, or by a server that renders arguments."""
    steps = [call(CHILD, "read"), read("{{ call.file }}")]
    if to == "server":
        steps = [step("call", call(CHILD)["tool"], "read", file="{{ call.file }}"), read("{{ args.file }}")]
    child = playbook("child", [write(padding=1000)], executor=SMALL)
    assert await run(running, playbook("parent", steps, result="{{ read }}"), child) == CONTENT
    assert await running.rebuilt_differences() == []
    owner = await child_of(running)
    with pytest.raises(Conflict, match="uses results in the journal"):
        await delete(running, owner)
    await delete(running, EXECUTION)
    await delete(running, owner)
    assert {key.partition("/")[0] for key in running.broker.blobs.keys} == {"playbook"}


async def test_a_reference_from_outside_opens_nothing_and_is_handed_on_as_it_is(running: Stage) -> None:
    first = await run(running, playbook("first", [write()], result="{{ write.file }}"))
    source = playbook("parent", [call(CHILD, file="{{ workload.file }}")], result="{{ call }}")
    await running.register(given())
    await running.request("execution-2", "request-2", source, workload={"file": first})
    row = await running.ended("execution-2")
    assert result_of(row) == {"text": "data", "file": first}
    assert users(running) == set()


async def test_a_rerun_reads_the_file_that_its_original_wrote(running: Stage) -> None:
    source = playbook("again", [write("read"), read("{{ write.file }}")], result="{{ read }}")
    assert await run(running, source) == CONTENT
    fact = ExecutionRequested("request-again", digest_of(source), "tests/server", rerun=Rerun(EXECUTION, "read"))
    await running.requests.publish(Request("execution-again", "request-again", fact))
    row = await running.ended("execution-again")
    assert (row.status, result_of(row)) == ("completed", CONTENT), row.error
    assert users(running) == {("execution-again", EXECUTION)}
    assert await running.rebuilt_differences() == []


async def test_an_execution_started_by_a_trigger_reads_the_file_of_the_ended_one(running: Stage) -> None:
    other = await running.register(given(OTHER))
    terms = TriggerTerms(
        playbook=other, execution=EndedExecutions(path="simulation/first"), workload={"file": "{{ event.result.file }}"}
    )
    fact = TriggerRegistered("register", "tests/ended", terms=terms, revision=1)
    await ask_aggregate(running.requests, running.broker.bus, running.clock, "starter", fact)
    await running.pass_time(2 * READ_EVERY_S)
    await run(running, playbook("first", [write()], result="{{ write }}"))
    await running.until(lambda: len(running.tables.executions) == 2, PATIENCE_S)
    (started,) = set(running.tables.executions) - {EXECUTION}
    assert result_of(await running.ended(started))["text"] == CONTENT
    assert users(running) == {(started, EXECUTION)}


async def test_a_file_lives_as_long_as_the_last_execution_that_holds_it(running: Stage) -> None:
    source = playbook("parent", [write("call"), call(CHILD, file="{{ write.file }}")])
    await run(running, source, given())
    child = await child_of(running)
    assert len(running.broker.blobs.keys) > 0
    await delete(running, EXECUTION)
    kept = [key for key in running.broker.blobs.keys if key.startswith(f"{EXECUTION}/")]
    assert len(kept) == 1 and kept[0].endswith("/0")
    await delete(running, child)
    assert not [key for key in running.broker.blobs.keys if key.startswith(f"{EXECUTION}/")]
