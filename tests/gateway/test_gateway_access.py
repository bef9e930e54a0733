"""Tokens and the audit over HTTP: made, used, revoked, and everything of it on record."""

from __future__ import annotations

from typing import Any

import pytest
from gateway_stage import GatewayStage
from openapi_checks import Answered, Described

from noetl_stream.gateway.access.authentication import CACHED_S
from noetl_testkit.waiting import until_it_is

PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: x, path: {path}}}
workflow:
  - step: start
    tool: {{kind: noop}}
"""


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def create(api: Described, headers: dict[str, str] | None = None, **token: Any) -> Answered:
    return await api.call("createToken", body=token, headers=headers)


async def test_a_token_is_made_used_revoked_and_on_record(api: Described) -> None:
    made = await create(api, name="ci", role="operator", expires="2099-01-01T00:00:00Z")
    assert made.status == 201
    token_id, secret = made.body["id"], made.body.pop("secret")
    assert made.headers["Location"] == f"/api/v1/tokens/{token_id}"
    assert (made.body["created_by"], made.body["expires"]) == ("token:local", "2099-01-01T00:00:00.000+00:00")
    assert (await create(api, name="ci", role="viewer")).status == 409

    reason = {"X-Reason": "only%20trying", "X-Correlation-Id": "ticket-7", "Idempotency-Key": "k-1"}
    text = PLAYBOOK.format(path="team/a/x")
    refused = await api.call("registerPlaybook", body=text, media="application/yaml", headers=bearer(secret))
    assert (refused.status, refused.body["type"]) == (403, "/problems/forbidden")
    assert (await api.call("registerPlaybook", body=text, media="application/yaml")).status == 201
    started = await api.call(
        "startExecution", body={"path": "team/a/x"}, query={"wait": "20s"}, headers=bearer(secret) | reason
    )
    assert (started.status, started.body["principal"]) == (200, "token:ci")

    [_, shown] = (await api.call("listTokens")).body["items"]
    assert shown["last_used"] is not None
    assert (await api.call("revokeToken", token_id=token_id)).status == 204
    assert (await api.call("revokeToken", token_id="none")).status == 404

    async def status() -> int:
        return (await api.call("listWorkers", headers=bearer(secret))).status

    await until_it_is(401, status, timeout_s=CACHED_S + 10)

    entries = (await api.call("listAudit", query={"limit": 500})).body["items"]
    checked = (await api.call("checkAudit")).body
    assert (checked["faults"], checked["next"], checked["checked"] >= 2 * len(entries) - 1) == ([], None, True)
    assert (await api.call("checkAudit", query={"cursor": "none"})).status == 422
    assert secret not in repr(entries) and shown["revoked"] is None
    audited = [(entry["operation"], entry["principal"], entry["status"]) for entry in reversed(entries)]
    assert audited[:7] == [
        ("createToken", "token:local", 201),
        ("createToken", "token:local", 409),
        ("registerPlaybook", "token:ci", 403),
        ("registerPlaybook", "token:local", 201),
        ("startExecution", "token:ci", 200),
        ("revokeToken", "token:local", 204),
        ("revokeToken", "token:local", 404),
    ]
    assert audited[7] == ("listWorkers", "", 401)
    [start] = (await api.call("listAudit", query={"principal": "token:ci", "limit": 1})).body["items"]
    assert (start["reason"], start["correlation_id"], start["idempotency_key"], start["made"]) == (
        "only trying", "ticket-7", "k-1", started.body["execution_id"],
    )  # fmt: skip
    assert entries[-1]["made"] == token_id


async def test_a_repeated_call_makes_one_token_and_shows_no_secret_again(api: Described) -> None:
    key = {"Idempotency-Key": "k-1"}
    first = await create(api, key, name="ci", role="viewer")
    again = await create(api, key, name="ci", role="viewer")
    assert "secret" in first.body and "secret" not in again.body
    assert again.body["id"] == first.body["id"]


@pytest.mark.parametrize(
    "body",
    [
        {"name": "x"},
        {"name": "local", "role": "viewer"},
        {"name": "x", "role": "root"},
        {"name": "x", "role": "admin", "paths": ["a"]},
        {"name": "x", "role": "viewer", "paths": [""]},
        {"name": "x", "role": "viewer", "expires": "2001-01-01T00:00:00Z"},
        {"name": "x", "role": "viewer", "expires": "9999-12-31T23:59:59-14:00"},
        {"name": "x", "role": "viewer", "expires": "2099-01-01T00:00:00"},
        {"name": "\u0000", "role": "viewer"},
    ],
)
async def test_an_invalid_token_is_refused(api: Described, body: dict[str, Any]) -> None:
    assert (await api.call("createToken", body=body)).status in (400, 422)
    listed = (await api.call("listTokens")).body["items"]
    assert [one["name"] for one in listed] == ["local"]


async def test_a_token_with_paths_sees_what_is_below_them(api: Described, stage: GatewayStage) -> None:
    for path in ("team/a/x", "other/x"):
        await api.call("registerPlaybook", body=PLAYBOOK.format(path=path), media="application/yaml")
    token = bearer((await create(api, name="a", role="author", paths=["team/a"])).body["secret"])
    ids = {}
    for path in ("team/a/x", "other/x"):
        started = await api.call("startExecution", body={"path": path}, query={"wait": "20s"})
        ids[path] = started.body["execution_id"]
    own, other = ids["team/a/x"], ids["other/x"]
    listed = (await api.call("listExecutions", headers=token)).body["items"]
    assert [item["execution_id"] for item in listed] == [own]
    assert [item["path"] for item in (await api.call("listPlaybooks", headers=token)).body["items"]] == ["team/a/x"]
    for operation in ("getExecution", "listEvents", "explainExecution", "cancelExecution", "streamExecutionEvents"):
        assert (await api.call(operation, execution_id=other, headers=token)).status == 404
    assert (await api.call("getExecution", execution_id=own, headers=token)).status == 200
    assert (await api.call("getPlaybook", path="other/x", headers=token)).status == 403
    assert (await api.call("startExecution", body={"path": "other/x"}, headers=token)).status == 403
    elsewhere = PLAYBOOK.format(path="other/new")
    assert (await api.call("startExecution", body={"playbook": elsewhere}, headers=token)).status == 403
    keyed = token | {"Idempotency-Key": "k-1"}
    assert (await api.call("startExecution", body={"path": "other/x"}, headers=keyed)).status == 403
    refused = [entry for entry in (await api.call("listAudit")).body["items"] if entry["status"] == 403]
    assert [entry["operation"] for entry in refused] == ["startExecution"] * 3 + ["getPlaybook"]
    assert {entry["reason"] for entry in refused} >= {"this token does not cover other/x (its paths are team/a)"}
