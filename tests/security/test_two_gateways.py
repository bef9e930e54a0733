"""One Idempotency-Key at two gateways, and a gateway that dies before it answers: done once, nothing lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from gateway_playbooks import HELD
from gateway_stage import GatewayStage
from msgspec.structs import replace
from openapi_checks import Described

from noetl_stream.errors import Unreachable
from noetl_stream.ports.operations.access import NewToken
from noetl_stream.settings.gateway_settings import GatewayLimits

KEY = {"Idempotency-Key": "key-1"}
CI = {"name": "ci", "role": "viewer"}


class Interrupted:
    """The operations on tokens; ``after_making`` is awaited when a token is made and not answered yet."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.after_making: Any = asyncio.sleep

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def create_token(self, *given: Any) -> Any:
        made = await self._real.create_token(*given)
        await self.after_making(0)
        return made


@pytest.fixture
async def gateways() -> AsyncIterator[tuple[GatewayStage, GatewayStage]]:
    """Two gateways over one store, the first with :class:`Interrupted` operations."""
    one, other = GatewayStage(GatewayLimits()), GatewayStage(GatewayLimits())
    interrupted: Any = Interrupted(one.operations.access)
    one.operations = replace(one.operations, access=interrupted)
    other.tokens, other.idempotency = one.tokens, one.idempotency
    other.operations = other.own_operations()
    async with AsyncExitStack() as opening:
        for stage in (one, other):
            await opening.enter_async_context(stage.open())
        yield one, other


async def names(api: Described) -> list[str]:
    return [one["name"] for one in (await api.call("listTokens")).body["items"]]


async def opens(stage: GatewayStage, secret: str) -> bool:
    async with stage.client.get("/api/v1/me", headers={"Authorization": f"Bearer {secret}"}) as response:
        return response.status == 200


async def test_two_gateways_make_one_token_and_both_answer_with_it(gateways: tuple[GatewayStage, GatewayStage]) -> None:
    one, other = gateways
    made, answered = asyncio.Event(), asyncio.Event()

    async def until_the_other_has_answered(_: float) -> None:
        made.set()
        await answered.wait()

    interrupted: Any = one.operations.access
    interrupted.after_making = until_the_other_has_answered
    first, second = await Described.read(one.client), await Described.read(other.client)
    asking = asyncio.create_task(first.call("createToken", headers=KEY, body=CI))
    await made.wait()
    at_the_other = await second.call("createToken", headers=KEY, body=CI)
    answered.set()
    at_the_first = await asking
    assert (at_the_first.status, at_the_other.status) == (201, 201)
    assert at_the_first.body == at_the_other.body
    assert await names(first) == ["local", "ci"]
    assert await opens(one, at_the_first.body["secret"])


async def test_a_token_whose_gateway_died_before_it_answered_is_answered_by_another(
    gateways: tuple[GatewayStage, GatewayStage],
) -> None:
    one, other = gateways

    async def die(_: float) -> None:
        raise Unreachable("the gateway dies after the token is made")

    interrupted: Any = one.operations.access
    interrupted.after_making = die
    first, second = await Described.read(one.client), await Described.read(other.client)
    assert (await first.call("createToken", headers=KEY, body=CI)).status == 503
    assert await names(first) == ["local", "ci"]
    again = await second.call("createToken", headers=KEY, body=CI)
    assert again.status == 201
    assert await names(second) == ["local", "ci"]
    assert await opens(other, again.body["secret"])
    replayed = await second.call("createToken", headers=KEY, body=CI)
    assert (replayed.body["id"], "secret" in replayed.body) == (again.body["id"], False)


async def test_another_token_of_the_same_name_gets_no_answer_of_the_first(stage: GatewayStage) -> None:
    """A name is free again when its token is revoked; what was done under its keys is not the new owner's."""
    api = await Described.read(stage.client)
    access = stage.operations.access
    started = []
    for _ in range(2):
        made = await access.create_token(NewToken("ci", "author"), "test")
        headers = KEY | {"Authorization": f"Bearer {made.secret}"}
        started.append((await api.call("startExecution", headers=headers, body={"playbook": HELD})).body)
        await access.revoke_token(made.id, "test")
    assert started[0]["execution_id"] != started[1]["execution_id"]
    assert {one["principal"] for one in started} == {"token:ci"}


@pytest.fixture
async def stage() -> AsyncIterator[GatewayStage]:
    async with GatewayStage(GatewayLimits()).open() as opened:
        yield opened
