"""What must hold of every journal, however its execution went."""

from __future__ import annotations

from collections import Counter, defaultdict

from noetl_stream.model import events
from noetl_stream.testing.scenario import Scenario


def check_journal(scenario: Scenario) -> None:
    """Holds the finished scenario against every law of a journal.

    Raises:
        AssertionError: one is broken.
    """
    check_the_end(scenario)
    check_tokens(scenario)
    check_step_runs(scenario)
    check_loops(scenario)
    assert scenario.replayed() == scenario.state, "the journal alone gives another state"
    assert scenario.decided_again() == scenario.journal, "the same inputs give other decisions"


def check_the_end(scenario: Scenario) -> None:
    state = scenario.execution
    assert state.ended and state.processed
    assert not (state.tokens or state.runs or state.assignments), "something is left of an execution that has ended"
    assert scenario.names[-2:] == ["execution.finished", "playbook.processed"]
    assert state.position == len(scenario.journal)
    assert (state.status == "failed") == (state.outcome is not None and state.outcome.error is not None)
    if "execution.failing" not in scenario.names:
        return
    assert state.status == "failed"
    failing_at = scenario.names.index("execution.failing")
    assert "token.claimed" not in scenario.names[failing_at:], "a token was claimed although the execution had failed"
    later = [entry.occurrence.fact for entry in scenario.journal[failing_at:]]
    begun = [fact for fact in later if isinstance(fact, events.StepScheduled) and fact.issue == 1]
    assert not begun, "a step was begun although the execution had failed"


def check_tokens(scenario: Scenario) -> None:
    """Each token comes once, and is claimed or discarded once."""
    came = Counter(fact.token.token_id for fact in scenario.facts(events.TokenEnqueued))
    left = Counter(fact.token_id for fact in scenario.facts(events.TokenClaimed))
    discarded = scenario.facts(events.TokenDiscarded)
    left.update(fact.token_id for fact in discarded)
    assert came == left and set(came.values()) <= {1}
    finished = scenario.facts(events.ExecutionFinished)
    assert [fact.discarded for fact in finished] == [len(discarded)]
    fired = sum(len(fact.fired) for fact in scenario.facts(events.NextEvaluated))
    assert len(came) == fired + 1


def check_step_runs(scenario: Scenario) -> None:
    """Each step run has exactly one end, which is routed once, before anything else happens to it."""
    claimed = [fact.step_run_id for fact in scenario.facts(events.TokenClaimed)]
    assert len(set(claimed)) == len(claimed)
    ends: dict[str, list[str]] = defaultdict(list)
    routed: dict[str, list[str]] = defaultdict(list)
    for (occurrence, _), name in zip(scenario.journal, scenario.names, strict=True):
        fact = occurrence.fact
        if isinstance(fact, events.StepDone | events.StepFailed | events.LoopDone):
            ends[fact.step_run_id].append(name)
        elif isinstance(fact, events.NextEvaluated):
            routed[fact.step_run_id].append(fact.event)
    failing = "execution.failing" in scenario.names
    for step_run_id in claimed:
        if not failing:
            assert ends[step_run_id] == routed[step_run_id] and len(ends[step_run_id]) == 1
        assert len(ends[step_run_id]) <= 1 and len(routed[step_run_id]) <= 1
        assert routed[step_run_id] in ([], ends[step_run_id])
    assert set(ends) <= set(claimed) and set(routed) <= set(claimed)


def check_loops(scenario: Scenario) -> None:
    """No iteration ends twice, the counts add up, and the window was never too wide."""
    of_command = {fact.command_id: fact.step_run_id for fact in scenario.facts(events.StepScheduled)}
    ends: dict[str, Counter[int]] = defaultdict(Counter)
    done: Counter[str] = Counter()
    for occurrence, _ in scenario.journal:
        fact = occurrence.fact
        if isinstance(fact, events.LoopIterationDone | events.LoopIterationFailed) and occurrence.run is not None:
            step_run_id = of_command[occurrence.run.command_id]
            ends[step_run_id][fact.path[0]] += 1
            done[step_run_id] += isinstance(fact, events.LoopIterationDone)
        elif isinstance(fact, events.LoopDone):
            assert fact.count == fact.ok + fact.failed + fact.skipped
            assert fact.ok == done[fact.step_run_id]
            assert sum(ends[fact.step_run_id].values()) == fact.ok + fact.failed
    assert all(times == 1 for indexes in ends.values() for times in indexes.values()), "an iteration ended twice"
