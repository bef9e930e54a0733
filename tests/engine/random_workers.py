"""Random workers, a random queue and a random network around one execution; in the end everything is delivered."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from noetl_stream.engine.evolve import takes
from noetl_stream.engine.state import Occurrence
from noetl_stream.model.events import StepCancelled, StepClaimed, StepScheduled
from noetl_stream.model.messages import StepCommand
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.testing.scenario import Scenario
from noetl_stream.testing.scripted_run import ScriptedRun

CHAOS_TURNS = 150
MAX_TURNS = 20_000


@dataclass(eq=False)
class Copy:
    """One issue of a command in the queue, built when it was ordered."""

    command: StepCommand
    delivered: int = 0

    @property
    def key(self) -> tuple[str, int]:
        return self.command.command_id, self.command.issue


@dataclass(eq=False)
class Working:
    """A run on a worker: what it has still to say, and what it has said."""

    run: ScriptedRun
    copy: Copy
    outbox: list[Occurrence] = field(default_factory=list)
    said: list[Occurrence] = field(default_factory=list)


class Storm:
    """Drives a scenario to its end through everything PROTOCOL §3 allows to happen."""

    def __init__(self, scenario: Scenario, random: Random, *, faults: bool = True) -> None:
        self.scenario = scenario
        self.random = random
        self.faults = faults
        self.failure_rate = random.choice([0.0, 0.1, 0.4])
        self.queue: dict[tuple[str, int], Copy] = {}
        self.working: list[Working] = []
        self.told_to_stop: set[str] = set()
        self.old: list[Occurrence] = []
        self._seen = 0

    def run(self) -> None:
        """Starts the execution and goes on until it has ended.

        Raises:
            AssertionError: it never ended.
        """
        self.scenario.start()
        for turn in range(MAX_TURNS):
            self._heed_decisions()
            if self.scenario.execution.ended and not self.working:
                return
            self.turn(calm=not self.faults or turn > CHAOS_TURNS)
        raise AssertionError(f"it did not end: {self.scenario.working}, held {self.scenario.held}")

    def turn(self, calm: bool) -> None:
        """One thing happens somewhere."""
        if not calm and self.random.random() < 0.25:
            self.random.choice([self._crash, self._expire, self._repeat, self._issue_again, self._lose])()
            return
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
            self._reconcile()

    def _heed_decisions(self) -> None:
        """What the shell does for new decisions: commands to the queue, stops to the workers."""
        for entry in self.scenario.journal[self._seen :]:
            fact = entry.occurrence.fact
            if isinstance(fact, StepScheduled):
                owed = self.scenario.execution.assignments.get(fact.command_id)
                if owed is not None and owed.issue == fact.issue:
                    self.queue[fact.command_id, fact.issue] = Copy(self.scenario.command(owed))
            elif isinstance(fact, StepCancelled):
                self.told_to_stop.add(fact.command_id)
        self._seen = len(self.scenario.journal)

    def _take(self, copy: Copy) -> None:
        """A worker is given a copy; it asks first unless it must have the only one."""
        copy.delivered += 1
        told: list[Occurrence] = []
        nonce = f"{self.random.getrandbits(32):08x}"
        plan, kinds = self.scenario.plan, self.scenario.kinds
        run = ScriptedRun(plan, kinds, copy.command, told.append, num_delivered=copy.delivered, nonce=nonce)
        working = Working(run, copy, told)
        self.working.append(working)
        if copy.command.issue > 1 or copy.delivered > 1:
            run.claim()
            claim = told.pop()
            self.scenario.feed(claim)
            self.old.append(claim)
            run.answered(self.scenario.answer_to(run.run))
            if run.over:
                self._leave(working)

    def _work(self, working: Working) -> None:
        run = working.run
        if run.over:
            if not working.outbox:
                self._leave(working)
        elif run.command.command_id in self.told_to_stop and self.random.random() < 0.5:
            run.stop()
        else:
            run.begin()
            if run.over:
                return
            if self.random.random() < self.failure_rate:
                run.answer(error=ErrorInfo("exception", "it broke"))
            else:
                run.answer()

    def _deliver(self, working: Working) -> None:
        """The next event reaches the fold, which may refuse it (the run ends) or miss one before it (issued again)."""
        occurrence = working.outbox.pop(0)
        stands = takes(self.scenario.state, occurrence)
        advanced = self.scenario.feed(occurrence)
        assert advanced.taken == (stands == "next"), f"{occurrence} is {stands} and was {advanced.taken}"
        working.said.append(occurrence)
        self.old.append(occurrence)
        if stands in ("stale", "unknown"):
            self._leave(working)
        elif stands == "gap":
            self._order_again(working.copy.command.command_id)
        elif working.run.over and not working.outbox:
            self._leave(working)

    def _leave(self, working: Working) -> None:
        """The run ends and acknowledges its copy."""
        self.working.remove(working)
        self.queue.pop(working.copy.key, None)

    # --- faults -------------------------------------------------------------------------------------------------------

    def _crash(self) -> None:
        """A worker dies; what it has not said is lost, and its copy will be delivered again."""
        if self.working:
            self.working.remove(self.random.choice(self.working))

    def _expire(self) -> None:
        """A lease runs out although the worker lives: another takes the copy."""
        if self.working:
            copy = self.random.choice(self.working).copy
            if copy.key in self.queue:
                self._take(copy)

    def _repeat(self) -> None:
        """An old message comes once more."""
        if self.old:
            occurrence = self.random.choice(self.old)
            before = self.scenario.state
            advanced = self.scenario.feed(occurrence)
            claims_again = type(occurrence.fact) is StepClaimed and advanced.taken
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
        owed = self.scenario.execution.assignments.get(command_id)
        if owed is not None:
            self.scenario.issue_again(owed)

    def _reconcile(self) -> None:
        """Nothing is queued and nobody works: what is owed is ordered again."""
        for command_id in list(self.scenario.execution.assignments):
            self._order_again(command_id)
