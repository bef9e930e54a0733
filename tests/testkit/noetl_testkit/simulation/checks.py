"""Checks after every commit of a simulation, and at its end (PROTOCOL §6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from noetl_stream.engine.replay import replay
from noetl_stream.model.events import ExecutionReused, Fact, NextEvaluated, StepScheduled, TokenClaimed, TokenEnqueued
from noetl_stream.model.events.composite import expand
from noetl_stream.model.ids import PARTITIONS, partition_of
from noetl_stream.model.json import codec
from noetl_stream.model.messages import NOTHING
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.stores.dead_letters import ALL_EVENTS
from noetl_stream.ports.stores.store import ExecutionRow, StoredEvent
from noetl_stream.server.server import Server
from noetl_testkit.entries import names_of
from noetl_testkit.readers import reader_problems
from noetl_testkit.rebuilding import rebuilt_differences
from noetl_testkit.scenario.invariants import missed_decisions
from noetl_testkit.simulation.faults import STEADY, FaultPlan
from noetl_testkit.simulation.limits import limit_problems
from noetl_testkit.simulation.undoing import undoing_problems
from noetl_testkit.simulation.work import Job
from noetl_testkit.simulation.world import KINDS, SimulatedWorld

PUBLISHED_S: Final = 30.0
"""After this time without faults all that is committed is published."""


async def memory_problems(world: SimulatedWorld, server: Server) -> list[str]:
    """Whether the memory of ``server`` equals Postgres and is quiescent; returns the differences."""
    problems = []
    views = await world.store.read_partitions()
    for execution_id, executions in server.executions:
        owned, view = server.ownership.get(partition_of(execution_id)), views[partition_of(execution_id)]
        if owned is None or (view.owner, view.epoch) != (server.owner, owned.epoch) or executions.state is None:
            continue
        if executions.is_stub:
            continue
        held = replace(executions.state, resolved={})  # which only its server has
        if replay(execution_id, await world.store.journal(execution_id, -1)) != held:
            problems.append(f"{execution_id}: the journal folds to a state other than {server.owner} holds")
        if isinstance(executions.plan, Plan) and (follows := missed_decisions(executions.plan, executions.state)):
            problems.append(f"{execution_id}: is not quiescent: {follows}")
    return problems


async def quarantine_problems(faults: FaultPlan) -> list[str]:
    """Whether exactly what cannot be folded is set aside, and no message of another execution is kept.

    An execution that has ended could be folded after all: the input that killed servers was lost with a tail of EVENTS,
    and what was done again brought no other.
    """
    world, poison = faults.world, faults.poison
    poisoned = poison.execution_id if poison is not None and poison.strikes else ""
    tables, letters = world.store.tables, await world.store.dead_letters.page(1_000, None)
    problems = [f"{one}: is quarantined, and nothing is wrong with it" for one in _quarantined(world) - {poisoned}]
    kept = {letter.row.execution_id for letter in letters if letter.row.subject != ALL_EVENTS} - {poisoned}
    problems += [f"{execution_id}: has a dead letter" for execution_id in kept]
    row = tables.executions.get(poisoned)
    is_settled = row is not None and (row.status == "quarantined" or row.finished_ms is not None)
    if poisoned and poisoned not in world.clients.refused and not is_settled:
        problems.append(f"{poisoned}: is not set aside, although it cannot be folded")
    return problems


def _quarantined(world: SimulatedWorld) -> set[str]:
    journals = world.store.tables.journals.items()
    return {one for one, rows in journals if "execution.quarantined" in names_of(one, rows.values())}


async def final_problems(faults: FaultPlan) -> list[str]:
    """Everything that is wrong in the world of these faults once it is quiescent."""
    world = faults.world
    clients = world.clients
    problems = [f"ended before its time: {role}" for role in world.ended] + clients.problems
    set_aside = faults.poison.execution_id if faults.poison is not None and faults.poison.strikes else ""
    for execution_id, (submission, job) in {**clients.accepted, **clients.refused}.items():
        if execution_id == set_aside and execution_id in clients.refused:
            continue  # it has not begun
        journal = await world.store.journal(execution_id, -1)
        if await world.store.request(execution_id, submission.request_id) is None:
            problems.append(f"{execution_id}: has no request row")
        problems += await _execution_problems(faults, execution_id, job, journal)
        if execution_id != set_aside:  # what it was doing then, it does again
            problems += _effect_problems(faults, execution_id, journal)
        if "postgres restored" not in faults.kinds:  # then records may tell of ticks that it has lost
            problems += _record_problems(world, execution_id, journal)
        problems += _run_problems(execution_id, journal)
        problems += await reader_problems(world.store, execution_id)
    problems += await undoing_problems(world)
    for execution_id in await world.store.live_executions(range(PARTITIONS)):
        if execution_id not in clients.accepted:
            problems.append(f"{execution_id}: a child has not ended")
    problems += [f"{execution_id}: is stuck: nothing ends its wait" for execution_id in await world.store.stuck(100)]
    await world.clock.sleep(PUBLISHED_S)
    untold = await _untold(world)
    world.broker.event_log.trimmed = 0  # what has finished is rebuilt from what was trimmed
    differences = await rebuilt_differences(world.broker, world.store, world.catalog, KINDS)
    problems += [one for one in differences if not any(execution_id in one for execution_id in untold)]
    problems += await limit_problems(world, is_restored="postgres restored" in faults.kinds)
    if standing := await world.broker.command_queue.present():
        problems.append(f"commands left in the queue: {sorted(standing)}")
    return problems


async def _untold(world: SimulatedWorld) -> set[str]:
    """The executions of lost messages that were trimmed before the hole was found, or are in one at the head: of these
    it is not known when they were stored.
    """
    log = world.broker.event_log
    gone = {sequence for sequence in log.lost if sequence <= log.trimmed}
    for letter in await world.store.dead_letters.page(1_000, None):
        if letter.row.subject == ALL_EVENTS and letter.row.id.endswith("-0"):
            _, first, last, _ = letter.row.id.split("-")
            gone.update(range(int(first), int(last) + 1))
    return {one.message.execution_id for one in log.stored if one.message.sequence in gone}


async def _execution_problems(
    faults: FaultPlan, execution_id: str, job: Job, journal: Sequence[StoredEvent]
) -> list[str]:
    world = faults.world
    row = await world.store.execution(execution_id)
    if row is None or row.finished_ms is None:
        state = replay(execution_id, journal)
        waits = [] if state is None else [f"{a.command_id} issue {a.issue}" for a in state.assignments.values()]
        return [f"{execution_id} ({job.name}): has not ended; it waits for {waits}"]
    problems = []
    positions = [entry.position for entry in journal]
    if positions != list(range(1, row.position + 1)):
        problems.append(f"{execution_id}: positions {positions}, its row says {row.position}")
    state, shown = replay(execution_id, journal), (row.status, row.position, codec.decode_json(row.ctx))
    if state is None or (state.status, state.position, state.ctx) != shown:
        problems.append(f"{execution_id}: the journal folds to an end other than its row")
    is_given_up = faults.touches and any(b"lease_exhausted" in entry.data for entry in journal)
    if job.ends == "anyhow" or is_given_up:  # in the second case its leases were ended repeatedly
        return problems
    if execution_id in world.clients.refused and job.accepted:
        problems.append(f"{execution_id} ({job.name}): was rejected")
    end, expected = end_of(row, journal), faults.calm_ends.get(job.source)
    if job.ends == "as given" and (end["status"], end["result"]) != (job.status, job.result):
        problems.append(f"{execution_id} ({job.name}): {end['status']} with {end['result']}, not {job.result}")
    if job.ends == "as without faults" and end != expected:
        problems.append(f"{execution_id} ({job.name}): ends with {end}, without faults with {expected}")
    return problems


def end_of(row: ExecutionRow, journal: Sequence[StoredEvent]) -> dict[str, Any]:
    """How an execution ended, without who did what when."""
    payload = codec.decode_payload(row.result) if row.result else None
    result: Any = None
    if payload is not None:
        result = payload.reference.checksum if payload.reference is not None else codec.decode_json(payload.value)
    return {
        "status": row.status,
        "result": result,
        "error": codec.decode_json(row.error)["kind"] if row.error else None,
        "ctx": codec.decode_json(row.ctx),
        "discarded": row.discarded,
        "routed": sorted((fact.event, len(fact.fired)) for fact in _facts_of(journal) if type(fact) is NextEvaluated),
    }


def _effect_problems(faults: FaultPlan, execution_id: str, journal: Sequence[StoredEvent]) -> Iterator[str]:
    commands, issues = _commands(journal)
    steady = STEADY.issuperset(faults.kinds)
    # One that is still on its way to the queue when its partition is handed over is issued by the new owner too.
    partition = faults.world.store.tables.partitions[partition_of(execution_id)]
    owners = partition.epoch if "commands late" in faults.kinds else 1
    for command_id, issue in issues.items():
        if steady and issue > owners:
            yield f"{execution_id}: command {command_id} was issued {issue} times, and no fault explains it"
    for effect, count in faults.world.effects.items():
        if effect.execution_id != execution_id or count == 1:
            continue
        ids = commands.get(effect.step, set())
        if ids & faults.world.touched:
            continue
        yield f"{execution_id}: {count} times the effect of {effect.step}, attempt {effect.attempt}, unexplained"


def _commands(journal: Sequence[StoredEvent]) -> tuple[dict[str, set[str]], dict[str, int]]:
    """The commands of each step, and how often each was issued."""
    token_steps: dict[str, str] = {}
    run_steps: dict[str, str] = {}
    commands: dict[str, set[str]] = {}
    issues: dict[str, int] = {}
    for fact in _facts_of(journal):
        if isinstance(fact, TokenEnqueued):
            token_steps[fact.token.token_id] = fact.token.step
        elif isinstance(fact, TokenClaimed):
            run_steps[fact.step_run_id] = token_steps[fact.token_id]
        elif isinstance(fact, StepScheduled):
            commands.setdefault(run_steps[fact.step_run_id], set()).add(fact.command_id)
            issues[fact.command_id] = fact.issue
    return commands, issues


def _facts_of(journal: Sequence[StoredEvent]) -> Iterator[Fact]:
    """The facts of the journal, including those it reused."""
    for entry in journal:
        fact = codec.decode_fact(entry.data)
        yield from fact.entries if isinstance(fact, ExecutionReused) else [fact]


def _record_problems(world: SimulatedWorld, execution_id: str, journal: Sequence[StoredEvent]) -> Iterator[str]:
    """Checks that published records equal Postgres: a tick that was not committed is never published."""
    rows = {entry.position: entry for entry in journal}
    for stored in world.broker.event_log.stored:
        if stored.message.execution_id != execution_id or not stored.message.subject.endswith(".decided"):
            continue
        record = codec.decode_record(stored.message.body)
        position = record.first_position
        for entry in map(codec.decode_entry, record.entries):
            if entry.report_id and entry.facts == NOTHING:
                row = rows.get(position)
                if row is None or row.source == "server" or row.report_id not in (None, entry.report_id):
                    yield f"{execution_id}: a record at position {position} differs from Postgres"
                position += _width_of_input(rows, position)
            for facts, source in ((entry.facts, entry.source), (entry.decisions, "server")):
                for fact in (part for one, _ in codec.decode_facts(facts) for part in expand(execution_id, one)):
                    row = rows.get(position)
                    if row is None or row.source != source or codec.decode_fact(row.data) != fact:
                        yield f"{execution_id}: a record at position {position} differs from Postgres"
                    position += 1


def _run_problems(execution_id: str, journal: Sequence[StoredEvent]) -> Iterator[str]:
    """Of each command one run is taken at a time, and of that run each event, in order (PROTOCOL §3)."""
    bound: dict[str, tuple[tuple[int, int, str], int]] = {}
    for entry in journal:
        if entry.source != "worker" or entry.report_id is None or entry.number is None:
            continue
        command_id, issue, delivery, nonce, _ = entry.report_id.split(".")
        run = (int(issue), int(delivery), nonce)
        last, expected = bound.get(command_id, (run, 0))
        expected = expected if run == last else 0
        if run[:2] < last[:2] or entry.number != expected:
            yield f"{execution_id}: takes event {entry.number} of run {run} of {command_id}, not {expected} of {last}"
        bound[command_id] = run, entry.number + 1


def _width_of_input(rows: Mapping[int, StoredEvent], first: int) -> int:
    """How many events the input at this position has: those of one report up to the first decision."""
    if (found := rows.get(first)) is None or found.report_id is None:
        return 1  # a request; the next one has no report either
    position = first
    while (row := rows.get(position)) is not None and row.cause is None and row.report_id == found.report_id:
        position += 1
    return position - first
