"""The doctor over stores in memory."""

from __future__ import annotations

from noetl_stream.adapters.memory.broker import MemoryBroker
from noetl_stream.adapters.memory.stores.credentials import MemoryCredentials
from noetl_stream.adapters.memory.stores.store import MemoryStore
from noetl_stream.operations.doctor.readings import DoctorPorts
from noetl_stream.ports.clock import Clock
from noetl_testkit.memory.access import MemoryTokens
from noetl_testkit.memory.observation import MemoryDatabaseDiagnosis, MemoryNatsDiagnosis


def doctor_ports(broker: MemoryBroker, store: MemoryStore, clock: Clock, tokens: MemoryTokens) -> DoctorPorts:
    return DoctorPorts(
        database=MemoryDatabaseDiagnosis(store, clock),
        nats=MemoryNatsDiagnosis(clock),
        store=store,
        log=broker.event_log,
        queue=broker.command_queue,
        bus=broker.bus,
        dead_letters=store.dead_letters,
        tokens=tokens,
        credentials=MemoryCredentials(clock),
        clock=clock,
        keys=None,
    )
