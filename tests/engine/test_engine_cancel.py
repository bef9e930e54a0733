"""LANGUAGE §9: cancelling, and what can be asked of an execution that exists."""

from __future__ import annotations

from typing import Any

import pytest
from engine_scenarios import limits, started
from msgspec.structs import replace

from noetl_stream.engine.replay import replay
from noetl_stream.engine.state import RecordedFact
from noetl_stream.model.events import (
    CancelRequested,
    CtxPatchDiscarded,
    CtxPatched,
    ExecutionFinished,
    NextEvaluated,
    PauseRequested,
    ResumeRequested,
    SignalReceived,
    StepCancelled,
    TimerSet,
    TokenDiscarded,
    TokenEnqueued,
    TokenInjected,
)
from noetl_stream.model.json.values import merge_patch
from noetl_testkit.scenario.scenario import AskRefused, Scenario, rerun

TWO = """
- step: start
  next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}, {step: shut}]}
- step: a
  tool: {kind: noop}
  next: {arcs: [{step: end}]}
- step: b
  tool: {kind: noop}
  next: {arcs: [{step: end}]}
- step: shut
  spec: {policy: {admit: {rules: [{when: "{{ ctx.open is defined }}", then: {allow: true}}]}}}
  tool: {kind: noop}
- step: end
  spec: {join: all}
  tool: {kind: noop}
"""


def test_cancelling_ends_an_execution_at_once_when_nothing_has_begun() -> None:
    scenario = started(TWO)
    scenario.cancel("enough")
    assert (scenario.status, scenario.error.kind) == ("cancelled", "cancelled")
    assert scenario.error.message == "enough"
    assert scenario.names.count("step.cancelled") == 2
    assert scenario.execution.discarded == 1, "the held token"


def test_a_cancel_waits_for_running_steps_and_routes_nothing() -> None:
    scenario = started(TWO)
    run = scenario.take("a")
    run.begin()
    scenario.cancel()
    assert scenario.status == "running"
    assert run.command.command_id in [fact.command_id for fact in scenario.facts(StepCancelled)]
    run.finish()
    assert scenario.status == "cancelled"
    assert len(scenario.facts(NextEvaluated)) == 1, "that of start"
    assert len(scenario.facts(TokenEnqueued)) == 4


def test_joining_tokens_are_discarded_with_the_reason() -> None:
    scenario = started(TWO)
    scenario.done("a")
    scenario.cancel("enough")
    assert {fact.reason for fact in scenario.facts(TokenDiscarded)} == {"the execution is being cancelled: enough"}
    assert scenario.facts(ExecutionFinished)[0].discarded == 2


def test_after_the_grace_period_the_execution_ends_even_if_something_still_runs() -> None:
    scenario = started(TWO, limits(cancel_grace_s=10))
    run = scenario.take("a")
    run.begin()
    scenario.cancel()
    (timer,) = [fact for fact in scenario.facts(TimerSet) if fact.purpose == "grace"]
    assert timer.due_ms == 1_010_000
    scenario.wait(9)
    assert scenario.status == "running"
    scenario.wait(1)
    assert scenario.status == "cancelled"
    run.finish()
    assert scenario.names[-1] == "playbook.processed"


def test_a_second_cancel_changes_nothing() -> None:
    scenario = started(TWO)
    scenario.take("a").begin()
    scenario.cancel("first")
    before = scenario.state
    assert not scenario.cancel("second").taken
    assert scenario.state is before


def test_a_failing_execution_waits_for_the_grace_too() -> None:
    scenario = started(TWO, limits(cancel_grace_s=10))
    scenario.take("a").begin()
    scenario.failed("b")
    assert scenario.status == "running"
    scenario.wait(10)
    assert scenario.status == "failed"


PATCHING = """
- step: start
  tool:
  - name: one
    kind: noop
    spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {k: 1}, set_shared: {n: {op: count}}}}}]}}
  - {name: two, kind: noop}
"""


def test_a_patch_by_a_task_during_a_cancel_is_recorded_but_not_applied_and_an_event_reports_it() -> None:
    scenario = started(PATCHING)
    run = scenario.take("start")
    run.begin()
    scenario.cancel()
    run.answer()
    assert scenario.names[-2:] == ["task.processed", "ctx.patch_discarded"]
    assert scenario.facts(CtxPatchDiscarded) == [CtxPatchDiscarded(run.command.step_run_id, ["k", "n"])]
    assert scenario.ctx == {}
    run.answer()
    assert (scenario.status, scenario.ctx) == ("cancelled", {})


def test_a_rerun_that_reuses_a_step_run_that_ended_after_the_cancel_has_its_patches() -> None:
    scenario = started(PATCHING + "- step: other\n  tool: {kind: noop}\n")
    scenario.inject("other")
    run = scenario.take("start")
    run.begin()
    scenario.take("other").begin()
    scenario.cancel()
    run.finish()
    scenario.wait(60)
    assert (scenario.status, scenario.ctx) == ("cancelled", {})
    assert rerun(scenario, "other").ctx == {"k": 1, "n": 1}


def test_so_are_patches_of_an_iteration_that_its_loop_had_cancelled_before() -> None:
    scenario = started(
        """
        - step: start
          loop: {in: [1, 2], iterator: x, spec: {mode: parallel}}
          tool: {name: t, kind: noop, spec: {policy: {rules: [
            {when: "{{ outcome.status == 'error' }}", then: {do: fail}},
            {else: {then: {do: continue, set_shared: {n: {op: count}}}}}]}}}
        """
    )
    run = scenario.take("start", index=0)
    run.begin()
    scenario.failed("start", index=1)
    scenario.cancel()
    run.answer()
    assert scenario.facts(CtxPatchDiscarded) == [CtxPatchDiscarded(run.command.step_run_id, ["n"])]


def test_patches_of_a_history_without_that_event_are_applied_as_they_were() -> None:
    scenario = started(PATCHING)
    run = scenario.take("start")
    run.begin()
    scenario.cancel()
    run.answer()
    rows = [
        replace(row, data=row.data.replace(b',"discards_patches":true', b""))
        for row in scenario.rows()
        if row.name != "ctx.patch_discarded"
    ]
    before = replay(scenario.execution_id, rows)
    assert before is not None and before.ctx == {"k": 1, "n": 1}


# --- what can be asked ------------------------------------------------------------------------------------------------

ASKED: list[tuple[type, dict[str, Any]]] = [
    (CtxPatched, {"patch": {"a": 1}}),
    (TokenInjected, {"step": "a"}),
    (SignalReceived, {"signal": "go"}),
    (PauseRequested, {}),
    (ResumeRequested, {}),
    (CancelRequested, {}),
]


@pytest.mark.parametrize(("kind", "fields"), ASKED)
def test_an_ended_execution_rejects_requests(kind: Any, fields: dict[str, Any]) -> None:
    scenario = started("- step: start\n  tool: {kind: noop}\n")
    scenario.done("start")
    with pytest.raises(AskRefused, match=r"execution-1 has ended \(completed\)"):
        scenario.ask(kind, **fields)


@pytest.mark.parametrize(("kind", "fields"), ASKED[:-1])
def test_an_execution_that_is_being_cancelled_accepts_only_cancel(kind: Any, fields: dict[str, Any]) -> None:
    scenario = started(TWO)
    scenario.take("a").begin()
    scenario.cancel()
    with pytest.raises(AskRefused, match="is being cancelled"):
        scenario.ask(kind, **fields)
    assert not scenario.feed(RecordedFact(kind("asked-anyway", **fields))).journal


@pytest.mark.parametrize(("kind", "fields"), ASKED)
def test_a_failed_execution_that_is_ending_rejects_requests(kind: Any, fields: dict[str, Any]) -> None:
    scenario = started(TWO)
    scenario.take("a").begin()
    scenario.failed("b")
    with pytest.raises(AskRefused, match="has failed and is ending"):
        scenario.ask(kind, **fields)


def test_the_same_request_counts_once() -> None:
    scenario = started(TWO)
    request = RecordedFact(TokenInjected("the-same", step="a"))
    assert scenario.feed(request).taken
    assert not scenario.feed(request).taken
    assert scenario.working == [("a", None), ("b", None), ("a", None)]


def test_a_patch_sets_whole_keys() -> None:
    scenario = started("- step: start\n  tool: {kind: noop}\n", ctx={"a": {"x": 1, "y": 2}, "b": 1})
    scenario.ask(CtxPatched, patch={"a": {"x": 3}, "c": None})
    assert scenario.ctx == {"a": {"x": 3}, "b": 1, "c": None}


def test_a_merge_patch_goes_deep_and_null_deletes() -> None:
    scenario = started("- step: start\n  tool: {kind: noop}\n", ctx={"a": {"x": 1, "y": 2}, "b": 1})
    scenario.ask(CtxPatched, patch={"a": {"x": None, "z": [1]}, "b": None}, merge=True)
    assert scenario.ctx == {"a": {"y": 2, "z": [1]}}


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_patch_is_that_of_rfc_7396(target: Any, patch: Any, expected: Any) -> None:
    assert merge_patch(target, patch) == expected


def test_an_expected_version_refuses_a_patch_of_what_has_changed_since() -> None:
    scenario = started("- step: start\n  tool: {kind: noop}\n")
    seen = scenario.execution.ctx_version
    scenario.ask(CtxPatched, patch={"a": 1}, expected_version=seen)
    with pytest.raises(AskRefused, match="ctx is at version"):
        scenario.ask(CtxPatched, patch={"a": 2}, expected_version=seen)
    scenario.ask(CtxPatched, patch={"a": 3}, expected_version=scenario.execution.ctx_version)
    assert scenario.ctx == {"a": 3}


def test_a_patch_that_would_make_ctx_too_large_is_refused_with_the_limit_named() -> None:
    scenario = started("- step: start\n  tool: {kind: noop}\n", limits(max_ctx_bytes=30))
    with pytest.raises(AskRefused, match=r"limits\.max_ctx_bytes is 30"):
        scenario.patch(a="x" * 30)


def test_a_patch_lets_in_what_it_allows_before_anything_else() -> None:
    scenario = started(TWO)
    scenario.patch(open=True)
    assert scenario.working == [("a", None), ("b", None), ("shut", None)]


def test_an_injected_token_runs_its_step_with_its_args() -> None:
    scenario = started(TWO)
    scenario.inject("b", n=1)
    (token,) = [fact.token for fact in scenario.facts(TokenEnqueued) if fact.token.cause == "injected"]
    assert (token.step, token.args, token.from_step) == ("b", {"n": 1}, None)
    assert scenario.working == [("a", None), ("b", None), ("b", None)]


def test_a_token_for_an_unknown_step_is_refused_with_those_there_are() -> None:
    scenario = started(TWO)
    with pytest.raises(AskRefused, match="has no step c; it has start, a, b, shut, end"):
        scenario.inject("c")


def test_a_token_with_too_much_in_its_args_is_refused_with_the_limit_named() -> None:
    scenario = started(TWO, limits(max_ctx_bytes=30))
    with pytest.raises(AskRefused, match=r"limits\.max_ctx_bytes is 30"):
        scenario.inject("a", text="x" * 30)


def test_a_redundant_request_has_no_effect() -> None:
    scenario = started(TWO)
    assert not scenario.resume().taken
    scenario.pause()
    assert not scenario.pause().taken


def test_a_scenario_of_everything_that_is_asked_replays() -> None:
    scenario: Scenario = started(TWO)
    scenario.patch(open=True)
    scenario.inject("a")
    scenario.signal("go")
    scenario.pause()
    scenario.resume()
    scenario.cancel()
    assert scenario.replayed() == scenario.state
    assert scenario.decided_again() == scenario.journal
