"""A result that nests deeper than values may is an error outcome, whatever tool it comes from (LANGUAGE §12)."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from keychain_stage import Vault, failure_of
from worker_stage import Stage

from noetl_stream.model.events import TaskProcessed
from noetl_stream.model.json import codec
from noetl_stream.model.json.values import MAX_DEPTH
from noetl_stream.model.outcome import Outcome
from noetl_stream.tools.contract import ToolCall, ToolFailure, ToolResult

STEP = "- step: start\n  tool: [{name: deep, kind: puppet}]\n"


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


async def outcome_of(stage: Stage, act: Any) -> Outcome:
    stage.puppet.acts["deep"] = act
    await stage.start()
    await stage.issue(stage.command(stage.plan(STEP)))
    await stage.soon(lambda: any(isinstance(fact, TaskProcessed) for fact in stage.facts))
    return next(fact.outcome for fact in stage.facts if isinstance(fact, TaskProcessed))


@pytest.mark.parametrize("levels", [201, 960, 100_000])
async def test_a_result_that_nests_too_deeply_is_refused(stage: Stage, levels: int) -> None:
    async def deep(_call: ToolCall) -> Any:
        return nested(levels)

    outcome = await outcome_of(stage, deep)
    assert outcome.status == "error" and outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == ("result_not_json", False)
    assert outcome.error.message == "the result is nested more than 200 levels deep"


async def test_the_deepest_result_there_may_be_is_kept(stage: Stage) -> None:
    async def deep(_call: ToolCall) -> Any:
        return nested(200)

    outcome = await outcome_of(stage, deep)
    assert (outcome.status, bytes(outcome.result.value)) == ("ok", b"[" * 200 + b"]" * 200)


@pytest.mark.parametrize(("items", "is_beside"), [(10, False), (100_000, True)])
async def test_the_depth_of_a_large_result_is_counted_beside_the_loop(
    stage: Stage, items: int, is_beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[int, int] = {}
    check_depth = codec.check_depth

    def checks(data: bytes, most: int = MAX_DEPTH) -> None:
        threads[len(data)] = threading.get_ident()
        check_depth(data, most)

    async def returns(_call: ToolCall) -> Any:
        return [[]] * items

    monkeypatch.setattr(codec, "check_depth", checks)
    assert (await outcome_of(stage, returns)).status == "ok"
    assert (threads[3 * items + 1] != threading.get_ident()) == is_beside


@pytest.mark.parametrize("levels", [201, 960, 100_000])
async def test_a_failure_goes_on_without_a_result_that_nests_too_deeply(stage: Stage, levels: int) -> None:
    async def fails(_call: ToolCall) -> Any:
        raise ToolFailure.of("http_status", "answered 500", retryable=True, result={"data": nested(levels)})

    outcome = await outcome_of(stage, fails)
    assert outcome.error is not None and (outcome.error.kind, outcome.error.retryable) == ("http_status", True)
    left_out = "its result is left out: nested more than 200 levels deep"
    assert outcome.error.message == f"answered 500 ({left_out})"


async def test_a_helper_block_that_nests_too_deeply_is_refused(stage: Stage) -> None:
    async def deep(_call: ToolCall) -> Any:
        return ToolResult(1, {"deep": nested(300)})

    outcome = await outcome_of(stage, deep)
    assert outcome.error is not None and outcome.error.message.endswith("is nested more than 200 levels deep")


async def test_a_tool_that_recurses_into_what_it_reads_has_no_defect(stage: Stage) -> None:
    async def reads(_call: ToolCall) -> Any:
        return json.loads("[" * 100_000)

    outcome = await outcome_of(stage, reads)
    assert outcome.error is not None and outcome.error.kind == "result_not_json"


READS = STEP.replace("puppet}", "puppet, said: '{{ keychain.entry }}'}") + "keychain:\n- {name: entry, kind: %s}\n"


@pytest.mark.parametrize("levels", [201, 960])
async def test_a_deep_result_of_a_task_that_reads_secrets_is_refused_as_any_other(vault: Vault, levels: int) -> None:
    async def deep(_call: ToolCall) -> Any:
        return [nested(levels), "s3cret-value"]

    vault.stage.puppet.acts["deep"] = deep
    await vault.keeper.put("entry", "s3cret-value", "ann")
    [processed] = await vault.run(READS % "credential")
    assert failure_of(processed).kind == "result_not_json"


@pytest.mark.parametrize("levels", [201, 960, 30_000])
async def test_a_secret_that_nests_too_deeply_is_refused(vault: Vault, tmp_path: Path, levels: int) -> None:
    file = tmp_path / "entry"
    file.write_text('{"a": ' + "[" * levels + '"s3cret-value"' + "]" * levels + "}")
    [processed] = await vault.run(READS % f"file, path: {file}")
    failure = failure_of(processed)
    assert failure.kind == "credential" and failure.message.endswith(f"{file} is nested more than 200 levels deep")
