"""The status of a server for probes and Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from noetl_stream.server.playbook_measures import playbook_readings
from noetl_stream.server.server import Server
from noetl_stream.telemetry.measures import Metric, Reading, memory_readings

STUCK_S: Final = 900.0
"""The longest turn of a healthy server: a takeover of a partition may read EVENTS for minutes."""

INPUTS: Final = Metric("counter", "noetl_server_inputs", "Inputs folded, by where they came from.", ("source",))
TICKS: Final = Metric("counter", "noetl_server_ticks", "Ticks committed: transactions that added to a journal.")
TURNS: Final = Metric(
    "histogram",
    "noetl_server_turn_duration_seconds",
    "Turns of the loop that committed something: folding, committing, publishing.",
)
COMMITS: Final = Metric("histogram", "noetl_server_commit_duration_seconds", "Transactions of the loop in Postgres.")
ROWS: Final = Metric("counter", "noetl_server_rows_written", "Rows written, by table.", ("table",))
DEAD_LETTERS: Final = Metric("counter", "noetl_server_dead_letters", "Messages set aside, by source.", ("source",))
LETTERS_DROPPED: Final = Metric(
    "counter", "noetl_server_dead_letters_dropped", "Dead letters deleted because there were too many."
)
MESSAGES_LOST: Final = Metric(
    "counter", "noetl_server_messages_lost", "Messages that EVENTS has lost, found by the gaps that they left."
)
LATE_RECORDS: Final = Metric(
    "counter", "noetl_server_late_records", "Records in EVENTS of servers that had lost the partition; none counts."
)
REFUSING: Final = Metric(
    "gauge", "noetl_server_stores_refusing", "Stores that refuse what the server decides or commits now."
)
DISAGREEMENTS: Final = Metric(
    "gauge", "noetl_server_store_disagreements", "Disagreements between Postgres and EVENTS, when last compared."
)
OCCURRENCES: Final = Metric(
    "counter", "noetl_server_occurrences", "Entries of histories of schedules and triggers, by status.", ("status",)
)
LATENESS: Final = Metric(
    "histogram",
    "noetl_server_schedule_lateness_seconds",
    "How long after it was due an occurrence of a schedule started its execution, by schedule.",
    ("path",),
)
OVERDUE: Final = Metric(
    "gauge",
    "noetl_server_schedules_overdue_seconds",
    "For how long the schedule or trigger that is due first has waited for this server.",
)
TRIGGER_FAULTS: Final = Metric(
    "counter", "noetl_server_trigger_faults", "Events with which a trigger could not do what it says."
)
STREAM_MESSAGES: Final = Metric(
    "gauge", "noetl_server_stream_messages_waiting", "Messages in streams that triggers have not read yet."
)
STREAMS_UNREAD: Final = Metric("gauge", "noetl_server_streams_unread", "Triggers whose stream cannot be read.")
STARTED: Final = Metric("counter", "noetl_server_executions_started", "Executions that began.")
ENDED: Final = Metric("counter", "noetl_server_executions_ended", "Executions that ended, by status.", ("status",))
QUARANTINED: Final = Metric("counter", "noetl_server_executions_quarantined", "Executions that were set aside.")
ISSUED: Final = Metric("counter", "noetl_server_commands_issued", "Commands published.")
REISSUED: Final = Metric("counter", "noetl_server_commands_reissued", "Commands published that had been before.")
RECONCILED: Final = Metric(
    "counter", "noetl_server_commands_reconciled", "Commands issued again because the queue had lost them."
)
OWNED: Final = Metric("gauge", "noetl_server_partitions", "Partitions that this server owns.")
TAKEN_OVER: Final = Metric("counter", "noetl_server_partitions_taken_over", "Partitions taken over.")
LOST: Final = Metric("counter", "noetl_server_partitions_lost", "Partitions whose lease was lost or given back.")
RELEASED: Final = Metric("counter", "noetl_server_partitions_released", "Partitions released to other servers.")
STATES: Final = Metric("gauge", "noetl_server_states", "Executions whose state is in memory.")
EVICTED: Final = Metric("counter", "noetl_server_states_evicted", "States evicted from memory.")
SNAPSHOTS: Final = Metric("counter", "noetl_server_snapshots_written", "Snapshots written.")
THROWN_AWAY: Final = Metric("counter", "noetl_server_snapshots_thrown_away", "Snapshots that could not be used.")
NEARLY_FULL: Final = Metric(
    "gauge", "noetl_server_namespaces_nearly_full", "Namespaces that may store little more in the object store."
)
TIMERS: Final = Metric("gauge", "noetl_server_timers", "Timers that this server will fire.")
ROUND_TRIP: Final = Metric(
    "gauge", "noetl_server_round_trip_seconds", "The median of the last round trips, by store.", ("store",)
)


class ServerStatus:
    """The :class:`~noetl_stream.telemetry.measures.Role` of a server.

    Args:
        is_connected: Returns whether the server is connected to NATS.
    """

    def __init__(self, server: Server, is_connected: Callable[[], bool]) -> None:
        self._server = server
        self._is_connected = is_connected

    def reasons_to_replace(self) -> Sequence[str]:
        return [*self._reasons_of_death()]

    def _reasons_of_death(self) -> Iterator[str]:
        server = self._server
        if not server.lasting or server.is_stopping:
            return
        yield from (f"its task {name!r} has ended" for name, task in server.lasting.items() if task.done())
        silent_s = server.ports.clock.monotonic_s() - server.turned_s
        if silent_s > STUCK_S and not server.leases.is_restoring:
            yield f"its loop has not turned for {silent_s:.0f} s"

    async def reasons_not_ready(self) -> Sequence[str]:
        return [*self._reasons_to_wait()]

    def _reasons_to_wait(self) -> Iterator[str]:
        server = self._server
        if server.is_stopping:
            yield "it is stopping"
        elif not server.lasting:
            yield f"it is starting: {server.waits_for or 'it looks at its stores'}"
        else:
            if not self._is_connected():
                yield "it has lost the connection to NATS"
            if server.leases.is_late:
                yield "its leases cannot be renewed: Postgres or EVENTS does not answer"
            if server.leases.is_restoring:
                yield "it is reading its partitions again, after a store was away"
            yield from (f"it cannot store what it decides: {why}" for why in server.unstored())

    async def readings(self) -> Sequence[Reading]:
        server, counts = self._server, self._server.counts
        return [
            INPUTS.read_each(counts.inputs),
            TICKS.read(server.committer.ticks),
            TURNS.read(counts.turns),
            COMMITS.read(counts.commits),
            ROWS.read_each(counts.rows),
            DEAD_LETTERS.read_each(counts.dead_letters),
            REFUSING.read(len(server.unstored())),
            *self._of_upkeep(),
            OCCURRENCES.read_each(counts.occurrences),
            LATENESS.read_each(counts.lateness),
            OVERDUE.read(server.timers.overdue_s(server.ports.clock.now_ms())),
            TRIGGER_FAULTS.read(counts.trigger_faults),
            STARTED.read(counts.started),
            ENDED.read_each(counts.ended),
            *playbook_readings(counts.playbooks),
            QUARANTINED.read(counts.quarantined),
            ISSUED.read(counts.issued),
            REISSUED.read(counts.reissued),
            RECONCILED.read(counts.reconciled),
            OWNED.read(len(server.ownership)),
            TAKEN_OVER.read(counts.taken_over),
            LOST.read(counts.lost),
            RELEASED.read(counts.released),
            STATES.read(len(server.executions)),
            EVICTED.read(server.executions.evictions),
            SNAPSHOTS.read(server.snapshots.written),
            THROWN_AWAY.read(server.snapshots.thrown_away),
            TIMERS.read(len(server.waits)),
            NEARLY_FULL.read(len(server.shares.nearly_full())),
            ROUND_TRIP.read_each(server.leases.round_trips.medians_s),
            *self._of_streams(),
            *memory_readings([server.memory_use()]),
            *(server.traces.tracing.readings() if server.traces is not None else ()),
            *(server.lineage.readings() if server.lineage is not None else ()),
        ]

    def _of_upkeep(self) -> Iterator[Reading]:
        if (upkeep := self._server.ports.upkeep) is not None:
            yield LETTERS_DROPPED.read(upkeep.letters_dropped)
            yield MESSAGES_LOST.read(upkeep.messages_lost)
            yield LATE_RECORDS.read(upkeep.late_records)
            yield DISAGREEMENTS.read(len(upkeep.disagreements))

    def _of_streams(self) -> Iterator[Reading]:
        if (streams := self._server.streams) is not None:
            yield STREAM_MESSAGES.read(streams.waiting)
            yield STREAMS_UNREAD.read(streams.unread)
