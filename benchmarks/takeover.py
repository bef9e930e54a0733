"""How long a dead server's partitions stay without an owner: ``kill -9`` of one of two servers, several times.

    python benchmarks/takeover.py [runs]

Prints, for each run, the seconds from the kill until executions that were submitted right after it, over all
partitions, have completed. The lease is what a dead server's partitions wait for.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from noetl_stream.bench import chain_playbook
from noetl_stream.client.executions.submit import Client, Submission
from noetl_stream.hosting import connected_to, open_stack, prepare_embedded
from noetl_stream.model.ids import PARTITIONS
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.store import Store
from noetl_stream.processes import Supervised
from noetl_stream.server.parts import ServerTimes
from noetl_stream.settings.environment import Settings
from noetl_stream.wiring import Connected, make_client

EXECUTIONS = 64
POLL_S = 0.02


async def owners(store: Store) -> list[str]:
    """The living owner of each partition that has one."""
    return [view.owner for view in await store.read_partitions() if view.live and view.owner]


async def wait_for_owners(store: Store, clock: Clock, count: int) -> None:
    """Until all partitions are owned, by so many servers."""
    while len(found := await owners(store)) < PARTITIONS or len(set(found)) != count:
        await clock.sleep(POLL_S)


async def complete(client: Client, connected: Connected) -> None:
    """Runs one execution to its end."""
    submission = Submission.new(chain_playbook(3), "bench/chain", {}, connected.clock)
    follower = await client.follow(submission.execution_id).open()
    await client.submit(submission, follower)
    await follower.finished.wait()
    await follower.close()


async def measure(runs: int, home: Path) -> None:
    settings = Settings(home_folder=home)
    with open_stack(settings) as place:
        await prepare_embedded(place)
        async with connected_to(place, "takeover") as connected, AsyncExitStack() as stack:
            children = [Supervised(f"server {n}", ["server"], place) for n in (1, 2)]
            children.append(Supervised("worker", ["worker"], place))
            for child in children:
                stack.callback(asyncio.create_task(child.run()).cancel)
                stack.push_async_callback(child.stop)
            client = make_client(connected)
            for run in range(runs):
                await wait_for_owners(connected.store, connected.clock, 2)
                victim = children[run % 2].pid
                assert victim is not None
                os.kill(victim, signal.SIGKILL)
                began_s = time.perf_counter()
                await asyncio.gather(*(complete(client, connected) for _ in range(EXECUTIONS)))
                print(f"run {run + 1}: {EXECUTIONS} executions completed {time.perf_counter() - began_s:.1f} s after")
            print(f"lease {ServerTimes().lease_s:g} s")


if __name__ == "__main__":
    asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 3, Path(tempfile.mkdtemp(prefix="takeover-"))))
