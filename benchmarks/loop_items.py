"""What the items of a loop cost: bytes of the journal per iteration, seconds, and the memory of the server.

    python benchmarks/loop_items.py [other checkout]

Items of 1 KB, in parallel loops of `noop`, 200 in flight: of a result (10,000 and 3,000 items) and of `workload` (900
items). Each case runs in a stack of its own, in a temporary home. The journal's bytes are those of all its entries, as
Postgres holds them, without the request that brings `workload`. The memory is the server's peak (``VmHWM``), with that
of the same server before the run. With another checkout, whose environment must be ready, rounds on the two alternate;
shown are the medians.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench_stack import running, until
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.wiring.operations import make_client
from noetl_stream.wiring.stack import connected_to, open_stack, prepare_embedded
from noetl_stream.wiring.stores import Connected
from noetl_testkit.following import Submission, Watcher, submit

ROUNDS: Final = 3
ITEM_BYTES: Final = 1_000
CASES: Final = {"10,000 of a result": ("result", 10_000), "3,000 of a result": ("result", 3_000)} | {
    "900 of workload": ("workload", 900)
}
MEASURE: Final = "--measure"


def items(count: int) -> list[dict[str, Any]]:
    return [{"n": n, "text": "x" * (ITEM_BYTES - 25)} for n in range(count)]


def playbook(source: str) -> str:
    """A loop over the result of a Python task, or over `workload`."""
    code = f"result = [{{'n': n, 'text': 'x' * {ITEM_BYTES - 25}}} for n in range(count)]"
    named = {"result": "make", "workload": "workload.rows"}[source]
    loop = {"in": f"{{{{ {named} }}}}", "iterator": "row", "spec": {"mode": "parallel", "max_in_flight": 200}}
    make = {"step": "make", "tool": {"kind": "python", "code": code, "args": {"count": "{{ workload.count }}"}}}
    each = {"step": "each", "loop": loop, "tool": {"kind": "noop", "args": {"n": "{{ row.n }}"}}}
    steps = [{**make, "next": {"arcs": [{"step": "each"}]}}, each] if source == "result" else [each]
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "items", "path": "bench/items"}}
    return json.dumps({**head, "workload": {"count": 0, "rows": []}, "workflow": steps})


def peak_mib(pid: int | None) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


async def run_once(connected: Connected, source: str, count: int) -> dict[str, float]:
    """Journal bytes per iteration, and seconds."""
    workload = {"rows": items(count)} if source == "workload" else {"count": count}
    submission = Submission.new(playbook(source), "bench/items", workload, connected.clock)
    client = make_client(connected)
    follower = await Watcher(connected.bus, submission.execution_id).open()
    began_s = time.perf_counter()
    await submit(client, submission, follower)
    await follower.finished.wait()
    took_s = time.perf_counter() - began_s
    await follower.close()
    row = await connected.store.execution(submission.execution_id)
    assert row is not None and row.status == "completed", row
    journal = await connected.store.journal(submission.execution_id)
    brought = ("execution.requested", "execution.started")
    size = sum(len(entry.data) for entry in journal if entry.name not in brought)
    largest = max(len(entry.data) for entry in journal if entry.name not in brought)
    return {"bytes/iteration": size / count, "largest entry": largest, "seconds": took_s}


async def measure(source: str, count: int, home: Path) -> dict[str, float]:
    with open_stack(Settings(home_folder=home)) as place:
        await prepare_embedded(place)
        roles = (["server"], ["worker", "--slots", "200"])
        async with connected_to(place, "loop-items") as connected, running(place, *roles) as (server, _worker):
            await until(make_client(connected).alive)
            await run_once(connected, "workload", 1)
            before = peak_mib(server.pid)
            figures = await run_once(connected, source, count)
            return {**figures, "server before, MiB": before, "server peak, MiB": peak_mib(server.pid)}


def measured_in(checkout: Path, case: str) -> dict[str, float]:
    command = [str(checkout / ".venv/bin/python"), str(Path(__file__).resolve()), MEASURE, case]
    done = subprocess.run(command, cwd=checkout, stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main(others: list[str]) -> None:
    here = Path(__file__).resolve().parents[1]
    checkouts = [*map(Path, others), here]
    for case in CASES:
        found: dict[Path, list[dict[str, float]]] = {checkout: [] for checkout in checkouts}
        for number in range(ROUNDS):
            for checkout in checkouts if number % 2 == 0 else reversed(checkouts):
                found[checkout].append(measured_in(checkout, case))
        for checkout, rounds in found.items():
            figures = {name: median(one[name] for one in rounds) for name in rounds[0]}
            shown = ", ".join(f"{name} {figure:,.1f}" for name, figure in figures.items())
            print(f"{case}: {checkout}: {shown}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == [MEASURE]:
        with tempfile.TemporaryDirectory(prefix="loop-items-") as folder:
            print(json.dumps(asyncio.run(measure(*CASES[sys.argv[2]], Path(folder)))))
    else:
        main(sys.argv[1:])
