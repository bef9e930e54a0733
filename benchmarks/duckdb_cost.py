"""What a task of ``kind: duckdb`` costs in the tool, from a small query to many rows.

    chrt -f 5 python benchmarks/duckdb_cost.py [other checkout]

Prints the median of runs, one right after the other, and the first run, which starts what the kind needs. With another
checkout, whose environment must be ready, rounds on the two alternate, and the ratios of the medians are shown.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

import uvloop

from noetl_stream.testing.calls import tool_call
from noetl_stream.tools.duckdb.tool import DuckdbTool

ROUNDS: Final = 6
MEASURE: Final = "--measure"
ROWS: Final = [{"id": number, "name": f"name {number}"} for number in range(1_000)]
LOADS: Final[dict[str, tuple[int, dict[str, Any]]]] = {
    "select 1": (60, {"command": "select 1 as a"}),
    "1,000 rows in": (30, {"command": "select count(*) as n from t", "tables": {"t": ROWS}}),
    "1,000 rows out": (30, {"command": "select range as id, 'name ' || range as name from range(1000)"}),
    "100,000 rows out": (4, {"command": "select range as id, 'name ' || range as name from range(100000)"}),
}


async def measure() -> dict[str, list[float]]:
    """Returns the seconds of each run of this checkout."""
    tool = DuckdbTool()
    taken = {"the first": [await _seconds(tool, {"command": "select 1 as a"})]}
    for name, (runs, inputs) in LOADS.items():
        taken[name] = [await _seconds(tool, inputs) for _ in range(runs)]
    await tool.close()
    return taken


async def _seconds(tool: DuckdbTool, inputs: dict[str, Any]) -> float:
    began = time.perf_counter()
    await tool.run(tool_call(inputs))
    return time.perf_counter() - began


def measured_in(checkout: Path) -> dict[str, list[float]]:
    command = [str(checkout / ".venv" / "bin" / "python"), str(Path(__file__).resolve()), MEASURE]
    done = subprocess.run(command, cwd=checkout, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    taken: dict[str, list[float]] = json.loads(done.stdout)
    return taken


def main(others: list[str]) -> None:
    here = Path(__file__).resolve().parents[1]
    checkouts = [here, *map(Path, others)]
    found: dict[tuple[Path, str], list[float]] = {}
    for number in range(ROUNDS):
        for checkout in checkouts if number % 2 == 0 else reversed(checkouts):
            for name, taken in measured_in(checkout).items():
                found.setdefault((checkout, name), []).append(median(taken))
    for (checkout, name), medians in found.items():
        print(f"{checkout}: {name}: {median(medians) * 1e3:.1f} ms")
    for (other, name), theirs in found.items():
        if other != here:
            ratios = sorted(mine / one for mine, one in zip(found[here, name], theirs, strict=True))
            print(f"{name}, here / there: {median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")


if __name__ == "__main__":
    if sys.argv[1:] == [MEASURE]:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(json.dumps(runner.run(measure())))
    else:
        main(sys.argv[1:])
