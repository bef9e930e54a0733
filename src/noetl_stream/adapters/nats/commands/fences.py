"""The fences in COMMANDS, and commands under them (PROTOCOL §5 *Fence at the queue*).

A fence is the one message of its subject. Its sequence is the right to publish commands of its partition: each command
names it, and JetStream refuses commands that name another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.last_messages import EXPECTED, replace_last
from noetl_stream.adapters.nats.outbox import Outbox, PendingPublish, PublishOwner
from noetl_stream.model.json import codec
from noetl_stream.model.messages import FORMAT, QueueFence
from noetl_stream.protocol import subjects
from noetl_stream.retries import backoff_s

_EXPECTED_OF: Final = f"{EXPECTED}-Subject"
_ROLL_UP: Final = {"Nats-Rollup": "sub"}

ASK_AGAIN_AFTER_S: Final = 0.005
MAX_ASK_AGAIN_AFTER_S: Final = 0.2
"""The delay before a command that JetStream could not check is sent again."""

_NO_FENCE: Final = QueueFence(0, "")


@lru_cache(maxsize=1024)
def fence_headers(partition: int, sequence: int) -> Mapping[str, str]:
    """Returns the headers with which JetStream refuses a command unless its partition's fence has this sequence."""
    return {EXPECTED: str(sequence), _EXPECTED_OF: subjects.fence(partition)}


async def raise_fences(
    connection: NatsConnection, outbox: Outbox, owner: str, epochs: Mapping[int, int]
) -> dict[int, int]:
    """Raises the fences of partitions. See :meth:`~noetl_stream.ports.streams.command_queue.CommandQueue.fence`.

    Raises:
        StoreMissing: COMMANDS does not exist.
        Unreachable: no answer in time.
    """
    wanted = {partition: QueueFence(epoch, owner, FORMAT) for partition, epoch in epochs.items()}
    found = await asyncio.gather(*(_raise_fence(connection, outbox, *one) for one in wanted.items()))
    return {partition: sequence for partition, sequence in zip(wanted, found, strict=True) if sequence}


async def _raise_fence(connection: NatsConnection, outbox: Outbox, partition: int, wanted: QueueFence) -> int:
    """Raises a fence and returns its sequence; 0 if another owner already has one as new."""

    def raised(body: bytes | None, sequence: int) -> bytes | int:
        fence = _decode(body) if body is not None else _NO_FENCE
        if fence.epoch < wanted.epoch:
            return codec.encode(wanted)
        return sequence if fence == wanted else 0

    return await replace_last(connection, outbox, subjects.COMMANDS, subjects.fence(partition), raised, _ROLL_UP)


def _decode(body: bytes) -> QueueFence:
    try:
        return msgspec.json.decode(body, type=QueueFence)
    except msgspec.DecodeError:
        return _NO_FENCE  # an unreadable fence keeps nobody out


class Turns:
    """Sends commands; those of one partition one at a time, while JetStream cannot check them otherwise.

    In a cluster, the leader of a stream refuses a command (:data:`CHECK_UNDER_WAY`) while another one that names the
    same fence is on its way to the followers. Refused commands, and those that come after them, wait here until none is
    left.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._lines: dict[str, _Line] = {}

    def put(self, subject: str, body: bytes, headers: Mapping[str, str], owner: PublishOwner) -> None:
        """Sends a command. See :meth:`~noetl_stream.adapters.nats.outbox.Outbox.put`."""
        line = self._lines.get(headers[_EXPECTED_OF]) if self._lines else None
        if line is None:
            self._outbox.put(subject, body, headers, owner)
        else:
            line.waiting.append(PendingPublish(subject, body, headers, owner))

    def send_later(self, sent: PendingPublish) -> None:
        """Queues a refused command to be sent again."""
        fence = sent.headers[_EXPECTED_OF]
        line = self._lines.get(fence)
        if line is None:
            line = self._lines[fence] = _Line()
        elif line.first != sent.subject:
            line.waiting.append(sent)
            return
        line.tries = line.tries + 1 if line.first else 0
        line.first = sent.subject
        line.waiting.appendleft(sent)
        pause_s = backoff_s(ASK_AGAIN_AFTER_S, line.tries, MAX_ASK_AGAIN_AFTER_S)
        self._outbox.loop.call_later(pause_s, self._send_next, fence, line)

    def send_next(self, sent: PendingPublish) -> None:
        """Sends the next command after one was stored, or refused for good."""
        if self._lines:
            fence = sent.headers[_EXPECTED_OF]
            line = self._lines.get(fence)
            if line is not None and line.first == sent.subject:
                self._send_next(fence, line)

    def _send_next(self, fence: str, line: _Line) -> None:
        if not line.waiting:
            del self._lines[fence]
            return
        sent = line.waiting.popleft()
        if line.first != sent.subject:
            line.first, line.tries = sent.subject, -1
        self._outbox.put(sent.subject, sent.body, sent.headers, sent.owners[0])


class _Line:
    """The waiting commands of one partition. ``first`` is the subject of the next, ``tries`` counts its refusals."""

    def __init__(self) -> None:
        self.first = ""
        self.tries = 0
        self.waiting: deque[PendingPublish] = deque()
