"""Asking whether a copy that may not be the only one may run (PROTOCOL §3 *Claim*)."""

from __future__ import annotations

import asyncio
import logging

from noetl_stream.errors import PayloadRefused
from noetl_stream.model import codec
from noetl_stream.model.events import StepClaimed
from noetl_stream.model.messages import ClaimAnswer, StepCommand
from noetl_stream.ports.bus import Bus
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.command_queue import Delivery
from noetl_stream.worker.command.reporter import Reporter
from noetl_stream.worker.limits import CLAIM_ANSWER_S
from noetl_stream.worker.waiting import persist, within

log = logging.getLogger(__name__)


def may_be_a_copy(command: StepCommand, delivery: Delivery, connected_ms: int) -> bool:
    """Whether the command has to be claimed: only a first issue, delivered once, stored since we are connected, is sure
    to be the only one. Both times are the queue's own.
    """
    return command.issue > 1 or delivery.num_delivered > 1 or delivery.stored_ms <= connected_ms


async def claim(bus: Bus, clock: Clock, reporter: Reporter) -> ClaimAnswer:
    """The fold's answer. Asked again as long as there is none; the lease is kept meanwhile."""
    run = reporter.run
    subject = f"noetl.claim.{run.command_id}.{run.nonce}"
    answer: asyncio.Future[ClaimAnswer] = asyncio.get_running_loop().create_future()

    async def hear(_subject: str, body: bytes, _reply: str) -> None:
        try:
            heard = codec.decode_claim_answer(body)
        except PayloadRefused as error:
            log.warning("claim of %s: %s", run.command_id, error)
            return
        if not answer.done():
            answer.set_result(heard)

    subscription = await persist(clock, f"listen for the answer to {subject}", lambda: bus.listen(subject, hear))
    try:
        while True:
            await reporter.publish_claim(StepClaimed(subject))
            if await within(clock, CLAIM_ANSWER_S, answer):
                return answer.result()
            log.info("claim of %s: no answer yet, asking again", run.command_id)
    finally:
        await subscription.close()
