"""A whole stack of real processes, each behind lines of its own to NATS and Postgres, that are started again."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from fault_client import ASK_AGAIN_S, RecordedClient, insist
from fault_ledger import Ledger
from fault_work import Job
from msgspec.structs import replace

from cli_program import NOETL, environment
from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.gateway_client.connection import GatewayConnection
from noetl_stream.concurrency import end_tasks
from noetl_stream.errors import NoetlError
from noetl_stream.local.gateway_address import ensure_token
from noetl_stream.local.processes import listen
from noetl_stream.local.stack import EmbeddedStack
from noetl_stream.protocol.nats_permissions import ADMIN, GATEWAY, SERVER, worker_identity
from noetl_stream.settings.egress import ALLOW_VARIABLE
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.settings.sources.process_environment import identity_environment
from noetl_stream.wiring.endpoint import Endpoint
from noetl_stream.wiring.stack import StackAccess, embedded_endpoint, prepare_embedded
from noetl_stream.wiring.stores import Connected, connect, ensure_all_streams
from noetl_testkit.history.recorder import Recorder
from slow_line import SlowLine

IDENTITIES = {"server": SERVER, "worker": worker_identity("default"), "gateway": GATEWAY}
RESTART_S = 0.2
HISTORY = "history.jsonl"
MENDED_WITHIN_S = 60.0
SLOTS = 16
REPLICAS = 3

Answer = TypeVar("Answer")


class Lines:
    """The lines of a process: to NATS, and to Postgres unless it is a worker."""

    def __init__(self) -> None:
        self.nats: list[SlowLine] = []
        self.postgres: list[SlowLine] = []

    async def to(self, endpoint: Endpoint, opened: AsyncExitStack) -> Endpoint:
        """The endpoint behind lines."""
        nats = [await self._behind(url, self.nats, opened) for url in endpoint.nats_url.split(",")]
        dsn = endpoint.postgres_dsn and await self._behind(endpoint.postgres_dsn, self.postgres, opened)
        return replace(endpoint, nats_url=",".join(nats), postgres_dsn=dsn)

    async def _behind(self, url: str, lines: list[SlowLine], opened: AsyncExitStack) -> str:
        port = urlsplit(url).port
        assert port is not None
        line = SlowLine(port, 0.0)
        await line.open()
        opened.push_async_callback(line.close)
        lines.append(line)
        return url.replace(f":{port}", f":{line.port}")


class Role:
    """A server, worker or gateway that is started again whenever it ends.

    Attributes:
        deaths: The exit codes of those that have ended; a killed one's is ``-9``.
    """

    def __init__(self, name: str, command: Sequence[str], variables: dict[str, str], lines: Lines, log: Path) -> None:
        self.name, self.kind = name, kind_of(name)
        self.lines = lines
        self.deaths: list[int] = []
        self._command, self._variables, self._log = command, variables, log
        self._inherited: Sequence[int] = ()
        self._process: asyncio.subprocess.Process | None = None
        self._ended = asyncio.Event()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def run(self) -> None:
        while True:
            with self._log.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command,
                    env=environment(**self._variables),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=self._inherited,
                    start_new_session=True,
                )
            code = await self._process.wait()
            self.deaths.append(code)
            self._ended.set()
            await asyncio.sleep(RESTART_S)

    def inherit(self, descriptor: int) -> None:
        """Gives the process this descriptor under its own number."""
        self._inherited = [descriptor]

    def send(self, number: signal.Signals) -> None:
        """Signals the process; one that has just ended gets nothing."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(number)

    async def died(self, within_s: float) -> int:
        """The exit code of the next process that ends; one that has ended since :meth:`forget_deaths` counts."""
        async with asyncio.timeout(within_s):
            while not self.deaths:
                self._ended.clear()
                await self._ended.wait()
        return self.deaths[-1]

    def forget_deaths(self) -> None:
        self.deaths.clear()

    async def stop(self) -> None:
        """Ends it like an operator, and waits for it."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), 60)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()


class FaultStack:
    """NATS and Postgres with servers, workers and a gateway, and a ledger that their tasks write into.

    Attributes:
        connected: The client's own connections, over no line.
        client: Asks the gateway.
        started: The job of each execution that is to be judged.
        history: What clients and the ledger see, in the file ``history.jsonl`` of the folder.
        nats_url: Of a cluster; empty for the embedded NATS.
    """

    connected: Connected
    client: RecordedClient

    def __init__(self, embedded: EmbeddedStack, ledger: Ledger, history: Recorder, folder: Path, nats_url: str) -> None:
        self.embedded, self.ledger, self.folder, self.nats_url = embedded, ledger, folder, nats_url
        self.history = history
        self.started: dict[str, Job] = {}
        self.roles: dict[str, Role] = {}

    def endpoint(self, identity: str) -> Endpoint:
        held = embedded_endpoint(self.embedded, Settings(), identity)
        return replace(held, nats_url=self.nats_url, nats_nkey=None) if self.nats_url else held

    def log(self, role: str) -> str:
        return (self.folder / f"{role}.log").read_text(errors="replace")

    def of_kind(self, kind: str) -> list[Role]:
        return [role for role in self.roles.values() if role.kind == kind]

    async def submit(self, job: Job, key: str, *, is_judged: bool = True) -> str:
        """Starts the job through the gateway, however often that fails; returns the execution once it is accepted.

        Args:
            is_judged: Whether it must end as the job says.
        """
        start = partial(self.client.start, job, f"{self.ledger.url}/{key}", key, is_judged=is_judged)
        execution_id = (await insist(start)).execution_id
        if is_judged:
            self.started[execution_id] = job
        return execution_id

    async def cancel(self, execution_id: str, key: str) -> None:
        await insist(partial(self.client.change, "cancel", execution_id, key))


@asynccontextmanager
async def running_stack(
    home: Path, counts: dict[str, int], *, program: Sequence[str] = NOETL, nats_url: str = ""
) -> AsyncIterator[FaultStack]:
    """
    Args:
        counts: How many processes of each role.
        program: What runs a role.
        nats_url: Of a cluster, which gets the streams; by default the NATS is the embedded one.
    """
    async with AsyncExitStack() as opened:
        embedded = await asyncio.to_thread(EmbeddedStack.join, home)
        opened.push_async_callback(asyncio.to_thread, embedded.leave)
        await prepare_embedded(StackAccess(Settings(), embedded))
        file = opened.enter_context((home.parent / HISTORY).open("w", buffering=1))
        history = Recorder(file, time.monotonic)
        ledger = await opened.enter_async_context(Ledger(history).serving())
        stack = FaultStack(embedded, ledger, history, home.parent, nats_url)
        if nats_url:
            await persist(lambda: ensure_all_streams(stack.endpoint(ADMIN), replicas=REPLICAS))
        stack.connected = await connect(stack.endpoint(GATEWAY), name="faults")
        opened.push_async_callback(stack.connected.close)
        accepting = opened.enter_context(listen(0))
        token = await ensure_token(home, stack.connected.store.tokens, SystemClock())
        gateway = GatewayConnection(f"http://127.0.0.1:{accepting.getsockname()[1]}", token, SystemClock())
        opened.push_async_callback(gateway.close)
        stack.client = RecordedClient(gateway, history)
        for name in (f"{kind}-{number}" for kind, count in counts.items() for number in range(1, count + 1)):
            stack.roles[name] = await _role(stack, name, program, accepting.fileno(), opened)
        running = [asyncio.create_task(role.run()) for role in stack.roles.values()]
        try:
            yield stack
        finally:
            await end_tasks(running)
            await asyncio.gather(*(role.stop() for role in stack.roles.values()))


async def _role(stack: FaultStack, name: str, program: Sequence[str], socket: int, opened: AsyncExitStack) -> Role:
    held, lines = stack.endpoint(IDENTITIES[kind_of(name)]), Lines()
    if not stack.nats_url:  # a cluster tells its clients of addresses that no line stands before
        held = await lines.to(held, opened)
    variables = identity_environment(
        nats_url=held.nats_url,
        nats_nkey=held.nats_nkey,
        postgres_dsn=held.postgres_dsn,
        server_keys=held.server_keys,
        access_keys=held.access_keys,
        credential_keys=held.credential_keys,
    )
    variables |= {ALLOW_VARIABLE: "loopback", "HOME": str(stack.folder)}
    options = {"worker": ["--slots", str(SLOTS)], "gateway": ["--socket", str(socket)]}.get(kind_of(name), [])
    role = Role(name, [*program, kind_of(name), *options], variables, lines, stack.folder / f"{name}.log")
    if role.kind == "gateway":
        role.inherit(socket)
    return role


def kind_of(name: str) -> str:
    """``server``, ``worker`` or ``gateway``."""
    return name.partition("-")[0]


async def persist(work: Callable[[], Awaitable[Answer]]) -> Answer:
    """What an operator does who tries again until it is done."""
    async with asyncio.timeout(MENDED_WITHIN_S):
        while True:
            try:
                return await work()
            except NoetlError:
                await asyncio.sleep(ASK_AGAIN_S)


async def ended(stack: FaultStack, execution_ids: Sequence[str], within_s: float) -> list[str]:
    """Waits until all of these have ended; returns those that have not in time."""
    left = list(execution_ids)
    deadline_s = asyncio.get_running_loop().time() + within_s
    while left and asyncio.get_running_loop().time() < deadline_s:
        try:
            rows = await stack.connected.store.executions(left)
        except NoetlError:
            rows = {}
        left = [one for one in left if one not in rows or rows[one].finished_ms is None]
        if left:
            await asyncio.sleep(ASK_AGAIN_S)
    return left
