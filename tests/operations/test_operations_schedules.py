"""Schedules as people use them: registered with the catalog, in the name of someone who may start (LANGUAGE §15)."""

from __future__ import annotations

from typing import Any

import pytest
from operations_stage import OperationsStage

from noetl_stream.errors import Conflict, Forbidden, NotFound, UsageError
from noetl_stream.operations.playbooks import entry_of
from noetl_stream.playbook.compile.compiler import check_document
from noetl_stream.ports.stores.identities import StoredToken
from noetl_testkit.simulation.work import playbook, work

ADA, OPERATOR = "token:ada", "someone"
FLOW = playbook("flow", [{"step": "start", "tool": work(1)}])
PATH = "team/often"


def schedule(**spec: Any) -> bytes:
    more = "".join(f", {key}: {value}" for key, value in {"every": "1m", **spec}.items())
    head = "apiVersion: noetl.io/v2\nkind: Schedule\nmetadata: { name: often, path: team/often }\n"
    return f"{head}spec: {{ playbook: simulation/flow{more} }}\n".encode()


async def token(stage: OperationsStage, role: Any = "author", paths: tuple[str, ...] = (), name: str = "ada") -> None:
    """Gives the caller a token; one that it had is revoked."""
    await stage.tokens.revoke(name, 1, "admin")
    taken = len(await stage.tokens.list_all())
    await stage.tokens.revoke(f"{name}-{taken - 1}", 1, "admin")
    assert await stage.tokens.add(StoredToken(f"{name}-{taken}", name, role, paths, b"", 1, "admin"))


async def begun(stage: OperationsStage) -> None:
    """Registers a playbook to start."""
    await stage.playbooks.register(FLOW.encode(), "flow.yaml", OPERATOR)


async def statuses(stage: OperationsStage) -> list[str]:
    return [one.status for one in (await stage.schedules.history(PATH, 100, None)).items]


async def test_a_check_says_whether_the_playbook_is_registered(stage: OperationsStage) -> None:
    checked = await stage.playbooks.check(schedule(), "file.yaml")
    assert (checked.ok, checked.path) == (True, PATH)
    assert [(one.severity, one.code) for one in checked.diagnostics] == [("warning", "unregistered_playbook")]
    await stage.playbooks.register(FLOW.encode(), "flow.yaml", OPERATOR)
    assert (await stage.playbooks.check(schedule(), "file.yaml")).diagnostics == []


async def test_a_schedule_that_no_server_would_start_is_not_registered(stage: OperationsStage) -> None:
    await begun(stage)
    for spec, error in (({"version": "'7'"}, "flow@7 is not registered"),):
        with pytest.raises(UsageError, match=error):
            await stage.playbooks.register(schedule(**spec), "file.yaml", OPERATOR)
    assert [one.path for one in (await stage.playbooks.page("", {}, 10, None)).items] == ["simulation/flow"]


async def test_a_caller_without_the_right_to_start_a_playbook_registers_no_schedule_of_it(
    stage: OperationsStage,
) -> None:
    await begun(stage)
    with pytest.raises(Forbidden, match="token:ada is revoked or has expired"):
        await stage.playbooks.register(schedule(), "file.yaml", ADA)
    await token(stage, "viewer")
    with pytest.raises(Forbidden, match="has role viewer"):
        await stage.playbooks.register(schedule(), "file.yaml", ADA)
    await token(stage, "author", ("team",))
    with pytest.raises(Forbidden, match="has no access to simulation/flow"):
        await stage.playbooks.register(schedule(), "file.yaml", ADA)
    with pytest.raises(Forbidden, match="with an API token"):
        await stage.playbooks.register(schedule(), "file.yaml", "oidc:ada@example.com")
    await token(stage, "author", ("team", "simulation"))
    await stage.playbooks.register(schedule(), "file.yaml", ADA)
    assert (await stage.schedules.get(PATH)).registered_by == ADA


@pytest.mark.parametrize("role, paths", [(None, ()), ("viewer", ()), ("author", ("team",))])
async def test_a_schedule_is_paused_when_who_registered_it_loses_the_right(
    stage: OperationsStage, role: Any, paths: tuple[str, ...]
) -> None:
    await begun(stage)
    await token(stage)
    await stage.playbooks.register(schedule(), "file.yaml", ADA)
    await stage.clock.sleep(61)
    if role is None:
        await stage.tokens.revoke("ada-0", 1, "admin")
    else:
        await token(stage, role, paths)
    await stage.clock.sleep(120)
    found = await stage.schedules.get(PATH)
    assert found.paused is not None and found.paused.reason.startswith("token:ada ")
    assert (found.next, await statuses(stage)) == (None, ["skipped", "completed"])
    with pytest.raises(Forbidden, match="token:ada"):
        await stage.schedules.resume(PATH, OPERATOR)
    await token(stage)
    await stage.schedules.resume(PATH, OPERATOR)
    await stage.clock.sleep(61)
    assert await statuses(stage) == ["completed", "skipped", "completed"]


async def test_a_deleted_playbook_is_skipped_with_the_reason(stage: OperationsStage) -> None:
    await begun(stage)
    await stage.playbooks.register(schedule(), "file.yaml", OPERATOR)
    await stage.playbooks.delete("simulation/flow", None, OPERATOR)
    await stage.clock.sleep(61)
    [occurrence] = (await stage.schedules.history(PATH, 10, None)).items
    assert (occurrence.status, occurrence.reason) == ("skipped", "playbook simulation/flow is not registered")


async def test_an_execution_says_which_schedule_has_started_it(stage: OperationsStage) -> None:
    await begun(stage)
    await stage.playbooks.register(schedule(), "file.yaml", OPERATOR)
    triggered = await stage.schedules.run_now(PATH, OPERATOR)
    started = await stage.executions.get(str(triggered.execution_id))
    assert started.origin is not None
    assert (started.origin.kind, started.origin.path, started.origin.number) == ("schedule", PATH, triggered.number)
    assert started.principal == OPERATOR


async def test_a_schedule_that_changes_keeps_its_state(stage: OperationsStage) -> None:
    await begun(stage)
    await stage.playbooks.register(schedule(), "file.yaml", OPERATOR)
    await stage.clock.sleep(61)
    await stage.schedules.pause(PATH, OPERATOR, "a break")
    await stage.playbooks.register(schedule(every="2h"), "file.yaml", OPERATOR)
    found = await stage.schedules.get(PATH)
    assert (found.revision, found.timetable.every_s, found.occurrences) == (2, 7200, 1)
    assert found.paused is not None and found.paused.reason == "a break"


async def test_a_schedule_is_deleted_with_all_versions_of_its_document(stage: OperationsStage) -> None:
    await begun(stage)
    await stage.playbooks.register(schedule(), "file.yaml", OPERATOR)
    with pytest.raises(Conflict, match="would not stop it"):
        await stage.playbooks.delete(PATH, None, OPERATOR)
    await stage.schedules.delete(PATH, OPERATOR)
    for gone in (stage.schedules.get(PATH), stage.playbooks.get(PATH, None), stage.schedules.run_now(PATH, OPERATOR)):
        with pytest.raises(NotFound):
            await gone
    await stage.playbooks.register(schedule(), "file.yaml", OPERATOR)
    assert (await stage.schedules.get(PATH)).occurrences == 0


async def test_a_document_whose_registration_broke_off_is_deleted_as_a_schedule(stage: OperationsStage) -> None:
    text = schedule().decode()
    document = check_document(text, {}).document
    assert document is not None
    await stage.catalog.register(entry_of(text, document, registered_ms=1, registered_by=ADA), text)
    with pytest.raises(NotFound):
        await stage.schedules.get(PATH)
    await stage.schedules.delete(PATH, OPERATOR)
    with pytest.raises(NotFound):
        await stage.playbooks.get(PATH, None)
    with pytest.raises(NotFound):
        await stage.schedules.delete(PATH, OPERATOR)


async def test_only_paths_of_schedules_are_paths_of_schedules(stage: OperationsStage) -> None:
    await begun(stage)
    with pytest.raises(NotFound, match="no schedule"):
        await stage.schedules.get("simulation/flow")
    with pytest.raises(UsageError, match="ends before it begins"):
        await stage.schedules.backfill(PATH, 5, 5, OPERATOR)
