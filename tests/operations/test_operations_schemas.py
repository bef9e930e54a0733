"""``kind: Schema`` in the catalog, and the executions that are pinned to it (LANGUAGE §10, §15)."""

from __future__ import annotations

import pytest
from operations_stage import BY, OperationsStage

from noetl_stream.errors import Conflict, NotFound, PlaybookRefused
from noetl_stream.model.events import ExecutionStarted
from noetl_stream.model.ids import digest_of
from noetl_stream.model.json import codec
from noetl_stream.ports.operations.executions import RerunOptions, Start
from noetl_testkit.simulation.work import playbook, then, work

SCHEMA = """
apiVersion: noetl.io/v2
kind: Schema
metadata: { name: count, path: schemas/count, version: '%s' }
spec: { type: %s }
"""
NUMBER, TEXT = SCHEMA % ("1", "integer"), SCHEMA % ("2", "string")
RESULT = {"result": {"schema": {"path": "schemas/count", "version": "1"}}}
FLOW = playbook("flow", [{"step": "start", "tool": {**work("{{ workload.n }}"), "spec": RESULT}}], workload={"n": 1})
LATEST = FLOW.replace(', "version": "1"', "")


async def register(stage: OperationsStage, *sources: str) -> None:
    for source in sources:
        await stage.playbooks.register(source.encode(), "file.yaml", BY)


async def test_a_schema_is_registered_listed_and_shown_like_a_playbook(stage: OperationsStage) -> None:
    checked = await stage.playbooks.check(NUMBER.encode(), "file.yaml")
    assert (checked.ok, checked.path, checked.version) == (True, "schemas/count", "1")
    await register(stage, NUMBER, FLOW)
    page = await stage.playbooks.page("", {}, 10, None)
    assert [(one.path, one.kind) for one in page.items] == [
        ("schemas/count", "Schema"),
        ("simulation/flow", "Playbook"),
    ]
    assert (await stage.playbooks.get("schemas/count", "1")).source == NUMBER


async def test_a_schema_with_errors_is_refused(stage: OperationsStage) -> None:
    with pytest.raises(PlaybookRefused, match="reference must be local"):
        await register(stage, NUMBER.replace("type: integer", "$ref: 'https://x.test/y'"))


async def test_a_path_has_one_kind(stage: OperationsStage) -> None:
    await register(stage, NUMBER)
    with pytest.raises(Conflict, match="schemas/count is the path of a schema, not a playbook"):
        await register(stage, FLOW.replace("simulation/flow", "schemas/count"))


async def test_a_schema_does_not_run(stage: OperationsStage) -> None:
    await register(stage, NUMBER)
    with pytest.raises(NotFound, match="schemas/count is a schema, not a playbook"):
        await stage.executions.start(Start(path="schemas/count"), BY)
    with pytest.raises(NotFound, match="not a playbook"):
        await stage.playbooks.plan("schemas/count", None)


async def test_check_compares_with_the_registered_schema_and_warns_of_one_that_is_not(stage: OperationsStage) -> None:
    found = (await stage.playbooks.check(FLOW.encode(), "file.yaml")).diagnostics
    assert [(one.severity, one.code) for one in found] == [("warning", "unregistered_schema")]
    await register(stage, NUMBER)
    flow = playbook(
        "flow",
        [
            {"step": "start", "tool": {**work(1), "spec": RESULT}, "next": then("end", when="{{ start.nmae }}")},
            {"step": "end", "tool": work(2)},
        ],
    )
    [one] = (await stage.playbooks.check(flow.encode(), "file.yaml")).diagnostics
    assert (one.code, one.hint) == ("unknown_result_key", "it is not a mapping")
    [hidden] = (await stage.playbooks.check(flow.encode(), "file.yaml", ["team/a"])).diagnostics
    assert hidden.code == "unregistered_schema"


async def test_the_worker_compares_with_the_version_that_the_playbook_names(stage: OperationsStage) -> None:
    await register(stage, NUMBER, TEXT)
    assert (await stage.run(FLOW)).status == "completed"
    failed = await stage.run(FLOW, workload={"n": "one"})
    assert (failed.status, failed.error and failed.error.kind) == ("failed", "schema_mismatch")


async def test_an_execution_is_pinned_to_the_latest_schema_when_it_starts(stage: OperationsStage) -> None:
    await register(stage, NUMBER)
    first = await stage.run(LATEST)
    await register(stage, TEXT)
    second = await stage.run(LATEST)
    assert (first.status, second.status) == ("completed", "failed")
    facts = [codec.decode_fact(row.data) for row in await stage.store.journal(first.execution_id)]
    [started] = [fact for fact in facts if isinstance(fact, ExecutionStarted)]
    assert started.schemas == {"schemas/count": digest_of(NUMBER)}


async def test_a_rerun_has_the_schemas_of_its_original(stage: OperationsStage) -> None:
    await register(stage, NUMBER)
    first = await stage.run(LATEST)
    await stage.playbooks.delete("schemas/count", None, BY)
    again = await stage.executions.rerun(first.execution_id, RerunOptions(step="start"), BY)
    assert (await stage.executions.wait(again.execution_id, 60)).status == "completed"


async def test_a_playbook_whose_schema_is_not_registered_does_not_start(stage: OperationsStage) -> None:
    await register(stage, TEXT)
    with pytest.raises(PlaybookRefused, match="schemas/count has no version 9") as refused:
        await stage.executions.start(Start(playbook=FLOW.replace('"1"', '"9"')), BY)
    [diagnostic] = refused.value.diagnostics
    assert (diagnostic["code"], diagnostic["line"]) == ("unregistered_schema", 1)
