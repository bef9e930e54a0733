"""Executions that undo what they have done; whether each effect was undone once, or said (LANGUAGE §9 *Undoing*)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

from noetl_stream.model.events import (
    ExecutionClosing,
    ExecutionFinished,
    ExecutionReused,
    ExecutionStarted,
    Fact,
    LoopDone,
    StepDone,
    StepReused,
    Token,
    TokenClaimed,
    TokenEnqueued,
)
from noetl_stream.model.json import codec
from noetl_stream.ports.stores.store import StoredEvent
from noetl_testkit.simulation.story import FAULTS_S, Ask, Planned, Story
from noetl_testkit.simulation.work import Job, playbook, then, work

EXECUTIONS: Final = 6

_AGAIN: Final = {"when": "{{ outcome.status == 'error' }}", "then": {"do": "retry", "attempts": 3, "delay": 0.5}}


def undone(tool: dict[str, Any]) -> dict[str, Any]:
    """A step's ``spec`` with what undoes it."""
    return {"policy": {"compensation": {"tool": tool}}}


_PAID = [{"step": "charge", "tool": work(9, 0.3), "spec": undone(work("{{ charge }}", 0.3))}]
PAID_PATH: Final = "simulation/paid"


def _order(name: str, failures: int) -> str:
    flaky = {**work("{{ all }}", 0.5, failures=1), "spec": {"policy": {"rules": [_AGAIN]}}}
    all_of_them = {"in": [1, 2, 3], "iterator": "n", "spec": {"mode": "parallel"}}
    steps: list[dict[str, Any]] = [
        {"step": "reserve", "tool": work(1, 0.4), "spec": undone(work("{{ reserve }}", 0.3)), "next": then("pay")},
        {"step": "pay", "tool": {"kind": "playbook", "path": PAID_PATH}, "next": then("all")},
        {
            "step": "all",
            "loop": all_of_them,
            "tool": work("{{ iter.n }}", 0.6),
            "spec": undone(flaky),
            "next": then("ends", "slow", mode="inclusive"),
        },
        {"step": "slow", "tool": work(1, 4.0), "spec": undone(work(0, 0.2, failures=9))},
        {"step": "ends", "tool": work(1, 1.0, failures=failures)},
        {"step": "note", "tool": work("{{ execution.status }}", 0.2)},
    ]
    policy = {"compensation": {"timeout_s": 4000}, "finally": "note"}
    return playbook(name, steps, executor={"spec": {"policy": policy, "result": "{{ slow }}"}})


FAILING: Final = Job("undone", _order("undone", 9), "failed")
FINE: Final = Job("not_undone", _order("not_undone", 0), "completed", 1)


def undoing_story(seed: int, faults: tuple[str, ...]) -> Story:
    """Orders that fail, are cancelled, also while they are undone, or go well."""
    random = Random(f"undoing {seed}")
    planned = []
    for _ in range(EXECUTIONS):
        job, chance = random.choice((FAILING, FAILING, FINE)), random.random()
        asks: tuple[Ask, ...] = ()
        if chance < 0.5:
            at_s = random.uniform(0.2, 8)
            asks = (Ask(at_s, "cancel"), Ask(at_s + random.uniform(0.2, 4), "cancel now"))[: 1 + (chance < 0.2)]
            job = Job(f"{job.name}, cancelled", job.source, ends="anyhow")
        planned.append(Planned(job, random.uniform(0, FAULTS_S / 2), asks))
    called = {PAID_PATH: playbook("paid", _PAID)}
    return Story(seed, random.randint(1, 3), random.randint(1, 3), faults, tuple(planned), called=called)


def undoing_problems(execution_id: str, journal: Sequence[StoredEvent]) -> Iterator[str]:
    """The step runs that ended well, were to be undone, and were not exactly once, or of which that is not said."""
    facts = list(_facts_of(journal))
    finished = next((one for one in facts if isinstance(one, ExecutionFinished)), None)
    if finished is None or not any(isinstance(one, ExecutionClosing) and one.undoes for one in facts):
        return
    undoes = next(one.undoes for one in facts if isinstance(one, ExecutionStarted))
    began = [one.token for one in facts if isinstance(one, TokenEnqueued) and one.token.cause == "compensation"]
    runs = {one.step_run_id: one.token_id for one in facts if isinstance(one, TokenClaimed)}
    steps = {one.token.token_id: one.token.step for one in facts if isinstance(one, TokenEnqueued)}
    ended = {
        one.step_run_id
        for one in facts
        if (isinstance(one, StepDone | LoopDone) and not getattr(one, "path", ()))
        or (isinstance(one, StepReused) and one.outcome is not None and not one.undone)
    }
    said = {one.step_run_id: one.undone for one in finished.compensations}
    for run in (one for one in sorted(ended) if undoes.get(steps[runs[one]])):
        times = sum(token.from_step_run_id == run for token in began)
        if run not in said or times > 1 or said[run] != _undid(run, began, runs, ended):
            yield f"{execution_id}: undid {steps[runs[run]]} {times} times, and says {said.get(run)}"


def _undid(run: str, began: Sequence[Token], runs: Mapping[str, str], ended: Collection[str]) -> bool:
    tokens = {token.token_id for token in began if token.from_step_run_id == run}
    return any(runs[one] in tokens for one in ended)


def _facts_of(journal: Sequence[StoredEvent]) -> Iterator[Fact]:
    for entry in journal:
        fact = codec.decode_fact(entry.data)
        yield from fact.entries if isinstance(fact, ExecutionReused) else [fact]
