"""The statuses and numbers that are shown of an execution, its steps and step runs never contradict each other."""

from __future__ import annotations

from random import Random

from random_runs import SEEDS, STORMS_A_PLAYBOOK, WEATHERS, compiled
from random_workers import RandomRun

from noetl_stream.engine.replay import replay
from noetl_stream.engine.state import Execution
from noetl_stream.operations.executions.reading.step_runs import StepRunReader
from noetl_stream.operations.views.index import ExecutionIndex
from noetl_stream.storage.journal import fact_of
from noetl_testkit.readers import contradictions
from noetl_testkit.scenario.scenario import Scenario

APART = 40
"""One of so many seeds: every position of its journal is looked at."""


def test_shown_statuses_agree_at_every_position_of_random_journals() -> None:
    for seed in range(4, SEEDS, APART):
        random = Random(seed)
        scenario = Scenario(compiled(seed // STORMS_A_PLAYBOOK, confluent=False))
        RandomRun(scenario, random, random.choice(WEATHERS)).run()
        index, reading = ExecutionIndex(scenario.execution_id), StepRunReader(scenario.execution_id)
        state: Execution | None = None
        for event in scenario.rows():
            index.read(fact_of(event))
            reading.take([event])
            state = replay(scenario.execution_id, [event], state)
            if state is not None:
                assert list(contradictions(state, index, reading)) == [], f"seed {seed}"
