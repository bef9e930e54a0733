"""The secrets of a home: passwords of Postgres users, seeds of NATS users, keys. Created once, for the owner only."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from noetl_stream.errors import LocalStackError, UsageError
from noetl_stream.local.home import Home, read_private, write_private
from noetl_stream.protocol.nats_permissions import ADMIN, GATEWAY, PUBLISHER, SERVER, worker_identity
from noetl_stream.sealing.keys import Unprinted, new_key, read_key
from noetl_stream.settings.sources.environment import DEFAULT_POOL

PASSWORD_BYTES = 24
SALT_BYTES = 16

SCRAM_ITERATIONS = 64
"""The number of SCRAM iterations: few are enough for passwords of 192 random bits, and connections pay for them."""

OWNER: Final = "noetl"
"""The user that owns the engine's database, which has the same name."""

PLAYBOOKS: Final = "playbooks"
"""The user that owns the playbooks' database, which has the same name (``auth: local_postgres``, LANGUAGE §11)."""

ROLE_USERS: Final = ("noetl_server", "noetl_gateway", "noetl_reader")
"""The users named after the engine's roles, which homes of older versions lack."""

POSTGRES_USERS: Final = (OWNER, PLAYBOOKS, *ROLE_USERS)


class Passwords(Unprinted, frozen=True):
    """The passwords of Postgres users, as hexadecimal text, which URLs, SQL and configuration files need not quote.

    Attributes:
        of: The password by user of Postgres.
        stored: Whether the file has them all. If not, users without one must be created first.
    """

    of: Mapping[str, str]
    stored: bool


class Keys(Unprinted, frozen=True):
    """The engine's keys, as text. ``credential`` encrypts stored credentials, ``server`` makes the capabilities of
    commands, ``access`` signs requests and seals objects, ``backup`` and ``archive`` sign backups and archives.
    """

    credential: str
    server: str
    access: str
    backup: str
    archive: str


class Secrets(Unprinted, frozen=True):
    """All secrets of a home. ``seeds`` are those of the NATS users, by identity."""

    passwords: Passwords
    seeds: Mapping[str, str]
    keys: Keys


def load_or_create_secrets(
    home: Home, postgres_data: Path, pool: str = DEFAULT_POOL, *, publishes: bool = False
) -> Secrets:
    """Reads the secrets of ``home`` and creates missing ones. The caller must hold the home's start lock.

    Args:
        pool: A pool whose workers need a NATS user.
        publishes: Whether a publisher to triggers' streams needs one.

    Raises:
        LocalStackError: A file is damaged, or open to others; or Postgres has data, but its passwords are missing.
    """
    publishers = (PUBLISHER,) if publishes else ()
    workers = (worker_identity(DEFAULT_POOL), worker_identity(pool))
    return Secrets(
        _load_or_create_passwords(home, postgres_data),
        _load_or_create_seeds(home, (ADMIN, SERVER, GATEWAY, *workers, *publishers)),
        Keys(
            credential=_load_or_create_key(home.credential_key, "set the stored credentials again"),
            server=_load_or_create_key(home.server_key, "cancel the executions that wait for a command"),
            access=_load_or_create_key(home.access_key, "run the executions whose results it sealed again"),
            backup=_load_or_create_key(home.backup_key, "restore older backups with --unsigned"),
            archive=_load_or_create_key(home.archive_key, "read older archives with --unsigned"),
        ),
    )


def save_passwords(home: Home, passwords: Passwords) -> None:
    """Stores passwords whose users exist."""
    write_private(home.passwords, json.dumps(dict(passwords.of), indent=2) + "\n")


def _load_or_create_passwords(home: Home, postgres_data: Path) -> Passwords:
    try:
        found = _read_texts(home.passwords, f"the data under {home.postgres} cannot be opened")
    except FileNotFoundError:
        if postgres_data.exists():
            raise _lost_file_error(
                home.passwords, "is missing", f"the data under {home.postgres} cannot be opened"
            ) from None
        created = Passwords({user: secrets.token_hex(PASSWORD_BYTES) for user in POSTGRES_USERS}, stored=True)
        save_passwords(home, created)
        return created
    if not {OWNER, PLAYBOOKS} <= found.keys():
        raise _lost_file_error(home.passwords, "is damaged", f"the data under {home.postgres} cannot be opened")
    passwords = {user: found.get(user) or secrets.token_hex(PASSWORD_BYTES) for user in POSTGRES_USERS}
    return Passwords(passwords, stored=found == passwords)


def _load_or_create_seeds(home: Home, identities: tuple[str, ...]) -> Mapping[str, str]:
    try:
        found = _read_texts(home.nkeys, "running processes lose their NATS users")
    except FileNotFoundError:
        found = {}
    missing = dict.fromkeys(identity for identity in identities if identity not in found)
    if missing:
        found |= {identity: new_seed() for identity in missing}
        write_private(home.nkeys, json.dumps(found, indent=2) + "\n")
    return found


def new_seed() -> str:
    """Makes the seed of a new NATS user, ``SU…``."""
    import nkeys

    return bytes(nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)).decode()


def public_nkey(seed: str) -> str:
    """Returns the public key of a NATS user, ``U…``."""
    import nkeys

    return bytes(nkeys.from_seed(bytearray(seed.encode())).public_key).decode()


def _read_texts(path: Path, without: str) -> dict[str, str]:
    """Reads the JSON object of texts in a file. ``without`` describes the consequence of losing it."""
    try:
        found = json.loads(read_private(path))
    except ValueError:
        raise _lost_file_error(path, "is damaged", without) from None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise _lost_file_error(path, "is damaged", without)
    return found


def _lost_file_error(path: Path, what: str, without: str) -> LocalStackError:
    hint = f"restore the file, or remove {path.parent} to start over"
    return LocalStackError(f"{path} {what}: without it {without}", hint=hint)


def _load_or_create_key(path: Path, without: str) -> str:
    """Reads the key in a file, or makes one. ``without`` tells users what to do after losing it."""
    try:
        text = read_private(path).strip()
    except FileNotFoundError:
        text = new_key()
        write_private(path, text + "\n")
        return text
    try:
        read_key(text, str(path))
    except UsageError as error:
        raise LocalStackError(error.message, hint=f"restore the file, or remove it and {without}") from None
    return text


def scram_verifier(password: str) -> str:
    """Returns the verifier of ``password`` in Postgres (RFC 5803), so that no statement or log contains it."""
    salt = secrets.token_bytes(SALT_BYTES)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, SCRAM_ITERATIONS)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    encoded = [base64.b64encode(part).decode() for part in (salt, stored, server)]
    return f"SCRAM-SHA-256${SCRAM_ITERATIONS}:{encoded[0]}${encoded[1]}:{encoded[2]}"
