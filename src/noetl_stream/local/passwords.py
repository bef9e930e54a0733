"""The passwords of the embedded servers: made once for a home, kept in one file only its owner can read."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path

from noetl_stream.errors import LocalStackError
from noetl_stream.local.home import Home, write_private

PASSWORD_BYTES = 24
SALT_BYTES = 16

SCRAM_ITERATIONS = 64
"""Stretching protects weak passwords. These are 192 random bits, and each connection pays for every iteration."""


@dataclass(frozen=True, slots=True)
class Passwords:
    """Hexadecimal text, so that URLs, SQL and configuration files can hold them as they are."""

    nats: str = field(repr=False)
    noetl: str = field(repr=False)
    playbooks: str = field(repr=False)


def load_or_make(home: Home, postgres_data: Path) -> Passwords:
    """Reads the passwords of ``home``, or makes them for a home without Postgres data.

    Raises:
        LocalStackError: Postgres has data but its passwords are gone or unreadable.
    """
    try:
        text = home.passwords.read_text(encoding="utf-8")
    except FileNotFoundError:
        if postgres_data.exists():
            raise _lost(home, "is missing") from None
        made = Passwords(*(secrets.token_hex(PASSWORD_BYTES) for _ in range(3)))
        write_private(home.passwords, json.dumps(asdict(made), indent=2) + "\n")
        return made
    try:
        return Passwords(**json.loads(text))
    except (ValueError, TypeError):
        raise _lost(home, "is damaged") from None


def _lost(home: Home, what: str) -> LocalStackError:
    return LocalStackError(
        f"{home.passwords} {what}, so the data under {home.postgres} cannot be opened",
        hint=f"put the file back, or remove {home.root} to begin with nothing",
    )


def scram_verifier(password: str) -> str:
    """What Postgres stores for ``password`` (RFC 5803), so that no statement and no log ever holds the password."""
    salt = secrets.token_bytes(SALT_BYTES)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, SCRAM_ITERATIONS)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    encoded = [base64.b64encode(part).decode() for part in (salt, stored, server)]
    return f"SCRAM-SHA-256${SCRAM_ITERATIONS}:{encoded[0]}${encoded[1]}:{encoded[2]}"
