"""What a command costs the worker over NATS: CPU of its process, from the delivery to the acknowledgement.

    python benchmarks/worker_nats.py [--commands 3000] [--rounds 6] [--priorities 9,5,1]

Commands of a step of one no-op task come from another process over a nats-server of its own; there is no engine server.
Prints microseconds of CPU per command for each round, of the worker and of nats-server, then their medians. Commands
have these priorities in turn. The speed of a machine drifts: compare two checkouts in turns only.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import time
from statistics import median
from typing import Final

import psutil
import uvloop
from msgspec.structs import replace

from adapter_nats import nats_server
from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.memory.broker import MemoryBroker
from noetl_stream.adapters.nats.commands.command_queue import NatsCommandQueue
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.event_log import NatsEventLog
from noetl_stream.adapters.nats.streams import ensure_streams
from noetl_stream.cli.base.process import GC_THRESHOLDS
from noetl_stream.playbook.compile.compiler import compile_playbook
from noetl_stream.ports.streams.command_queue import QueuedCommand
from noetl_stream.tools.pipeline import NoopTool
from noetl_stream.worker.worker import Worker
from worker_cost import HEAD, SHAPES, OnePlan, queued

SLOTS: Final = 256
AT_ONCE: Final = 100
POLL_S: Final = 0.05

SHAPE: Final = SHAPES["a step of one task"]
PLAN: Final = compile_playbook(HEAD + SHAPE.steps, {"noop": NoopTool.spec})


async def issue(url: str, count: int, rounds: int, priorities: list[int]) -> None:
    """The other process: issues ``count`` commands for each line it reads."""
    connection = await NatsConnection.open(url, name="issuer")
    queue = await NatsCommandQueue.open(connection)
    for first in range(0, count * rounds, count):
        await asyncio.to_thread(sys.stdin.readline)
        commands = [
            replace(queued(PLAN, SHAPE, number), priority=priorities[number % len(priorities)])
            for number in range(first, first + count)
        ]
        for at in range(0, count, AT_ONCE):
            await queue.issue(commands[at : at + AT_ONCE], {})
    await connection.close()


def broker_s() -> float:
    """The CPU time of the nats-server that this process has started."""
    (server,) = (one for one in psutil.Process().children() if one.name() == "nats-server")
    used = server.cpu_times()
    return float(used.user + used.system)


async def measure(url: str, count: int, rounds: int, priorities: str) -> None:
    connection = await NatsConnection.open(url, name="worker")
    await ensure_streams(connection)
    clock = SystemClock()
    queue, log = await NatsCommandQueue.open(connection), await NatsEventLog.open(connection, clock)
    memory = MemoryBroker(clock)
    await queue.add_pool("default")
    first = [QueuedCommand("default", "first", f"at-{one}", 1, b"", int(one)) for one in priorities.split(",")]
    await queue.issue(first, {})  # makes the consumers: what is stored before would be claimed
    await queue.withdraw([(one.execution_id, one.command_id) for one in first])
    worker = Worker(
        name="worker",
        pool="default",
        slots=SLOTS,
        event_log=log,
        queue=queue,
        bus=memory.bus,
        blobs=memory.blobs,
        task_logs=memory.task_logs,
        clock=clock,
        tools={"noop": NoopTool()},
        plans=OnePlan(PLAN),
    )
    working = asyncio.create_task(worker.run())
    arguments = (
        sys.executable,
        __file__,
        "--issue",
        url,
        f"--commands={count}",
        f"--rounds={rounds}",
        f"--priorities={priorities}",
    )
    issuer = await asyncio.create_subprocess_exec(*arguments, stdin=asyncio.subprocess.PIPE)
    assert issuer.stdin is not None
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    costs_us, brokers_us = [], []
    for finished in range(1, rounds + 1):
        began_s, broker_began_s = time.process_time(), broker_s()
        issuer.stdin.write(b"go\n")
        while await log.last_sequence() < finished * count:  # noqa: ASYNC110  one report each
            await asyncio.sleep(POLL_S)
        costs_us.append((time.process_time() - began_s) / count * 1e6)
        brokers_us.append((broker_s() - broker_began_s) / count * 1e6)
        print(f"{costs_us[-1]:7.1f} µs, nats-server {brokers_us[-1]:7.1f}")
    print(f"{median(costs_us):7.1f} µs, median; {min(costs_us):.1f} the least; nats-server {median(brokers_us):.1f}")
    await issuer.wait()
    worker.drain()
    await working
    await connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commands", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--priorities", default="5")
    parser.add_argument("--issue", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.issue:
        priorities = [int(one) for one in options.priorities.split(",")]
        uvloop.run(issue(options.issue, options.commands, options.rounds, priorities))
        return
    with nats_server() as url:
        uvloop.run(measure(url, options.commands, options.rounds, options.priorities))


if __name__ == "__main__":
    main()
