"""What is shown of the news of an execution."""

from __future__ import annotations

from io import StringIO

import pytest
from msgspec.structs import replace
from rich.console import Console

from noetl_stream.cli.execution.display.live_progress import LiveProgress
from noetl_stream.cli.execution.display.progress import PlainProgress, ProgressFold, ProgressUpdate, Stalls, update_of
from noetl_stream.model.envelope import envelope
from noetl_stream.model.events import (
    ExecutionFailing,
    ExecutionReused,
    LoopIterationDone,
    LoopIterationFailed,
    LoopStarted,
    NextResting,
    NextTimedOut,
    StepDone,
    StepFailed,
    StepReused,
    TaskProcessed,
    Token,
    TokenClaimed,
    TokenEnqueued,
)
from noetl_stream.model.json.codec import decode_json, encode
from noetl_stream.model.outcome import ErrorInfo, Outcome
from noetl_stream.model.task_log import LogStream
from noetl_stream.ports.operations.executions import ReasonDocument
from noetl_stream.ports.operations.reading.events import FeedEvent, LogLineDocument

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


def texts(fold: ProgressFold, update: ProgressUpdate) -> list[str]:
    return [line.text for line in fold.take(update)]


def drawn(console: Console, picture: LiveProgress) -> str:
    with console.capture() as captured:
        console.print(picture)
    return captured.get()


def test_a_step_is_reported_when_it_starts_and_ends() -> None:
    fold = ProgressFold()
    assert [texts(fold, news) for news in (ENQUEUED, CLAIMED, DONE)] == [[], ["greet: started"], ["greet: done"]]
    assert fold.steps["greet"].open == 0


def test_the_output_of_a_task_is_shown_before_its_retry() -> None:
    fold = ProgressFold()
    outcome = Outcome("error", error=ErrorInfo("exception", "it broke"), output="one\ntwo\n")
    tried = ProgressUpdate(TaskProcessed("call", 1, outcome, "retry", path=(3,), to="call", delay_s=2.0), "run1")
    went_well = ProgressUpdate(TaskProcessed("call", 2, Outcome("ok", output="three"), "continue"), "run1")
    silent = ProgressUpdate(TaskProcessed("call", 2, Outcome("ok"), "continue"), "run1")
    lines = [texts(fold, news) for news in (ENQUEUED, CLAIMED, tried, went_well, silent)][2:]
    retry = "greet[3].call: retry in 2 s after attempt 1 (exception: it broke)"
    assert lines == [["greet[3].call | one", "greet[3].call | two", retry], ["greet.call | three"], []]


def line_of(text: str, attempt: int, stream: LogStream = "stdout") -> LogLineDocument:
    return LogLineDocument("1", "", "greet", "run1", "call", attempt, [], stream, text, "default", "w")


def test_lines_shown_while_a_task_ran_are_not_repeated_at_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    progress = PlainProgress(stderr=False)
    output = "".join(f"{number}\n" for number in range(30)) + "a long line in two"
    ended = ProgressUpdate(TaskProcessed("call", 1, Outcome("ok", output=output), "continue"), "run1")
    for update in (ENQUEUED, CLAIMED):
        progress.event(fold(update))
    progress.written([line_of("Installed 2 packages", 1, "stderr")])
    progress.written(line_of(str(number), 1) for number in range(30))
    progress.written([line_of("a long ", 1)])
    progress.event(fold(ended))
    progress.written([line_of("line in two", 1), line_of("of the next attempt", 2)])
    shown = [line.removeprefix("greet.call | ") for line in capsys.readouterr().out.splitlines()]
    assert shown == ["Installed 2 packages", *map(str, range(30)), "a long ", "line in two", "of the next attempt"]


def test_a_picture_shows_what_a_task_writes_above_it_and_once() -> None:
    console = Console(width=80)
    picture = LiveProgress(console)
    with console.capture() as captured:
        for update in (ENQUEUED, CLAIMED):
            picture.event(fold(update))
        picture.written([line_of("so far", 1)])
        ended = TaskProcessed("call", 1, Outcome("ok", output="so far\nmore\n"), "continue")
        picture.event(fold(ProgressUpdate(ended, "run1")))
    assert captured.get().splitlines() == ["greet.call | so far", "greet.call | more"]


def test_a_rerun_says_how_much_it_reuses_and_knows_the_tokens_it_took_over() -> None:
    fold = ProgressFold()
    other = TokenEnqueued(Token("t0", "first", "start"))
    entries = [other, TokenClaimed("t0", "run0"), StepReused("run0", "step.done"), TokenEnqueued(TOKEN)]
    lines = texts(fold, ProgressUpdate(ExecutionReused("original", entries), None))
    assert lines == ["reused 1 step run of execution original"]
    assert texts(fold, CLAIMED) == ["greet: started"]


def test_a_branch_that_rests_is_reported_and_so_is_the_end_of_its_time() -> None:
    fold = ProgressFold()
    rested = [ProgressUpdate(NextResting("run1", "step.done"), None), ProgressUpdate(NextTimedOut("run1"), None)]
    lines = [texts(fold, news) for news in (ENQUEUED, CLAIMED, DONE, *rested)][3:]
    assert lines == [["greet: rests at next"], ["greet: rested at next until its time has passed"]]


def test_a_wait_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    progress = PlainProgress(stderr=False)
    progress.waits([HELD, TIMER])
    progress.waits([HELD])
    timer = "waiting: A timer. (until 2999-01-01T00:00:00.000+00:00)\n"
    assert capsys.readouterr().out == f"waiting: It is held.\n{timer}"


def test_a_wait_is_not_reported_again_while_only_its_time_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    progress = PlainProgress(stderr=False)
    words = [
        "Step `a` runs task `t`, attempt 1, at worker w for 5 s.",
        "Step `a` runs task `t`, attempt 1, at worker w for 1,005 s.",
        "Step `a` has ended: NATS refused an object: maximum bytes exceeded (error 10077).",
        "Step `a` has ended: NATS refused an object: maximum bytes exceeded (error 10077).",
        "Step `a` has ended: NATS refused an object: insufficient resources (error 10023).",
        "Step `a` waits until 2999-01-01T00:00:00.000+00:00 for attempt 2.",
        "Step `a` waits until 2999-01-01T00:07:59.100+00:00 for attempt 3.",
    ]
    for sentence in words:
        progress.waits([replace(HELD, kind="running", step="a", sentence=sentence)])
    assert capsys.readouterr().out.splitlines() == [f"waiting: {words[number]}" for number in (0, 2, 4, 5)]


def test_a_program_reads_on_stderr_once_that_a_result_cannot_be_stored(capsys: pytest.CaptureFixture[str]) -> None:
    stalls = Stalls()
    full = "Step `a` has ended: NATS refused an object: insufficient resources (error 10023)."
    for kind in ("unreported", "unreported", "running"):
        stalls.waits([replace(HELD, kind=kind, step="a", sentence=full)])
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", f"waiting: {full}\n")


def loop(items: int) -> list[FeedEvent]:
    """The events of a loop that prints and retries in every iteration, and fails in every tenth."""
    found = [ENQUEUED, CLAIMED, ProgressUpdate(LoopStarted("run1", count=items), "run1")]
    for index in range(items):
        error = ErrorInfo("exception", f"item {index} broke")
        tried = Outcome("error", error=error, output="printed\n")
        found.append(ProgressUpdate(TaskProcessed("call", 1, tried, "retry", path=(index,), to="call"), "run1"))
        ended = LoopIterationDone((index,)) if index % 10 else LoopIterationFailed((index,), error)
        found.append(ProgressUpdate(ended, "run1"))
    return [fold(update) for update in [*found, ProgressUpdate(StepDone("run1"), "run1")]]


@pytest.mark.parametrize("items", [5_000, 50_000])
def test_a_loop_of_any_size_is_summarised(items: int, capsys: pytest.CaptureFixture[str]) -> None:
    progress = PlainProgress(stderr=True)
    for event in loop(items):
        progress.event(event)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) < 90
    assert lines[:3] == [
        f"greet: loop of {items:,}",
        "greet[0].call | printed",
        "greet[0].call: retry in 0 s after attempt 1 (exception: item 0 broke)",
    ]
    assert f"greet: {items // 2:,}/{items:,} iterations" in lines
    assert f"greet: {items:,} lines of output (--verbose prints each)" in lines
    assert lines[-1] == f"greet: done, {items:,} iterations, {items // 10:,} failed, {items:,} retries"


def test_every_change_is_a_line_if_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    progress = PlainProgress(stderr=True, verbose=True)
    for event in loop(100):
        progress.event(event)
    lines = capsys.readouterr().err.splitlines()
    assert len([line for line in lines if line.endswith(" | printed")]) == 100
    assert len([line for line in lines if ": failed: exception: item " in line]) == 10


def test_the_message_of_an_error_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    progress, error = PlainProgress(stderr=True), ErrorInfo("exception", "it broke")
    inside = LoopIterationFailed((3,), replace(error, task="call", index=3))
    facts = (LoopStarted("run1", count=100), inside, StepFailed("run1", error))
    for update in (ENQUEUED, CLAIMED, *(ProgressUpdate(fact, "run1") for fact in facts)):
        progress.event(fold(update))
    progress.event(fold(ProgressUpdate(ExecutionFailing(error), None)))
    assert progress.has_said(error)
    assert capsys.readouterr().err.splitlines()[1:] == [
        "greet[3]: failed: exception: it broke",
        "greet: failed, 1 iteration, 1 failed",
    ]


def test_servers_that_do_not_answer_are_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    progress = PlainProgress(stderr=True)
    for _ in range(3):
        progress.unreachable("Postgres does not answer; trying again for 60 s")
    assert capsys.readouterr().err == "waiting: Postgres does not answer; trying again for 60 s\n"


def test_a_picture_leaves_the_error_of_the_execution_to_its_end() -> None:
    console = Console(file=StringIO(), force_terminal=True, width=60, color_system=None)
    picture, error = LiveProgress(console), ErrorInfo("exception", "it broke")
    for update in (ENQUEUED, CLAIMED, ProgressUpdate(StepFailed("run1", error), "run1")):
        picture.event(fold(update))
    assert "greet: exception: it broke" in drawn(console, picture)
    picture.event(fold(ProgressUpdate(ExecutionFailing(error), None)))
    assert "✗  greet" in drawn(console, picture)
    assert "it broke" not in drawn(console, picture)


def test_a_picture_of_many_steps_fits_the_terminal() -> None:
    console = Console(file=StringIO(), force_terminal=True, width=60, height=24, color_system=None)
    picture = LiveProgress(console)
    for number in range(100):
        token = Token(f"t{number}", f"step_{number}", "start")
        picture.event(fold(ProgressUpdate(TokenEnqueued(token), None)))
        picture.event(fold(ProgressUpdate(TokenClaimed(f"t{number}", f"run{number}"), None)))
    lines = drawn(console, picture).splitlines()
    assert len(lines) < 24
    assert lines[0].strip() == "… and 88 earlier steps"
    assert "step_99" in lines[-1]


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
    shown = drawn(console, picture)
    picture.close()
    assert all(part in shown for part in ("greet", "━", "2/4, 1 failed", "1 retry", "A timer. (", " d ", " left)"))


def test_an_event_is_the_news_it_was_made_of_and_an_unknown_one_is_nothing() -> None:
    fact = TaskProcessed("call", 2, Outcome("ok", output="three"), "continue")
    event = fold(ProgressUpdate(fact, "run1")).event
    assert event is not None
    assert update_of(event) == ProgressUpdate(fact, "run1")
    assert update_of(replace(event, name="task.unheard_of")) is None
