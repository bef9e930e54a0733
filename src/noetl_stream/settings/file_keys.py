"""The keys of backups and archives; part of :mod:`noetl_stream.settings.sources.environment`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from noetl_stream.sealing.age import read_identity, read_recipient
from noetl_stream.sealing.file_keys import FileKeys, read_public_key
from noetl_stream.sealing.keys import read_key
from noetl_stream.settings.sources.variables import words_of

BACKUP_KEYS_VARIABLE: Final = "NOETL_BACKUP_<NAME>"
ARCHIVE_KEYS_VARIABLE: Final = "NOETL_ARCHIVE_<NAME>"
BACKUP_SIGNING_VARIABLE: Final = "NOETL_BACKUP_SIGNING_KEY"
ARCHIVE_SIGNING_VARIABLE: Final = "NOETL_ARCHIVE_SIGNING_KEY"
FILE_KEY_NAMES: Final = ("SIGNING_KEY", "TRUSTED_KEYS", "RECIPIENTS", "IDENTITY")
"""The endings of the variables of :class:`~noetl_stream.sealing.file_keys.FileKeys`."""

SECRET_VARIABLES: Final = (
    *(BACKUP_SIGNING_VARIABLE, ARCHIVE_SIGNING_VARIABLE),
    *("NOETL_BACKUP_IDENTITY", "NOETL_ARCHIVE_IDENTITY"),
)


def read_file_keys(variable: str, given: Mapping[str, str]) -> FileKeys:
    """Reads the keys of backups, or of archives.

    Raises:
        UsageError: one is invalid. The message names its variable and shows no private key.
    """
    prefix = variable.removesuffix("<NAME>")
    signing, identity = (given.get(prefix + name, "") for name in ("SIGNING_KEY", "IDENTITY"))
    trusted, recipients = (words_of(prefix + name, given) for name in ("TRUSTED_KEYS", "RECIPIENTS"))
    if signing:
        read_key(signing, f"{prefix}SIGNING_KEY")
    found = FileKeys(signing.strip(), trusted, recipients, _identities(identity))
    for key in found.trusted_keys:
        read_public_key(key, f"{prefix}TRUSTED_KEYS")
    for key in found.recipients:
        read_recipient(key, f"{prefix}RECIPIENTS")
    for key in found.identities:
        read_identity(key, f"{prefix}IDENTITY")
    return found


def _identities(text: str) -> tuple[str, ...]:
    """Parses the keys in a file written by ``age-keygen``, with its comments."""
    lines = (line.strip() for line in text.splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))
