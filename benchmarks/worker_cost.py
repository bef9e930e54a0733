"""What a task run costs the worker, over adapters in memory: CPU from the claim to the acknowledgement.

    python benchmarks/worker_cost.py [runs]

Prints microseconds of CPU per task run, the median of several rounds, for steps of one task, for a pipeline with
policies, and for local loops in order and in parallel. Every task is a no-op, so what remains is the worker (its pull,
the runner, the reports) and the adapters in memory.
"""

from __future__ import annotations

import asyncio
import sys
import time
from statistics import median
from typing import Final, NamedTuple

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.memory.broker import MemoryBroker
from noetl_stream.model.messages import StepCommand
from noetl_stream.playbook.compile.compiler import compile_playbook
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.streams.command_queue import QueuedCommand
from noetl_stream.tools.pipeline import NoopTool
from noetl_stream.worker.child_playbooks import PlanClient
from noetl_stream.worker.worker import Worker
from noetl_testkit.keys import CAPABILITIES

RUNS: Final = 2_000
ROUNDS: Final = 7
SLOTS: Final = 64
POLL_S: Final = 0.001

HEAD: Final = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: worker-cost, path: benchmarks/worker-cost }
workflow:
- step: work
"""
RULES: Final = "spec: { policy: { rules: [{ else: { then: { do: continue, set_iter: { seen: '{{ _task }}' } } } }] } }"
TASK: Final = "{ name: NAME, kind: noop, args: { n: '{{ execution_id }}' }, RULES }".replace("RULES", RULES)


class Shape(NamedTuple):
    """A step. It runs ``tasks`` in each pipeline, and a pipeline for each of ``items``, or one if that is 0."""

    steps: str
    tasks: int = 1
    items: int = 0


PIPELINE: Final = "\n".join(f"  - {TASK.replace('NAME', f't{number}')}" for number in range(5))
LOOP: Final = "  loop: { in: [1], iterator: n, spec: { MODE } }\n  tool: { kind: noop, args: { n: '{{ n }}' } }"

SHAPES: Final = {
    "a step of one task": Shape("  tool: { kind: noop }"),
    "a pipeline of five tasks with policies": Shape(f"  tool:\n{PIPELINE}", tasks=5),
    "a local loop in order": Shape(LOOP.replace("MODE", "mode: sequential"), items=100),
    "a local loop, ten at once": Shape(LOOP.replace("MODE", "mode: parallel, exec: local"), items=100),
}


class OnePlan(PlanClient):
    """Has one plan cached."""

    def __init__(self, plan: Plan) -> None:
        super().__init__({})
        self._plan = plan

    def cached_plan(self, digest: str) -> Plan | None:
        return self._plan


async def cost_us(shape: Shape, runs: int) -> float:
    """Microseconds of CPU per task run."""
    tool = NoopTool()
    plan = compile_playbook(HEAD + shape.steps, {"noop": tool.spec})
    clock = ManualClock()
    broker = MemoryBroker(clock)
    worker = Worker(
        name="worker",
        pool="default",
        slots=SLOTS,
        event_log=broker.event_log,
        queue=broker.command_queue,
        bus=broker.bus,
        blobs=broker.blobs,
        task_logs=broker.task_logs,
        clock=clock,
        tools={"noop": tool},
        plans=OnePlan(plan),
    )
    count = max(1, runs // (shape.tasks * max(1, shape.items)))
    working = asyncio.create_task(worker.run())
    commands = [queued(plan, shape, number) for number in range(count)]
    clock.advance(1.0)  # commands older than the worker's connection would have to be claimed
    await asyncio.sleep(POLL_S)
    began_s = time.process_time()
    await broker.command_queue.issue(commands, {})
    while await broker.command_queue.present():  # noqa: ASYNC110  a hook in the worker would be measured too
        await asyncio.sleep(POLL_S)
    took_s = time.process_time() - began_s
    worker.drain()
    await working
    return took_s / (count * shape.tasks * max(1, shape.items)) * 1_000_000


def queued(plan: Plan, shape: Shape, number: int) -> QueuedCommand:
    """One command of the plan's only step."""
    execution = f"execution-{number}"
    command = StepCommand(
        command_id=f"command-{number}",
        execution_id=execution,
        partition=0,
        step_run_id=f"steprun-{number}",
        step=plan.entry,
        digest=plan.digest,
        pool="default",
        items=list(range(shape.items)) if shape.items else None,
        max_in_flight=10,
    )
    body = CAPABILITIES.encode(command, command.share)
    return QueuedCommand(command.pool, execution, command.command_id, command.issue, body)


def main() -> None:
    """Prints the table."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    for name, shape in SHAPES.items():
        costs_us = [asyncio.run(cost_us(shape, runs)) for _ in range(ROUNDS)]
        print(f"{median(costs_us):7.1f} µs  {name}")


if __name__ == "__main__":
    main()
