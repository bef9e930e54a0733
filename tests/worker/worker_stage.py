"""A worker on a broker in memory, with a clock and a tool that the test controls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from textwrap import dedent
from typing import Any

import msgspec
from pydantic import BaseModel, ConfigDict

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.engine.pipeline import advance_progress
from noetl_stream.errors import NoetlError, OutcomeUnknown
from noetl_stream.model.events import (
    Fact,
    LoopIterationDone,
    LoopIterationFailed,
    StepClaimed,
    StepSuspended,
    TaskProcessed,
    Wait,
)
from noetl_stream.model.events.composite import expand
from noetl_stream.model.json import codec
from noetl_stream.model.messages import ClaimAnswer, Go, Progress, Report, StepCommand, Stop, WorkerPresence, path_key
from noetl_stream.playbook.compile.compiler import compile_playbook
from noetl_stream.playbook.kinds.spec import KindSpec
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.streams.command_queue import QueuedCommand
from noetl_stream.protocol import subjects
from noetl_stream.storage.sealed_blobs import SealedBlobs
from noetl_stream.tools.contract import Tool, ToolCall, ToolResult
from noetl_stream.tools.pipeline import NoopTool
from noetl_stream.worker.child_playbooks import PinnedPlaybook, PlanUnknown
from noetl_stream.worker.waiting import Asker
from noetl_stream.worker.worker import Worker
from noetl_testkit.keys import CAPABILITIES, OBJECT_KEYS
from noetl_testkit.memory.broker import StagedBroker
from noetl_testkit.waiting import TIMEOUT_S

POOL = "default"
EXECUTION = "execution-1"
MAX_TURNS = 5_000

Act = Callable[[ToolCall], Awaitable[Any]]


class FreeInputs(BaseModel):
    model_config = ConfigDict(extra="allow")


class NoKnobs(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Puppet:
    """Tool kind ``puppet``: a task runs the test's act for it; without one it returns its inputs."""

    spec = KindSpec("puppet", inputs=FreeInputs, knobs=NoKnobs, reads_scope=True)

    def __init__(self) -> None:
        self.calls: list[ToolCall] = []
        self.acts: dict[str, Act] = {}
        self.cancelled: list[str] = []

    async def run(self, call: ToolCall) -> ToolResult:
        self.calls.append(call)
        act = self.acts.get(call.task)
        if act is None:
            return ToolResult(dict(call.inputs))
        try:
            result = await act(call)
        except asyncio.CancelledError:
            self.cancelled.append(call.task)
            raise
        return result if isinstance(result, ToolResult) else ToolResult(result)

    async def close(self) -> None:
        """Holds nothing."""


class Endless:
    """An act that ends only when the test releases it."""

    def __init__(self) -> None:
        self.release = asyncio.Event()

    async def __call__(self, _call: ToolCall) -> str:
        await self.release.wait()
        return "released"


class KnownPlans:
    """The plans that a test has compiled."""

    def __init__(self) -> None:
        self.plans: dict[str, Plan] = {}
        self.lookups = 0
        self.gate = asyncio.Event()
        self.gate.set()

    def cached_plan(self, digest: str) -> Plan | None:
        return self.plans.get(digest)

    async def load(self, digest: str, _asker: Asker) -> Plan:
        self.lookups += 1
        await self.gate.wait()
        if digest in self.plans:
            return self.plans[digest]
        raise PlanUnknown(f"playbook {digest} is unknown to the servers")


def playbook(steps: str) -> str:
    head = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: test, path: tests/worker}\n"
    return head + "workload: {items: [1, 2, 3]}\nworkflow:\n" + dedent(steps)


class Stage:
    """Everything around one worker."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.broker = StagedBroker(self.clock)
        self.blobs = SealedBlobs(self.broker.blobs, OBJECT_KEYS)
        self.puppet = Puppet()
        self.tools: dict[str, Tool] = {"noop": NoopTool(), "puppet": self.puppet}
        self.plans = KnownPlans()
        self.capabilities = CAPABILITIES
        self.workers: list[tuple[Worker, asyncio.Task[None]]] = []
        self.claims: list[tuple[Report, StepClaimed]] = []
        self._answer: Callable[[Report], ClaimAnswer | None] | None = None

    async def start(self, *, slots: int = 4, **changes: Any) -> Worker:
        """Starts a worker."""
        given: dict[str, Any] = {
            "name": f"worker-{len(self.workers) + 1}",
            "pool": POOL,
            "slots": slots,
            "event_log": self.broker.event_log,
            "queue": self.broker.command_queue,
            "bus": self.broker.bus,
            "blobs": self.broker.blobs,
            "task_logs": self.broker.task_logs,
            "clock": self.clock,
            "tools": self.tools,
            "plans": self.plans,
        }
        worker = Worker(**{**given, **changes})
        running = asyncio.create_task(worker.run())
        self.workers.append((worker, running))
        await self.settle()
        return worker

    async def close(self) -> None:
        for worker, running in self.workers:
            await worker.close()
            running.cancel()
        await asyncio.gather(*(running for _, running in self.workers), return_exceptions=True)

    def plan(self, steps: str) -> Plan:
        """Compiles a playbook of these steps; workers know it from now on."""
        kinds = {kind: tool.spec for kind, tool in self.tools.items()}
        plan = compile_playbook(playbook(steps), kinds)
        self.plans.plans[plan.digest] = plan
        return plan

    def command(self, plan: Plan, command_id: str = "command-1", **changes: Any) -> StepCommand:
        given: dict[str, Any] = {
            "command_id": command_id,
            "execution_id": EXECUTION,
            "partition": 0,
            "step_run_id": "steprun-1",
            "step": plan.entry,
            "digest": plan.digest,
            "pool": POOL,
            "workload": dict(plan.workload),
        }
        return StepCommand(**{**given, **changes})

    async def issue(self, command: StepCommand) -> None:
        body = self.capabilities.encode(command, command.share)
        queued = QueuedCommand(command.pool, command.execution_id, command.command_id, command.issue, body)
        await self.broker.command_queue.issue([queued], {})
        await self.settle()

    async def settle(self, turns: int = 60) -> None:
        """Runs the loop until every task that can continue has done so."""
        for _ in range(turns):
            await asyncio.sleep(0)

    async def until(self, condition: Callable[[], Any]) -> None:
        """Runs the loop until ``condition`` holds."""
        for _ in range(MAX_TURNS):
            if condition():
                return
            await asyncio.sleep(0)
        raise AssertionError("what the test waits for did not happen")

    async def soon(self, condition: Callable[[], Any]) -> None:
        """Waits for ``condition``, which something outside the loop brings about: a thread, the loop's own timers."""
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():  # noqa: ASYNC110  what brings it about can set no event of this loop
                await asyncio.sleep(0)

    async def advance(self, seconds: float, *, step_s: float | None = None) -> None:
        """Advances the clock, in steps if asked, and runs the loop after each."""
        left, stride = seconds, step_s or seconds
        while left > 1e-9:
            self.clock.advance(min(stride, left))
            left -= stride
            await self.settle()

    async def stop_commands(
        self, *command_ids: str, reason: str = "cancelled by a user", nonce: str = "", pausing: bool = False
    ) -> None:
        stop = Stop(EXECUTION, list(command_ids), reason, nonce, pausing)
        self.broker.bus.send("noetl.stop", codec.encode(stop))
        await self.settle()

    async def resume(self, command: StepCommand, go: Go) -> StepCommand:
        """Issues the next segment of ``command``, which resumes from ``go``."""
        segment = command.segment + 1
        command_id = f"{command.step_run_id}-segment-{segment}"
        following = msgspec.structs.replace(command, command_id=command_id, segment=segment, resume=go)
        await self.issue(following)
        return following

    async def answer_catalog(self, *known: PinnedPlaybook) -> None:
        """Answers as a server whose catalog has these playbooks; the last of a path is the latest."""

        async def hear(_subject: str, body: bytes, reply: str) -> None:
            wanted = codec.decode_json(body)
            found = [one for one in known if one.path == wanted["path"] and wanted["version"] in (None, one.version)]
            answer = {"known": bool(found), "reason": f"no playbook {wanted['path']} in the catalog"}
            self.broker.bus.send(reply, codec.encode(answer | (found[-1]._asdict() if found else {})))

        await self.broker.bus.listen(f"{subjects.ASK_CATALOG}.{POOL}", hear)

    @property
    def waits(self) -> list[Wait]:
        """What the command waits for that was suspended last; that must be its last event."""
        suspended = self.facts[-1]
        assert isinstance(suspended, StepSuspended)
        return suspended.waits

    @property
    def recorded(self) -> Go:
        """The progress that the fold keeps of the pipelines under way, for the run that continues them."""
        progress: dict[str, Progress] = {}
        ctx: dict[str, Any] = {}
        variables: dict[str, Any] = {}
        for fact in self.facts:
            if isinstance(fact, TaskProcessed):
                key = path_key(fact.path)
                progress[key] = advance_progress(progress.get(key, Progress()), fact)
                ctx |= fact.set_ctx
                variables |= fact.set_vars
            elif isinstance(fact, LoopIterationDone | LoopIterationFailed):
                progress.pop(path_key(fact.path), None)
        return Go(1, progress, ctx=ctx, vars=variables)

    async def answer_claims(self, answer: Callable[[Report], ClaimAnswer | None]) -> None:
        """Answers every claim as a server does, repeated ones too, unless ``answer`` returns ``None``."""

        async def hear(_subject: str, body: bytes, _reply: str) -> None:
            report = codec.decode_reported(body)
            assert isinstance(report, Report)
            claim = codec.decode_fact(bytes(report.events[0]))
            if isinstance(claim, StepClaimed) and not claim.returned:
                self.claims.append((report, claim))
                given = answer(report)
                if given is not None:
                    self.broker.bus.send(subjects.claim_answer("default", report.run), codec.encode(given))

        await self.broker.bus.listen("noetl.events.>", hear)

    @property
    def reports(self) -> list[Report]:
        """The stored reports, in order."""
        decoded = [codec.decode_reported(stored.message.body) for stored in self.broker.event_log.stored]
        return [report for report in decoded if isinstance(report, Report)]

    @property
    def facts(self) -> list[Fact]:
        return [fact for report in self.reports for fact in facts_of(report)]

    async def presences(self) -> list[WorkerPresence]:
        """What all workers say of themselves, by name."""
        asking = [
            asyncio.create_task(self.broker.bus.ask_all(f"{subjects.ASK_WORKERS}.{pool}", b"", 0.5))
            for pool in (POOL, "gpu")
        ]
        await self.settle()
        await self.advance(0.5)
        found = [codec.decode_presence(answer) for asked in asking for answer in await asked]
        return sorted(found, key=lambda one: one.name)

    @property
    def names(self) -> list[str]:
        return [name_of(fact) for fact in self.facts]

    async def queued(self) -> set[str]:
        """The commands not acknowledged yet."""
        return set(await self.broker.command_queue.present())


def facts_of(report: Report) -> list[Fact]:
    """The facts it reports, composite ones as those that they stand for."""
    reported = (codec.decode_fact(bytes(event)) for event in report.events)
    return [part for fact in reported for part in expand(report.execution_id, fact)]


def name_of(fact: Fact) -> str:
    return str(type(fact).__struct_config__.tag)


class Refusing:
    """A log or store whose calls of ``method`` fail if ``refuses`` holds; all others reach the real one."""

    def __init__(self, real: Any, method: str) -> None:
        self._real = real
        self._method = method
        self.refuses: bool | Callable[..., bool] = False
        self.error: NoetlError = OutcomeUnknown("no acknowledgement in time")
        self.tried: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._real, name)
        if name != self._method:
            return method

        async def call(*arguments: Any) -> Any:
            self.tried.append(arguments)
            if self.refuses(*arguments) if callable(self.refuses) else self.refuses:
                raise self.error
            return await method(*arguments)

        return call


def numbers_without_holes(reports: list[Report]) -> bool:
    """Whether events and reports of one run are numbered as in PROTOCOL §3."""
    expected_event, last_report = reports[0].first, -1
    for report in reports:
        if report.first != expected_event or report.number <= last_report:
            return False
        expected_event, last_report = expected_event + len(facts_of(report)), report.number
    return True


def inputs_of(calls: list[ToolCall], key: str) -> list[Any]:
    return [dict(call.inputs).get(key) for call in calls]
