"""The address of a database, from a credential: a DSN or a mapping.

Parsed here and not by the driver, which would also look for passwords, keys and hosts in files and variables of the
worker, and send them to the host that the credential names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from noetl_stream.tools.inputs import Auth, bad_credential, text_entry

DEFAULT_PORT: Final = 5432
MAX_HOSTS: Final = 16
SSL_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
FILES: Final = ("sslrootcert", "sslcert", "sslkey")
"""The TLS files of the worker in a DSN, which only a credential of its operator may name."""

_SCHEMES: Final = ("postgresql", "postgres")
_KEYS: Final = ("host", "user", "password", "database", "sslmode")
_REFUSED: Final = frozenset(
    {"hostaddr", "passfile", "service", "servicefile", "sslcrl", "sslpassword", "krbsrvname", "gsslib"}
)
SHAPES: Final = "must be a DSN, {dsn}, or {host, port, user, password, database, sslmode}"


class Host(NamedTuple):
    """A host and its port. A name that begins with ``/`` is the folder of a Unix socket."""

    name: str
    port: int


class PostgresAddress(NamedTuple):
    """The hosts, database and login of a Postgres.

    Attributes:
        sslmode: The TLS mode, as in libpq.
        target: The wanted kind of server among several, as ``target_session_attrs`` in libpq.
        files: TLS files of the worker, by their name in a DSN.
        settings: Settings of the session.
    """

    hosts: tuple[Host, ...]
    user: str
    password: str
    database: str
    sslmode: str
    target: str
    files: tuple[tuple[str, str], ...]
    settings: tuple[tuple[str, str], ...]


def address_of(auth: Auth, credential: str | dict[str, Any], *, is_operators: bool) -> PostgresAddress:
    """Reads the address in a credential.

    Args:
        is_operators: Whether the credential is the operator's own, which may name files.

    Raises:
        ToolFailure: ``credential`` if the credential is not for a Postgres database.
    """
    if isinstance(credential, str):
        credential = {"dsn": credential}
    try:
        found = _of_dsn(auth, credential) if "dsn" in credential else _of_mapping(auth, credential)
        return _address(found, is_operators=is_operators)
    except _Unusable as reason:
        raise bad_credential(auth, str(reason)) from None
    except ValueError:
        raise bad_credential(auth, f"is not a valid database address; {SHAPES}") from None


class _Unusable(Exception):
    """The reason why a credential cannot be used, without its value."""


def _of_dsn(auth: Auth, credential: Mapping[str, Any]) -> dict[str, str]:
    dsn = text_entry(auth, dict(credential), "dsn")
    if len(credential) > 1 or not dsn or not dsn.startswith(tuple(f"{scheme}://" for scheme in _SCHEMES)):
        raise _Unusable("dsn must start with postgresql:// and be the only key")
    parts = urlsplit(dsn)
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    found = {"host": hosts, "user": unquote(user), "password": unquote(password), "database": unquote(parts.path[1:])}
    found = {name: value for name, value in found.items() if value}
    for name, value in parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)):
        found.setdefault("database" if name == "dbname" else name, value)
    return found


def _of_mapping(auth: Auth, credential: Mapping[str, Any]) -> dict[str, str]:
    if set(credential) - {*_KEYS, "port"} or not credential.get("host"):
        raise _Unusable(f"cannot be used by postgres; {SHAPES}")
    found = {key: text_entry(auth, dict(credential), key) or "" for key in _KEYS if credential.get(key) is not None}
    port = str(credential.get("port", DEFAULT_PORT))
    if not _is_port(port):
        raise _Unusable("port must be a number from 1 to 65535")
    return {**found, "port": port}


def _address(found: dict[str, str], *, is_operators: bool) -> PostgresAddress:
    if refused := sorted(_REFUSED & set(found)):
        raise _Unusable(f"{refused[0]} cannot be used here; give host, user and password themselves")
    files = tuple((name, found.pop(name)) for name in FILES if name in found)
    if files and not is_operators:
        raise _Unusable(f"{files[0][0]} names a file of the worker; only the operator can, in NOETL_CREDENTIAL_<NAME>")
    hosts = _hosts(found.pop("host", ""), found.pop("port", ""))
    user, sslmode = found.pop("user", ""), found.pop("sslmode", "prefer")
    if not hosts or not user:
        raise _Unusable(f"names no {'user' if hosts else 'host'}; {SHAPES}")
    if sslmode not in SSL_MODES:
        raise _Unusable(f"sslmode must be one of {', '.join(SSL_MODES)}")
    return PostgresAddress(
        hosts=hosts,
        user=user,
        password=found.pop("password", ""),
        database=found.pop("database", "") or user,
        sslmode=sslmode,
        target=found.pop("target_session_attrs", "any"),
        files=files,
        settings=tuple(sorted(found.items())),  # the remaining parameters
    )


def _hosts(text: str, port_text: str) -> tuple[Host, ...]:
    """Parses the hosts of ``a,b:5433,[::1]``; ``port_text`` has one port for all, or one for each."""
    ports = port_text.split(",") if port_text else []
    names = text.split(",") if text else []
    if len(names) > MAX_HOSTS or len(ports) not in (0, 1, len(names)):
        raise ValueError
    return tuple(_host(name, ports[min(number, len(ports) - 1)] if ports else "") for number, name in enumerate(names))


def _host(text: str, port: str) -> Host:
    name, own_port = unquote(text), ""
    if name.startswith("["):
        name, _, rest = name[1:].partition("]")
        own_port = rest.removeprefix(":")
    elif not name.startswith("/"):
        name, _, own_port = name.partition(":")
    port = own_port or port or str(DEFAULT_PORT)
    if not name or not _is_port(port):
        raise ValueError
    return Host(name, int(port))


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 5 and 0 < int(text) <= 65_535
