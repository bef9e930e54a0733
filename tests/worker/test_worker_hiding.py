"""What a worker reads itself is hidden in the execution by the servers, before a task gets it (LANGUAGE §11)."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from keychain_stage import OWN, READS, Vault, failure_of, inputs_read
from worker_stage import EXECUTION, Stage

from noetl_stream.model.json.codec import decode_hide_question
from noetl_stream.sealing.data_references import Column
from noetl_stream.tools.contract import ToolCall
from noetl_stream.worker.secrets.keychain import find_stored

SECRET = "s3cret-value"
OTHER = "execution-2"

Prepared = Callable[[Vault, Path, pytest.MonkeyPatch], str]
"""Puts the secret where a worker reads it, and returns what the entry of the keychain says."""


def variable(_vault: Vault, _folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("KEYCHAIN_TEST", SECRET)
    return "env, variable: KEYCHAIN_TEST"


def file(_vault: Vault, folder: Path, _monkeypatch: pytest.MonkeyPatch) -> str:
    (folder / "token").write_text(SECRET)
    return f"file, path: {folder / 'token'}"


def own(_vault: Vault, _folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(OWN, "mine", SECRET)
    return "credential, credential: mine"


OF_THE_WORKER = pytest.mark.parametrize("prepared", [variable, file, own])


@OF_THE_WORKER
async def test_a_secret_is_hidden_before_a_task_gets_it_and_once_for_each_execution(
    vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepared: Prepared
) -> None:
    steps = READS % prepared(vault, tmp_path, monkeypatch)
    shown: list[str] = []

    async def act(call: ToolCall) -> None:
        shown.append(await vault.shown(f"it is {SECRET}", call.execution_id))

    vault.stage.puppet.acts["read"] = act
    for execution_id in (EXECUTION, EXECUTION, OTHER, OTHER):
        await vault.run(steps, execution_id=execution_id)
    assert shown == ["it is ***"] * 4
    assert len(vault.hidden) == 2
    assert await vault.shown(f"it is {SECRET}", "execution-3") == f"it is {SECRET}"


@OF_THE_WORKER
async def test_a_secret_is_sealed_on_its_way(
    vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepared: Prepared
) -> None:
    await vault.run(READS % prepared(vault, tmp_path, monkeypatch))
    said = b"".join(vault.said)
    assert vault.hidden
    assert SECRET.encode() not in said and base64.b64encode(SECRET.encode()) not in said


async def test_a_secret_cached_for_a_playbook_is_hidden_in_each_execution_that_uses_it(vault: Vault) -> None:
    await vault.keeper.put("entry", SECRET, "ann")
    for execution_id in (EXECUTION, OTHER, OTHER):
        await vault.run(READS % "credential, scope: global", execution_id=execution_id)
    assert vault.lookups == ["entry"]
    assert vault.hidden == ["entry"], "who handed it out hides it in the first"
    assert await vault.shown(SECRET) == await vault.shown(SECRET, OTHER) == "***"
    await vault.keeper.put("entry", "another value", "ann")
    assert await vault.shown(SECRET, OTHER) == "***"


async def test_a_former_value_that_is_still_kept_is_hidden_too(vault: Vault) -> None:
    await vault.keeper.put("entry", SECRET, "ann")
    await vault.run(READS % "credential, scope: global")
    await vault.keeper.put("entry", "another value", "ann")
    await vault.run(READS % "credential, scope: global", execution_id=OTHER)
    assert inputs_read(vault) == [SECRET] * 2
    assert await vault.shown(SECRET, OTHER) == "***"


async def test_a_secret_handed_out_for_the_execution_needs_no_question(vault: Vault) -> None:
    await vault.keeper.put("entry", SECRET, "ann")
    for entry in ("credential", "credential, credential: local_postgres"):
        await vault.run(READS % entry)
        await vault.run(READS % entry)
    assert vault.said == []
    assert await vault.shown(f"{SECRET} offered-value") == "*** ***"


async def test_a_worker_asks_nothing_without_a_secret(vault: Vault) -> None:
    await vault.run("- step: start\n  tool: {kind: puppet}\nkeychain:\n- {name: entry, kind: env, variable: HOME}\n")
    assert vault.said == vault.lookups == []


async def test_concurrent_tasks_hide_a_secret_once(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = "  loop: {in: [1, 2, 3, 4], iterator: n, spec: {mode: parallel, exec: local}}\n"
    steps = (READS % variable(vault, Path(), monkeypatch)).replace("  tool:\n", f"{loop}  tool:\n")
    plan = vault.stage.plan(steps)
    await vault.stage.issue(vault.stage.command(plan, items=[1, 2, 3, 4], max_in_flight=4))
    await vault.stage.soon(lambda: "loop.done" in vault.stage.names)
    assert inputs_read(vault) == [SECRET] * 4
    assert vault.hidden == ["entry"]


async def test_a_new_value_is_hidden_too(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("first value", "second value"):
        monkeypatch.setenv("KEYCHAIN_TEST", value)
        await vault.run(READS % "env, variable: KEYCHAIN_TEST")
    assert await vault.shown("first value, second value") == "***, ***"


async def test_the_key_of_a_server_serves_until_another_answers(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    sealed = []
    for value in ("first value", "second value", "third value"):
        monkeypatch.setenv("KEYCHAIN_TEST", value)
        await vault.run(READS % "env, variable: KEYCHAIN_TEST")
        sealed.append([bool(decode_hide_question(body).body) for body in vault.said])
        vault.said.clear()
        if value == "second value":
            vault.restart()
    assert sealed == [[False, True], [True], [True, True]]
    assert await vault.shown("first value, second value, third value") == "***, ***, ***"


async def test_a_task_does_not_get_what_servers_refuse_to_hide(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    vault.refusal = "command command-1 has ended"
    steps = READS % variable(vault, Path(), monkeypatch)
    [processed] = await vault.run(steps)
    error = failure_of(processed)
    assert error.kind == "credential"
    assert error.message == "keychain.entry: what 'entry' holds cannot be hidden: command command-1 has ended"
    assert vault.stage.puppet.calls == []
    vault.refusal = ""
    await vault.run(steps)
    assert inputs_read(vault) == [SECRET]


async def test_a_worker_that_is_closed_waits_for_no_answer(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYCHAIN_TEST", SECRET)
    worker = await stage.start(credentials=OWN, secrets=find_stored)
    await stage.issue(stage.command(stage.plan(READS % "env, variable: KEYCHAIN_TEST")))
    await stage.settle()
    await worker.close()
    assert stage.puppet.calls == []


async def test_the_name_of_a_file_and_of_a_column_hides_what_a_task_read(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEYCHAIN_TEST", SECRET)

    async def pieces() -> AsyncIterator[bytes]:
        yield b"1"

    async def act(call: ToolCall) -> dict[str, Any]:
        file = await call.data.save(pieces(), name=f"{SECRET}.csv")
        table = await call.data.save(pieces(), columns=[Column(f"of {SECRET}", "BIGINT")], rows=1)
        return {f"{SECRET}.csv": file, "table": table, "again": await again(call, file)}

    async def again(call: ToolCall, file: dict[str, Any]) -> int:
        reference = call.data.reference(file)
        assert reference is not None
        return len([part async for part in call.data.read(reference)])

    vault.stage.puppet.acts["read"] = act
    await vault.start()
    [done] = await vault.run(READS % "env, variable: KEYCHAIN_TEST")
    assert [one.name for one in (*done.outcome.written, *done.outcome.read)] == ["***.csv", "", "***.csv"]
    assert done.outcome.written[1].columns == (Column("of ***", "BIGINT"),)
    assert SECRET not in repr(vault.stage.facts)
