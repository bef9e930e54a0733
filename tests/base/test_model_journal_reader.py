"""What readers of a journal are told."""

from __future__ import annotations

import pytest

from noetl_stream.model import events
from noetl_stream.model.events import StepDone, StepStarted, TaskProcessed, Token, TokenClaimed
from noetl_stream.model.events.composite import StepRan, TaskRan
from noetl_stream.model.events.journal_reader import IterationEnd, JournalReader, Recorded, RunEnd
from noetl_stream.model.outcome import ErrorInfo, Payload


class Ends(JournalReader[str]):
    """Hears of the ends of iterations."""

    def __init__(self) -> None:
        super().__init__("execution")
        self.by_id = {"run": "run"}
        self.heard: list[events.Path] = []

    def iteration_ended(self, at: Recorded, run: str, fact: IterationEnd) -> None:
        self.heard.append(fact.path)


class Runs(JournalReader[str]):
    """Hears of step runs and attempts, with the position of each fact."""

    def __init__(self) -> None:
        super().__init__("execution")
        self.heard: list[tuple[int, str, str]] = []

    def run_began(self, at: Recorded, step: str, fact: TokenClaimed) -> str:
        self.heard.append((at.position, "began", step))
        return step

    def run_started(self, at: Recorded, run: str, fact: StepStarted) -> None:
        self.heard.append((at.position, "started", run))

    def attempt_ended(self, at: Recorded, run: str, fact: TaskProcessed) -> None:
        self.heard.append((at.position, fact.task, run))

    def run_ended(self, at: Recorded, run: str, fact: RunEnd) -> None:
        self.heard.append((at.position, fact.status, run))


def told(reader: JournalReader[str], *facts: events.Fact, run: str | None = None) -> None:
    for fact in facts:
        reader.read(Recorded(fact, reader.position + 1, 1, run, ""))


def test_a_reader_needs_only_the_events_that_tell_what_it_defines() -> None:
    assert Ends.names == {"loop.iteration.done", "loop.iteration.failed", "loop.done"}
    assert "task.processed" in Runs.names and not {"task.started", "loop.iteration.done", "token.held"} & Runs.names


def test_a_loop_ends_the_iteration_around_it_or_the_step_run() -> None:
    inner, outer = events.LoopDone("run", 1, 1, 0, 0, (2,)), events.LoopDone("run", 3, 3, 0, 0)
    ends, runs = Ends(), Runs()
    told(ends, events.LoopIterationDone((2, 0)), inner, outer, run="run")
    assert ends.heard == [(2, 0), (2,)]
    told(runs, events.TokenEnqueued(Token("t", "each", "start")), TokenClaimed("t", "run"), inner, outer)
    assert runs.heard == [(2, "began", "each"), (4, "done", "each")]


def test_events_of_an_unknown_step_run_are_not_reported() -> None:
    reader = Runs()
    told(reader, StepDone("run"))
    assert (reader.heard, reader.position) == ([], 1)


def test_a_composite_fact_is_reported_as_its_parts_each_at_its_position() -> None:
    reader = Runs()
    told(reader, events.TokenEnqueued(Token("t", "work", "start")), TokenClaimed("t", "run"))
    tasks = [TaskRan(name, Payload(), 1, 2, 0.1) for name in ("first", "then")]
    told(reader, StepRan("run", "worker", tasks), run="run")
    assert reader.heard[1:] == [(3, "started", "work"), (5, "first", "work"), (7, "then", "work"), (8, "done", "work")]
    assert reader.position == 8


def test_a_rerun_tells_what_it_reuses_at_its_own_position() -> None:
    reader = Runs()
    token = Token("t", "work", "start")
    reused = events.StepReused("run", "step.done")
    told(reader, events.ExecutionReused("original", [events.TokenEnqueued(token), TokenClaimed("t", "run"), reused]))
    assert reader.heard == [(1, "began", "work"), (1, "reused", "work")]


HEARD = [name for name, value in vars(JournalReader).items() if callable(value) and not name.startswith("_")]


@pytest.mark.parametrize("name", [name for name in HEARD if name != "read"])
def test_each_method_of_a_reader_is_called_by_some_fact(name: str) -> None:
    assert type("Hearing", (JournalReader,), {name: lambda *_: None}).names


@pytest.mark.parametrize(("kind", "status"), [("exception", "failed"), ("cancelled", "cancelled")])
def test_the_end_of_a_step_run_carries_its_status(kind: str, status: str) -> None:
    ends = (StepDone("run"), events.StepReused("run", "step.failed"), events.StepFailed("run", ErrorInfo(kind, "")))
    assert [end.status for end in ends] == ["done", "reused", status]
