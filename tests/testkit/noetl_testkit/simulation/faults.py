"""The faults of a simulation: each seed chooses some of the kinds below and when they strike."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

from noetl_stream.errors import Fenced, OutcomeUnknown, Unreachable
from noetl_stream.ports.stores.store import Tick
from noetl_stream.protocol import subjects
from noetl_testkit.entries import names_in
from noetl_testkit.simulation.host import FaultInjector, SimulatedHost
from noetl_testkit.simulation.poison import POISONS, Poison
from noetl_testkit.simulation.story import FAULTS_S
from noetl_testkit.simulation.world import SimulatedWorld

HARMLESS = (
    "server killed", "server frozen", "partitions stolen", "commit unknown", "tick fenced", "postgres away",
    "nats away", "nats restarted", "readers break", "acks lost", "stops lost", "answers lost", "reports unknown",
    "reports doubled", "reconcile always", "idle night", "records late", "commands late", "records doubled",
    "bus late", "inbox late", "objects away", "frozen at publish", "fences lost",
)  # fmt: skip
"""Kinds that affect neither a worker nor the streams: no step may run twice because of them."""

STEADY = frozenset({
    "tick fenced", "nats restarted", "readers break", "acks lost", "stops lost", "answers lost", "reports unknown",
    "reports doubled", "reconcile always", "records late", "commands late", "records doubled", "bus late",
    "inbox late", "objects away",
})  # fmt: skip
"""Kinds that lose no publication: no command may be issued twice because of them."""

DRAWN = (
    "worker killed", "worker frozen", "leases end", "queue restored", "command lost", "tail lost", "folded tail lost",
    "postgres restored",
)  # fmt: skip
TOUCHING = (*DRAWN, "middle lost")
"""Kinds that may make a running step run again."""

HOLED = (7, 12)
"""Which seeds, modulo 16, lose messages from the middle."""

POISONED = {5: "poison kills", 10: "poison refused"}
"""Which seeds, modulo 16, have an execution that cannot be folded."""

SERVED_BY_LOG: Final = ("log.", "queue.")

LATENCIES_S = (0.0, 0.0, 0.0, 0.001, 0.003, 0.02)
READING_S = (0.0, 0.0, 0.001, 0.02, 0.4)
READS: Final = ("log.next_batch.done", "queue.present")
"""Calls that take as long as a read: they return many messages."""

LATEST_S = 6.0
"""How late records and commands are at most."""

CALLS_BEFORE = 250
"""A scheduled fault of a host strikes within this many of its calls."""


def kinds_of(seed: int) -> tuple[str, ...]:
    """The kinds of faults that a seed has."""
    random = Random(f"kinds {seed}")
    chosen = random.sample(HARMLESS, random.randint(2, 5))
    if seed % 2:
        chosen += random.sample(DRAWN, random.randint(1, 2))
    if seed % 16 in HOLED:
        chosen.append("middle lost")
    if seed % 16 in POISONED:
        chosen.append(POISONED[seed % 16])
    if "answers lost" in chosen and "leases end" not in chosen:  # workers ask when they get a command again
        chosen.append("leases end")
    if "postgres restored" in chosen:  # each store is rebuilt from the other: both at once are lost
        chosen = [kind for kind in chosen if not kind.endswith(("tail lost", "middle lost"))]
    return tuple(chosen)


@dataclass(slots=True)
class InjectedFault:
    """Kills a host after ``calls_left`` calls, or freezes it for ``frozen_s`` seconds."""

    calls_left: int
    frozen_s: float | None


class FaultPlan(FaultInjector):
    """The faults of all hosts of one seed.

    Attributes:
        world: Set by :meth:`enter`.
        calm_ends: How playbooks end without faults, by their text.
        struck: How often each kind struck, and how often what the protocol wants to see happened because of it.
    """

    world: SimulatedWorld

    def __init__(self, seed: int, kinds: tuple[str, ...]) -> None:
        self.seed = seed
        self.random = Random(f"misfortune {seed}")
        self.kinds = kinds
        self.calm_ends: Mapping[str, Any] = {}
        self.poison = next((Poison(seed, kind) for kind in self.kinds if kind in POISONS), None)
        self.struck: Counter[str] = Counter()
        self.is_fair = False
        self.away: set[str] = set()
        self._committing: dict[str, Tick] = {}
        self._scheduled: dict[str, InjectedFault] = {}

    @property
    def touches(self) -> bool:
        return any(kind in TOUCHING for kind in self.kinds)

    def enter(self, world: SimulatedWorld) -> list[tuple[float, Callable[[], None]]]:
        """The faults that strike at a given time, in seconds from now."""
        self.world = world
        strikes: list[tuple[float, Callable[[], None]]] = []
        for kind, strike in self._strikes().items():
            if kind in self.kinds:
                random = Random(f"{kind} {self.seed}")
                at = [random.uniform(0.5, FAULTS_S - 5) for _ in range(random.randint(1, 3))]
                strikes += [(at_s, partial(self._strike, kind, strike)) for at_s in at]
        if "idle night" in self.kinds:
            night_s = self.random.uniform(125, 200)
            night = partial(self._strike, "idle night", lambda: world.replace_servers(night_s))
            strikes.append((self.random.uniform(3, FAULTS_S - 5), night))
        if world.clocks is not None:
            random = Random(f"clocks set {self.seed}")
            at = [random.uniform(0.5, FAULTS_S - 5) for _ in range(4)]
            strikes += [(at_s, partial(self._strike, "clocks set", world.clocks.set)) for at_s in at]
        if "reconcile always" in self.kinds:
            self.struck["reconcile always"] += 1
        return sorted(strikes, key=lambda one: one[0])

    def clear_up(self) -> None:
        """Ends all faults."""
        self.is_fair = True
        self.away.clear()
        self._scheduled.clear()

    async def inject(self, host: SimulatedHost, point: str) -> None:
        latency_s = self.random.choice(READING_S if point in READS else LATENCIES_S)
        if latency_s:
            await self.world.clock.sleep(latency_s)
        if self.is_fair:
            return
        self._strike_if_due(host)
        if point.startswith(SERVED_BY_LOG):
            await self._disturb_log(host, point)
        elif point.startswith("store."):
            self._disturb_store(host, point)
        elif point.startswith("blobs.") and "objects" in self.away:
            raise Unreachable("the simulated object store is away")

    def does(self, host: SimulatedHost, point: str, arguments: tuple[Any, ...]) -> None:
        if point == "store.commit":
            (tick,) = arguments
            self._committing[host.name] = tick
            held = [self.world.owner_of(one.id) == (tick.owner, one.epoch) for one in tick.partitions]
            self.struck["one of several partitions lost in a tick"] += any(held) and not all(held)
        elif point == "queue.issue" and any(self.world.is_cancelled(one.execution_id) for one in arguments[0]):
            self.struck["command published after a cancel"] += 1

    def loses(self, host: SimulatedHost, what: str) -> bool:
        if what == "ack":
            return self._happens("acks lost", 0.4)
        if what == subjects.STOP:
            return self._happens("stops lost", 0.5)
        return what.startswith(f"{subjects.CLAIMED}.") and self._happens("answers lost", 0.7)

    def delay_s(self, host: SimulatedHost, subject: str) -> float:
        return self.random.uniform(0.1, 3) if self._happens("bus late", 0.3) else 0.0

    async def _disturb_log(self, host: SimulatedHost, point: str) -> None:
        is_report = point.startswith(("log.publish_request", "log.publish_report"))
        if is_report and self._happens("reports unknown", 0.15):
            raise OutcomeUnknown("no acknowledgement of a simulated report")
        if is_report and point.endswith(".done") and self._happens("reports doubled", 0.3):
            self.world.broker.event_log.double_last()
        late = {"log.publish_decided": "records late", "queue.issue": "commands late"}.get(point)
        if late is not None and self._happens(late, 0.3):
            await self.world.clock.sleep(self.random.uniform(0.1, LATEST_S))
        if point == "log.publish_decided.done" and self._happens("records doubled", 0.3):
            self.world.broker.event_log.double_last(is_input=False)
        if point in ("queue.issue", "log.publish_decided") and self._happens("frozen at publish", 0.06):
            self._freeze(host, self.random.uniform(7, 20))
            self.world.cancel_anything()

    def _disturb_store(self, host: SimulatedHost, point: str) -> None:
        tick = self._committing.get(host.name)
        if "postgres" in self.away:
            if point == "store.commit.done":
                raise OutcomeUnknown("the simulated Postgres went away before its answer")
            raise Unreachable("the simulated Postgres is away")
        of_timers = point == "store.commit.done" and tick is not None and is_of_timers(tick)
        chance = 0.5 if of_timers else 0.15
        if point in ("store.commit", "store.commit.done") and self._happens("commit unknown", chance):
            self.struck["tick of timers of unknown outcome"] += of_timers
            raise OutcomeUnknown("no answer to a simulated commit")
        if point == "store.commit" and self._happens("tick fenced", 0.1):
            raise Fenced("a simulated fence")

    def _happens(self, kind: str, chance: float) -> bool:
        happens = not self.is_fair and kind in self.kinds and self.random.random() < chance
        if happens:
            self._note(kind)
        return happens

    def _strike(self, kind: str, strike: Callable[[], None]) -> None:
        self._note(kind)
        strike()

    def _note(self, kind: str) -> None:
        """Counts what strikes; readers may break at that moment."""
        self.struck[kind] += 1
        if "readers break" in self.kinds and kind != "readers break" and self.random.random() < 0.2:
            self.struck["a reader breaks as another fault strikes"] += 1
            self.world.broker.event_log.break_readers()

    def _strikes(self) -> dict[str, Callable[[], None]]:
        world, broker, queue = self.world, self.world.broker, self.world.broker.command_queue
        return {
            "server killed": lambda: self._schedule("server", None),
            "server frozen": lambda: self._schedule("server", self.random.uniform(2, 20)),
            "worker killed": lambda: self._schedule("worker", None),
            "worker frozen": lambda: self._schedule("worker", self.random.uniform(5, 50)),
            "partitions stolen": lambda: world.steal_partitions(self.random.randint(1, 32)),
            "postgres away": lambda: self._take_away("postgres", self.random.uniform(0.3, 9)),
            "objects away": lambda: self._take_away("objects", self.random.uniform(0.3, 15)),
            "nats away": self._nats_away,
            "nats restarted": broker.restart,
            "readers break": broker.event_log.break_readers,
            "fences lost": queue.lose_fences,
            "leases end": lambda: self._touching(queue.forget_unacked),
            "queue restored": lambda: self._touching(broker.stop, queue.forget_deliveries, broker.restart),
            "command lost": self._lose_command,
            "postgres restored": lambda: self._touching(lambda: world.restore_postgres(self.random.uniform(0.2, 4))),
            "middle lost": lambda: self._touching(lambda: world.lose_middle(self.random)),
            "tail lost": lambda: self._touching(lambda: world.lose_tail(self.random.uniform(0.5, 5), folded=0)),
            "folded tail lost": lambda: self._touching(
                lambda: world.lose_tail(self.random.uniform(0.5, 5), folded=self.random.randint(1, 60))
            ),
        }

    def _strike_if_due(self, host: SimulatedHost) -> None:
        fault = self._scheduled.get(host.name)
        if fault is None:
            return
        fault.calls_left -= 1
        if fault.calls_left > 0:
            return
        del self._scheduled[host.name]
        if host.name.startswith("worker"):
            self._touching()
        if fault.frozen_s is None:
            host.kill()
            self.world.replace(host, self.random.uniform(0.2, 10))
        else:
            self._freeze(host, fault.frozen_s)

    def _freeze(self, host: SimulatedHost, seconds: float) -> None:
        host.freeze()
        self._later(seconds, lambda: self.world.thaw(host))

    def _schedule(self, role: str, frozen_s: float | None) -> None:
        if hosts := self.world.hosts(role):
            self._scheduled[self.random.choice(hosts).name] = InjectedFault(
                self.random.randint(1, CALLS_BEFORE), frozen_s
            )

    def _take_away(self, what: str, seconds: float) -> None:
        self.away.add(what)
        self._later(seconds, lambda: self.away.discard(what))

    def _nats_away(self) -> None:
        self.world.broker.stop()
        self._later(self.random.uniform(0.1, 9), self.world.broker.start)

    def _lose_command(self) -> None:
        if under_way := sorted(self.world.under_way):
            lost = self.random.choice(under_way)
            self.world.touched.add(lost)
            self.world.broker.command_queue.lose(lost)

    def _touching(self, *strikes: Callable[[], None]) -> None:
        self.world.touched |= self.world.under_way
        for strike in strikes:
            strike()

    @staticmethod
    def _later(seconds: float, act: Callable[[], Any]) -> None:
        asyncio.get_running_loop().call_later(seconds, act)


def is_of_timers(tick: Tick) -> bool:
    """Whether a tick folds timers that are due, and no message."""
    return all(entry.source == "server" for entry in tick.entries) and "timer.fired" in names_in(tick)
