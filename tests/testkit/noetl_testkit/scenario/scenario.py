"""Engine scenarios: given a playbook, when a worker reports, then these decisions follow. No IO, no clock.

    scenario = Scenario(PLAYBOOK)
    scenario.start(workload={"pages": 2})
    scenario.done("fetch", {"rows": 3})
    assert scenario.status == "completed"

The engine is the real one, the playbook is checked and compiled as on a server, and every input is checked against the
engine's invariants (DESIGN §3, PROTOCOL §2): ``InvariantBroken`` names the one that does not hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from textwrap import dedent
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from noetl_stream.engine.advance import Advanced, advance
from noetl_stream.engine.choices import Answers, answer_json, decode_answers
from noetl_stream.engine.decide.quiescence import questions_of
from noetl_stream.engine.effects import answer_claim, build_command
from noetl_stream.engine.replay import replay
from noetl_stream.engine.rerun import JournalSummary, reuse
from noetl_stream.engine.snapshot import decode_state, encode_state
from noetl_stream.engine.state import Assignment, Execution, RecordedFact
from noetl_stream.model import events
from noetl_stream.model.events import Fact, Parent, Path
from noetl_stream.model.events.composite import expand
from noetl_stream.model.ids import RunId, report_id
from noetl_stream.model.json import codec
from noetl_stream.model.messages import ClaimAnswer, StepCommand
from noetl_stream.model.outcome import ErrorInfo, Outcome, Reference
from noetl_stream.model.status import FoldedStatus, Rejection
from noetl_stream.playbook.compile.compiler import compile_playbook
from noetl_stream.playbook.kinds.spec import Kinds
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.stores.store import StoredEvent
from noetl_stream.tools.registry import kinds_of, load_tools
from noetl_testkit.scenario.invariants import InvariantBroken, check_invariants
from noetl_testkit.scenario.objects import Objects
from noetl_testkit.scenario.scripted_run import ARGS, ScriptedRun, Sink

AnyFactOf = TypeVar("AnyFactOf", bound=Fact)

Index = int | Path | None
"""An iteration of a distributed loop, in inner ones by its path; ``None`` outside."""


class AskRefused(Exception):
    """The execution rejects a request; the message says why, ``code`` is for programs."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class JournalEntry(NamedTuple):
    """One position of the journal: an input (``decided`` is false) or a decision."""

    recorded: RecordedFact
    decided: bool


class Scenario:
    """One execution of a playbook on the engine alone.

    Args:
        playbook: The YAML, with any indentation; or a plan, for another run of it.
        kinds: The tool kinds the playbook may use; by default those installed here.

    Raises:
        InvalidPlaybook: the playbook has errors.

    Attributes:
        state: ``None`` before :meth:`start`.
        journal: Everything folded, in order; its index plus one is the position.
        inputs: Everything fed, with effect or without.
        objects: Results kept by reference: those that ``objects.takes``.
        evaluates: Whether templates that the execution awaits are evaluated at once.
    """

    def __init__(self, playbook: str | Plan, kinds: Kinds | None = None, *, execution_id: str = "execution-1") -> None:
        self.kinds = installed_kinds() if kinds is None else kinds
        self.plan: Plan = playbook if isinstance(playbook, Plan) else compile_playbook(dedent(playbook), self.kinds)
        self.execution_id = execution_id
        self.state: Execution | None = None
        self.journal: list[JournalEntry] = []
        self.inputs: list[RecordedFact] = []
        self.objects = Objects(execution_id, lambda: (entry.recorded for entry in self.journal))
        self.now_ms = 1_000_000
        self.evaluates = True
        self._deliveries: dict[str, int] = {}
        self._takeovers: set[int] = set()
        self._requests = 0

    # --- when ---------------------------------------------------------------------------------------------------------

    def start(
        self, workload: dict[str, Any] | None = None, ctx: dict[str, Any] | None = None, parent: Parent | None = None
    ) -> Sequence[Fact]:
        """Requests a run, as another execution if there is a ``parent``; returns the decisions that follow."""
        digest, path = self.plan.digest, self.plan.path
        request = events.ExecutionRequested("request-1", digest, path, workload or {}, ctx or {}, parent=parent)
        return self.feed(RecordedFact(request)).journal

    def done(self, step: str, result: Any = ARGS, *, index: Index = None) -> Sequence[Fact]:
        """Runs the owed command of ``step``, each task with this result; returns what follows."""
        before = len(self.journal)
        self._run(step, index).finish(result)
        return self._decided_since(before)

    def failed(
        self, step: str, kind: str = "exception", message: str = "it broke", *, index: Index = None
    ) -> Sequence[Fact]:
        """Runs the owed command of ``step``, whose tasks all fail; returns what follows."""
        before = len(self.journal)
        self._run(step, index).fail(kind, message)
        return self._decided_since(before)

    def take(self, step: str, *, index: Index = None, sink: Sink | None = None) -> ScriptedRun:
        """A worker takes the owed command of ``step``.

        Its run reports to the fold, or to ``sink``. Every further run of a command has a higher rank.
        """
        owed = self.owed(step, index)
        number = self._deliveries[owed.command_id] = self._deliveries.get(owed.command_id, 0) + 1
        return ScriptedRun(
            self.plan,
            self.kinds,
            self.command(owed),
            sink or self.feed,
            num_delivered=number,
            nonce=f"n{number}",
            objects=self.objects,
        )

    def claim(self, run: ScriptedRun) -> ClaimAnswer:
        """Claims for ``run``, and applies the fold's answer to it (PROTOCOL §3 *Claim*)."""
        run.claim()
        answer = self.answer_to(run.run)
        run.answered(answer)
        return answer

    def issue_again(self, assignment: Assignment, reason: str = "the queue lacks it") -> Advanced:
        """Reissues a command, as the server does (PROTOCOL §2 *Reconcile*)."""
        issue = assignment.issue + 1
        fact = events.StepScheduled(assignment.step_run_id, assignment.command_id, assignment.path, issue, reason)
        return self.feed(RecordedFact(fact))

    def wait(self, seconds: float) -> None:
        """Advances the time; every timer that is due fires, in order."""
        until_ms = self.now_ms + round(seconds * 1000)
        while self.state is not None and not self.state.halted:
            due = [(timer.due_ms, timer_id) for timer_id, timer in self.state.timers.items()]
            if not due or min(due)[0] > until_ms:
                break
            due_ms, timer_id = min(due)
            timer = self.state.timers[timer_id]
            self.now_ms = max(self.now_ms, due_ms)
            self.feed(RecordedFact(events.TimerFired(timer_id, timer.purpose, timer.subject, timer.path)))
        self.now_ms = until_ms

    def ask(self, kind: type[events.ClientRequest], **fields: Any) -> Advanced:
        """Sends a client request: a patch, a signal, a cancel … A redundant one has no effect.

        Raises:
            AskRefused: the execution rejects it.
        """
        self._requests += 1
        fact = kind(f"asked-{self._requests}", **fields)
        advanced = self.feed(RecordedFact(fact))
        if isinstance(advanced.refusal, Rejection):
            raise AskRefused(advanced.refusal.text, advanced.refusal.code)
        return advanced

    def patch(self, **keys: Any) -> Advanced:
        """Patches ``ctx`` keys, as a client does."""
        return self.ask(events.CtxPatched, patch=keys)

    def signal(self, name: str, payload: Any = None) -> Advanced:
        return self.ask(events.SignalReceived, signal=name, payload=payload)

    def inject(self, step: str, **args: Any) -> Advanced:
        return self.ask(events.TokenInjected, step=step, args=args)

    def cancel(self, reason: str = "", *, now: bool = False) -> Advanced:
        return self.ask(events.CancelRequested, reason=reason, now=now)

    def pause(self) -> Advanced:
        return self.ask(events.PauseRequested)

    def resume(self) -> Advanced:
        return self.ask(events.ResumeRequested)

    def child_ended(self, result: Any = None, *, error: ErrorInfo | None = None, child: str = "") -> Advanced:
        """Ends a child with this result or error: the oldest live one, unless ``child`` names one."""
        child_id = child or next(iter(self.execution.children))
        outcome = Outcome("ok", codec.payload_of(result)) if error is None else Outcome("error", error=error)
        return self.feed(RecordedFact(events.ChildFinished(child_id, "", outcome)))

    def look_into(self) -> Advanced:
        """Resolves the reference that the execution awaits, as the server does."""
        reference = self._awaited
        value = self.objects[reference.key]
        return self.feed(RecordedFact(events.ReferenceResolved(reference.key, reference.checksum), value=value))

    def lose(self, reason: str = "it is gone") -> Advanced:
        """Reports the awaited reference as lost, as the server does."""
        return self.feed(RecordedFact(events.ReferenceLost(self._awaited.key, reason)))

    def evaluate(self) -> Advanced:
        """Evaluates the templates that the execution awaits, as the process of a server does."""
        asked = self.execution.evaluation
        assert asked is not None, "the execution awaits no templates"
        questions = questions_of(self.plan, self.execution)
        answers = Answers() if questions is None else decode_answers(answer_json(codec.encode(questions)))
        return self._fold(RecordedFact(events.EvaluationFinished(asked.position, answers.chosen, answers.reference)))

    def take_over(self) -> None:
        """Continues on another server, which has the journal but no value of any reference.

        Raises:
            InvariantBroken: the journal yields a different state.
        """
        state = self.replayed()
        if state != replace(self.execution, resolved={}):
            raise InvariantBroken(f"the journal yields the state: {state} is not {self.execution}")
        restored = decode_state(encode_state(self.execution))
        if restored != state:
            raise InvariantBroken(f"a snapshot restores the state: {restored} is not {state}")
        self._takeovers.add(len(self.inputs))
        self.state = restored

    def feed(self, recorded: RecordedFact) -> Advanced:
        """Folds one input, and evaluates the templates that the execution then awaits, unless ``evaluates`` is false.

        Raises:
            InvariantBroken: the engine broke an invariant.
        """
        advanced = self._fold(recorded)
        while self.evaluates and self.state is not None and self.state.evaluation is not None and not self.state.ending:
            self.evaluate()
        return advanced

    def _fold(self, recorded: RecordedFact) -> Advanced:
        before = self.state
        recorded = replace(recorded, at_ms=max(recorded.at_ms, self.now_ms))
        advanced = advance(self.plan, before, recorded, self.execution_id)
        check_invariants(self.plan, before, recorded, advanced, position=len(self.journal))
        self.inputs.append(recorded)
        self.journal += _entries(recorded, advanced)
        self.state = advanced.state
        return advanced

    # --- then ---------------------------------------------------------------------------------------------------------

    @property
    def execution(self) -> Execution:
        """The current state."""
        assert self.state is not None, "the scenario has not been started"
        return self.state

    @property
    def status(self) -> FoldedStatus:
        return self.execution.status

    @property
    def ctx(self) -> dict[str, Any]:
        return self.execution.ctx

    @property
    def result(self) -> Any:
        """The result of a completed execution, in plain values."""
        outcome = self.execution.outcome
        assert outcome is not None and outcome.status == "ok", f"the execution is {self.status}"
        return self.objects.value_of(outcome.result)

    @property
    def error(self) -> ErrorInfo:
        """The error of a failed execution."""
        outcome = self.execution.outcome
        assert outcome is not None and outcome.error is not None, f"the execution is {self.status}"
        return outcome.error

    @property
    def names(self) -> list[str]:
        """The event names of the journal, in order."""
        return [name_of(entry.recorded.fact) for entry in self.journal]

    def facts(self, of: type[AnyFactOf]) -> list[AnyFactOf]:
        """The facts of one kind in the journal, in order."""
        return [entry.recorded.fact for entry in self.journal if isinstance(entry.recorded.fact, of)]

    @property
    def working(self) -> list[tuple[str, Index]]:
        """The owed commands: step and iteration, in order of issue."""
        return [self._shown(one) for one in self.execution.assignments.values()]

    @property
    def suspended(self) -> list[tuple[str, Index]]:
        """The suspended commands: step and iteration, in order of suspension."""
        return [self._shown(one) for one in self.execution.suspensions.values()]

    @property
    def held(self) -> list[str]:
        """The steps of held tokens, in order of arrival."""
        return [waiting.token.step for waiting in self.execution.tokens.values() if waiting.held]

    def owed(self, step: str, index: Index = None) -> Assignment:
        """The oldest owed command of ``step`` (and iteration)."""
        path = () if index is None else (index,) if isinstance(index, int) else index
        for assignment in self.execution.assignments.values():
            if self.execution.runs[assignment.step_run_id].step == step and assignment.path == path:
                return assignment
        raise AssertionError(f"no command of {step}{list(path) or ''} is owed; owed are {self.working}")

    def command(self, assignment: Assignment) -> StepCommand:
        """The command as a worker decodes it."""
        return codec.decode_command(codec.encode(build_command(self.plan, self.execution, assignment)))

    def answer_to(self, run: RunId) -> ClaimAnswer:
        """The fold's answer to a claim by this run."""
        return codec.decode_claim_answer(codec.encode(answer_claim(self.state, run)))

    def rows(self) -> list[StoredEvent]:
        """The journal as a store keeps it."""
        facts = (entry.recorded.fact for entry in self.journal)
        scheduling = events.StepScheduled | events.StepResumed
        step_runs = {fact.command_id: fact.step_run_id for fact in facts if isinstance(fact, scheduling)}
        return [
            StoredEvent(
                position=position,
                name=name_of(recorded.fact),
                source="server" if decided else "client" if recorded.run is None else "worker",
                at_ms=recorded.at_ms,
                step_run_id=None if recorded.run is None else step_runs[recorded.run.command_id],
                report_id=None if recorded.run is None else report_id(recorded.run, recorded.number),
                number=None if recorded.run is None else recorded.number,
                data=codec.encode(recorded.fact),
            )
            for position, (recorded, decided) in enumerate(self.journal, start=1)
        ]

    def replayed(self) -> Execution | None:
        """The state that the journal yields by ``evolve`` alone, each fact read back from its bytes."""
        return replay(self.execution_id, self.rows())

    def decided_again(self) -> list[JournalEntry]:
        """The journal that ``advance`` yields for the same inputs."""
        state: Execution | None = None
        journal: list[JournalEntry] = []
        for number, recorded in enumerate(self.inputs):
            if number in self._takeovers and state is not None:
                state = decode_state(encode_state(state))
            advanced = advance(self.plan, state, recorded, self.execution_id)
            journal += _entries(recorded, advanced)
            state = advanced.state
        return journal

    @property
    def _awaited(self) -> Reference:
        reference = self.execution.awaited
        assert reference is not None, "the execution awaits no reference"
        return reference

    def _run(self, step: str, index: Index) -> ScriptedRun:
        """A run with the lease: it claims the command if another run has it."""
        begun = self.owed(step, index).run is not None
        run = self.take(step, index=index)
        if begun:
            self.claim(run)
        return run

    def _shown(self, assignment: Assignment) -> tuple[str, Index]:
        path = assignment.path
        return self.execution.runs[assignment.step_run_id].step, path[0] if len(path) == 1 else path or None

    def _decided_since(self, position: int) -> list[Fact]:
        return [entry.recorded.fact for entry in self.journal[position:] if entry.decided]


def rerun(scenario: Scenario, step: str | None = None, **wanted: Any) -> Scenario:
    """A rerun of ``scenario`` from a step; without one, a retry of what failed it.

    Args:
        wanted: See :func:`parked`.

    Raises:
        AskRefused: it is impossible.
    """
    again = parked(scenario, step, **wanted)
    for fact in inputs_of(again, scenario):
        again.feed(RecordedFact(fact))
        if isinstance(fact, events.RerunRefused):
            raise AskRefused(fact.reason, fact.code)
    return again


def parked(
    scenario: Scenario,
    step: str | None = None,
    *,
    step_run_id: str | None = None,
    ctx: dict[str, Any] | None = None,
    args: dict[str, Any] | None = None,
    undoes: bool = False,
) -> Scenario:
    """A rerun before the server has found what it reuses; or, if it ``undoes``, what is left to undo."""
    again = Scenario(scenario.plan, scenario.kinds, execution_id=f"{scenario.execution_id}-again")
    again.now_ms = scenario.now_ms
    again.objects = scenario.objects.shared_with(
        again.execution_id, lambda: (entry.recorded for entry in again.journal)
    )
    plan, of = scenario.plan, events.Rerun(scenario.execution_id, step, step_run_id, args, undoes)
    again.feed(RecordedFact(events.ExecutionRequested("request-1", plan.digest, plan.path, ctx=ctx or {}, rerun=of)))
    return again


def inputs_of(again: Scenario, scenario: Scenario) -> list[Fact]:
    """The server's inputs, read back from bytes."""
    request = again.execution.request
    assert request is not None, "it is not a rerun, or has begun"
    summary = JournalSummary(scenario.execution_id, scenario.rows())
    facts = reuse(again.plan, again.execution_id, request, summary)
    return [codec.decode_fact(codec.encode(fact)) for fact in facts]


def name_of(fact: Fact) -> str:
    """The event name of a fact."""
    return str(type(fact).__struct_config__.tag)


def _entries(recorded: RecordedFact, advanced: Advanced) -> list[JournalEntry]:
    """What an input adds to the journal."""
    if not advanced.taken:
        return []
    execution_id = advanced.state.execution_id if advanced.state is not None else ""
    followed = (part for fact in advanced.journal for part in expand(execution_id, fact))
    decisions = [RecordedFact(fact, at_ms=recorded.at_ms) for fact in followed]
    return [JournalEntry(recorded, decided=False), *(JournalEntry(one, decided=True) for one in decisions)]


@cache
def installed_kinds() -> Kinds:
    """The tool kinds of this environment, for the checker."""
    return kinds_of(load_tools())
