"""The streaming pagination of v10 §12 on a real worker: what the outcomes of its tools lead to, with no fall-through."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from worker_stage import FreeInputs, NoKnobs, Stage

from noetl_stream.model.events import LoopIterationDone, LoopIterationFailed, TaskProcessed
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.compile import compile_playbook
from noetl_stream.playbook.kinds import KindSpec
from noetl_stream.testing.scenario import Scenario
from noetl_stream.tools.contract import ToolCall, ToolFailure, ToolResult

EXAMPLE = (Path(__file__).resolve().parents[1] / "playbook" / "accepted" / "streaming_pagination.yaml").read_text()

LONG_S = 400.0
"""More than any delay of the example, the longest of which is ``max_delay``."""


class Answering:
    """A tool of any kind that gives the answers of the test in turn, then the last one for ever."""

    def __init__(self, kind: str, helper: str, answers: list[ToolResult | ToolFailure]) -> None:
        self.spec = KindSpec(kind, inputs=FreeInputs, knobs=NoKnobs, helper=helper)
        self.answers = answers
        self.calls: list[ToolCall] = []

    async def run(self, call: ToolCall) -> ToolResult:
        self.calls.append(call)
        answer = self.answers[min(len(self.calls), len(self.answers)) - 1]
        if isinstance(answer, ToolFailure):
            raise answer
        return answer

    async def close(self) -> None:
        """Holds nothing."""


def page(number: int, *, more: bool) -> ToolResult:
    body = {"paging": {"hasMore": more, "page": number}, "data": [number]}
    return ToolResult({"status": 200, "headers": {}, "data": body}, helper={"status": 200, "headers": {}})


def refusal(status: int) -> ToolFailure:
    error = ErrorInfo("http_status", f"answered {status}", code=str(status))
    result = {"status": status, "headers": {}, "data": None}
    return ToolFailure(error, result=result, helper={"status": status, "headers": {}})


def lost(sqlstate: str) -> ToolFailure:
    return ToolFailure(ErrorInfo("sql", "refused", code=sqlstate), helper={"code": sqlstate, "sqlstate": sqlstate})


STORED = ToolResult({"row_count": 1})


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    yield made
    await made.close()


async def iteration(
    stage: Stage, pages: list[ToolResult | ToolFailure], stores: list[ToolResult | ToolFailure] | None = None
) -> Answering:
    """Runs the iteration of one endpoint to its end; the API that was asked."""
    api = Answering("http", "http", pages)
    stage.tools |= {"http": api, "postgres": Answering("postgres", "pg", stores or [STORED])}
    plan = compile_playbook(EXAMPLE, {kind: tool.spec for kind, tool in stage.tools.items()})
    stage.plans.plans[plan.digest] = plan
    await stage.start()
    await stage.issue(stage.command(plan, path=(0,), item={"path": "/a", "page_size": 10}, count=1))
    for _ in range(12):
        await stage.advance(LONG_S)
    return api


def processed(stage: Stage) -> list[TaskProcessed]:
    return [fact for fact in stage.facts if isinstance(fact, TaskProcessed)]


def tasks(stage: Stage) -> list[str]:
    return [fact.task for fact in processed(stage)]


def failure(stage: Stage) -> ErrorInfo:
    failed = stage.facts[-1]
    assert isinstance(failed, LoopIterationFailed)
    return failed.error


async def test_the_pages_of_one_endpoint_are_fetched_and_stored_in_order(stage: Stage) -> None:
    api = await iteration(stage, [page(1, more=True), page(2, more=True), page(3, more=False)])
    assert [call.inputs["params"] for call in api.calls] == [{"page": n, "pageSize": 10} for n in (1, 2, 3)]
    assert {call.inputs["url"] for call in api.calls} == {"http://127.0.0.1:8000/a"}
    assert tasks(stage) == ["init_iter", *["fetch_page", "route_by_status", "store_200", "paginate"] * 3]
    kept: list[Any] = [fact.set_iter for fact in processed(stage) if "items" in fact.set_iter]
    assert kept == [{"http_status": 200, "has_more": n < 3, "page": n, "items": [n]} for n in (1, 2, 3)]
    assert stage.facts[-1] == LoopIterationDone((0,))


async def test_a_missing_page_goes_to_its_own_store(stage: Stage) -> None:
    await iteration(stage, [refusal(404)])
    assert tasks(stage) == ["init_iter", "fetch_page", "route_by_status", "store_404", "paginate"]
    assert processed(stage)[1].set_iter["http_status"] == 404
    assert stage.facts[-1] == LoopIterationDone((0,))


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_an_answer_that_may_pass_is_retried_up_to_ten_runs(stage: Stage, status: int) -> None:
    api = await iteration(stage, [refusal(status)])
    assert [call.attempt for call in api.calls] == list(range(1, 11))
    assert [fact.do for fact in processed(stage)[1:]] == ["retry"] * 9 + ["fail"]
    delays_s = [fact.delay_s for fact in processed(stage)[1:10]]
    assert all(1.8 * one < other for one, other in pairwise(delays_s[:7]))
    assert max(delays_s) == 300.0
    assert failure(stage).kind == "retries_exhausted"


async def test_an_answer_that_passed_is_followed_by_the_page(stage: Stage) -> None:
    await iteration(stage, [refusal(503), page(1, more=False)])
    assert tasks(stage) == ["init_iter", "fetch_page", "fetch_page", "route_by_status", "store_200", "paginate"]


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refusal_fails_the_iteration_at_once(stage: Stage, status: int) -> None:
    await iteration(stage, [refusal(status)])
    assert tasks(stage) == ["init_iter", "fetch_page"]
    assert failure(stage).kind == "http_status"


@pytest.mark.parametrize("sqlstate", ["40001", "40P01"])
async def test_a_store_that_loses_a_race_is_retried_and_any_other_error_fails(stage: Stage, sqlstate: str) -> None:
    await iteration(stage, [page(1, more=False)], [lost(sqlstate), lost("23505")])
    assert [(fact.task, fact.do) for fact in processed(stage)[-2:]] == [("store_200", "retry"), ("store_200", "fail")]
    assert failure(stage).kind == "sql"


def test_where_the_example_goes_on_after_its_loop() -> None:
    scenario = Scenario(EXAMPLE)
    scenario.start({"endpoints": []})
    assert scenario.working == [("validate_results", None)]
    scenario = Scenario(EXAMPLE)
    scenario.start({"endpoints": 7})  # nothing to iterate: the step fails
    assert scenario.working == [("cleanup", None)]
