"""Verbs for many executions in one call: tried first, then done to each, with what was refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from gateway_playbooks import FAILS, HELD, LOOP
from gateway_stage import GatewayStage
from openapi_checks import Described

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.errors import Unreachable
from noetl_stream.operations.access import AuditRecord
from noetl_stream.operations.executions.selections import BEGUN_WITHIN_S, DirectSelections
from noetl_stream.ports.operations.executions import AcceptedDocument, RequestIds, Start
from noetl_stream.ports.operations.selections import MAX_SELECTED, BulkOrder
from noetl_testkit.waiting import TIMEOUT_S

NOWHERE = "018f0000-0000-7000-8000-000000000000"


async def begun(stage: GatewayStage, text: str, count: int) -> list[str]:
    """Oldest first."""
    return [(await stage.operations.executions.start(Start(playbook=text), "test")).execution_id for _ in range(count)]


async def ended(stage: GatewayStage, text: str, count: int = 1) -> list[str]:
    made = await begun(stage, text, count)
    for one in made:
        await stage.operations.executions.wait(one, TIMEOUT_S)
    return made


def outcomes(body: Any) -> dict[str, str]:
    return {item["execution_id"]: item["outcome"] for item in body["items"]}


async def test_a_dry_run_says_which_and_what_is_skipped_and_does_nothing(stage: GatewayStage, api: Described) -> None:
    held, looped = await begun(stage, HELD, 2), await ended(stage, LOOP)
    ids = [*held, *looped, NOWHERE, "no id"]
    tried = (await api.call("cancelExecutions", body={"ids": ids, "dry_run": True})).body
    assert [item["execution_id"] for item in tried["items"]] == ids
    assert (tried["counts"], tried["next"]) == ({"would": 2, "skipped": 3}, None)
    assert [item.get("detail") for item in tried["items"]] == [
        *(None, None, "it has ended (completed)"),
        *(f"execution {NOWHERE} not found", "execution no id not found"),
    ]
    assert (tried["items"][2]["path"], tried["items"][2]["status"]) == ("tests/loop", "completed")
    by_status = {"path": "tests", "status": ["completed", "waiting"], "dry_run": True}
    assert (await api.call("deleteExecutions", body=by_status)).body["counts"] == {"would": 1, "skipped": 2}
    assert (await api.call("retryExecutions", body=by_status)).body["counts"] == {"skipped": 3}
    listed = (await api.call("listExecutions")).body["items"]
    assert Counter(one["status"] for one in listed) == {"waiting": 2, "completed": 1}


async def test_matching_executions_are_acted_on_page_by_page_and_refusals_are_listed(
    stage: GatewayStage, api: Described
) -> None:
    first, second, third = await begun(stage, HELD, 3)
    await ended(stage, LOOP)
    why = {"X-Reason": "ordered%20twice"}
    page = (await api.call("pauseExecutions", headers=why, body={"path": "tests", "limit": 2})).body
    assert outcomes(page) == {third: "done", second: "done"}
    rest = (await api.call("pauseExecutions", body={"path": "tests", "limit": 2, "cursor": page["next"]})).body
    assert (outcomes(rest), rest["next"]) == ({first: "done"}, None)
    again = (await api.call("pauseExecutions", body={"ids": [first, NOWHERE]})).body
    assert (outcomes(again), again["counts"]) == ({first: "already", NOWHERE: "refused"}, {"already": 1, "refused": 1})
    assert (await api.call("resumeExecutions", body={"path": "tests/held"})).body["counts"] == {"done": 3}
    cancelled = (await api.call("cancelExecutions", headers=why, body={"path": "tests"})).body
    assert outcomes(cancelled) == {third: "done", second: "done", first: "done"}
    late = (await api.call("pauseExecutions", body={"ids": [first]})).body["items"]
    assert (late[0]["outcome"], late[0]["detail"]) == ("refused", f"execution {first} has ended (cancelled)")
    [event] = (await api.call("listEvents", execution_id=first, query={"name": "execution.cancel_requested"})).body[
        "items"
    ]
    assert (event["data"]["reason"], event["data"]["principal"]) == ("ordered twice", "token:local")


async def test_a_repeated_call_runs_nothing_again_twice(stage: GatewayStage, api: Described) -> None:
    failed = await ended(stage, FAILS, 2)
    key = {"Idempotency-Key": "once"}
    body = {"path": "tests/fails", "ctx": {"missing": {"key": 1}}}
    retried = (await api.call("retryExecutions", headers=key, body=body)).body
    assert set(outcomes(retried)) == set(failed) and retried["counts"] == {"done": 2}
    assert (await api.call("retryExecutions", headers=key, body=body)).body == retried
    # A gateway that died before it answered leaves its ids: under them, nothing is made twice.
    ids = RequestIds("018f0000-0000-7000-8000-000000000001", "request")
    twice = [await stage.operations.selections.act(BulkOrder("retry", failed), "test", ids) for _ in range(2)]
    assert twice[0] == twice[1] and twice[0].counts == {"done": 2}
    for item in retried["items"]:
        await stage.operations.executions.wait(item["made"], TIMEOUT_S)
    rerun = (await api.call("rerunExecutions", body={"ids": failed, "step": "start"})).body
    assert rerun["counts"] == {"done": 2}
    nowhere = (await api.call("rerunExecutions", body={"ids": failed[:1], "step": "nowhere"})).body["items"]
    assert (nowhere[0]["outcome"], "nowhere" in nowhere[0]["detail"]) == ("refused", True)


@pytest.mark.parametrize(("operation", "more"), [("retryExecutions", {}), ("rerunExecutions", {"step": "start"})])
async def test_executions_that_run_again_have_the_given_priority(
    stage: GatewayStage, api: Described, operation: str, more: dict[str, Any]
) -> None:
    await ended(stage, FAILS, 1)
    [item] = (await api.call(operation, body={"path": "tests/fails", "priority": 9, **more})).body["items"]
    assert (await stage.operations.executions.get(item["made"])).priority == 9


async def test_each_deletion_is_in_the_audit(stage: GatewayStage, api: Described) -> None:
    looped, held = await ended(stage, LOOP, 2), await begun(stage, HELD, 1)
    deleted = (await api.call("deleteExecutions", body={"ids": [*looped, *held]})).body
    assert outcomes(deleted) == {**dict.fromkeys(looped, "done"), held[0]: "refused"}
    audit = (await api.call("listAudit")).body["items"]
    recorded = [(one["target"], one["status"]) for one in audit if one["operation"] == "deleteExecution"]
    assert sorted(recorded) == sorted([(looped[0], 204), (looped[1], 204), (held[0], 409)])
    assert {one["principal"] for one in audit} == {"token:local"}


async def test_nothing_is_not_everything_and_too_many_are_refused(api: Described) -> None:
    for nothing in ({}, {"dry_run": True}, {"limit": 1000}):
        refused = await api.call("cancelExecutions", body=nothing)
        assert (refused.status, "nothing is selected" in refused.body["detail"]) == (422, True)
    assert (await api.call("cancelExecutions", body={"ids": []})).body["items"] == []
    for wrong in ({"ids": ["a"] * (MAX_SELECTED + 1)}, {"path": "a", "limit": 1001}, {"status": ["lost"]}):
        assert (await api.call("cancelExecutions", body=wrong)).status == 400


async def test_executions_not_reached_in_time_are_left_and_a_lost_store_ends_the_call(stage: GatewayStage) -> None:
    clock = ManualClock()

    class Slow:
        async def ask(self, execution_id: str, fact: object) -> AcceptedDocument:
            if execution_id == "lost":
                raise Unreachable("it has gone")
            clock.advance(BEGUN_WITHIN_S)
            return AcceptedDocument(execution_id, 1)

    slow: Any = Slow()
    selections = DirectSelections(slow, stage.store, clock, AuditRecord(stage.audit, clock))
    ids = [f"id-{number}" for number in range(40)]
    found = await selections.act(BulkOrder("cancel", ids), "test")
    assert found.counts["left"] == 40 - found.counts["done"] and found.counts["done"] < 40
    assert [item.execution_id for item in found.items] == ids
    with pytest.raises(Unreachable, match="it has gone"):
        await selections.act(BulkOrder("cancel", ["lost"]), "test")
