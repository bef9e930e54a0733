"""Runs many seeds: ``python -m noetl_testkit.simulation --seeds 2000``."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from noetl_testkit.simulation.constructs import NAMES
from noetl_testkit.simulation.faults import HARMLESS, TOUCHING, kinds_of
from noetl_testkit.simulation.happenings import HAPPENINGS
from noetl_testkit.simulation.poison import POISONS
from noetl_testkit.simulation.shrink import shrunk, written
from noetl_testkit.simulation.simulation import SimulationReport, simulate
from noetl_testkit.simulation.story import drawn

SEEDS_AT_ONCE = 20
MOST_SHRUNK = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the seeds that failed, the first of them also as small tests, and what all seeds reached."""
    parser = argparse.ArgumentParser(prog="python -m noetl_testkit.simulation")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="how many run at once")
    parser.add_argument("--no-shrink", action="store_true", help="only name what failed")
    options = parser.parse_args(arguments)
    reached, happened = Counter[str](), Counter[str]()
    broken = []
    for report in _reports(range(options.first, options.first + options.seeds), options.processes):
        reached.update(report.constructs)
        happened.update(report.happened.keys())
        if report.problems:
            broken.append(report.seed)
            print(report, flush=True)
    for seed in [] if options.no_shrink else broken[:MOST_SHRUNK]:
        small = shrunk(drawn(seed, kinds_of(seed)))
        print(f"\n{written(small, simulate(small).problems[0])}", flush=True)
    _show("Construct", NAMES, reached)
    _show("Fault", (*HARMLESS, *TOUCHING, *POISONS), happened)
    _show("Happening", dict.fromkeys(name for names in HAPPENINGS.values() for name in names), happened)
    print(f"{options.seeds} seeds, {len(broken)} broken")
    return 1 if broken else 0


def _reports(seeds: range, processes: int) -> Iterator[SimulationReport]:
    chunks = [seeds[at : at + SEEDS_AT_ONCE] for at in range(0, len(seeds), SEEDS_AT_ONCE)]
    if processes == 1:
        yield from map(simulate, seeds)
        return
    with ProcessPoolExecutor(processes, initializer=_be_quiet) as pool:
        for reports in pool.map(_simulate_all, chunks):
            yield from reports


def _be_quiet() -> None:
    logging.disable(logging.CRITICAL)


def _simulate_all(seeds: range) -> list[SimulationReport]:
    return [simulate(seed) for seed in seeds]


def _show(title: str, names: Iterable[str], seeds: Counter[str]) -> None:
    """How many seeds had each, the rarest first."""
    print(f"\n{title:44} Seeds")
    for name in sorted(names, key=lambda name: (seeds[name], name)):
        print(f"{name:44} {seeds[name]:5}")


if __name__ == "__main__":
    _be_quiet()
    sys.exit(main())
