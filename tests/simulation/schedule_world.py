"""Schedules in simulated time, on servers that die, freeze, lose their stores, and whose clocks disagree and jump."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from io import StringIO
from random import Random
from typing import Any, Final

from msgspec.structs import replace

from noetl_stream.adapters.memory.stores.catalog import MemoryCatalog
from noetl_stream.adapters.simulated_time import simulated_clock
from noetl_stream.errors import Fenced, OutcomeUnknown, Unreachable
from noetl_stream.model.aggregates import ScheduleRegistered, ScheduleTerms, Timetable, aggregate_id
from noetl_stream.model.envelope import iso
from noetl_stream.model.events import ExecutionRequested
from noetl_stream.model.json import codec
from noetl_stream.operations.executions.submit import Requests, ask_aggregate
from noetl_stream.ports.stores.aggregates import HistoryRow
from noetl_stream.schedule.recurrence import Recurrence
from noetl_stream.server.assembly import ServerTimes
from noetl_stream.tools.pipeline import NoopTool
from noetl_stream.zones import iso_in, zone_named
from noetl_testkit.conformance.catalog import registered
from noetl_testkit.history.check import violations
from noetl_testkit.history.recorder import Recorder
from noetl_testkit.keys import SIGNER
from noetl_testkit.memory.broker import StagedBroker
from noetl_testkit.memory.store import StagedStore
from noetl_testkit.simulation.clocks import WrongClocks
from noetl_testkit.simulation.host import FaultInjector, SimulatedHost
from noetl_testkit.simulation.roles import server_on

HOUR_S: Final = 3600.0
HOUR_MS: Final = 3_600_000
SLOW: Final = ServerTimes(
    lease_s=60.0, housekeeping_s=15.0, mark_s=30.0, compare_s=300.0, reconcile_s=600.0, silence_s=60.0, retry_s=15.0
)
"""A week has many half seconds."""

PLAYBOOK: Final = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: tick, path: tests/tick }
executor: { spec: { result: "{{ execution }}" } }
workflow: [ { step: start, next: { arcs: [ { step: start, when: "{{ workload.again }}" } ] } } ]
workload: { again: false, told: {} }
"""
"""It ends without a worker, with what it knows of its start."""

TOLD: Final = {
    "due": "{{ schedule.due }}",
    "from": "{{ schedule.interval.start }}",
    "to": "{{ schedule.interval.end }}",
    "backfill": "{{ schedule.backfill }}",
}
"""What the schedule tells each of its executions."""


class ScheduleFaults(FaultInjector):
    """Postgres goes away, does not say whether it has committed, or refuses a tick."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.is_away = False
        self.is_fair = False
        self.struck: Counter[str] = Counter()

    async def inject(self, host: SimulatedHost, point: str) -> None:
        if self.is_fair or not point.startswith("store."):
            return
        if self.is_away:
            self.struck["postgres away"] += 1
            raise Unreachable("the simulated Postgres is away")
        if point == "store.commit.done" and self._random.random() < 0.01:
            self.struck["commit unknown"] += 1
            raise OutcomeUnknown("the simulated Postgres did not answer a commit")
        if point == "store.commit" and self._random.random() < 0.01:
            self.struck["tick fenced"] += 1
            raise Fenced("a simulated tick came too late")


class ScheduleWorld:
    """A broker, a store, and servers without workers."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"schedules {seed}")
        self.clock = simulated_clock()
        self.broker = StagedBroker(self.clock)
        self.store = StagedStore(self.clock)
        self.catalog = MemoryCatalog(self.store)
        self.faults = ScheduleFaults(self.random)
        self.terms: dict[str, ScheduleTerms] = {}
        self.registered_ms: dict[str, int] = {}
        self._hosts: list[SimulatedHost] = []
        self._clocks = WrongClocks(self.clock, self.random)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, servers: int) -> None:
        await registered(self.catalog, PLAYBOOK, "tests/tick")
        for _ in range(servers):
            self.start()

    def start(self) -> None:
        """Starts a server whose clock is up to five minutes wrong."""
        host = SimulatedHost(f"server-{len(self._hosts) + 1}", self.broker, self.store, self.faults)
        host.clock = self._clocks.new()  # type: ignore[assignment]
        self._hosts.append(host)
        server = server_on(host, self.catalog, {"noop": NoopTool.spec}, SLOW)
        self._tasks[host.name] = asyncio.ensure_future(self._until_it_ends(host, server.run()))

    async def _until_it_ends(self, host: SimulatedHost, run: Any) -> None:
        try:
            await run
        except (Unreachable, Fenced, OutcomeUnknown):  # a process manager starts another
            host.kill()
            asyncio.get_running_loop().call_later(60.0, self.start)

    @property
    def _living(self) -> list[SimulatedHost]:
        return [host for host in self._hosts if host.alive]

    async def register(self, path: str, **terms: Any) -> None:
        given = ScheduleTerms(playbook="tests/tick", workload={"told": TOLD}, **terms)
        fact = ScheduleRegistered(f"register-{path.replace('/', '-')}", path, "ann", terms=given, revision=1)
        requests = Requests(self.broker.event_log, SIGNER)
        await ask_aggregate(requests, self.broker.bus, self.clock, "starter", fact)
        row = (await self.store.aggregates([aggregate_id("starter", path)]))[aggregate_id("starter", path)]
        self.terms[path], self.registered_ms[path] = given, row.updated_ms

    async def suffer(self, hours: float) -> None:
        """Lets time pass with trouble of every kind."""
        until_s = self.clock.monotonic_s() + hours * HOUR_S
        troubles = [self._kill_one, self._kill_all, self._freeze, self._lose_postgres, self._steal, self._clocks.set]
        while (left_s := until_s - self.clock.monotonic_s()) > 0:
            await self.clock.sleep(min(left_s, self.random.uniform(0.2, 3) * HOUR_S))
            trouble = self.random.choice(troubles)
            self.faults.struck[trouble.__name__] += 1
            trouble()

    async def recover(self, hours: float) -> None:
        """Lets time pass without trouble."""
        self.faults.is_fair, self.faults.is_away = True, False
        for host in self._living:
            host.thaw()
        await self.clock.sleep(hours * HOUR_S)

    def _later(self, seconds: float, act: Any) -> None:
        asyncio.get_running_loop().call_later(seconds, act)

    def _kill(self, host: SimulatedHost) -> None:
        """Kills a server, and ends its loops, which would wait for its stores for the rest of a week."""
        host.kill()
        self._tasks.pop(host.name).cancel()

    def _kill_one(self) -> None:
        if self._living:
            self._kill(self.random.choice(self._living))
            self._later(self.random.uniform(0, 1200), self.start)

    def _kill_all(self) -> None:
        away_s = self.random.choice([0.0, 600.0, 2 * HOUR_S])
        for host in self._living:
            self._kill(host)
            self._later(away_s, self.start)

    def _freeze(self) -> None:
        if self._living:
            host = self.random.choice(self._living)
            host.freeze()
            self._later(self.random.uniform(10, 400), host.thaw)

    def _lose_postgres(self) -> None:
        self.faults.is_away = True
        self._later(self.random.uniform(5, 1500), lambda: setattr(self.faults, "is_away", False))

    async def restore(self, hours: float) -> None:
        """After so long all servers die, and Postgres is as it was before."""
        dump = self.store.dump()
        await self.suffer(hours)
        self._kill_all()
        self.store.restore(dump)
        self.faults.struck["postgres restored"] += 1

    def _steal(self) -> None:
        self.store.end_leases(range(32))

    # --- what has become of it ----------------------------------------------------------------------------------------

    async def history(self, path: str) -> list[HistoryRow]:
        """In order."""
        return (await self.store.aggregate_history(aggregate_id("starter", path), 100_000, None))[::-1]

    async def started(self, due_ms: Mapping[tuple[str, int], int]) -> tuple[Counter[tuple[str, int]], list[str]]:
        """How often each occurrence was started, by path and number, and what an execution was told otherwise than its
        timetable and its journal say.
        """
        found, problems = Counter[tuple[str, int]](), list[str]()
        for execution_id, row in self.store.tables.executions.items():
            (first,) = await self.store.journal(execution_id, 0, 1)
            fact = codec.decode_fact(first.data)
            assert isinstance(fact, ExecutionRequested) and fact.origin is not None
            path, number = occurrence = fact.origin.path, fact.origin.number
            found[occurrence] += 1
            if occurrence not in due_ms:
                continue
            timetable, at_ms = self.terms[path].timetable, due_ms[occurrence]
            *_, before_ms = Recurrence.from_timetable(timetable).occurrences(at_ms - 30 * HOUR_MS, at_ms - 1)
            begin, end = (iso_in(one, zone_named(timetable.zone)) for one in (before_ms, at_ms))
            told = {"told": {"due": end, "from": begin, "to": end, "backfill": False}}
            origin = {"kind": "schedule", "path": path, "number": number, "execution_id": None}
            ended = codec.decode_json(codec.decode_payload(row.result).value) if row.result else None
            if (fact.workload, ended) != (told, {"due": end, "started": iso(first.at_ms), "origin": origin}):
                problems.append(f"{path}: occurrence {number} was told {fact.workload}, and read {ended}")
        return found, problems

    async def problems(self) -> Iterator[str]:
        """What is not as it must be: each occurrence started once, or skipped with a reason."""
        found = []
        histories = {path: await self.history(path) for path in self.terms}
        decoded = {path: [codec.decode_json(row.body) for row in rows] for path, rows in histories.items()}
        due_at = {
            (path, row.number): body["scheduled_ms"]
            for path, rows in histories.items()
            for row, body in zip(rows, decoded[path], strict=True)
        }
        started, misled = await self.started(due_at)
        now_ms = self.clock.now_ms()
        for path, terms in self.terms.items():
            rows, bodies = histories[path], decoded[path]
            due = list(
                Recurrence.from_timetable(terms.timetable).occurrences(
                    self.registered_ms[path], now_ms - terms.jitter_s * 1000
                )
            )
            if [body["scheduled_ms"] for body in bodies][: len(due)] != due:
                found.append(f"{path}: the history has other occurrences than the timetable")
            if [row.number for row in rows] != list(range(1, len(rows) + 1)):
                found.append(f"{path}: the numbers have holes")
            for row, body in zip(rows, bodies, strict=True):
                times = started.pop((path, row.number), 0)
                wanted = 0 if row.status == "skipped" else 1
                if times != wanted or row.status not in ("completed", "skipped"):
                    found.append(f"{path}: occurrence {row.number} is {row.status}, and was started {times} times")
                if row.status == "skipped" and not body.get("reason"):
                    found.append(f"{path}: occurrence {row.number} was skipped without a reason")
        unknown = (f"{one} is in no history" for one in started)
        return iter([*found, *misled, *unknown, *await self._seen_problems()])

    async def _seen_problems(self) -> list[str]:
        """What no legal history explains of the intervals: what an operator reads of them, and multiples since 1970."""
        seen, now_ms = StringIO(), self.clock.now_ms()
        history = Recorder(seen, self.clock.monotonic_s)
        for path, terms in self.terms.items():
            if (every_ms := (terms.timetable.every_s or 0) * 1000) == 0:
                continue
            for due_ms in range((self.registered_ms[path] // every_ms + 1) * every_ms, now_ms + 1, every_ms):
                history.note("due", source=path, of=due_ms, maybe=due_ms >= now_ms - terms.jitter_s * 1000)
            for row in await self.history(path):
                body, what = codec.decode_json(row.body), "skipped" if row.status == "skipped" else "started"
                told = {"execution": row.execution_id, "reason": body.get("reason", "")}
                history.note(what, source=path, of=body["scheduled_ms"], **told)
        return [str(one) for one in violations(seen.getvalue().splitlines())]


def every(minutes: int) -> Timetable:
    return replace(Timetable(), every_s=minutes * 60)
