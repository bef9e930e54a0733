"""The seeded simulation of servers and workers (PROTOCOL §6).

One seed is one run: a few executions on several servers and workers, half a minute of faults, then a phase without
faults, in which everything must end correctly. The same seed always yields the same run. To run many:
``python -m noetl_testkit.simulation --seeds 2000``.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from random import Random
from typing import Any

from noetl_stream.adapters.simulated_time import SimulatedLoop, cancel_all_tasks
from noetl_stream.server.assembly import ServerTimes, StateBounds
from noetl_testkit.simulation.checks import end_of, final_problems, memory_problems, quarantine_problems
from noetl_testkit.simulation.constructs import constructs_of
from noetl_testkit.simulation.faults import LATEST_S, FaultPlan, kinds_of
from noetl_testkit.simulation.happenings import happened
from noetl_testkit.simulation.host import SimulatedHost
from noetl_testkit.simulation.seen import seen_problems
from noetl_testkit.simulation.story import FAULTS_S, Planned, Story, drawn
from noetl_testkit.simulation.triggers import STARTED, trigger_problems
from noetl_testkit.simulation.work import Job
from noetl_testkit.simulation.world import SimulatedWorld

PATIENCE_S = 250.0
"""How long nothing may be committed, without faults, before unfinished work counts as stuck."""

LONGEST_S = 3_000.0
"""How long the phase without faults lasts at most."""

POLL_S = 2.0
TIGHT = StateBounds(max_bytes=1, snapshot_every=5, at_once=1)
"""In every third seed each state is evicted after each turn, and loaded from snapshots."""

CHECKED_COMMITS = 0.1
"""The share of commits after which memory is compared with the journal."""


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """The result of a seed.

    Attributes:
        length_s: Simulated time.
        digest: Covers all stored messages.
        happened: What struck, and what it led to, with how often.
        constructs: Those of the language that the journals show.
    """

    seed: int
    kinds: tuple[str, ...]
    problems: tuple[str, ...]
    length_s: float = 0.0
    digest: str = ""
    happened: Mapping[str, int] = field(default_factory=dict)
    constructs: frozenset[str] = frozenset()

    def __str__(self) -> str:
        lines = "\n  ".join(self.problems) or "all is well"
        return f"seed {self.seed} ({', '.join(self.kinds)}), {self.length_s:.0f} s:\n  {lines}"


class _CheckingFaultPlan(FaultPlan):
    """A fault plan that also checks, after some commits, what the server holds."""

    def __init__(self, seed: int, kinds: tuple[str, ...]) -> None:
        super().__init__(seed, kinds)
        self.problems: list[str] = []
        self._chance = Random(f"checks {seed}")
        self._contents: dict[str, bytes] = {}

    async def inject(self, host: SimulatedHost, point: str) -> None:
        if point == "store.take_over":
            self.world.begun.add(host.name)
        if point == "store.commit.done" and self._chance.random() < CHECKED_COMMITS:
            self.problems += await memory_problems(self.world, self.world.servers[host.name])
        await super().inject(host, point)

    def does(self, host: SimulatedHost, point: str, arguments: tuple[Any, ...]) -> None:
        super().does(host, point, arguments)
        if point == "log.publish_report":
            _, _, message_id, body = arguments
            self._check_content(message_id, body)
        elif point == "log.publish_decided":
            for record in arguments[0]:
                self._check_content(record.message_id, record.body)

    def _check_content(self, message_id: str, body: bytes) -> None:
        """One Msg-Id, one content (PROTOCOL §1 *Identity*)."""
        if self._contents.setdefault(message_id, body) != body:
            self.problems.append(f"{message_id}: is the id of two messages")


def simulate(story: Story | int, kinds: tuple[str, ...] | None = None) -> SimulationReport:
    """Runs a story, or that of a seed.

    Args:
        kinds: Of faults (:mod:`~noetl_testkit.simulation.faults`); by default the seed chooses.
    """
    if isinstance(story, int):
        story = drawn(story, kinds_of(story) if kinds is None else kinds)
    calm = {one.job.source for one in story.executions if one.job.ends == "as without faults"}
    faults = _CheckingFaultPlan(story.seed, story.faults)
    loop = SimulatedLoop(story.seed)
    try:
        faults.calm_ends = {source: _calm_end(source) for source in sorted(calm)}
        return loop.run_until_complete(_run(story, faults))
    except Exception as error:  # a check that raises, or a loop that hangs: the result of this seed
        loop.run_until_complete(cancel_all_tasks())
        return SimulationReport(story.seed, story.faults, (repr(error),), loop.time())
    finally:
        loop.close()


@lru_cache(maxsize=64)
def _calm_end(source: str) -> dict[str, Any]:
    """How a playbook ends without faults."""
    story = Story(0, executions=(Planned(Job("calm", source, ends="anyhow"), 0.0),))
    faults = _CheckingFaultPlan(story.seed, story.faults)
    loop = SimulatedLoop(story.seed)
    try:
        report = loop.run_until_complete(_run(story, faults))
        assert not report.problems, report
        store = faults.world.store
        (execution_id,) = faults.world.clients.accepted
        return end_of(store.tables.executions[execution_id], loop.run_until_complete(store.journal(execution_id, -1)))
    finally:
        loop.close()


def forget_calm_ends() -> None:
    """Forgets how playbooks end without faults, before and after a change of the engine."""
    _calm_end.cache_clear()


async def _run(story: Story, faults: _CheckingFaultPlan) -> SimulationReport:
    random.seed(story.seed)  # the jitter of retries is drawn from it
    times = ServerTimes(reconcile_s=0.0 if "reconcile always" in faults.kinds else 10.0)
    states = TIGHT if story.seed % 3 == 0 else StateBounds()
    world = SimulatedWorld(
        faults,
        times,
        faults.poison,
        states,
        inbox_is_late="inbox late" in faults.kinds,
        clocks=Random(f"clocks {story.seed}") if story.clocks_wrong else None,
    )
    await world.register({**(STARTED if story.triggers else {}), **story.called})
    strikes = faults.enter(world)
    for role, count in (("server", story.servers), ("worker", story.workers)):
        for _ in range(count):
            world.start(role)
    clients = [asyncio.create_task(world.clients.submit(planned)) for planned in story.executions]
    clients += [asyncio.create_task(world.senders.run(path, acts)) for path, acts in story.triggers.items()]
    if faults.poison is not None:
        clients.append(asyncio.create_task(world.clients.submit_poison(faults.poison)))
    began_s = world.clock.monotonic_s()
    for at_s, strike in strikes:
        await world.clock.sleep(max(0.0, began_s + at_s - world.clock.monotonic_s()))
        strike()
    if story.faults:
        await world.clock.sleep(max(0.0, began_s + FAULTS_S - world.clock.monotonic_s()))
    faults.clear_up()
    world.clear_up()
    await _wait_until_quiescent(world, clients)
    problems = [*faults.problems, *await quarantine_problems(faults)]
    if faults.poison is not None:
        async with asyncio.timeout(LONGEST_S):
            await world.clients.release(faults.poison)
        await _wait_until_quiescent(world, clients)
    await world.clock.sleep(LATEST_S if "records late" in story.faults else POLL_S)  # until the last record is stored
    problems += await final_problems(faults)
    problems += await trigger_problems(world, story)
    problems += await seen_problems(faults)
    length_s = world.clock.monotonic_s()
    digest, constructs = _digest(world), await constructs_of(world)
    await cancel_all_tasks()
    return SimulationReport(
        story.seed, faults.kinds, tuple(problems), length_s, digest, happened=happened(faults), constructs=constructs
    )


async def _wait_until_quiescent(world: SimulatedWorld, clients: list[asyncio.Task[None]]) -> None:
    """Waits until all clients have answers, all executions have ended, the queue is empty and a server lives, or until
    nothing moves.
    """
    began_s = moved_s = world.clock.monotonic_s()
    positions = 0
    while (now_s := world.clock.monotonic_s()) < min(moved_s + PATIENCE_S, began_s + LONGEST_S):
        await world.clock.sleep(POLL_S)
        rows = world.store.tables.executions.values()
        if (reached := sum(row.position for row in rows)) > positions:
            moved_s, positions = now_s, reached
        if not all(client.done() for client in clients) or world.broker.command_queue.queued:
            continue
        if not world.hosts("server"):  # in an idle night: the next ones publish what the last have not
            continue
        if world.senders.answers and world.store.tables.inbox:  # somebody has yet to be told
            continue
        if all(row.finished_ms is not None or row.status == "quarantined" for row in rows):
            return


def _digest(world: SimulatedWorld) -> str:
    digest = blake2b(digest_size=10)
    for stored in world.broker.event_log.stored:
        digest.update(f"{stored.message_id} {stored.message.at_ms}".encode() + stored.message.body)
    return digest.hexdigest()
