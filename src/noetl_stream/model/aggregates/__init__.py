"""Facts about aggregates: state beside executions, folded in the partition of its id (PROTOCOL §1).

To add a kind, define its requests and messages in a module of this folder, with the kind's name as ``of``, and add them
to the unions here; define its fold in ``engine/aggregates`` and add it to the table there.
"""

from noetl_stream.model.aggregates.fact_parts import *
from noetl_stream.model.aggregates.fact_parts import StartedBefore, StartedEnded
from noetl_stream.model.aggregates.key_limits import *
from noetl_stream.model.aggregates.key_limits import SlotAsked, SlotHeld, SlotReturned
from noetl_stream.model.aggregates.schedules import *
from noetl_stream.model.aggregates.schedules import ScheduleFact
from noetl_stream.model.aggregates.triggers import *
from noetl_stream.model.aggregates.triggers import EventEmitted, EventReceived, ExecutionEnded, TriggerFact

RequestedFact = ScheduleFact | TriggerFact
"""The requests of clients to aggregates."""

SentFact = (
    StartedEnded | StartedBefore | ExecutionEnded | EventEmitted | EventReceived | SlotAsked | SlotHeld | SlotReturned
)
"""Messages from executions and other aggregates to aggregates; also an event requeued from a dead letter."""
