"""Power cuts under load: ``make power SEED=1 CUTS=200``. The seed says which machines lose their power, and when.

The stores lie on file systems of their own, whose journals wait long. At a cut their processes are killed, and nothing
reaches the disk any more; then all is started on what the disk has. After each cut all that was accepted must end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Final, NamedTuple

import asyncpg
import psutil
from fault_books import unpublished
from fault_kinds import Faults, Kind
from fault_stack import ASK_AGAIN_S, MENDED_WITHIN_S, REPLICAS, FaultStack, persist, running_stack
from fault_storm import COUNTS, Round, Stroke, Weather, watching

from homes import folder_for_home
from nats_process import NatsCluster
from noetl_stream.adapters.nats.api_errors import STREAM_NOT_FOUND
from noetl_stream.adapters.nats.connections.connection import ApiRefused, NatsConnection
from noetl_stream.adapters.nats.streams import delete_stream
from noetl_stream.errors import NoetlError
from noetl_stream.hosting.maintenance import compare_stores
from noetl_stream.local.home import Home, exclusive_lock
from noetl_stream.model.json import codec
from noetl_stream.protocol.nats_permissions import ADMIN, SERVER
from noetl_stream.protocol.subjects import COMMANDS, EVENTS, RESULTS
from noetl_stream.wiring.stores import ensure_all_streams
from power_disk import PowerDisk

LOADED_S: Final = 8.0
"""How long executions run before a cut, on average."""

ELECTED_WITHIN_S: Final = 30.0
GONE: Final = "gone"
STALLED: Final = "stalled"

UNSYNCED: Final = "synchronous_commit = off\nwal_writer_delay = 10s\n"
"""Postgres answers before its log is on disk, where it is after three delays at most."""


class Power(Faults):
    """Cuts the power of stores.

    Attributes:
        machines: The disks of the embedded servers, or of those of a cluster, by server.
        lost: Streams that were gone after a cut, or had no leader with a majority any more.
    """

    def __init__(self, stack: FaultStack, machines: Mapping[str, PowerDisk], cluster: NatsCluster | None) -> None:
        super().__init__(stack, {}, cluster)
        self.machines = machines
        self.lost: list[str] = []

    async def cut_power(self, names: Sequence[str], *, roles: bool = False) -> None:
        """Cuts the power of these embedded servers, and of all roles if ``roles``."""
        self.lost_objects |= "nats" in names
        await asyncio.to_thread(self._cut_embedded, names, roles)
        await asyncio.to_thread(self.stack.embedded.revive)
        if "nats" in names:
            await self._ensure_streams(1)

    def _cut_embedded(self, names: Sequence[str], roles: bool) -> None:
        embedded = self.stack.embedded
        with exclusive_lock(Home(embedded.address.home).start_lock, "somebody starts the servers"):
            pids = embedded.pids()
            running = [pids[name] for name in names]
            running += [role.pid for role in self.stack.roles.values()] if roles else []
            self._lose_power(names, lambda: _kill(running))

    async def cut_nodes(self, names: Sequence[str]) -> None:
        """Cuts the power of these servers of the cluster at once."""
        assert self.cluster is not None
        servers = {name: self.cluster.servers[name] for name in names}
        self.lost_objects |= len(names) == REPLICAS

        def kill() -> None:
            for server in servers.values():
                server.kill()

        await asyncio.to_thread(self._lose_power, names, kill)
        for name, server in servers.items():
            server.start("--name", name)
        if len(names) == REPLICAS:
            await self._ensure_streams(REPLICAS)

    async def _ensure_streams(self, replicas: int) -> None:
        """What an operator does: streams that are stalled are deleted, and what is gone is made again."""
        async with self.admin() as admin:
            states = {name: await _state(admin, name) for name in (EVENTS, COMMANDS, RESULTS)}
            for name, state in states.items():
                if state == STALLED:
                    await persist(lambda name=name: delete_stream(admin, name))
        self.lost += [f"{name} {state}" for name, state in states.items() if state]
        await persist(lambda: ensure_all_streams(self.stack.endpoint(ADMIN), replicas=replicas))

    def _lose_power(self, names: Sequence[str], kill: Callable[[], None]) -> None:
        disks = [self.machines[name] for name in names]
        kill()
        for disk in disks:
            disk.cut()
        for disk in disks:
            disk.restart()


async def _state(admin: NatsConnection, stream: str) -> str:
    """Whether the stream is :data:`GONE` or :data:`STALLED` once servers had their time to elect; else ``""``."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + ELECTED_WITHIN_S
    while loop.time() < until_s:
        try:
            found = codec.decode_json(await admin.api(f"STREAM.INFO.{stream}"))
        except ApiRefused as refused:
            if refused.err_code == STREAM_NOT_FOUND:
                return GONE
        except NoetlError:
            await asyncio.sleep(ASK_AGAIN_S)
        else:
            cluster = found.get("cluster") or {}
            others = cluster.get("replicas")
            if others is None or (cluster.get("leader") and any(one["current"] for one in others)):
                return ""
            await asyncio.sleep(ASK_AGAIN_S)
    return STALLED


def _kill(pids: Sequence[int]) -> None:
    """Kills these with all that they have started."""
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended by itself
            process = psutil.Process(pid)
            found += [process, *process.children(recursive=True)]
    for process in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def _nodes(count: int) -> Kind:
    async def cut(faults: Faults, dice: Random, _: float) -> None:
        assert isinstance(faults, Power)
        await faults.cut_nodes(dice.sample(sorted(faults.machines), count))

    return Kind(f"power of {count} of {REPLICAS} NATS", cut, "stream")


def _embedded(what: str, names: Sequence[str], touches: str = "stream", *, roles: bool = False) -> Kind:
    async def cut(faults: Faults, _: Random, __: float) -> None:
        assert isinstance(faults, Power)
        await faults.cut_power(names, roles=roles)

    return Kind(f"power of {what}", cut, touches)


MACHINE: Final = _embedded("a machine with everything", ("nats", "postgres"), roles=True)
NATS: Final = _embedded("NATS", ("nats",))
POSTGRES: Final = _embedded("Postgres", ("postgres",), touches="")
LATE_POSTGRES: Final = _embedded("Postgres that answers before it syncs", ("postgres",))


class Place(NamedTuple):
    """A stack whose machines lose their power.

    Attributes:
        kinds: In turn, as often as there are cuts.
        part: How many of ten cuts are here.
        nodes: Whether its NATS is a cluster, and the embedded servers keep their power.
        unsynced: Whether Postgres answers before it syncs.
        always: Whether NATS acknowledges only what it has synced.
    """

    name: str
    kinds: Sequence[Kind]
    part: int
    nodes: bool = False
    unsynced: bool = False
    always: bool = False


PLACES: Final = (
    Place("embedded", (MACHINE, NATS, MACHINE, POSTGRES), 6),
    Place("unsynced", (LATE_POSTGRES,), 1, unsynced=True),
    Place("cluster", (_nodes(1), _nodes(REPLICAS)), 2, nodes=True),
    Place("synced", (_nodes(1), _nodes(REPLICAS)), 1, nodes=True, always=True),
)


@asynccontextmanager
async def powered(place: Place) -> AsyncIterator[tuple[Weather, Power]]:
    """The stack of a place, each machine of it on a disk of its own."""
    async with AsyncExitStack() as opened:
        folder = opened.enter_context(folder_for_home("power"))
        home, cluster = folder / "home", None
        if place.nodes:
            cluster = NatsCluster(folder)
            if place.always:
                _sync_always(cluster)
            folders = {name: folder / name / "nats-data" for name in cluster.servers}
        else:
            folders = {name: home / name for name in ("nats", "postgres")}
        disks = {name: PowerDisk(where, folder / f"{name}.disk") for name, where in folders.items()}
        for disk in disks.values():
            opened.callback(disk.end)
            disk.mount()
        if cluster is not None:
            opened.callback(cluster.end)
            cluster.start()
        url = cluster.url if cluster is not None else ""
        stack = await opened.enter_async_context(running_stack(home, COUNTS, nats_url=url))
        if place.unsynced:
            _answer_early(stack)
        opened.enter_context(watching(stack))
        power = Power(stack, disks, cluster)
        yield Weather(stack, power), power


def _sync_always(cluster: NatsCluster) -> None:
    for server in cluster.servers.values():
        server.conf.write_text(re.sub("sync_interval: .*", "sync_interval: always", server.conf.read_text()))


def _answer_early(stack: FaultStack) -> None:
    with (stack.embedded.address.home / "postgres" / "data" / "postgresql.conf").open("a") as file:
        file.write(UNSYNCED)
        file.flush()
        os.fsync(file.fileno())
    os.kill(stack.embedded.pids()["postgres"], signal.SIGHUP)


async def cuts_at(place: Place, seed: int, count: int) -> list[Round]:
    """Cuts the power at a place so often, and judges after each; printed."""
    dice, rounds = Random(f"{seed} {place.name}"), []
    async with powered(place) as (weather, power):
        for number in range(count):
            kind = place.kinds[number % len(place.kinds)]
            stroke = Stroke(dice.uniform(0, 2 * LOADED_S), kind, 0, dice.getrandbits(32))
            done = await weather.round([stroke], dice.getrandbits(32), 1)
            done.problems.extend(await _unsettled(weather.stack, done.jobs))
            lost = [*power.lost, f"{await _repairs(weather.stack)} repairs so far"]
            power.lost.clear()
            rounds.append(done)
            said = _shown(stroke, done, lost)
            print(f"{place.name} {number} (seed {seed}): {said}", *done.problems, sep="\n  ", flush=True)
    return rounds


def _shown(stroke: Stroke, done: Round, lost: Sequence[str]) -> str:
    return (
        f"{stroke.kind.name} after {stroke.gap_s:.1f} s, {len(done.jobs)} executions, {done.effects} effects, "
        f"{done.repeated} repeated, all ended {done.calm_s:.0f} s later, {', '.join(lost)}, "
        f"{len(done.problems)} problems"
    )


async def _unsettled(stack: FaultStack, jobs: Collection[str]) -> list[str]:
    """What ``database verify`` finds, and what EVENTS lacks of these, once servers had their time to mend both."""
    until_s = time.monotonic() + MENDED_WITHIN_S
    while True:
        found = await persist(lambda: compare_stores(stack.endpoint(SERVER)))
        found += await persist(lambda: unpublished(stack, jobs))
        if not found or time.monotonic() > until_s:
            return found
        await asyncio.sleep(1)


async def _repairs(stack: FaultStack) -> int:
    """How often a partition has found that one of the stores has lost its end."""
    connection = await asyncpg.connect(stack.embedded.address.postgres_dsn)
    try:
        return int(await connection.fetchval("select sum(generation) from noetl.partition"))
    finally:
        await connection.close()


async def power_cuts(seed: int, cuts: int, only: str | None = None) -> list[Round]:
    """Cuts the power so often, at all places or at one."""
    rounds: list[Round] = []
    for place in PLACES:
        if only in (None, place.name):
            rounds += await cuts_at(place, seed, cuts if only else cuts * place.part // 10)
    return rounds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cuts", type=int, default=200)
    parser.add_argument("--only", choices=[place.name for place in PLACES], help="all cuts at this place")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    rounds = asyncio.run(power_cuts(options.seed, options.cuts, options.only))
    found = sum(len(done.problems) for done in rounds)
    for name, count in sorted(Counter(one.kind.name for done in rounds for one in done.strokes).items()):
        print(f"  {count:4}  {name}")
    print(
        f"seed {options.seed}: {len(rounds)} cuts, {sum(len(done.jobs) for done in rounds):,} executions, "
        f"{sum(done.effects for done in rounds):,} effects, {sum(done.repeated for done in rounds)} repeated, "
        f"{found} problems"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
