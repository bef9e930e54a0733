"""A call that is made again under its Idempotency-Key is done once, whatever dies in between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from gateway_playbooks import HELD
from gateway_stage import GatewayStage
from msgspec.structs import replace
from openapi_checks import Described

from noetl_stream.errors import Conflict, Unreachable
from noetl_stream.gateway.http.idempotency import FORGET_EVERY_S, KEPT_S, REPLAYED, IdempotentCalls
from noetl_stream.ports.operations.executions import RequestIds, Start
from noetl_stream.settings.gateway_settings import GatewayLimits

KEY = {"Idempotency-Key": "key-1"}
WANTED = {"playbook": HELD}


async def executions(api: Described) -> list[str]:
    return [one["execution_id"] for one in (await api.call("listExecutions")).body["items"]]


async def test_a_repeated_start_starts_nothing_and_gets_the_same_answer(api: Described) -> None:
    first = await api.call("startExecution", headers=KEY, body=WANTED)
    again = await api.call("startExecution", headers=KEY, body=WANTED)
    assert (again.status, again.body) == (first.status, first.body)
    assert again.headers["Location"] == first.headers["Location"]
    assert (REPLAYED in first.headers, again.headers[REPLAYED]) == (False, "true")
    assert await executions(api) == [first.body["execution_id"]]


@pytest.mark.parametrize(
    "other", [{"body": {**WANTED, "workload": {"x": 1}}}, {"query": {"wait": "1s"}, "body": WANTED}]
)
async def test_a_key_is_for_one_request_only(api: Described, other: dict[str, Any]) -> None:
    await api.call("startExecution", headers=KEY, body=WANTED)
    reused = await api.call("startExecution", headers=KEY, **other)
    assert (reused.status, reused.body["type"]) == (422, "/problems/key-reused")
    assert len(await executions(api)) == 1


async def test_calls_at_once_under_one_key_are_one(api: Described) -> None:
    answers = await asyncio.gather(*(api.call("startExecution", headers=KEY, body=WANTED) for _ in range(8)))
    assert len({str(answered.body) for answered in answers}) == 1
    assert len(await executions(api)) == 1


async def test_a_call_that_must_not_be_repeated_is_waited_for() -> None:
    stage = GatewayStage(GatewayLimits())
    handled = 0

    class Slow:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        async def create_token(self, *given: Any) -> Any:
            nonlocal handled
            handled += 1
            made = await real.create_token(*given)
            for _ in range(50):
                await asyncio.sleep(0)
            return made

    real: Any = stage.operations.access
    slow: Any = Slow()
    stage.operations = replace(stage.operations, access=slow)
    async with stage.open():
        api = await Described.read(stage.client)
        calls = (api.call("createToken", headers=KEY, body={"name": "ci", "role": "viewer"}) for _ in range(3))
        answers = await asyncio.gather(*calls)
    assert ([answered.status for answered in answers], handled) == ([201] * 3, 1)
    assert sum("secret" in answered.body for answered in answers) == 1


async def test_a_refusal_is_repeated_as_it_was(api: Described) -> None:
    held = (await api.call("startExecution", body=WANTED)).body["execution_id"]
    refused = await api.call("injectToken", headers=KEY, execution_id=held, body={"step": "nowhere"})
    again = await api.call("injectToken", headers=KEY, execution_id=held, body={"step": "nowhere"})
    assert (again.status, again.body, again.headers[REPLAYED]) == (refused.status, refused.body, "true")


async def test_a_call_whose_gateway_died_is_repeated_with_the_same_ids() -> None:
    stage = GatewayStage(GatewayLimits())
    real = stage.operations.executions
    drawn: list[RequestIds | None] = []

    async def start(wanted: Start, by: str, ids: RequestIds | None = None) -> Any:
        drawn.append(ids)
        started = await real.start(wanted, by, ids)
        if len(drawn) == 1:
            raise Unreachable("the gateway dies after the request is committed")
        return started

    stage.replace(start=start)
    async with stage.open():
        api = await Described.read(stage.client)
        assert (await api.call("startExecution", headers=KEY, body=WANTED)).status == 503
        again = await api.call("startExecution", headers=KEY, body=WANTED)
        assert again.status == 202
        assert REPLAYED not in again.headers
        assert await executions(api) == [again.body["execution_id"]]
    assert drawn[0] == drawn[1] is not None


async def test_an_intervention_is_done_once(api: Described) -> None:
    held = (await api.call("startExecution", body=WANTED)).body["execution_id"]
    for _ in range(2):
        await api.call("patchCtx", headers=KEY, execution_id=held, body={"seen": 1})
    history = (await api.call("getCtx", execution_id=held)).body["history"]
    assert [change["keys"] for change in history] == [["seen"]]


async def test_an_invalid_key_is_refused(api: Described) -> None:
    for key in ("with space", "x" * 129, "ü"):
        refused = await api.call("startExecution", headers={"Idempotency-Key": key}, body=WANTED)
        assert (refused.status, refused.body["errors"][0]["parameter"]) == (400, "Idempotency-Key")


async def test_an_answer_is_given_even_if_it_cannot_be_kept() -> None:
    stage = GatewayStage(GatewayLimits())

    async def away(*_: Any) -> Any:
        raise Unreachable("postgres is away")

    idempotency: Any = stage.idempotency
    idempotency.finish = away
    async with stage.open():
        api = await Described.read(stage.client)
        assert (await api.call("startExecution", headers=KEY, body=WANTED)).status == 202


async def test_a_secret_is_not_kept_with_the_answer(api: Described) -> None:
    body = {"name": "ci", "role": "viewer"}
    first = await api.call("createToken", headers=KEY, body=body)
    again = await api.call("createToken", headers=KEY, body=body)
    assert first.body == {**again.body, "secret": first.body["secret"]}
    assert "secret" not in again.body
    listed = (await api.call("listTokens")).body["items"]
    assert [one["name"] for one in listed] == ["local", "ci"]


async def test_old_keys_are_forgotten_now_and_then(stage: GatewayStage) -> None:
    handled: list[float] = []
    twice = asyncio.Event()

    class Forgetful:
        async def forget(self, older_than_s: float) -> int:
            handled.append(older_than_s)
            if len(handled) == 2:
                twice.set()
            raise Conflict("not now")

    class Quick:
        async def sleep(self, seconds: float) -> None:
            assert seconds == FORGET_EVERY_S
            await asyncio.sleep(0)

    forgetful: Any = Forgetful()
    quick: Any = Quick()
    forgetting = asyncio.create_task(IdempotentCalls(forgetful, quick).forget_old())
    await twice.wait()
    forgetting.cancel()
    assert handled[:2] == [KEPT_S, KEPT_S]
