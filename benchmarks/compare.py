"""Compares two checkouts: throughput and CPU per step, in alternating pairs (ABBA).

    python benchmarks/compare.py OLD NEW [pairs]

OLD and NEW are checkouts with an environment in ``.venv``. Each pair runs ``noetl-stream bench`` once in each; their
order alternates, so that a drift of the machine's speed affects both alike. Prints the medians, and of the ratio
NEW / OLD the median and the range without the lowest and highest pair.

While others load the machine, run it before them (Linux, as root): ``chrt -r 1 python benchmarks/compare.py ...``. Then
four pairs show what ten do on a quiet one; others wait some 15 seconds.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Final

PAIRS: Final = 10
BURST: Final = ("--executions", "500", "--steps", "3", "--latency-runs", "1", "--fan-out", "1", "--repeat", "1")


def bench(checkout: Path, home: Path) -> dict[str, float]:
    """One burst: steps per second, and microseconds of CPU per step by process."""
    command = [str(checkout / ".venv/bin/noetl-stream"), "bench", *BURST, "--home", str(home), "-o", "json"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    spent = found["cpu_us_per_step"]
    return {"steps/s": found["steps_per_s"][0], **spent, "all processes": sum(spent.values())}


def main(old: Path, new: Path, pairs: int = PAIRS) -> None:
    with tempfile.TemporaryDirectory() as folder:
        homes = {checkout: Path(folder, name) for checkout, name in ((old, "old"), (new, "new"))}
        for checkout in (old, new):  # the first makes the servers' folders
            bench(checkout, homes[checkout])
        rows = []
        for pair in range(pairs):
            order = (old, new) if pair % 2 == 0 else (new, old)
            rows.append({checkout: bench(checkout, homes[checkout]) for checkout in order})
    for figure in rows[0][old]:
        ratios = sorted(row[new][figure] / row[old][figure] for row in rows)
        before, after = (median(row[checkout][figure] for row in rows) for checkout in (old, new))
        low, high = (ratios[1], ratios[-2]) if pairs > 2 else (ratios[0], ratios[-1])
        print(f"{figure:14} {before:8.1f} {after:8.1f}   ratio {median(ratios):.3f} [{low:.3f}, {high:.3f}]")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:4]))
