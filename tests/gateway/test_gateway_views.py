"""What an execution looked like, over HTTP: each answer is what the OpenAPI document says."""

from __future__ import annotations

from gateway_playbooks import FAILS, HELD, LOOP
from openapi_checks import Described

LONG = {"wait": "20s"}


async def looped(api: Described) -> str:
    ended = await api.call("startExecution", query=LONG, body={"playbook": LOOP})
    assert ended.body["status"] == "completed"
    return str(ended.body["execution_id"])


async def test_a_state_is_that_of_a_position(api: Described) -> None:
    execution_id = await looped(api)
    now = (await api.call("getState", execution_id=execution_id)).body
    assert (now["status"], now["tokens"], now["position"]) == ("completed", [], now["last"])
    first = (await api.call("getState", execution_id=execution_id, query={"position": 1})).body
    assert (first["status"], first["position"], first["last"]) == ("pending", 1, now["last"])
    beyond = await api.call("getState", execution_id=execution_id, query={"position": now["last"] + 1})
    assert (beyond.status, beyond.body["type"]) == (404, "/problems/not-found")


async def test_events_are_chosen_and_shown_in_part(api: Described) -> None:
    execution_id = await looped(api)
    query = {"name": ["task.processed", "loop.done"], "field": ["position", "name", "task"], "step": "start"}
    found = (await api.call("listEvents", execution_id=execution_id, query=query)).body
    assert [one["name"] for one in found["items"]] == ["task.processed"] * 3 + ["loop.done"]
    assert set(found["items"][0]) == {"position", "name", "task"}
    last = (await api.call("listEvents", execution_id=execution_id, query={"before": 100_000, "limit": 2})).body
    assert last["previous"] == last["items"][0]["position"] == last["items"][1]["position"] - 1
    assert (await api.call("listEvents", execution_id=execution_id, query={"text": "nowhere"})).body["items"] == []
    named = (await api.call("listEvents", execution_id=execution_id, query={"field": ["name", "step"]})).body["items"]
    assert [one["step"] for one in named if one["name"] in ("execution.requested", "loop.done")] == [None, "start"]
    wrong = await api.call("listEvents", execution_id=execution_id, query={"field": ["payload"]})
    assert (wrong.status, wrong.body["errors"][0]["parameter"]) == (400, "field")


async def test_a_graph_says_what_happened(api: Described) -> None:
    execution_id = await looped(api)
    found = (await api.call("getExecutionGraph", execution_id=execution_id)).body
    assert found["graph"]["steps"] == ["start"]
    assert found["steps"][0]["iterations"]["done"] == 3
    await api.call("registerPlaybook", body=LOOP, media="application/yaml")
    query = {"digest": found["graph"]["digest"]}
    assert (await api.call("getGraph", path="tests/loop", query=query)).body == found["graph"]


async def test_two_executions_are_compared(api: Described) -> None:
    a, b = await looped(api), await looped(api)
    found = (await api.call("diffExecutions", execution_id=a, other=b, query={"rows": "all", "limit": 1})).body
    assert (found["first"], found["next"]) == (None, None)
    assert [(row["step"], row["state"]) for row in found["rows"]] == [("start", "same")]
    missing = await api.call("diffExecutions", execution_id=a, other="nobody")
    assert (missing.status, missing.body["detail"]) == (404, "execution nobody not found")
    for wrong, value in (("rows", "some"), ("limit", 201)):
        refused = await api.call("diffExecutions", execution_id=a, other=b, query={wrong: value})
        assert (refused.status, refused.body["errors"][0]["parameter"]) == (400, wrong)


async def test_a_timeline_has_rows_for_steps_and_iterations(api: Described) -> None:
    execution_id = await looped(api)
    found = (await api.call("getTimeline", execution_id=execution_id, query={"width": 20})).body
    assert [(row["kind"], row["step"]) for row in found["rows"][:2]] == [("step", "start"), ("iterations", "start")]
    query = {"width": 20, "first": 1, "limit": 1, "folded": "true", "toggled": ["start", "other"]}
    page = (await api.call("getTimeline", execution_id=execution_id, query=query)).body
    assert page["rows"] == found["rows"][1:2] and page["more"] == len(found["rows"]) - 1
    part = await api.call(
        "getTimeline", execution_id=execution_id, query={"since": "2020-01-01T00:00:00Z", "step": "no"}
    )
    assert part.body["rows"] == []
    empty = await api.call("getTimeline", execution_id=execution_id, query={"since": "2999-01-01T00:00:00Z"})
    assert (empty.status, empty.body["type"]) == (422, "/problems/invalid")


async def test_step_runs_come_in_pages_where_a_limit_is_given(api: Described) -> None:
    execution_id = await looped(api)
    whole = (await api.call("listSteps", execution_id=execution_id)).body
    assert (whole["count"], whole["next"]) == (None, None)
    page = (await api.call("listSteps", execution_id=execution_id, query={"limit": 5, "step": "start"})).body
    assert page == {"items": whole["items"], "count": 1, "next": None}
    assert (
        await api.call("listSteps", execution_id=execution_id, query={"limit": 5, "order": "duration"})
    ).body == page
    wrong = await api.call("listSteps", execution_id=execution_id, query={"limit": 5, "order": "name"})
    assert (wrong.status, wrong.body["errors"][0]["parameter"]) == (400, "order")


async def test_the_result_of_a_step_run_is_loaded_and_of_a_loop_refused(api: Described) -> None:
    started = await api.call("startExecution", query=LONG, body={"playbook": FAILS})
    for execution_id, status in ((started.body["execution_id"], 200), (await looped(api), 409)):
        [run] = (await api.call("listSteps", execution_id=execution_id)).body["items"]
        found = await api.call("getStepResult", execution_id=execution_id, step_run_id=run["step_run_id"])
        assert found.status == status


async def test_the_iterations_of_a_loop_are_counted_and_listed(api: Described) -> None:
    execution_id = await looped(api)
    [run] = (await api.call("listSteps", execution_id=execution_id)).body["items"]
    at = {"execution_id": execution_id, "step_run_id": run["step_run_id"]}
    strip = (await api.call("getStrip", query={"buckets": 2}, **at)).body
    assert (strip["count"], strip["size"], strip["strips"]) == (3, 2, [{"status": "done", "counts": [2, 1]}])
    page = await api.call("listIterationSummaries", query={"limit": 2, "status": "done"}, **at)
    assert ([one["path"] for one in page.body["items"]], page.body["next"]) == ([[0], [1]], 2)
    assert "first=2" in page.headers["Link"]
    assert (await api.call("getStrip", query={"within": "0"}, **at)).status == 404


async def test_changes_of_ctx_say_who_and_from_what_to_what(api: Described) -> None:
    held = await api.call("startExecution", body={"playbook": HELD, "ctx": {"n": 1}})
    one = held.body["execution_id"]
    assert (await api.call("patchCtx", execution_id=one, body={"n": 2, "go": True})).status == 200
    assert (await api.call("getExecution", execution_id=one, query=LONG)).body["status"] == "completed"
    found = (await api.call("listCtxChanges", execution_id=one, query={"key": "n", "limit": 1})).body
    assert [(change["before"], change["after"]) for change in found["items"]] == [(None, 1)]
    query = {"key": "n", "cursor": found["next"]}
    rest = (await api.call("listCtxChanges", execution_id=one, query=query)).body
    assert [(change["before"], change["after"], change["principal"]) for change in rest["items"]] == [
        (1, 2, "token:local")
    ]
