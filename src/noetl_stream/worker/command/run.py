"""One run of one delivered command, from the claim to the acknowledgement (PROTOCOL §3)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, Literal

from noetl_stream.engine.runner.runner import end_of
from noetl_stream.engine.runner.straight import FROM_THE_START, Runner, runner_of
from noetl_stream.errors import PayloadRefused
from noetl_stream.model.events import Fact, StepClaimed
from noetl_stream.model.ids import RunId
from noetl_stream.model.json import codec
from noetl_stream.model.messages import ClaimAnswer, Drop, Go, RunningCommand, StepCommand, Stop
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.kinds.spec import SUSPENDING_KINDS
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.streams.bus import Bus
from noetl_stream.ports.streams.command_queue import Delivery
from noetl_stream.protocol.subjects import claim_answer
from noetl_stream.retries import pauses
from noetl_stream.telemetry.structured_logs import TRACE_ID
from noetl_stream.tools.contract import ToolFailure, WorkerUnfit
from noetl_stream.worker.child_playbooks import KindMissing, PlanUnknown, PlanUnusable
from noetl_stream.worker.command.attempt import Attempts
from noetl_stream.worker.command.driver import Driver
from noetl_stream.worker.command.reporter import Reporter
from noetl_stream.worker.command.results import RunResults
from noetl_stream.worker.command.spans import trace_of_run
from noetl_stream.worker.dependencies import Dependencies
from noetl_stream.worker.waiting import Asker, Trouble, done_within, persist
from noetl_stream.worker.worker_limits import (
    CLAIM_ANSWER_S,
    LONGEST_ANSWER_S,
    LONGEST_PAUSE_S,
    MAX_RETURNS,
    PLAN_TRIES,
    UNCLAIMED_S,
)

log = logging.getLogger(__name__)

Interruption = Literal["cancelled", "stale", "relinquished", "closed"]
"""The reason for an early end of a run: cancelled, command taken by another run, command returned, or worker closing.
"""

_STOPPED: Final[Mapping[Interruption, str]] = {
    "cancelled": "cancelled: {}",
    "stale": "stopped: another run has its command",
    "relinquished": "stopped: its command is returned to the queue",
    "closed": "stopped: its worker ends",
}

Disposal = Literal["done", "return_now", "return_later"]
"""The fate of a delivered command: acknowledged, returned to the queue at once, or returned after a delay."""


class CommandRun:
    """A run of a command in three phases: asking (claim, plan), working, reporting. :meth:`interrupt` ends it early.

    Args:
        stop_of: Returns the order that stopped a command or paused its local loops, by the command's id.

    Attributes:
        task: The asyncio task of this run; interrupting the run cancels it.
        unfit: The kind of the last task that this worker could not begin, and the reason.
    """

    def __init__(
        self,
        dependencies: Dependencies,
        stop_of: Callable[[str], Stop | None],
        command: StepCommand,
        delivery: Delivery,
    ) -> None:
        nonce = dependencies.nonces.draw()
        self.run = RunId(command.command_id, command.issue, delivery.num_delivered, nonce)
        self._dependencies = dependencies
        self._stop_of = stop_of
        self._command = command
        self.delivery = delivery
        self._reporter = Reporter(dependencies.channel, command, self.run)
        self._asker = Asker(dependencies.bus, dependencies.clock, command, dependencies.worker)
        self._results = RunResults(
            dependencies.blobs,
            self._asker,
            dependencies.clock,
            command,
            self.run,
            pages=dependencies.pages,
            stored_bytes=dependencies.stored_bytes,
            objects=dependencies.objects,
        )
        self._phase: Literal["asking", "working", "reporting"] = "asking"
        self._why: Interruption | None = None
        self._reason = ""
        self._is_pausing = False
        self._runner: Runner | None = None
        self._attempts: Attempts | None = None
        self.task: asyncio.Task[None] | None = None
        self.unfit: tuple[str, WorkerUnfit] | None = None
        self._returned = 0

    @property
    def trouble(self) -> Trouble:
        """The reason why the run cannot store or report its result."""
        results = self._results.trouble
        return results if results.why or self._phase != "reporting" else self._dependencies.channel.trouble

    @property
    def summary(self) -> RunningCommand:
        """The run as ``worker list`` shows it."""
        command = self._command
        return RunningCommand(
            command.execution_id,
            command.command_id,
            command.step,
            self.run.num_delivered,
            self.trouble.why,
            self._results.reading.why or (self._attempts.waits_for if self._attempts is not None else ""),
        )

    def interrupt(self, why: Interruption, reason: str = "") -> None:
        """Ends the run early. Finished work is still reported."""
        if why != "closed":
            if self._why is not None or self._phase == "reporting":
                return
            self._why, self._reason = why, reason
            # While the run asks, the answer decides: the server that sends the stop also answers "drop", or has the
            # plan.
            if self._phase == "asking" and why != "relinquished":
                return
        self._why = why
        if self.task is not None:
            self.task.cancel()

    def pause(self) -> None:
        """Stops a local loop from beginning further iterations; everything else in the run ends normally."""
        self._is_pausing = True
        if self._runner is not None:
            self._runner.pause()

    def lose_contact(self) -> None:
        """Ends the tools of the run, since NATS was out of reach for too long. A finished result is not given up."""
        if self._phase == "working" and not self._results.keeping:
            self.interrupt("relinquished")

    async def execute(self, connected_ms: int) -> Disposal:
        """Runs the command, and waits until all its reports are stored.

        Args:
            connected_ms: The time at which this worker connected, by the queue's clock.
        """
        if self._command.trace_id:
            TRACE_ID.set(self._command.trace_id)
        try:
            disposal = await self._until_interrupted(connected_ms)
            self._phase = "reporting"
            await self._reporter.finish()
        except BaseException:
            # Closed, or a defect here: an ended run must not send anything more.
            self._reporter.discard()
            raise
        return disposal

    async def _until_interrupted(self, connected_ms: int) -> Disposal:
        try:
            return await self._ask_and_work(connected_ms)
        except asyncio.CancelledError:
            if self.task is None or self._why is None or self._why == "closed":
                raise
            self.task.uncancel()
            return self._end_interrupted()

    def _end_interrupted(self) -> Disposal:
        """Reports or discards an interrupted run, whose work has ended."""
        if self._why == "relinquished":
            if self.unfit is None:
                return "return_now"
            self._reporter.add(StepClaimed(self._reason))
            return "return_later"
        if self._why == "cancelled":
            self._report_failure("cancelled", f"the run was cancelled: {self._reason}")
        else:
            self._reporter.discard()
        return "done"

    async def _ask_and_work(self, connected_ms: int) -> Disposal:
        command = self._command
        is_claimed = may_be_a_copy(command, self.delivery, connected_ms)
        go = await self._claim_command() if is_claimed else command.resume or FROM_THE_START
        if go is None:
            return "done"
        stop = self._stop_of(command.command_id)
        if stop is not None and stop.pausing:
            self._is_pausing = True
        elif stop is not None and self._why is None:
            self._why, self._reason = "cancelled", stop.reason
        if self._why is not None:
            return self._end_interrupted()
        self._returned = go.returned
        if self.delivery.num_delivered - go.returned > command.limits.max_deliveries:
            message = f"delivered {self.delivery.num_delivered} times without ending (limits.max_deliveries)"
            self._report_failure("lease_exhausted", message)
            return "done"
        plan, asked_for_s = self._dependencies.plans.cached_plan(command.digest), 0.0
        try:
            if plan is None:
                plan, asked_for_s = await self._load_plan()
            self._check_usable(plan)
        except PlanUnknown as error:
            log.error("command %s is returned to the queue: %s", command.command_id, error)
            return self._end_interrupted() if self._why else "return_later"
        except (PlanUnusable, KindMissing) as error:
            self._report_failure("not_installed" if isinstance(error, KindMissing) else "internal", str(error))
            return "done"
        if not is_claimed and asked_for_s > UNCLAIMED_S and (go := await self._claim_command()) is None:
            return "done"
        if self._why is not None:
            return self._end_interrupted()
        self._phase = "working"
        if self.delivery.num_delivered == 1:
            waited_ms = self._dependencies.clock.now_ms() - self.delivery.stored_ms
            self._dependencies.counts.waits[plan.path].add(max(0, waited_ms) / 1000)
        await self._work(plan, go)
        return "done"

    async def _claim_command(self) -> Go | None:
        """Claims the command; ``None`` if another run has it."""
        answer = await _claim(self._dependencies.bus, self._dependencies.clock, self._command.pool, self._reporter)
        if isinstance(answer, Drop):
            log.info("command %s is dropped: %s", self._command.command_id, answer.reason)
            return None
        self._reporter.next_event = answer.next_number
        return answer

    async def _load_plan(self) -> tuple[Plan, float]:
        """Loads the plan; also returns the duration in seconds."""
        clock = self._dependencies.clock
        began_s = clock.monotonic_s()
        waits = pauses(LONGEST_PAUSE_S)
        for tried in range(1, PLAN_TRIES + 1):
            try:
                plan = await self._dependencies.plans.load(self._command.digest, self._asker)
                break
            except PlanUnknown as error:
                if tried == PLAN_TRIES:
                    raise
                log.warning("%s; asking again", error)
            await clock.sleep(next(waits))
        return plan, clock.monotonic_s() - began_s

    def _check_usable(self, plan: Plan) -> None:
        """Raises :class:`PlanUnusable` or :class:`KindMissing` if this worker cannot run the command's step."""
        step = plan.steps.get(self._command.step)
        if step is None or not step.tasks:
            raise PlanUnusable(f"playbook {plan.path} has no step {self._command.step} with tasks")
        for task in step.tasks:
            if task.kind not in self._dependencies.tools and task.kind not in SUSPENDING_KINDS:
                remedy = "install the plugin of that kind there, or give the step a pool whose workers have it"
                raise KindMissing(f"worker {self._dependencies.worker} has no tool of kind {task.kind}; {remedy}")

    async def _work(self, plan: Plan, go: Go) -> None:
        """Runs the command until its runner has reported an end."""
        dependencies, command, results, reporter = self._dependencies, self._command, self._results, self._reporter
        if plan.reference_first:
            results.keep_references_first()
        if plan.steps[command.step].timeout_s is not None:
            reporter.keep_apart()
        self._runner = runner = runner_of(
            plan, command, go, kinds=dependencies.kinds, worker=dependencies.worker, references=results.loaded
        )
        if self._is_pausing:
            runner.pause()
        attempts = self._attempts = Attempts(
            dependencies,
            command,
            runner.scope,
            results,
            self._asker,
            why_stopped=self._why_stopped,
            give_back=self._give_back,
            report=reporter.add,
            trace=trace_of_run(dependencies.tracing, command, self.run),
        )
        assert self.task is not None
        try:
            await Driver(runner, attempts, results, reporter, dependencies.clock).run(self.task)
        finally:
            attempts.log.flush()
            # They hold methods of this run: in a cycle, its memory would wait for the garbage collector.
            self._runner = self._attempts = None

    def _why_stopped(self) -> str:
        """Returns the reason why tasks of the run are stopped; empty if it is not interrupted."""
        return "" if self._why is None else _STOPPED[self._why].format(self._reason)

    def _give_back(self, kind: str, unfit: WorkerUnfit) -> None:
        """Returns the command to the queue, since this worker cannot begin a task of this kind.

        Raises:
            ToolFailure: The command was returned too often.
        """
        self.unfit = kind, unfit
        if self._returned >= MAX_RETURNS:
            message = f"workers could not begin it {self._returned + 1} times, the last time: {unfit}"
            raise ToolFailure.of("worker_unfit", message, retryable=True)
        log.error("command %s is returned to the queue: %s", self._command.command_id, unfit)
        self.interrupt("relinquished", f"{self._dependencies.worker}: {unfit}")

    def _report_failure(self, kind: str, message: str) -> None:
        failure: Fact = end_of(self._command, self._command.path, ErrorInfo(kind, message))
        self._reporter.add(failure)


def may_be_a_copy(command: StepCommand, delivery: Delivery, connected_ms: int) -> bool:
    """Returns whether the command must be claimed before it runs.

    Only the first issue of a command, delivered once and stored after this worker connected, is certain to be the only
    copy. Both times are by the queue's clock.
    """
    return command.issue > 1 or delivery.num_delivered > 1 or delivery.stored_ms <= connected_ms


async def _claim(bus: Bus, clock: Clock, pool: str, reporter: Reporter) -> ClaimAnswer:
    """Claims a command; returns the server's answer, whether this copy may run (PROTOCOL §3 *Claim*).

    The claim is repeated until it is answered; the lease is renewed meanwhile.
    """
    run = reporter.run
    subject = claim_answer(pool, run)
    answer: asyncio.Future[ClaimAnswer] = asyncio.get_running_loop().create_future()

    async def on_answer(_subject: str, body: bytes, _reply: str) -> None:
        try:
            received = codec.decode_claim_answer(body)
        except PayloadRefused as error:
            log.warning("claim of %s: %s", run.command_id, error)
            return
        if not answer.done():
            answer.set_result(received)

    subscription = await persist(clock, f"listen on {subject}", lambda: bus.listen(subject, on_answer))
    try:
        waits = pauses(CLAIM_ANSWER_S, LONGEST_ANSWER_S)
        while True:
            await reporter.publish_claim(StepClaimed())
            if await done_within(clock, next(waits), answer):
                return answer.result()
            log.info("claim of %s: no answer yet, asking again", run.command_id)
    finally:
        await subscription.close()
