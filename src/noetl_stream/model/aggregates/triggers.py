"""Requests and messages to triggers: see :mod:`noetl_stream.engine.aggregates.triggers`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

import msgspec

from noetl_stream.model.aggregates.fact_parts import (
    AggregateFact,
    AggregateRequested,
    StarterDeleted,
    StarterPaused,
    StarterRegistered,
    StarterResumed,
    StarterTerms,
)
from noetl_stream.model.events import Boundary
from noetl_stream.model.status import EndStatus

TRIGGER: Final = "Trigger"

EventSource = Literal["webhook", "nats", "execution", "event"]
StreamFormat = Literal["json", "text", "bytes"]
SignatureForm = Literal["github", "stripe", "slack", "hmac", "token", "none"]
SignatureAlgorithm = Literal["sha256", "sha512"]
SignatureEncoding = Literal["hex", "base64"]

DEFAULT_TOLERANCE_S: Final = 300

UNTIMED: Final = "1970-01-01T00:00:00.000+00:00"
"""The default time of an event, as for a test of a trigger."""


class Verification(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The verification of a delivery's sender.

    Attributes:
        credential: The name of the stored credential that holds the secret; empty with ``none``.
        header: The header of the signature (``hmac``) or the token (``token``), lower-case.
        timestamp_header: The header of the time that is signed with the body (``hmac``), lower-case; empty without one.
        prefix: The text before the signature, such as ``sha256=``.
        tolerance_s: The largest difference between the signed time and now.
    """

    form: SignatureForm
    credential: str = ""
    header: str = ""
    algorithm: SignatureAlgorithm = "sha256"
    encoding: SignatureEncoding = "hex"
    prefix: str = ""
    timestamp_header: str = ""
    tolerance_s: int = DEFAULT_TOLERANCE_S


class EndedExecutions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The ends of executions that start a trigger. A ``path`` with ``/*`` at its end covers all below it; empty fields
    match any path and status. ``ctx`` are the keys of ``ctx`` that the event contains.
    """

    path: str = ""
    labels: Mapping[str, Any] = {}
    status: tuple[EndStatus, ...] = ()
    ctx: tuple[str, ...] = ()


class EmittedEvents(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The events of playbooks that start a trigger, by ``name``; ``path`` and ``labels`` are those of the emitting
    execution, as in :class:`EndedExecutions`.
    """

    name: str
    path: str = ""
    labels: Mapping[str, Any] = {}


class StreamFilter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The messages of a NATS stream that start a trigger, and the format of their data.

    Attributes:
        subject: A pattern of subjects; ``>``: all of the stream.
        from_ms: The time from which stored messages count; 0: all in the stream; ``None``: the time of registration.
    """

    stream: str
    subject: str = ">"
    from_ms: int | None = None
    format: StreamFormat = "json"


Exceeding = Literal["wait", "drop"]
"""The fate of an event beyond the rate of its trigger."""


class StartRate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rate at which a trigger starts executions: an average per minute, with a ``burst`` after a rest."""

    per_minute: int
    burst: int
    exceeding: Exceeding = "wait"


DEFAULT_RATE: Final = StartRate(per_minute=6_000, burst=1_000)
"""The default rate of a trigger: that of a webhook's address."""

STREAM_RATE: Final = StartRate(per_minute=60_000, burst=1_000)
"""The default rate of a trigger on a stream, where messages wait without loss and running executions are bounded."""


class TriggerTerms(StarterTerms, frozen=True, kw_only=True, omit_defaults=True):
    """The terms of a trigger: its playbook, and its events.

    Exactly one of ``webhook``, ``nats``, ``execution`` and ``event`` is set. ``when``, ``workload``, ``labels`` and
    ``key`` are as written: templates over ``event``.
    """

    when: str | bool = True
    workload: Mapping[str, Any] = {}
    labels: Mapping[str, Any] = {}
    key: str | None = None
    webhook: Verification | None = None
    execution: EndedExecutions | None = None
    nats: StreamFilter | None = None
    rate: StartRate | None = None
    event: EmittedEvents | None = None

    @property
    def watched(self) -> EndedExecutions | EmittedEvents | None:
        """The acts of executions that start it; ``None`` for another source."""
        return self.execution or self.event

    @property
    def pace(self) -> StartRate:
        """The rate of starts, of its document or by default."""
        return self.rate or (DEFAULT_RATE if self.nats is None else STREAM_RATE)

    @property
    def source(self) -> EventSource:
        if self.nats is not None:
            return "nats"
        if self.event is not None:
            return "event"
        return "webhook" if self.webhook is not None else "execution"


class EndError(msgspec.Struct, frozen=True, omit_defaults=True):
    """The error of an execution as triggers see it, without secrets. ``step`` and ``task`` are those that failed."""

    kind: str
    message: str = ""
    step: str | None = None
    task: str | None = None
    code: str | None = None


class EndedExecution(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of an execution as triggers see it: ``event`` in their templates. Secrets are hidden.

    Attributes:
        version: Null if the playbook has none.
        error: Null if it is completed.
        result: Null unless it is completed.
        ctx: The keys that the trigger names; null for missing ones.
        omitted: Which of ``result``, ``ctx`` and ``workload`` are empty because all together would be too large.
        url: The address of the execution's page; null if the address of the page is not configured.
        due: The time of its schedule's occurrence; null without a schedule.
    """

    execution_id: str
    path: str
    status: EndStatus
    version: str | None = None
    labels: dict[str, Any] = {}
    error: EndError | None = None
    result: Any = None
    workload: dict[str, Any] = {}
    ctx: dict[str, Any] = {}
    omitted: list[str] = []
    url: str | None = None
    due: str | None = None
    started: str = UNTIMED
    finished: str = UNTIMED


class EmittedEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event emitted by a step as triggers see it: ``event`` in their templates. Secrets are hidden.

    Attributes:
        id: The id of the event in the journal.
        on: The moment of the step run.
        version: Null if the playbook has none.
        url: The address of the execution's page; null if the address of the page is not configured.
        due: The time of its schedule's occurrence; null without a schedule.
        omitted: ``data`` if it is empty because it is too large for the many triggers that wait for the event.
    """

    id: str
    name: str
    execution_id: str
    path: str
    step: str
    on: Boundary = "completed"
    data: dict[str, Any] = {}
    version: str | None = None
    labels: dict[str, Any] = {}
    url: str | None = None
    due: str | None = None
    time: str = UNTIMED
    omitted: list[str] = []


class TriggerRegistered(StarterRegistered, frozen=True, tag="trigger.registered"):
    of: ClassVar = TRIGGER

    terms: TriggerTerms = TriggerTerms(playbook="")


class TriggerPaused(StarterPaused, frozen=True, tag="trigger.paused"):
    of: ClassVar = TRIGGER


class TriggerResumed(StarterResumed, frozen=True, tag="trigger.resumed"):
    of: ClassVar = TRIGGER


class EventReceived(AggregateRequested, frozen=True, tag="trigger.event_received"):
    """An event that a webhook received and a server verified, or a resent event.

    ``event`` describes it (:func:`noetl_stream.playbook.trigger.matching.read_event`). ``resent`` is the number of the
    event that it repeats; 0 for a new one.
    """

    of: ClassVar = TRIGGER

    event: dict[str, Any] = msgspec.field(default_factory=dict)
    resent: int = 0


class TriggerDeleted(StarterDeleted, frozen=True, tag="trigger.deleted"):
    of: ClassVar = TRIGGER


class ExecutionEnded(AggregateFact, frozen=True, tag="trigger.execution_ended"):
    """An execution that the trigger waits for has ended.

    Attributes:
        depth: The length of the chain of triggers, including this one.
        ended_ms: The time of the end, by its journal.
        root: The execution whose end began the chain of triggers; empty from an older server.
        share: The number of executions that the trigger may add to the descendants of ``root``; ``None`` from an older
            server.
    """

    of: ClassVar = TRIGGER

    ended: EndedExecution
    depth: int = 0
    ended_ms: int = 0
    root: str = ""
    share: int | None = None


class EventEmitted(AggregateFact, frozen=True, tag="trigger.event_emitted"):
    """A step has emitted an event that the trigger waits for. Members are as in :class:`ExecutionEnded`; ``emitted_ms``
    is the time in the journal.
    """

    of: ClassVar = TRIGGER

    emitted: EmittedEvent
    depth: int = 0
    emitted_ms: int = 0
    root: str = ""
    share: int | None = None


class StreamPlace(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A place in a stream. ``made``, the stream's creation time, distinguishes it from an earlier one of that name."""

    stream: str
    made: str
    sequence: int = 0


class StreamEventRead(AggregateFact, frozen=True, tag="trigger.stream_event_read"):
    """The owner of the trigger's partition has read a message of its stream. Like a timer, this fact is not sent.

    Attributes:
        consumer: The trigger's consumer: a trigger that was deleted and registered again has another.
        subject: The pattern that the message matched.
        pending: The number of messages left to read after it.
        at_ms: The time at which the stream stored the message.
        unfoldable: The reason why the event cannot be folded; empty if it can.
    """

    of: ClassVar = TRIGGER

    consumer: str
    place: StreamPlace
    subject: str
    pending: int
    at_ms: int
    event: dict[str, Any] = msgspec.field(default_factory=dict)
    unfoldable: str = ""


class StreamSeen(AggregateFact, frozen=True, tag="trigger.stream_seen"):
    """The state of the trigger's stream as the owner of its partition last saw it.

    Attributes:
        pending: The number of messages left to read; ``None`` if unknown.
        trouble: The reason why the stream cannot be read; empty if it can.
    """

    of: ClassVar = TRIGGER

    consumer: str
    pending: int | None = None
    trouble: str = ""


TriggerFact = TriggerRegistered | TriggerPaused | TriggerResumed | EventReceived | TriggerDeleted
