"""Credential values: text (a DSN, a token) or a mapping (LANGUAGE §11)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urlsplit

from noetl_stream.errors import PayloadRefused, TooDeep
from noetl_stream.model.json import codec

CredentialValue: TypeAlias = str | dict[str, Any]

CREDENTIAL_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
"""Valid names of stored credentials."""

NOT_A_NAME: Final = (
    "the name of a credential has letters, digits, `_`, `.` and `-` only; what is given is not shown, since it may be "
    "a secret. Write a value as a mapping, such as `auth: {dsn: …}` of postgres, or store it: "
    "`noetl-stream credential set NAME`"
)

SHORTEST_SECRET: Final = 4
"""The shortest secret. Shorter ones cannot be distinguished from ordinary text when redacting: they are rejected."""

OPEN_KEYS: Final = frozenset(
    {
        *("host", "hostname", "port", "database", "dbname", "db", "schema", "sslmode", "region", "type", "kind"),
        *("user", "username", "client_id", "token_type", "token_url", "scope", "scopes", "audience", "expires_at"),
        *("certificate", "ca"),
    }
)
"""Keys of a credential whose values are addresses or names: results may show them, as a database's rows may."""


def credential_value(text: str, what: str) -> CredentialValue:
    """The credential in ``text``: a JSON object if it starts like one, else the text itself without its final newline.

    Raises:
        PayloadRefused: the text starts like a JSON object but is not one, is empty, or holds a secret that is too
            short. The message names ``what``.
    """
    text = text.removesuffix("\n").removesuffix("\r")
    if not text.strip():
        raise PayloadRefused(f"{what} is empty")
    value: CredentialValue = text
    if text.lstrip().startswith("{"):
        try:
            value = dict(codec.decode_value(text.encode()))
        except TooDeep as error:
            raise TooDeep(f"{what} is {error.message}") from None
        except (PayloadRefused, UnicodeEncodeError):
            raise PayloadRefused(f"{what} starts like a JSON object but is not valid JSON") from None
    check_secrets(value, what)
    return value


def check_secrets(value: Any, what: str) -> None:
    """Raises :class:`~noetl_stream.errors.PayloadRefused`, naming ``what``, if a secret in ``value`` is too short."""
    if any(len(secret) < SHORTEST_SECRET for secret in secrets_of(value)):
        wrong = f"{what} holds a secret of fewer than {SHORTEST_SECRET} characters"
        hint = "names and addresses belong under keys such as `username`, `host`, `port`"
        raise PayloadRefused(f"{wrong}, which cannot be redacted from logs and results; {hint}")


def secrets_of(value: Any) -> Iterator[str]:
    """Every secret text in a credential: its members except those under :data:`OPEN_KEYS`, and a DSN's password."""
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
