"""Every operation of the OpenAPI document, called by it: each answer is what the document says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from gateway_playbooks import APPROVAL, FAILS, LIMITED, LOOP
from gateway_stage import GatewayStage
from openapi_checks import Described

from noetl_stream.gateway.gateway import RESOURCES
from noetl_stream.model.bundles import zip_of
from noetl_testkit.waiting import until_it_is

LONG = {"wait": "20s"}


async def start(api: Described, **wanted: Any) -> str:
    answered = await api.call("startExecution", body=wanted)
    assert answered.status == 202, answered
    assert answered.headers["Location"] == f"/api/v1/executions/{answered.body['execution_id']}"
    return str(answered.body["execution_id"])


async def test_an_approval_is_started_held_explained_patched_and_completed(api: Described) -> None:
    assert (await api.call("registerPlaybook", body=APPROVAL, media="application/yaml")).status == 201
    assert (await api.call("registerPlaybook", body=APPROVAL, media="application/yaml")).status == 200
    held = await start(api, path="examples/approval", workload={"amount": 250})
    why = (await api.call("explainExecution", execution_id=held)).body
    assert why["status"] == "waiting"
    [wait] = (await api.call("getExecution", execution_id=held)).body["waits"]
    explained = why["reasons"][0]["waiting_on"]
    answers = [{"value": "approved", "moves": True}, {"value": "refused", "moves": True}]
    assert explained.pop("expects") == [{"key": "decision", "values": answers}]
    assert wait["waiting_on"] == explained
    assert (wait["waiting_on"]["ctx"], wait["waiting_on"]["timer"]["purpose"]) == (["decision"], "admission")
    read = await api.call("getCtx", execution_id=held)
    reason = {
        "X-Reason": "spoke%20with%20M%C3%BCller",
        "X-Correlation-Id": "ticket-7",
        "If-Match": read.headers["ETag"],
    }
    patched = await api.call("patchCtx", execution_id=held, headers=reason, body={"decision": "approved"})
    assert patched.status == 200
    assert patched.headers["ETag"] == f'"{patched.body["position"]}"'
    ended = await api.call("getExecution", execution_id=held, query=LONG)
    assert ended.body["status"] == "completed"
    late = await api.call("patchCtx", execution_id=held, body={"decision": "refused"})
    assert (late.status, late.body["type"]) == (409, "/problems/conflict")
    [change] = [c for c in (await api.call("getCtx", execution_id=held)).body["history"] if c["event"] == "ctx.patched"]
    assert (change["keys"], change["principal"], change["reason"]) == (["decision"], "token:local", "spoke with Müller")
    assert change["correlation_id"] == "ticket-7"
    result = await api.call("getResult", execution_id=held)
    assert result.body["result"] == {"order": "1001", "paid": 250}


async def test_an_undeclared_workload_key_is_a_warning_in_the_answer_to_the_start(api: Described) -> None:
    body = {"playbook": APPROVAL, "workload": {"amuont": 250}}
    started = await api.call("startExecution", query=LONG, body=body)
    [warning] = started.body["warnings"]
    assert (warning["kind"], started.body["discarded"]) == ("undeclared_workload", [])
    assert warning["message"].endswith("did you mean `workload.amount`?")


async def test_digits_that_the_body_of_a_start_loses_are_a_warning_of_the_execution(api: Described) -> None:
    body = json.dumps({"playbook": APPROVAL, "workload": {"amount": 0}}).replace(": 0}", ": 12345678901234567.89}")
    started = await api.call("startExecution", body=body)
    found = [(one["kind"], one["message"].rpartition(": ")[2]) for one in started.body["warnings"]]
    assert found == [("digits_lost", "/workload/amount")]


async def test_digits_that_patches_signals_and_tokens_lose_are_warnings_of_the_execution(api: Described) -> None:
    held = await start(api, playbook=APPROVAL, workload={"amount": 250})
    long = 12345678901234567.89
    for operation, more, body in (
        ("patchCtx", {}, {"seen": long}),
        ("patchCtx", {}, {"seen": [long]}),
        ("sendSignal", {"name": "go"}, {"payload": {"n": long}}),
        ("injectToken", {}, {"step": "decide", "args": {"n": long}}),
        ("patchCtx", {}, {"decision": "approved", "exact": 0.5}),
    ):
        text = json.dumps(body).replace(json.dumps(long), "12345678901234567.89")
        assert (await api.call(operation, execution_id=held, body=text, **more)).status in (200, 202)
    ended = (await api.call("getExecution", execution_id=held, query=LONG)).body
    found = {one["message"].partition(": ")[0]: one["message"].rpartition(": ")[2] for one in ended["warnings"]}
    assert found == {
        "ctx": "/seen (and in 1 more requests of it)",
        "signal go": "/payload/n",
        "token": "/args/n",
    }
    assert {(one["kind"], one["step"]) for one in ended["warnings"]} == {("digits_lost", None)}


async def test_a_workload_that_does_not_match_is_refused_with_a_pointer_into_the_body(api: Described) -> None:
    executor = "executor: {spec: {workload: {properties: {amount: {type: number}}}}}\n"
    body = {"playbook": APPROVAL.replace("workflow:", executor + "workflow:", 1), "workload": {"amount": "much"}}
    refused = await api.call("startExecution", body=body)
    assert (refused.status, refused.body["type"]) == (422, "/problems/invalid")
    assert refused.body["errors"] == [{"detail": 'the value is not of type "number"', "pointer": "/workload/amount"}]
    assert "at `/amount`" in refused.body["detail"]


async def test_an_execution_is_looked_at_from_all_sides_and_forgotten(api: Described) -> None:
    ended = await api.call("startExecution", query=LONG, body={"playbook": LOOP})
    assert (ended.status, ended.body["status"]) == (200, "completed")
    execution_id = ended.body["execution_id"]
    [run] = (await api.call("listSteps", execution_id=execution_id)).body["items"]
    reference = {"key": f"{execution_id}/c/r/0/parts-1", "size": 1, "checksum": "sha256:0", "seal": "AAAA"}
    for operation in ("getFile", "getTable"):
        assert (await api.call(operation, execution_id=execution_id, query=reference)).status == 404
    for operation in ("listCalls", "listLineage"):
        assert (await api.call(operation, execution_id=execution_id)).body["items"] == []
    assert run["loop"] == {"count": 3, "ok": 3, "failed": 0, "skipped": 0, "failed_leaves": 0}
    at = {"execution_id": execution_id, "step_run_id": run["step_run_id"]}
    first = await api.call("listIterations", query={"limit": 2}, **at)
    assert [item["path"] for item in first.body["items"]] == [[0], [1]]
    rest = await api.call("listIterations", query={"cursor": first.body["next"]}, **at)
    assert ([item["path"] for item in rest.body["items"]], rest.body["next"]) == ([[2]], None)
    page = await api.call("listEvents", execution_id=execution_id, query={"limit": 2})
    assert [event["position"] for event in page.body["items"]] == [1, 2]
    assert page.headers["Link"] == f'</api/v1/executions/{execution_id}/events?limit=2&after=2>; rel="next"'
    assert (await api.call("listEvents", execution_id=execution_id, query={"after": 1000})).body["next"] is None
    for chosen in ({"status": "completed"}, {"path": "tests/loop"}, {"label": "team=sales"}):
        found = (await api.call("listExecutions", query=chosen)).body["items"]
        assert [one["execution_id"] for one in found] == [execution_id], chosen
    for other in ({"status": "failed"}, {"path": "tests/other"}, {"label": "team=support"}):
        assert (await api.call("listExecutions", query=other)).body["items"] == [], other
    assert (await api.call("deleteExecution", execution_id=execution_id)).status == 204
    assert (await api.call("getExecution", execution_id=execution_id)).status == 404


async def test_executions_are_counted_over_time_and_in_groups(api: Described) -> None:
    await start(api, playbook=APPROVAL, workload={"amount": 250})
    for text in (LOOP, LOOP, FAILS):
        await api.call("startExecution", query=LONG, body={"playbook": text})
    counted = (await api.call("countExecutions", query={"bars": 12})).body
    assert (counted["bar_s"], counted["complete"]) == (10_800, True)
    assert {status: sum(bars) for status, bars in counted["bars"].items()} == counted["counts"]
    failed = (await api.call("countExecutions", query={"status": "failed", "path": "tests"})).body
    assert failed["counts"] == {"failed": 1}
    old = {"started_from": "2020-01-01T00:00:00Z", "started_before": "2020-02-01T00:00:00Z"}
    assert (await api.call("countExecutions", query=old)).body["counts"] == {}
    backwards = {"started_from": old["started_before"], "started_before": old["started_from"]}
    assert (await api.call("countExecutions", query=backwards)).status == 422
    groups = (await api.call("groupExecutions", query={"by": "label:team", "path": "tests"})).body
    assert groups["items"][0] == {"value": "sales", "counts": {"completed": 2}}
    assert groups["items"][1] == {"value": None, "counts": {"failed": 1}}
    by_path = (await api.call("groupExecutions", query={"by": "path", "status": "completed"})).body["items"]
    assert by_path == [{"value": "tests/loop", "counts": {"completed": 2}}]
    assert (await api.call("groupExecutions", query={"by": "colour"})).status == 400


async def test_an_execution_is_paused_resumed_signalled_and_cancelled(api: Described) -> None:
    held = await start(api, playbook=APPROVAL, workload={"amount": 250})
    for ask, other in (("pauseExecution", "resumeExecution"), ("resumeExecution", "pauseExecution")):
        assert (await api.call(ask, execution_id=held)).status == 202
        again = await api.call(ask, execution_id=held)
        assert (again.status, again.body["already"]) == (200, True), other
    assert (await api.call("sendSignal", execution_id=held, name="go", body={"payload": [1]})).status == 202
    injected = await api.call("injectToken", execution_id=held, body={"step": "refuse", "args": {"why": 1}})
    assert injected.status == 202
    assert (await api.call("injectToken", execution_id=held, body={"step": "nowhere"})).status == 422
    assert (await api.call("cancelExecution", execution_id=held)).status == 202
    ended = await api.call("getExecution", execution_id=held, query=LONG)
    assert ended.body["status"] == "cancelled"


async def test_an_ended_execution_is_run_again(api: Described) -> None:
    failed = await api.call("startExecution", query=LONG, body={"playbook": FAILS})
    assert failed.body["status"] == "failed"
    original = failed.body["execution_id"]
    assert "missing" in (await api.call("explainExecution", execution_id=original)).body["summary"]
    again = await api.call("retryExecution", query=LONG, execution_id=original, body={"ctx": {"missing": {"key": 1}}})
    assert (again.status, again.body["status"], again.body["rerun_of"]) == (200, "completed", original)
    rerun = await api.call(
        "rerunExecution", execution_id=again.body["execution_id"], body={"step": "start", "args": {"x": 1}}
    )
    assert rerun.status in (200, 202)
    assert (await api.call("rerunExecution", execution_id=original, body={"ctx": {}})).status == 422
    nowhere = await api.call("rerunExecution", execution_id=original, body={"step": "nowhere"})
    assert (nowhere.status, nowhere.body["type"]) == (422, "/problems/invalid")


async def test_older_clients_read_and_write_variables(api: Described) -> None:
    held = await start(api, playbook=APPROVAL, workload={"amount": 250})
    body = {"variables": {"seen": 1}, "var_type": "user_defined", "source_step": "elsewhere"}
    answered = await api.call("setVariables", execution_id=held, body=body)
    assert answered.body == {"execution_id": held, "variables_set": 1, "var_names": ["seen"]}
    everything = (await api.call("listVariables", execution_id=held)).body
    assert (everything["variables"], everything["count"]) == ({"seen": {"value": 1}}, 1)
    assert (await api.call("getVariable", execution_id=held, var_name="seen")).body["value"] == 1
    assert (await api.call("getVariable", execution_id=held, var_name="unseen")).status == 404


async def test_the_catalog_is_filled_shown_and_emptied(api: Described) -> None:
    registered = await api.call("registerPlaybook", body=LOOP, media="application/yaml")
    assert registered.headers["Location"] == "/api/v1/playbooks/tests%2Floop?version=1.0"
    path = {"path": "tests/loop"}
    checked = await api.call("checkPlaybook", body="kind: Nothing", media="application/yaml")
    assert (checked.status, checked.body["ok"]) == (200, False)
    drawn = await api.call("checkPlaybook", query={"graph": "true"}, body=LOOP, media="application/yaml")
    assert (drawn.body["ok"], drawn.body["graph"]["steps"]) == (True, ["start"])
    listed = await api.call("listPlaybooks", query={"prefix": "tests/", "label": "team=sales"})
    assert [one["path"] for one in listed.body["items"]] == ["tests/loop"]
    assert (await api.call("listPlaybooks", query={"label": "team=support"})).body["items"] == []
    for words, count in (("LOOP sales", 1), ("loop elsewhere", 0)):
        assert len((await api.call("listPlaybooks", query={"words": words})).body["items"]) == count
    assert (await api.call("listPlaybooks", query={"words": "a " * 9})).status == 422
    assert (await api.call("getPlaybook", query={"version": "1.0"}, **path)).body["source"] == LOOP
    assert (await api.call("getSource", **path)).body == LOOP
    graph = (await api.call("getGraph", **path)).body
    assert (graph["steps"], graph["arcs"], [node["step"] for node in graph["nodes"]]) == (["start"], [], ["start"])
    assert [one["known_as"] for one in (await api.call("listVersions", **path)).body["items"]] == ["1.0"]
    assert (await api.call("getSchema")).body["title"] == "NoETL playbook"
    plan = (await api.call("getPlan", **path)).body
    assert plan["path"] == "tests/loop"
    changed = LOOP.replace("1.0", "2.0")
    text = await api.call("diffText", body=changed, media="application/yaml", query={"name": "new.yaml"}, **path)
    assert (text.body["before"]["known_as"], text.body["after"], text.body["same"]) == ("1.0", None, False)
    assert "\n+++ new.yaml\n" in text.body["text"]
    assert (await api.call("registerPlaybook", body=changed, media="application/yaml")).status == 201
    diff = (await api.call("diffVersions", **path)).body
    assert (diff["before"]["known_as"], diff["after"]["known_as"]) == ("1.0", "2.0")
    assert (await api.call("diffVersions", query={"before": "2.0", "after": "1.0"}, **path)).body["text"]
    assert (await api.call("diffVersions", query={"before": "3.0"}, **path)).status == 404
    assert (await api.call("deletePlaybook", **path)).status == 204
    assert (await api.call("getPlaybook", **path)).status == 404


async def test_statistics_say_how_executions_and_steps_ended(api: Described) -> None:
    path = {"path": "tests/loop"}
    assert (await api.call("getStatistics", **path)).status == 404
    await api.call("registerPlaybook", body=LOOP, media="application/yaml")
    assert (await api.call("getStatistics", **path)).body["executions"] == 0
    await api.call("startExecution", query=LONG, body=path)
    found = (await api.call("getStatistics", query={"since": "2020-01-01T00:00:00Z"}, **path)).body
    assert (found["executions"], found["statuses"], found["failure_rate"]) == (1, {"completed": 1}, 0.0)
    assert [(step["step"], step["done"], step["failed"]) for step in found["steps"]] == [("start", 1, 0)]
    assert (await api.call("getStatistics", query={"since": "yesterday"}, **path)).status == 400


async def test_a_playbook_with_errors_is_refused_with_its_diagnostics(api: Described) -> None:
    for refused in (
        await api.call("registerPlaybook", body="kind: Nothing", media="application/yaml"),
        await api.call("startExecution", body={"playbook": "kind: Nothing"}),
    ):
        assert (refused.status, refused.body["type"]) == (422, "/problems/playbook-refused")
        assert refused.body["diagnostics"][0]["line"] == 1


async def test_credentials_are_kept_and_never_shown(api: Described) -> None:
    kept = await api.call("putCredential", name="shop", body={"value": {"username": "ann", "password": "secret-1"}})
    assert (kept.status, kept.body["version"]) == (200, 1)
    assert (await api.call("putCredential", name="shop", body={"value": "secret-2", "kind": "http"})).body[
        "version"
    ] == 2
    assert "secret" not in str([await api.call("getCredential", name="shop"), await api.call("listCredentials")])
    assert (await api.call("rotateCredentials")).body == {"rotated": [], "problems": []}
    assert (await api.call("deleteCredential", name="shop")).status == 204
    assert (await api.call("getCredential", name="shop")).status == 404


async def test_grants_are_registered_and_shown(api: Described) -> None:
    text = "grants: [{paths: [shop], credentials: [mailer]}]"
    assert (await api.call("getGrants")).body["origin"] == "none"
    put = [await api.call("putGrants", revision=number, body=text, media="application/yaml") for number in "113"]
    assert [answer.status for answer in put] == [200, 200, 412]
    assert (await api.call("putGrants", revision="2", body="grants: 5", media="application/yaml")).status == 422
    assert (await api.call("getGrants")).body["source"] == text
    assert (await api.call("getGrants", query={"revision": 2})).status == 404
    assert (await api.call("getPlaybookGrants", path="shop/x")).body["credentials"] == ["mailer"]
    assert (await api.call("getPlaybookGrants", path="shop/../x")).status == 422


async def test_the_doctor_is_asked(api: Described) -> None:
    checks = (await api.call("examine")).body["items"]
    assert {"check": "servers", "verdict": "ok", "says": "1 server: server-1", "mend": ""} in checks


async def test_uses_of_streams_and_tables_are_shown(api: Described) -> None:
    shown = (await api.call("listStorage")).body["items"]
    assert {"store": "objects", "name": "OBJ_noetl-results", "bytes": 0, "max_bytes": None, "items": 0} in shown
    assert [one["store"] for one in shown] == [
        "account",
        *["stream"] * 2,
        "objects",
        "stream",
        "database",
        "table",
        "table",
    ]


async def test_workers_pools_and_partitions_are_shown(api: Described) -> None:
    [worker] = (await api.call("listWorkers")).body["items"]
    assert (worker["name"], worker["slots"], worker["busy"]) == ("worker-1", 8, 0)
    assert [pool["pool"] for pool in (await api.call("listPools")).body["items"]] == ["default"]
    partitions = (await api.call("listPartitions")).body["items"]
    assert (len(partitions), {one["owner"] for one in partitions}) == (32, {"server-1"})


async def test_a_key_in_use_is_listed_with_who_holds_it_and_who_waits(api: Described) -> None:
    holds, waits = [await start(api, playbook=LIMITED) for _ in range(2)]

    async def queued() -> int:
        return sum(one["queued"] for one in (await api.call("listLimits")).body["items"])

    await until_it_is(1, queued)
    [listed] = (await api.call("listLimits")).body["items"]
    assert (listed["key"], listed["held"], listed["concurrency"], listed["rate"]) == ("customers/a", 1, 1, None)
    assert (listed["namespace"], listed["used_by"]) == ("tests", [listed["set_by"]])
    found = (await api.call("getLimit", key="customers/a")).body
    assert [one["execution_id"] for one in found["holders"] + found["waiting"]] == [holds, waits]
    assert (await api.call("getLimit", key="nobody's")).status == 404
    statuses = {
        of: (await api.call("getLimit", key="customers/a", query={"namespace": of})).status for of in ("tests", "", "x")
    }
    assert statuses == {"tests": 200, "": 404, "x": 404}
    [wait] = (await api.call("getExecution", execution_id=waits)).body["waits"]
    assert (wait["step"], wait["for"]) == ("gate", "a slot of key customers/a")
    assert wait["waiting_on"]["slot"] == {"key": "customers/a", "namespace": "tests"}
    [reason] = (await api.call("explainExecution", execution_id=waits)).body["reasons"]
    assert reason["kind"] == "limit"
    assert reason["sentence"] == (
        "The execution waits for a slot of key `customers/a` of namespace `tests`: it is number 1 of 1 in the queue, "
        f"1 of 1 are held by execution {holds}."
    )
    slot = reason["waiting_on"]["slot"]
    assert (slot["place"], slot["queued"], slot["held"], slot["holders"][0]["execution_id"]) == (1, 1, 1, holds)


async def test_a_dead_letter_is_looked_at_requeued_and_discarded(stage: GatewayStage, api: Described) -> None:
    for number in (1, 2):
        await stage.broker.event_log.publish_request("execution-1", f"message-{number}", b"no report")

    async def letters() -> list[Any]:
        return list((await api.call("listDeadLetters")).body["items"])

    async def two() -> bool:
        return len(await letters()) == 2

    await stage.until(two)
    second, first = await letters()
    shown = (await api.call("getDeadLetter", letter_id=first["id"])).body
    assert (shown["body"], shown["encoding"], shown["state"]) == ("no report", "text", "waiting")
    assert (await api.call("discardDeadLetter", letter_id=second["id"])).status == 204
    assert (await api.call("discardDeadLetter", letter_id=second["id"])).status == 409
    assert (await api.call("requeueDeadLetter", letter_id=first["id"])).body["state"] == "requeued"
    assert (await api.call("getDeadLetter", letter_id="nothing")).status == 404


async def test_packages_of_a_project_are_stored_and_read_by_their_digest(api: Described) -> None:
    packed = zip_of({"packages/etl.py": b"def double(n):\n    return 2 * n\n"})
    stored = (await api.call("putBundle", path="team/flows", body=packed, media="application/zip")).body
    digest = stored["name"].partition("@")[2]
    found = await api.call("getBundle", path="team/flows", query={"digest": digest})
    assert (found.status, found.body["name"]) == (200, stored["name"])
    assert (await api.call("getBundle", path="team/flows", query={"digest": "0" * 64})).status == 404
    assert (await api.call("putBundle", path="team/flows", body=b"no zip", media="application/zip")).status == 422


async def test_the_gateway_describes_itself(api: Described) -> None:
    assert (await api.call("openapi")).body["openapi"] == "3.1.0"
    assert (await api.call("live")).body == {"status": "alive"}
    assert (await api.call("ready")).body == {"ready": True, "missing": []}
    metrics = (await api.call("metrics")).body
    assert re.search(r'noetl_gateway_requests_total\{route="live",status="200"\} 1\.0', metrics)
    for role, what in (
        ("server", "states"),
        ("server", "unread"),
        ("server", "unacknowledged"),
        ("worker", "commands"),
    ):
        assert f'noetl_memory_bytes{{role="{role}",what="{what}"}}' in metrics
    assert 'noetl_memory_limit_bytes{role="server",what="states"} 5.36870912e+08' in metrics
    for kind in ("playbook-refused", "internal"):
        assert f"/problems/{kind}" in (await api.call("problem", name=kind)).body
    assert (await api.call("problem", name="nothing")).status == 404


async def test_messages_of_agents_are_answered(api: Described) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert (await api.call("callTools", body=ping)).body == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert (await api.call("callTools", body={"jsonrpc": "2.0", "method": "notifications/initialized"})).status == 202
    assert (await api.call("callTools", body={"jsonrpc": "1.0"})).status == 400
    assert (await api.call("callTools", body=[ping])).body["errors"][0]["detail"] == "must be an object"
    new = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "nothing"}
    assert (await api.call("callTools", body={**ping, "method": "nothing"}, headers=new)).status == 400
    assert (await api.call("callTools", body=ping, headers={"Accept": "text/html"})).status == 406


def test_every_operation_is_called_by_some_test() -> None:
    """The calls check their answers: so every operation's answer is held against the document. Streams have tests of
    their own.
    """
    tests = Path(__file__).resolve().parents[1]
    sources = "".join(path.read_text() for folder in ("gateway", "access") for path in (tests / folder).glob("*.py"))
    called = {route.operation for route in RESOURCES if f'"{route.operation}"' in sources}
    assert {route.operation for route in RESOURCES if not route.streams} <= called


async def test_a_start_and_a_rerun_take_a_priority_of_0_to_9(api: Described) -> None:
    started = await api.call("startExecution", body={"playbook": FAILS, "priority": 9}, query={"wait": "30s"})
    assert (started.status, started.body["priority"]) == (200, 9)
    execution_id = started.body["execution_id"]
    again = await api.call("retryExecution", execution_id=execution_id, body={"priority": 0}, query={"wait": "30s"})
    assert (again.status, again.body["priority"]) == (200, 0)
    refused = await api.call("startExecution", body={"playbook": FAILS, "priority": 10})
    assert (refused.status, refused.body["errors"][0]["pointer"]) == (400, "/priority")


async def test_a_start_joins_the_trace_of_its_caller_or_has_one_of_its_own(api: Described) -> None:
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    found = []
    for traceparent in (f"00-{trace_id}-00f067aa0ba902b7-01", "no traceparent", f"00-{'0' * 32}-00f067aa0ba902b7-01"):
        started = await api.call("startExecution", body={"playbook": FAILS}, headers={"traceparent": traceparent})
        found.append((started.status, started.body["trace_id"]))
    (joined, *others) = found
    assert joined == (202, trace_id)
    for status, own in others:
        assert status == 202
        assert re.fullmatch("[0-9a-f]{32}", own) and set(own) != {"0"}
