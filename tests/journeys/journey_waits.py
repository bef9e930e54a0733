"""What journeys of waiting executions share: playbooks whose effects are counted, and calls of the command line."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from journey_stack import LiveStack

import warm_program
from noetl_stream.errors import NoetlError
from noetl_stream.model.json import codec
from noetl_stream.ports.stores.store import ExecutionRow, Store, StoredEvent
from noetl_stream.wiring.operations import make_client
from noetl_stream.wiring.stores import Connected, connect
from noetl_testkit.following import Submission, submit

PATIENCE_S = 150.0
POLL_S = 0.1


class Effects:
    """Counts calls of ``/<name>``: each is one effect of a task."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.url = ""

    async def call(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        self.seen[name] += 1
        fails = name.startswith("fails_once") and self.seen[name] == 1
        return web.json_response({"name": name, "count": self.seen[name]}, status=503 if fails else 200)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Effects]:
        application = web.Application()
        application.router.add_get("/{name}", self.call)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = "http://{}:{}".format(*runner.addresses[0])
        try:
            yield self
        finally:
            await runner.cleanup()


def effect(name: str, **more: Any) -> dict[str, Any]:
    """A task whose effect is counted; its result is the name."""
    return {"name": name, "kind": "http", "url": "{{ workload.url }}/" + name, **more}


def playbook(name: str, workflow: list[dict[str, Any]], **more: Any) -> str:
    """The text of a playbook (JSON is YAML)."""
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": name, "path": f"journey/{name}"}}
    return json.dumps({**head, "workload": {"url": ""}, **more, "workflow": workflow})


async def noetl(home: Path, *arguments: object, code: int = 0) -> str:
    """Runs a command, which must exit with ``code``. Returns its output on both streams."""
    ended = await asyncio.to_thread(warm_program.noetl, *arguments, "--home", home, timeout_s=PATIENCE_S)
    assert ended.returncode == code, ended
    return ended.stdout + ended.stderr


@asynccontextmanager
async def connected_to(stack: LiveStack) -> AsyncIterator[Connected]:
    """Connections to the running stack."""
    connected = await connect(stack.endpoint, name="journey")
    try:
        yield connected
    finally:
        await connected.close()


async def begin(connected: Connected, source: str, workload: dict[str, Any]) -> str:
    """Submits a playbook. Returns the execution's id once it is accepted."""
    submission = Submission.new(source, "journey", workload, connected.clock)
    client = make_client(connected)
    follower = await client.follow(submission.execution_id).open()
    try:
        await submit(client, submission, follower)
    finally:
        await follower.close()
    return submission.execution_id


async def until(condition: Callable[[], Awaitable[Any]]) -> Any:
    """Polls until ``condition`` returns something; the stores may be unreachable meanwhile."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(NoetlError):
                if found := await condition():
                    return found
            await asyncio.sleep(POLL_S)


async def until_status(store: Store, execution_id: str, *statuses: str) -> ExecutionRow:
    """The execution's row, once it has one of these statuses."""

    async def look() -> ExecutionRow | None:
        row = await store.execution(execution_id)
        return row if row is not None and row.status in statuses else None

    found: ExecutionRow = await until(look)
    return found


async def ended(store: Store, execution_id: str) -> ExecutionRow:
    return await until_status(store, execution_id, "completed", "failed", "cancelled")


async def whole_journal(store: Store, execution_id: str) -> list[StoredEvent]:
    """The execution's journal, which has every position once."""
    journal = await store.journal(execution_id)
    assert [row.position for row in journal] == list(range(1, len(journal) + 1))
    return journal


def result_of(row: ExecutionRow) -> Any:
    assert row.result is not None, row.error
    return codec.decode_json(codec.decode_payload(row.result).value)
