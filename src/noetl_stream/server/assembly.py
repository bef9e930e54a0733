"""The parts of a server: its ports, its intervals, and the objects that its tasks share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from noetl_stream.errors import Unreachable
from noetl_stream.model.ids import partition_count
from noetl_stream.model.messages import GrantsUse, MemoryUse
from noetl_stream.model.placement import PoolLabels
from noetl_stream.model.rights import namespace_of
from noetl_stream.model.status import ENDED
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.evaluator import Evaluator
from noetl_stream.ports.stores.catalog import Catalog
from noetl_stream.ports.stores.identities import Rights
from noetl_stream.ports.stores.store import Store, Tick
from noetl_stream.ports.streams.blobs import Blobs
from noetl_stream.ports.streams.bus import Bus
from noetl_stream.ports.streams.command_queue import CommandQueue
from noetl_stream.ports.streams.event_log import EventLog
from noetl_stream.ports.streams.task_logs import TaskLogs
from noetl_stream.ports.streams.trigger_streams import TriggerStreams
from noetl_stream.ports.traces import LineageReceiver, Tracing
from noetl_stream.protocol.signed_requests import RequestSigner
from noetl_stream.server.aggregates.aggregate_fold import Aggregates, AggregateTimers
from noetl_stream.server.aggregates.lookups import Lookups
from noetl_stream.server.aggregates.namespace_rates import NamespaceRates
from noetl_stream.server.aggregates.stream_readers import StreamReaders
from noetl_stream.server.answers.capabilities import Capabilities
from noetl_stream.server.answers.credential_values import SecretsResponder
from noetl_stream.server.formats import Formats
from noetl_stream.server.inputs.fair_queue import Competition, UnfoldedMessages
from noetl_stream.server.inputs.inbox import CatchingUp, Inbox
from noetl_stream.server.inputs.reader import BATCH_MESSAGES, PartitionReader
from noetl_stream.server.inputs.waits import Originals, Waits
from noetl_stream.server.memory.execution_cache import ExecutionCache
from noetl_stream.server.memory.plan_cache import PlanCache
from noetl_stream.server.memory.snapshots import SNAPSHOT_EVERY, Snapshots
from noetl_stream.server.ownership.partitions import PartitionOwnership
from noetl_stream.server.playbook_measures import PlaybookMeasures
from noetl_stream.server.ticks.fold import FOLD_S, SHARED_FOLD_S, Fold
from noetl_stream.server.ticks.namespace_shares import NamespaceShares
from noetl_stream.server.ticks.namespace_turns import NamespaceTurns
from noetl_stream.server.ticks.publications import MAX_UNACKNOWLEDGED_BYTES, Publications
from noetl_stream.server.ticks.tick import PendingTick
from noetl_stream.server.ticks.watching import WatchingTriggers
from noetl_stream.server.traces import ServerTraces
from noetl_stream.server.upkeep.lineage_feed import LineageFeed
from noetl_stream.server.upkeep.upkeep import Upkeep
from noetl_stream.settings.grants import GrantsFile, GrantsSource
from noetl_stream.settings.sources.environment import DEFAULT_STATE_BYTES
from noetl_stream.storage.object_places import PlacedBlobs
from noetl_stream.telemetry.measures import ByPath, Durations, long_durations
from noetl_stream.trigger.rates import DEFAULT_RATES, TriggerRates

DISAGREEMENTS_SENT: Final = 10
"""The most disagreements between its stores that a server reports."""


FAILED_S: Final = 10.0
"""The time for which a failed turn counts: a broken store fails the next turn sooner."""


def _zero(*labels: str) -> Counter[str]:
    return Counter(dict.fromkeys(labels, 0))


@dataclass(slots=True)
class ServerCounts:
    """Counters of a server since its start.

    Attributes:
        inputs: Inputs folded, by origin: ``events``, ``inbox``, ``own`` (timers, results, evaluations).
        turns: Turns of the loop that committed a tick.
        commits: Transactions.
        rows: Rows written, by table.
        dead_letters: Dead letters, by source.
        occurrences: Entries of histories of schedules and triggers, by status.
        trigger_faults: Failed actions of triggers.
        lateness: The delays with which schedules started executions, by the path of the schedule.
        playbooks: Measurements of executions, by the path of their playbook.
        started: Executions that started.
        ended: Executions that ended, by status.
        quarantined: Executions that were quarantined.
        issued: Commands published.
        reissued: Commands published again.
        reconciled: Commands published again because the queue had lost them.
        taken_over, lost, released: Partitions taken over, lost and released.
    """

    inputs: Counter[str] = field(default_factory=lambda: _zero("events", "inbox", "own"))
    turns: Durations = field(default_factory=Durations)
    commits: Durations = field(default_factory=Durations)
    rows: Counter[str] = field(default_factory=Counter)
    dead_letters: Counter[str] = field(default_factory=lambda: _zero("events", "inbox", "command"))
    occurrences: Counter[str] = field(default_factory=Counter)
    trigger_faults: int = 0
    lateness: ByPath[Durations] = field(default_factory=lambda: ByPath(long_durations))
    playbooks: ByPath[PlaybookMeasures] = field(default_factory=lambda: ByPath(PlaybookMeasures))
    started: int = 0
    ended: Counter[str] = field(default_factory=lambda: _zero(*ENDED))
    quarantined: int = 0
    issued: int = 0
    reissued: int = 0
    reconciled: int = 0
    taken_over: int = 0
    lost: int = 0
    released: int = 0

    def count_commit(self, tick: Tick, took_s: float) -> None:
        """Counts a committed transaction, with its rows by table."""
        self.commits.add(took_s)
        for table, rows in (
            ("event", tick.entries),
            ("execution", tick.executions),
            ("request", tick.requests),
            ("timer", tick.timers),
            ("inbox", tick.inbox),
            ("feed", tick.feed),
            ("snapshot", tick.snapshots),
            ("dead_letter", tick.dead_letters),
            ("stale_report", tick.stale_reports),
            ("aggregate", tick.aggregates),
            ("aggregate_history", tick.history),
            ("limit_slot", tick.limit_slots),
        ):
            if rows:
                self.rows[table] += len(rows)
        for letter in tick.dead_letters:
            self.dead_letters[letter.source] += 1
        for entry in tick.history:
            self.occurrences[entry.status] += 1

    def count_measures(self, tick: PendingTick) -> None:
        """Counts the measurements of a committed tick."""
        self.trigger_faults += tick.trigger_faults
        for path, status, took_s in tick.steps_ended:
            self.playbooks[path].steps[status].add(took_s)
        for path, late_s in tick.late:
            self.lateness[path].add(late_s)


@dataclass(frozen=True, slots=True)
class ServerPorts:
    """The ports of a server. Without ``secrets`` it sends no credentials, without ``grants`` every playbook may use
    everything, without ``upkeep`` the stores grow, and without ``tracing`` it makes no spans. Without ``rights``, every
    schedule may start every playbook. Triggers may read ``open_streams`` and start what ``trigger_rates`` allow. The
    executions of a namespace may have ``max_stored_bytes`` in the object store; ``None``: any number. Steps with a
    placement run in pools with such ``pool_labels``; ``None``: where they would without one. ``page_url`` is where
    people open the page; empty: not known. ``refusals`` says why JetStream has refused messages of this process for a
    while. ``places`` signs addresses if objects are in other places than NATS.
    """

    log: EventLog
    queue: CommandQueue
    store: Store
    blobs: Blobs
    task_logs: TaskLogs
    bus: Bus
    clock: Clock
    catalog: Catalog
    evaluator: Evaluator
    capabilities: Capabilities
    signer: RequestSigner
    rights: Rights | None = None
    tracing: Tracing | None = None
    lineage: LineageReceiver | None = None
    secrets: SecretsResponder | None = None
    grants: GrantsSource | None = None
    upkeep: Upkeep | None = None
    trigger_streams: TriggerStreams | None = None
    open_streams: Collection[str] = ()
    trigger_rates: TriggerRates = DEFAULT_RATES
    page_url: str = ""
    max_stored_bytes: int | None = None
    pool_labels: PoolLabels | None = None
    refusals: Callable[[], list[str]] = list
    places: PlacedBlobs | None = None


@dataclass(frozen=True, slots=True)
class ServerTimes:
    """The intervals of a server, in seconds.

    Attributes:
        lease_s: The shortest lease, with stores that answer soon.
        mark_s: The interval of writing published ticks and the cursors of idle partitions.
        compare_s: The interval of comparing cursors with EVENTS.
        reconcile_s: The interval of reconciling, which also follows every takeover.
        silence_s: The time for which EVENTS may be silent under the shortest lease.
        feed_keep_s: The time for which the whole feed can be resumed; older parts are trimmed.
        slots_s: The interval of looking for slots of limits held by ended executions.
    """

    lease_s: float = 6.0
    housekeeping_s: float = 0.5
    mark_s: float = 1.0
    compare_s: float = 5.0
    reconcile_s: float = 10.0
    silence_s: float = 7.0
    retry_s: float = 0.5
    feed_keep_s: float = 86_400.0
    slots_s: float = 300.0


@dataclass(frozen=True, slots=True)
class StateBounds:
    """Bounds on the states in memory, and on the inputs folded into them at once.

    ``max_bytes``: the most memory of the states of living executions; evicted ones are loaded again for their next
    input. ``snapshot_every``: the facts between two snapshots of a journal. ``at_once``: the most messages of EVENTS
    that a turn of the loop folds.
    """

    max_bytes: int = DEFAULT_STATE_BYTES
    snapshot_every: int = SNAPSHOT_EVERY
    at_once: int = BATCH_MESSAGES


class ServerParts:
    """The parts that a server's loop, commits, housekeeping and partition assignment share."""

    def __init__(
        self,
        owner: str,
        ports: ServerPorts,
        plans: PlanCache,
        times: ServerTimes,
        states: StateBounds,
        formats: Formats,
    ) -> None:
        self.owner = owner
        self.formats = formats
        self.ports = ports
        self.plans = plans
        self.times = times
        self.states = states
        self.counts = ServerCounts()
        self.unfolded = UnfoldedMessages(
            lambda id: self.executions.state(id), lambda path: self.shares.namespace_of(path)
        )
        self.reader = PartitionReader(ports.log, ports.clock, self.unfolded)
        keys = ports.capabilities.object_keys
        originals = Originals(ports.store, ports.log, plans, keys)
        self.waits = Waits(
            *(ports.store, ports.blobs, ports.evaluator, ports.clock, plans, originals),
            keys=keys,
            nudge=self.reader.nudge,
            namespace_of=self.namespace_of,
        )
        self.timers = AggregateTimers(self._owns)
        self.triggers = WatchingTriggers(ports.store, ports.page_url)
        lookups = Lookups(ports.catalog, ports.rights, ports.clock)
        self.catching_up = CatchingUp(ports.store, ports.log, ports.clock)
        rates = NamespaceRates(ports.trigger_rates, self._share, self.namespace_of)
        self.aggregates = Aggregates(
            ports.store, lookups, formats, self.catching_up.holds_back, rates, ports.open_streams
        )
        self.snapshots = Snapshots(ports.store, plans, states.snapshot_every)
        self.executions = ExecutionCache(
            ports.store, self.snapshots, self._cursor_of, self.waits.track, states.max_bytes
        )
        self.turns = NamespaceTurns(self.executions.state)
        self.competition = Competition(ports.clock)
        self.shares = NamespaceShares(
            ports.store, ports.task_logs, ports.clock, self.namespace_of, ports.max_stored_bytes
        )
        self.publications = Publications(ports.log, ports.queue, ports.clock)
        self.ownership = PartitionOwnership(owner, ports.store, ports.log, ports.queue)
        self.inbox = Inbox(ports.store, ports.bus, self._owns, self.reader.nudge)
        self.streams = None
        if ports.trigger_streams is not None:
            self.streams = StreamReaders(
                ports.trigger_streams, ports.open_streams, ports.clock, owns=self._owns, nudge=self.reader.nudge
            )
        used = None if ports.secrets is None else ports.secrets.used
        self.traces = None if ports.tracing is None else ServerTraces(ports.tracing, ports.store, used)
        self.lineage = None
        if ports.lineage is not None and ports.upkeep is not None and ports.upkeep.feed is not None:
            self.lineage = LineageFeed(ports.upkeep.feed, ports.store, ports.lineage, ports.clock, used)
        self._failure, self._failed_s = "", 0.0

    def new_fold(self) -> Fold:
        """Returns an empty fold of the executions in memory, whose time begins now."""
        clock = self.ports.clock
        end_s = clock.monotonic_s() + (SHARED_FOLD_S if self.competition.is_on else FOLD_S)
        return Fold(
            self.executions,
            self.ports.capabilities,
            self.formats,
            self.triggers,
            self.shares.of,
            lambda: clock.monotonic_s() >= end_s,
        )

    def note_failure(self, error: Unreachable) -> None:
        """Notes that a turn of the loop, or reading its partitions again, has failed."""
        self._failure, self._failed_s = str(error), self.ports.clock.monotonic_s()

    def unstored(self) -> list[str]:
        """Returns the reasons why the server cannot store its decisions now, one line for each store."""
        has_failed = self._failure and self.ports.clock.monotonic_s() - self._failed_s < FAILED_S
        return [*self.ports.refusals(), *([self._failure] if has_failed else [])]

    def memory_use(self) -> MemoryUse:
        """Returns how much memory the bounded parts of the server use."""
        return MemoryUse(
            "server",
            self.owner,
            {
                "states": self.executions.size,
                "unread": self.reader.held_bytes,
                "unacknowledged": self.publications.held_bytes,
            },
            {"states": self.executions.max_bytes, "unacknowledged": MAX_UNACKNOWLEDGED_BYTES},
            evictions=self.executions.evictions,
            snapshots_written=self.snapshots.written,
            snapshots_thrown_away=self.snapshots.thrown_away,
            at_ms=self.ports.clock.now_ms(),
            grants=self._grants_use(),
            disagreements=[] if self.ports.upkeep is None else [*self.ports.upkeep.disagreements[:DISAGREEMENTS_SENT]],
            late_records=0 if self.ports.upkeep is None else self.ports.upkeep.late_records,
            stored=self.shares.nearly_full(),
            max_stored_bytes=self.shares.max_stored_bytes or 0,
            unstored=self.unstored(),
            untold=self.lineage.failure if self.lineage is not None else "",
            pool_labels={pool: dict(labels) for pool, labels in (self.ports.pool_labels or {}).items()},
        )

    def _grants_use(self) -> GrantsUse:
        grants = self.ports.grants
        if grants is not None and not grants.is_chosen:
            return "unset"
        if isinstance(grants, GrantsFile):
            return "file"
        return "everything" if grants is None or grants.current() is None else "restricted"

    def namespace_of(self, path: str) -> str:
        """Returns the namespace of a playbook's path, by the operator's grants if there are any."""
        grants = self.ports.grants.current() if self.ports.grants is not None else None
        return namespace_of(path) if grants is None else grants.namespace_of(path)

    def _share(self) -> float:
        """Returns the part of all partitions that this server owns."""
        return len(self.ownership.ids) / partition_count()

    def _owns(self, partition: int) -> bool:
        return self.ownership.get(partition) is not None

    def _cursor_of(self, partition: int) -> int:
        lease = self.ownership.get(partition)
        return lease.last_seq if lease is not None else 0
