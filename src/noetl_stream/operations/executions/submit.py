"""Requests to servers: one to the fold is repeated until it is answered (PROTOCOL §4), one to delete objects is not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from noetl_stream.concurrency import closing, first_done
from noetl_stream.errors import NoetlError, NotFound, OutcomeUnknown, TooDeep, Unreachable, UsageError
from noetl_stream.lru import LruCache
from noetl_stream.model.aggregates import Family, RequestedFact, aggregate_id
from noetl_stream.model.bounds import bounds_exceeded
from noetl_stream.model.events import ExecutionRequested, InterventionFact
from noetl_stream.model.ids import digest_of
from noetl_stream.model.json import codec
from noetl_stream.model.json.values import MAX_DEPTH
from noetl_stream.model.messages import AGGREGATES_FORMAT, FORMAT, AggregateRequest, ClientMessage, Request
from noetl_stream.operations.executions.follow import Follower
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations.executions import AcceptedDocument
from noetl_stream.ports.streams.blobs import Blobs
from noetl_stream.ports.streams.bus import Bus
from noetl_stream.ports.streams.event_log import EventLog
from noetl_stream.protocol import subjects
from noetl_stream.protocol.signed_requests import RequestSigner
from noetl_stream.retries import pauses

ANSWER_WAIT_S: Final = 2.0
"""The wait for an answer, whether it is pushed or requested."""

LONGEST_ANSWER_WAIT_S: Final = 5.0
"""The longest wait for an answer before the request is published again."""

PUSH_WAIT_S: Final = 0.05
"""The wait for a pushed answer before it is first looked up, since it may already exist."""

PATIENCE_S: Final = 30.0
"""The time for which a request may stay unanswered before it fails."""

PLAYBOOKS_KEPT: Final = 10_000

AROUND_VALUES: Final = 2
"""The levels around a value of a request: the message and its fact."""

Unanswered = Callable[[], Awaitable[None]]
"""Called whenever no server has answered, before the request is published again."""


def patience(clock: Clock, check: str) -> Unanswered:
    """Gives up after :data:`PATIENCE_S`; ``check`` is the advice to the caller on what to inspect before asking again.

    Raises (the returned function): Unreachable: no server has answered for so long.
    """
    until_s = clock.monotonic_s() + PATIENCE_S

    async def wait_on() -> None:
        if clock.monotonic_s() >= until_s:
            text = f"no server answered within {PATIENCE_S:g} s"
            hint = f"start a server; it will process this request: check {check} before you retry"
            raise Unreachable(text, hint=hint)

    return wait_on


@contextmanager
def reading_accepted(what: str) -> Iterator[None]:
    """Must be around reading what the fold has just accepted: it exists, even if Postgres does not show it.

    Raises:
        OutcomeUnknown: Postgres has lost it, or is restored from an older state; servers make it good from EVENTS.
    """
    try:
        yield
    except NotFound:
        hint = "ask again in a moment: servers make good from EVENTS what Postgres has lost"
        raise OutcomeUnknown(f"{what} was accepted, and Postgres does not show it yet", hint=hint) from None


class RequestRefused(NoetlError):
    """The fold rejected a request.

    Attributes:
        code: A :data:`~noetl_stream.model.status.RejectionCode`; empty for a playbook with errors.
        diagnostics: The diagnostics of the playbook.
    """

    def __init__(self, message: str, code: str = "", diagnostics: Sequence[dict[str, Any]] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.diagnostics = list(diagnostics)


class Requests:
    """Signs requests, so that servers know the sender, and stores them in EVENTS."""

    def __init__(self, log: EventLog, signer: RequestSigner) -> None:
        self._log = log
        self._signer = signer

    async def publish(self, request: ClientMessage) -> None:
        """Stores the request once, however often it is published.

        Raises:
            OutcomeUnknown: no acknowledgement in time; publish it again.
            Unreachable: not connected.
            PayloadRefused: the request holds a NUL character.
            UsageError: a text in it is too long, or a value nests too deeply.
        """
        if reason := bounds_exceeded(request.fact):
            raise UsageError(f"the request is refused: {reason}")
        is_start = isinstance(request.fact, ExecutionRequested)
        message_id = request.request_id if is_start else f"{request.execution_id}.{request.request_id}"
        try:
            body = self._signer.encode(request)
            codec.check_depth(body, MAX_DEPTH + AROUND_VALUES)
        except TooDeep as error:
            raise UsageError(f"the request is refused: a value in it is {error.message}") from None
        codec.check_text(body)
        await self._log.publish_request(request.execution_id, message_id, body)

    async def stored(self, request: ClientMessage) -> bool:
        """Publishes it; returns whether that is acknowledged. If not, perhaps because a leader is being elected,
        publish it again at once, unless the fold proves to know it. Errors: as for :meth:`publish`.
        """
        try:
            await self.publish(request)
        except OutcomeUnknown:
            return False
        return True


class Client:
    """Starts executions."""

    def __init__(self, requests: Requests, blobs: Blobs, bus: Bus) -> None:
        self._requests = requests
        self._blobs = blobs
        self._bus = bus
        self._put: LruCache[str, bool] = LruCache(PLAYBOOKS_KEPT)

    def follow(self, execution_id: str) -> Follower:
        """A live view of an execution; to be opened before submitting, so as to miss nothing."""
        return Follower(self._bus, execution_id)

    async def put(self, source: str) -> str:
        """Stores a playbook where servers find it, and returns its digest. Must be called before the request."""
        digest = digest_of(source)
        if digest not in self._put:
            await self._blobs.put(subjects.playbook_key(digest), source.encode())
            self._put.put(digest, True)
        return digest

    async def begin(self, request: Request, follower: Follower, *, unanswered: Unanswered | None = None) -> None:
        """Publishes a request for a new execution until the fold has answered it.

        Args:
            follower: An open follower of the execution; its first journal record proves the commit.

        Raises:
            RequestRefused: the fold rejected it.
        """
        while True:
            is_stored = await self._requests.stored(request)
            if await follower.begun(ANSWER_WAIT_S if is_stored else 0):
                if follower.refusal is not None:
                    message, diagnostics = follower.refusal
                    raise RequestRefused(message, _code_of(diagnostics), diagnostics)
                return
            known = await _look_up(self._bus, request.execution_id, request.request_id)
            if known is not None and known["known"]:
                _require_accepted(known["answer"])
                return
            if unanswered is not None:
                await unanswered()

    async def alive(self, timeout_s: float = ANSWER_WAIT_S) -> bool:
        """Whether any server answers."""
        return await self._bus.ask(subjects.PING, b"", timeout_s) is not None


async def ask_of(
    requests: Requests,
    bus: Bus,
    clock: Clock,
    execution_id: str,
    fact: InterventionFact,
    unanswered: Unanswered | None = None,
) -> AcceptedDocument:
    """Publishes a request to an existing execution until the fold has answered it.

    Raises:
        RequestRefused: the fold rejected it.
    """
    request = Request(execution_id, fact.request_id, fact, format=FORMAT)
    return _accepted(await _answer_to(request, requests, bus, clock, unanswered))


async def ask_aggregate(
    requests: Requests,
    bus: Bus,
    clock: Clock,
    family: Family,
    fact: RequestedFact,
    unanswered: Unanswered | None = None,
) -> dict[str, Any]:
    """Publishes a request to an aggregate until it is answered; returns the answer of its kind.

    Raises:
        RequestRefused: the fold rejected it.
    """
    id = aggregate_id(family, fact.key)
    request = AggregateRequest(id, fact.request_id, fact, format=AGGREGATES_FORMAT)
    answer = await _answer_to(request, requests, bus, clock, unanswered)
    _require_accepted(answer)
    return answer


async def _answer_to(
    request: ClientMessage, requests: Requests, bus: Bus, clock: Clock, unanswered: Unanswered | None
) -> dict[str, Any]:
    """The fold's answer of any kind."""
    execution_id, request_id = request.execution_id, request.request_id
    pushed: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def take(_subject: str, answer: bytes, _reply: str) -> None:
        if not pushed.done():
            pushed.set_result(answer)

    async with closing(await bus.listen(subjects.answered(execution_id, request_id), take)):
        waits = pauses(ANSWER_WAIT_S, LONGEST_ANSWER_WAIT_S)
        while True:
            is_stored = await requests.stored(request)
            for wait_s in (PUSH_WAIT_S, next(waits)) if is_stored else (PUSH_WAIT_S,):
                if await first_done([pushed], clock.sleep(wait_s)):
                    answer: dict[str, Any] = codec.decode_json(pushed.result())
                    return answer
                # Answered before the subscription, or the push was lost.
                known = await _look_up(bus, execution_id, request_id)
                if known is None:
                    break
                if known["known"]:
                    return dict(known["answer"])
            if unanswered is not None:
                await unanswered()


async def _look_up(bus: Bus, execution_id: str, request_id: str) -> dict[str, Any] | None:
    """``{"known": bool, "answer"}`` of a request; ``None`` if no server answers, or none can tell."""
    reply = await bus.ask(subjects.ask_request(execution_id, request_id), b"", ANSWER_WAIT_S)
    known: dict[str, Any] | None = codec.decode_json(reply) if reply is not None else None
    return known


def _accepted(answer: dict[str, Any]) -> AcceptedDocument:
    _require_accepted(answer)
    return AcceptedDocument(answer["execution_id"], answer.get("position"), answer.get("already", False))


def _require_accepted(answer: dict[str, Any]) -> None:
    if not answer["ok"]:
        raise RequestRefused(answer["error"], answer.get("code", ""), answer.get("diagnostics", ()))


def _code_of(diagnostics: list[dict[str, Any]]) -> str:
    """The code of the engine's rejection; ``""`` if the diagnostics are those of its playbook."""
    return "" if len(diagnostics) != 1 or "line" in diagnostics[0] else str(diagnostics[0]["code"])


KEYS_AT_ONCE: Final = 100
PURGE_WAIT_S: Final = 30.0
"""The time in which a server must delete these objects."""


async def delete_by_server(bus: Bus, keys: Sequence[str]) -> None:
    """Makes a server delete the objects with these keys: it purges a stream, which nobody else may do.

    Raises:
        Unreachable: no server has done it; deleted objects are simply missing the next time.
    """
    for at in range(0, len(keys), KEYS_AT_ONCE):
        answer = await bus.ask(subjects.PURGE, codec.encode(keys[at : at + KEYS_AT_ONCE]), PURGE_WAIT_S)
        if answer is None or codec.decode_json(answer) is None:
            hint = "try again with a server"
            raise Unreachable("no server has deleted what was to go from the object store", hint=hint)
