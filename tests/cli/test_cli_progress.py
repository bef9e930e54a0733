"""What is shown of the news of an execution."""

from __future__ import annotations

from io import StringIO

import pytest
from msgspec.structs import replace
from rich.console import Console

from noetl_stream.cli.execution.live_progress import LiveProgress
from noetl_stream.cli.execution.progress import PlainProgress, ProgressFold, update_of
from noetl_stream.client.executions.follow import ProgressUpdate
from noetl_stream.model.codec import decode_json, encode
from noetl_stream.model.envelope import envelope
from noetl_stream.model.events import (
    ExecutionReused,
    LoopIterationDone,
    LoopIterationFailed,
    LoopStarted,
    NextResting,
    NextTimedOut,
    StepDone,
    StepReused,
    TaskProcessed,
    Token,
    TokenClaimed,
    TokenEnqueued,
)
from noetl_stream.model.outcome import ErrorInfo, Outcome
from noetl_stream.ports.operations.executions import ReasonDocument
from noetl_stream.ports.operations.feed import FeedEvent

TOKEN = Token("t1", "greet", "start")
ENQUEUED = ProgressUpdate(TokenEnqueued(TOKEN), None)
CLAIMED = ProgressUpdate(TokenClaimed("t1", "run1"), None)
DONE = ProgressUpdate(StepDone("run1"), "run1")
HELD = ReasonDocument("held", "It is held.", "", None, None, None, None, [], {})
TIMER = replace(HELD, kind="timer", sentence="A timer.", until="2999-01-01T00:00:00.000+00:00")


def fold(update: ProgressUpdate) -> FeedEvent:
    """The event of an update."""
    data = encode(update.fact)
    event = envelope(
        execution_id="x",
        position=1,
        name=decode_json(data)["name"],
        source="worker",
        at_ms=0,
        step_run_id=update.step_run_id,
        report_id=None,
        data=data,
    )
    return FeedEvent("1", event, "path")


def test_a_step_is_reported_when_it_starts_and_ends() -> None:
    fold = ProgressFold()
    assert [fold.take(news) for news in (ENQUEUED, CLAIMED, DONE)] == [[], ["greet: started"], ["greet: done"]]
    assert fold.steps["greet"].open == 0


def test_a_report_that_arrives_before_its_step_run_is_known_waits_for_it() -> None:
    fold = ProgressFold()
    assert [fold.take(news) for news in (DONE, ENQUEUED, CLAIMED)] == [[], [], ["greet: started", "greet: done"]]
    assert fold.steps["greet"].state == "done"


def test_the_output_of_a_task_is_shown_before_its_retry() -> None:
    fold = ProgressFold()
    outcome = Outcome("error", error=ErrorInfo("exception", "it broke"), output="one\ntwo\n")
    tried = ProgressUpdate(TaskProcessed("call", 1, outcome, "retry", path=(3,), to="call", delay_s=2.0), "run1")
    went_well = ProgressUpdate(TaskProcessed("call", 2, Outcome("ok", output="three"), "continue"), "run1")
    silent = ProgressUpdate(TaskProcessed("call", 2, Outcome("ok"), "continue"), "run1")
    lines = [fold.take(news) for news in (ENQUEUED, CLAIMED, tried, went_well, silent)][2:]
    retry = "greet[3].call: retry in 2 s after attempt 1 (exception: it broke)"
    assert lines == [[f"greet[3].call | one\ngreet[3].call | two\n{retry}"], ["greet.call | three"], []]


def test_a_rerun_says_how_much_it_reuses_and_knows_the_tokens_it_took_over() -> None:
    fold = ProgressFold()
    other = TokenEnqueued(Token("t0", "first", "start"))
    entries = [other, TokenClaimed("t0", "run0"), StepReused("run0", "step.done"), TokenEnqueued(TOKEN)]
    lines = fold.take(ProgressUpdate(ExecutionReused("original", entries), None))
    assert lines == ["reused 1 step run of execution original"]
    assert fold.take(CLAIMED) == ["greet: started"]


def test_a_branch_that_rests_is_reported_and_so_is_the_end_of_its_time() -> None:
    fold = ProgressFold()
    rested = [ProgressUpdate(NextResting("run1", "step.done"), None), ProgressUpdate(NextTimedOut("run1"), None)]
    lines = [fold.take(news) for news in (ENQUEUED, CLAIMED, DONE, *rested)][3:]
    assert lines == [["greet: rests at next"], ["greet: rested at next until its time was over"]]


def test_a_wait_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    progress = PlainProgress(stderr=False)
    progress.waits([HELD, TIMER])
    progress.waits([HELD])
    timer = "waiting: A timer. (until 2999-01-01T00:00:00.000+00:00)\n"
    assert capsys.readouterr().out == f"waiting: It is held.\n{timer}"


def test_a_picture_has_bars_failures_retries_and_the_time_that_is_left() -> None:
    console = Console(file=StringIO(), force_terminal=True, width=120, color_system=None)
    picture = LiveProgress(console)
    error = ErrorInfo("exception", "it broke")
    for fact in (
        LoopStarted("run1", count=4),
        LoopIterationDone((0,)),
        LoopIterationFailed((1,), error),
        TaskProcessed("call", 1, Outcome("error", error=error), "retry", to="call", delay_s=2.0),
    ):
        for news in (ENQUEUED, CLAIMED) if isinstance(fact, LoopStarted) else ():
            picture.event(fold(news))
        picture.event(fold(ProgressUpdate(fact, "run1")))
    picture.waits([TIMER])
    with console.capture() as drawn:
        console.print(picture)
    picture.close()
    shown = drawn.get()
    assert all(
        part in shown for part in ("…", "greet", "━", "2/4, 1 failed", "1 retry", "A timer. (", " days, ", " left)")
    )


def test_an_event_is_the_news_it_was_made_of_and_an_unknown_one_is_nothing() -> None:
    fact = TaskProcessed("call", 2, Outcome("ok", output="three"), "continue")
    event = fold(ProgressUpdate(fact, "run1")).event
    assert event is not None
    assert update_of(event) == ProgressUpdate(fact, "run1")
    assert update_of(replace(event, name="task.unheard_of")) is None
