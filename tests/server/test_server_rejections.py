"""Refusals have codes, for programs (LANGUAGE §9)."""

from __future__ import annotations

import pytest
from server_stage import ONE_STEP, Stage
from waiting_stage import EXECUTION, answer_row, begin_gate, publish

from noetl_stream.model.events import CancelRequested, CtxPatched, InterventionFact, SignalReceived, TokenInjected
from noetl_stream.model.json import codec
from noetl_testkit.simulation.work import JOBS

BESIDE = "execution-beside"
LARGE = "x" * 70_000
ASKED: dict[str, tuple[InterventionFact, str]] = {
    "another version": (CtxPatched("ask", patch={"k": 1}, expected_version=99), "version_mismatch"),
    "a large patch": (CtxPatched("ask", patch={"k": LARGE}), "too_large"),
    "large args": (TokenInjected("ask", step="aside", args={"k": LARGE}), "too_large"),
    "a large payload": (SignalReceived("ask", signal="s", payload=LARGE), "too_large"),
    "an unknown step": (TokenInjected("ask", step="none"), "unknown_step"),
}


@pytest.mark.parametrize("name", ASKED)
async def test_an_impossible_request_is_refused_with_a_code(stage: Stage, name: str) -> None:
    fact, code = ASKED[name]
    await begin_gate(stage)
    assert isinstance(await stage.ask(EXECUTION, fact), str)
    assert (await answer_row(stage))["code"] == code


async def test_signals_above_their_limit_are_refused_with_a_code(stage: Stage) -> None:
    await begin_gate(stage)
    for number in range(3):
        await stage.ask(EXECUTION, SignalReceived(f"s-{number}", signal="s"))
    await stage.ask(EXECUTION, SignalReceived("ask", signal="s"))
    assert (await answer_row(stage))["code"] == "too_many_signals"


async def test_after_the_end_everything_is_refused_with_a_code(stage: Stage) -> None:
    await begin_gate(stage)
    await stage.ask(EXECUTION, CancelRequested("cancel"))
    await stage.ended(EXECUTION)
    await stage.ask(EXECUTION, CtxPatched("ask", patch={"k": 1}))
    assert (await answer_row(stage))["code"] == "ended"


async def test_requests_to_an_unknown_execution_are_rejected(stage: Stage) -> None:
    await stage.server()
    await publish(stage, CtxPatched("ask", patch={"k": 1}), "nobody")
    await stage.until(lambda: ("nobody", "ask") in stage.tables.requests)
    assert (await answer_row(stage, execution_id="nobody"))["code"] == "unknown_execution"


async def test_a_start_with_a_broken_playbook_is_refused_with_a_code(stage: Stage) -> None:
    await stage.server()
    refused = next(job.source for job in JOBS if job.name == "refused")
    await stage.request(EXECUTION, "request-1", refused)
    await stage.ended(EXECUTION)
    row = await stage.store.real.request(EXECUTION, "request-1")
    assert row is not None and codec.decode_json(row.answer)["code"] == "invalid_playbook"


async def test_a_start_whose_unique_key_is_taken_is_refused_with_a_code(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    for execution_id in (EXECUTION, BESIDE):
        await stage.request(execution_id, f"request-{execution_id}", ONE_STEP, key="order=1", unique=True)
        await stage.ended(execution_id)
    row = await stage.store.real.request(BESIDE, f"request-{BESIDE}")
    assert row is not None and codec.decode_json(row.answer)["code"] == "key_taken"


async def test_a_second_start_of_the_same_id_is_refused_with_a_code(stage: Stage) -> None:
    await stage.server()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.request(EXECUTION, "request-2", ONE_STEP)
    await stage.until(lambda: (EXECUTION, "request-2") in stage.tables.requests)
    assert (await answer_row(stage, "request-2"))["code"] == "exists"
