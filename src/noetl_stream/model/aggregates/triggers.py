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
"""The time of an event that is described without one, as a test of a trigger may."""


class Verification(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How deliveries prove who sent them.

    Attributes:
        credential: The name of the stored credential that holds the secret; empty with ``none``.
        header: The header of the signature (``hmac``) or the token (``token``), lower-case.
        timestamp_header: The header of the time that is signed with the body (``hmac``), lower-case; empty without one.
        prefix: The text before the signature, such as ``sha256=``.
        tolerance_s: How far the signed time may be from now, either way.
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
    """The ends of executions on which a trigger starts. ``path`` ends with ``/*`` for all below it; empty: any path,
    any status. ``ctx`` are the keys of ``ctx`` that it is told.
    """

    path: str = ""
    labels: Mapping[str, Any] = {}
    status: tuple[EndStatus, ...] = ()
    ctx: tuple[str, ...] = ()


class EmittedEvents(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The events of playbooks on which a trigger starts, by ``name``; ``path`` and ``labels`` are those of the
    execution that emits them, as in :class:`EndedExecutions`.
    """

    name: str
    path: str = ""
    labels: Mapping[str, Any] = {}


class StreamFilter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The messages of a NATS stream on which a trigger starts, and the format of their data.

    Attributes:
        subject: A pattern of subjects; ``>``: all of the stream.
        from_ms: The time from which stored messages count; 0: all that the stream holds; ``None``: the registration.
    """

    stream: str
    subject: str = ">"
    from_ms: int | None = None
    format: StreamFormat = "json"


Exceeding = Literal["wait", "drop"]
"""What becomes of an event beyond the rate of its trigger."""


class StartRate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How often a trigger starts executions: so many a minute on average, ``burst`` at once after a rest."""

    per_minute: int
    burst: int
    exceeding: Exceeding = "wait"


DEFAULT_RATE: Final = StartRate(per_minute=6_000, burst=1_000)
"""The rate of a trigger whose document gives none: that of the address of a webhook."""

STREAM_RATE: Final = StartRate(per_minute=60_000, burst=1_000)
"""The same of a trigger on a stream, which what runs bounds: messages wait in the stream, and none is lost."""


class TriggerTerms(StarterTerms, frozen=True, kw_only=True, omit_defaults=True):
    """What a trigger starts, and on which events.

    Exactly one of ``webhook``, ``nats``, ``execution`` and ``event`` is given. ``when``, ``workload``, ``labels`` and
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
        """What executions do on which it starts; ``None`` if it is on nothing of executions."""
        return self.execution or self.event

    @property
    def pace(self) -> StartRate:
        """How often it starts executions: as its document says, or by default."""
        return self.rate or (DEFAULT_RATE if self.nats is None else STREAM_RATE)

    @property
    def source(self) -> EventSource:
        if self.nats is not None:
            return "nats"
        if self.event is not None:
            return "event"
        return "webhook" if self.webhook is not None else "execution"


class EndError(msgspec.Struct, frozen=True, omit_defaults=True):
    """The error of an execution as triggers see it: as it is shown, without secrets. ``step`` and ``task`` failed."""

    kind: str
    message: str = ""
    step: str | None = None
    task: str | None = None
    code: str | None = None


class EndedExecution(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of an execution as triggers see it: ``event`` of their templates. Values are as they are shown.

    Attributes:
        version: Null if the playbook has none.
        error: Null if it is completed.
        result: Null unless it is completed.
        ctx: The keys that the trigger names; null for those that the execution has not.
        omitted: Which of ``result``, ``ctx`` and ``workload`` are empty here, since all together would be too large.
        url: The address of the execution's page; null if nobody has said where the page is.
        due: The time of the occurrence that it was for; null if no schedule led to it.
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
    """An event that a step has emitted, as triggers see it: ``event`` of their templates. Values are as they are shown.

    Attributes:
        id: The id of the event in the journal.
        on: The moment of the step run.
        version: Null if the playbook has none.
        url: The address of the execution's page; null if nobody has said where the page is.
        due: The time of the occurrence that the execution is for; null if no schedule led to it.
        omitted: ``data`` if that is empty here, since it is too large for the many triggers that wait for the event.
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
    """An event that a webhook received and a server verified, or that is sent again.

    ``event`` describes it (:func:`noetl_stream.playbook.trigger.matching.read_event`). ``resent`` is the number of the
    one that is sent again; 0: it is new.
    """

    of: ClassVar = TRIGGER

    event: dict[str, Any] = msgspec.field(default_factory=dict)
    resent: int = 0


class TriggerDeleted(StarterDeleted, frozen=True, tag="trigger.deleted"):
    of: ClassVar = TRIGGER


class ExecutionEnded(AggregateFact, frozen=True, tag="trigger.execution_ended"):
    """An execution that the trigger waits for has ended.

    Attributes:
        depth: How many triggers would have led to what it starts, one after another.
        ended_ms: When it ended, by its journal.
        root: The execution with whose end the chain of triggers began; empty from an older server.
        share: How many executions the trigger may add to those that follow from ``root``, over all that follow from
            this end; ``None`` from an older server.
    """

    of: ClassVar = TRIGGER

    ended: EndedExecution
    depth: int = 0
    ended_ms: int = 0
    root: str = ""
    share: int | None = None


class EventEmitted(AggregateFact, frozen=True, tag="trigger.event_emitted"):
    """A step has emitted an event that the trigger waits for. Members are as in :class:`ExecutionEnded`;
    ``emitted_ms`` is when, by the journal.
    """

    of: ClassVar = TRIGGER

    emitted: EmittedEvent
    depth: int = 0
    emitted_ms: int = 0
    root: str = ""
    share: int | None = None


class StreamPlace(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A place in a stream. ``made``, the stream's time of creation, distinguishes it from an earlier stream of that
    name.
    """

    stream: str
    made: str
    sequence: int = 0


class StreamEventRead(AggregateFact, frozen=True, tag="trigger.stream_event_read"):
    """The owner of the trigger's partition has read a message of its stream. Like a timer, this fact is not sent.

    Attributes:
        consumer: The trigger's consumer: a trigger that was deleted and made again has another.
        subject: The pattern by which the message was read.
        pending: How many messages were left to read after it.
        at_ms: When the stream stored the message.
        unfoldable: Why the event cannot be folded; empty if it can.
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
        pending: How many messages are left to read; ``None``: not known.
        trouble: Why the stream cannot be read; empty if it can.
    """

    of: ClassVar = TRIGGER

    consumer: str
    pending: int | None = None
    trouble: str = ""


TriggerFact = TriggerRegistered | TriggerPaused | TriggerResumed | EventReceived | TriggerDeleted
