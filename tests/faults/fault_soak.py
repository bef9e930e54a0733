"""Mixed load with faults for a long time: ``make soak MINUTES=30``. What should stay flat is sampled, and judged."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import linear_regression, median
from typing import Final, NamedTuple

import asyncpg
import psutil
from fault_kinds import SERVER_SIDE, TOUCHING, Faults
from fault_storm import Round, drawn, single_stack

from noetl_stream.concurrency import end_tasks
from noetl_stream.errors import NoetlError
from noetl_stream.model.json import codec
from noetl_stream.protocol.subjects import COMMANDS, EVENTS
from noetl_stream.server.upkeep.upkeep import SWEEP_S

WATCHED: Final = ("server-1", "worker-1", "gateway-1")
"""These suffer everything but death, so that what they hold can be followed."""

KINDS: Final = tuple(kind for kind in (*SERVER_SIDE, *TOUCHING) if "deleted" not in kind.name)
EVERY_S: Final = 5.0
GAP_S: Final = 6.0
WARM_UP: Final = 1 / 3
"""The part of the samples that is not judged: caches fill."""

DRAIN_S: Final = SWEEP_S + 60.0
"""Within it the commands of executions that have ended are purged."""

MIB: Final = 1024 * 1024

SIZES: Final = """
select (select count(*) from pg_stat_activity where datname = current_database() and application_name like 'noetl-%'),
       (select count(*) from noetl.timer), (select count(*) from noetl.inbox), (select count(*) from noetl.execution),
       (select sum(pg_total_relation_size(relid))::bigint from pg_partition_tree('noetl.event'))
"""


class Bound(NamedTuple):
    """How much a figure may grow in a minute, in its unit and as a part of its median: whichever is more."""

    unit: str
    growth: float
    part: float = 0.0


BOUNDS: Final = {
    **{f"memory of {name}": Bound("MiB", 1.0, 0.01) for name in WATCHED},
    **{f"descriptors of {name}": Bound("", 0.5, 0.01) for name in WATCHED},
    "Postgres sessions": Bound("", 0.5),
    "timers": Bound("", 1.0),
    "inbox": Bound("", 1.0),
    "EVENTS, for an execution": Bound("KiB", 0.05, 0.01),
    "journals, for an execution": Bound("KiB", 0.05, 0.01),
}


class Figure(NamedTuple):
    """What a series has come to, over the time that is judged."""

    name: str
    middle: float
    most: float
    growth: float
    allowed: float

    @property
    def is_flat(self) -> bool:
        return self.growth <= self.allowed


class Sampler:
    """Samples a stack, as long as its stores answer."""

    def __init__(self, faults: Faults) -> None:
        self._faults, self._stack = faults, faults.stack
        self._series: dict[str, list[tuple[float, float]]] = defaultdict(list)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            with contextlib.suppress(NoetlError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
                self._note(self._of_processes() | await asyncio.wait_for(self._of_stores(), EVERY_S))

    def figures(self) -> list[Figure]:
        return [_figure(name, self._series[name]) for name in BOUNDS]

    def _note(self, sample: dict[str, float]) -> None:
        minute = time.monotonic() / 60
        for name, value in sample.items():
            self._series[name].append((minute, value))

    def _of_processes(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for name in WATCHED:
            process = psutil.Process(self._stack.roles[name].pid)
            found[f"memory of {name}"] = process.memory_info().rss / MIB
            found[f"descriptors of {name}"] = process.num_fds()
        return found

    async def _of_stores(self) -> dict[str, float]:
        database = await asyncpg.connect(self._stack.embedded.address.postgres_dsn)
        try:
            ((sessions, timers, inbox, executions, journals),) = await database.fetch(SIZES)
        finally:
            await database.close()
        async with self._faults.admin() as nats:
            events = codec.decode_json(await nats.api(f"STREAM.INFO.{EVENTS}"))["state"]
        return {
            "Postgres sessions": sessions,
            "timers": timers,
            "inbox": inbox,
            "EVENTS, for an execution": events["bytes"] / 1024 / max(executions, 1),
            "journals, for an execution": journals / 1024 / max(executions, 1),
        }

    async def commands_left(self) -> int:
        """How many commands of the pool that is served stay in the queue after all executions have ended.

        While some run, their number follows the machine's pace. Hostile servers write to pools without workers.
        """
        served, until_s = {"subjects_filter": "noetl.commands.default.>"}, time.monotonic() + DRAIN_S
        async with self._faults.admin() as nats:
            while True:
                queue = codec.decode_json(await nats.api(f"STREAM.INFO.{COMMANDS}", served))["state"]
                left = len(queue.get("subjects") or ())
                if left == 0 or time.monotonic() > until_s:
                    return left
                await asyncio.sleep(1)


def _figure(name: str, series: Sequence[tuple[float, float]]) -> Figure:
    judged = series[round(len(series) * WARM_UP) :]
    minutes, values = zip(*judged, strict=True)
    middle, bound = median(values), BOUNDS[name]
    growth = linear_regression(minutes, values).slope
    return Figure(name, middle, max(values), growth, max(bound.growth, bound.part * middle))


async def soak(seed: int, minutes: float, kept: Path | None = None) -> tuple[Round, list[Figure]]:
    """What became of the executions, and of what should stay flat.

    Args:
        kept: A file for the history.
    """
    async with single_stack() as weather:
        weather.faults.spared = WATCHED
        kinds = [kind for kind in KINDS if weather.faults.can(kind)]
        sampler = Sampler(weather.faults)
        sampling = asyncio.create_task(sampler.run())
        done = await weather.round(drawn(seed, kinds, round(minutes * 60 / GAP_S), GAP_S), seed, at_once=2)
        await end_tasks([sampling])
        if left := await sampler.commands_left():
            done.problems.append(f"{left} commands are left in the queue")
        done.problems.extend(await asyncio.to_thread(weather.history_problems, kept))
        return done, sampler.figures()


def shown(figures: Sequence[Figure]) -> str:
    rows = ["| what | median | most | growth a minute | bound |", "| --- | --- | --- | --- | --- |"]
    for one in figures:
        unit = f" {BOUNDS[one.name].unit}".rstrip()
        rows.append(
            f"| {one.name} | {one.middle:.1f}{unit} | {one.most:.1f}{unit} | {one.growth:+.2f}{unit} | "
            f"{one.allowed:.2f}{unit}{'' if one.is_flat else ' **grows**'} |"
        )
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--history", type=Path, default=Path("build/histories/soak.jsonl"), help="what clients saw")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    began_s = time.monotonic()
    done, figures = asyncio.run(soak(options.seed, options.minutes, options.history))
    print(shown(figures), *done.problems, sep="\n")
    print(
        f"seed {options.seed}: {(time.monotonic() - began_s) / 60:.0f} min, {len(done.strokes)} faults, "
        f"{len(done.jobs):,} executions, {done.effects:,} effects, {done.repeated} repeated, "
        f"{len(done.problems)} problems"
    )
    return 1 if done.problems or not all(one.is_flat for one in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
