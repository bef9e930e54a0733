"""The objects of one execution have a bound: a task whose result is beyond it fails, and the others go on."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace
from worker_stage import Stage

from noetl_stream.model.events import TaskProcessed
from noetl_stream.model.limits import Limits
from noetl_stream.model.messages import NamespaceShare
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.tools.contract import ToolCall, ToolFailure

LARGE = "x" * 100_000
LIMITS = Limits(max_stored_bytes=250_000)
GO_ON = "policy: {rules: [{else: {then: {do: continue}}}]}"
THREE = f"""
- step: start
  tool:
  - {{name: first, kind: puppet, spec: {{{GO_ON}}}}}
  - {{name: second, kind: puppet, spec: {{{GO_ON}}}}}
  - {{name: third, kind: puppet, spec: {{{GO_ON}}}}}
"""


async def large(_call: ToolCall) -> str:
    return LARGE


def outcomes(stage: Stage) -> list[ErrorInfo | None]:
    return [fact.outcome.error for fact in stage.facts if isinstance(fact, TaskProcessed)]


async def start(stage: Stage) -> None:
    stage.puppet.acts = dict.fromkeys(("first", "second", "third"), large)
    await stage.start()


async def test_a_result_beyond_the_bound_fails_its_task(stage: Stage) -> None:
    await start(stage)
    await stage.issue(stage.command(stage.plan(THREE), limits=LIMITS))
    *fitting, beyond = outcomes(stage)
    assert fitting == [None, None]
    assert beyond is not None
    assert (beyond.kind, beyond.retryable) == ("limit_exceeded", False)
    assert beyond.message == (
        "the result cannot be stored: 100,002 bytes are too much beside the 200,004 that the execution has stored; "
        "limits.max_stored_bytes is 250,000, at most what the operator allows (NOETL_LIMIT_MAX_STORED_BYTES)"
    )


async def test_bytes_stored_by_others_count(stage: Stage) -> None:
    await start(stage)
    await stage.issue(stage.command(stage.plan(THREE), limits=LIMITS, stored_bytes=100_000))
    assert [error is None for error in outcomes(stage)] == [True, False, False]


async def test_commands_at_the_same_time_share_what_is_left(stage: Stage) -> None:
    """Each was issued when nothing was stored."""
    await start(stage)
    plan = stage.plan(THREE)
    for number in range(3):
        await stage.issue(stage.command(plan, f"command-{number}", limits=LIMITS))
    assert sum(error is None for error in outcomes(stage)) == 2


async def test_another_execution_has_a_bound_of_its_own(stage: Stage) -> None:
    await start(stage)
    command = stage.command(stage.plan(THREE), limits=LIMITS)
    await stage.issue(command)
    other = msgspec.structs.replace(command, command_id="command-2", execution_id="execution-2")
    await stage.issue(other)
    assert [error is None for error in outcomes(stage)] == [True, True, False] * 2


SHARE = NamespaceShare("team_a", at_ms=1, stored_bytes=100_000, max_stored_bytes=250_000)


async def test_executions_of_a_namespace_share_a_bound(stage: Stage) -> None:
    await start(stage)
    plan = stage.plan(THREE)
    await stage.issue(stage.command(plan, share=SHARE))
    await stage.issue(stage.command(plan, "command-2", execution_id="execution-2", share=SHARE))
    fits, beyond, *others = outcomes(stage)
    assert fits is None and beyond is not None and None not in others
    assert (beyond.kind, beyond.retryable) == ("limit_exceeded", False)
    assert beyond.message == (
        "the result cannot be stored: 100,002 bytes are too much beside the 200,002 of all executions of the namespace "
        "team_a, which may store 250,000 (NOETL_NAMESPACE_MAX_STORED_BYTES); deleting executions makes room"
    )


async def test_another_namespace_has_a_bound_of_its_own(stage: Stage) -> None:
    await start(stage)
    plan = stage.plan(THREE)
    await stage.issue(stage.command(plan, share=SHARE))
    other = replace(SHARE, namespace="team_b", stored_bytes=0)
    await stage.issue(stage.command(plan, "command-2", execution_id="execution-2", share=other))
    assert [error is None for error in outcomes(stage)] == [True, False, False, True, True, False]


async def test_room_that_servers_see_again_is_used(stage: Stage) -> None:
    await start(stage)
    plan = stage.plan(THREE)
    for number, (at_ms, stored) in enumerate([(2, 250_000), (1, 0), (3, 0)]):
        share = replace(SHARE, at_ms=at_ms, stored_bytes=stored)
        ids = {"command_id": f"command-{number}", "execution_id": f"execution-{number}"}
        await stage.issue(stage.command(plan, share=share, **ids))
    assert [error is None for error in outcomes(stage)] == [False] * 6 + [True, True, False]


async def test_a_bound_that_the_operator_takes_back_no_longer_holds(stage: Stage) -> None:
    await start(stage)
    plan = stage.plan(THREE)
    await stage.issue(stage.command(plan, share=replace(SHARE, stored_bytes=250_000)))
    ids = {"command_id": "command-2", "execution_id": "execution-2"}
    await stage.issue(stage.command(plan, share=NamespaceShare("team_a"), **ids))
    assert [error is None for error in outcomes(stage)] == [False] * 3 + [True] * 3


async def test_small_results_need_no_room(stage: Stage) -> None:
    await stage.start()
    await stage.issue(stage.command(stage.plan(THREE), limits=LIMITS, stored_bytes=250_000))
    assert outcomes(stage) == [None, None, None]


async def test_an_error_goes_without_a_result_that_cannot_be_stored(stage: Stage) -> None:
    async def failing(_call: ToolCall) -> str:
        raise ToolFailure.of("http_status", "the status is 500", result=LARGE)

    stage.puppet.acts["first"] = failing
    await stage.start()
    await stage.issue(stage.command(stage.plan(THREE), limits=LIMITS, stored_bytes=200_000))
    error = outcomes(stage)[0]
    assert error is not None and error.kind == "http_status"
    assert error.message.startswith("the status is 500 (its result is left out: 100,002 bytes are too much")


@pytest.mark.parametrize("exec_", ["local", "distributed"])
async def test_pages_of_items_count_too(stage: Stage, exec_: str) -> None:
    loop = f'- step: start\n  loop: {{in: "{{{{ workload.items }}}}", iterator: item, spec: {{exec: {exec_}}}}}\n'
    plan = stage.plan(loop + "  tool: {kind: puppet}")
    items = ["x" * 1_000] * 500
    await stage.start()
    await stage.issue(stage.command(plan, workload={"items": items}, limits=LIMITS, paging=True))
    await stage.soon(lambda: stage.names[-1:] == ["step.failed"])
    assert stage.facts[-1].error.kind == "limit_exceeded"  # type: ignore[attr-defined]
    assert stage.facts[-1].error.message.startswith("loop: ")  # type: ignore[attr-defined]
