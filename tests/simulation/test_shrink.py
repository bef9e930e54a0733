"""A story that fails becomes small, and a test that can be pasted."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from mutations import MUTATIONS

from noetl_testkit.simulation.shrink import shrunk, written
from noetl_testkit.simulation.simulation import SimulationReport, simulate
from noetl_testkit.simulation.story import Ask, Planned, Story, drawn, random_job
from noetl_testkit.simulation.work import Job, job

SEEDS = 60
"""Below this a seed loses a command that only reconcile brings back."""


def fails_with_a_wait(story: Story) -> SimulationReport:
    """Stands in for a simulation: a playbook with a ``wait`` fails under lost acknowledgements."""
    fails = "acks lost" in story.faults and any('"wait"' in one.job.source for one in story.executions)
    return SimulationReport(story.seed, story.faults, ("017f-1: waits for ever",) if fails else ())


def test_irrelevant_faults_are_left_out() -> None:
    story = drawn(3, ("acks lost", "bus late", "worker killed"))
    assert fails_with_a_wait(story).problems
    small = shrunk(story, run=fails_with_a_wait, runs=3_000)
    (execution,) = small.executions
    assert (small.faults, small.servers, small.workers) == (("acks lost",), 1, 1)
    assert execution.asks == () and execution.at_s == 0.0


def test_a_playbook_shrinks_to_what_fails() -> None:
    number = next(one for one in range(100) if '"wait"' in random_job(one, confluent=False).source)
    story = Story(1, faults=("acks lost",), executions=(Planned(random_job(number, confluent=False), 0.0),))
    (execution,) = shrunk(story, run=fails_with_a_wait, runs=3_000).executions
    assert len(json.loads(execution.job.source)["workflow"]) == 1


def test_the_written_test_tells_the_same_story() -> None:
    changed = Job("shrunk", json.dumps({"workflow": [{"step": "a", "when": None}]}), ends="anyhow")
    story = Story(
        5,
        servers=2,
        faults=("acks lost",),
        executions=(
            Planned(job("chain"), 1.5),
            Planned(random_job(3, confluent=True), 0.0),
            Planned(changed, 2.0, (Ask(0.5, "patch", {"k0": 1}),)),
        ),
    )
    names: dict[str, Any] = {one.__name__: one for one in (Story, Planned, Ask, Job, job, random_job)}
    told: list[Story] = []
    names |= {"json": json, "simulate": lambda one: told.append(one) or SimulationReport(0, (), ())}
    exec(written(story, "it fails"), names)
    names["test_found_5"]()
    assert told == [story]


@pytest.mark.verify
def test_a_defect_shrinks_on_the_real_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    mutation = next(one for one in MUTATIONS if one.rule == "there is no reconcile")
    mutation.patch(monkeypatch)
    stories = (drawn(seed, ("command lost", "acks lost")) for seed in range(SEEDS))
    story = next((one for one in stories if simulate(one).problems), None)
    assert story is not None, f"no seed below {SEEDS} shows it"
    small = shrunk(story, runs=60)
    assert len(small.executions) < len(story.executions) and small.faults == ("command lost",)
    assert simulate(replace(small)).problems
