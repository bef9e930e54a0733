"""The streaming pagination of v10 §12, task by task: what each tool's outcome leads to, with no fall-through."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from noetl_stream.engine.pipeline import advance_progress, current_task, decide_task
from noetl_stream.model.events import StepFailed, TaskProcessed
from noetl_stream.model.json.codec import payload_of
from noetl_stream.model.limits import DEFAULT_LIMITS
from noetl_stream.model.messages import Progress
from noetl_stream.model.outcome import ErrorInfo, Outcome
from noetl_stream.template import Scope, render
from noetl_stream.template.runtime.scope import outcome_view
from noetl_testkit.scenario.scenario import Scenario

EXAMPLE = (Path(__file__).resolve().parents[1] / "playbook" / "accepted" / "streaming_pagination.yaml").read_text()
ENDPOINT = {"path": "/a", "page_size": 10}
HELPERS = {"http": "http", "postgres": "pg"}
DONE = Outcome("ok", payload_of({"row_count": 1}))


def page(number: int, *, more: bool) -> Outcome:
    body = {"paging": {"hasMore": more, "page": number}, "data": [number]}
    return Outcome("ok", payload_of({"status": 200, "headers": {}, "data": body}), helper={"status": 200})


def refusal(status: int) -> Outcome:
    result = payload_of({"status": status, "headers": {}, "data": None})
    return Outcome("error", result, ErrorInfo("http_status", f"answered {status}"), helper={"status": status})


def lost(sqlstate: str) -> Outcome:
    return Outcome("error", error=ErrorInfo("sql", "refused", code=sqlstate), helper={"code": sqlstate})


class Iteration:
    """The pipeline of one endpoint. ``fetches`` and ``stores`` are the outcomes of those tasks, in order; all others
    go well."""

    def __init__(self, fetches: list[Outcome], stores: list[Outcome] | None = None) -> None:
        self.requests: list[Any] = []
        self.processed: list[TaskProcessed] = []
        self._left = {"fetch_page": list(fetches), "store_200": list(stores or [])}
        self._step = Scenario(EXAMPLE).plan.steps["fetch_all_endpoints"]
        progress = Progress()
        while not self.processed or self.processed[-1].to is not None:
            progress = self._run_task(progress)

    def _run_task(self, progress: Progress) -> Progress:
        task = current_task(self._step, progress)
        left = self._left.get(task.name)
        outcome = left.pop(0) if left else DONE
        scope = Scope(
            {
                "workload": {"api_url": "http://api"},
                "iter": {**progress.iter, "endpoint": ENDPOINT},
                "outcome": outcome_view(outcome, HELPERS.get(task.kind)),
            }
        )
        if task.name == "fetch_page":
            self.requests.append(render(task.inputs, scope))
        fact = decide_task(self._step, progress, outcome, scope, seed="command", limits=DEFAULT_LIMITS)
        self.processed.append(fact)
        return advance_progress(progress, fact)

    @property
    def tasks(self) -> list[str]:
        return [fact.task for fact in self.processed]

    @property
    def error(self) -> str | None:
        """The kind of the error it ended with."""
        error = self.processed[-1].error
        return error.kind if error else None


def test_the_pages_of_one_endpoint_are_fetched_and_stored_in_order() -> None:
    ran = Iteration([page(1, more=True), page(2, more=True), page(3, more=False)])
    assert [request["params"] for request in ran.requests] == [{"page": n, "pageSize": 10} for n in (1, 2, 3)]
    assert {request["url"] for request in ran.requests} == {"http://api/a"}
    assert ran.tasks == ["init_iter", *["fetch_page", "route_by_status", "store_200", "paginate"] * 3]
    kept = [fact.set_iter for fact in ran.processed if fact.task == "fetch_page"]
    assert kept == [{"http_status": 200, "has_more": n < 3, "page": n, "items": [n]} for n in (1, 2, 3)]
    assert [fact.do for fact in ran.processed if fact.task == "paginate"] == ["jump", "jump", "break"]
    assert ran.error is None


def test_a_missing_page_goes_to_its_own_store() -> None:
    ran = Iteration([refusal(404)])
    assert ran.tasks == ["init_iter", "fetch_page", "route_by_status", "store_404", "paginate"]
    assert ran.processed[1].set_iter["http_status"] == 404
    assert ran.error is None


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_an_answer_that_may_pass_is_retried_up_to_ten_runs(status: int) -> None:
    ran = Iteration([refusal(status)] * 10)
    fetches = ran.processed[1:]
    assert [fact.attempt for fact in fetches] == list(range(1, 11))
    assert [fact.do for fact in fetches] == ["retry"] * 9 + ["fail"]
    delays_s = [fact.delay_s for fact in fetches[:9]]
    assert 2.0 <= delays_s[0] <= 2.2 and max(delays_s) == 300.0
    assert all(1.8 * one < other for one, other in pairwise(delays_s[:7]))
    assert ran.error == "retries_exhausted"


def test_an_answer_that_passed_is_followed_by_the_page() -> None:
    ran = Iteration([refusal(503), page(1, more=False)])
    assert ran.tasks == ["init_iter", "fetch_page", "fetch_page", "route_by_status", "store_200", "paginate"]


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_fails_the_iteration_at_once(status: int) -> None:
    ran = Iteration([refusal(status)])
    assert ran.tasks == ["init_iter", "fetch_page"]
    assert ran.error == "http_status"


@pytest.mark.parametrize("sqlstate", ["40001", "40P01"])
def test_a_store_that_loses_a_race_is_retried_and_any_other_error_fails(sqlstate: str) -> None:
    ran = Iteration([page(1, more=False)], [lost(sqlstate), lost("23505")])
    assert [(fact.task, fact.do) for fact in ran.processed[-2:]] == [("store_200", "retry"), ("store_200", "fail")]
    assert ran.error == "sql"


def test_the_example_continues_after_its_loop() -> None:
    scenario = Scenario(EXAMPLE)
    scenario.start({"endpoints": []})
    assert scenario.working == [("validate_results", None)]
    scenario = Scenario(EXAMPLE)
    scenario.start({"endpoints": 7})  # nothing to iterate: the step fails
    assert scenario.working == [("cleanup", None)]


def test_the_example_bounds_its_step() -> None:
    scenario = Scenario(EXAMPLE)
    scenario.start()
    scenario.take("fetch_all_endpoints", index=0).begin()
    scenario.wait(599)
    assert scenario.working == [("fetch_all_endpoints", 0)]
    scenario.wait(1)
    assert scenario.working == [("cleanup", None)]
    (failed,) = scenario.facts(StepFailed)
    assert (failed.error.kind, failed.error.message) == (
        "timeout",
        "step fetch_all_endpoints exceeded lifecycle.timeout_s (600 s)",
    )
