"""The run of playbook tests, each on an installation of its own in memory, in simulated time."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from textwrap import indent
from typing import Any, Final

import msgspec

from noetl_stream.adapters.clock import START_MS
from noetl_stream.adapters.simulated_time import (
    REAL_WORK_S,
    NothingWouldHappen,
    SimulatedLoop,
    cancel_all_tasks,
    simulated_loop,
)
from noetl_stream.concurrency import closing
from noetl_stream.errors import NoetlError
from noetl_stream.model import events
from noetl_stream.model.events import InterventionFact
from noetl_stream.model.ids import uuid7
from noetl_stream.model.limits import DEFAULT_LIMITS, Limits
from noetl_stream.model.status import ENDED
from noetl_stream.operations.executions.reading.documents import undeclared_workload
from noetl_stream.playbook.diagnostics import Location
from noetl_stream.playbook.kinds.spec import unchecked_kind
from noetl_stream.playbook_tests.expectations import Observed, deviations
from noetl_stream.playbook_tests.journal import SeenJournal, read_journal
from noetl_stream.playbook_tests.loading import LoadedTest, TestedFile
from noetl_stream.playbook_tests.reading import Expected, UserAction
from noetl_stream.playbook_tests.schema import REAL_KINDS
from noetl_stream.playbook_tests.stack import BY, CompiledPlaybooks, EndlessExecution, MemoryStack
from noetl_stream.playbook_tests.stubs import MAX_CALLS, MissingStub, RecordedCall, StubbedCalls, StubbedTool
from noetl_stream.ports.operations.executions import ReasonDocument, Start, WhyDocument
from noetl_stream.telemetry.structured_logs import ROOT_NAME
from noetl_stream.tools.python.environments.requirements import required_by
from noetl_stream.tools.registry import KindOff, ToolClass, kinds_of

_RESULTS: Final = {"http": "{ status: 200, data: {} }", "postgres": "{ rows: [] }", "duckdb": "{ rows: [] }"}
"""An example of a result, by kind of task."""


def missing_stub(missing: MissingStub, test: LoadedTest) -> str:
    """The message about a call without a stub, with the stub to write."""
    call, key = missing.call, missing.call.key
    playbook = next(one for one in (test.playbook, *test.catalog) if one.digest == key.digest)
    plan = playbook.checked.plan
    line = 0 if plan is None else plan.steps[key.step].tasks[plan.steps[key.step].task_index(key.task)].line
    which = f"attempt {call.attempt}, call {call.number}"
    if call.iteration:
        which += f", iteration {list(call.iteration)}"
    several = f"none of its {missing.others} stubs fits the call ({which})" if missing.others else f"no stub ({which})"
    stub = f"{key.step}.{key.task}: {{ result: {_RESULTS.get(call.kind, '{}')} }}"
    if playbook is test.playbook:
        snippet = f"given:\n  stubs:\n    {stub}"
    else:
        name = next(str(one.at.plain()) for one in test.test.given.catalog if str(one.file) == playbook.file)
        snippet = f"given:\n  catalog:\n    {name}:\n      stubs:\n        {stub}"
    where = f"{playbook.file}:{line}: task `{key.task}` of step `{key.step}` (kind {call.kind})"
    text = f"{where}: {several}; write\n{indent(snippet, '  ')}"
    if call.kind in REAL_KINDS and not call.inputs.get("attach"):
        text += f"\nor let it run: `given: {{ real: [{call.kind}] }}`"
    return text


def endless_calls(calls: Sequence[RecordedCall]) -> str:
    """The message about a test that calls tasks without end."""
    (key, count), *_ = Counter(call.key for call in calls).most_common(1)
    return (
        f"more than {MAX_CALLS:,} calls, {count:,} of them of task `{key.task}` of step `{key.step}`: "
        "its stubs never end the loop; let one stand for a `call` of its own"
    )


def reason_lines(why: WhyDocument) -> Iterator[str]:
    """The reasons why an execution waits; for a wait also what a test can write to end it."""
    for reason in why.reasons:
        hint = _end_advice(reason)
        yield f"{reason.sentence}{f' {hint}' if hint else ''}"


def _end_advice(reason: ReasonDocument) -> str:
    on = reason.waiting_on
    if on is None:
        return ""
    found = []
    if on.signal is not None:
        found.append(f"`- {{ signal: {on.signal} }}`")
    found += (f"`- {{ patch: {{ {key}: … }} }}`" for key in on.ctx)
    if on.request == "resume":
        found.append("`- { resume: done }`")
    if on.timer is not None:
        found.append("`- { after: 1d }`")
    return f"Write under `when`: {' or '.join(found)}." if found else ""


class FoundProblem(msgspec.Struct, frozen=True):
    """A problem that a test found, and the place in its document that expects otherwise."""

    line: int
    column: int
    message: str


class TestOutcome(msgspec.Struct, frozen=True):
    """The outcome of a test.

    Attributes:
        problems: Empty if it passed.
        steps: The runs of steps, a line each: their tokens and their ends.
        why: The reason why the execution waits; empty if the test passed.
        notes: Notes on probable mistakes: unused stubs, undeclared keys of ``workload``.
        journals: The journals of all executions.
        took_s: The duration by a real clock.
    """

    __test__ = False

    name: str
    line: int
    problems: tuple[FoundProblem, ...]
    steps: tuple[str, ...]
    why: tuple[str, ...]
    notes: tuple[str, ...]
    journals: tuple[SeenJournal, ...]
    took_s: float

    @property
    def passed(self) -> bool:
        return not self.problems


def tool_not_installed(kind: str) -> ToolClass:
    """Makes a stand-in for a tool that is not installed, as with ``check --kinds``: only stubs answer for it."""
    return type("ToolNotInstalled", (KindOff,), {"spec": unchecked_kind(kind)})


class TestRunner:
    """Runs tests one after the other. The same test with the same seed has the same outcome.

    Args:
        tools: The installed tool classes, by kind.
        real_work_s: How long a task that runs for real may be silent, by a real clock.
        bundle_of: Returns the name and the bytes of the bundle for a playbook's file and text, with the locks of its
            tasks' requirements; ``None`` if it needs none.
    """

    __test__ = False

    def __init__(
        self,
        tools: Mapping[str, ToolClass],
        limits: Limits = DEFAULT_LIMITS,
        seed: int = 0,
        real_work_s: float = REAL_WORK_S,
        bundle_of: Callable[[str, str], tuple[str, bytes] | None] = lambda _file, _source: None,
    ) -> None:
        self._bundle_of, self._bundles = bundle_of, dict[str, tuple[str, bytes] | None]()
        self._real_work_s = real_work_s
        self.tools = tools
        self.compiled = CompiledPlaybooks(kinds_of(tools), limits)
        self._seed = seed

    def bundle(self, tested: TestedFile) -> tuple[str, bytes] | None:
        """The bundle of a playbook; ``None`` if its tasks have no requirements."""
        if tested.digest not in self._bundles:
            plan = tested.checked.plan
            needs_one = plan is not None and bool(required_by(plan))
            self._bundles[tested.digest] = self._bundle_of(tested.file, tested.source) if needs_one else None
        return self._bundles[tested.digest]

    def run(self, test: LoadedTest) -> TestOutcome:
        began_s = time.perf_counter()
        now_ms = test.test.given.now_ms
        loop = SimulatedLoop(self._seed, START_MS if now_ms is None else now_ms, self._real_work_s)
        course = _Course(test, self)
        with _hide_expected_logs():
            try:
                loop.run_until_complete(course.run())
            except (NothingWouldHappen, NoetlError) as error:
                course.add_problem(test.test.at, str(error))
            finally:
                loop.run_until_complete(cancel_all_tasks())
                loop.close()
        return course.outcome(time.perf_counter() - began_s)


class _Course:
    def __init__(self, loaded: LoadedTest, runner: TestRunner) -> None:
        self._loaded = loaded
        self._test = loaded.test
        self._runner = runner
        files = {one.digest: one for one in (loaded.playbook, *loaded.catalog)}
        self._calls = StubbedCalls(loaded.stubs, self._test.given.real, lambda digest: runner.bundle(files[digest]))
        self._problems: list[FoundProblem] = []
        self._journals: list[SeenJournal] = []
        self._why: tuple[str, ...] = ()

    def outcome(self, took_s: float) -> TestOutcome:
        return TestOutcome(
            name=self._test.name,
            line=self._test.at.mark.line,
            problems=tuple(self._problems),
            steps=tuple(self._journals[0].lines()) if self._journals else (),
            why=self._why,
            notes=tuple(self._notes()),
            journals=tuple(self._journals),
            took_s=took_s,
        )

    def _notes(self) -> Iterator[str]:
        given, own = self._test.given, self._test.own_stubs
        stubs = [(key, one.stubs) for key, one in given.stubs.items() if key in own]
        unused = [key for key, ones in stubs if not any(id(stub) in self._calls.used for stub in ones)]
        if unused:
            yield f"unused stubs: {', '.join(unused)}"
        if any(journal.lacks_playbook for journal in self._journals):
            yield "a called playbook is not given: name its file under `given: { catalog: { FILE: } }`"
        yield from (one.message for one in undeclared_workload(given.workload, self._loaded.plan.workload))

    def add_problem(self, at: Location, message: str) -> None:
        self._problems.append(FoundProblem(at.mark.line, at.mark.column, message))

    async def run(self) -> None:
        loaded, given, calls, runner = self._loaded, self._test.given, self._calls, self._runner
        plans = [loaded.plan, *(one.checked.plan for one in loaded.catalog if one.checked.plan is not None)]
        stack = MemoryStack(
            {kind: StubbedTool(tool, calls) for kind, tool in runner.tools.items()},
            runner.compiled,
            pools={step.pool for plan in plans for step in plan.every_step},
            secrets=_Secrets(given.secrets),
            is_over=lambda: calls.missing is not None or calls.is_endless,
        )
        async with closing(stack):
            await stack.begin()
            for one in loaded.catalog:
                await stack.playbooks.register(one.source.encode(), one.file, BY)
            start = Start(playbook=loaded.playbook.source, workload=given.workload, ctx=given.ctx, due=given.due)
            began = await stack.executions.start(start, BY)
            try:
                await self._follow(stack, began.execution_id)
            except EndlessExecution as error:
                self.add_problem(self._test.at, str(error))
            await self._look_back(stack, began.execution_id)

    async def _follow(self, stack: MemoryStack, execution_id: str) -> None:
        """Follows the execution from the start to the end, and records problems on the way."""
        from_s = stack.clock.monotonic_s()
        for action in self._test.actions:
            until_s = None if action.after_s is None else from_s + action.after_s
            stopped = await stack.run(execution_id, until_s)
            if stopped == "over":
                break
            if stopped == "ended" and action.verb != "nothing":
                status = (await stack.row(execution_id)).status
                self.add_problem(action.at, f"{action.verb}: the execution is {status} already")
                break
            from_s = stack.clock.monotonic_s()
            await self._act(stack, execution_id, action)
            if action.expected is not None:
                await simulated_loop().until_idle()
                await self._compare(stack, execution_id, action.expected, at_end=False)
        if not self._problems and await stack.run(execution_id, None) != "over":
            expected = self._test.expected or Expected(self._test.at)
            await self._compare(stack, execution_id, expected, at_end=True)
        if self._calls.missing is not None:
            self.add_problem(self._test.at, missing_stub(self._calls.missing, self._loaded))
        elif self._calls.is_endless:
            self.add_problem(self._test.at, endless_calls(self._calls.calls))

    async def _act(self, stack: MemoryStack, execution_id: str, action: UserAction) -> None:
        if action.verb == "nothing":
            return
        request_id = uuid7(stack.clock.now_ms(), stack.clock.random_bytes(10))
        try:
            await stack.executions.ask(execution_id, _request(action, request_id))
        except NoetlError as error:
            self.add_problem(action.at, f"{action.verb}: {error.message}")

    async def _compare(self, stack: MemoryStack, execution_id: str, expected: Expected, *, at_end: bool) -> None:
        document = await stack.executions.get(execution_id)
        result = document.result
        if document.status in ENDED:
            result = (await stack.executions.result(execution_id)).result
        observed = Observed(
            status=document.status,
            result=result,
            error=document.error,
            ctx=document.ctx,
            waits=stack.waits(execution_id) if document.status not in ENDED else (),
            journal=await self._journal(stack, execution_id),
            calls=self._calls.calls,
        )
        for at, message in deviations(expected, observed, self._loaded.plan, at_end=at_end):
            self.add_problem(at, message)

    async def _look_back(self, stack: MemoryStack, execution_id: str) -> None:
        others = [one for one in stack.execution_ids if one != execution_id]
        self._journals = [await self._journal(stack, one) for one in (execution_id, *others)]
        if self._problems:
            self._why = tuple(reason_lines(await stack.executions.why(execution_id)))

    async def _journal(self, stack: MemoryStack, execution_id: str) -> SeenJournal:
        rows = await stack.store.journal(execution_id)
        return read_journal(execution_id, (await stack.row(execution_id)).digest, rows)


class _Secrets(dict[str, str]):
    """The secrets of a test, as a worker's variables. Any other secret is a text that names it."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        texts = {name: one if isinstance(one, str) else json.dumps(one) for name, one in given.items()}
        super().__init__({name.lower(): text for name, text in texts.items()})

    def __bool__(self) -> bool:
        return True  # it has every name

    def get(self, name: str, default: Any = None) -> str:
        return super().get(name, f"<keychain.{name}>")


def _request(action: UserAction, request_id: str) -> InterventionFact:
    name, value = action.name, action.value
    match action.verb:
        case "patch" | "merge":
            return events.CtxPatched(request_id, principal=BY, patch=value, merge=action.verb == "merge")
        case "signal":
            return events.SignalReceived(request_id, principal=BY, signal=name, payload=value)
        case "inject":
            return events.TokenInjected(request_id, principal=BY, step=name, args=value)
        case "cancel":
            return events.CancelRequested(request_id, principal=BY, reason=name)
        case "pause":
            return events.PauseRequested(request_id, principal=BY, reason=name)
        case _:
            return events.ResumeRequested(request_id, principal=BY, reason=name)


@contextmanager
def _hide_expected_logs() -> Iterator[None]:
    """Hides logs of failed tasks, which are expected in a test; logs of defects of the roles are shown."""
    log = logging.getLogger(ROOT_NAME)
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
