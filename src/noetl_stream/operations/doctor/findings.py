"""The findings of checks, and their words; and the causes of store failures: each with its words and the command that
mends it, in one table.

The page docs/reference/doctor.md has the same table, and tests provoke each failure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from noetl_stream.errors import NoetlError
from noetl_stream.ports.operations.cluster import Verdict
from noetl_stream.settings.servers import GATEWAY_POSTGRES_VARIABLE

NAMED: Final = 5
"""The most things that a sentence lists."""


class Finding(NamedTuple):
    """The finding of a check; the fields are those of :class:`~noetl_stream.ports.operations.cluster.CheckDocument`."""

    verdict: Verdict
    says: str
    mend: str = ""


def ok(says: str) -> Finding:
    return Finding("ok", says)


def warning(says: str, mend: str) -> Finding:
    return Finding("warning", says, mend)


def wrong(says: str, mend: str) -> Finding:
    return Finding("wrong", says, mend)


def named(names: Iterable[object]) -> str:
    """The first few of them."""
    shown = [str(name) for name in names]
    more = len(shown) - NAMED
    return ", ".join(shown[:NAMED]) + (f" and {more} more" if more > 0 else "")


def counted(things: Collection[object] | int, one: str, most: int | None = None) -> str:
    """``1 stream``, ``3 streams``; from ``most`` on, ``100 streams or more``."""
    number = things if isinstance(things, int) else len(things)
    return f"{number} {one}{'' if number == 1 else 's'}" + (" or more" if number == most else "")


def size(count: int) -> str:
    """Bytes for people: ``3.4 GiB``."""
    amount, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.3g} {unit}"


class Cause(NamedTuple):
    """A cause of failures.

    Attributes:
        symptom: A regular expression that its error messages match.
        says: The fault in words.
        command: The remedy as a command.
        before: The preceding step for a person, if any.
    """

    symptom: str
    says: str
    command: str
    before: str = ""

    @property
    def mend(self) -> str:
        """The remedy, in one line."""
        return f"{self.before}, then: {self.command}" if self.before else self.command


_AGAIN: Final = "noetl-stream doctor"
_SEED: Final = f"NOETL_NATS_NKEY_FILE=nats-seeds/gateway.nk {_AGAIN}"
_START: Final = "nats-server -c nats.conf"
_RELOAD: Final = "nats-server --signal reload"
_DSN: Final = f"{GATEWAY_POSTGRES_VARIABLE}=postgresql://USER:PASSWORD@HOST/DATABASE {_AGAIN}"
_MIGRATE: Final = "noetl-stream database migrate"

CAUSES: Final = (
    Cause("another identity", "the seed is not that of the gateway, as which doctor asks", _SEED),
    Cause("Authorization Violation", "NATS does not know the user or the seed", _SEED),
    Cause("invalid seed", "NOETL_NATS_NKEY is not a seed, which begins with SU", _SEED),
    Cause(
        "NATS .*does not let",
        "the accounts of NATS lack a right that this version needs",
        _RELOAD,
        "write them anew: `noetl-stream nats accounts` with all pools",
    ),
    Cause(
        "NATS .*certificate has expired", "the certificate of NATS has expired", _RELOAD, "put a new one in its place"
    ),
    Cause(
        "NATS .*(self-signed certificate|unable to get local issuer)",
        "the authority that signed the certificate of NATS is not trusted here",
        f"SSL_CERT_FILE=ca.pem {_AGAIN}",
    ),
    Cause(
        "NATS .*(certificate is not valid for|[Hh]ostname mismatch)",
        "the certificate of NATS is for another name",
        f"NOETL_NATS_URL=tls://NAME:4222 {_AGAIN}",
    ),
    Cause(
        "NATS .*offers no TLS", "NATS offers no TLS, which its address asks for", _RELOAD, "give its file a `tls` block"
    ),
    Cause("NATS .*has no JetStream", "nats-server runs without JetStream", _START),
    Cause("NATS .*connection refused", "no nats-server listens there", _START),
    Cause(
        "NATS .*(not known|name resolution)",
        "the host of NATS is not known",
        f"NOETL_NATS_URL=nats://HOST:4222 {_AGAIN}",
    ),
    Cause(
        "NATS .*does not greet",
        "what listens there is no NATS, or one that hangs or has handshake_first",
        f"NOETL_NATS_URL=nats://HOST:4222 {_AGAIN}",
    ),
    Cause(
        "write error: .*no space left",
        "the disk of NATS is full",
        _START,
        "make room on it, and end nats-server, which does not write again by itself",
    ),
    Cause(
        "storing .* took longer than",
        "NATS does not say that it has stored anything: its disk is full, or too slow",
        _START,
        "look at its log and its disk; if that was full, make room, and end nats-server",
    ),
    Cause(
        "cannot reach NATS",
        "NATS does not answer",
        _START,
        "look at the address and the network between, and start it if it has ended",
    ),
    Cause("error (10023|10047)", "NATS has no room left", _RELOAD, "raise max_file_store in its file"),
    Cause("error 10077", "a stream is full", "noetl-stream storage", "raise its max_bytes"),
    Cause("error 10002", "the account of NATS is full", _RELOAD, "raise its max_file in the file of NATS"),
    Cause("Postgres .*(connection refused|no such socket)", "no Postgres listens there", _DSN, "start it"),
    Cause(
        "Postgres .*rejected SSL upgrade",
        "what listens there offers no TLS, or is no Postgres",
        _DSN,
        "turn ssl on in postgresql.conf, or name the port of Postgres",
    ),
    Cause("Postgres .*unknown host name", "the host of Postgres is not known", _DSN),
    Cause(
        "cannot reach Postgres",
        "Postgres does not answer",
        _DSN,
        "look at the network between, and start it if it has ended",
    ),
    Cause("Postgres .*wrong password", "Postgres does not take the password", _DSN),
    Cause(
        "Postgres .*login is not allowed",
        "Postgres does not let this user in",
        "psql -c 'select pg_reload_conf()'",
        "add the user to its pg_hba.conf",
    ),
    Cause(
        "Postgres .*the database does not exist", "the database does not exist", _MIGRATE, "create it: `createdb NAME`"
    ),
    Cause("Postgres .*its disk is full", "the disk of Postgres is full", _AGAIN, "make it larger"),
    Cause("there is no bucket", "the bucket does not exist", _AGAIN, "make it, or correct its name in NOETL_OBJECTS"),
    Cause(
        "access is refused|there are no credentials",
        "the key of the bucket is wrong, missing, or lacks a right",
        _AGAIN,
        "correct the variables of its service, with rights to list, read, write and delete below the prefix",
    ),
    Cause(
        "refuses an address that a server signed",
        "the bucket refuses what servers sign",
        _AGAIN,
        "compare the clocks of the servers and the bucket, and see whether its key was changed",
    ),
    Cause(
        "object storage (does not answer|answers)",
        "the bucket does not answer, or not as it should",
        _AGAIN,
        "look at its state, at the network between, and at its endpoint",
    ),
    Cause(
        "the folder .* of objects is not there",
        "a machine lacks the folder of objects",
        _AGAIN,
        "share it, under the same path, with the machines of all roles",
    ),
    Cause("lacks a privilege", "the user lacks a right that this version needs", f"{_MIGRATE} --roles"),
    Cause("has a newer schema", "a newer release has changed the schema", "pip install --upgrade noetl-stream"),
    Cause("has no schema yet|has an older schema", "migrations are missing", _MIGRATE),
)
"""The causes in order; the first that matches counts."""


def explained(error: NoetlError) -> Finding:
    """Returns the fault of a store that failed, and its remedy."""
    cause = _cause_of(error.message)
    if cause is None:
        return wrong(error.message, error.hint or "")
    return wrong(f"{cause.says}: {error.message}", cause.mend)


def remedy_of(text: str) -> str:
    """Returns the remedy for a process's report about a store; empty if its cause is not in the table."""
    cause = _cause_of(text)
    return cause.mend if cause is not None else ""


def _cause_of(text: str) -> Cause | None:
    return next((cause for cause in CAUSES if re.search(cause.symptom, text)), None)
