"""Each verb on an execution of each status: it answers what docs/reference/verbs.md says (LANGUAGE §9)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from gateway_stage import GatewayStage
from openapi_checks import Answered, Described

from noetl_stream.playbook.kinds.spec import KindSpec
from noetl_stream.settings.gateway_settings import GatewayLimits
from noetl_stream.tools.contract import ToolCall, ToolResult
from noetl_stream.tools.inputs import Inputs, Knobs

DOCUMENT: Final = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "verbs.md").read_text()

CALLS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "PATCH …/ctx": ("patchCtx", {"body": {"seen": True}}),
    "POST …/tokens": ("injectToken", {"body": {"step": "start"}}),
    "POST …/signals/{name}": ("sendSignal", {"name": "go"}),
    "POST …/pause": ("pauseExecution", {}),
    "POST …/resume": ("resumeExecution", {}),
    "POST …/retry-now": ("retryNow", {}),
    "POST …/cancel": ("cancelExecution", {}),
    "POST …/cancel` with `now": ("cancelExecution", {"body": {"now": True}, "headers": {"X-Reason": "a test"}}),
    "POST …/rerun": ("rerunExecution", {"body": {"step": "start"}}),
    "POST …/retry": ("retryExecution", {}),
    "POST …/compensate": ("compensateExecution", {}),
    "GET …/result": ("getResult", {}),
    "DELETE …": ("deleteExecution", {}),
}
"""By the verb as the document writes it."""


def rows_below(first_cell: str) -> list[list[str]]:
    """The cells of the document's table that begins with this one, its head first."""
    table = re.search(rf"^\| {first_cell} \|.*?(?:\n\n|\Z)", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert table is not None
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table[0].strip().splitlines()]
    return [rows[0], *rows[2:]]


HEAD, *ROWS = rows_below("verb")
STATUSES: Final = HEAD[1:]
TOLD: Final = {row[0].strip("`"): dict(zip(STATUSES, map(int, row[1:]), strict=True)) for row in ROWS}
PROBLEMS: Final = {
    int(row[0]): found[0] for row in rows_below("status")[1:] if (found := re.search(r"/problems/[a-z-]+", row[1]))
}


class StubbornTool:
    """Kind ``stubborn``: works until it is let go, also when it is told to stop."""

    spec = KindSpec("stubborn", Inputs, Knobs)

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.working = 0

    async def run(self, call: ToolCall) -> ToolResult:
        self.working += 1
        try:
            await self.released.wait()
        finally:
            await self.released.wait()
            self.working -= 1
        return ToolResult(None)

    async def close(self) -> None:
        """Holds nothing."""


def playbook(*steps: str, undone_on: str = "[]") -> str:
    head = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: verbs, path: tests/verbs}\n"
    if "compensation" in "".join(steps):
        head += f"executor: {{spec: {{policy: {{compensation: {{on: {undone_on}}}}}}}}}\n"
    return head + "workflow:\n" + "".join(f"  - {{{step}}}\n" for step in steps)


BREAKS: Final = 'tool: {kind: noop, args: {seen: "{{ ctx.missing.key }}"}}'
ENDS: Final = playbook("step: start, tool: {kind: noop}")
WAITING: Final = "tool: {kind: wait, signal: another, timeout_s: 3600}"


def after_undoable(kind: str, then: str, undone_on: str = "[]") -> str:
    """A playbook whose first step can be undone by a task of this kind."""
    undone = f"spec: {{policy: {{compensation: {{tool: {{kind: {kind}}}}}}}}}"
    first = f"step: start, tool: {{kind: noop}}, {undone}, next: {{arcs: [{{step: then}}]}}"
    return playbook(first, f"step: then, {then}", undone_on=undone_on)


FAILS: Final = after_undoable("noop", BREAKS)
CANCELLED: Final = after_undoable("noop", WAITING)
UNDONE: Final = after_undoable("stubborn", WAITING, "[cancelled]")
WAITS: Final = playbook("step: start, tool: {kind: wait, signal: another, timeout_s: 3600}")
RUNS: Final = playbook("step: start, tool: {kind: stubborn}")
FAIL: Final = '{when: "{{ ctx.fail is defined }}", then: {allow: true}}'
FAILS_WHILE_IT_RUNS: Final = playbook(
    "step: start, next: {spec: {mode: inclusive}, arcs: [{step: long}, {step: breaks}]}",
    "step: long, tool: {kind: stubborn}",
    f"step: breaks, spec: {{policy: {{admit: {{rules: [{FAIL}]}}}}}}, {BREAKS}",
)


class Executions:
    """Brings an execution into each column of the table."""

    def __init__(self, stage: GatewayStage, api: Described, tool: StubbornTool) -> None:
        self._stage = stage
        self._api = api
        self._tool = tool

    @asynccontextmanager
    async def execution(self, status: str) -> AsyncIterator[str]:
        """One that stays so until something is asked of it."""
        self._tool.released.clear()
        async with asyncio.TaskGroup() as tasks:
            bring = partial(self._pending, tasks) if status == "pending" else getattr(self, f"_{status}")
            yield await bring()
            self._tool.released.set()
            await self._stage.until(lambda: not self._tool.working)

    async def _pending(self, tasks: asyncio.TaskGroup) -> str:
        """A rerun whose server cannot read the original for now."""
        original = await self._completed()
        store, released = self._stage.store, self._tool.released
        read, reads = store.journal, []

        async def slow(execution_id: str, *page: Any) -> Any:
            if execution_id == original and not page:
                reads.append(execution_id)
                if len(reads) > 1:  # the first is the gateway's, which tries it
                    await released.wait()
            return await read(execution_id, *page)

        store.journal = slow  # type: ignore[method-assign, assignment]
        tasks.create_task(self._api.call("rerunExecution", execution_id=original, body={"step": "start"}))

        found: list[str] = []

        async def begun() -> bool:
            listed = await self._api.call("listExecutions", query={"status": "pending"})
            found.extend(one["execution_id"] for one in listed.body["items"])
            return bool(found) and len(reads) > 1

        await self._stage.until(begun)
        store.journal = read  # type: ignore[method-assign]
        return found[0]

    async def _running(self) -> str:
        execution_id = await self._begin(RUNS, "running")
        await self._stage.until(lambda: self._has(execution_id, "step.started"))
        return execution_id

    async def _waiting(self) -> str:
        return await self._begin(WAITS, "waiting")

    async def _paused(self) -> str:
        return await self._after("pauseExecution", await self._waiting(), "paused")

    async def _quarantined(self) -> str:
        execution_id = await self._waiting()
        with self._stage.refusing(execution_id, "signal.received"):
            refused = await self._api.call("sendSignal", execution_id=execution_id, name="another")
        assert refused.status == 409 and "cannot be stored" in refused.body["detail"]
        return await self._shown(execution_id, "quarantined")

    async def _cancelling(self) -> str:
        return await self._after("cancelExecution", await self._running(), "running")

    async def _failing(self) -> str:
        execution_id = await self._begin(FAILS_WHILE_IT_RUNS, "running")
        await self._stage.until(lambda: self._has(execution_id, "step.started"))
        await self._api.call("patchCtx", execution_id=execution_id, body={"fail": True})
        await self._stage.until(lambda: self._has(execution_id, "step.cancelled"))
        return await self._shown(execution_id, "running")

    async def _completed(self) -> str:
        return await self._begin(ENDS, "completed")

    async def _failed(self) -> str:
        return await self._begin(FAILS, "failed")

    async def _cancelled(self) -> str:
        return await self._after("cancelExecution", await self._begin(CANCELLED, "waiting"), "cancelled")

    async def _compensating(self) -> str:
        execution_id = await self._after("cancelExecution", await self._begin(UNDONE, "waiting"), "compensating")
        await self._stage.until(lambda: self._tool.working > 0)
        return execution_id

    async def _none(self) -> str:
        return "nowhere"

    async def _begin(self, source: str, status: str) -> str:
        started = await self._api.call("startExecution", body={"playbook": source})
        execution_id: str = started.body["execution_id"]
        await self._stage.until(lambda: self.has_status(execution_id, status))
        return execution_id

    async def _after(self, operation: str, execution_id: str, status: str) -> str:
        assert (await self._api.call(operation, execution_id=execution_id)).status == 202
        return await self._shown(execution_id, status)

    async def _shown(self, execution_id: str, status: str) -> str:
        assert await self.has_status(execution_id, status)
        return execution_id

    async def _has(self, execution_id: str, name: str) -> bool:
        events = await self._api.call("listEvents", execution_id=execution_id)
        return name in [event["name"] for event in events.body["items"]]

    async def has_status(self, execution_id: str, status: str) -> bool:
        return bool((await self._api.call("getExecution", execution_id=execution_id)).body["status"] == status)


async def answer(api: Described, verb: str, execution_id: str) -> Answered:
    operation, given = CALLS[verb]
    return await api.call(operation, execution_id=execution_id, **given)


@pytest.mark.parametrize("status", STATUSES)
async def test_each_verb_answers_as_the_table_says(status: str) -> None:
    tool = StubbornTool()
    async with GatewayStage(GatewayLimits(), more_tools={"stubborn": tool}).open() as stage:
        api = await Described.read(stage.client)
        situations = Executions(stage, api, tool)
        seen = {}
        for verb in TOLD:
            async with situations.execution(status) as execution_id:
                answered = await answer(api, verb, execution_id)
            seen[verb] = answered.status
            if answered.status >= 400:
                assert answered.body["type"] == PROBLEMS[answered.status], (verb, answered.body)
        assert seen == {verb: row[status] for verb, row in TOLD.items()}


async def test_a_quarantined_execution_is_shown_and_resumed_and_goes_on() -> None:
    async with GatewayStage(GatewayLimits(), more_tools={"stubborn": StubbornTool()}).open() as stage:
        api = await Described.read(stage.client)
        situations = Executions(stage, api, StubbornTool())
        async with situations.execution("quarantined") as execution_id:
            listed = await api.call("listExecutions", query={"status": "quarantined"})
            assert [one["execution_id"] for one in listed.body["items"]] == [execution_id]
            assert 'noetl_executions{status="quarantined"} 1.0' in (await api.call("metrics")).body
            why = (await api.call("explainExecution", execution_id=execution_id)).body
            assert "cannot hold" in str(why) and "quarantined" in str(why)
            letters = (await api.call("listDeadLetters")).body["items"]
            assert [letter["execution_id"] for letter in letters] == [execution_id]
            assert (await api.call("resumeExecution", execution_id=execution_id)).status == 202
        assert 'noetl_executions{status="quarantined"} 0.0' in (await api.call("metrics")).body
        signalled = await api.call("sendSignal", execution_id=execution_id, name="another", body={"payload": 1})
        assert signalled.status == 202
        await stage.until(lambda: situations.has_status(execution_id, "completed"))


def test_the_table_has_every_verb_of_an_execution() -> None:
    assert set(TOLD) == set(CALLS)
