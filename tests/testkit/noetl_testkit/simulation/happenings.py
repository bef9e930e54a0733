"""What PROTOCOL §6 wants a simulation to bring about, and whether a run did."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from noetl_stream.model.events import StepClaimed
from noetl_stream.model.ids import RunId
from noetl_stream.model.json import codec
from noetl_testkit.simulation.faults import FaultPlan
from noetl_testkit.simulation.world import SimulatedWorld

HAPPENINGS: Final = {
    "clean restart after idle longer than the dedupe window": ("idle night",),
    "nats restart between ack and re-publish": ("message stored again under its id",),
    "lost tail, then new messages before the server looks": ("messages after a lost tail", "folded tail lost"),
    "queue copy restored (acks lost)": ("queue restored", "acks lost"),
    "zombie publish after cancel": ("command published after a cancel",),
    "zombie report after a claim": ("report after the claim of another run",),
    "reconcile at every tick": ("reconcile always",),
    "decided records late, twice, in other order": ("records late", "records doubled", "records in another order"),
    "Postgres restored to some ticks ago": ("postgres restored",),
    "commit of unknown outcome": ("commit unknown",),
    "timer-only ticks": ("tick of timers of unknown outcome",),
    "one of n partitions lost in a tick": ("one of several partitions lost in a tick",),
    "consumer recreated at each of these points": ("a reader breaks as another fault strikes",),
    "cancel before the start of a child": ("cancel before the start of a child",),
    "refused request folded again": ("refused request again",),
}
"""By the words of the protocol: what shows that it happened."""


def happened(faults: FaultPlan) -> Counter[str]:
    """What struck, and what else the stored messages show."""
    world = faults.world
    counts = Counter(faults.struck)
    counts.update({faults.poison.kind: faults.poison.strikes} if faults.poison is not None else {})
    counts["messages after a lost tail"] += world.messages_before_look
    counts["inbox late"] += world.inbox.withheld
    counts["cancel before the start of a child"] += len(world.inbox.overtaken)
    counts["refused request again"] += len(world.clients.rejected)
    ids = Counter(stored.message_id for stored in world.broker.event_log.stored)
    counts["message stored again under its id"] += sum(count > 1 for count in ids.values())
    counts["records in another order"] += sum(_overtaken(world))
    counts["report after the claim of another run"] += sum(_stale(world))
    return +counts


def _overtaken(world: SimulatedWorld) -> Iterator[bool]:
    """For each record, whether a later one of its execution was stored before."""
    reached: dict[str, int] = defaultdict(int)
    for stored in world.broker.event_log.stored:
        if not stored.is_input:
            record = codec.decode_record(stored.message.body)
            yield record.first_position < reached[record.execution]
            reached[record.execution] = max(reached[record.execution], record.first_position)


def _stale(world: SimulatedWorld) -> Iterator[bool]:
    """For each report, whether another run had claimed its command before."""
    claimed: dict[str, RunId] = {}
    for report in world.reports():
        is_claim = any(isinstance(codec.decode_fact(fact), StepClaimed) for fact in report.events)
        if is_claim:
            claimed[report.command_id] = report.run
        else:
            yield claimed.get(report.command_id, report.run) != report.run
