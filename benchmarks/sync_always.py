"""What `sync_interval: always` costs nats-server, and whether atomic batches make it less.

    python benchmarks/sync_always.py [--messages 5000] [--batch 100] [--bytes 400] [--rounds 3] [--syncs]

A nats-server of its own for each round, with a stream in files. Messages are published without a pause, their
acknowledgements awaited together at the end: each alone, or in atomic batches, as a server's tick would be. Prints
messages per second and, with `--syncs`, how often the server synced a file, which strace counts and makes slow.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from noetl_stream.local.binaries import find_nats_server
from noetl_stream.local.processes import listen

INTERVALS: Final = ("10s", "always")
WINDOW: Final = 2_000
"""The messages under way without an acknowledgement."""


def measured(arguments: argparse.Namespace, interval: str, batch: int) -> tuple[float, int]:
    """Returns messages per second, and the number of syncs."""
    with tempfile.TemporaryDirectory(prefix="sync-") as folder:
        with listen(0) as free:
            port = free.getsockname()[1]
        configuration = Path(folder) / "nats.conf"
        configuration.write_text(
            f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder}/store", sync_interval: "{interval}" }}\n'
        )
        counted = Path(folder) / "syncs"
        server = [str(find_nats_server()), "-c", str(configuration), "-l", f"{folder}/log"]
        if arguments.syncs:
            server = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync", "-o", str(counted), *server]
        process = subprocess.Popen(server, start_new_session=True)
        try:
            seconds = asyncio.run(_timed(port, arguments.messages, batch, b"x" * arguments.bytes))
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
        syncs = len(counted.read_text().splitlines()) if counted.exists() else 0
        return arguments.messages / seconds, syncs


async def _timed(port: int, count: int, batch: int, body: bytes) -> float:
    client = await _connected(port)
    try:
        return await _published(client, count, batch, body)
    finally:
        await client.close()


async def _connected(port: int) -> Client:
    for _ in range(200):
        try:
            url = f"nats://127.0.0.1:{port}"
            client = await nats.connect(url, max_reconnect_attempts=0, connect_timeout=5, error_cb=_unsaid)
            stream = {"name": "S", "subjects": ["s.>"], "storage": "file", "allow_atomic": True}
            answer = await client.request("$JS.API.STREAM.CREATE.S", json.dumps(stream).encode(), timeout=5)
            if "error" not in json.loads(answer.data):
                return client
            await client.close()
        except (OSError, nats.errors.Error):
            pass
        await asyncio.sleep(0.05)
    raise TimeoutError("nats-server did not start")


async def _unsaid(_error: Exception) -> None:
    """That it is not there yet need not be said."""


async def _published(client: Client, count: int, batch: int, body: bytes) -> float:
    """Returns the seconds until all are acknowledged."""
    inbox, stored, room = client.new_inbox(), 0, asyncio.Event()

    async def acknowledged(message: Msg) -> None:
        nonlocal stored
        if not message.data:
            return  # the first of a batch was taken
        answer = json.loads(message.data)
        assert "error" not in answer, answer
        stored += answer.get("count", 1)
        room.set()

    await client.subscribe(inbox, cb=acknowledged)
    began_s = time.perf_counter()
    for number in range(count):
        while number - stored >= WINDOW:
            room.clear()
            await room.wait()
        headers = {"Nats-Msg-Id": f"m{number}"}
        reply = inbox
        if batch:
            place = number % batch + 1
            headers |= {"Nats-Batch-Id": f"b{number // batch}", "Nats-Batch-Sequence": str(place)}
            if is_last := place == batch or number == count - 1:
                headers["Nats-Batch-Commit"] = "1"
            reply = inbox if is_last else ""
        await client.publish(f"s.{number % 32}", body, reply, headers=headers)
    while stored < count:
        room.clear()
        await asyncio.wait_for(room.wait(), 60)
    return time.perf_counter() - began_s


def main(arguments: argparse.Namespace) -> None:
    print("| `sync_interval` | published | messages/s | syncs |\n| --- | --- | --- | --- |")
    cases = [(interval, batch) for interval in INTERVALS for batch in (0, arguments.batch)]
    found: dict[tuple[str, int], list[tuple[float, int]]] = {case: [] for case in cases}
    for _ in range(arguments.rounds):
        for case in cases:
            found[case].append(measured(arguments, *case))
    for (interval, batch), results in found.items():
        how = f"in atomic batches of {batch}" if batch else "one by one"
        rate, syncs = median(rate for rate, _ in results), median(syncs for _, syncs in results)
        print(f"| {interval} | {how} | {rate:,.0f} | {syncs:.0f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=5_000)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--bytes", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--syncs", action="store_true")
    main(parser.parse_args())
