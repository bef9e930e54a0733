"""Random workers, queue, network and clients of one execution; in the end everything is delivered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any
from zlib import crc32

from noetl_stream.engine.evolve.step_runs import classify
from noetl_stream.engine.state import RecordedFact
from noetl_stream.model.events import (
    ChildRequested,
    ExecutionPaused,
    Path,
    StepCancelled,
    StepClaimed,
    StepScheduled,
    TaskProcessed,
)
from noetl_stream.model.messages import StepCommand
from noetl_stream.model.outcome import ErrorInfo
from noetl_testkit.scenario.scenario import AskRefused, Scenario
from noetl_testkit.scenario.scripted_run import ARGS, ScriptedRun

CHAOS_TURNS = 150
MAX_TURNS = 20_000
BROKE = ErrorInfo("exception", "it broke")

Answer = tuple[Any, ErrorInfo | None]


@dataclass(eq=False)
class Copy:
    """One issue of a command in the queue, built when it was issued."""

    command: StepCommand
    delivered: int = 0

    @property
    def key(self) -> tuple[str, int]:
        return self.command.command_id, self.command.issue


@dataclass(eq=False)
class Working:
    """A run on a worker, and its unreported events, in groups that are reported together."""

    copy: Copy
    outbox: list[list[RecordedFact]] = field(default_factory=list)
    run: ScriptedRun = field(init=False)

    def tell(self, recorded: RecordedFact) -> None:
        last = self.outbox[-1][-1].fact if self.outbox else None
        if isinstance(last, TaskProcessed) and last.to is None:
            self.outbox[-1].append(recorded)  # the last task of a pipeline and its end: no journal holds one alone
        else:
            self.outbox.append([recorded])


@dataclass(frozen=True)
class Disturbance:
    """What happens besides work, as a share of turns."""

    faults: float = 0.25
    people: float = 0.0
    pauses: float = 0.0
    cancels: float = 0.0
    at_once: float = 0.0
    references: bool = False


UNDISTURBED = Disturbance(faults=0.0)


class RandomRun:
    """Drives a scenario to its end through everything PROTOCOL §3 allows to happen.

    Args:
        answer: What the next task of a pass gives; by chance if not given.
        child_error: How a called playbook fails, if it does; by chance if not given.
    """

    def __init__(
        self,
        scenario: Scenario,
        random: Random,
        disturbance: Disturbance = Disturbance(),
        answer: Callable[[ScriptedRun, Path], Answer] | None = None,
        child_error: Callable[[ChildRequested], ErrorInfo | None] | None = None,
    ) -> None:
        self.scenario = scenario
        self.random = random
        self.disturbance = disturbance
        self.answer = answer or self._by_chance
        self.child_error = child_error or (lambda requested: BROKE if self._fails() else None)
        self.failure_rate = random.choice([0.0, 0.1, 0.4])
        self.queue: dict[tuple[str, int], Copy] = {}
        self.working: list[Working] = []
        self.stopped: set[str] = set()
        self.old: list[RecordedFact] = []
        self._seen = 0
        if disturbance.references:
            modulus = random.choice([1, 2, 4])
            scenario.objects.takes = lambda data: crc32(data) % modulus == 0

    def run(self) -> None:
        """Runs the execution to its end.

        Raises:
            AssertionError: it never ended.
        """
        self.scenario.start()
        for turn in range(MAX_TURNS):
            self._apply_decisions()
            if self.scenario.execution.ended and not self.working:
                return
            self.turn(calm=turn > CHAOS_TURNS)
        raise AssertionError(f"it did not end: {self.scenario.working}, held {self.scenario.held}")

    def turn(self, calm: bool) -> None:
        """Lets one random thing happen."""
        state, disturbance, chance = self.scenario.execution, self.disturbance, self.random.random()
        if not calm and chance < disturbance.faults:
            faults = [self._crash, self._expire, self._repeat, self._issue_again, self._lose, self.scenario.take_over]
            self.random.choice(faults)()
            return
        if not calm and chance < disturbance.faults + disturbance.people:
            self.random.choice([self._signal, self._signal, self._patch, self._pass_time, self._end_child])()
            return
        if state.awaited is not None and (calm or self.random.random() < 0.3):
            self.scenario.look_into()
        elif state.paused_at_ms and (calm or self.random.random() < 0.1):
            self.scenario.resume()
        elif not calm and self.random.random() < disturbance.pauses:
            self._ask(self.scenario.pause)
        elif not calm and self.random.random() < disturbance.cancels:
            self._ask(self.scenario.cancel)
        elif not calm and disturbance.at_once and self.random.random() < disturbance.at_once:
            self._ask(lambda: self.scenario.cancel("enough", now=True))
        elif not self._move_a_worker():
            self._move_the_rest()

    def _move_a_worker(self) -> bool:
        """A worker reports, works, or takes a command; false if there is nothing to do."""
        held = [working.copy for working in self.working]
        free = [copy for copy in self.queue.values() if copy not in held]
        if self.working and (not free or self.random.random() < 0.8):
            working = self.random.choice(self.working)
            if working.outbox and self.random.random() < 0.7:
                self._deliver(working)
            else:
                self._work(working)
        elif free:
            self._take(self.random.choice(free))
        else:
            return False
        return True

    def _move_the_rest(self) -> None:
        """Nothing is queued or running: owed commands are reissued, children end, time passes."""
        state = self.scenario.execution
        if state.assignments:
            for command_id in list(state.assignments):
                self._order_again(command_id)
        elif state.awaited is not None:
            self.scenario.look_into()
        elif state.paused_at_ms:
            self.scenario.resume()
        elif state.children and self.random.random() < 0.7:
            self._end_child()
        elif state.timers and not state.ended:
            due_ms = min(timer.due_ms for timer in state.timers.values())
            self.scenario.wait(max(0, due_ms - self.scenario.now_ms) / 1000)

    def _apply_decisions(self) -> None:
        """Carries out new decisions as a server does: commands to the queue, stops and pauses to the workers."""
        for entry in self.scenario.journal[self._seen :]:
            fact = entry.recorded.fact
            if isinstance(fact, StepScheduled):
                assignment = self.scenario.execution.assignments.get(fact.command_id)
                if assignment is not None and assignment.issue == fact.issue:
                    self.queue[fact.command_id, fact.issue] = Copy(self.scenario.command(assignment))
            elif isinstance(fact, StepCancelled):
                self.stopped.add(fact.command_id)
            elif isinstance(fact, ExecutionPaused):
                for working in self.working:
                    if self.random.random() < 0.7:
                        working.run.pause()
        self._seen = len(self.scenario.journal)

    def _take(self, copy: Copy) -> None:
        """A worker gets a copy; it claims first unless the copy must be the only one."""
        copy.delivered += 1
        working, scenario = Working(copy), self.scenario
        nonce = f"{self.random.getrandbits(32):08x}"
        working.run = run = ScriptedRun(
            scenario.plan,
            scenario.kinds,
            copy.command,
            working.tell,
            num_delivered=copy.delivered,
            nonce=nonce,
            objects=scenario.objects,
        )
        self.working.append(working)
        if copy.command.issue > 1 or copy.delivered > 1:
            run.claim()
            ((claim,),) = working.outbox
            working.outbox.clear()
            scenario.feed(claim)
            self.old.append(claim)
            run.answered(scenario.answer_to(run.run))
            if run.over:
                self._leave(working)

    def _work(self, working: Working) -> None:
        run = working.run
        if run.over:
            if not working.outbox:
                self._leave(working)
        elif run.command.command_id in self.stopped and self.random.random() < 0.5:
            run.stop()
        else:
            run.begin()
            if run.over:
                return
            path = self.random.choice(run.ready)
            result, error = self.answer(run, path)
            run.answer(result, error=error, path=path)

    def _by_chance(self, run: ScriptedRun, path: Path) -> Answer:
        return ARGS, BROKE if self._fails() else None

    def _fails(self) -> bool:
        return self.random.random() < self.failure_rate

    def _deliver(self, working: Working) -> None:
        """The next events reach the fold, which may refuse them (the run ends) or miss earlier ones (reissued)."""
        for recorded in working.outbox.pop(0):
            stands = classify(self.scenario.state, recorded)
            advanced = self.scenario.feed(recorded)
            assert advanced.taken == (stands == "next"), f"{recorded} is {stands} and was {advanced.taken}"
            self.old.append(recorded)
            if stands in ("stale", "unknown"):
                self._leave(working)
                return
            if stands == "gap":
                self._order_again(working.copy.command.command_id)
                return
        if working.run.over and not working.outbox:
            self._leave(working)

    def _leave(self, working: Working) -> None:
        """The run ends and acknowledges its copy."""
        self.working.remove(working)
        self.queue.pop(working.copy.key, None)

    # --- faults -------------------------------------------------------------------------------------------------------

    def _crash(self) -> None:
        """A worker dies; its unreported events are lost, and its copy will be delivered again."""
        if self.working:
            self.working.remove(self.random.choice(self.working))

    def _expire(self) -> None:
        """A lease expires although the worker lives: another takes the copy."""
        if self.working:
            copy = self.random.choice(self.working).copy
            if copy.key in self.queue:
                self._take(copy)

    def _repeat(self) -> None:
        """An old message arrives again."""
        if self.old:
            recorded = self.random.choice(self.old)
            before = self.scenario.state
            advanced = self.scenario.feed(recorded)
            claims_again = type(recorded.fact) is StepClaimed and advanced.taken
            assert advanced.state is before or claims_again
        self.scenario.start()

    def _issue_again(self) -> None:
        if self.scenario.execution.assignments:
            self._order_again(self.random.choice(list(self.scenario.execution.assignments)))

    def _lose(self) -> None:
        """A report never arrives although later ones do."""
        if self.working:
            working = self.random.choice(self.working)
            if len(working.outbox) > 1:
                working.outbox.pop(0)

    def _order_again(self, command_id: str) -> None:
        assignment = self.scenario.execution.assignments.get(command_id)
        if assignment is not None:
            self.scenario.issue_again(assignment)

    # --- people, children and the clock -------------------------------------------------------------------------------

    def _ask(self, request: Callable[[], Any]) -> None:
        """A client sends a request, and repeats it."""
        try:
            request()
        except AskRefused:
            return
        before = self.scenario.state
        assert self.scenario.feed(self.scenario.inputs[-1]).state is before

    def _signal(self) -> None:
        self._ask(lambda: self.scenario.signal(self.random.choice(["go", "stop"]), self.random.randint(0, 9)))

    def _patch(self) -> None:
        self._ask(lambda: self.scenario.patch(**{self.random.choice(["k0", "k1", "k2"]): self.random.randint(0, 2)}))

    def _pass_time(self) -> None:
        self.scenario.wait(self.random.choice([0.5, 5, 50]))

    def _end_child(self) -> None:
        children = list(self.scenario.execution.children)
        if children:
            child = self.random.choice(children)
            (requested,) = [one for one in self.scenario.facts(ChildRequested) if one.execution_id == child]
            self.scenario.child_ended({"n": 1}, error=self.child_error(requested), child=child)
            before = self.scenario.state
            assert self.scenario.feed(self.scenario.inputs[-1]).state is before
