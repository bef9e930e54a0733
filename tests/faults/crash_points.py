"""The crash points: where a process can be killed, before and after each publish, commit, acknowledgement and put.

A point is named ``<role>.<what it does>.<side>``. The engine knows nothing of them: ``crashing_program.py`` wraps these
methods of the adapters in the processes that it runs, and only there.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SIDES: Final = ("before", "after")


class Call(NamedTuple):
    """A call of an adapter.

    Attributes:
        name: ``<role>.<what it does>``.
        method: ``module:Class.method``, below ``noetl_stream.adapters``.
        reached: What leads there: the job that is run, or ``start`` or ``stop`` of the process.
    """

    name: str
    method: str
    reached: str

    @property
    def role(self) -> str:
        return self.name.partition(".")[0]


CALLS: Final = (
    Call("server.commit a tick", "postgres.store:PostgresStore.commit", "chain"),
    Call("server.publish records", "nats.event_log:NatsEventLog.publish_decided", "chain"),
    Call("server.issue commands", "nats.command_queue:NatsCommandQueue.issue", "chain"),
    Call("server.withdraw commands", "nats.command_queue:NatsCommandQueue.withdraw", "cancelled"),
    Call("server.answer", "nats.bus:NatsBus.send", "chain"),
    Call("server.put a gathered result", "nats.blobs:NatsBlobs.put", "wide"),
    Call("server.renew its leases", "postgres.store:PostgresStore.renew", "chain"),
    Call("server.take partitions", "postgres.store:PostgresStore.take_over", "start"),
    Call("server.fence the queue", "nats.command_queue:NatsCommandQueue.fence", "start"),
    Call("server.give partitions back", "postgres.store:PostgresStore.give_back", "stop"),
    Call("worker.publish a report", "nats.event_log:NatsEventLog.publish_report", "chain"),
    Call("worker.acknowledge a command", "nats.command_source:NatsDelivery.ack", "chain"),
    Call("worker.put a result", "nats.blobs:NatsBlobs.put", "large"),
    Call("worker.get a result", "nats.blobs:NatsBlobs.get", "large"),
    Call("worker.open its source", "nats.command_queue:NatsCommandQueue.open_source", "start"),
    Call("gateway.claim a key", "postgres.access:PostgresIdempotency.claim", "chain"),
    Call("gateway.begin the audit", "postgres.access:PostgresAudit.begin", "chain"),
    Call("gateway.put a playbook", "nats.blobs:NatsBlobs.put", "new"),
    Call("gateway.publish a request", "nats.event_log:NatsEventLog.publish_request", "chain"),
    Call("gateway.finish a key", "postgres.access:PostgresIdempotency.finish", "chain"),
    Call("gateway.answer the audit", "postgres.access:PostgresAudit.answer", "chain"),
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
