"""Permissions to publish and subscribe on NATS: the least that each identity needs (PROTOCOL §7).

An identity is ``admin``, ``server``, ``gateway``, ``worker-<pool>`` or ``publisher``. :data:`TABLE` lists every subject
that the code uses; :func:`permissions_of` derives the rights of one identity from it. The publisher owns the streams
that triggers read, in a separate account, where servers have the rights in :func:`stream_rights`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from noetl_stream.errors import UsageError
from noetl_stream.model.ids import is_valid_id
from noetl_stream.model.priorities import DEFAULT_PRIORITY, PRIORITIES
from noetl_stream.protocol.subjects import COMMANDS, EVENTS, FENCE_ID, LOGS, NEW_PRIORITY, RESULTS, RESULTS_BUCKET
from noetl_stream.trigger.stream_messages import stream_fault

ADMIN: Final = "admin"
SERVER: Final = "server"
GATEWAY: Final = "gateway"
WORKER: Final = "worker"
"""The role of the identities ``worker-<pool>``."""

PUBLISHER: Final = "publisher"
"""The publisher of the messages that triggers read: not a role of the engine, with all rights in its own account."""

CORE: Final = (ADMIN, SERVER)
"""The roles that share the account with JetStream. Each gateway and pool has an account of its own."""

IMPORTED_STREAMS: Final = "noetl.streams"
"""JetStream's requests about streams that triggers read, as servers name them: these streams are in another account."""

JETSTREAM: Final = "$JS.API"
IMPORTED_JETSTREAM: Final = "noetl.api"
"""JetStream's requests as named in the accounts of gateways and pools, where NATS reserves the original names."""

ANSWERS: Final = "_R_.>"
"""The subjects of answers to questions from another account; NATS generates them."""

POOL: Final = "{pool}"

CONSUMERS: Final = tuple(
    f"pool-{POOL}" if priority == DEFAULT_PRIORITY else f"pool-{POOL}={priority}" for priority in PRIORITIES
)
"""The consumers of a pool, one for each priority."""


class Permissions(msgspec.Struct, frozen=True):
    """Subject patterns that an identity may publish and subscribe."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]

    def lists(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Both lists of patterns, each with its name in the configuration of a nats-server."""
        return ("publish", self.publish), ("subscribe", self.subscribe)


class SubjectRights(msgspec.Struct, frozen=True, gc=False):
    """A subject pattern and the roles that may publish and subscribe it.

    Attributes:
        subject: ``{pool}`` stands for a worker's own pool, and for every pool with the other roles.
        streamed: Whether one message on it can have several answers.
    """

    subject: str
    publish: Collection[str] = ()
    subscribe: Collection[str] = ()
    streamed: bool = False


def _api(subject: str, *roles: str, streamed: bool = False) -> SubjectRights:
    return SubjectRights(f"{JETSTREAM}.{subject}", publish=roles, streamed=streamed)


TABLE: Final[tuple[SubjectRights, ...]] = (
    # Facts: requests of people, reports of workers, decisions of servers, and dead letters that people requeue.
    SubjectRights("noetl.events.*.*.requested", publish=(GATEWAY,)),
    SubjectRights("noetl.events.*.*.requeued", publish=(GATEWAY,)),
    SubjectRights("noetl.events.*.*.reported.{pool}", publish=(WORKER,)),
    SubjectRights("noetl.events.*.*.decided", publish=(SERVER,), subscribe=(GATEWAY,)),
    SubjectRights("noetl.events.*.*.checkpoint", publish=(SERVER,)),
    SubjectRights(f"noetl.events.*.{FENCE_ID}.checkpoint", publish=(ADMIN, SERVER)),  # again before EVENTS is trimmed
    # Work.
    SubjectRights("noetl.commands.*.*.*.*", publish=(SERVER,)),
    SubjectRights("noetl.fence.*", publish=(SERVER,)),
    SubjectRights("noetl.claim.{pool}.*.*", publish=(SERVER,), subscribe=(WORKER,)),
    SubjectRights(f"{NEW_PRIORITY}.{POOL}", publish=(SERVER,), subscribe=(WORKER,)),
    SubjectRights("noetl.stop", publish=(SERVER,), subscribe=(WORKER,)),
    # Between servers.
    SubjectRights("noetl.servers", publish=(SERVER,), subscribe=(SERVER,)),
    SubjectRights("noetl.inbox", publish=(SERVER, GATEWAY), subscribe=(SERVER,)),
    # Questions and answers.
    SubjectRights("noetl.answered.*.*", publish=(SERVER,), subscribe=(GATEWAY,)),
    SubjectRights("noetl.ask.ping", publish=(GATEWAY,), subscribe=(SERVER,)),
    SubjectRights("noetl.ask.request.*.*", publish=(GATEWAY,), subscribe=(SERVER,)),
    SubjectRights("noetl.ask.purge", publish=(GATEWAY,), subscribe=(SERVER,)),
    SubjectRights("noetl.ask.webhook", publish=(GATEWAY,), subscribe=(SERVER,)),
    SubjectRights("noetl.ask.memory", publish=(GATEWAY,), subscribe=(SERVER,), streamed=True),
    SubjectRights("noetl.ask.workers.{pool}", publish=(GATEWAY,), subscribe=(WORKER,), streamed=True),
    SubjectRights("noetl.ask.oldest", publish=(GATEWAY,), subscribe=(SERVER,)),
    SubjectRights("noetl.ask.queue.{pool}", publish=(WORKER,), subscribe=(SERVER,)),
    SubjectRights("noetl.ask.playbook.{pool}", publish=(WORKER,), subscribe=(SERVER,)),
    SubjectRights("noetl.ask.catalog.{pool}", publish=(WORKER,), subscribe=(SERVER,)),
    SubjectRights("noetl.ask.result.{pool}", publish=(WORKER,), subscribe=(SERVER,)),
    SubjectRights("noetl.ask.secret.{pool}", publish=(WORKER,), subscribe=(SERVER,)),
    SubjectRights("noetl.ask.hide.{pool}", publish=(WORKER,), subscribe=(SERVER,)),
    SubjectRights("noetl.ask.addresses.{pool}", publish=(WORKER,), subscribe=(SERVER,)),
    # Objects. They are sealed with a key of their execution; deleting them is a purge. An admin backs up, and moves.
    SubjectRights(f"$O.{RESULTS_BUCKET}.C.*", publish=(ADMIN, SERVER, GATEWAY, WORKER)),
    SubjectRights(f"$O.{RESULTS_BUCKET}.M.*", publish=(ADMIN, SERVER, GATEWAY, WORKER)),
    _api(f"STREAM.INFO.{RESULTS}", GATEWAY),
    _api(f"STREAM.MSG.GET.{RESULTS}", ADMIN, SERVER, GATEWAY, WORKER),
    _api(f"STREAM.PURGE.{RESULTS}", ADMIN, SERVER),
    # The event log: servers read and trim it, gateways count what is not folded yet.
    _api(f"STREAM.INFO.{EVENTS}", SERVER, GATEWAY),
    _api(f"STREAM.PURGE.{EVENTS}", ADMIN, SERVER),
    _api(f"STREAM.MSG.GET.{EVENTS}", ADMIN, SERVER),
    _api(f"DIRECT.GET.{EVENTS}", ADMIN, GATEWAY),
    _api(f"CONSUMER.CREATE.{EVENTS}.*", SERVER),
    _api(f"CONSUMER.MSG.NEXT.{EVENTS}.*", SERVER),
    _api(f"CONSUMER.DELETE.{EVENTS}.*", SERVER),
    # The command queue: servers create the consumer of a pool, its workers fetch from it and acknowledge.
    _api(f"STREAM.INFO.{COMMANDS}", SERVER, GATEWAY),
    _api(f"STREAM.MSG.GET.{COMMANDS}", SERVER),
    _api(f"STREAM.PURGE.{COMMANDS}", SERVER),
    _api(f"CONSUMER.LIST.{COMMANDS}", ADMIN, SERVER, GATEWAY),
    _api(f"CONSUMER.CREATE.{COMMANDS}.>", SERVER),
    _api(f"CONSUMER.INFO.{COMMANDS}.*", SERVER),
    *(
        row
        for consumer in CONSUMERS
        for row in (
            _api(f"CONSUMER.INFO.{COMMANDS}.{consumer}", WORKER),
            _api(f"CONSUMER.MSG.NEXT.{COMMANDS}.{consumer}", WORKER, streamed=True),
            SubjectRights(f"$JS.ACK.{COMMANDS}.{consumer}.>", publish=(WORKER,)),
        )
    ),
    # Output of tasks: workers publish it, gateways read it, servers delete it with its execution.
    SubjectRights("noetl.logs.{pool}.*.*", publish=(WORKER,)),
    # Servers also count it by namespace, and trim it.
    _api(f"STREAM.INFO.{LOGS}", GATEWAY, SERVER),
    _api(f"CONSUMER.CREATE.{LOGS}.*", SERVER),
    _api(f"CONSUMER.MSG.NEXT.{LOGS}.*", SERVER),
    _api(f"CONSUMER.DELETE.{LOGS}.*", SERVER),
    _api(f"DIRECT.GET.{LOGS}", GATEWAY, streamed=True),
    _api(f"STREAM.PURGE.{LOGS}", SERVER),
    # The disk space of the streams, for `doctor`.
    _api("INFO", GATEWAY),
    # Deployment: `stream ensure` makes and changes the streams, `stream delete` deletes one.
    *(
        _api(f"STREAM.{verb}.{stream}", ADMIN)
        for stream in (EVENTS, COMMANDS, RESULTS, LOGS)
        for verb in ("INFO", "CREATE", "UPDATE", "DELETE")
    ),
)
"""Every subject the code uses, once. In addition, each identity has its inboxes and :data:`ANSWERS`."""


STREAM: Final = "{stream}"

STREAM_TABLE: Final[tuple[SubjectRights, ...]] = (
    # The consumer of a trigger. NATS has no patterns within a name: servers themselves keep to their own.
    _api(f"STREAM.INFO.{STREAM}", SERVER),
    _api(f"CONSUMER.LIST.{STREAM}", SERVER),
    _api(f"CONSUMER.INFO.{STREAM}.*", SERVER),
    _api(f"CONSUMER.CREATE.{STREAM}.*", SERVER),
    _api(f"CONSUMER.DELETE.{STREAM}.*", SERVER),
    _api(f"CONSUMER.MSG.NEXT.{STREAM}.*", SERVER, streamed=True),
    SubjectRights(f"$JS.ACK.{STREAM}.*.>", publish=(SERVER,)),
)
"""The rights of servers on a stream that triggers read. They cannot publish there, change it or purge it."""


def stream_rights(streams: Iterable[str]) -> list[SubjectRights]:
    """The rights on these streams, by the names of the account in which they are.

    Raises:
        UsageError: one is not a stream name, or is one of the engine's own.
    """
    found = []
    for stream in dict.fromkeys(streams):
        if fault := stream_fault(stream):
            raise UsageError(f"triggers cannot read it: {fault}")
        found += [msgspec.structs.replace(row, subject=row.subject.replace(STREAM, stream)) for row in STREAM_TABLE]
    return found


def worker_identity(pool: str) -> str:
    """The identity of the workers of a pool.

    Raises:
        UsageError: the pool's name is not valid.
    """
    if not is_valid_id(pool):
        raise UsageError(f"{pool!r} is not a valid pool name", hint="use 1 to 64 letters, digits, '_' and '-'")
    return f"{WORKER}-{pool}"


def role_of(identity: str) -> str:
    """The role of an identity.

    Raises:
        UsageError: the identity does not exist.
    """
    if identity in (ADMIN, SERVER, GATEWAY, PUBLISHER):
        return identity
    role, _, pool = identity.partition("-")
    if role != WORKER or not is_valid_id(pool):
        hint = "use admin, server, gateway, worker-<pool> or publisher"
        raise UsageError(f"{identity!r} is not an identity", hint=hint)
    return role


def pool_of(identity: str) -> str:
    """The pool of a worker's identity; ``""`` for the other roles."""
    return identity.partition("-")[2]


def inbox_prefix(identity: str) -> str:
    """The prefix of the subjects on which ``identity`` receives answers."""
    return f"_INBOX_{identity}"


def jetstream_prefix(identity: str) -> str:
    """The prefix of ``identity``'s requests to JetStream."""
    return JETSTREAM if role_of(identity) in CORE else IMPORTED_JETSTREAM


def named_in(identity: str, subject: str) -> str:
    """The name of a subject in the account of ``identity``."""
    return subject.replace(JETSTREAM, jetstream_prefix(identity), 1)


def named_by_server(subject: str) -> str:
    """The name that a subject of :func:`stream_rights` has in the account of servers."""
    return subject.replace(JETSTREAM, IMPORTED_STREAMS, 1)


def permissions_of(identity: str, streams: Iterable[str] = ()) -> Permissions:
    """The rights of an identity, by the names of its own account.

    Args:
        streams: The streams that triggers read.

    Raises:
        UsageError: the identity does not exist.
    """
    role, pool = role_of(identity), pool_of(identity) or "*"
    if role == PUBLISHER:
        return Permissions(publish=(">",), subscribe=(">",))
    published = [named_in(identity, row.subject).replace(POOL, pool) for row in TABLE if role in row.publish]
    published += [named_by_server(row.subject) for row in stream_rights(streams) if role in row.publish]
    subscribed = [row.subject.replace(POOL, pool) for row in TABLE if role in row.subscribe]
    answers = [ANSWERS] if any(row.publish and "ask" in row.subject and role in row.subscribe for row in TABLE) else []
    return Permissions(publish=(*published, *answers), subscribe=(*subscribed, f"{inbox_prefix(identity)}.>"))
