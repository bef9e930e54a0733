"""The accounts of a nats-server: each identity has exactly what :mod:`.permissions` gives it.

Permissions of users are not enough: NATS sends an answer to whatever subject a request names. In one account for all, a
worker could purge a stream by acknowledging a command with the reply subject ``$JS.API.STREAM.PURGE.EVENTS``. Between
accounts an answer goes only to the requester, and a subject exists only if it is exported and imported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec

from noetl_stream.errors import UsageError
from noetl_stream.protocol.nats_permissions import (
    ADMIN,
    CORE,
    GATEWAY,
    POOL,
    PUBLISHER,
    SERVER,
    TABLE,
    WORKER,
    SubjectRights,
    named_by_server,
    named_in,
    permissions_of,
    pool_of,
    role_of,
    stream_rights,
)

CORE_ACCOUNT: Final = "noetl"
"""The account of servers, with JetStream. Without accounts, NATS keeps its streams under :data:`UNNAMED_ACCOUNT`."""

UNNAMED_ACCOUNT: Final = "$G"

_ANSWERS_WAIT: Final = "2m"

PUBLISHER_LIMITS: Final = "{ max_store: 512MB, max_mem: 64MB, max_streams: 64, max_consumers: 1024 }"
"""The parts of JetStream's disk and memory for a publisher's streams, which share them with the engine's."""


class _Share(msgspec.Struct, frozen=True, gc=False):
    """A subject that one account exports and another imports. ``service``: messages go to the exporting account."""

    exporter: str
    importer: str
    subject: str
    local: str
    service: bool
    streamed: bool


def account_of(identity: str) -> str:
    """The account of an identity."""
    return CORE_ACCOUNT if role_of(identity) in CORE else f"{CORE_ACCOUNT}-{identity}"


def nats_accounts(public_keys: Mapping[str, str], streams: Collection[str] = ()) -> str:
    """The ``accounts`` block of a nats-server's configuration.

    Args:
        public_keys: The public nkey (``U…``) of each identity.
        streams: The streams that triggers read, in the account of the publisher.

    Raises:
        UsageError: an identity is missing or unknown, or two have the same key.
    """
    needed = (ADMIN, SERVER, GATEWAY, *([PUBLISHER] if streams else ()))
    missing = [identity for identity in needed if identity not in public_keys]
    if missing:
        raise UsageError(f"no nkey for {' and '.join(missing)}", hint="each identity needs one")
    if len(set(public_keys.values())) < len(public_keys):
        raise UsageError("two identities have the same nkey", hint="make one for each: they are told apart by it")
    identities = sorted(public_keys, key=lambda identity: (role_of(identity) not in CORE, identity))
    shares = [*_shares(identities)]
    for row in stream_rights(streams):
        local, exporter = named_by_server(row.subject), account_of(PUBLISHER)
        shares.append(_Share(exporter, CORE_ACCOUNT, row.subject, local, service=True, streamed=row.streamed))
    lines = ["accounts {"]
    for account in dict.fromkeys(account_of(identity) for identity in identities):
        lines += [f'  "{account}" {{']
        limits = {CORE_ACCOUNT: "enabled", account_of(PUBLISHER): PUBLISHER_LIMITS}.get(account)
        lines += [f"    jetstream: {limits}"] if limits else []
        users = [_user(one, public_keys[one], streams) for one in identities if account_of(one) == account]
        lines += _block("users", users)
        lines += _block("exports", list(dict.fromkeys(_export(share) for share in shares if share.exporter == account)))
        lines += _block("imports", [_import(share) for share in shares if share.importer == account])
        lines += ["  }"]
    return "\n".join([*lines, "}", ""])


def _shares(identities: Collection[str]) -> Iterator[_Share]:
    pools = [pool_of(identity) for identity in identities if role_of(identity) == WORKER]
    for row in TABLE:
        between = not set(row.publish) & set(CORE) and set(row.subscribe) == {WORKER}
        if between:
            for pool in pools:
                yield _service(row, f"{CORE_ACCOUNT}-{WORKER}-{pool}", GATEWAY, pool)
            continue
        for identity in identities:
            role, pool = role_of(identity), pool_of(identity)
            if role in CORE:
                continue
            if role in row.publish:
                yield _service(row, CORE_ACCOUNT, identity, pool)
            elif role in row.subscribe:
                subject = row.subject.replace(POOL, pool)
                yield _Share(CORE_ACCOUNT, account_of(identity), subject, subject, service=False, streamed=False)


def _service(row: SubjectRights, exporter: str, importer: str, pool: str) -> _Share:
    subject = row.subject.replace(POOL, pool)
    local = named_in(importer, subject)
    return _Share(exporter, account_of(importer), subject, local, service=True, streamed=row.streamed)


def _user(identity: str, public_key: str, streams: Collection[str]) -> str:
    rights = permissions_of(identity, streams)
    lists = [f"        {name}: {{ allow: [ {', '.join(map(_quoted, those))} ] }}" for name, those in rights.lists()]
    return "\n".join(
        [f"{{ # {identity}", f"      nkey: {public_key}", "      permissions: {", *lists, "      }", "    }"]
    )


def _export(share: _Share) -> str:
    kind = "service" if share.service else "stream"
    answers = f', response: stream, threshold: "{_ANSWERS_WAIT}"' if share.streamed else ""
    return f"{{ {kind}: {_quoted(share.subject)}{answers} }}"


def _import(share: _Share) -> str:
    kind = "service" if share.service else "stream"
    local = f", to: {_quoted(share.local)}" if share.local != share.subject else ""
    return f"{{ {kind}: {{ account: {_quoted(share.exporter)}, subject: {_quoted(share.subject)} }}{local} }}"


def _block(name: str, entries: Collection[str]) -> list[str]:
    return [f"    {name}: [", *(f"    {entry}" for entry in entries), "    ]"] if entries else []


def _quoted(text: str) -> str:
    return f'"{text}"'
