"""What the gateway does with requests that are wrong, too large, too many, repeated, or too early to answer."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from gateway_playbooks import HELD
from gateway_stage import GatewayStage
from msgspec.structs import replace
from openapi_checks import Described

from noetl_stream.errors import NoetlError, OutcomeUnknown, QueryTooLong, StreamLost, TooBusy, Unreachable
from noetl_stream.gateway.http.pressure import LIGHT_AT_ONCE
from noetl_stream.gateway.http.problems import KINDS, problem_of
from noetl_stream.ports.operations.access import NewToken
from noetl_stream.ports.operations.cluster import (
    PartitionDocument,
    PoolDocument,
    RunningCommandDocument,
    WorkerDocument,
)
from noetl_stream.settings.gateway_settings import GatewayLimits

JSON = {"Content-Type": "application/json"}


async def problem(stage: GatewayStage, method: str, path: str, **given: Any) -> tuple[int, str, dict[str, Any]]:
    """Status, name of the kind, and the whole problem."""
    async with stage.client.request(method, path, **given) as response:
        document = await response.json(content_type="application/problem+json")
        assert document["status"] == response.status
        return response.status, document["type"].removeprefix("/problems/"), document


async def test_unknown_addresses_and_methods_are_problems(stage: GatewayStage) -> None:
    assert (await problem(stage, "GET", "/api/v1/nothing"))[:2] == (404, "not-found")
    async with stage.client.post("/livez") as response:
        assert response.headers["Allow"] == "GET"
        assert (await response.json(content_type=None))["type"] == "/problems/method-not-allowed"


async def test_large_answers_are_compressed_for_those_who_take_that(stage: GatewayStage) -> None:
    lengths: dict[str, int] = {}
    for accepted in ("gzip", "identity"):
        async with stage.client.get("/openapi.json", headers={"Accept-Encoding": accepted}) as response:
            assert response.headers["Vary"] == "Accept-Encoding"
            assert response.headers.get("Content-Encoding", "identity") == accepted
            assert (await response.json())["openapi"]
            lengths[accepted] = response.content.total_raw_bytes
    assert lengths["gzip"] < lengths["identity"] / 3


async def test_small_answers_are_not_compressed(stage: GatewayStage) -> None:
    async with stage.client.get("/api/v1/me", headers={"Accept-Encoding": "gzip"}) as response:
        assert "Content-Encoding" not in response.headers


@pytest.mark.parametrize(
    ("path", "faults"),
    [
        ("/api/v1/executions?limit=0", ["limit"]),
        ("/api/v1/executions?limit=x&unknown=1", ["unknown", "limit"]),
        ("/api/v1/executions?limit=1&limit=2", ["limit"]),
        ("/api/v1/executions?status=done&label=no-sign", ["status", "label"]),
        ("/api/v1/executions?started_from=yesterday", ["started_from"]),
        ("/api/v1/executions/a%2Fb", ["execution_id"]),
        ("/api/v1/executions/x?wait=soon", ["wait"]),
        ("/api/v1/executions/x?wait=6m", ["wait"]),
    ],
)
async def test_each_wrong_parameter_is_named(stage: GatewayStage, path: str, faults: list[str]) -> None:
    status, kind, document = await problem(stage, "GET", path)
    assert (status, kind) == (400, "invalid-request")
    assert [fault["parameter"] for fault in document["errors"]] == faults


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ("{", [""]),
        ('{"workload": NaN}', [""]),
        ('{"path": 1, "unknown/key": 2}', ["/path", "/unknown~1key"]),
        ('{"workload": []}', ["/workload"]),
        ("[]", [""]),
    ],
)
async def test_a_fault_in_a_body_is_named_by_its_pointer(stage: GatewayStage, body: str, pointers: list[str]) -> None:
    status, kind, document = await problem(stage, "POST", "/api/v1/executions", data=body, headers=JSON)
    assert (status, kind) == (400, "invalid-request")
    assert [fault["pointer"] for fault in document["errors"]] == pointers


async def test_a_body_of_another_type_or_broken_is_refused(stage: GatewayStage) -> None:
    start = "/api/v1/executions"
    for media in ("text/plain", "application/json; charset=latin-1"):
        found = await problem(stage, "POST", start, data="{}", headers={"Content-Type": media})
        assert found[:2] == (415, "unsupported-media-type")
    squeezed = {**JSON, "Content-Encoding": "gzip"}
    assert (await problem(stage, "POST", start, data=b"anything", headers=squeezed))[:2] == found[:2]


async def test_a_body_over_its_limit_is_refused_with_the_limits_name() -> None:
    async with GatewayStage(GatewayLimits(max_body_bytes=100, max_playbook_bytes=50)).open() as stage:
        large = json.dumps({"path": "x" * 100})

        async def chunks() -> Any:
            yield large.encode()

        for data in (large, chunks()):
            status, kind, document = await problem(stage, "POST", "/api/v1/executions", data=data, headers=JSON)
            assert (status, kind) == (413, "too-large")
            assert "NOETL_GATEWAY_MAX_BODY_BYTES" in document["detail"]
        text = {"data": "#" * 51, "headers": {"Content-Type": "application/yaml"}}
        _, _, document = await problem(stage, "POST", "/api/v1/playbooks", **text)
        assert "NOETL_GATEWAY_MAX_PLAYBOOK_BYTES" in document["detail"]


async def test_requests_beyond_the_limit_are_answered_429() -> None:
    stage = GatewayStage(GatewayLimits(max_requests=1))
    release = asyncio.Event()
    begun = asyncio.Event()

    async def held(*_: Any) -> list[Any]:
        begun.set()
        await release.wait()
        return []

    stage.replace(steps=held)
    async with stage.open():
        first = asyncio.ensure_future(stage.client.get("/api/v1/executions/x/steps"))
        await begun.wait()
        async with stage.client.get("/api/v1/executions") as response:
            assert (response.status, response.headers["Retry-After"]) == (429, "1")
            assert "NOETL_GATEWAY_MAX_REQUESTS" in (await response.json(content_type=None))["detail"]
        assert (await stage.client.get("/livez")).status == 200
        assert b"noetl_gateway_requests_in_flight 1.0" in await (await stage.client.get("/metrics")).read()
        release.set()
        assert (await first).status == 200


class LaggingCluster:
    """A cluster that is seven messages behind."""

    def __init__(self) -> None:
        self.looks = 0

    async def partitions(self) -> list[PartitionDocument]:
        self.looks += 1
        return [PartitionDocument(number, None, 1, False, 0, behind) for number, behind in enumerate((3, 4))]

    async def pools(self) -> list[PoolDocument]:
        return []


async def test_new_work_is_not_taken_while_the_servers_are_far_behind() -> None:
    stage = GatewayStage(GatewayLimits(max_behind=3))
    behind: Any = LaggingCluster()
    stage.operations = replace(stage.operations, cluster=behind)
    async with stage.open():
        await stage.until(lambda: stage.gateway.pressure.behind == 7)
        status, kind, document = await problem(stage, "POST", "/api/v1/executions", data="{}", headers=JSON)
        assert (status, kind) == (429, "too-busy")
        assert "NOETL_GATEWAY_MAX_BEHIND" in document["detail"]
        assert (await problem(stage, "POST", "/api/v1/executions/x/cancel"))[:2] == (404, "not-found")
        for _ in range(5):
            assert (await stage.client.get("/api/v1/executions")).status == 200
        measured = await (await stage.client.get("/metrics")).text()
        assert "noetl_gateway_events_behind 7.0" in measured
        assert 'noetl_partition_lag{partition="1"} 4.0' in measured
        assert "noetl_partitions_unowned 2.0" in measured
        assert behind.looks == 1, "once a second, not once a request"


async def test_a_flood_of_events_to_one_namespace_keeps_none_out_that_the_same_sender_has_for_another() -> None:
    stage = GatewayStage(GatewayLimits(max_behind=5))
    lagging: Any = LaggingCluster()
    stage.operations = replace(stage.operations, cluster=lagging)
    async with stage.open():
        await stage.until(lambda: stage.gateway.pressure.behind == 7)
        loud = [(await stage.client.post("/api/v1/hooks/loud/hook")).status for _ in range(LIGHT_AT_ONCE + 3)]
        assert loud[0] != 429 and loud[-1] == 429
        assert (await stage.client.post("/api/v1/hooks/quiet/hook")).status == loud[0]


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (Unreachable("postgres is away"), 503, "unreachable"),
        (OutcomeUnknown("no acknowledgement"), 503, "outcome-unknown"),
        (QueryTooLong("a query took Postgres 30 s"), 504, "query-too-long"),
        (StreamLost("EVENTS has lost its tail"), 500, "internal"),
        (KeyError("secret detail"), 500, "internal"),
    ],
)
async def test_an_internal_failure_is_a_problem_without_internals(error: Exception, status: int, kind: str) -> None:
    stage = GatewayStage(GatewayLimits())

    async def failing(*_: Any) -> Any:
        raise error

    stage.replace(get=failing)
    async with stage.open(), stage.client.get("/api/v1/executions/x") as response:
        document = await response.json(content_type=None)
        assert (response.status, document["type"]) == (status, f"/problems/{kind}")
        assert response.headers.get("Retry-After") == ("1" if status == 503 else None)
        if kind == "internal":
            assert "detail" not in str(error) or "secret" not in str(document)
            assert "EVENTS" not in str(document)


def test_every_kind_of_problem_is_met_by_its_own_error() -> None:
    for kind in KINDS.values():
        if kind.error is NoetlError or kind.name in ("invalid-request", "too-large", "unsupported-media-type"):
            continue
        if kind.name in ("method-not-allowed", "key-reused", "overloaded"):
            continue
        error = kind.error("words", 2.5) if kind.error is TooBusy else None
        error = error or (kind.error("words", []) if kind.name == "playbook-refused" else kind.error("words"))  # type: ignore[call-arg]
        made = problem_of(error, "/there")
        assert (made.status, made.document.type, made.document.detail) == (
            kind.status,
            f"/problems/{kind.name}",
            "words",
        )
        assert made.headers.get("Retry-After") == (
            "3" if kind.error is TooBusy else "1" if kind.status == 503 else None
        )


async def test_a_waiting_call_is_answered_when_its_time_has_passed(api: Described) -> None:
    soon = await api.call("startExecution", query={"wait": "20ms"}, body={"playbook": HELD})
    assert (soon.status, soon.body["status"]) == (202, "waiting")
    execution_id = soon.body["execution_id"]
    answer = await api.call("getExecution", execution_id=execution_id, query={"wait": "20ms"})
    assert answer.body["status"] == "waiting"


async def test_a_waiting_call_is_answered_when_the_gateway_ends(stage: GatewayStage, api: Described) -> None:
    held = (await api.call("startExecution", body={"playbook": HELD})).body["execution_id"]
    waiting = asyncio.create_task(api.call("getExecution", execution_id=held, query={"wait": "5m"}))
    await stage.until(lambda: stage.gateway.pressure.waits.under_way == 1)
    stage.gateway.stop()
    assert (await waiting).body["status"] == "waiting"


async def test_a_patch_for_another_version_is_refused(api: Described) -> None:
    held = (await api.call("startExecution", body={"playbook": HELD})).body["execution_id"]
    for version, status in (('"1"', 200), ('"1"', 412), ("*", 200)):
        answered = await api.call(
            "patchCtx", execution_id=held, headers={"If-Match": version}, body={"seen": [version]}
        )
        assert answered.status == status, answered
    assert (await api.call("patchCtx", execution_id=held, headers={"If-Match": "1"}, body={})).status == 400
    merge = {"media": "application/merge-patch+json", "body": {"seen": None, "deep": {"a": 1}}}
    assert (await api.call("patchCtx", execution_id=held, **merge)).status == 200
    assert (await api.call("getCtx", execution_id=held)).body["ctx"] == {"deep": {"a": 1}}


async def test_a_token_with_paths_sees_nothing_that_has_no_path() -> None:
    stage = GatewayStage(GatewayLimits(), signed_in=False)
    made = await stage.operations.access.create_token(NewToken("ci", "operator", ("team/a",)), "test")
    running = RunningCommandDocument("execution-1", "c", "start", 1)

    class Busy:
        async def workers(self) -> list[WorkerDocument]:
            return [WorkerDocument("worker-1", "default", 1, 1, "", [], False, "1", [running])]

        async def partitions(self) -> list[PartitionDocument]:
            return []

    busy: Any = Busy()
    stage.operations = replace(stage.operations, cluster=busy)
    token = {"Authorization": f"Bearer {made.secret}"}
    async with stage.open():
        for method, path in (("GET", "/dead-letters"), ("GET", "/dead-letters/x"), ("DELETE", "/dead-letters/x")):
            assert (await problem(stage, method, f"/api/v1{path}", headers=token))[:2] == (403, "forbidden")
        async with stage.client.get("/api/v1/workers", headers=token) as response:
            (worker,) = (await response.json())["items"]
            assert (worker["name"], worker["busy"], worker["running"]) == ("worker-1", 1, [])
        assert (await problem(stage, "GET", "/api/v1/workers"))[:2] == (401, "unauthenticated")


async def test_a_gateway_without_its_stores_lives_and_is_not_ready(stage: GatewayStage) -> None:
    stage.broker.stop()
    assert (await stage.client.get("/livez")).status == 200
    async with stage.client.get("/readyz") as response:
        assert response.status == 503
        missing = (await response.json())["missing"]
    stage.broker.start()
    assert any("server" in sentence for sentence in missing)
