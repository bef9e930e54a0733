"""One run of one delivered command, from the claim to the acknowledgement (PROTOCOL §3)."""

from __future__ import annotations

import asyncio
import logging
from typing import Literal

from noetl_stream.engine.runner.runner import CommandRunner, end_of
from noetl_stream.model.events import Fact
from noetl_stream.model.ids import RunId
from noetl_stream.model.messages import Drop, Go, RunningCommand, StepCommand
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.command_queue import Delivery
from noetl_stream.worker.cancellation import Cancellations, Interruption
from noetl_stream.worker.command.attempt import Attempts
from noetl_stream.worker.command.claim import claim, may_be_a_copy
from noetl_stream.worker.command.driver import Driver
from noetl_stream.worker.command.reporter import Reporter
from noetl_stream.worker.command.results import RunResults
from noetl_stream.worker.command.wait_tasks import SUSPENDING_KINDS
from noetl_stream.worker.dependencies import Dependencies
from noetl_stream.worker.limits import LONGEST_PAUSE_S, PLAN_TRIES
from noetl_stream.worker.plans import PlanUnknown, PlanUnusable

log = logging.getLogger(__name__)

Disposal = Literal["done", "return_now", "return_later"]
"""What becomes of the delivery: acknowledged, given back at once, given back for a while."""

_FRESH = Go()
_NONCE_BYTES = 6


class CommandRun:
    """A run on its way: it asks (claim, plan), works, and reports; :meth:`interrupt` ends it before its time."""

    def __init__(
        self, dependencies: Dependencies, cancellations: Cancellations, command: StepCommand, delivery: Delivery
    ) -> None:
        nonce = dependencies.clock.random_bytes(_NONCE_BYTES).hex()
        self.run = RunId(command.command_id, command.issue, delivery.num_delivered, nonce)
        self._dependencies = dependencies
        self._cancellations = cancellations
        self._command = command
        self.delivery = delivery
        self._reporter = Reporter(dependencies.channel, command, self.run)
        self._results = RunResults(
            dependencies.blobs, dependencies.bus, dependencies.clock, command, self.run, dependencies.pages
        )
        self._phase: Literal["asking", "working", "reporting"] = "asking"
        self._why: Interruption | None = None
        self._reason = ""
        self._is_pausing = False
        self._runner: CommandRunner | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def shown(self) -> RunningCommand:
        """What people see of it."""
        command = self._command
        return RunningCommand(command.execution_id, command.command_id, command.step, self.run.num_delivered)

    def runs_in(self, task: asyncio.Task[None]) -> None:
        """``task`` is the one that carries this run out; interrupting the run cancels it."""
        self._task = task

    def interrupt(self, why: Interruption, reason: str = "") -> None:
        """Ends the work early. What has ended by itself is reported all the same."""
        if why != "closed":
            if self._why is not None or self._phase == "reporting":
                return
            self._why, self._reason = why, reason
            # While it asks, the answer settles it: the server that says stop also says drop, or has the plan.
            if self._phase == "asking" and why != "relinquished":
                return
        self._why = why
        if self._task is not None:
            self._task.cancel()

    def pause(self) -> None:
        """Lets a local loop begin no further iteration; everything else goes on to its end."""
        self._is_pausing = True
        if self._runner is not None:
            self._runner.pause()

    def lose_contact(self) -> None:
        """NATS is out of reach for long: ends tools, but gives no finished result up."""
        if self._phase == "working" and not self._results.keeping:
            self.interrupt("relinquished")

    async def carry_out(self, connected_ms: int) -> Disposal:
        """Runs the command. Everything that was to be reported is stored when this returns.

        Args:
            connected_ms: Since when this worker is connected, by the queue's time.
        """
        try:
            disposal = await self._until_interrupted(connected_ms)
            self._phase = "reporting"
            await self._reporter.finish()
        except BaseException:
            # Closed, or a defect of ours: nothing goes on sending for a run that is no more.
            self._reporter.discard()
            raise
        return disposal

    async def _until_interrupted(self, connected_ms: int) -> Disposal:
        try:
            return await self._ask_and_work(connected_ms)
        except asyncio.CancelledError:
            if self._task is None or self._why is None or self._why == "closed":
                raise
            self._task.uncancel()
            return self._interrupted()

    def _interrupted(self) -> Disposal:
        """What an interruption leaves behind, after the work has ended."""
        if self._why == "relinquished":
            return "return_now"
        if self._why == "cancelled":
            self._reporter.add(self._failed("cancelled", f"the run was told to stop: {self._reason}"))
        else:
            self._reporter.discard()
        return "done"

    async def _ask_and_work(self, connected_ms: int) -> Disposal:
        command = self._command
        go = command.resume or _FRESH
        if may_be_a_copy(command, self.delivery, connected_ms):
            answer = await claim(self._dependencies.bus, self._dependencies.clock, self._reporter)
            if isinstance(answer, Drop):
                log.info("command %s is dropped: %s", command.command_id, answer.reason)
                return "done"
            go = answer
            self._reporter.next_event = go.next_number
        stopped = self._cancellations.reason_of(command.command_id)
        if stopped is not None and self._why is None:
            self._why, self._reason = "cancelled", stopped
        if self._why is not None:
            return self._interrupted()
        if self.delivery.num_delivered > command.limits.max_deliveries:
            message = f"delivered {self.delivery.num_delivered} times without an end (limits.max_deliveries)"
            self._reporter.add(self._failed("lease_exhausted", message))
            return "done"
        try:
            plan = self._dependencies.plans.cached(command.digest) or await self._load_plan()
            self._check_usable(plan)
        except PlanUnknown as error:
            log.error("command %s is given back for now: %s", command.command_id, error)
            return self._interrupted() if self._why else "return_later"
        except PlanUnusable as error:
            self._reporter.add(self._failed("internal", str(error)))
            return "done"
        if self._why is not None:
            return self._interrupted()
        self._is_pausing = self._is_pausing or self._cancellations.is_pausing(command.command_id)
        self._phase = "working"
        await self._work(plan, go)
        return "done"

    async def _load_plan(self) -> Plan:
        for _ in range(PLAN_TRIES - 1):
            try:
                return await self._dependencies.plans.load(self._command.digest)
            except PlanUnknown as error:
                log.warning("%s; asking again", error)
            await self._dependencies.clock.sleep(LONGEST_PAUSE_S)
        return await self._dependencies.plans.load(self._command.digest)

    def _check_usable(self, plan: Plan) -> None:
        """Raises :class:`PlanUnusable` if this worker cannot run the command's step."""
        step = plan.steps.get(self._command.step)
        if step is None or not step.tasks:
            raise PlanUnusable(f"playbook {plan.path} has no step {self._command.step} that a worker could run")
        for task in step.tasks:
            if task.kind not in self._dependencies.tools and task.kind not in SUSPENDING_KINDS:
                raise PlanUnusable(
                    f"worker {self._dependencies.worker} has no tool of kind {task.kind}, which step {step.name} needs",
                    hint="install the plugin of that kind, or give the step a pool whose workers have it",
                )

    async def _work(self, plan: Plan, go: Go) -> None:
        """Runs the command until its runner has reported an end."""
        dependencies, command, results, reporter = self._dependencies, self._command, self._results, self._reporter
        if plan.reference_first:
            results.keep_references_first()
        self._runner = runner = CommandRunner(
            plan, command, go, kinds=dependencies.kinds, worker=dependencies.worker, references=results.loaded
        )
        if self._is_pausing:
            runner.pause()
        attempts = Attempts(dependencies, command, runner.scope, results)
        await Driver(runner, attempts, results, reporter, dependencies.clock).run()
        self._runner = None

    def _failed(self, kind: str, message: str) -> Fact:
        return end_of(self._command, self._command.path, ErrorInfo(kind, message))
