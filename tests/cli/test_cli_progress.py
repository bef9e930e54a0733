"""What is shown of the news of an execution."""

from __future__ import annotations

from noetl_stream.cli.progress import Heard
from noetl_stream.client.follow import News
from noetl_stream.model.events import (
    ExecutionReused,
    StepDone,
    StepReused,
    TaskProcessed,
    Token,
    TokenClaimed,
    TokenEnqueued,
)
from noetl_stream.model.outcome import ErrorInfo, Outcome

TOKEN = Token("t1", "greet", "start")
ENQUEUED = News(TokenEnqueued(TOKEN), None)
CLAIMED = News(TokenClaimed("t1", "run1"), None)
DONE = News(StepDone("run1"), "run1")


def test_a_step_is_said_to_start_and_to_end() -> None:
    heard = Heard()
    assert [heard.take(news) for news in (ENQUEUED, CLAIMED, DONE)] == [[], ["greet: started"], ["greet: done"]]
    assert heard.steps["greet"].open == 0


def test_a_report_that_is_heard_before_its_step_run_is_known_waits_for_it() -> None:
    heard = Heard()
    assert [heard.take(news) for news in (DONE, ENQUEUED, CLAIMED)] == [[], [], ["greet: started", "greet: done"]]
    assert heard.steps["greet"].state == "done"


def test_what_a_task_printed_is_shown_before_its_retry() -> None:
    heard = Heard()
    outcome = Outcome("error", error=ErrorInfo("exception", "it broke"), output="one\ntwo\n")
    tried = News(TaskProcessed("call", 1, outcome, "retry", path=(3,), to="call", delay_s=2.0), "run1")
    went_well = News(TaskProcessed("call", 2, Outcome("ok", output="three"), "continue"), "run1")
    silent = News(TaskProcessed("call", 2, Outcome("ok"), "continue"), "run1")
    said = [heard.take(news) for news in (ENQUEUED, CLAIMED, tried, went_well, silent)][2:]
    retry = "greet[3].call: retry in 2 s after attempt 1 (exception: it broke)"
    assert said == [[f"greet[3].call | one\ngreet[3].call | two\n{retry}"], ["greet.call | three"], []]


def test_a_rerun_says_how_much_it_reuses_and_knows_the_tokens_it_took_over() -> None:
    heard = Heard()
    other = TokenEnqueued(Token("t0", "first", "start"))
    entries = [other, TokenClaimed("t0", "run0"), StepReused("run0", "step.done"), TokenEnqueued(TOKEN)]
    said = heard.take(News(ExecutionReused("original", entries), None))
    assert said == ["1 step runs of execution original are reused"]
    assert heard.take(CLAIMED) == ["greet: started"]
