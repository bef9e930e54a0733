"""Laws that hold for every journal, however its execution went."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise, takewhile
from typing import Final

from noetl_stream.model import events
from noetl_stream.model.events import Path
from noetl_testkit.scenario.scenario import Scenario

BEGINNINGS: Final = (
    events.TokenClaimed,
    events.TokenHeld,
    events.NextEvaluated,
    events.NextResting,
    events.NextTimedOut,
    events.StepResumed,
    events.TimerSet,
    events.TimerFired,
    events.ChildRequested,
    events.LoopDone,
    events.ExecutionFailing,
    events.ExecutionFinished,
)
"""What the server decides only while it is not paused."""


def check_journal(scenario: Scenario) -> None:
    """Checks every law for the journal of a finished scenario.

    Raises:
        AssertionError: one is broken.
    """
    check_the_end(scenario)
    check_tokens(scenario)
    check_step_runs(scenario)
    check_loops(scenario)
    check_pauses(scenario)
    check_waits(scenario)
    check_late_patches(scenario)
    assert scenario.replayed() == scenario.state, "the journal alone gives another state"
    assert scenario.decided_again() == scenario.journal, "the same inputs give other decisions"


def is_cut_short(scenario: Scenario) -> bool:
    """Whether it failed or was cancelled while work was under way."""
    return "execution.failing" in scenario.names or "execution.cancel_requested" in scenario.names


def check_the_end(scenario: Scenario) -> None:
    state = scenario.execution
    assert state.ended and state.processed
    left = state.tokens, state.runs, state.assignments, state.suspensions, state.timers, state.children
    assert not any(left), "something is left of an execution that has ended"
    assert scenario.names[-2:] == ["execution.finished", "playbook.processed"]
    assert state.position == len(scenario.journal)
    assert (state.status != "completed") == (state.outcome is not None and state.outcome.error is not None)
    names = list(takewhile(lambda name: name != "execution.closing", scenario.names))  # then it undoes what it has done
    cuts = [names.index(name) for name in ("execution.failing", "execution.cancel_requested") if name in names]
    if not cuts:
        return
    assert state.status in ("failed", "cancelled")
    assert "token.claimed" not in names[min(cuts) :], "a token was claimed although the execution was ending"
    later = [entry.recorded.fact for entry in scenario.journal[min(cuts) : len(names)]]
    begun = [fact for fact in later if isinstance(fact, events.StepScheduled) and fact.issue == 1]
    assert not begun, "a step was begun although the execution was ending"


def check_late_patches(scenario: Scenario) -> None:
    """From the request of a cancel on, no task changes ``ctx``, and an event says so of each that would."""
    cancels = [at for at, name in enumerate(scenario.names) if name == "execution.cancel_requested"]
    later = [entry.recorded.fact for entry in scenario.journal[cancels[0] :]] if cancels else []
    for fact, following in pairwise(later):
        if isinstance(fact, events.TaskProcessed) and (fact.set_ctx or fact.set_shared):
            assert isinstance(following, events.CtxPatchDiscarded), f"{fact} after the cancel"


def recorded_facts(scenario: Scenario) -> Iterator[events.Fact]:
    """The facts of the journal, in order, with reused ones in place of the facts that bring them."""
    for entry in scenario.journal:
        fact = entry.recorded.fact
        yield from fact.entries if isinstance(fact, events.ExecutionReused) else [fact]


def check_tokens(scenario: Scenario) -> None:
    """Each token comes once, and is claimed, joined, absorbed or discarded once."""
    facts = list(recorded_facts(scenario))
    enqueued = [fact for fact in facts if isinstance(fact, events.TokenEnqueued)]
    came = Counter(fact.token.token_id for fact in enqueued)
    left = Counter(fact.token_id for fact in facts if isinstance(fact, events.TokenClaimed | events.TokenAbsorbed))
    discarded = [fact for fact in facts if isinstance(fact, events.TokenDiscarded)]
    left.update(fact.token_id for fact in discarded)
    left.update(token_id for fact in enqueued for token_id in fact.joined)
    assert came == left and set(came.values()) <= {1}
    finished = scenario.facts(events.ExecutionFinished)
    assert [fact.discarded for fact in finished] == [len(discarded)]
    fired = sum(len(fact.fired) for fact in facts if isinstance(fact, events.NextEvaluated))
    merged = sum(bool(fact.joined) for fact in enqueued)
    assert len(came) == 1 + fired + merged + _injected(enqueued)


def _injected(enqueued: list[events.TokenEnqueued]) -> int:
    """Tokens that came from outside; the chosen one of a rerun may have been one."""
    again = [fact.token for fact in enqueued if fact.token.cause == "rerun" and not fact.joined]
    begun = any(fact.token.cause == "start" for fact in enqueued)
    by_arcs = [token for token in again if token.from_step_run_id is not None]
    added = sum(fact.token.cause in ("injected", "compensation", "finally") for fact in enqueued)
    return added + len(again) - len(by_arcs) - (not begun)


def check_step_runs(scenario: Scenario) -> None:
    """Each step run has exactly one end, which is routed once, at once or after its branch has rested once."""
    facts = list(recorded_facts(scenario))
    claimed = [fact.step_run_id for fact in facts if isinstance(fact, events.TokenClaimed)]
    assert len(set(claimed)) == len(claimed)
    ends: dict[str, list[str]] = defaultdict(list)
    routed: dict[str, list[str]] = defaultdict(list)
    rested = [fact.step_run_id for fact in facts if isinstance(fact, events.NextResting)]
    timed_out = [fact.step_run_id for fact in facts if isinstance(fact, events.NextTimedOut)]
    assert len(set(rested)) == len(rested) and len(set(timed_out)) == len(timed_out) and set(timed_out) <= set(rested)
    reused = {fact.step_run_id for fact in facts if isinstance(fact, events.StepReused)}
    for fact in facts:
        inner = isinstance(fact, events.LoopDone) and fact.path
        if isinstance(fact, events.StepDone | events.StepFailed | events.LoopDone) and not inner:
            ends[fact.step_run_id].append(str(type(fact).__struct_config__.tag))
        elif isinstance(fact, events.StepReused):
            ends[fact.step_run_id].append(fact.ended)
        elif isinstance(fact, events.NextEvaluated):
            over = fact.step_run_id in timed_out or (fact.event == "next.timed_out" and fact.step_run_id in reused)
            assert (fact.event == "next.timed_out") == over
            routed[fact.step_run_id] += ends[fact.step_run_id] if over else [fact.event]
    cut_short = is_cut_short(scenario)
    for step_run_id in claimed:
        if not cut_short:
            assert ends[step_run_id] == routed[step_run_id] and len(ends[step_run_id]) == 1
        assert len(ends[step_run_id]) <= 1 and len(routed[step_run_id]) <= 1
        assert routed[step_run_id] in ([], ends[step_run_id])
    assert set(ends) <= set(claimed) and set(routed) <= set(claimed)


def check_loops(scenario: Scenario) -> None:
    """At every level: no iteration ends twice, and the counts of a level are those of its own iterations; the leaves
    that failed are those of all levels inside.
    """
    of_command = {fact.command_id: fact.step_run_id for fact in scenario.facts(events.StepScheduled)}
    good: dict[tuple[str, Path], int] = Counter()
    bad: dict[tuple[str, Path], int] = Counter()
    ended: Counter[tuple[str, Path]] = Counter()
    leaves: dict[str, list[Path]] = defaultdict(list)
    levels: set[tuple[str, Path]] = set()
    for recorded, _ in scenario.journal:
        fact = recorded.fact
        if isinstance(fact, events.LoopStarted):
            levels.add((fact.step_run_id, fact.path))
        if not isinstance(fact, events.LoopIterationDone | events.LoopIterationFailed | events.LoopDone):
            continue
        step_run_id = (
            of_command[recorded.run.command_id] if recorded.run is not None else getattr(fact, "step_run_id", "")
        )
        if isinstance(fact, events.LoopDone):
            assert fact.count == fact.ok + fact.failed + fact.skipped
            assert (fact.ok, fact.failed) == (good[step_run_id, fact.path], bad[step_run_id, fact.path])
            inside = [path for path in leaves[step_run_id] if path[: len(fact.path)] == fact.path]
            assert fact.failed_leaves == len(inside)
        elif isinstance(fact, events.LoopIterationFailed) and (step_run_id, fact.path) not in levels:
            leaves[step_run_id] += [fact.path] if fact.error.kind != "cancelled" else []
        if fact.path:
            around = step_run_id, fact.path[:-1]
            ended[step_run_id, fact.path] += 1
            (bad if isinstance(fact, events.LoopIterationFailed) else good)[around] += 1
    assert set(ended.values()) <= {1}, "an iteration ended twice"
    (end,) = scenario.facts(events.ExecutionFinished)
    loops = [fact for fact in scenario.facts(events.LoopDone) if not fact.path]
    if not is_cut_short(scenario) and "execution.reused" not in scenario.names:
        assert sum(one.failed_leaves for one in end.tolerated) == sum(fact.failed_leaves for fact in loops)
        undoing = _runs_by(scenario, "compensation")  # what was not undone is listed by itself
        routed = [fact for fact in scenario.facts(events.NextEvaluated) if fact.step_run_id not in undoing]
        branches = [fact for fact in routed if fact.tolerated]
        assert sum(one.runs for one in end.tolerated) == len(branches)


def _runs_by(scenario: Scenario, cause: str) -> set[str]:
    tokens = {fact.token.token_id for fact in scenario.facts(events.TokenEnqueued) if fact.token.cause == cause}
    return {fact.step_run_id for fact in scenario.facts(events.TokenClaimed) if fact.token_id in tokens}


def check_pauses(scenario: Scenario) -> None:
    """Nothing begins between a pause and the resume, except commands owed before."""
    paused = False
    for recorded, decided in scenario.journal:
        fact = recorded.fact
        if isinstance(fact, events.ExecutionPaused):
            paused = True
        elif isinstance(fact, events.ExecutionResumed | events.CancelRequested):
            paused = False
        elif paused:
            assert not (decided and isinstance(fact, BEGINNINGS)), f"{fact} while paused"
            assert not isinstance(fact, events.StepScheduled) or fact.issue > 1, f"{fact} while paused"


def check_waits(scenario: Scenario) -> None:
    """Every suspension resumes once or is given up; every child ends or is cancelled."""
    resumed = Counter(fact.suspended for fact in scenario.facts(events.StepResumed))
    assert set(resumed.values()) <= {1}, "a suspended command went on twice"
    children = Counter(fact.execution_id for fact in scenario.facts(events.ChildRequested))
    assert set(children.values()) <= {1}, "a child was started twice"
    over = Counter(fact.execution_id for fact in scenario.facts(events.ChildFinished))
    cancels = [fact for fact in scenario.facts(events.ChildOrdered) if fact.order == "cancel"]
    over.update(fact.execution_id for fact in cancels if not fact.awaited)
    assert over == children, "a child was left alone, or ended twice"
