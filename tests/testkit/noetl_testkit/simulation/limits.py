"""Stories of limits by key, and whether any was exceeded, by what the journals say (LANGUAGE §15 *Flow control*)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from noetl_stream.model import events
from noetl_stream.model.json import codec
from noetl_stream.ports.stores.store import StoredEvent
from noetl_testkit.simulation.faults import LATENCIES_S
from noetl_testkit.simulation.story import FAULTS_S, Ask, Planned, Story
from noetl_testkit.simulation.work import CALLED_PATH, Job, playbook, then, work
from noetl_testkit.simulation.world import SimulatedWorld

EXECUTIONS: Final = 9

BEHIND_MS: Final = int(1000 * max(LATENCIES_S))
"""A server's time lags that of EVENTS by as long as its last answer from Postgres took: a slot given back by one may be
given out again a moment earlier by the other.
"""

AT_ONCE: Final = {"whole": 1, "shared": 2, "steps": 1, "both": 2, "tasks": 2}
"""How many may hold each key."""

LIMITED: Final = "send"
"""The name of all tasks with a limit."""


def _concurrency(key: str, **more: Any) -> dict[str, Any]:
    return {"spec": {"policy": {"concurrency": {"key": key, "limit": AT_ONCE[key], **more}}}}


def _limit(key: str, **more: Any) -> dict[str, Any]:
    return {"policy": {"limit": {"key": key, "concurrency": AT_ONCE[key], **more}}}


def _jobs() -> Iterator[Job]:
    for name, key, more in [
        ("one", "whole", {}),
        ("two", "shared", {}),
        ("newest", "shared", {"on_limit": "cancel_running"}),
    ]:
        steps: list[dict[str, Any]] = [
            {"step": "a", "tool": work("{{ workload.n }}", 1.0), "next": then("b")},
            {"step": "b", "tool": work("{{ a }}", 0.5)},
        ]
        ends: dict[str, Any] = {"ends": "anyhow"} if key == "shared" else {"status": "completed", "result": 1}
        yield Job(name, playbook(name, steps, executor=_concurrency(key, **more), workload={"n": 1}), **ends)

    steps = [
        {"step": "before", "tool": work(1, 0.2), "next": then("call")},
        {"step": "call", "spec": _limit("steps"), "tool": work("{{ before + 1 }}", 1.0), "next": then("after")},
        {"step": "after", "tool": work("{{ call }}", 0.2)},
    ]
    yield Job("stepwise", playbook("stepwise", steps), "completed", 2)

    loop = {"in": [1, 2, 3], "iterator": "n", "spec": {"mode": "parallel"}}
    rest = {"name": "rest", "kind": "wait", "for_s": 2}
    paced = _limit("both", rate={"per_s": 1, "burst": 2})
    steps = [
        {"step": "fan", "spec": paced, "loop": loop, "tool": work("{{ iter.n }}", 0.4), "next": then("wait")},
        {"step": "wait", "spec": paced, "tool": [rest, {"name": "sum", **work("{{ fan }}")}]},
    ]
    yield Job("fanned", playbook("fanned", steps), "completed", [1, 2, 3])
    yield from _of_tasks()


def _of_tasks() -> Iterator[Job]:
    """Attempts, iterations on one worker and on many, a step that holds another key meanwhile, a call."""
    again = {"when": "{{ outcome.status == 'error' }}", "then": {"do": "retry", "attempts": 3, "delay": 0.5}}
    retried = {"policy": {**_limit("tasks")["policy"], "rules": [again]}}
    tasks = [
        {"name": "find", **work(1, 0.2)},
        {"name": LIMITED, **work("{{ find + 1 }}", 0.8, failures=1), "spec": retried},
        {"name": "tell", **work("{{ send + 1 }}", 0.2)},
    ]
    yield Job("piped", playbook("piped", [{"step": "pipe", "tool": tasks}]), "completed", 3)

    for placement in ("local", "distributed"):
        loop = {"in": [1, 2, 3], "iterator": "n", "spec": {"mode": "parallel", "exec": placement}}
        task = {"name": LIMITED, **work("{{ iter.n }}", 0.6), "spec": _limit("tasks")}
        steps: list[dict[str, Any]] = [{"step": "each", "loop": loop, "tool": [task]}]
        yield Job(f"each_{placement}", playbook(f"each_{placement}", steps), "completed", [1, 2, 3])

    call = {"name": LIMITED, "kind": "playbook", "path": CALLED_PATH, "args": {"n": 2}, "spec": _limit("tasks")}
    steps = [{"step": "held", "spec": _limit("steps"), "tool": [call]}]
    yield Job("held_twice", playbook("held_twice", steps), "completed", 20)


JOBS: Final = tuple(_jobs())


def limited_story(seed: int, faults: tuple[str, ...]) -> Story:
    """Executions that share keys, some of which are cancelled or paused while they hold or wait."""
    random = Random(f"limits {seed}")
    planned = []
    for _ in range(EXECUTIONS):
        job, chance = random.choice(JOBS), random.random()
        began_s = random.uniform(0.2, 6)
        asks: tuple[Ask, ...] = ()
        if chance < 0.2:
            job, asks = Job(f"{job.name}, cancelled", job.source, ends="anyhow"), (Ask(began_s, "cancel"),)
        elif chance < 0.35:
            asks = (Ask(began_s, "pause"), Ask(began_s + random.uniform(1, 8), "resume"))
        planned.append(Planned(job, random.uniform(0, FAULTS_S / 2), asks))
    return Story(seed, random.randint(1, 3), random.randint(1, 3), faults, tuple(planned))


class _Held(NamedTuple):
    """A slot that was held, from when to when."""

    key: str
    from_ms: int
    to_ms: int


async def limit_problems(world: SimulatedWorld, *, is_restored: bool) -> list[str]:
    """Keys held by too many at once, limited tasks that ran without a slot, and what was left behind.

    Args:
        is_restored: Postgres has lost ticks: what was called may have been called again later, or its caller told
            again that it has ended (ADR 30). A call then counts for as long as what it called ran.
    """
    journals = {id: await world.store.journal(id, -1) for id in world.store.tables.executions}
    called = _called(journals) if is_restored else {}
    held = [one for id, journal in journals.items() for one in _held(journal, called.get(id))]
    problems = [
        f"key {key}: {most} held it at once" for key, most in _most_at_once(held).items() if most > AT_ONCE[key]
    ]
    problems += [f"{id}: {attempt}" for id, journal in journals.items() for attempt in _unheld(journal)]
    left = world.store.tables.limits.rows.values()
    return problems + [f"{row.limit_id}: {row.holder} holds or waits, and its execution has ended" for row in left]


def _called(journals: Mapping[str, Sequence[StoredEvent]]) -> dict[str, tuple[int, int]]:
    """When what these executions have called began and ended, by caller. No job calls twice."""
    called = {}
    for journal in journals.values():
        first = codec.decode_fact(journal[0].data)
        if isinstance(first, events.ExecutionRequested) and first.parent is not None:
            called[first.parent.execution_id] = journal[0].at_ms, journal[-1].at_ms
    return called


def _held(journal: Sequence[StoredEvent], called: tuple[int, int] | None) -> Iterator[_Held]:
    called_from_ms, called_to_ms = called or (0, journal[-1].at_ms)
    since: dict[str, tuple[str, int]] = {}
    for entry in journal:
        fact = codec.decode_fact(entry.data)
        if isinstance(fact, events.SlotGranted):
            since[fact.slot_id or fact.step_run_id] = fact.key, entry.at_ms
        over = [fact.slot_id or fact.step_run_id] if isinstance(fact, events.SlotReleased) else []
        over = list(since) if isinstance(fact, events.ExecutionFinished) else over
        for holder in over:
            if holder in since:
                key, from_ms = since.pop(holder)
                to_ms = min(entry.at_ms, called_to_ms)
                yield _Held(key, min(max(from_ms + BEHIND_MS, called_from_ms), to_ms), to_ms)


def _unheld(journal: Sequence[StoredEvent]) -> Iterator[str]:
    """Attempts of limited tasks that had no slot. No pipeline of the jobs is in two step runs."""
    asked: dict[str, events.Path] = {}
    held: dict[str, events.Path] = {}
    for entry in journal:
        fact = codec.decode_fact(entry.data)
        if isinstance(fact, events.SlotRequested) and fact.slot_id:
            asked[fact.slot_id] = fact.path
        elif isinstance(fact, events.SlotGranted) and fact.slot_id:
            held[fact.slot_id] = asked[fact.slot_id]
        elif isinstance(fact, events.SlotReleased):
            held.pop(fact.slot_id, None)
        elif isinstance(fact, events.TaskProcessed) and fact.task == LIMITED and fact.path not in held.values():
            yield f"attempt {fact.attempt} of {fact.task} at {list(fact.path)} had no slot"


def _most_at_once(held: Sequence[_Held]) -> dict[str, int]:
    """How many held each key at once at most. A slot is given back before it is given out again at the same time."""
    changes = [change for one in held for change in ((one.key, one.from_ms, 1), (one.key, one.to_ms, -1))]
    most: dict[str, int] = {}
    now: dict[str, int] = {}
    for key, _, change in sorted(changes, key=lambda one: one[1:]):
        now[key] = now.get(key, 0) + change
        most[key] = max(most.get(key, 0), now[key])
    return most
