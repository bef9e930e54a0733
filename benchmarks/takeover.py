"""How long a dead server's partitions have no owner: one of two servers is killed with SIGKILL, several times.

    python benchmarks/takeover.py [runs]

Prints for each run the seconds from the kill until executions submitted right after it, over all partitions, have
completed. A dead server's partitions are free once its lease has expired.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from bench_stack import running, until
from noetl_stream.hosting.bench import chain_playbook
from noetl_stream.model.ids import PARTITIONS
from noetl_stream.operations.executions.submit import Client
from noetl_stream.ports.stores.store import Store
from noetl_stream.server.assembly import ServerTimes
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.wiring.operations import make_client
from noetl_stream.wiring.stack import connected_to, open_stack, prepare_embedded
from noetl_stream.wiring.stores import Connected
from noetl_testkit.following import Submission, Watcher, submit

EXECUTIONS = 64


async def owned_by(store: Store, count: int) -> bool:
    """Whether ``count`` live servers own all partitions."""
    found = [view.owner for view in await store.read_partitions() if view.live and view.owner]
    return len(found) == PARTITIONS and len(set(found)) == count


async def complete(client: Client, connected: Connected) -> None:
    """Runs one execution to its end."""
    submission = Submission.new(chain_playbook(3), "bench/chain", {}, connected.clock)
    follower = await Watcher(connected.bus, submission.execution_id).open()
    await submit(client, submission, follower)
    await follower.finished.wait()
    await follower.close()


async def measure(runs: int, home: Path) -> None:
    settings = Settings(home_folder=home)
    with open_stack(settings) as place:
        await prepare_embedded(place)
        roles = (["server"], ["server"], ["worker"])
        async with connected_to(place, "takeover") as connected, running(place, *roles) as children:
            client = make_client(connected)
            for run in range(runs):
                await until(partial(owned_by, connected.store, 2))
                victim = children[run % 2].pid
                assert victim is not None
                os.kill(victim, signal.SIGKILL)
                began_s = time.perf_counter()
                await asyncio.gather(*(complete(client, connected) for _ in range(EXECUTIONS)))
                print(f"run {run + 1}: {EXECUTIONS} executions completed {time.perf_counter() - began_s:.1f} s after")
            print(f"lease {ServerTimes().lease_s:g} s")


if __name__ == "__main__":
    asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 3, Path(tempfile.mkdtemp(prefix="takeover-"))))
