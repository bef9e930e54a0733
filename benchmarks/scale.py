"""How many servers, workers, NATS and Postgres a rate of steps needs, and what saturates first.

    python benchmarks/scale.py [RATE...]          steps per second; by default 10, 1,000 and 100,000
    python benchmarks/scale.py --measure [bench options]

A model of a few multiplications over measured costs: what one plain step costs each part, times the rate. With
``--measure``, ``noetl-stream bench`` measures the costs on this machine, and the model is held against its throughput.
``docs/explanation/scale.md`` shows the table and says what is measured and what is assumed.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

RATES: Final = (10, 1_000, 100_000)
BUSY: Final = 0.6
"""How busy a core may be: the rest is for peaks, takeovers and what is done beside."""

USED_CORES: Final = 1.45
"""So many of two cores a burst keeps busy (HOT_PATH §1); the rest of the time it waits in lockstep."""

DAY_S: Final = 86_400
LEAST_SERVERS: Final = 2
MOST_SERVERS: Final = 32
"""A server without a partition does nothing."""


class Costs(NamedTuple):
    """Of one plain step: CPU in µs by part, bytes by where they go.

    Attributes:
        copies: What a copy of a stream in a cluster of three costs the leader beside its own, as a factor on its CPU.
            Assumed.
    """

    server_us: float = 159
    worker_us: float = 72
    nats_us: float = 55
    postgres_us: float = 43
    client_us: float = 17
    wal_bytes: float = 9_600
    stored_bytes: float = 4_110
    events_bytes: float = 2_301
    copies: float = 2.0

    @property
    def sum_us(self) -> float:
        return self.server_us + self.worker_us + self.nats_us + self.postgres_us + self.client_us


class Limit(NamedTuple):
    """What one cell can do at the most, in steps per second, because of one part of it."""

    part: str
    steps_per_s: float


class Sizes(NamedTuple):
    """What a rate needs, in each of its cells."""

    rate: int
    cells: int
    servers: int
    workers: int
    nats_cores: float
    postgres_cores: float
    wal_mb_per_s: float
    stored_gb_per_day: float
    first: Limit


def limits(costs: Costs, wal_mb_per_s: float = 200) -> list[Limit]:
    """Of one cell, the lowest first.

    Args:
        wal_mb_per_s: What the disk and the standby of Postgres take in the long run. Assumed.
    """
    found = [
        # A stream has one leader, which appends one message after the other.
        Limit("the leader of EVENTS", BUSY * 1e6 / (costs.nats_us * costs.copies)),
        Limit("the write-ahead log of Postgres", wal_mb_per_s * 1e6 / costs.wal_bytes),
        Limit("servers, one for each partition", MOST_SERVERS * BUSY * 1e6 / costs.server_us),
    ]
    return sorted(found, key=lambda limit: limit.steps_per_s)


def sizes(rate: int, costs: Costs) -> Sizes:
    """What this rate needs."""
    first = limits(costs)[0]
    cells = math.ceil(rate / first.steps_per_s)
    each = rate / cells

    def cores(step_us: float) -> float:
        return each * step_us / 1e6 / BUSY

    return Sizes(
        rate=rate,
        cells=cells,
        servers=max(LEAST_SERVERS, math.ceil(cores(costs.server_us)) + 1),
        workers=max(2, math.ceil(cores(costs.worker_us)) + 1),
        nats_cores=cores(costs.nats_us * costs.copies),
        postgres_cores=cores(costs.postgres_us),
        wal_mb_per_s=each * costs.wal_bytes / 1e6,
        stored_gb_per_day=each * costs.stored_bytes * DAY_S / 1e9,
        first=first,
    )


def table(rates: Sequence[int], costs: Costs) -> str:
    """In Markdown; all but the first two columns are of one cell."""
    head = "steps/s|cells|servers|workers|NATS leader, cores|Postgres, cores|WAL, MB/s|rows, GB a day|busiest part"
    lines = [_row(head.split("|")), _row(["--:"] * 8 + ["---"])]
    for found in (sizes(rate, costs) for rate in rates):
        part = found.rate / found.cells / found.first.steps_per_s
        numbers = (found.nats_cores, found.postgres_cores, found.wal_mb_per_s, found.stored_gb_per_day)
        lines.append(
            _row(
                [
                    f"{found.rate:,}",
                    str(found.cells),
                    str(found.servers),
                    str(found.workers),
                    *(f"{number:.2g}" if number < 10 else f"{number:,.0f}" for number in numbers),
                    f"{found.first.part}, {part:.1%} of what it can do",
                ]
            )
        )
    return "\n".join(lines)


def predicted_steps_per_s(costs: Costs, cores: float = USED_CORES) -> float:
    """What a machine does on which all parts run, with so many cores busy."""
    return cores * 1e6 / costs.sum_us


def measured(options: Sequence[str]) -> tuple[Costs, list[float]]:
    """The costs on this machine, and the throughput beside which they were measured."""
    program = Path(sys.executable).with_name("noetl-stream")
    ran = subprocess.run([program, "bench", "-o", "json", *options], check=True, stdout=subprocess.PIPE)
    figures: dict[str, Any] = json.loads(ran.stdout)
    cpu = {f"{part}_us": cost for part, cost in figures["cpu_us_per_step"].items()}
    return Costs()._replace(**cpu), figures["steps_per_s"]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main(arguments: Sequence[str]) -> None:
    if arguments[:1] == ["--measure"]:
        costs, rates = measured(arguments[1:])
        print(f"CPU per step here: {costs.sum_us:.0f} µs, recorded: {Costs().sum_us:.0f} µs")
        print(f"predicted {predicted_steps_per_s(costs):,.0f} steps/s, measured {min(rates):,.0f} to {max(rates):,.0f}")
        print(table(RATES, costs))
        return
    print(table([int(rate) for rate in arguments] or RATES, Costs()))
    for limit in limits(Costs()):
        print(f"one cell: at most {limit.steps_per_s:,.0f} steps/s by {limit.part}")


if __name__ == "__main__":
    main(sys.argv[1:])
