"""Storms of faults on the real stack: ``make faults SEED=1 FAULTS=300``. The seed says which faults strike, and when.

A round is some faults while executions run, then fair weather in which all must end; then the books are checked against
the ledger. A round strikes either servers, gateways and Postgres alone, and no effect may happen twice, or anything.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import math
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from typing import Final, NamedTuple

from fault_books import problems, repeated
from fault_client import audit, visit
from fault_kinds import CLUSTERED, SERVER_SIDE, TOUCHING, Faults, Kind, small_disk
from fault_stack import HISTORY, FaultStack, ended, persist, running_stack
from fault_work import CANCELLED, JOBS, Job

from homes import folder_for_home
from nats_namespaces import DividedCluster, can_make_namespaces
from nats_process import NatsCluster
from noetl_stream.errors import NoetlError
from noetl_testkit.history.check import violations

COUNTS: Final = {"server": 2, "worker": 2, "gateway": 1}
IN_FLIGHT: Final = 8
SHORTEST_S, LONGEST_S = 0.3, 4.0
GAP_S: Final = 1.0
WATCH_S: Final = 1.0
RECOVERED_WITHIN_S: Final = 40.0
"""How long after a fault a worker's lease may end, and its command run again."""

CALM_WITHIN_S: Final = 240.0
DISK_GB: Final = 16
AUDITED: Final = 500
"""So many executions of a round are patched, and their events read: a long soak has more than a checker can hold."""


class Stroke(NamedTuple):
    """A fault: when it begins after the one before, what it is, how long it lasts, and the seed of its details."""

    gap_s: float
    kind: Kind
    lasts_s: float
    seed: int


class Struck(NamedTuple):
    """A fault that has happened, in monotonic seconds."""

    kind: Kind
    began_s: float
    ended_s: float


class Round(NamedTuple):
    """What a round has come to."""

    strokes: list[Struck]
    jobs: dict[str, Job]
    effects: int
    repeated: int
    calm_s: float
    problems: list[str]


def drawn(seed: int, kinds: Sequence[Kind], count: int, gap_s: float = GAP_S) -> list[Stroke]:
    """So many strokes, ``gap_s`` apart on average; each kind comes before any comes twice."""
    dice = Random(seed)
    order: list[Kind] = []
    while len(order) < count:
        order += dice.sample(kinds, len(kinds))
    return [
        Stroke(dice.uniform(0, 2 * gap_s), kind, dice.uniform(SHORTEST_S, LONGEST_S), dice.getrandbits(32))
        for kind in order[:count]
    ]


class Weather:
    """Executions and faults on one stack."""

    def __init__(self, stack: FaultStack, faults: Faults) -> None:
        self.stack, self.faults = stack, faults
        self._struck: list[Struck] = []
        self._numbers = 0

    async def round(self, strokes: Sequence[Stroke], jobs_seed: int, at_once: int) -> Round:
        """Strikes while executions run, and returns once all have ended."""
        calm, first = asyncio.Event(), len(self._struck)
        feeding = [asyncio.create_task(self._feed(Random(jobs_seed + line), calm)) for line in range(IN_FLIGHT)]
        async with asyncio.TaskGroup() as striking:
            free = asyncio.Semaphore(at_once)
            for stroke in strokes:
                await asyncio.sleep(stroke.gap_s)
                await free.acquire()
                striking.create_task(self._strike(stroke)).add_done_callback(lambda _: free.release())
        calm.set()
        began_s = time.monotonic()
        async with asyncio.timeout(CALM_WITHIN_S):
            await asyncio.gather(*feeding)
        jobs, self.stack.started = self.stack.started, {}
        left = await ended(self.stack, list(jobs), CALM_WITHIN_S)
        calm_s = time.monotonic() - began_s
        may_fail = {"large", "wide"} if self.faults.lost_objects else set()
        found = await persist(lambda: problems(self.stack, jobs, self._explains, may_fail))
        audited = iter(enumerate(jobs))
        await asyncio.gather(*(self._audit(audited) for _ in range(IN_FLIGHT)))
        self.faults.lost_objects = False
        effects = sum(len(times) for one in jobs for times in self.stack.ledger.effects[one].values())
        assert all(any(one in text for text in found) for one in left)
        return Round(self._struck[first:], jobs, effects, repeated(self.stack, jobs), calm_s, found)

    async def _feed(self, dice: Random, calm: asyncio.Event) -> None:
        while not calm.is_set():
            self._numbers += 1
            job, key = dice.choice([*JOBS.values(), CANCELLED]), f"storm-{self._numbers}"
            execution_id = await self.stack.submit(job, key)
            is_patched = len(self.stack.started) <= AUDITED
            await visit(self.stack.client, execution_id, job, key, is_patched=is_patched)
            await ended(self.stack, [execution_id], LONGEST_S)

    async def _audit(self, executions: Iterator[tuple[int, str]]) -> None:
        for number, one in executions:
            await persist(partial(audit, self.stack.client, one, events=number < AUDITED))

    async def _strike(self, stroke: Stroke) -> None:
        began_s = time.monotonic()
        try:
            await stroke.kind.act(self.faults, Random(stroke.seed), stroke.lasts_s)
        finally:
            ended_s = time.monotonic()
            self._struck.append(Struck(stroke.kind, began_s, ended_s))
            if stroke.kind.touches:
                until_s = ended_s + RECOVERED_WITHIN_S
                self.stack.history.note("fault", at=began_s, kind=stroke.kind.name, until=until_s)

    def history_problems(self, kept: Path | None = None) -> list[str]:
        """What no legal history explains of all that clients saw; ``kept``: where its file is copied to."""
        history = self.stack.folder / HISTORY
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(history, kept)
        return [str(one) for one in violations(history.read_text().splitlines())]

    def _explains(self, times: Sequence[float]) -> bool:
        """Whether a fault touched a worker or the stream around these times."""
        return any(
            struck.kind.touches and struck.began_s <= times[-1] and struck.ended_s >= times[0] - RECOVERED_WITHIN_S
            for struck in self._struck
        )


@asynccontextmanager
async def single_stack() -> AsyncIterator[Weather]:
    """The embedded NATS and Postgres, on small disks of their own where such can be mounted."""
    async with AsyncExitStack() as opened:
        folder = opened.enter_context(folder_for_home("storm"))
        home = folder / "home"
        disks = {name: home / name for name in ("nats", "postgres") if small_disk(home / name, DISK_GB)}
        for disk in disks.values():
            opened.callback(subprocess.run, ["umount", "--lazy", str(disk)], check=True)
        stack = await opened.enter_async_context(running_stack(home, COUNTS))
        opened.enter_context(watching(stack))
        yield Weather(stack, Faults(stack, disks))


@asynccontextmanager
async def clustered_stack() -> AsyncIterator[Weather]:
    """Three NATS servers, in network namespaces where such can be made, and every stream on each."""
    async with AsyncExitStack() as opened:
        folder = opened.enter_context(folder_for_home("storm"))
        cluster = DividedCluster(folder) if can_make_namespaces() else NatsCluster(folder)
        opened.callback(cluster.end)
        cluster.start()
        stack = await opened.enter_async_context(running_stack(folder / "home", COUNTS, nats_url=cluster.url))
        opened.enter_context(watching(stack))
        yield Weather(stack, Faults(stack, {}, cluster))


@contextlib.contextmanager
def watching(stack: FaultStack) -> Iterator[None]:
    """Starts the embedded servers again when they end, as ``dev`` does."""

    async def watch() -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            with contextlib.suppress(NoetlError):
                await asyncio.to_thread(stack.embedded.revive)

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()


def _shown(number: int, seed: int, what: str, done: Round) -> str:
    return (
        f"round {number} (seed {seed}, {what}): {len(done.strokes)} faults, {len(done.jobs)} executions, "
        f"{done.effects} effects, {done.repeated} repeated, all ended {done.calm_s:.0f} s after the last fault, "
        f"{len(done.problems)} problems"
    )


class Plan(NamedTuple):
    """What a round strikes, how far apart on average, and how many faults at once."""

    what: str
    kinds: Sequence[Kind]
    gap_s: float = GAP_S
    at_once: int = 2


SERVERS: Final = Plan("servers", SERVER_SIDE)
ALL: Final = Plan("all", (*SERVER_SIDE, *TOUCHING))
CLUSTER: Final = Plan("cluster", CLUSTERED, 3.0, 1)
"""Two of three NATS servers are needed, and it takes them a while to choose a leader."""

ROUNDS: Final = (ALL, SERVERS, ALL, SERVERS, CLUSTER)
"""In turn, as often as there are faults left."""


async def storm(
    seed: int, faults: int, per_round: int, only_round: int | None = None, kept: Path | None = None
) -> list[Round]:
    """Rounds of a storm, printed; those of a cluster come last.

    Args:
        kept: A folder for the histories.
    """
    rounds: list[Round] = []
    counts = [min(per_round, faults - at) for at in range(0, faults, per_round)]
    planned = [(number, ROUNDS[number % len(ROUNDS)], count) for number, count in enumerate(counts)]
    planned = [one for one in planned if only_round in (None, one[0])]
    for opened, of_cluster in ((single_stack, False), (clustered_stack, True)):
        chosen = [one for one in planned if (one[1] is CLUSTER) == of_cluster]
        if not chosen:
            continue
        async with opened() as weather:
            for number, plan, count in chosen:
                kinds = [kind for kind in plan.kinds if weather.faults.can(kind)]
                strokes = drawn(seed * 1_000 + number, kinds, count, plan.gap_s)
                done = await weather.round(strokes, seed * 1_000 + number, plan.at_once)
                rounds.append(done)
                print(_shown(number, seed, plan.what, done), *done.problems, sep="\n  ", flush=True)
            file = kept and kept / f"{'cluster' if of_cluster else 'single'}-{seed}.jsonl"
            found = await asyncio.to_thread(weather.history_problems, file)
            print(f"what clients saw: {len(found)} violations", *found, sep="\n", flush=True)
            rounds[-1].problems.extend(found)
    return rounds


def _recoveries(rounds: Sequence[Round]) -> Iterator[str]:
    """Says how often each kind struck, and how long after a fault all had ended: by kind where it struck alone."""
    struck = Counter(one.kind.name for done in rounds for one in done.strokes)
    alone_s: dict[str, float] = {}
    for done in rounds:
        if len(done.strokes) == 1:
            name = done.strokes[0].kind.name
            alone_s[name] = max(done.calm_s, alone_s.get(name, 0.0))
    for name, count in sorted(struck.items()):
        yield f"  {count:4}  {name}" + (f": all ended within {alone_s[name]:.0f} s" if name in alone_s else "")
    calm_s = sorted(done.calm_s for done in rounds)
    yield (
        f"all ended after the last fault of a round: median {median(calm_s):.0f} s, 99 of 100 within "
        f"{calm_s[math.ceil(0.99 * len(calm_s)) - 1]:.0f} s, longest {calm_s[-1]:.0f} s"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--round", type=int, default=None, help="this round alone, as it was in the whole storm")
    parser.add_argument(
        "--per-round", type=int, default=40, help="faults of a round; with 1 the report says how long recovery takes"
    )
    parser.add_argument(
        "--histories", type=Path, default=Path("build/histories"), help="where to keep what clients saw"
    )
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    began_s = time.monotonic()
    rounds = asyncio.run(storm(options.seed, options.faults, options.per_round, options.round, options.histories))
    struck = sum(len(done.strokes) for done in rounds)
    found = sum(len(done.problems) for done in rounds)
    print(*_recoveries(rounds), sep="\n")
    print(
        f"seed {options.seed}: {struck} faults, {sum(len(done.jobs) for done in rounds):,} executions, "
        f"{sum(done.effects for done in rounds):,} effects, {sum(done.repeated for done in rounds)} repeated, "
        f"{found} problems, {(time.monotonic() - began_s) / 60:.0f} min"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
