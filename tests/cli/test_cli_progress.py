"""What is shown of the news of an execution."""

from __future__ import annotations

from noetl_stream.cli.progress import Heard
from noetl_stream.client.follow import News
from noetl_stream.model.events import StepDone, Token, TokenClaimed, TokenEnqueued

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
