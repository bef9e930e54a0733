"""Fixed work of the pure core: what a server and a worker do for playbooks of no-op steps, without their IO.

Every run does the same: ids, times and keys are fixed. The messages of a run are those that the core itself has made in
a rehearsal, so a run of a server contains no work of a worker, and the other way round.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.memory.broker import MemoryBroker
from noetl_stream.adapters.memory.stores.store import MemoryStore
from noetl_stream.engine.replay import replay_entries
from noetl_stream.engine.runner.lanes import ReportFacts, RunTask
from noetl_stream.engine.runner.straight import FROM_THE_START, Runner, runner_of
from noetl_stream.model.events import ExecutionRequested, Fact
from noetl_stream.model.events.composite import whole_run
from noetl_stream.model.ids import PARTITIONS, partition_of
from noetl_stream.model.json import codec
from noetl_stream.model.messages import NamespaceShare, Report, Request, StepCommand
from noetl_stream.model.outcome import Meta, Outcome
from noetl_stream.playbook.compile.compiler import compile_playbook
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.stores.store import EntryRow, ExecutionRow, FeedRow, StoredEntry
from noetl_stream.ports.streams.command_queue import QueuedCommand
from noetl_stream.ports.streams.event_log import DecidedMessage, ReportedMessage
from noetl_stream.server.formats import Formats
from noetl_stream.server.memory.execution_cache import ExecutionCache
from noetl_stream.server.memory.plan_cache import PlanCache
from noetl_stream.server.memory.snapshots import Snapshots
from noetl_stream.server.ticks.fold import Fold
from noetl_stream.server.ticks.watching import WatchingTriggers
from noetl_stream.template import render
from noetl_stream.template.runtime.scope import NO_REFERENCES
from noetl_stream.tools.pipeline import NoopTool
from noetl_testkit.keys import CAPABILITIES

AT_MS: Final = 1_800_000_000_000
AT: Final = "2027-01-15T08:00:00.000Z"
KINDS: Final = {"noop": NoopTool.spec}
TRACE: Final = "4bf92f3577b34da6a3ce929d0e0e4736"
WORKER: Final = "worker-host-4711-0a1b2c3d"
SERVER: Final = "server-host-4712-1b2c3d4e"
NONCE: Final = "2c3d4e5f6071"
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


class Written(NamedTuple):
    """What a tick writes, and what is published after it. ``executions`` are the rows that it inserts or updates."""

    entries: list[EntryRow]
    executions: list[ExecutionRow]
    feed: list[FeedRow]
    records: list[DecidedMessage]
    commands: list[QueuedCommand]


class CoreServer:
    """A server's fold: messages in, the bytes of rows, records and commands out."""

    def __init__(self, plan: Plan) -> None:
        clock = ManualClock()
        store = MemoryStore(clock)
        plans = PlanCache(store, MemoryBroker(clock).blobs, KINDS)
        snapshots = Snapshots(store, plans)
        self._executions = ExecutionCache(store, snapshots, lambda partition: 0, lambda state: None, sys.maxsize)
        self._plan = plan
        self._ends = WatchingTriggers(store)

    def tick(self, messages: Sequence[ReportedMessage]) -> Written:
        """Folds these in one tick."""
        fold = Fold(self._executions, CAPABILITIES, Formats(), self._ends, NamespaceShare, lambda: False)
        bodies = [(message, body) for message in messages if (body := fold.decode(message)) is not None]
        for message, body in bodies:
            if isinstance(body, Request):
                self._executions.begin(message.execution_id, self._plan)
        fold.fold_messages(bodies)
        tick = fold.tick
        rows = tick.execution_rows()
        self._executions.snapshots_due(one.state for one in tick.touched.values())
        for execution_id, touched in tick.touched.items():
            if touched.state.ended:
                self._executions.end(execution_id)
            else:
                self._executions.grow(execution_id, tick.segments[execution_id].size)
        records = tick.journal_records(TICKS, TICKS, SERVER)
        return Written(tick.entry_rows(), rows, tick.feed_rows(TICKS), records, tick.commands)


def run_command(plan: Plan, body: bytes) -> bytes:
    """A worker's run of one command, from its bytes to those of the report."""
    command = codec.decode_command(body)
    runner = runner_of(plan, command, FROM_THE_START, kinds=KINDS, worker=WORKER, references=NO_REFERENCES)
    facts: list[Fact] = []
    outputs = deque(runner.begin())
    while outputs:
        output = outputs.popleft()
        if isinstance(output, ReportFacts):
            facts += output.facts
        elif isinstance(output, RunTask):
            outputs.extend(runner.complete(output.id, _outcome(runner, output, command)))
        else:
            raise AssertionError(f"no-ops need no {output}")
    whole = whole_run(command.step_run_id, facts)
    reported = facts if whole is None else [whole]
    return codec.encode(_report(command, [msgspec.Raw(codec.encode(fact)) for fact in reported]))


def _outcome(runner: Runner, action: RunTask, command: StepCommand) -> Outcome:
    scope = runner.scope.for_inputs(action.task, action.progress, action.iteration)
    result = render(action.task.inputs, replace(scope, budget=None)).get("args") or {}
    meta = Meta(action.progress.attempt, AT, AT, 0.000123, WORKER, command.trace_id)
    return Outcome("ok", codec.payload_of(result), meta=meta)


def _report(command: StepCommand, events: list[msgspec.Raw]) -> Report:
    return Report(
        execution_id=command.execution_id,
        step_run_id=command.step_run_id,
        command_id=command.command_id,
        issue=command.issue,
        num_delivered=1,
        nonce=NONCE,
        number=0,
        first=0,
        events=events,
        capability=command.capability,
    )


class Rehearsal(NamedTuple):
    """A run of some executions of a playbook: by tick, the messages folded and what was written."""

    plan: Plan
    messages: list[list[ReportedMessage]]
    written: list[Written]


@cache
def rehearse(playbook: str, executions: int) -> Rehearsal:
    """Runs them to their ends, all at the same pace."""
    plan = compile_playbook(playbook, KINDS)
    found, server = Rehearsal(plan, [], []), CoreServer(plan)
    sequence = 0

    def message(execution_id: str, kind: str, body: bytes) -> ReportedMessage:
        nonlocal sequence
        sequence += 1
        partition = partition_of(execution_id)
        subject = f"noetl.events.{partition}.{execution_id}.{kind}"
        return ReportedMessage(sequence, AT_MS + sequence, partition, execution_id, body, subject)

    def request(number: int) -> ReportedMessage:
        one = f"0193540b-0000-7000-8000-{number:012}"
        fact = ExecutionRequested(one, plan.digest, plan.path, principal="ann", trace_id=TRACE)
        return message(one, "requested", codec.encode(Request(one, one, fact)))

    batch = [request(number) for number in range(executions)]
    while batch:
        written = server.tick(batch)
        found.messages.append(batch)
        found.written.append(written)
        bodies = [(one.execution_id, run_command(plan, one.body)) for one in written.commands]
        batch = [message(execution_id, "reported.default", body) for execution_id, body in bodies]
    assert {row.status for row in found.written[-1].executions} == {"completed"}
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
    bodies = [command.body for written in rehearsal.written for command in written.commands]
    return Work(lambda: [run_command(rehearsal.plan, body) for body in bodies], executions * units)


def replayed(playbook: str, executions: int, units: int) -> Work:
    """What a takeover does: their states from their journals."""
    journals: dict[str, list[StoredEntry]] = {}
    for row in (row for written in rehearse(playbook, executions).written for row in written.entries):
        values: dict[str, Any] = {name: getattr(row, name, None) for name in StoredEntry.__struct_fields__}
        entry = StoredEntry(**values)
        journals.setdefault(row.execution_id, []).append(entry)
    return Work(lambda: [replay_entries(one, journal) for one, journal in journals.items()], executions * units)


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
