"""The crash points: where a process can be killed, before and after each publish, commit, acknowledgement and put.

A point is named ``<role>.<what it does>.<side>``. The engine knows nothing of them: ``crashing_program.py`` wraps these
methods of the adapters in the processes that it runs, and only there.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from noetl_stream.adapters.nats.blobs import NatsBlobs
from noetl_stream.adapters.nats.bus import NatsBus
from noetl_stream.adapters.nats.commands.command_queue import NatsCommandQueue
from noetl_stream.adapters.nats.commands.command_source import NatsDelivery
from noetl_stream.adapters.nats.event_log import NatsEventLog
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.adapters.postgres.tables import PostgresAudit, PostgresIdempotency

SIDES: Final = ("before", "after")


class Call(NamedTuple):
    """A call of an adapter.

    Attributes:
        name: ``<role>.<what it does>``.
        adapter: A class of ``noetl_stream.adapters``.
        method: The name of its method.
        reached: What leads there: the job that is run, or ``start`` or ``stop`` of the process.
    """

    name: str
    adapter: type
    method: str
    reached: str

    @property
    def role(self) -> str:
        return self.name.partition(".")[0]


CALLS: Final = (
    Call("server.commit a tick", PostgresStore, "commit", "chain"),
    Call("server.publish records", NatsEventLog, "publish_decided", "chain"),
    Call("server.issue commands", NatsCommandQueue, "issue", "chain"),
    Call("server.withdraw commands", NatsCommandQueue, "withdraw", "cancelled"),
    Call("server.answer", NatsBus, "send", "chain"),
    Call("server.put a gathered result", NatsBlobs, "put", "wide"),
    Call("server.renew its leases", PostgresStore, "renew", "chain"),
    Call("server.take partitions", PostgresStore, "take_over", "start"),
    Call("server.fence the queue", NatsCommandQueue, "fence", "start"),
    Call("server.give partitions back", PostgresStore, "give_back", "stop"),
    Call("worker.publish a report", NatsEventLog, "publish_report", "chain"),
    Call("worker.acknowledge a command", NatsDelivery, "ack", "chain"),
    Call("worker.put a result", NatsBlobs, "put", "large"),
    Call("worker.get a result", NatsBlobs, "get", "large"),
    Call("worker.open its source", NatsCommandQueue, "open_source", "start"),
    Call("gateway.claim a key", PostgresIdempotency, "claim", "chain"),
    Call("gateway.begin the audit", PostgresAudit, "begin", "chain"),
    Call("gateway.put a playbook", NatsBlobs, "put", "new"),
    Call("gateway.publish a request", NatsEventLog, "publish_request", "chain"),
    Call("gateway.finish a key", PostgresIdempotency, "finish", "chain"),
    Call("gateway.answer the audit", PostgresAudit, "answer", "chain"),
)

POINTS: Final = {f"{call.name}.{side}": call for call in CALLS for side in SIDES}

IN_THE_GATE: Final = (
    "server.commit a tick.before",
    "server.commit a tick.after",
    "server.issue commands.before",
    "worker.publish a report.after",
    "worker.acknowledge a command.before",
    "gateway.publish a request.after",
)
"""One of each kind; `make verify` passes all."""
