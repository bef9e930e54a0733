"""The value of a credential: text (a DSN, a token), or a mapping (LANGUAGE §11)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urlsplit

from noetl_stream.errors import PayloadRefused
from noetl_stream.model import codec

CredentialValue: TypeAlias = str | dict[str, Any]

SHORTEST_SECRET: Final = 4
"""Shorter ones cannot be told from ordinary text, so they cannot be taken out of it: they are refused."""

OPEN_KEYS: Final = frozenset(
    {
        *("host", "hostname", "port", "database", "dbname", "db", "schema", "sslmode", "region", "type", "kind"),
        *("user", "username", "client_id", "token_type", "token_url", "scope", "scopes", "audience", "expires_at"),
    }
)
"""What a credential says under these keys is an address or a name: results may show it, as a database's rows may."""


def credential_value(text: str, what: str) -> CredentialValue:
    """What ``text`` stands for: a JSON object where it begins like one, else itself, without the last line's end.

    Raises:
        PayloadRefused: it begins like a JSON object and is none, is empty, or holds a secret that is too short. The
            message names ``what``.
    """
    text = text.removesuffix("\n").removesuffix("\r")
    if not text.strip():
        raise PayloadRefused(f"{what} is empty")
    value: CredentialValue = text
    if text.lstrip().startswith("{"):
        try:
            value = dict(codec.decode_json(text.encode()))
        except (PayloadRefused, UnicodeEncodeError):
            raise PayloadRefused(f"{what} begins like a JSON object and is none") from None
    check_secrets(value, what)
    return value


def check_secrets(value: Any, what: str) -> None:
    """Raises :class:`~noetl_stream.errors.PayloadRefused` if a secret in ``value`` is too short; it names ``what``."""
    if any(len(secret) < SHORTEST_SECRET for secret in secrets_of(value)):
        wrong = f"{what} holds a secret of fewer than {SHORTEST_SECRET} characters"
        hint = "names and addresses belong under keys such as `username`, `host`, `port`"
        raise PayloadRefused(f"{wrong}, which cannot be kept out of logs and results; {hint}")


def secrets_of(value: Any) -> Iterator[str]:
    """Every secret text in a credential: its members but those under :data:`OPEN_KEYS`, and a DSN's password."""
    if isinstance(value, Mapping):
        for key, member in value.items():
            if str(key).lower() not in OPEN_KEYS:
                yield from secrets_of(member)
    elif isinstance(value, list):
        for member in value:
            yield from secrets_of(member)
    elif value is not None and not isinstance(value, bool):
        text = str(value)
        yield text
        yield from _password_in(text)


def _password_in(text: str) -> Iterator[str]:
    if "://" not in text:
        return
    try:
        password = urlsplit(text).password
    except ValueError:
        return
    if password:
        yield password
        yield unquote(password)
