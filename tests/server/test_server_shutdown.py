"""A server that would leave is silent first, so that nobody relies on one that is about to go."""

from __future__ import annotations

import asyncio

import pytest
from server_stage import Stage

from noetl_stream.hosting import role_processes as roles
from noetl_stream.hosting.background import can_exit
from noetl_stream.protocol import subjects
from noetl_testkit.waiting import TIMEOUT_S


async def is_answered(stage: Stage) -> bool:
    return await stage.broker.bus.ask(subjects.PING, b"", 1) is not None


@pytest.mark.parametrize("somebody_came", [False, True])
async def test_a_server_leaves_only_if_no_request_came_while_it_answered(stage: Stage, somebody_came: bool) -> None:
    server = await stage.server()
    assert await is_answered(stage)
    assert await can_exit(server, lambda: somebody_came) is not somebody_came
    assert await is_answered(stage) is somebody_came


async def test_a_server_that_stays_answers_everything_again(stage: Stage) -> None:
    server = await stage.server()
    for _ in range(2):
        assert not await can_exit(server, lambda: True)
    known = await stage.broker.bus.ask(subjects.ask_request("execution-1", "request-1"), b"", 1)
    assert known == b'{"known":false}'


async def test_a_server_whose_store_is_silent_ends_without_waiting_for_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _, running = stage.start_server()
    await stage.until(lambda: len(server.ownership) > 0)
    stage.store.silent = True
    monkeypatch.setattr(roles, "STOP_S", 0.01)
    async with asyncio.timeout(TIMEOUT_S):
        await roles.end_server(server, running)
    assert running.cancelled()


async def test_a_server_whose_store_answers_releases_what_it_owns(stage: Stage) -> None:
    server, _, running = stage.start_server()
    await stage.until(lambda: len(server.ownership) > 0)
    await roles.end_server(server, running)
    assert set(await stage.owners()) == {None}
