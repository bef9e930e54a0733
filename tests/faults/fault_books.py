"""What must hold of executions after faults: all ended, none twice in the books, effects as often as faults explain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from fault_stack import FaultStack
from fault_work import Job

from noetl_stream.concurrency import closing
from noetl_stream.model.ids import PARTITIONS
from noetl_stream.model.json import codec
from noetl_stream.ports.stores.store import ExecutionRow, StoredEvent
from noetl_stream.protocol.nats_permissions import SERVER
from noetl_stream.server.ownership.recorded import RecordedPartition, read_partition
from noetl_stream.storage.journal import events_of
from noetl_stream.wiring.stores import connect_to_nats

Explained = Callable[[Sequence[float]], bool]
"""Whether faults explain that an effect happened at each of these times."""

AT_ONCE = 200


async def problems(
    stack: FaultStack, jobs: Mapping[str, Job], explained: Explained, may_fail: Collection[str] = ()
) -> list[str]:
    """What is wrong with these executions, each a job that has ended.

    Args:
        jobs: By execution.
        may_fail: Jobs that may have failed, because a store has lost what they need.
    """
    found: list[str] = []
    store, ids = stack.connected.store, list(jobs)
    for part in (ids[at : at + AT_ONCE] for at in range(0, len(ids), AT_ONCE)):
        rows = await store.executions(part)
        journals = await store.journals(dict.fromkeys(part, 0))
        for one in part:
            journal, row = list(events_of(one, journals[one])), rows.get(one)
            if jobs[one].name in may_fail and row is not None and b"result_lost" in (row.error or b""):
                continue
            wrong = [*row_problems(row, jobs[one]), *journal_problems(row, journal, jobs[one])]
            wrong += effect_problems(stack.ledger.effects.get(one, {}), jobs[one], explained)
            found += [f"{one} ({jobs[one].name}): {text}" for text in wrong]
    found += [f"{one}: waits for nothing" for one in await store.stuck(100) if one in jobs]
    return found


async def unpublished(stack: FaultStack, jobs: Collection[str]) -> list[str]:
    """Of these executions those whose journal `database rebuild` would not find in EVENTS to its end."""
    rows = await stack.connected.store.executions(list(jobs))
    held: dict[str, int] = {}
    async with closing(await connect_to_nats(stack.endpoint(SERVER), name="faults")) as server:
        for partition in range(PARTITIONS):
            messages = await read_partition(server.log, partition, 0)
            recorded = RecordedPartition(messages, 0, await server.log.fences(partition))
            held |= {one: sum(entry.width for entry in it.entries(0)) for one, it in recorded.executions.items()}
    return [
        f"{one}: EVENTS holds {held.get(one, 0)} of {rows[one].position} positions"
        for one in jobs
        if one in rows and held.get(one, 0) < rows[one].position
    ]


def repeated(stack: FaultStack, jobs: Mapping[str, Job]) -> int:
    """How many effects of these executions happened more than once."""
    return sum(len(times) > 1 for one in jobs for times in stack.ledger.effects.get(one, {}).values())


def row_problems(row: ExecutionRow | None, job: Job) -> list[str]:
    """Whether it has ended, and as the job says."""
    if row is None or row.finished_ms is None:
        return ["has not ended"]
    result = codec.decode_json(codec.decode_payload(row.result).value) if row.result else None
    if (row.status, result) == (job.status, job.result):
        return []
    return [f"is {row.status} with {result!r}, not {job.status} with {job.result!r}; {row.error!r}"]


def journal_problems(row: ExecutionRow | None, journal: Sequence[StoredEvent], job: Job) -> list[str]:
    """Whether each position is there, and each step and each attempt of a task once."""
    found = []
    positions = [event.position for event in journal]
    if positions != list(range(1, (row.position if row is not None else 0) + 1)):
        found.append(f"its journal has the positions {positions}")
    if (ended := sum(event.name in ("step.done", "loop.done") for event in journal)) != job.steps:
        found.append(f"{ended} steps ended, not {job.steps}")
    runs = Counter((event.step_run_id, *_task_of(event)) for event in journal if event.name == "task.processed")
    found += [f"{run} was processed {count} times" for run, count in runs.items() if count > 1]
    return found


def _task_of(event: StoredEvent) -> tuple[str, str, int]:
    fact = codec.decode_json(event.data)
    return fact["task"], str(fact.get("path", ())), fact.get("attempt", 1)


def effect_problems(effects: Mapping[str, Sequence[float]], job: Job, explained: Explained) -> list[str]:
    """Whether all effects happened, by the ledger, and once unless a fault explains more."""
    wanted = sum(job.effects.values())
    found = [] if len(effects) == wanted else [f"{len(effects)} effects, not {wanted}"]
    found += [
        f"the effect {key} happened {len(times)} times, and no fault explains that"
        for key, times in effects.items()
        if len(times) > 1 and not explained(times)
    ]
    return found
