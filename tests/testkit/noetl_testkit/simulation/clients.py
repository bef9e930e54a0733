"""The clients of a simulation: they start the executions of a story, ask for what it says, and persist until they have
an answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from io import StringIO
from typing import Any, Final

from msgspec.structs import replace

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.memory.stores.store import MemoryStore
from noetl_stream.errors import NoetlError
from noetl_stream.model import events
from noetl_stream.model.events import Rerun
from noetl_stream.model.ids import derive, undoing_of
from noetl_stream.model.messages import Request
from noetl_stream.operations.executions.submit import Client, RequestRefused, Requests, ask_of
from noetl_stream.storage.sealed_blobs import SealedBlobs
from noetl_testkit.following import Submission, submit
from noetl_testkit.history.recorder import Recorder
from noetl_testkit.keys import OBJECT_KEYS, SIGNER
from noetl_testkit.memory.broker import StagedBroker
from noetl_testkit.simulation.poison import Poison
from noetl_testkit.simulation.story import Ask, Planned
from noetl_testkit.simulation.work import SIGNAL, Effect, Job

RETRY_S = 0.5
TOUCHED: Final = "touched"
"""The fault that explains to clients that an effect happened twice, or that an execution was given up."""


class SimulatedClients:
    """All clients.

    Attributes:
        accepted: The job of each execution whose request was accepted or rejected by its job's playbook.
        asked: Execution and id of every request that was answered.
        rejected: Of these, the requests that the fold rejected, with their bytes.
        problems: Answers that are wrong.
        seen: What they asked and were answered, as the lines of a history.
        history: Writes it.
    """

    def __init__(self, clock: ManualClock, broker: StagedBroker, store: MemoryStore) -> None:
        self.seen = StringIO()
        self.history = Recorder(self.seen, clock.monotonic_s)
        self._begun: set[str] = set()
        self.accepted: dict[str, tuple[Submission, Job]] = {}
        self.refused: dict[str, tuple[Submission, Job]] = {}
        self.asked: list[tuple[str, str]] = []
        self.rejected: list[tuple[str, str]] = []
        self.problems: list[str] = []
        self._clock = clock
        self._broker = broker
        self._store = store
        self._requests = Requests(broker.event_log, SIGNER)
        self._client = Client(self._requests, SealedBlobs(broker.blobs, OBJECT_KEYS), broker.bus)

    async def submit(self, planned: Planned) -> None:
        """Submits an execution, and asks for what it is to be asked for."""
        job = planned.job
        await self._clock.sleep(planned.at_s)
        submission = self._submission(job)
        await self._persist(self._submit, submission, job)
        if job.asks:
            for number, fact in enumerate(asked_of(submission.execution_id)):
                await self._clock.sleep(planned.at_s * number)
                await self._persist(self._ask, submission.execution_id, fact)
        if job.retried is not None:
            mended = Job(f"{job.name} again", job.source, "completed", job.retried)
            await self._rerun(submission, mended, Rerun(submission.execution_id), {"mended": True})
        if submission.execution_id in self.accepted:
            await self._ask_all(submission, job, planned.asks)

    async def submit_poison(self, poison: Poison) -> None:
        """Submits the execution that cannot be folded; its request may be refused."""
        await self._clock.sleep(poison.delay_s)
        submission = self._submission(poison.job)
        poison.execution_id = submission.execution_id
        await self._persist(self._submit, submission, poison.job)

    async def release(self, poison: Poison) -> None:
        """Mends what is wrong with it; resumes it and sends what was kept again, as an operator does."""
        poison.event = ""
        if poison.execution_id in self.refused:  # it has not begun
            return
        await self._persist(self._ask, poison.execution_id, events.ResumeRequested(derive(poison.execution_id, "on")))
        letters = self._store.dead_letters
        for letter in reversed(await letters.page(1_000, None)):
            whole = await letters.get(letter.row.id)
            if whole is not None and whole.row.source == "events" and whole.row.execution_id:
                again = self._broker.event_log.publish_again
                await again(whole.row.execution_id, f"requeue-{whole.row.id}", whole.row.body)
            await letters.requeue(letter.row.id, "operator", self._clock.now_ms())

    async def cancel_anything(self) -> None:
        """Cancels all executions whose end is open."""
        for execution_id, (_, job) in list(self.accepted.items()):
            row = await self._store.execution(execution_id)
            if job.ends == "anyhow" and row is not None and row.finished_ms is None:
                fact = events.CancelRequested(derive(execution_id, "cancel"), reason="a server is frozen")
                await self._persist(self._ask, execution_id, fact)

    async def _ask_all(self, submission: Submission, job: Job, asks: tuple[Ask, ...]) -> None:
        began_s = self._clock.monotonic_s()
        for number, ask in enumerate(asks):
            if ask.what in ("rerun", "compensate"):
                continue
            await self._clock.sleep(max(0.0, began_s + ask.after_s - self._clock.monotonic_s()))
            await self._persist(self._ask, submission.execution_id, ask.fact(submission.execution_id, number))
        for ask in asks:
            if ask.what == "rerun":
                again = Job(f"{job.name} again", job.source, ends="anyhow")
                await self._rerun(submission, again, Rerun(submission.execution_id, ask.value), {"k0": 1})
            elif ask.what == "compensate":
                rest = Job(f"{job.name} undone", job.source, ends="anyhow")
                await self._rerun(submission, rest, Rerun(submission.execution_id, undoes=True), {})

    def _submission(self, job: Job) -> Submission:
        return Submission.new(job.source, f"simulation/{job.name}", {}, self._clock)

    async def _persist(self, attempt: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """Repeats the attempt until it has an answer."""
        while True:
            try:
                return await attempt(*arguments)
            except NoetlError:
                await self._clock.sleep(RETRY_S)

    async def _submit(self, submission: Submission, job: Job) -> None:
        follower = await self._client.follow(submission.execution_id).open()
        try:
            async with self._noted_start(submission, job):
                await submit(self._client, submission, follower)
            self.accepted[submission.execution_id] = (submission, job)
        except RequestRefused:
            self.refused[submission.execution_id] = (submission, job)
        finally:
            await follower.close()

    async def _rerun(self, original: Submission, job: Job, rerun: Rerun, ctx: dict[str, Any]) -> None:
        """Runs the execution again once it has ended."""
        while (row := await self._store.execution(original.execution_id)) is None or row.finished_ms is None:
            await self._clock.sleep(RETRY_S)
        again = Submission.new(job.source, original.path, {}, self._clock)
        if rerun.undoes:
            again = replace(again, execution_id=undoing_of(original.execution_id))
        fact = events.ExecutionRequested(again.request_id, row.digest, ctx=ctx, rerun=rerun)
        self.accepted[again.execution_id] = (again, job)
        await self._persist(self._begin, Request(again.execution_id, again.request_id, fact))

    async def _begin(self, request: Request) -> None:
        follower = await self._client.follow(request.execution_id).open()
        try:
            async with self._noted_start(*self.accepted[request.execution_id]):
                await self._client.begin(request, follower)
        except RequestRefused:
            self.refused[request.execution_id] = self.accepted.pop(request.execution_id)
        finally:
            await follower.close()

    async def _ask(self, execution_id: str, fact: events.InterventionFact) -> None:
        """Asks; a request that is rejected comes once more, as from a client that missed the answer."""
        _, job = self.accepted.get(execution_id, (None, None))
        self.asked.append((execution_id, fact.request_id))
        verb = type(fact).__name__
        if isinstance(fact, events.CancelRequested):
            verb = "cancel now" if fact.now else "cancel"
        try:
            async with self._noted(verb, key=fact.request_id, execution=execution_id) as document:
                answer = await ask_of(self._requests, self._broker.bus, self._clock, execution_id, fact)
                document |= {"position": answer.position, "already": answer.already}
        except RequestRefused as refused:
            self.rejected.append((execution_id, fact.request_id))
            if (job is None or job.ends == "as given") and "has ended" not in refused.message:
                self.problems.append(f"a client was rejected: {refused}")
            self._broker.event_log.double(f"{execution_id}.{fact.request_id}")

    def saw(self, effect: Effect) -> None:
        """Notes an effect, if it is one of an execution that a client has started."""
        if effect.execution_id in self._begun:
            key, attempt = effect.idempotency_key, effect.attempt
            self.history.note("effect", execution=effect.execution_id, key=key, attempt=attempt)

    @asynccontextmanager
    async def _noted_start(self, submission: Submission, job: Job) -> AsyncIterator[None]:
        self._begun.add(submission.execution_id)
        expects: dict[str, Any] = {"status": job.status, "result": job.result} if job.ends == "as given" else {}
        if '"compensation"' in job.source:
            expects["takes"] = ["SignalReceived"]  # what undoes may wait for one, also after a cancel
        wanted = {"key": submission.request_id, "wanted": job.name, "expects": {**expects, "unless": [TOUCHED]}}
        async with self._noted("start", **wanted) as document:
            yield
            document["execution_id"] = submission.execution_id

    @asynccontextmanager
    async def _noted(self, verb: str, **asked: Any) -> AsyncIterator[dict[str, Any]]:
        """Notes a call and its answer, whose document the caller fills."""
        call, document = self.history.asked("clients", verb, **asked), dict[str, Any]()
        try:
            yield document
        except RequestRefused:
            self.history.answered(call, "refused")
            raise
        except NoetlError:
            self.history.answered(call, "unknown")
            raise
        self.history.answered(call, "accepted", document)


def asked_of(execution_id: str) -> list[events.InterventionFact]:
    """The requests of a client: both are needed, each exactly once; a pause and its end change nothing."""
    return [
        events.PauseRequested(derive(execution_id, "pause")),
        events.SignalReceived(derive(execution_id, "signal"), signal=SIGNAL, payload=SIGNAL),
        events.ResumeRequested(derive(execution_id, "resume")),
        events.CtxPatched(derive(execution_id, "patch"), patch={"approved": True}),
    ]
