"""A secret that an execution was given stays hidden in all of it after its credential was changed or deleted."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from operations_stage import BY, OperationsStage
from shown_stage import ECHO, SECRET, Showing

from noetl_stream.model.events import CtxPatched
from noetl_stream.model.json import codec
from noetl_stream.operations.access import DirectCredentials
from noetl_stream.ports.operations.executions import Start
from noetl_stream.ports.stores.credentials import SealedValue, given_name
from noetl_stream.sealing.keys import KeyRing, encrypt, new_key, read_key
from noetl_testkit.simulation.work import playbook, then, work

TELLS = playbook(
    "tells",
    [
        {
            "step": "say",
            "tool": {
                "name": "tell",
                **work("{{ workload.typed }}"),
                "spec": {
                    "policy": {
                        "rules": [{"else": {"then": {"do": "continue", "set_ctx": {"said": "{{ outcome.result }}"}}}}]
                    }
                },
            },
            "next": then("call"),
        },
        {
            "step": "call",
            "tool": {
                "name": "child",
                "kind": "playbook",
                "path": "simulation/echo",
                "args": {"typed": "{{ workload.typed }}"},
            },
            "next": then("ear"),
        },
        {"step": "ear", "tool": {"name": "hear", "kind": "wait", "signal": "go", "timeout_s": 60}},
    ],
    workload={"typed": ""},
)
"""What a person typed is in its workload, a result, ``ctx`` and the result of a child."""

Change = Callable[[DirectCredentials], Awaitable[None]]


async def changed(credentials: DirectCredentials) -> None:
    await credentials.put("pg", "another value", BY)


async def changed_often(credentials: DirectCredentials) -> None:
    for number in range(5):
        await credentials.put("pg", f"another value {number}", BY)


async def deleted(credentials: DirectCredentials) -> None:
    await credentials.delete("pg", BY)


async def deleted_and_set_again(credentials: DirectCredentials) -> None:
    await credentials.delete("pg", BY)
    await changed(credentials)


CHANGES: tuple[Change, ...] = (changed, changed_often, deleted, deleted_and_set_again)


@pytest.fixture
async def showing() -> AsyncIterator[Showing]:
    stage = OperationsStage()
    await stage.begin()
    made = Showing(stage)
    await DirectCredentials(made.credentials, made.keys).put("pg", SECRET, BY)
    yield made
    await stage.close()


async def told(showing: Showing, *, give: bool = True) -> str:
    """An execution in which somebody typed the credential wherever one can, and that was given it if ``give``."""
    await showing.stage.playbooks.register(ECHO.encode(), "echo", BY)
    started = await showing.executions.start(Start(playbook=TELLS, workload={"typed": f"it is {SECRET}"}), BY)
    execution_id = started.execution_id
    await showing.stage.ask(execution_id, CtxPatched, patch={"note": SECRET})
    await showing.executions.wait(execution_id, 3600)
    assert (await showing.everything_of(execution_id)).count(SECRET) > 6
    if give:
        await showing.give(execution_id)
    return execution_id


@pytest.mark.parametrize("change", CHANGES)
async def test_a_former_secret_is_hidden_everywhere(
    showing: Showing, change: Change, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="noetl_stream.operations")
    execution_id = await told(showing)
    before = await showing.everything_of(execution_id)
    assert SECRET not in before
    await change(DirectCredentials(showing.credentials, showing.keys))
    assert await showing.everything_of(execution_id) == before
    assert SECRET not in caplog.text


async def test_a_secret_read_by_a_worker_is_hidden_after_its_key_was_rotated_and_forgotten(
    showing: Showing,
) -> None:
    execution_id = await told(showing, give=False)
    name = given_name("worker-default", "token", "mark")
    value = SealedValue(name, 1, *encrypt(showing.keys, name, 1, codec.encode(SECRET)))
    await showing.credentials.record_given(execution_id, value)
    before = await showing.everything_of(execution_id)
    assert SECRET not in before
    new = read_key(new_key(), "a test")
    await DirectCredentials(showing.credentials, KeyRing(new, showing.keys.all)).rotate(BY)
    showing.use(KeyRing(new))
    assert await showing.everything_of(execution_id) == before


@pytest.mark.parametrize("change", CHANGES)
async def test_a_former_secret_is_hidden_after_its_key_was_rotated_and_forgotten(
    showing: Showing, change: Change
) -> None:
    execution_id = await told(showing)
    before = await showing.everything_of(execution_id)
    await change(DirectCredentials(showing.credentials, showing.keys))
    new = read_key(new_key(), "a test")
    rotated = await DirectCredentials(showing.credentials, KeyRing(new, showing.keys.all)).rotate(BY)
    assert rotated.problems == []
    showing.use(KeyRing(new))
    assert await showing.everything_of(execution_id) == before
