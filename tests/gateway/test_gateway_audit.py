"""What the command line does without a gateway stands in the audit as the same does over HTTP, with who did it."""

from __future__ import annotations

import contextlib
from typing import Any, cast

import pytest
from gateway_playbooks import APPROVAL, LOOP
from gateway_stage import TOKEN, GatewayStage

from noetl_stream.adapters.gateway_client.connection import GatewayConnection
from noetl_stream.adapters.gateway_client.verbs import gateway_operations
from noetl_stream.errors import NoetlError, Unreachable, UsageError
from noetl_stream.operations.access import AuditRecord
from noetl_stream.operations.recording import RecordedOperations
from noetl_stream.ports.operations import Operations
from noetl_stream.ports.operations.access import NewToken
from noetl_stream.ports.operations.executions import Start
from noetl_stream.ports.stores.identities import AuditEntry
from noetl_stream.settings.gateway_settings import GatewayLimits
from noetl_testkit.waiting import TIMEOUT_S

ANN = "ann"
WHY = "as Ünal said"
EXPLAINED = (
    *("putCredential", "deleteCredential", "rotateCredentials"),
    *("revokeToken", "requeueDeadLetter", "discardDeadLetter", "putGrants"),
)
WITH_IDS = ("deleteExecution", "revokeToken", "requeueDeadLetter", "discardDeadLetter")
"""Their targets differ from one stage to another."""

AUDITED = ("deleteExecution", "deletePlaybook", *EXPLAINED)


def recorded(stage: GatewayStage) -> Operations:
    """The operations of a command line over the stores of a stage."""
    return cast(Operations, RecordedOperations(stage.operations, AuditRecord(stage.audit, stage.clock)))


async def change_everything(stage: GatewayStage, operations: Operations) -> None:
    """Each change that the events do not tell of, as it succeeds and as it fails."""
    executions, playbooks, credentials = operations.executions, operations.playbooks, operations.credentials
    access, cluster = operations.access, operations.cluster

    async def are_there() -> bool:
        return len((await cluster.dead_letters(10, None)).items) == 2

    for number in range(2):
        await stage.broker.event_log.publish_request("lost", f"message-{number}", b"no message")
    await stage.until(are_there)
    second, first = (await cluster.dead_letters(10, None)).items
    token = await access.create_token(NewToken("ci", "viewer"), ANN)
    ended = (await executions.start(Start(playbook=LOOP), ANN)).execution_id
    held = (await executions.start(Start(playbook=APPROVAL, workload={"amount": 250}), ANN)).execution_id
    await executions.wait(ended, TIMEOUT_S)
    await playbooks.register(LOOP.encode(), "loop.yaml", ANN)
    for work in (
        executions.delete(ended, ANN),
        executions.delete(held, ANN),
        executions.delete("nowhere", ANN),
        playbooks.delete("tests/loop", "1.0", ANN),
        playbooks.delete("tests/loop", None, ANN),
        credentials.put("shop", {"token": "hidden"}, ANN, reason=WHY),
        credentials.put("no name", {"token": "hidden"}, ANN, reason=WHY),
        credentials.rotate(ANN, WHY),
        credentials.delete("shop", ANN, WHY),
        credentials.delete("shop", ANN, WHY),
        access.revoke_token(token.id, ANN, WHY),
        access.revoke_token("nowhere", ANN, WHY),
        cluster.discard(first.id, ANN, WHY),
        cluster.discard(first.id, ANN, WHY),
        cluster.requeue(second.id, ANN, WHY),
        operations.grants.put(1, b"grants: []", ANN, WHY),
        operations.grants.put(3, b"grants: []", ANN, WHY),
        operations.grants.put(2, b"grants: 5", ANN, WHY),
    ):
        with contextlib.suppress(NoetlError):
            await work


async def entries(stage: GatewayStage) -> list[AuditEntry]:
    """Those of such changes, oldest first."""
    found = await stage.audit.page(1000, None, None)
    return [entry for entry in reversed(found) if entry.attempt.operation in AUDITED]


def summary_of(found: list[AuditEntry]) -> list[Any]:
    """Operation, target and answer of each, with ids numbered in the order they came."""
    numbers: dict[str, str] = {}
    return [
        (
            entry.attempt.operation,
            numbers.setdefault(entry.attempt.target, f"#{len(numbers)}")
            if entry.attempt.operation in WITH_IDS
            else entry.attempt.target,
            entry.answer,
        )
        for entry in found
    ]


async def test_a_change_leaves_the_same_entry_directly_and_over_http(stage: GatewayStage) -> None:
    await change_everything(stage, recorded(stage))
    directly = await entries(stage)
    async with GatewayStage(GatewayLimits()).open() as other:
        connection = GatewayConnection(other.url, TOKEN, other.clock)
        await change_everything(other, gateway_operations(connection))
        await connection.close()
        over_http = await entries(other)
    assert summary_of(directly) == summary_of(over_http)
    assert {entry.attempt.operation for entry in directly} == set(AUDITED)
    assert [entry.answer.status for entry in directly if entry.answer] == [
        204,
        409,
        404,
        204,
        404,
        200,
        422,
        200,
        204,
        404,
        204,
        404,
        204,
        409,
        200,
        200,
        412,
        422,
    ]
    done = [one for one in directly if one.attempt.operation in EXPLAINED and one.answer and one.answer.status < 300]
    assert len(done) == 7 and {one.answer.reason for one in done if one.answer} == {WHY}
    assert {entry.attempt.principal for entry in directly} == {ANN}
    assert {(entry.attempt.method, entry.attempt.role, entry.attempt.remote) for entry in directly} == {("", "", "")}
    assert {entry.attempt.principal for entry in over_http} == {"token:local"}


async def test_a_call_that_cannot_be_recorded_is_not_performed(
    stage: GatewayStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def begin(*_: Any) -> int:
        raise Unreachable("Postgres is away")

    credentials = recorded(stage).credentials
    await credentials.put("shop", {"token": "hidden"}, ANN)
    monkeypatch.setattr(stage.audit, "begin", begin)
    with pytest.raises(Unreachable):
        await credentials.delete("shop", ANN)
    assert [one.name for one in await credentials.list_all()] == ["shop"]


async def test_a_performed_call_whose_end_is_not_recorded_counts_as_done(
    stage: GatewayStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(*_: Any) -> None:
        raise Unreachable("Postgres is away")

    credentials = recorded(stage).credentials
    monkeypatch.setattr(stage.audit, "answer", answer)
    assert (await credentials.put("x" * 128, {"token": "hidden"}, "\ud800nn")).version == 1
    (entry,) = await entries(stage)
    assert (entry.attempt.principal, entry.attempt.target, entry.answer) == ("?nn", "x" * 128, None)


async def test_calls_refused_before_they_are_tried_are_recorded_too(stage: GatewayStage) -> None:
    with pytest.raises(UsageError):
        await recorded(stage).schedules.backfill("tests/nowhere", 2, 1, ANN, reason=WHY)
    [entry] = await stage.audit.page(10, None, None)
    assert (entry.attempt.operation, entry.attempt.target) == ("backfillSchedule", "tests/nowhere")
    assert entry.answer is not None and entry.answer.status == 422
