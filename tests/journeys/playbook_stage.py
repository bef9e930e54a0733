"""What the playbooks of the folder need: a running stack, two APIs, a team that uses NATS, a client."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
from aiohttp import web
from journey_stack import ROOT
from playbook_team import Team, team_nats

import warm_program
from noetl_stream.local.stack import EmbeddedStack, StackAddress
from noetl_stream.operations.executions.reading.documents import execution_document
from noetl_stream.operations.executions.reading.step_runs import summarize
from noetl_stream.operations.executions.submit import Client
from noetl_stream.ports.operations.executions import ExecutionDocument
from noetl_stream.protocol.nats_permissions import GATEWAY
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.wiring.operations import make_client
from noetl_stream.wiring.stack import embedded_endpoint
from noetl_stream.wiring.stores import Connected, connect
from noetl_testkit.following import Submission, Watcher, submit

sys.path.insert(0, str(ROOT / "playbooks"))
from airports_api import AirportsApi
from travel_api import PARTNER_TOKEN, SIGNING_KEY, Agency

FOLDER = ROOT / "playbooks"
PATIENCE_S = 60.0

Ended = ExecutionDocument
"""An execution that has ended, as ``execution get`` shows it."""


@dataclass(frozen=True)
class Scenario:
    """One run of a playbook.

    Attributes:
        playbook: Name of its file, without the ending.
        result: What it ends with, exactly.
        hurry: A text of the file and what stands for it here: a constant that is too long for a test.
        meanwhile: What somebody does once its status is ``waiting``.
        check: What else is true afterwards.
    """

    playbook: str
    result: Any
    workload: dict[str, Any] = field(default_factory=dict)
    status: str = "completed"
    hurry: tuple[str, str] = ("", "")
    meanwhile: Callable[[Stage, str], Awaitable[None]] | None = None
    check: Callable[[Stage, Ended], Awaitable[None]] | None = None


@dataclass(frozen=True)
class Stage:
    """Runs scenarios, any number at once."""

    home: Path
    address: StackAddress
    connected: Connected
    client: Client
    agency: Agency
    team: Team
    urls: dict[str, str]
    """Of the two APIs, by the port that the files name."""

    async def noetl(self, *arguments: str) -> None:
        """Runs a command, which must succeed."""
        ended = await asyncio.to_thread(warm_program.noetl, *arguments, "--home", self.home)
        assert ended.returncode == 0, ended

    async def rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """The rows of a query on the playbooks' own database."""
        connection = await asyncpg.connect(self.address.playbooks_dsn)
        try:
            return [dict(row) for row in await connection.fetch(query, *values)]
        finally:
            await connection.close()

    async def play(self, scenario: Scenario) -> Ended:
        """Runs the playbook to its end, with everything the scenario says."""
        source = (FOLDER / f"{scenario.playbook}.yaml").read_text()
        assert scenario.hurry[0] in source
        source = source.replace(*scenario.hurry) if scenario.hurry[0] else source
        port = re.search(r"api_url: http://127.0.0.1:(\d+)", source)
        workload = ({"api_url": self.urls[port[1]]} if port else {}) | scenario.workload
        submission = Submission.new(source, f"tests/{scenario.playbook}", workload, self.connected.clock)
        execution_id = submission.execution_id
        follower = await Watcher(self.connected.bus, execution_id).open()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await submit(self.client, submission, follower)
                if scenario.meanwhile is not None:
                    await self._until_waiting(execution_id, follower)
                    await scenario.meanwhile(self, execution_id)
                await follower.finished.wait()
        finally:
            await follower.close()
        row = await self.connected.store.execution(execution_id)
        assert row is not None
        journal = await self.connected.store.journal(execution_id)
        ended = execution_document(row, journal, 0, steps=summarize(journal), waits=[], notices=None)
        if scenario.check is not None:
            await scenario.check(self, ended)
        return ended

    async def _until_waiting(self, execution_id: str, follower: Watcher) -> None:
        async for _ in follower.news():
            row = await self.connected.store.execution(execution_id)
            if row is not None and row.status == "waiting":
                return
        raise AssertionError(f"{execution_id} has ended and never waited")


@asynccontextmanager
async def open_stage(home: Path) -> AsyncIterator[Stage]:
    """The stage on the stack that runs in ``home``."""
    async with AsyncExitStack() as ending:
        embedded = await asyncio.to_thread(EmbeddedStack.join, home)
        ending.callback(embedded.leave)
        connected = await connect(embedded_endpoint(embedded, Settings(), GATEWAY), name="journey")
        ending.push_async_callback(connected.close)
        agency = Agency()
        urls = {
            "8098": await _serve(agency.application(), ending),
            "8099": await _serve(AirportsApi().application(), ending),
        }
        nats_url = ending.enter_context(team_nats())
        team = await Team.meet(nats_url)
        ending.push_async_callback(team.part)
        stage = Stage(
            home=home,
            address=embedded.address,
            connected=connected,
            client=make_client(connected),
            agency=agency,
            team=team,
            urls=urls,
        )
        await asyncio.gather(
            stage.noetl("playbook", "register", str(FOLDER / "invoice_customer.yaml")),
            stage.noetl("credential", "set", "examples.partner_token", "--set", f"token={PARTNER_TOKEN}"),
            stage.noetl("credential", "set", "examples.signing", "--set", f"key={SIGNING_KEY}"),
            stage.noetl("credential", "set", "team_nats", "--set", f"url={nats_url}"),
        )
        yield stage


async def _serve(application: web.Application, ending: AsyncExitStack) -> str:
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    ending.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return "http://{}:{}".format(*runner.addresses[0])
