"""The journal of an execution in a test: facts that tests compare and show, and reached arcs, guards and rules."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from noetl_stream.model import events
from noetl_stream.model.events import EvaluatedGuard, Fact, Token
from noetl_stream.model.events.composite import expand
from noetl_stream.model.events.journal_reader import JournalReader, Recorded, RunEnd
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.stores.store import StoredEvent
from noetl_stream.storage.journal import fact_of
from noetl_stream.template import Guard

RUNS_SHOWN: Final = 50

NEXT: Final = "next"
ADMIT: Final = "admit"


class SeenFact(NamedTuple):
    """A fact, and the step run it is about; ``""`` for none."""

    step_run_id: str
    fact: Fact


class SeenStepRun(msgspec.Struct):
    """A run of a step in a test: its token, and its end so far."""

    step: str
    token: Token
    ended: str = ""
    error: str = ""
    tasks: int = 0
    failed_tasks: int = 0


class _Decision(NamedTuple):
    """The arcs that fired, or the rules that decided, at a place without its index, and the guards evaluated there."""

    step: str
    part: str
    taken: Collection[int]
    guards: Sequence[EvaluatedGuard]


class SeenJournal(msgspec.Struct, frozen=True):
    """The journal of one execution. ``runs`` are in the order in which they began, by step run."""

    digest: str
    facts: Sequence[SeenFact]
    runs: dict[str, SeenStepRun]
    decisions: Sequence[_Decision]

    @property
    def failed_step(self) -> str | None:
        """The step whose failure failed the execution."""
        failing = (one.fact for one in self.facts if isinstance(one.fact, events.ExecutionFailing))
        return next((fact.step for fact in failing), None)

    @property
    def lacks_playbook(self) -> bool:
        """Whether a task has called a playbook that the catalog does not have."""
        tasks = (one.fact for one in self.facts if isinstance(one.fact, events.TaskProcessed))
        errors = (fact.outcome.error for fact in tasks)
        return any(error is not None and error.kind == "invalid_playbook" for error in errors)

    def lines(self) -> Iterator[str]:
        """The runs of steps, a line each; of many the first and the last."""
        left_out = range(RUNS_SHOWN // 2 + 1, len(self.runs) - RUNS_SHOWN // 2 + 1)
        for number, run in enumerate(self.runs.values(), start=1):
            if number in left_out:
                if number == left_out.start:
                    yield f"… {len(left_out):,} more"
                continue
            failed = f", {run.failed_tasks} of {run.tasks} task runs failed" if run.failed_tasks else ""
            ended = f"{run.ended}{failed}" if run.ended else f"not ended{failed}"
            yield f"{number}. {run.step} ({_cause(run.token)}): {ended}{f': {run.error}' if run.error else ''}"


class _TestReader(JournalReader[SeenStepRun]):
    """Reads the step runs of a test and its decisions."""

    def __init__(self, execution_id: str) -> None:
        super().__init__(execution_id)
        self.known: dict[str, Token] = {}
        self.decisions: list[_Decision] = []

    def token_enqueued(self, at: Recorded, fact: events.TokenEnqueued) -> None:
        self.known[fact.token.token_id] = fact.token

    def token_held(self, at: Recorded, fact: events.TokenHeld) -> None:
        self._add_admission(fact)

    def run_began(self, at: Recorded, step: str, fact: events.TokenClaimed) -> SeenStepRun:
        self._add_admission(fact)
        token = self.known[fact.token_id]
        return SeenStepRun(token.step, token)

    def attempt_ended(self, at: Recorded, run: SeenStepRun, fact: events.TaskProcessed) -> None:
        run.tasks += 1
        run.failed_tasks += fact.outcome.error is not None
        self.decisions.append(_Decision(run.step, fact.task, [fact.rule] if fact.rule >= 0 else (), fact.guards))

    def run_ended(self, at: Recorded, run: SeenStepRun, fact: RunEnd) -> None:
        run.ended = fact.event_name()
        run.error = f"{fact.error.kind}: {fact.error.message}" if isinstance(fact, events.StepFailed) else ""

    def run_rested(self, at: Recorded, run: SeenStepRun, fact: events.NextResting) -> None:
        self.decisions.append(_Decision(run.step, NEXT, (), fact.guards))

    def run_routed(self, at: Recorded, run: SeenStepRun, fact: events.NextEvaluated) -> None:
        self.decisions.append(_Decision(run.step, NEXT, fact.fired, fact.guards))

    def _add_admission(self, fact: events.TokenHeld | events.TokenClaimed) -> None:
        held = [guard.rule for guard in fact.guards if guard.value]
        self.decisions.append(_Decision(self.known[fact.token_id].step, ADMIT, held, fact.guards))


def read_journal(execution_id: str, digest: str, rows: Sequence[StoredEvent]) -> SeenJournal:
    reader = _TestReader(execution_id)
    facts: list[SeenFact] = []
    for row in rows:
        at = fact_of(row)
        reader.read(at)
        facts.extend(SeenFact(row.step_run_id or "", part) for part in expand(execution_id, at.fact))
    return SeenJournal(digest, facts, reader.by_id, reader.decisions)


def _cause(token: Token) -> str:
    return f"{token.cause} from {token.from_step}" if token.from_step is not None else token.cause


Place = tuple[str, str, int]
"""A place in a playbook: step, task (``next`` for arcs and ``admit`` for admissions), index."""


class CoveredItem(msgspec.Struct, frozen=True):
    """An arc, guard or rule that tests can reach. ``missed`` are the parts they have not reached; empty if there are
    none.

    Attributes:
        kind: ``arc``, ``guard`` or ``rule``.
        where: The step and its part: ``decide → pay``, ``fetch.page rule 2``.
        when: The guard; empty without one.
    """

    kind: str
    where: str
    line: int
    when: str
    missed: tuple[str, ...]
    size: int = 1


class PlaybookCoverage(msgspec.Struct, frozen=True):
    file: str
    path: str
    items: tuple[CoveredItem, ...]

    @property
    def size(self) -> int:
        return sum(item.size for item in self.items)

    @property
    def covered(self) -> int:
        return sum(item.size - len(item.missed) for item in self.items)


class Coverage:
    """Collects the arcs, guards and rules that tests reach, over all tests and executions."""

    def __init__(self) -> None:
        self._plans: dict[str, tuple[str, Plan]] = {}
        self._fired: dict[str, set[Place]] = {}
        self._guards: dict[str, set[tuple[Place, bool]]] = {}

    def add_playbook(self, file: str, plan: Plan) -> None:
        """Adds a playbook to the coverage, whether a test runs it or not."""
        self._plans.setdefault(plan.digest, (file, plan))

    def add(self, journals: Sequence[SeenJournal]) -> None:
        """Adds the arcs, guards and rules that these executions have reached."""
        for journal in journals:
            fired = self._fired.setdefault(journal.digest, set())
            guards = self._guards.setdefault(journal.digest, set())
            for step, part, taken, evaluated in journal.decisions:
                fired.update((step, part, index) for index in taken)
                guards.update(((step, part, guard.rule), guard.value) for guard in evaluated)

    def playbooks(self) -> list[PlaybookCoverage]:
        return [
            PlaybookCoverage(file, plan.path, tuple(self._items(plan)))
            for file, plan in sorted(self._plans.values(), key=lambda one: one[0])
        ]

    def percent(self) -> float:
        """The coverage of all playbooks together in percent; 100 if there is nothing to reach."""
        found = self.playbooks()
        size = sum(one.size for one in found)
        return 100.0 * sum(one.covered for one in found) / size if size else 100.0

    def _items(self, plan: Plan) -> Iterator[CoveredItem]:
        fired, seen = self._fired.get(plan.digest, set()), self._guards.get(plan.digest, set())
        for kind, place, where, line, guard in _places(plan):
            when = "" if guard is None else guard.source
            unseen = "never fired" if kind == "arc" else "never decided"
            yield CoveredItem(kind, where, line, when, () if place in fired else (unseen,))
            if guard is not None:
                missed = tuple(f"never {str(value).lower()}" for value in (True, False) if (place, value) not in seen)
                yield CoveredItem("guard", where, line, when, missed, size=2)


def coverage_json(coverage: Coverage) -> dict[str, Any]:
    playbooks = [
        {
            "file": one.file,
            "path": one.path,
            "covered": one.covered,
            "size": one.size,
            "items": [{**msgspec.structs.asdict(item), "missed": list(item.missed)} for item in one.items],
        }
        for one in coverage.playbooks()
    ]
    return {"percent": round(coverage.percent(), 1), "playbooks": playbooks}


def _places(plan: Plan) -> Iterator[tuple[str, Place, str, int, Guard | None]]:
    """The arcs and rules of a plan: kind, place, words, line and guard."""
    for step in plan.every_step:
        name = step.name
        for index, rule in enumerate(step.admit.rules if step.admit is not None else ()):
            yield "rule", (name, ADMIT, index), f"{name} admission rule {index + 1}", step.line, rule.guard
        for task in step.tasks:
            for index, one in enumerate(task.policy.rules if task.policy is not None else ()):
                yield "rule", (name, task.name, index), f"{name}.{task.name} rule {index + 1}", one.line, one.guard
        for index, arc in enumerate(step.arcs):
            yield "arc", (name, NEXT, index), f"{name} → {arc.step}", arc.line, arc.guard
