"""Starting an execution: the request is answered by the fold, and only then accepted (PROTOCOL §4)."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from noetl_stream.client.executions.follow import Follower
from noetl_stream.errors import NoetlError, OutcomeUnknown
from noetl_stream.lru import LruCache
from noetl_stream.model import codec
from noetl_stream.model.events import ExecutionRequested
from noetl_stream.model.ids import uuid7
from noetl_stream.model.messages import Request
from noetl_stream.playbook.compile.compiler import digest_of
from noetl_stream.ports import subjects
from noetl_stream.ports.blobs import Blobs
from noetl_stream.ports.bus import Bus
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.event_log import EventLog

ANSWER_WAIT_S = 2.0


PUTS_KEPT = 10_000


class Refused(NoetlError):
    """The fold refused the request. ``diagnostics`` are the playbook's, if that is why; ``code`` is for programs."""

    def __init__(self, message: str, diagnostics: list[dict[str, Any]], code: str = "") -> None:
        super().__init__(message)
        self.diagnostics = diagnostics
        self.code = code


@dataclass(frozen=True, slots=True)
class Submission:
    """A request to run a playbook. ``source`` is its YAML text, checked before (LANGUAGE §9)."""

    source: str
    path: str
    workload: dict[str, Any]
    execution_id: str
    request_id: str
    trace_id: str = ""
    principal: str = ""

    @classmethod
    def new(cls, source: str, path: str, workload: dict[str, Any], clock: Clock, *, principal: str = "") -> Submission:
        """A submission with ids of its own. Submitting it again, even elsewhere, starts nothing twice."""
        return cls(
            source=source,
            path=path,
            workload=workload,
            execution_id=uuid7(clock.now_ms(), clock.random_bytes(10)),
            request_id=uuid7(clock.now_ms(), clock.random_bytes(10)),
            trace_id=clock.random_bytes(16).hex(),
            principal=principal,
        )


class Client:
    """Publishes requests and waits for what the fold says."""

    def __init__(self, log: EventLog, blobs: Blobs, bus: Bus) -> None:
        self._log = log
        self._blobs = blobs
        self._bus = bus
        self._put: LruCache[str, bool] = LruCache(PUTS_KEPT)

    def follow(self, execution_id: str) -> Follower:
        """A live view of one execution; open it before submitting to miss nothing."""
        return Follower(self._bus, execution_id)

    async def submit(
        self, submission: Submission, follower: Follower, *, unanswered: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """:meth:`put` and :meth:`begin`."""
        digest = await self.put(submission.source)
        fact = ExecutionRequested(
            submission.request_id,
            digest,
            submission.path,
            submission.workload,
            principal=submission.principal,
            trace_id=submission.trace_id,
        )
        await self.begin(Request(submission.execution_id, submission.request_id, fact), follower, unanswered=unanswered)

    async def put(self, source: str) -> str:
        """Puts a text where servers find it, before it is requested; its digest."""
        digest = digest_of(source)
        if digest not in self._put:
            await self._blobs.put(subjects.playbook_key(digest), source.encode())
            self._put.put(digest, True)
        return digest

    async def begin(
        self, request: Request, follower: Follower, *, unanswered: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Publishes the request until the fold has answered it.

        Args:
            follower: An open follower of the execution; its first journal record proves the commit.
            unanswered: Called each time no server has answered, before the request is published again.

        Raises:
            Refused: the fold said no.
        """
        body = codec.encode(request)
        while True:
            # Of unknown outcome: published again under the same request id, unless the fold turns out to know it.
            with contextlib.suppress(OutcomeUnknown):
                await self._log.publish_reported(request.execution_id, request.request_id, body)
            if await follower.begun(ANSWER_WAIT_S):
                answer = follower.refusal
                if answer is not None:
                    raise Refused(*answer, _code_of(answer[1]))
                return
            if await self._answered(request):
                return
            if unanswered is not None:
                await unanswered()

    async def alive(self, timeout_s: float = ANSWER_WAIT_S) -> bool:
        """Whether any server answers."""
        return await self._bus.ask(subjects.PING, b"", timeout_s) is not None

    async def _answered(self, request: Request) -> bool:
        subject = subjects.ask_request(request.execution_id, request.request_id)
        reply = await self._bus.ask(subject, b"", ANSWER_WAIT_S)
        known = codec.decode_json(reply) if reply is not None else None
        if known is None or not known["known"]:
            return False
        answer = known["answer"]
        if not answer["ok"]:
            raise Refused(answer["error"], answer.get("diagnostics", []), answer.get("code", ""))
        return True


def _code_of(diagnostics: list[dict[str, Any]]) -> str:
    """Why the engine refused a request; ``""`` where the diagnostics are those of its playbook."""
    return "" if len(diagnostics) != 1 or "line" in diagnostics[0] else str(diagnostics[0]["code"])
