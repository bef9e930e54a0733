"""References to files and tables that a tick hands to other executions: they are sealed again for the receiver, which
then holds them (ADR 48).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from noetl_stream.ports.stores.store import InboxRow, ObjectUseRow
from noetl_stream.sealing.data_references import hand_on, has_references, references_in
from noetl_stream.sealing.objects import DerivedKeys
from noetl_stream.server.ticks.tick import JournalSegment, Outgoing


def handed_on(keys: DerivedKeys, sent: Outgoing) -> InboxRow:
    """The message with its references sealed for the receiver instead of the sender. Both may be aggregates: a trigger
    gets the references of an ended execution, and hands them to the execution it starts.
    """
    row = sent.row
    if not has_references(row.body):
        return row
    return replace(row, body=hand_on(row.body, keys.ring(sent.sender), keys.ring(row.execution_id)))


def uses_in(keys: DerivedKeys, segments: Mapping[str, JournalSegment]) -> Iterator[ObjectUseRow]:
    """The files and tables of other executions that executions get in this tick: with a message, or from the original
    of a rerun. Reports and requests bring none, since nobody has sealed them again.
    """
    given = [
        (execution_id, fact)
        for execution_id, segment in segments.items()
        for entry in segment.entries
        if entry.given.source == "server"
        for fact in entry.facts
    ]
    for execution_id, fact in given:
        for reference, _ in references_in(fact, keys.ring(execution_id)) if has_references(fact) else ():
            if reference.execution_id != execution_id:
                yield ObjectUseRow(
                    execution_id=execution_id, key=reference.key, store="nats", owner=reference.execution_id
                )
