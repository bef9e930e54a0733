"""LANGUAGE §10, PROTOCOL §2 *An unresolved reference*: a decision that reads a large result waits until it is there."""

from __future__ import annotations

from typing import Any

import pytest
from engine_scenarios import BEST_EFFORT, limits, started
from msgspec.structs import replace

from noetl_stream.engine.advance import NotTaken, advance
from noetl_stream.engine.evolve.executions import RESOLVED_KEPT
from noetl_stream.engine.state import RecordedFact
from noetl_stream.model.events import (
    CancelRequested,
    Fact,
    LoopPagedOut,
    NextEvaluated,
    ReferenceAwaited,
    ReferenceResolved,
    StepFailed,
    TaskProcessed,
    TokenClaimed,
)
from noetl_stream.model.outcome import Outcome, Page, Payload, Reference
from noetl_testkit.scenario.scenario import Scenario

BRANCH = """
- step: start
  tool: {kind: noop}
  next:
    arcs: [{step: big, when: "{{ event.result.n > 1 }}", args: {rows: "{{ start.rows | length }}"}}, {step: small}]
- step: big
  tool: {kind: noop}
- step: small
  tool: {kind: noop}
- step: beside
  tool: {kind: noop}
"""
LARGE = {"n": 2, "rows": [1, 2, 3]}


def by_reference(steps: str, root: str = "", **request: Any) -> Scenario:
    """Every result of this execution is kept by reference."""
    scenario = started(steps, root, **request)
    scenario.objects.takes = lambda data: True
    return scenario


def test_a_guard_that_reads_a_reference_parks_the_execution_until_it_is_at_hand() -> None:
    scenario = by_reference(BRANCH)
    scenario.done("start", LARGE)
    (awaited,) = scenario.facts(ReferenceAwaited)
    assert scenario.execution.awaited == awaited.reference
    assert (scenario.status, scenario.working) == ("running", [])
    scenario.look_into()
    assert scenario.working == [("big", None)]
    assert scenario.take("big").command.args == {"rows": 3}


def test_a_result_that_no_expression_reads_is_never_loaded() -> None:
    scenario = by_reference(
        "- step: start\n  tool: {kind: noop}\n  next: {arcs: [{step: end}]}\n- step: end\n  tool: {kind: noop}\n"
    )
    scenario.done("start", LARGE)
    scenario.done("end", LARGE)
    assert scenario.status == "completed" and scenario.facts(ReferenceAwaited) == []


def test_facts_behind_a_reference_are_folded_and_decided_afterwards() -> None:
    scenario = by_reference(BRANCH)
    scenario.inject("beside")
    scenario.done("start", LARGE)
    scenario.done("beside")
    scenario.inject("small")
    assert [fact.event for fact in scenario.facts(NextEvaluated)] == []
    scenario.look_into()
    assert scenario.working == [("big", None), ("small", None)]
    assert len(scenario.facts(NextEvaluated)) == 2


def test_a_value_by_reference_leads_to_the_same_decision_as_an_inline_one() -> None:
    inline, parked = started(BRANCH), by_reference(BRANCH)
    for scenario in (inline, parked):
        scenario.done("start", LARGE)
    parked.look_into()
    assert decided(inline) == decided(parked)


def decided(scenario: Scenario) -> list[Fact]:
    """The decisions, without those about references."""
    return [
        entry.recorded.fact
        for entry in scenario.journal
        if entry.decided and not isinstance(entry.recorded.fact, ReferenceAwaited)
    ]


def test_a_reference_that_leads_nowhere_fails_the_execution() -> None:
    scenario = by_reference(BRANCH, BEST_EFFORT)
    scenario.done("start", LARGE)
    scenario.lose("the object is gone")
    assert (scenario.status, scenario.error.kind) == ("failed", "result_lost")
    assert scenario.error.message == "the object is gone"


def test_an_outcome_that_is_too_large_is_an_error_with_a_remedy() -> None:
    scenario = by_reference(BRANCH, limits(max_resolve_bytes=10))
    scenario.done("start", LARGE)
    assert (scenario.status, scenario.error.kind) == ("failed", "expression_error")
    assert "limits.max_resolve_bytes" in scenario.error.message and "set_ctx" in scenario.error.message


def test_an_answer_for_another_reference_changes_nothing() -> None:
    scenario = by_reference(BRANCH)
    assert not scenario.feed(RecordedFact(ReferenceResolved("object-0"), value=1)).taken
    scenario.done("start", LARGE)
    assert not scenario.feed(RecordedFact(ReferenceResolved("object-9"), value=1)).taken
    scenario.look_into()
    assert not scenario.feed(RecordedFact(ReferenceResolved("object-0"), value=1)).taken


def test_a_cancel_does_not_wait_for_a_reference() -> None:
    scenario = by_reference(BRANCH)
    scenario.done("start", LARGE)
    scenario.cancel()
    assert scenario.status == "cancelled"


def test_an_execution_can_be_paused_while_it_loads_a_reference_and_decides_when_it_continues() -> None:
    scenario = by_reference(BRANCH)
    scenario.done("start", LARGE)
    scenario.pause()
    scenario.look_into()
    assert scenario.working == []
    scenario.resume()
    assert scenario.working == [("big", None)]
    assert len(scenario.facts(ReferenceAwaited)) == 1


def test_an_execution_resumed_before_a_reference_is_loaded_still_waits_for_it() -> None:
    scenario = by_reference(BRANCH)
    scenario.done("start", LARGE)
    scenario.pause()
    scenario.resume()
    assert scenario.working == []
    scenario.look_into()
    assert scenario.working == [("big", None)]


def test_a_timer_that_fires_meanwhile_is_not_lost() -> None:
    scenario = by_reference(
        BRANCH.replace("step: beside\n", "step: beside\n  spec: {policy: {lifecycle: {timeout_s: 60}}}\n"), BEST_EFFORT
    )
    scenario.inject("beside")
    scenario.take("beside").begin()
    scenario.done("start", LARGE)
    scenario.wait(60)
    assert scenario.facts(StepFailed) == []
    scenario.look_into()
    scenario.wait(0)
    assert [fact.error.kind for fact in scenario.facts(StepFailed)] == ["timeout"]


# --- every door -------------------------------------------------------------------------------------------------------

LAST = "- step: last\n  tool: {kind: noop}\n"
DOORS = {
    "admission": "spec: {policy: {admit: {rules: [{when: '{{ start.n == 2 }}', then: {allow: true}}]}}}\n"
    "  tool: {kind: noop}\n",
    "in": "loop: {in: '{{ start.rows }}', iterator: n, spec: {mode: parallel}}\n  tool: {kind: noop}\n",
    "max_in_flight": "loop: {in: [1, 2, 3], iterator: n, spec: {mode: parallel, max_in_flight: '{{ start.n }}'}}\n"
    "  tool: {kind: noop}\n",
    "arc": "next: {arcs: [{step: last, when: '{{ start.n == 2 }}'}]}\n" + LAST,
    "args": "next: {arcs: [{step: last, args: {n: '{{ start.n }}'}}]}\n" + LAST,
}


@pytest.mark.parametrize("door", DOORS)
def test_every_expression_of_the_server_may_read_one(door: str) -> None:
    steps = "- step: start\n  tool: {kind: noop}\n  next: {arcs: [{step: end}]}\n- step: end\n  " + DOORS[door]
    inline, parked = started(steps), by_reference(steps)
    for scenario in (inline, parked):
        scenario.done("start", LARGE)
        while scenario.execution.awaited is not None:
            scenario.look_into()
    assert inline.working == parked.working != []
    assert decided(inline) == decided(parked)


def test_so_may_the_executions_result() -> None:
    root = "executor: {spec: {result: '{{ start.n + 1 }}'}}\n"
    scenario = by_reference("- step: start\n  tool: {kind: noop}\n", root)
    scenario.done("start", LARGE)
    assert scenario.status == "running"
    scenario.look_into()
    assert scenario.result == 3


def test_an_arc_reads_the_result_of_a_large_loop() -> None:
    scenario = started(
        """
        - step: start
          loop: {in: [1, 2, 3], iterator: n, spec: {mode: parallel}}
          tool: {kind: noop, args: {n: "{{ n }}"}}
          next: {arcs: [{step: end, when: "{{ start[2].n == 3 }}"}]}
        - step: end
          tool: {kind: noop}
        """,
        limits(max_inline_bytes=20),
    )
    for index in range(3):
        scenario.done("start", index=index)
    assert scenario.execution.awaited is not None and scenario.execution.awaited.store == "journal"
    scenario.look_into()
    assert scenario.working == [("end", None)]


def fan_of(count: int) -> str:
    """Steps whose results one guard reads all together."""
    arcs = ", ".join(f"{{step: s{n}}}" for n in range(count))
    steps = "".join(f"- step: s{n}\n  tool: {{kind: noop}}\n  next: {{arcs: [{{step: j}}]}}\n" for n in range(count))
    total = " + ".join(f"s{n}.n" for n in range(count))
    return (
        f"- step: start\n  next: {{spec: {{mode: inclusive}}, arcs: [{arcs}]}}\n{steps}"
        f"- step: j\n  spec: {{join: all}}\n  next: {{arcs: [{{step: end, when: '{{{{ {total} == {count} }}}}'}}]}}\n"
        "- step: end\n  tool: {kind: noop}\n"
    )


@pytest.mark.parametrize("count", [RESOLVED_KEPT, RESOLVED_KEPT + 1, 3 * RESOLVED_KEPT])
def test_one_expression_may_read_more_references_than_are_cached(count: int) -> None:
    scenario = by_reference(fan_of(count))
    for n in range(count):
        scenario.done(f"s{n}", {"n": 1})
    looks = 0
    while scenario.execution.awaited is not None:
        scenario.look_into()
        looks += 1
        assert looks <= count, "it looks into the same ones for ever"
    assert (looks, scenario.working) == (count, [("end", None)])


def test_the_values_of_decisions_that_were_taken_are_forgotten() -> None:
    steps = "".join(
        f"- step: s{n}\n  tool: {{kind: noop}}\n"
        f"  next: {{arcs: [{{step: s{n + 1}, when: '{{{{ event.result.n == {n} }}}}'}}]}}\n"
        for n in range(12)
    )
    scenario = by_reference(steps + "- step: s12\n  tool: {kind: noop}\n")
    for n in range(12):
        scenario.done(f"s{n}", {"n": n})
        scenario.look_into()
    assert scenario.working == [("s12", None)]
    assert len(scenario.execution.resolved) <= RESOLVED_KEPT + 1


def test_many_held_tokens_with_references_are_read_once_for_each_change() -> None:
    count = 2 * RESOLVED_KEPT
    arcs = ", ".join(f"{{step: s{n}}}, {{step: h{n}}}" for n in range(count))
    steps = "".join(
        f"- step: s{n}\n  tool: {{kind: noop}}\n- step: h{n}\n  spec: {{policy: {{admit: {{rules: "
        f"[{{when: '{{{{ s{n} is not none and s{n}.n == 1 and ctx.go is defined }}}}', then: {{allow: true}}}}]}}}}}}\n"
        "  tool: {kind: noop}\n"
        for n in range(count)
    )
    scenario = by_reference(
        f"- step: start\n  next: {{spec: {{mode: inclusive}}, arcs: [{arcs}, {{step: slow}}]}}\n"
        f"{steps}- step: slow\n  tool: [{{name: a, kind: noop}}, {{name: b, kind: noop}}]\n"
    )
    for n in range(count):
        scenario.done(f"s{n}", {"n": 1})
        while scenario.execution.awaited is not None:
            scenario.look_into()
    before = len(scenario.facts(ReferenceAwaited))
    run = scenario.take("slow")
    run.begin()
    run.answer()
    assert len(scenario.facts(ReferenceAwaited)) == before, "nothing has changed that admission reads"
    scenario.patch(go=True)
    while scenario.execution.awaited is not None:
        scenario.look_into()
    assert len(scenario.facts(TokenClaimed)) == 2 + 2 * count
    assert len(scenario.facts(ReferenceAwaited)) <= before + count


def test_arrivals_at_a_join_are_ordered() -> None:
    scenario = by_reference(
        """
        - step: start
          tool: {kind: noop}
          next:
            spec: {mode: inclusive}
            arcs: [{step: gate}, {step: j, args: {n: 0}}, {step: j, args: {n: 1}}, {step: j, args: {n: 2}}]
        - step: gate
          spec: {policy: {admit: {rules: [{when: "{{ start.n == 2 }}", then: {allow: true}}]}}}
          tool: {kind: noop}
        - step: j
          spec: {join: 2}
          tool: {kind: noop}
        """
    )
    scenario.done("start", LARGE)
    assert scenario.names.count("token.joined") == 3 and scenario.working == []
    scenario.look_into()
    assert scenario.working == [("gate", None), ("j", None)]
    assert [arrival["args"]["n"] for arrival in scenario.take("j").command.args["arrivals"]] == [0, 1]
    assert scenario.names.count("token.absorbed") == 1


# --- replay -----------------------------------------------------------------------------------------------------------


def held_by_a_reference() -> Scenario:
    scenario = by_reference(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: work}, {step: shut}]}
        - step: work
          tool: {kind: noop}
          next: {arcs: [{step: slow}]}
        - step: slow
          tool: {kind: noop}
        - step: shut
          spec: {policy: {admit: {rules: [
            {when: "{{ work is not none and work.n > 1 and ctx.open is defined }}", then: {allow: true}}]}}}
          tool: {kind: noop}
        """
    )
    scenario.done("work", LARGE)
    scenario.look_into()
    assert scenario.held == ["shut"]
    return scenario


def test_a_state_that_was_replayed_knows_no_values_and_is_the_same_but_for_that() -> None:
    scenario = held_by_a_reference()
    assert scenario.execution.resolved != {}
    assert scenario.replayed() == replace(scenario.execution, resolved={})


def test_a_server_that_took_over_looks_again_and_decides_the_same() -> None:
    scenario = held_by_a_reference()
    scenario.take_over()
    scenario.patch(open=True)
    assert scenario.execution.awaited is not None, "it must not take the value for null"
    scenario.look_into()
    assert scenario.working == [("slow", None), ("shut", None)]


def test_a_cancel_during_the_loading_of_a_reference_is_decided_equally_by_the_replayed_state() -> None:
    scenario = by_reference(BRANCH)
    scenario.done("start", LARGE)
    cancel = RecordedFact(CancelRequested("asked"))
    states = (scenario.state, scenario.replayed())
    here, there = (advance(scenario.plan, state, cancel, scenario.execution_id) for state in states)
    assert here == there


def test_the_grace_of_a_cancel_that_came_while_it_looked_is_not_lost() -> None:
    scenario = by_reference(BRANCH, limits(cancel_grace_s=10))
    scenario.inject("beside")
    scenario.take("beside").begin()
    scenario.done("start", LARGE)
    scenario.cancel()
    assert scenario.status == "running"
    scenario.wait(10)
    assert scenario.status == "cancelled"


# --- references that a worker made up ---------------------------------------------------------------------------------

MADE_UP = [
    Reference("nats", "execution-2/command/1.1.n/0", 9),
    Reference("journal", "execution-2.step-run", 9),
    Reference("journal", "execution-1.step-run", 9),
]


@pytest.mark.parametrize("reference", MADE_UP, ids=lambda reference: reference.key)
def test_a_result_of_another_execution_is_not_taken_from_a_worker(reference: Reference) -> None:
    scenario = started(BRANCH)
    run = scenario.take("start")
    run.begin()
    fact = TaskProcessed("start", 1, Outcome("ok", Payload(reference=reference)), "continue")
    advanced = scenario.feed(RecordedFact(fact, run.run, 1))
    assert isinstance(advanced.refusal, NotTaken)
    assert (advanced.refusal.code, advanced.refusal.text) == (
        "misfit",
        "task.processed refers to a result of another execution",
    )


def test_pages_of_another_execution_are_not_taken_from_a_worker() -> None:
    scenario = started(
        "- step: start\n  loop: {in: [1, 2], iterator: n, spec: {mode: sequential}}\n  tool: {kind: noop}\n"
    )
    run = scenario.take("start")
    pages = [Page(0, 2, Reference("nats", "execution-2/rows", 9))]
    advanced = scenario.feed(RecordedFact(LoopPagedOut(2, pages), run.run, 0))
    assert isinstance(advanced.refusal, NotTaken) and advanced.refusal.code == "misfit"


def test_a_command_says_how_many_bytes_the_execution_has_stored() -> None:
    scenario = by_reference(
        "- step: start\n  tool: {kind: noop}\n  next: {arcs: [{step: end}]}\n- step: end\n  tool: {kind: noop}\n"
    )
    assert scenario.take("start").command.stored_bytes == 0
    scenario.done("start", LARGE)
    (reference,) = [fact.outcome.result.reference for fact in scenario.facts(TaskProcessed)]
    assert reference is not None
    assert scenario.take("end").command.stored_bytes == reference.size > 0


def test_a_size_below_zero_makes_no_room() -> None:
    scenario = by_reference(
        "- step: start\n  tool: {kind: noop}\n  next: {arcs: [{step: end}]}\n- step: end\n  tool: {kind: noop}\n"
    )
    scenario.done("start", LARGE)
    before = scenario.execution.stored_bytes
    claimed = Payload(reference=Reference("nats", f"{scenario.execution.execution_id}/x", -(10**9)))
    taken = scenario.take("end")
    taken.report(TaskProcessed("end", 1, Outcome("ok", claimed), "continue"))
    assert scenario.execution.stored_bytes == before


def test_bytes_beyond_all_measure_still_fit_into_a_column() -> None:
    scenario = by_reference("- step: start\n  tool: [{name: one, kind: noop}, {name: two, kind: noop}]\n")
    huge = Outcome("ok", stored_bytes=10**30)
    taken = scenario.take("start")
    taken.report(TaskProcessed("one", 1, huge, "continue", to="two"))
    taken.report(TaskProcessed("two", 1, huge, "continue"))
    assert 2**50 < scenario.execution.stored_bytes < 2**63


def test_the_bytes_of_files_count_as_stored() -> None:
    scenario = by_reference("- step: start\n  tool: {kind: noop}\n")
    scenario.take("start").report(TaskProcessed("start", 1, Outcome("ok", stored_bytes=700), "continue"))
    assert scenario.execution.stored_bytes == 700
