"""Fixed work of the pure core: what a server and a worker do for playbooks of no-op steps, without their IO.

Every run does the same: ids, times and keys are fixed. The messages of a run are those that the core itself has made in
a rehearsal, so a run of a server contains no work of a worker, and the other way round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Final, NamedTuple

import msgspec

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.memory.broker import MemoryBroker
from noetl_stream.adapters.memory.store import MemoryStore
from noetl_stream.engine.replay import replay
from noetl_stream.engine.runner.outputs import ReportFacts, RunTask
from noetl_stream.engine.runner.runner import CommandRunner
from noetl_stream.model import codec
from noetl_stream.model.events import ExecutionRequested
from noetl_stream.model.ids import PARTITIONS, partition_of
from noetl_stream.model.messages import Go, Report, Request, StepCommand
from noetl_stream.model.outcome import Meta, Outcome
from noetl_stream.playbook.compile.compiler import compile_playbook
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.command_queue import QueuedCommand
from noetl_stream.ports.event_log import ReportedMessage
from noetl_stream.ports.store import EventRow
from noetl_stream.server.execution_cache import ExecutionCache
from noetl_stream.server.fold import Fold
from noetl_stream.server.plan_cache import PlanCache
from noetl_stream.server.tick import execution_row
from noetl_stream.template import render
from noetl_stream.template.runtime.scope import NO_REFERENCES
from noetl_stream.testing.keys import CAPABILITIES
from noetl_stream.tools.pipeline import NoopTool

AT_MS: Final = 1_800_000_000_000
KINDS: Final = {"noop": NoopTool.spec}
TICKS: Final = dict.fromkeys(range(PARTITIONS), 1)

HEAD: Final = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: work, path: benchmarks/work }
workflow:
"""
CHAIN: Final = f"""{HEAD}
- {{ step: a, tool: {{ kind: noop }}, next: {{ arcs: [{{ step: b, when: "{{{{ event.name == 'step.done' }}}}" }}] }} }}
- {{ step: b, tool: {{ kind: noop }}, next: {{ arcs: [{{ step: c, when: "{{{{ event.name == 'step.done' }}}}" }}] }} }}
- {{ step: c, tool: {{ kind: noop }} }}
"""
LOOP: Final = f"""{HEAD}
- step: each
  loop: {{ in: "{{{{ range(100) | list }}}}", iterator: n, spec: {{ mode: parallel, max_in_flight: 10 }} }}
  tool: {{ kind: noop, args: {{ n: "{{{{ iter.n }}}}" }} }}
"""
TASK: Final = """
  - name: NAME
    kind: noop
    args: { n: '{{ execution_id }}', before: '{{ _prev }}' }
    spec: { policy: { rules: [{ else: { then: { do: continue, set_iter: { seen: '{{ _task }}' } } } }] } }
"""
PIPELINE: Final = HEAD + "- step: work\n  tool:" + "".join(TASK.replace("NAME", f"t{n}").rstrip() for n in range(5))


class CoreServer:
    """A server's fold: messages in, the bytes of rows, records and commands out."""

    def __init__(self, plan: Plan) -> None:
        clock = ManualClock()
        store = MemoryStore(clock)
        plans = PlanCache(store, MemoryBroker(clock).blobs, KINDS)
        self._executions = ExecutionCache(store, plans, lambda partition: 0, lambda state: None)
        self._plan = plan

    def tick(self, messages: Sequence[ReportedMessage]) -> tuple[list[QueuedCommand], list[EventRow]]:
        """Folds these and makes everything that their transaction writes and that is published after it."""
        fold = Fold(self._executions, CAPABILITIES)
        bodies = [(message, body) for message in messages if (body := fold.decode(message)) is not None]
        for message, body in bodies:
            if isinstance(body, Request):
                self._executions.begin(message.execution_id, self._plan)
        fold.messages(bodies)
        tick = fold.tick
        tick.feed_rows(TICKS)
        tick.journal_records(TICKS, TICKS, "server")
        for execution_id, (state, partition, at_ms) in tick.touched.items():
            execution_row(state, partition, AT_MS, at_ms)
            if state.ended:
                self._executions.end(execution_id)
        return tick.commands, tick.events


def run_command(plan: Plan, body: bytes) -> bytes:
    """A worker's run of one command, from its bytes to those of the report."""
    command = codec.decode_command(body)
    runner = CommandRunner(plan, command, Go(next_number=0), kinds=KINDS, worker="worker", references=NO_REFERENCES)
    events: list[msgspec.Raw] = []
    outputs = deque(runner.begin())
    while outputs:
        output = outputs.popleft()
        if isinstance(output, ReportFacts):
            events += [msgspec.Raw(codec.encode(fact)) for fact in output.facts]
        elif isinstance(output, RunTask):
            outputs.extend(runner.complete(output.id, _outcome(runner, output)))
        else:
            raise AssertionError(f"no-ops need no {output}")
    return codec.encode(_report(command, events))


def _outcome(runner: CommandRunner, action: RunTask) -> Outcome:
    scope = runner.scope.for_inputs(action.task, action.progress, action.iteration)
    result = render(action.task.inputs, replace(scope, budget=None)).get("args") or {}
    meta = Meta(action.progress.attempt, "2026-11-22T15:00:00.000Z", "2026-11-22T15:00:00.000Z", 0.0, "worker")
    return Outcome("ok", codec.payload_of(result), meta=meta)


def _report(command: StepCommand, events: list[msgspec.Raw]) -> Report:
    return Report(
        execution_id=command.execution_id,
        step_run_id=command.step_run_id,
        command_id=command.command_id,
        issue=command.issue,
        num_delivered=1,
        nonce="nonce",
        number=0,
        first=0,
        events=events,
        capability=command.capability,
    )


class Rehearsal(NamedTuple):
    """What a run of some executions of a playbook exchanged, by tick: messages in, the commands that follow from them,
    and the journal rows.
    """

    plan: Plan
    messages: list[list[ReportedMessage]]
    commands: list[list[QueuedCommand]]
    rows: list[EventRow]


@cache
def rehearse(playbook: str, executions: int) -> Rehearsal:
    """Runs them to their ends, all at the same pace."""
    plan = compile_playbook(playbook, KINDS)
    found, server = Rehearsal(plan, [], [], []), CoreServer(plan)
    sequence = 0

    def message(execution_id: str, kind: str, body: bytes) -> ReportedMessage:
        nonlocal sequence
        sequence += 1
        partition = partition_of(execution_id)
        subject = f"noetl.events.{partition}.{execution_id}.{kind}"
        return ReportedMessage(sequence, AT_MS + sequence, partition, execution_id, body, subject)

    def request(number: int) -> ReportedMessage:
        one = f"0193540b-0000-7000-8000-{number:012}"
        return message(one, "requested", codec.encode(Request(one, one, ExecutionRequested(one, plan.digest))))

    batch = [request(number) for number in range(executions)]
    while batch:
        commands, rows = server.tick(batch)
        found.messages.append(batch)
        found.commands.append(commands)
        found.rows.extend(rows)
        batch = [message(one.execution_id, "reported.default", run_command(plan, one.body)) for one in commands]
    assert sum(row.name == "execution.finished" for row in found.rows) == executions
    return found


class Work(NamedTuple):
    """Work to be measured, and by how much to divide what it takes."""

    run: Callable[[], object]
    units: int


def folded(playbook: str, executions: int, units: int) -> Work:
    """A server's part of these executions, of so many units each."""
    rehearsal = rehearse(playbook, executions)
    server = CoreServer(rehearsal.plan)
    return Work(lambda: [server.tick(batch) for batch in rehearsal.messages], executions * units)


def worked(playbook: str, executions: int, units: int) -> Work:
    """A worker's part of them."""
    rehearsal = rehearse(playbook, executions)
    bodies = [command.body for batch in rehearsal.commands for command in batch]
    return Work(lambda: [run_command(rehearsal.plan, body) for body in bodies], executions * units)


def replayed(playbook: str, executions: int, units: int) -> Work:
    """What a takeover does: their states from their journals."""
    journals: dict[str, list[EventRow]] = {}
    for row in rehearse(playbook, executions).rows:
        journals.setdefault(row.execution_id, []).append(row)
    return Work(lambda: [replay(*journal) for journal in journals.items()], executions * units)


def compiled(playbook: str, times: int) -> Work:
    compile_playbook(playbook, KINDS)  # what is imported and cached the first time is not counted
    return Work(lambda: [compile_playbook(playbook, KINDS) for _ in range(times)], times)


WORK: Final[dict[str, Callable[[], Work]]] = {
    "a playbook of three steps: compiled": lambda: compiled(CHAIN, 1),
    "a plain step: the server": lambda: folded(CHAIN, 20, 3),
    "a plain step: the worker": lambda: worked(CHAIN, 20, 3),
    "a plain step: replayed": lambda: replayed(CHAIN, 20, 3),
    "an iteration of a loop: the server": lambda: folded(LOOP, 1, 100),
    "a task of a pipeline: the worker": lambda: worked(PIPELINE, 6, 5),
}
