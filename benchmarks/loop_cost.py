"""What an iteration of a distributed loop costs the engine, in a loop of 1,000 items and in one of 100,000.

    python benchmarks/loop_cost.py [items]

Prints microseconds of CPU per iteration for both, and their ratio, which should be about 1: a loop's state is counts
and a window, however many iterations have ended (DESIGN §3). Folds the report of each iteration, decides, and builds
the next command, without IO. Each iteration contributes to a shared key, and every hundredth ends out of turn.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from statistics import median
from typing import Final

from noetl_stream.engine.advance import advance
from noetl_stream.engine.effects import IssueCommand
from noetl_stream.engine.state import Assignment, Execution, RecordedFact
from noetl_stream.model.events import (
    ExecutionRequested,
    Fact,
    LoopIterationDone,
    LoopIterationStarted,
    SharedValue,
    TaskProcessed,
    TaskStarted,
)
from noetl_stream.model.ids import RunId
from noetl_stream.model.json.codec import payload_of
from noetl_stream.model.outcome import Outcome
from noetl_stream.playbook.compile.compiler import compile_playbook
from noetl_stream.playbook.plan import Plan
from noetl_stream.tools.registry import kinds_of, load_tools

FEW: Final = 1_000
MANY: Final = 100_000
EXECUTION: Final = "execution-1"
ROUNDS: Final = 50
"""Small loops timed before the large one, and again after it."""

LATE: Final = 100
"""Every 100th iteration ends after those behind it in the window."""

PLAYBOOK: Final = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: loop-cost, path: benchmarks/loop-cost }
workload: { numbers: [] }
workflow:
- step: each
  loop: { in: "{{ workload.numbers }}", iterator: n, spec: { mode: parallel, max_in_flight: 20 } }
  tool:
    name: work
    kind: noop
    spec: { policy: { rules: [{ else: { then: { do: continue, set_shared: { sum: { op: add, value: 1 } } } } }] } }
"""


class Loop:
    """One execution of the playbook over ``items`` items."""

    def __init__(self, plan: Plan, items: int) -> None:
        self.plan = plan
        self.owed: deque[str] = deque()
        self.state: Execution | None = None
        self.started_s = time.process_time()
        self._fold(RecordedFact(ExecutionRequested("request-1", plan.digest, workload={"numbers": [*range(items)]})))

    def run(self) -> Execution:
        """Reports every iteration. Returns the final state."""
        state = self.state
        while state is not None and not state.ended:
            if len(self.owed) > 1 and state.assignments[self.owed[0]].path[0] % LATE == 0:
                self.owed.rotate(-1)
            self._answer(state.assignments[self.owed.popleft()])
            state = self.state
        assert state is not None
        return state

    def _answer(self, assignment: Assignment) -> None:
        path, run = assignment.path, RunId(assignment.command_id, 1, 1, "nonce")
        facts: list[Fact] = [
            LoopIterationStarted(path, "worker"),
            TaskStarted("work", 1, path),
            TaskProcessed(
                "work",
                1,
                Outcome("ok", payload_of({"n": path[0]})),
                "continue",
                path,
                set_shared={"sum": SharedValue("add", 1)},
            ),
            LoopIterationDone(path),
        ]
        for number, fact in enumerate(facts):
            self._fold(RecordedFact(fact, run, number))

    def _fold(self, recorded: RecordedFact) -> None:
        advanced = advance(self.plan, self.state, recorded, EXECUTION)
        self.state = advanced.state
        self.owed += [effect.command.command_id for effect in advanced.effects if isinstance(effect, IssueCommand)]


def cost_us(plan: Plan, items: int) -> float:
    """Microseconds of CPU per iteration, from the request to the end."""
    loop = Loop(plan, items)
    state = loop.run()
    took_s = time.process_time() - loop.started_s
    assert state.status == "completed" and state.ctx == {"sum": items}, f"it is {state.status}: {state.outcome}"
    return took_s / items * 1_000_000


def main() -> None:
    """Prints both costs and their ratio."""
    many = int(sys.argv[1]) if len(sys.argv) > 1 else MANY
    plan = compile_playbook(PLAYBOOK, kinds_of(load_tools()))
    costs_us = [cost_us(plan, FEW) for _ in range(ROUNDS)]
    many_us = cost_us(plan, many)
    few_us = median(costs_us + [cost_us(plan, FEW) for _ in range(ROUNDS)])
    print(f"{FEW:>7} items: {few_us:6.1f} µs an iteration")
    print(f"{many:>7} items: {many_us:6.1f} µs an iteration")
    print(f"ratio {many_us / few_us:.2f}")


if __name__ == "__main__":
    main()
