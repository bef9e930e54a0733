"""Who may publish and subscribe which subject on NATS: the least that each identity needs (PROTOCOL §7).

An identity is ``admin``, ``server``, ``gateway`` or ``worker-<pool>``. :data:`TABLE` names every subject the code uses,
:func:`permissions_of` reads the rights of one identity from it, :func:`nats_users` writes them for a nats-server.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from noetl_stream.errors import UsageError
from noetl_stream.model.ids import is_valid_id
from noetl_stream.ports.subjects import COMMANDS, EVENTS, LOGS, RESULTS, RESULTS_BUCKET

ADMIN: Final = "admin"
SERVER: Final = "server"
GATEWAY: Final = "gateway"
WORKER: Final = "worker"
"""The role of the identities ``worker-<pool>``."""

ANSWER_WITHIN_S: Final = 60
"""How long a worker may answer a question that it received."""

_WORKER_PREFIX = f"{WORKER}-"
_POOL = "{pool}"


@dataclass(frozen=True, slots=True)
class Permissions:
    """Subject patterns an identity may publish and subscribe; ``answers``: also a reply, once, to what it received."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    answers: bool = False


class Row(NamedTuple):
    """A subject pattern and the roles that may publish and subscribe it.

    ``{pool}`` is the own pool of a worker; for the other roles it is every pool.
    """

    subject: str
    publish: Collection[str] = ()
    subscribe: Collection[str] = ()


def _api(subject: str, *roles: str) -> Row:
    """A request to JetStream."""
    return Row(f"$JS.API.{subject}", publish=roles)


TABLE: Final[tuple[Row, ...]] = (
    # Facts: what people request, what workers report, what servers decide.
    Row("noetl.events.*.*.requested", publish=(GATEWAY,)),
    Row("noetl.events.*.*.reported.{pool}", publish=(WORKER,)),
    Row("noetl.events.*.*.decided", publish=(SERVER,), subscribe=(GATEWAY,)),
    # Work.
    Row("noetl.commands.*.*.*.*", publish=(SERVER,)),
    Row("noetl.stop", publish=(SERVER,), subscribe=(WORKER,)),
    Row("noetl.logs.{pool}.*.*", publish=(WORKER,)),
    # Between servers.
    Row("noetl.servers", publish=(SERVER,), subscribe=(SERVER,)),
    Row("noetl.inbox", publish=(SERVER, GATEWAY), subscribe=(SERVER,)),
    # Answers and questions.
    Row("noetl.answered.*.*", publish=(SERVER,), subscribe=(GATEWAY,)),
    Row("noetl.ask.ping", publish=(GATEWAY,), subscribe=(SERVER,)),
    Row("noetl.ask.request.*.*", publish=(GATEWAY,), subscribe=(SERVER,)),
    Row("noetl.ask.workers", publish=(GATEWAY,), subscribe=(WORKER,)),
    Row("noetl.ask.playbook.{pool}", publish=(WORKER,), subscribe=(SERVER,)),
    Row("noetl.ask.catalog.{pool}", publish=(WORKER,), subscribe=(SERVER,)),
    Row("noetl.ask.result.{pool}", publish=(WORKER,), subscribe=(SERVER,)),
    Row("noetl.ask.secret.{pool}", publish=(WORKER,), subscribe=(SERVER,)),
    # Each reads answers in its own inbox; servers answer gateways and workers.
    Row("_INBOX_admin.>", subscribe=(ADMIN,)),
    Row("_INBOX_server.>", subscribe=(SERVER,)),
    Row("_INBOX_gateway.>", publish=(SERVER,), subscribe=(GATEWAY,)),
    Row("_INBOX_worker-{pool}.>", publish=(SERVER,), subscribe=(WORKER,)),
    # Objects. They are sealed with a key of their execution; deleting them is a purge.
    Row(f"$O.{RESULTS_BUCKET}.C.*", publish=(SERVER, GATEWAY, WORKER)),
    Row(f"$O.{RESULTS_BUCKET}.M.*", publish=(SERVER, GATEWAY, WORKER)),
    _api(f"STREAM.MSG.GET.{RESULTS}", SERVER, GATEWAY, WORKER),
    _api(f"STREAM.PURGE.{RESULTS}", SERVER),
    # The event log: servers read it, gateways count what is not folded yet, a worker probes whether it is reached.
    _api(f"STREAM.INFO.{EVENTS}", SERVER, GATEWAY, WORKER),
    _api(f"STREAM.MSG.GET.{EVENTS}", SERVER),
    _api(f"DIRECT.GET.{EVENTS}", GATEWAY),
    _api(f"CONSUMER.CREATE.{EVENTS}.*", SERVER),
    _api(f"CONSUMER.MSG.NEXT.{EVENTS}.*", SERVER),
    _api(f"CONSUMER.DELETE.{EVENTS}.*", SERVER),
    # The command queue: a worker takes from the consumer of its pool and acknowledges what it was given.
    _api(f"STREAM.INFO.{COMMANDS}", SERVER, GATEWAY),
    _api(f"STREAM.MSG.GET.{COMMANDS}", SERVER),
    _api(f"STREAM.PURGE.{COMMANDS}", SERVER),
    _api(f"CONSUMER.LIST.{COMMANDS}", GATEWAY),
    _api(f"CONSUMER.CREATE.{COMMANDS}.pool-{_POOL}.noetl.commands.{_POOL}.>", WORKER),
    _api(f"CONSUMER.MSG.NEXT.{COMMANDS}.pool-{_POOL}", WORKER),
    Row(f"$JS.ACK.{COMMANDS}.pool-{_POOL}.>", publish=(WORKER,)),
    # Deployment: `stream ensure` creates and changes the streams.
    *(
        _api(f"STREAM.{verb}.{stream}", ADMIN)
        for stream in (EVENTS, COMMANDS, RESULTS, LOGS)
        for verb in ("INFO", "CREATE", "UPDATE")
    ),
)
"""Every subject the code uses, once."""


def worker_identity(pool: str) -> str:
    """The identity of the workers of a pool."""
    return f"{_WORKER_PREFIX}{pool}"


def pool_of(identity: str) -> str | None:
    """The pool of a worker's identity; ``None`` for the other roles."""
    return identity.removeprefix(_WORKER_PREFIX) if identity.startswith(_WORKER_PREFIX) else None


def inbox_prefix(identity: str) -> str:
    """What the subjects that ``identity`` receives answers on begin with."""
    return f"_INBOX_{identity}"


def permissions_of(identity: str, pools: Collection[str]) -> Permissions:
    """The rights of an identity.

    Args:
        pools: All pools that have workers: a server answers their questions.

    Raises:
        UsageError: there is no such identity, or a pool's name is not valid.
    """
    own = pool_of(identity)
    if own is None and identity not in (ADMIN, SERVER, GATEWAY):
        raise UsageError(f"{identity!r} is not an identity", hint="use admin, server, gateway or worker-<pool>")
    for pool in (*pools, *([own] if own is not None else [])):
        if not is_valid_id(pool):
            raise UsageError(f"{pool!r} is not a valid pool name", hint="use 1 to 64 letters, digits, '_' and '-'")
    role = identity if own is None else WORKER
    shown = sorted(pools) if own is None else [own]
    return Permissions(
        publish=_subjects([row.subject for row in TABLE if role in row.publish], own, shown),
        subscribe=_subjects([row.subject for row in TABLE if role in row.subscribe], own, shown),
        answers=role == WORKER,
    )


def nats_users(public_keys: Mapping[str, str]) -> str:
    """The ``users`` of a nats-server's ``authorization`` block: those of the identities in ``public_keys``.

    Args:
        public_keys: The public nkey (``U…``) of each identity.

    Raises:
        UsageError: an identity is unknown, or two have the same key.
    """
    if len(set(public_keys.values())) < len(public_keys):
        raise UsageError("two identities have the same nkey", hint="make one for each: they are told apart by it")
    pools = [pool for pool in map(pool_of, public_keys) if pool is not None]
    users = [_user(identity, key, permissions_of(identity, pools)) for identity, key in public_keys.items()]
    return "users: [\n" + "".join(users) + "]\n"


def _subjects(patterns: Collection[str], own: str | None, pools: Collection[str]) -> tuple[str, ...]:
    found: list[str] = []
    for pattern in patterns:
        if own is None and _POOL in pattern.split("."):
            found.append(pattern.replace(_POOL, "*"))
        elif _POOL in pattern:
            found += [pattern.replace(_POOL, pool) for pool in pools]
        else:
            found.append(pattern)
    return tuple(found)


def _user(identity: str, public_key: str, permissions: Permissions) -> str:
    lines = [f"  # {identity}", "  {", f"    nkey: {public_key}", "    permissions: {"]
    lines += _list("publish", permissions.publish)
    lines += _list("subscribe", permissions.subscribe)
    if permissions.answers:
        lines.append(f'      allow_responses: {{ max: 1, expires: "{ANSWER_WITHIN_S}s" }}')
    lines += ["    }", "  }", ""]
    return "\n".join(lines)


def _list(name: str, subjects: Collection[str]) -> list[str]:
    quoted = [f'        "{subject}"' for subject in subjects]
    return [f"      {name}: {{ allow: [", *quoted, "      ] }"]
