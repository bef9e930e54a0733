"""The service that Restate calls: a handler of durable steps that do nothing, as ``noop`` does in a playbook."""

from __future__ import annotations

import os

import restate

chain = restate.Service("chain")


async def noop() -> None:
    """What a step runs."""


@chain.handler()
async def run(context: restate.Context, steps: int) -> int:
    for number in range(steps):
        await context.run_typed(f"step_{number}", noop)
    return steps


app = restate.app(services=[chain], protocol=os.environ["PROTOCOL"])
