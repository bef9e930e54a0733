"""The secrets in variables: credentials of playbooks, keys, and the seed of a process's NATS user."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from noetl_stream.errors import UsageError
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
            raise UsageError(
                f"{variable} sets credential {name!r} again", hint="remove one: names are not case-sensitive"
            )
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
