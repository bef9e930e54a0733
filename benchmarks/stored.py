"""What a plain step stores: bytes in Postgres by table, in EVENTS by kind of message, and in COMMANDS.

    python benchmarks/stored.py [other checkout]

Bursts of executions of three no-op steps on a stack of its own, in a temporary home; a first burst warms up, the others
are measured. With another checkout, whose environment must be ready, the same runs there, and the ratio is shown.

- Postgres: how much each table of the schema `noetl` and its indexes grew on disk, as whole pages, after a `vacuum`,
  which frees rows that were replaced. So this is what stays; the write-ahead log is not in it.
- EVENTS: how much its files grew. JetStream compresses a file of 8 MB once it is full, so the last one counts in full.
  Beside it, in brackets and not in the sum, the messages of the last burst as the stream counts them: subject, headers,
  payload and 30 to 34 bytes around them.
- COMMANDS: a command is deleted when it is acknowledged. So each step in turn is given to a pool without a worker, and
  the queue then holds its commands. This is what was written for them; nothing of it stays. The fences of partitions,
  which the queue keeps, are not counted.
"""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import asyncpg

from bench_stack import running, until
from noetl_stream.hosting.bench import chain_playbook
from noetl_stream.model.events import ExecutionRequested
from noetl_stream.model.ids import uuid7
from noetl_stream.model.messages import Request
from noetl_stream.protocol.nats_permissions import ADMIN, SERVER
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.wiring.operations import make_client
from noetl_stream.wiring.stack import connected_to, open_stack, prepare_embedded
from noetl_stream.wiring.stores import Connected

EXECUTIONS: Final = 1_000
STEPS: Final = 3
BURSTS: Final = 10
LOOKUPS_AT_ONCE: Final = 64
UNREAD_POOL: Final = "nothing"  # as long as "default", which is part of each subject and body
MEASURE: Final = "--measure"

SIZES: Final = """
    select relname, pg_table_size(oid) as heap, pg_indexes_size(oid) as indexes
    from pg_class where relnamespace = 'noetl'::regnamespace and relkind = 'r'
"""
ENDED: Final = "select count(*) from noetl.execution where finished_ms is not null"
QUIET_S: Final = 1.0


class Stored(Counter[str]):
    """Bytes, or messages, by what they are stored in."""


@dataclass(frozen=True, slots=True)
class Bed:
    """A stack to measure: as a gateway, as a server, and as the owner of its database."""

    gateway: Connected
    server: Connected
    database: asyncpg.Connection[asyncpg.Record]

    async def burst(self, playbook: str, over: Callable[[], Awaitable[bool]]) -> None:
        """Starts the executions and returns when they have ended."""
        digest, clock = await make_client(self.gateway).put(playbook), self.gateway.clock
        ids = [uuid7(clock.now_ms(), clock.random_bytes(10)) for _ in range(EXECUTIONS)]
        requests = (Request(one, one, ExecutionRequested(one, digest)) for one in ids)
        await asyncio.gather(*map(self.gateway.requests.publish, requests))
        await until(over)

    async def ended(self, count: int) -> bool:
        """Whether this many executions have ended, and the last of their records have reached the stream."""
        if await self.database.fetchval(ENDED) < count:
            return False
        before = await self.state("EVENTS")
        await asyncio.sleep(QUIET_S)
        return before["last_seq"] == (await self.state("EVENTS"))["last_seq"]

    async def tables(self) -> Stored:
        """Bytes on disk, by table and by the indexes of a table."""
        await self.database.execute("vacuum")
        rows = await self.database.fetch(SIZES)
        found = {f"Postgres, {row['relname']}": row["heap"] for row in rows}
        return Stored(found | {f"Postgres, {row['relname']}, indexes": row["indexes"] for row in rows})

    async def state(self, stream: str) -> dict[str, int]:
        found: dict[str, int] = json.loads(await self.server.nats.api(f"STREAM.INFO.{stream}"))["state"]
        return found

    async def held(self, count: int, fences: int) -> bool:
        return (await self.state("COMMANDS"))["messages"] == count + fences

    async def messages(self, first: int, last: int) -> tuple[Stored, Stored]:
        """Messages of EVENTS and their bytes, by the kind that their subject names, from one sequence to another."""
        count, size, free = Stored(), Stored(), asyncio.Semaphore(LOOKUPS_AT_ONCE)

        async def look_up(sequence: int) -> None:
            async with free:
                answer = await self.server.nats.api("STREAM.MSG.GET.EVENTS", {"seq": sequence})
            message = json.loads(answer)["message"]
            kind = f"(EVENTS, {message['subject'].split('.')[4]})"
            count[kind] += 1
            size[kind] += stored_bytes(message)

        await asyncio.gather(*map(look_up, range(first, last + 1)))
        return count, size


def stored_bytes(message: dict[str, Any]) -> int:
    """The bytes of a message in a stream's file, as `STREAM.INFO` counts them."""
    headers, body = (len(base64.b64decode(message.get(part, ""))) for part in ("hdrs", "data"))
    return 22 + len(message["subject"]) + (4 + headers if headers else 0) + body + 8


def chain(step_to_hold: int | None = None) -> str:
    """The chain; one of its steps may be given to the pool without a worker."""
    playbook = json.loads(chain_playbook(STEPS))
    if step_to_hold is not None:
        playbook["workflow"][step_to_hold]["spec"] = {"pool": UNREAD_POOL}
    return json.dumps(playbook)


async def measure(home: Path) -> dict[str, tuple[float, float]]:
    """Messages, 0 for rows, and bytes per step, by what they are stored in."""
    with open_stack(Settings(home_folder=home)) as place:
        await prepare_embedded(place)
        database = await asyncpg.connect(place.endpoint_of(ADMIN).postgres_dsn)
        async with connected_to(place, "stored") as gateway, connected_to(place, "stored", SERVER) as server:
            bed = Bed(gateway, server, database)
            async with running(place, ["server"], ["worker", "--slots", "256"]):
                await until(make_client(gateway).alive)
                found = await _measure(bed, home)
        await database.close()
    return found


async def _measure(bed: Bed, home: Path) -> dict[str, tuple[float, float]]:
    steps, all_steps = EXECUTIONS * STEPS, BURSTS * EXECUTIONS * STEPS
    await bed.burst(chain(), partial(bed.ended, EXECUTIONS))
    tables, events, before = await bed.tables(), await bed.state("EVENTS"), events_files(home)
    for burst in range(2, BURSTS + 2):
        events = await bed.state("EVENTS")
        await bed.burst(chain(), partial(bed.ended, burst * EXECUTIONS))
    grown, after = await bed.tables(), await bed.state("EVENTS")
    grown.subtract(tables)
    counts, sizes = await bed.messages(events["last_seq"] + 1, after["last_seq"])
    assert sizes.total() == after["bytes"] - events["bytes"], "the stream counts otherwise"
    found = {name: (0.0, size / all_steps) for name, size in grown.items() if size}
    found["EVENTS, its files"] = (counts.total() / steps, (events_files(home) - before) / all_steps)
    found |= {name: (counts[name] / steps, sizes[name] / steps) for name in sizes}
    fences = await bed.state("COMMANDS")
    for step in range(STEPS):
        await bed.burst(chain(step), partial(bed.held, (step + 1) * EXECUTIONS, fences["messages"]))
    held = await bed.state("COMMANDS")
    messages, size = (held[name] - fences[name] for name in ("messages", "bytes"))
    return found | {"COMMANDS (not kept)": (messages / steps, size / steps)}


def events_files(home: Path) -> int:
    """The bytes of the files of EVENTS."""
    (folder,) = home.rglob("streams/EVENTS")
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def measured_in(checkout: Path) -> dict[str, tuple[float, float]]:
    command = [str(checkout / ".venv/bin/python"), str(Path(__file__).resolve()), MEASURE]
    done = subprocess.run(command, cwd=checkout, stdout=subprocess.PIPE, check=True)
    found: dict[str, tuple[float, float]] = json.loads(done.stdout)
    return found


def main(others: list[str]) -> None:
    here = Path(__file__).resolve().parents[1]
    checkouts = [*map(Path, others), here]
    found = [measured_in(checkout) for checkout in checkouts]
    names = sorted({name for one in found for name in one}, key=lambda name: (not name.startswith("Postgres"), name))
    print(
        f"{EXECUTIONS} executions of {STEPS} steps; messages and bytes per step: {', then '.join(map(str, checkouts))}"
    )
    for name in names:
        print(f"{name:36}" + "".join("{:9.2f} {:9.1f}".format(*one.get(name, (0, 0))) for one in found))
    sums = [sum(size for name, (_, size) in one.items() if not name.startswith("(")) for one in found]
    print(f"{'all':36}" + "".join(f"{'':9} {total:9.1f}" for total in sums))
    if others:
        print(f"ratio {sums[-1] / sums[0]:.3f}")


if __name__ == "__main__":
    if sys.argv[1:2] == [MEASURE]:
        with tempfile.TemporaryDirectory(prefix="stored-") as folder:
            print(json.dumps(asyncio.run(measure(Path(folder)))))
    else:
        main(sys.argv[1:])
