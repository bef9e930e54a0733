"""Random constructs in each other run the tasks that an interpreter of their words runs (LANGUAGE §12, v10 §14)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Any

import pytest

from effort import times
from noetl_stream.model.events import StepFailed, TaskProcessed
from noetl_stream.playbook.vocabulary.names import is_generated
from noetl_testkit.scenario.scenario import Scenario

MAX_TASK_RUNS = 60


class Writer:
    """Writes random pipelines. Every task counts its runs in ``iter``; guards ask how often a task ran."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.numbers = count()
        self.tasks: list[str] = []

    def entries(self, depth: int) -> list[dict[str, Any]]:
        return [self.entry(depth) for _ in range(self.random.choice([1, 1, 2, 3]))]

    def entry(self, depth: int) -> dict[str, Any]:
        word = self.random.choice(["task", "choose", "while", "until"]) if depth else "task"
        name = f"{word[0]}{next(self.numbers)}"
        if word == "task":
            self.tasks.append(name)
            then = {"do": "continue", "set_iter": {name: f"{{{{ (iter.{name} | default(0)) + 1 }}}}"}}
            return {"name": name, "kind": "noop", "spec": {"policy": {"rules": [{"else": {"then": then}}]}}}
        if word == "choose":
            branches: list[Any] = [
                {"then": self.entries(depth - 1), "when": self.guard()} for _ in range(self.random.randint(1, 3))
            ]
            if self.random.random() < 0.5:
                branches.append({"else": {"then": self.entries(depth - 1)}})
            return {"name": name, "choose": branches}
        return {"name": name, word: {"do": self.entries(depth - 1), "when": self.guard()}}

    def guard(self) -> Any:
        """Asks of tasks written so far, so of those inside a round too."""
        if not self.tasks or self.random.random() < 0.1:
            return self.random.choice([True, False])
        task, sign, number = self.random.choice(self.tasks), self.random.choice("<>"), self.random.randint(0, 4)
        return f"{{{{ (iter.{task} | default(0)) {sign} {number} }}}}"


def holds(guard: Any, runs: Counter[str]) -> bool:
    if isinstance(guard, bool):
        return guard
    _, _, rest = guard.partition("iter.")
    task, sign, number = rest.split(" ")[0], rest.split(" ")[3], int(rest.split(" ")[4])
    return runs[task] < number if sign == "<" else runs[task] > number


def interpreted(entries: list[dict[str, Any]], runs: Counter[str]) -> Iterator[str]:
    """The tasks, one after the other, as the words of the constructs say."""
    for entry in entries:
        if "kind" in entry:
            runs[entry["name"]] += 1
            yield entry["name"]
        elif "choose" in entry:
            branch = next((one for one in entry["choose"] if "else" in one or holds(one["when"], runs)), {"then": []})
            yield from interpreted(branch.get("else", branch)["then"], runs)
        elif "while" in entry:
            while holds(entry["while"]["when"], runs):
                yield from interpreted(entry["while"]["do"], runs)
        else:
            yield from interpreted(entry["until"]["do"], runs)
            while not holds(entry["until"]["when"], runs):
                yield from interpreted(entry["until"]["do"], runs)


@pytest.mark.parametrize("seed", range(times(40)))
def test_random_constructs_run_the_tasks_their_words_say(seed: int) -> None:
    tool = Writer(Random(seed)).entries(3)
    document = {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": "random", "path": "tests/random"},
        "executor": {"spec": {"policy": {"limits": {"max_task_runs": MAX_TASK_RUNS}}}},
        "workflow": [{"step": "start", "tool": tool}],
    }
    scenario = Scenario(json.dumps(document))
    scenario.start()
    scenario.done("start")
    ran = [fact.task for fact in scenario.facts(TaskProcessed) if not is_generated(fact.task)]
    story = interpreted(tool, Counter())
    assert ran == [task for _, task in zip(ran, story, strict=False)]
    if scenario.status == "completed":
        assert next(story, None) is None
    else:
        [failed] = scenario.facts(StepFailed)
        assert failed.error.kind == "limit_exceeded"
        assert len(scenario.facts(TaskProcessed)) == MAX_TASK_RUNS
