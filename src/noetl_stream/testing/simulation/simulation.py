"""The seeded simulation of servers and workers (PROTOCOL §6).

One seed is one run: a few executions on several servers and workers, half a minute of faults, then a phase without
faults, in which everything must end correctly. The same seed always yields the same run. To run many:
``python -m noetl_stream.testing.simulation.simulation --seeds 2000``.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import dataclass
from hashlib import blake2b
from random import Random

from noetl_stream.model.ids import PARTITIONS
from noetl_stream.server.parts import ServerTimes, StateBounds
from noetl_stream.testing.simulation.checks import final_problems, memory_problems, quarantine_problems
from noetl_stream.testing.simulation.faults import FAULTS_S, FaultPlan
from noetl_stream.testing.simulation.host import SimulatedHost
from noetl_stream.testing.simulation.time import SimulatedLoop, cancel_all_tasks
from noetl_stream.testing.simulation.work import JOBS
from noetl_stream.testing.simulation.world import SimulatedWorld

EXECUTIONS = 7
PATIENCE_S = 400.0
"""How long the phase without faults lasts before unfinished work counts as stuck."""

POLL_S = 2.0
TIGHT = StateBounds(max_bytes=1, snapshot_every=5)
"""In every third seed each state is evicted after each turn, and loaded from snapshots."""

CHECKED_COMMITS = 0.2
"""The share of commits after which memory is compared with the journal."""


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """The result of a seed. ``digest`` covers all stored messages; ``length_s`` is simulated time."""

    seed: int
    kinds: tuple[str, ...]
    problems: tuple[str, ...]
    length_s: float
    digest: str

    def __str__(self) -> str:
        lines = "\n  ".join(self.problems) or "all is well"
        return f"seed {self.seed} ({', '.join(self.kinds)}), {self.length_s:.0f} s:\n  {lines}"


class _CheckingFaultPlan(FaultPlan):
    """A fault plan that also checks, after some commits, what the server holds."""

    def __init__(self, seed: int, kinds: tuple[str, ...] | None) -> None:
        super().__init__(seed, kinds)
        self.problems: list[str] = []
        self._chance = Random(f"checks {seed}")

    async def inject(self, host: SimulatedHost, point: str) -> None:
        if point == "store.take_over":
            self.world.begun.add(host.name)
        if point == "store.commit.done" and self._chance.random() < CHECKED_COMMITS:
            self.problems += await memory_problems(self.world, self.world.servers[host.name])
        await super().inject(host, point)


def simulate(seed: int, kinds: tuple[str, ...] | None = None) -> SimulationReport:
    """Runs a seed.

    Args:
        kinds: Kinds of faults (:mod:`~noetl_stream.testing.simulation.faults`); by default the seed chooses.
    """
    loop = SimulatedLoop(seed)
    try:
        return loop.run_until_complete(_run(seed, kinds))
    except Exception as error:  # a check that raises, or a loop that hangs: the result of this seed
        return SimulationReport(seed, _CheckingFaultPlan(seed, kinds).kinds, (repr(error),), loop.time(), "")
    finally:
        loop.close()


async def _run(seed: int, kinds: tuple[str, ...] | None) -> SimulationReport:
    random = Random(f"story {seed}")
    faults = _CheckingFaultPlan(seed, kinds)
    times = ServerTimes(reconcile_s=0.0 if "reconcile always" in faults.kinds else 10.0)
    world = SimulatedWorld(faults, times, faults.poison, TIGHT if seed % 3 == 0 else StateBounds())
    await world.register()
    strikes = faults.enter(world)
    for role, count in (("server", random.randint(1, 3)), ("worker", random.randint(1, 3))):
        for _ in range(count):
            world.start(role)
    jobs = [random.choice(JOBS) for _ in range(EXECUTIONS)]
    clients = [asyncio.create_task(world.submit(job, random.uniform(0, FAULTS_S / 2))) for job in jobs]
    if faults.poison is not None:
        clients.append(asyncio.create_task(world.submit_poison(faults.poison)))
    began_s = world.clock.monotonic_s()
    for at_s, strike in strikes:
        await world.clock.sleep(max(0.0, began_s + at_s - world.clock.monotonic_s()))
        strike()
    await world.clock.sleep(max(0.0, began_s + FAULTS_S - world.clock.monotonic_s()))
    faults.clear_up()
    world.clear_up()
    await _wait_until_quiescent(world, clients)
    problems = [*faults.problems, *await quarantine_problems(faults)]
    if faults.poison is not None:
        await world.release(faults.poison)
        await _wait_until_quiescent(world, clients)
    problems += await final_problems(faults)
    length_s = world.clock.monotonic_s()
    digest = _digest(world)
    await cancel_all_tasks()
    return SimulationReport(seed, faults.kinds, tuple(problems), length_s, digest)


async def _wait_until_quiescent(world: SimulatedWorld, clients: list[asyncio.Task[None]]) -> None:
    """Waits until all clients have answers, all executions have ended and the queue is empty, or time is up."""
    until_s = world.clock.monotonic_s() + PATIENCE_S
    while world.clock.monotonic_s() < until_s:
        await world.clock.sleep(POLL_S)
        if not all(client.done() for client in clients) or world.broker.command_queue.queued:
            continue
        live = await world.store.live_executions(range(PARTITIONS))
        if all(row.status == "quarantined" for row in (await world.store.executions(live)).values()):
            return


def _digest(world: SimulatedWorld) -> str:
    digest = blake2b(digest_size=10)
    for stored in world.broker.event_log.stored:
        digest.update(f"{stored.message_id} {stored.message.at_ms}".encode() + stored.message.body)
    return digest.hexdigest()


def main(arguments: list[str] | None = None) -> int:
    """Runs many seeds; prints those that failed."""
    parser = argparse.ArgumentParser(prog="python -m noetl_stream.testing.simulation.simulation")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args(arguments)
    broken = [
        report for seed in range(options.first, options.first + options.seeds) if (report := simulate(seed)).problems
    ]
    for report in broken:
        print(report)
    print(f"{options.seeds} seeds, {len(broken)} broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
