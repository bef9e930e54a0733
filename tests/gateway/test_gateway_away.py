"""A store that is away, or has lost what it held, is never answered as if what a call asks for did not exist."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from gateway_playbooks import LOOP
from gateway_stage import GatewayStage
from openapi_checks import Described
from yarl import URL

from noetl_stream.errors import Unreachable
from noetl_stream.gateway.gateway import RESOURCES
from noetl_stream.operations.executions import submit
from noetl_stream.settings.gateway_settings import GatewayLimits

NEED_NO_POSTGRES = {"checkPlaybook", "getSchema", "listWorkers", "listPools", "examine", "listStorage", "signOut"}
"""They answer what they can, or say of the store that it is away."""

OWN_STORES = {"listTokens", "createToken", "revokeToken", "listAudit", "checkAudit", "me", "createSignInCode"}
"""Access is decided by these, which are not away here."""

NEED_NATS = (
    "startExecution cancelExecution pauseExecution resumeExecution deleteExecution listLogs listWorkers listPools"
)

REFUSED_UNASKED = {400, 403, 415, 422}


def take_away(*ports: Any) -> None:
    """Makes every method of these ports fail, as if their store were away."""

    async def away(*_: Any, **__: Any) -> Any:
        raise Unreachable("the store is away")

    for port in ports:
        for name, _ in inspect.getmembers(port, inspect.iscoroutinefunction):
            if not name.startswith("_"):
                setattr(port, name, away)


class Known:
    """A gateway's API, an execution that has ended, and its playbook, which is registered."""

    def __init__(self, stage: GatewayStage, api: Described, named: dict[str, Any]) -> None:
        self.stage, self.api, self.named = stage, api, named

    @classmethod
    async def of(cls, stage: GatewayStage) -> Known:
        api = await Described.read(stage.client)
        execution = (await api.call("startExecution", query={"wait": "60s"}, body={"playbook": LOOP})).body
        playbook = (await api.call("registerPlaybook", body=LOOP, media="application/yaml")).body
        execution_id = execution["execution_id"]
        run = (await api.call("listSteps", execution_id=execution_id)).body["items"][0]
        return cls(stage, api, {**run, **playbook, "execution_id": execution_id, "other": execution_id})

    async def answer(self, operation_id: str) -> int:
        """The status of a call, after a look at when it says to try again."""
        method, template, operation = self.api.operations[operation_id]
        names = [one["name"] for one in operation["parameters"] if one["in"] == "path"]
        given = {name: str(self.named.get(name, "1")).replace("/", "%2F") for name in names}
        body = {"path": self.named["path"]} if operation_id == "startExecution" else {}
        url = URL(template.format(**given), encoded=True)
        async with self.stage.client.request(method, url, json=body) as answer:
            assert ("Retry-After" in answer.headers) is (answer.status == 503)
            return answer.status


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes requests to servers fail soon, once called."""

    def be_impatient() -> None:
        monkeypatch.setattr(submit, "ANSWER_WAIT_S", 0.01)
        monkeypatch.setattr(submit, "PATIENCE_S", 0.05)

    return be_impatient


async def test_a_postgres_that_is_away_is_never_not_found(impatient: Callable[[], None]) -> None:
    stage, away = GatewayStage(GatewayLimits()), 0
    async with stage.open():
        known = await Known.of(stage)
        impatient()
        take_away(stage.store, stage.store.dead_letters, stage.catalog, stage.credentials, stage.grants)
        for operation in (route.operation for route in RESOURCES if not route.streams):
            if operation not in OWN_STORES:
                status = await known.answer(operation)
                assert status == 503 or status in REFUSED_UNASKED or operation in NEED_NO_POSTGRES, operation
                away += status == 503
    assert away > 60


async def test_a_nats_that_is_away_is_never_not_found(impatient: Callable[[], None]) -> None:
    stage = GatewayStage(GatewayLimits())
    async with stage.open():
        known = await Known.of(stage)
        impatient()
        broker = stage.broker
        take_away(broker.event_log, broker.bus, broker.blobs, broker.task_logs, broker.command_queue)
        answers = {operation: await known.answer(operation) for operation in NEED_NATS.split()}
        assert answers == dict.fromkeys(NEED_NATS.split(), 503)


async def test_a_start_that_was_accepted_and_then_lost_by_postgres_is_not_not_found() -> None:
    stage = GatewayStage(GatewayLimits())
    async with stage.open():
        known = await Known.of(stage)

        async def lost(_: str) -> None:
            return None

        stage.store.execution = lost  # type: ignore[method-assign,assignment]
        assert await known.answer("startExecution") == 503
