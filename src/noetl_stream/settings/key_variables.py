"""The secrets in variables: credentials of playbooks, the keys of commands, requests, backups and archives, and the
seed of the NATS user of a process.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from noetl_stream.errors import UsageError
from noetl_stream.sealing.age import read_identity, read_recipient
from noetl_stream.sealing.file_keys import FileKeys, read_public_key
from noetl_stream.sealing.keys import read_key
from noetl_stream.settings.sources.variables import Given, words_of

CREDENTIAL_PREFIX = "NOETL_CREDENTIAL_"
CREDENTIAL_VARIABLE = "NOETL_CREDENTIAL_<NAME>"
KEY_VARIABLE = "NOETL_CREDENTIAL_KEY"
OLD_KEYS_VARIABLE = "NOETL_CREDENTIAL_OLD_KEYS"
KEY_VARIABLES = (KEY_VARIABLE, OLD_KEYS_VARIABLE)
"""The variables of the credential keys, which look like credentials called `key` and `old_keys`; such credentials can
therefore not be set by variables.
"""

SERVER_KEY_VARIABLE = "NOETL_SERVER_KEY"
ACCESS_KEY_VARIABLE = "NOETL_ACCESS_KEY"
USER_SEED = r"SU[A-Z2-7]{56}"


def read_seed(variable: str, given: Given) -> str | None:
    value = given.get(variable)
    if value is not None and re.fullmatch(USER_SEED, value) is None:
        raise UsageError(f"{variable} is not the seed of a NATS user", hint="it is 58 characters and begins with SU")
    return value


def read_credentials(_variable: str, given: Given) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for variable, value in given.items():
        name = variable.removeprefix(CREDENTIAL_PREFIX).lower()
        if not variable.startswith(CREDENTIAL_PREFIX) or not name or variable in KEY_VARIABLES:
            continue
        if found.get(name, value) != value:
            hint = "remove one: names are not case-sensitive"
            raise UsageError(f"{variable} sets credential {name!r} again", hint=hint)
        found[name] = value
    return MappingProxyType(found)


def read_secret_key(variable: str, given: Given) -> str | None:
    value = given.get(variable)
    if value is not None:
        read_key(value, variable)
    return value


def read_old_keys(variable: str, given: Given) -> tuple[str, ...]:
    values = words_of(variable, given)
    if values and KEY_VARIABLE not in given:
        raise UsageError(f"{variable} is set, but {KEY_VARIABLE} is not", hint="set the current key as well")
    return read_keys(variable, given)


def read_keys(variable: str, given: Given) -> tuple[str, ...]:
    values = words_of(variable, given)
    for value in values:
        read_key(value, variable)
    return values


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
