"""A storm of hostile messages on every subject of a running installation, by whoever may publish there.

The gateway, a worker and even a server are in wrong hands: each subject is written to by an identity that has the right
to, with bodies that are like genuine ones and wrong somewhere inside. JetStream's own requests are left out, because
JetStream answers them.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from random import Random
from typing import Final, Self

from hostile_messages import EXTREMES, HostileMessages
from noetl_stream.adapters.nats.connections.connection import ApiRefused, NatsConnection
from noetl_stream.adapters.nats.outbox import MESSAGE_ID, Outbox, publish_once
from noetl_stream.errors import OutcomeUnknown
from noetl_stream.model.events import ClientFact
from noetl_stream.model.ids import PARTITIONS, partition_of
from noetl_stream.model.json import codec
from noetl_stream.model.messages import CatalogQuestion, Go, JournalRecord, Report, ShownCommand, StepCommand, Stop
from noetl_stream.ports.streams.event_log import ReportedMessage
from noetl_stream.protocol.nats_permissions import ADMIN, POOL, TABLE
from noetl_stream.sealing.signing import Signer

INPUTS: Final = 0.7
"""The share of requests and reports, which are folded."""

OTHERS: Final = tuple(
    (row.subject.replace(POOL, "default"), role)
    for row in TABLE
    for role in row.publish
    if role != ADMIN  # an operator's hand, not a process
    if row.subject.endswith("decided") or not row.subject.startswith(("$JS.API", "noetl.events."))
)
"""Each subject pattern that carries no input, with a role that may publish it."""


class Storm:
    """Writes hostile messages as gateway, server and worker.

    Attributes:
        written: How many, by the pattern of their subjects.
        stored: How many of them a stream has acknowledged.
    """

    def __init__(self, seed: int, lines: dict[str, NatsConnection], outboxes: dict[str, Outbox]) -> None:
        self.written: Counter[str] = Counter()
        self.stored = 0
        self._dice = Random(seed)
        self._lines = lines
        self._outboxes = outboxes
        self._bodies: set[int] = set()

    @classmethod
    async def open(cls, seed: int, url: str, seeds: dict[str, str], closing: AsyncExitStack) -> Self:
        """
        Args:
            seeds: Of the NATS users, by identity.
        """
        lines: dict[str, NatsConnection] = {}
        outboxes: dict[str, Outbox] = {}
        for role, identity in (("gateway", "gateway"), ("server", "server"), ("worker", "worker-default")):
            line = lines[role] = await NatsConnection.open(url, name="hostile", nkey=seeds[identity], identity=identity)
            closing.push_async_callback(line.close)
            outboxes[role] = await Outbox.open(line, resend_after_s=30)
            closing.push_async_callback(outboxes[role].close)
        return cls(seed, lines, outboxes)

    def is_genuine(self, message: ReportedMessage) -> bool:
        """Whether this storm has not written it."""
        return hash(message.body) not in self._bodies

    async def blow(
        self,
        count: int,
        signer: Signer,
        begin: Callable[[str], Sequence[ClientFact]],
        victims: Sequence[str],
        reports: Sequence[ReportedMessage],
    ) -> None:
        """Writes so many messages; returns when the streams have taken them.

        Args:
            begin: Facts of the requests to an execution.
            victims: The executions that they are about, beside some that do not exist.
            reports: Genuine reports on them.
        """
        messages = HostileMessages(self._dice, signer, begin)
        taken = []
        for _ in range(count):
            is_input = self._dice.random() < INPUTS
            taken.append((self._input if is_input else self._other)(messages, victims, reports))
            if len(taken) % 100 == 0:
                await asyncio.sleep(0)  # so that this process reads its heartbeats
        answers = await asyncio.gather(*(one for one in taken if one is not None), return_exceptions=True)
        unexpected = [one for one in answers if isinstance(one, BaseException) and not isinstance(one, EXPECTED)]
        if unexpected:
            raise unexpected[0]
        self.stored += sum(not isinstance(one, BaseException) for one in answers)
        for line in self._lines.values():
            await line.flush(30)

    def _input(
        self, messages: HostileMessages, victims: Sequence[str], reports: Sequence[ReportedMessage]
    ) -> asyncio.Future[object]:
        number = self.written.total()
        execution_id = self._dice.choice([*victims, f"hostile-{number}"])
        kind, role = "requested", "gateway"
        if reports and self._dice.random() < 0.6:
            report = self._dice.choice(reports)
            execution_id, body = report.execution_id, messages.like(report.body)
            kind, role = "reported.default", "worker"
        else:
            body = messages.request(execution_id, f"hostile-{number}")
        match self._dice.randrange(8):
            case 0:
                kind, role = "requeued", "gateway"
            case 1:
                kind, role = self._dice.choice([("requested", "gateway"), ("reported.default", "worker")])
        right = self._dice.random() < 0.95
        partition = partition_of(execution_id) if right else self._dice.randrange(PARTITIONS)
        self._bodies.add(hash(body))
        self.written[f"noetl.events.*.*.{kind}"] += 1
        subject = f"noetl.events.{partition}.{execution_id}.{kind}"
        return self._stored(role, subject, body, f"hostile-{number}")

    def _other(
        self, messages: HostileMessages, victims: Sequence[str], reports: Sequence[ReportedMessage]
    ) -> asyncio.Future[object] | None:
        number = self.written.total()
        pattern, role = self._dice.choice(OTHERS)
        report = codec.decode_reported(self._dice.choice(reports).body) if reports else None
        command = report.command_id if isinstance(report, Report) else "none"
        words = [*victims, command, "default", "3", f"hostile-{number}"]
        subject = ".".join(self._dice.choice(words) if token == "*" else token for token in pattern.split("."))
        body = messages.like(self._dice.choice(_examples(report)))
        if self._dice.random() < 0.05:
            body = json.dumps(self._dice.choice(EXTREMES)).encode()
        self.written[pattern] += 1
        if pattern.startswith(("noetl.events.", "noetl.commands.")):
            return self._stored(role, subject, body, f"hostile-{number}")
        self._lines[role].wire.send(subject, body, "_INBOX_hostile.1" if ".ask." in pattern else "")
        return None

    def _stored(self, role: str, subject: str, body: bytes, message_id: str) -> asyncio.Future[object]:
        return publish_once(self._outboxes[role], subject, body, {MESSAGE_ID: message_id})  # type: ignore[return-value]


EXPECTED: Final = (ApiRefused, OutcomeUnknown)
"""A stream that does not take a message: there is one of its subject already, or no answer in time."""


def _examples(report: object) -> list[bytes]:
    """Messages of the other kinds, about the command of a genuine report."""
    if not isinstance(report, Report):
        report = Report("none", "none", "none", 1, 1, "nonce", 0, 0, [])
    shown = ShownCommand(report.execution_id, report.step_run_id, report.command_id, report.issue, report.capability)
    command = StepCommand(
        report.command_id,
        report.execution_id,
        partition_of(report.execution_id),
        report.step_run_id,
        step="only",
        digest="0" * 64,
        pool="default",
        capability=report.capability,
    )
    record = JournalRecord(report.execution_id, 1, [], 1, partition_of(report.execution_id), 1, 1)
    question = CatalogQuestion(shown, "tests/hostile")
    about = {"key": "one", "keys": ["one"], "name": "one", "public_key": "", "server_key": "", "body": ""}
    examples = (command, record, Stop(report.execution_id, [report.command_id], "enough"), Go(), question, [1, 2])
    asked = {**codec.decode_json(codec.encode(question)), **about}
    return [*map(codec.encode, examples), codec.encode(asked), codec.encode("some-server"), codec.encode({"ok": True})]
