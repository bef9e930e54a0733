"""The secrets of a home: the servers' passwords and the credential key, created once, readable by the owner only."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path

from noetl_stream.errors import LocalStackError, UsageError
from noetl_stream.local.home import Home, write_private
from noetl_stream.sealing.keys import new_key, read_key

PASSWORD_BYTES = 24
SALT_BYTES = 16

SCRAM_ITERATIONS = 64
"""Few iterations are enough for passwords of 192 random bits, and every connection pays for them."""


@dataclass(frozen=True, slots=True)
class Passwords:
    """Passwords as hexadecimal text, which needs no quoting in URLs, SQL and configuration files."""

    nats: str = field(repr=False)
    noetl: str = field(repr=False)
    playbooks: str = field(repr=False)


def load_or_create_passwords(home: Home, postgres_data: Path) -> Passwords:
    """Reads the passwords of ``home``, or creates them if there is no Postgres data yet.

    Raises:
        LocalStackError: Postgres has data, but its passwords are missing or unreadable.
    """
    try:
        text = home.passwords.read_text(encoding="utf-8")
    except FileNotFoundError:
        if postgres_data.exists():
            raise _lost(home, "is missing") from None
        created = Passwords(*(secrets.token_hex(PASSWORD_BYTES) for _ in range(3)))
        write_private(home.passwords, json.dumps(asdict(created), indent=2) + "\n")
        return created
    try:
        return Passwords(**json.loads(text))
    except (ValueError, TypeError):
        raise _lost(home, "is damaged") from None


def _lost(home: Home, what: str) -> LocalStackError:
    return LocalStackError(
        f"{home.passwords} {what}: without it the data under {home.postgres} cannot be opened",
        hint=f"restore the file, or remove {home.root} to start over",
    )


def scram_verifier(password: str) -> str:
    """What Postgres stores for ``password`` (RFC 5803), so that statements and logs never contain the password."""
    salt = secrets.token_bytes(SALT_BYTES)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, SCRAM_ITERATIONS)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    encoded = [base64.b64encode(part).decode() for part in (salt, stored, server)]
    return f"SCRAM-SHA-256${SCRAM_ITERATIONS}:{encoded[0]}${encoded[1]}:{encoded[2]}"


@dataclass(frozen=True, slots=True)
class Keys:
    """The engine's keys, as text. ``credential`` encrypts stored credentials, ``server`` makes the capabilities of
    commands, ``access`` signs requests and seals objects.
    """

    credential: str = field(repr=False)
    server: str = field(repr=False)
    access: str = field(repr=False)


def load_or_create_keys(home: Home) -> Keys:
    """Reads the keys of ``home`` and creates missing ones. The caller must hold the home's start lock.

    Raises:
        LocalStackError: A file exists but does not hold a key.
    """
    return Keys(
        credential=_load_or_create_key(home.credential_key, "set the stored credentials again"),
        server=_load_or_create_key(home.server_key, "cancel the executions that wait for a command"),
        access=_load_or_create_key(home.access_key, "run the executions whose results it sealed again"),
    )


def _load_or_create_key(path: Path, without: str) -> str:
    """The key in the file. ``without`` says what users must do who have lost it."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        text = new_key()
        write_private(path, text + "\n")
        return text
    try:
        read_key(text, str(path))
    except UsageError as error:
        raise LocalStackError(error.message, hint=f"restore the file, or remove it and {without}") from None
    return text
