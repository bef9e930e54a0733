"""Random playbooks for simulations: the whole language, with tools whose effects are counted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any, Final

from noetl_testkit.random_language import PlaybookWriter
from noetl_testkit.simulation.work import REGISTERED, work

LARGE: Final = "large " * 30
"""A value above ``max_inline_bytes`` where that is lowered."""


def random_source(seed: int, *, confluent: bool) -> str:
    """The text of a playbook.

    Args:
        confluent: Whether no timing and no fault may change how it ends.
    """
    return json.dumps(SimulatedWriter(Random(f"playbook {seed}"), confluent).document())


class SimulatedWriter(PlaybookWriter):
    """What tasks do depends on their inputs alone, so that a task that runs again does the same."""

    PATH = "simulation/random"
    CALLED: Sequence[str] = tuple(REGISTERED)
    WAITS_S: Sequence[float] = (0, 1, 7)
    SIGNALS_S: Sequence[float] = (9,)
    RESTS_S: Sequence[float] = (2, 12)
    DELAYS_S: Sequence[float] = (0, 1, 7)
    STEPS_S: Sequence[float] = (3, 30)
    EXECUTIONS_S: Sequence[float] = (3, 60)
    CALLS_S: Sequence[float] = (1, 60)

    def document(self) -> dict[str, Any]:
        document = super().document()
        limits = document["executor"]["spec"]["policy"]["limits"]
        limits["max_step_runs"] = min(limits["max_step_runs"], 100 if self.confluent else 8)
        if self.chance(0.15):
            limits["max_inline_operations"] = 1
        if self.chance(0.15):
            limits["max_loop_items_bytes"] = 1
        if self.chance(0.1):
            limits["max_task_runs"] = 2
        document["workbook"] = {"tasks": {"shared": self.work()}}
        return document

    def step(self, index: int) -> dict[str, Any]:
        step = super().step(index)
        if "tool" in step and self.chance(0.2):
            step["tool"].append(self.construct())
        return step

    def policy(self, index: int) -> dict[str, Any]:
        policy = super().policy(index)
        if not self.confluent and self.chance(0.3 if "wait" in policy.get("admit", {}) else 0.1):
            policy["lifecycle"] = {"deadline_s": 1}
        return policy

    def levels(self) -> list[dict[str, Any]]:
        levels = super().levels()
        if self.chance(0.15):
            levels[0]["spec"]["policy"] = {"failure": {"mode": "best_effort", "tolerated": 0}}
        return levels

    def admission(self, index: int) -> dict[str, Any]:
        admit = super().admission(index)
        if "wait" in admit and self.chance(0.3):
            admit["rules"] = [{"else": {"then": {"allow": False}}}]
        return admit

    def task(self, index: int, number: int, loops: bool, parallel: bool) -> dict[str, Any]:
        task = super().task(index, number, loops, parallel)
        if task["kind"] == "work" and loops and self.chance(0.3):
            task["failures"] = "{{ 9 if iter.index == 1 else 0 }}"
            if self.chance(0.5):
                task.pop("spec", None)
        if task["kind"] == "work" and self.chance(0.15):
            task.setdefault("spec", {})["result"] = {"schema": {"type": self.random.choice(["object", "string"])}}
        if task["kind"] == "work" and not self.confluent and self.chance(0.1):
            task.setdefault("spec", {})["timeout"] = 1
        return task

    def tool(self) -> dict[str, Any]:
        chance = self.random.random()
        if chance < 0.1:
            return {"kind": "workbook", "task": "shared"}
        if chance < 0.2:
            return {"kind": "playbook", "path": self.random.choice(self.CALLED), "args": {"n": 1}}
        if chance < 0.23:
            return {"kind": "wait", "until": "2025-06-15T15:07:05Z"}  # five seconds after the simulated time begins
        return super().tool()

    def work(self) -> dict[str, Any]:
        value = self.random.choice([{"task": "{{ _task }}", "attempt": "{{ _attempt }}"}, 1, LARGE])
        failures = self.random.choice([0, 0, 0, 0, 1, 9])
        return work(value, self.random.choice([0.0, 0.1, 0.7, 3.0]), failures=failures)

    def construct(self) -> dict[str, Any]:
        """A ``choose``, ``while`` or ``until``."""
        first, second = ({"name": name, **self.work()} for name in ("c0", "c1"))
        word = self.random.choice(["choose", "while", "until"])
        if word == "choose":
            branch = {"when": "{{ workload.flag }}", "then": [first]}
            return {"name": "chosen", "choose": [branch, {"else": {"then": [second]}}]}
        turn = {"turns": "{{ (iter.turns | default(0)) + 1 }}"}
        first["spec"] = {"policy": {"rules": [{"else": {"then": {"do": "continue", "set_iter": turn}}}]}}
        guard = "{{ iter.turns | default(0) < 2 }}" if word == "while" else "{{ iter.turns | default(0) >= 2 }}"
        return {"name": "repeated", word: {"when": guard, "do": [first]}}
