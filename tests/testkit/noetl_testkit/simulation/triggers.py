"""Stories of triggers, and whether each event started once or was ignored with a reason (LANGUAGE §15 *Trigger*)."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from noetl_stream.adapters.clock import START_MS
from noetl_stream.engine.aggregates.triggers import MAX_DEPTH
from noetl_stream.model.aggregates import (
    TRIGGER,
    EmittedEvents,
    EndedExecutions,
    TriggerTerms,
    Verification,
    aggregate_id,
)
from noetl_stream.model.events import ExecutionRequested, Origin
from noetl_stream.model.json import codec
from noetl_stream.ports.stores.aggregates import HistoryRow
from noetl_testkit.simulation.story import FAULTS_S, Planned, Story, TriggerAct
from noetl_testkit.simulation.work import job, playbook, then, work
from noetl_testkit.simulation.world import SimulatedWorld

EVENTS: Final = 6
"""To each webhook."""

KEYS: Final = 3
FORGETTING: Final = ("delete", "revoke")
"""After these the history may lack what was started: it begins anew; or, if Postgres is restored, an event is ignored
for rights that are gone meanwhile.
"""

RESTORED: Final = "postgres restored"
GONE_RIGHTS: Final = "is revoked or has expired"
"""Why an event that was answered as started may be ignored, if what it started was not in EVENTS when Postgres was put
back (ADR 30).
"""

JOBS: Final = ("chain", "chain", "failing")
"""What clients start beside: the ends of one are waited for."""

KNOWN_S: Final = 12.0
"""After this time every server that may commit knows a trigger: it reads them every two seconds, and its lease ends if
it is frozen for longer.
"""

HOOKED, TOLD, PING, PONG = (f"simulation/{name}" for name in ("hooked", "told", "ping", "pong"))
AT_ONCE: Final = [{"step": "start", "next": then("start", when="{{ workload.again is defined }}")}]
STARTED: Final[Mapping[str, str]] = {
    HOOKED: playbook(
        "hooked",
        [
            {
                "step": "only",
                "tool": work("{{ workload.n }}", 0.3),
                "spec": {"policy": {"emit": {"events": [{"name": "worked", "data": {"n": "{{ event.result }}"}}]}}},
            }
        ],
        workload={"n": 0},
    ),
    **{path: playbook(path.rpartition("/")[2], AT_ONCE) for path in (TOLD, PING, PONG)},
}
"""The playbooks that triggers start, by path."""

PLAIN, KEYED, CHANGED, REVOKED, LINKED = (f"hooks/{name}" for name in ("plain", "keyed", "changed", "revoked", "link"))
OF_HOOKED, OF_JOBS, OF_PING, OF_PONG = (f"ends/{name}" for name in ("hooked", "jobs", "ping", "pong"))
OF_WORK: Final = "events/worked"

HOOKS: Final[Mapping[str, TriggerTerms]] = {
    path: TriggerTerms(
        playbook=PING if path == LINKED else HOOKED,
        workload={"n": "{{ event.json.n }}"},
        key=f"{{{{ event.json.n % {KEYS} }}}}" if path == KEYED else None,
        webhook=Verification(form="none"),
    )
    for path in (PLAIN, KEYED, CHANGED, REVOKED, LINKED)
}
ENDS: Final[Mapping[str, TriggerTerms]] = {
    path: TriggerTerms(
        playbook=starts, workload={"of": "{{ event.execution_id }}"}, execution=EndedExecutions(path=watched)
    )
    for path, watched, starts in (
        (OF_HOOKED, HOOKED, TOLD),
        (OF_JOBS, "simulation/chain", TOLD),
        (OF_PING, PING, PONG),
        (OF_PONG, PONG, PING),
    )
} | {
    OF_WORK: TriggerTerms(
        playbook=TOLD,
        workload={"of": "{{ event.execution_id }}", "n": "{{ event.data.n }}"},
        event=EmittedEvents(name="worked", path=HOOKED),
    )
}


def triggered_story(seed: int, faults: tuple[str, ...]) -> Story:
    """Events that are sent again and again, ends of executions, and triggers that change meanwhile."""
    random = Random(f"triggers {seed}")
    executions = tuple(Planned(job(random.choice(JOBS)), random.uniform(0, FAULTS_S)) for _ in range(3))
    acts = {path: (TriggerAct(0.0, "register", terms), *_events(random, path)) for path, terms in HOOKS.items()}
    acts |= {path: (TriggerAct(0.0, "register", terms),) for path, terms in ENDS.items()}
    acts[CHANGED] = _in_order(acts[CHANGED], _changes(random))
    acts[REVOKED] = _in_order(acts[REVOKED], _revocation(random))
    servers, workers = random.randint(1, 3), random.randint(1, 2)
    return Story(seed, servers, workers, faults, executions, acts, clocks_wrong=seed % 2 == 1)


def _in_order(*acts: Sequence[TriggerAct]) -> tuple[TriggerAct, ...]:
    return tuple(sorted((act for some in acts for act in some), key=lambda act: act.at_s))


def _events(random: Random, path: str) -> Sequence[TriggerAct]:
    count = 1 if path == LINKED else EVENTS
    at = sorted(random.uniform(0.1, FAULTS_S) for _ in range(count))
    return [
        TriggerAct(at_s, "event", number=number, times_s=tuple(_times(random))) for number, at_s in enumerate(at, 1)
    ]


def _times(random: Random) -> Iterator[float]:
    """When an event is sent: at once, and again by a sender that did not hear of it, or does not believe it."""
    yield 0.0
    while random.random() < 0.4:
        yield random.choice([0.0, random.uniform(0, 2), random.uniform(5, 40)])


def _changes(random: Random) -> Sequence[TriggerAct]:
    terms = HOOKS[CHANGED]
    newer = TriggerTerms(
        playbook=terms.playbook,
        workload={**terms.workload, "newer": True},
        webhook=terms.webhook,
        when="{{ event.json.n != 4 }}",
    )
    pause_s, resume_s, newer_s, resend_s = sorted(random.uniform(1, FAULTS_S) for _ in range(4))
    acts = [
        TriggerAct(pause_s, "pause"),
        TriggerAct(resume_s, "resume"),
        TriggerAct(newer_s, "register", newer),
        TriggerAct(resend_s, "resend"),
    ]
    if random.random() < 0.4:
        gone_s = random.uniform(2, FAULTS_S)
        acts += [TriggerAct(gone_s, "delete"), TriggerAct(gone_s, "register", terms)]
    return acts


def _revocation(random: Random) -> Sequence[TriggerAct]:
    revoke_s, resume_s = sorted(random.uniform(1, FAULTS_S) for _ in range(2))
    return [TriggerAct(revoke_s, "revoke"), TriggerAct(resume_s, "resume")]


class TriggerStart(NamedTuple):
    """An execution that a trigger has started."""

    execution_id: str
    origin: Origin
    workload: Mapping[str, Any]
    status: str


class _Entry(NamedTuple):
    """An entry of a trigger's history."""

    row: HistoryRow
    body: Mapping[str, Any]

    @property
    def number(self) -> int:
        """Of the event of a webhook."""
        return int(self.body["event"]["json"]["n"])


async def trigger_problems(world: SimulatedWorld, story: Story) -> list[str]:
    """What is wrong with the triggers of a story."""
    if not story.triggers:
        return []
    starts = [one async for one in trigger_starts(world)]
    problems = list(world.senders.problems)
    for path in story.triggers:
        rows = await world.store.aggregate_history(aggregate_id("starter", path), 10_000, None)
        entries = [_Entry(row, codec.decode_json(row.body)) for row in reversed(rows)]
        own = [one for one in starts if one.origin.path == path]
        problems += [f"{path}: {text}" for text in _entry_problems(entries, own)]
        is_whole = all(act.what not in FORGETTING for act in story.triggers[path])
        noted = {one.row.execution_id for one in entries}
        extra = [one for one in own if one.execution_id not in noted and not _is_stranded(world, story, one)]
        if is_whole and extra:
            ids = sorted(one.execution_id for one in extra)
            problems.append(f"{path}: started {ids}, which its history does not have")
        if path in HOOKS:
            problems += [f"{path}: {text}" for text in _event_problems(world, story, path, entries, own)]
        else:
            problems += [f"{path}: {text}" for text in _end_problems(world, path, entries, own)]
    return problems


async def trigger_starts(world: SimulatedWorld) -> AsyncIterator[TriggerStart]:
    """The executions that triggers have started."""
    for execution_id, row in world.store.tables.executions.items():
        (first, *_) = await world.store.journal(execution_id, 0, 1)
        fact = codec.decode_fact(first.data)
        if isinstance(fact, ExecutionRequested) and fact.origin is not None:
            assert fact.origin.kind == TRIGGER
            yield TriggerStart(execution_id, fact.origin, fact.workload, row.status)


def _is_stranded(world: SimulatedWorld, story: Story, start: TriggerStart) -> bool:
    """Whether the execution at whose end it started was lost with Postgres, not being in EVENTS yet (ADR 30)."""
    of = start.workload.get("of")
    return RESTORED in story.faults and of is not None and of not in world.store.tables.executions


def _entry_problems(entries: Sequence[_Entry], starts: Sequence[TriggerStart]) -> Iterator[str]:
    """What is wrong with the history, whatever the events."""
    if [one.row.number for one in entries] != list(range(1, len(entries) + 1)):
        yield "the numbers have holes"
    ids = {one.execution_id for one in starts}
    for row, body in entries:
        if row.status == "ignored" and not body.get("reason"):
            yield f"event {row.number} is ignored without a reason"
        if (row.execution_id is None) != (row.status == "ignored"):
            yield f"event {row.number} is {row.status}, with execution {row.execution_id}"
        if row.execution_id is not None and row.execution_id not in ids:
            yield f"event {row.number} is {row.status}, and its execution {row.execution_id} is not there"
    yield from (f"execution {one.execution_id} is {one.status}" for one in starts if one.status != "completed")
    deepest = max((one.origin.depth for one in starts), default=0)
    if deepest > MAX_DEPTH:
        yield f"a chain has {deepest} triggers"


def _event_problems(
    world: SimulatedWorld, story: Story, path: str, entries: Sequence[_Entry], starts: Sequence[TriggerStart]
) -> Iterator[str]:
    """Whether each event that was accepted is in the history once, and has started at most one execution."""
    seen = Counter(one.number for one in entries if not one.body.get("resent"))
    undone = {one.number for one in entries if GONE_RIGHTS in one.body.get("reason", "") and RESTORED in story.faults}
    ids = {one.execution_id for one in starts}
    may_be_gone = path == REVOKED and RESTORED in story.faults and not entries  # its registration is folded again
    started = Counter(one.workload["n"] for one in starts)
    yield from (f"event {n} has started {count} executions" for n, count in started.items() if count > 1)
    for (of, number), answer in world.senders.answers.items():
        if of != path or (of, number) in world.senders.deleted:
            continue
        if may_be_gone and answer == "unknown_aggregate":
            continue
        if isinstance(answer, str):
            yield f"event {number} is refused: {answer}"
        elif seen[number] != 1:
            yield f"event {number} is answered {answer['status']}, and is {seen[number]} times in the history"
        elif answer["status"] == "started" and answer["execution_id"] not in ids and number not in undone:
            yield f"event {number} was started as {answer['execution_id']}, which is not there"
    if path == KEYED:
        keys = Counter(number % KEYS for number in started.elements())
        yield from (f"key {key} has started {count} times" for key, count in keys.items() if count > 1)
    if path == PLAIN:
        yield from (f"event {one.number} is {one.row.status}" for one in entries if one.row.status != "started")


def _end_problems(
    world: SimulatedWorld, path: str, entries: Sequence[_Entry], starts: Sequence[TriggerStart]
) -> Iterator[str]:
    """Whether the trigger was told once of each end, or the event before it, if it was known then."""
    told = Counter(one.body["event"]["execution_id"] for one in entries)
    watched = ENDS[path].watched
    assert watched is not None
    yield from (f"was told {count} times that {id} has ended" for id, count in told.items() if count > 1)
    started = Counter(one.workload["of"] for one in starts)
    yield from (f"has started {count} executions when {id} ended" for id, count in started.items() if count > 1)
    registered_s = world.senders.registered_s.get(path, float("inf"))
    if any(
        registered_s > dumped_s for dumped_s in world.dumped_s
    ):  # its request is folded again, at last when all is fair
        registered_s = max(registered_s, FAULTS_S)
    known_s = registered_s + KNOWN_S
    own = {one.execution_id for one in starts}
    for execution_id, row in world.store.tables.executions.items():
        if row.path != watched.path or execution_id in own or told[execution_id]:
            continue
        began_s = world.senders.sent_s.get((LINKED, 1), 0.0) if row.path in (PING, PONG) else _drawn_s(execution_id)
        if began_s > known_s:
            yield f"was not told that {execution_id} has ended"


def _drawn_s(execution_id: str) -> float:
    """When this id was drawn: a trigger draws those of events by the time at which they were stored."""
    return (int(execution_id.replace("-", "")[:12], 16) - START_MS) / 1000
