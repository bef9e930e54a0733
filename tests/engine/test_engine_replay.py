"""The law of the engine (DESIGN §3): no change, no consequence; the journal gives the state; inputs decide once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from engine_scenarios import started
from msgspec.structs import replace

from noetl_stream.engine.advance import Advanced, advance
from noetl_stream.engine.decide.quiescence import at_quiescence
from noetl_stream.engine.evolve.dispatch import evolve
from noetl_stream.engine.state import Execution, RecordedFact
from noetl_stream.model.events import Fact, PlaybookProcessed, ResumeRequested, StepDone, StepScheduled, TokenEnqueued
from noetl_stream.model.ids import RunId
from noetl_stream.model.json.codec import encode
from noetl_stream.model.outcome import ErrorInfo
from noetl_testkit.scenario.invariants import InvariantBroken
from noetl_testkit.scenario.scenario import Scenario

STEPS = """
- step: start
  next: {spec: {mode: inclusive}, arcs: [{step: many}, {step: one_by_one}, {step: held}]}
- step: many
  loop: {in: [1, 2, 3], iterator: n, spec: {mode: parallel, max_in_flight: 2, policy: {failure: {mode: best_effort}}}}
  tool: [{name: a, kind: noop}, {name: b, kind: noop, args: {n: "{{ n }}"}}]
  next: {arcs: [{step: end, args: {got: "{{ many }}"}}]}
- step: one_by_one
  loop: {in: {x: 1, y: 2}, iterator: pair}
  tool:
    name: sum
    kind: noop
    spec:
      policy:
        rules: [{else: {then: {do: continue, set_ctx: {sum: "{{ (ctx.sum | default(0)) + pair.value }}"}}}}]
- step: held
  spec: {policy: {admit: {rules: [{when: "{{ ctx.sum | default(0) > 2 }}", then: {allow: true}}]}}}
  tool: {kind: noop}
  next: {arcs: [{step: end, when: "{{ event.error is not none }}"}]}
- step: end
  tool: {kind: noop, args: {sum: "{{ ctx.sum }}", got: "{{ args.got | default([]) }}"}}
"""


def finished() -> Scenario:
    """An execution with every kind of fact in its journal but those of failing loops."""
    scenario = started(STEPS)
    scenario.take("many", index=0).begin()
    scenario.done("many", "one", index=1)
    scenario.done("one_by_one")
    again = scenario.take("many", index=0)
    scenario.claim(again)
    again.finish("zero")
    scenario.issue_again(scenario.owed("many", 2))
    scenario.failed("held", "connection")
    scenario.failed("many", index=2)
    scenario.done("end")
    scenario.done("end")
    assert scenario.status == "completed"
    return scenario


def failed() -> Scenario:
    """An execution that fails while others work."""
    scenario = started(STEPS.replace("mode: best_effort", "mode: fail_fast"))
    scenario.take("one_by_one").begin()
    run = scenario.take("many", index=1)
    run.begin()
    scenario.failed("many", index=0)
    run.stop()
    scenario.claim(scenario.take("one_by_one"))
    assert scenario.status == "failed"
    return scenario


MADE: list[Callable[[], Scenario]] = [finished, failed]


@pytest.mark.parametrize("make", MADE)
def test_the_journal_alone_gives_the_equal_state(make: Callable[[], Scenario]) -> None:
    scenario = make()
    assert scenario.replayed() == scenario.state


@pytest.mark.parametrize("make", MADE)
def test_every_beginning_of_the_journal_gives_the_state_at_that_position(make: Callable[[], Scenario]) -> None:
    state: Execution | None = None
    for position, (recorded, _) in enumerate(make().journal, start=1):
        state = evolve(state, recorded, "execution-1")
        assert state is not None and state.position == position


@pytest.mark.parametrize("make", MADE)
def test_the_same_inputs_give_the_same_decisions(make: Callable[[], Scenario]) -> None:
    scenario = make()
    again = scenario.decided_again()
    assert [encode(one.recorded.fact) for one in again] == [encode(one.recorded.fact) for one in scenario.journal]
    assert again == scenario.journal


@pytest.mark.parametrize("make", MADE)
def test_repeated_inputs_in_between_change_no_decision(make: Callable[[], Scenario]) -> None:
    scenario = make()
    expected = list(scenario.journal)
    scenario.inputs = [again for recorded in scenario.inputs for again in (recorded, recorded)]
    assert scenario.decided_again() == expected


@pytest.mark.parametrize("make", MADE)
def test_a_repeated_fact_returns_the_same_value(make: Callable[[], Scenario]) -> None:
    state: Execution | None = None
    for recorded, _ in make().journal:
        state = evolve(state, recorded, "execution-1")
        assert evolve(state, recorded, "execution-1") is state


@pytest.mark.parametrize("make", MADE)
def test_a_late_fact_returns_the_same_value(make: Callable[[], Scenario]) -> None:
    """At every position, every fact before it. A token that was consumed is known by its journal position alone."""
    state: Execution | None = None
    past: list[RecordedFact] = []
    for recorded, _ in make().journal:
        state = evolve(state, recorded, "execution-1")
        if type(recorded.fact) is not TokenEnqueued:
            past.append(recorded)
        for late in past:
            assert evolve(state, late, "execution-1") is state, late


@pytest.mark.parametrize("make", MADE)
def test_a_stale_fact_returns_the_same_value(make: Callable[[], Scenario]) -> None:
    """What a run says that was never bound, or in the wrong place, at every position."""
    state: Execution | None = None
    for recorded, _ in make().journal:
        state = evolve(state, recorded, "execution-1")
        run = recorded.run
        if run is None:
            continue
        stale = [
            replace(recorded, run=run._replace(nonce="another")),
            replace(recorded, run=run._replace(issue=run.issue + 1), number=9),
            replace(recorded, number=recorded.number + 2),
            replace(recorded, run=RunId("another", run.issue, run.num_delivered, run.nonce)),
        ]
        if state is not None and run.command_id in state.assignments:
            for one in stale:
                assert evolve(state, one, "execution-1") is state, one


@pytest.mark.parametrize("make", MADE)
def test_nothing_changes_after_the_end(make: Callable[[], Scenario]) -> None:
    scenario = make()
    state = scenario.state
    for recorded in scenario.inputs:
        advanced = advance(scenario.plan, state, recorded, scenario.execution_id)
        assert advanced.state is state and not advanced.taken and advanced.journal == ()


@pytest.mark.parametrize("source", ["move_on", "retry_waiting", "pending_decisions"])
def test_a_decision_that_changes_nothing_is_not_made_for_ever(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An execution that cannot end stays as it is: its server serves the others."""
    scenario = started(STEPS)
    scenario.pause()
    made: list[Fact] = []

    def decide_in_vain(*_: object) -> Sequence[Fact]:
        made.append(PlaybookProcessed("cancelled"))  # which it ignores, since it has not ended
        assert len(made) < 9, "it is decided for ever"
        return made[-1:]

    monkeypatch.setattr(f"noetl_stream.engine.advance.{source}", decide_in_vain)
    resumed = RecordedFact(ResumeRequested("again"), at_ms=scenario.now_ms)
    advanced = advance(scenario.plan, scenario.state, resumed, scenario.execution_id)
    assert advanced.state is not None and advanced.state.status == "running"
    assert made


def test_an_ignored_fact_has_no_consequence() -> None:
    scenario = started(STEPS)
    before = scenario.state
    unknown = StepScheduled("nobody", "nothing", issue=2)
    assert scenario.feed(RecordedFact(unknown)) == Advanced(before, False, ())
    assert scenario.feed(RecordedFact(StepDone("nobody"))) == Advanced(before, False, ())


@pytest.mark.parametrize("make", MADE)
def test_decisions_are_facts_too_and_at_rest_nothing_follows(make: Callable[[], Scenario]) -> None:
    """The same holds after every fact any scenario is fed; see :meth:`Scenario.feed`."""
    scenario = make()
    assert at_quiescence(scenario.plan, scenario.execution) == ()


def test_ids_derive_from_their_cause_so_that_two_runs_of_one_execution_agree() -> None:
    first, second = finished(), finished()
    assert [one.recorded.fact for one in first.journal] == [one.recorded.fact for one in second.journal]


def test_ids_differ_between_executions() -> None:
    text = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: t, path: t}\n"
    text += "workflow:\n- step: start\n  tool: {kind: noop}\n"
    scenarios = [Scenario(text, execution_id=name) for name in ("one", "two")]
    for scenario in scenarios:
        scenario.start()
    commands = [scenario.owed("start").command_id for scenario in scenarios]
    assert len(set(commands)) == 2


def test_a_scenario_names_the_broken_invariant() -> None:
    scenario = started(STEPS)
    scenario.state = replace(scenario.execution, position=99)
    with pytest.raises(InvariantBroken, match="positions have no holes: after LoopStarted"):
        scenario.take("one_by_one").begin()


def test_a_scenario_lists_pending_work_in_its_error() -> None:
    scenario = started(STEPS)
    with pytest.raises(AssertionError, match=r"no command of end is owed; owed are .*\('many', 0\), \('many', 1\)"):
        scenario.done("end")


def test_an_ended_run_has_no_task_to_answer_for() -> None:
    scenario = started("- step: start\n  tool: {kind: noop}\n")
    run = scenario.take("start")
    run.answer(error=ErrorInfo("exception", "it broke"))
    with pytest.raises(AssertionError, match="the run of start has ended"):
        run.answer()
