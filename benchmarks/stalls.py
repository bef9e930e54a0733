"""How long the event loop of a server stands still: under ordinary load, and under guards as costly as allowed.

    python benchmarks/stalls.py

A server runs in this process and a worker in another, on an embedded stack of their own. Prints the longest and the
99.9th percentile of the pauses between two turns of the loop, in milliseconds. Where the machine has other work, they
include the time that the process waited for a processor.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import quantiles
from typing import Final

from noetl_stream.protocol.nats_permissions import SERVER
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.wiring.role_assembly import make_server
from noetl_stream.wiring.stack import connected_to, open_stack, prepare_embedded

RUNS: Final = 30
BEAT_S: Final = 0.001
PROGRAM: Final = (sys.executable, "-m", "noetl_stream")

HEAD: Final = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: stalls, path: benchmarks/stalls}\nworkflow:\n"
ROWS: Final = """- step: start
  tool: {kind: noop, args: {rows: "{{ [{'a': 1}] * 1000 }}"}}
  next:
    arcs:
"""
END: Final = "- step: end\n  tool: {kind: noop}\n"
SORTING: Final = """    - {step: end, when: "{{ event.result.rows | sort(attribute='a' ~ ',a'*900) == [] }}"}\n"""
PLAYBOOKS: Final = {
    "one plain guard": HEAD + ROWS + """    - {step: end, when: "{{ start.rows | length > 5 }}"}\n""" + END,
    "eight guards that sort 1,000 rows by 901 keys": HEAD + ROWS + SORTING * 8 + END,
}


@contextmanager
def beating() -> Iterator[list[float]]:
    """The pauses of the loop in the block, in milliseconds beyond the beat."""
    pauses: list[float] = []

    async def beat() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(BEAT_S)
            pauses.append((time.perf_counter() - began - BEAT_S) * 1000)

    task = asyncio.create_task(beat())
    try:
        yield pauses
    finally:
        task.cancel()


async def measure(home: Path, playbooks: Path) -> None:
    with open_stack(Settings(home_folder=home)) as stack:
        await prepare_embedded(stack)
        async with connected_to(stack, "noetl-stalls", SERVER) as connected:
            server = make_server(connected, stack.endpoint_of(SERVER))
            serving = asyncio.create_task(server.run())
            worker = await asyncio.create_subprocess_exec(*PROGRAM, "worker", "--home", str(home))
            for name, source in PLAYBOOKS.items():
                file = playbooks / "playbook.yaml"
                file.write_text(source)
                with beating() as pauses:
                    for _ in range(RUNS):
                        run = await asyncio.create_subprocess_exec(
                            *(*PROGRAM, "run", str(file), "--home", str(home)),
                            stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL,
                        )
                        await run.wait()
                print(f"{name:48} longest {max(pauses):6.1f}   99.9 % {quantiles(pauses, n=1000)[-1]:6.1f}")
            worker.terminate()
            await worker.wait()
            server.stop()
            with suppress(asyncio.CancelledError):
                await serving


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        asyncio.run(measure(Path(folder, "home"), Path(folder)))
