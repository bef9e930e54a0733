"""The environment of this process and of its children: the engine's variables that each gets."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from noetl_stream.errors import UsageError
from noetl_stream.settings import key_variables as keys
from noetl_stream.settings.monitoring import HEADERS_VARIABLES, LINEAGE_VARIABLE
from noetl_stream.settings.places import OBJECTS_VARIABLE, read_encryption, read_endpoints
from noetl_stream.settings.retention_periods import LOGS_MAX_AGE_VARIABLE, LOGS_MAX_BYTES_VARIABLE
from noetl_stream.settings.servers import (
    GATEWAY_POSTGRES_VARIABLE,
    PLACEMENT_VARIABLE,
    POSTGRES_VARIABLE,
    READ_VARIABLE,
    REPLICAS_VARIABLE,
    SERVER_POSTGRES_VARIABLE,
)
from noetl_stream.settings.sources.environment import (
    CERTIFICATE_VARIABLE,
    ENGINE_VARIABLES,
    HOME_VARIABLE,
    NATS_FOLDERS,
    NATS_URL_VARIABLE,
    NKEY_VARIABLE,
    PARTITIONS_VARIABLE,
    WORKER_VARIABLES,
    read_home,
)
from noetl_stream.settings.sources.variables import FILE_SUFFIX, SETTINGS_FILE, SETTINGS_VARIABLE, with_files

ARGUMENTS_START: Final = 45
"""The index of ``arg_start`` in ``/proc/self/stat`` after the program's name; ``arg_end`` is next (proc_pid_stat(5)).
"""

ENVIRONMENT_START: Final = 47
"""The index of ``env_start`` in ``/proc/self/stat``; ``env_end`` follows."""

FILLER: Final = ord("*")
"""The byte that overwrites values. Not NUL: a second NUL in a row ends the list for programs that read it."""


def erase_variables(names: Collection[str]) -> None:
    """Overwrites the values of variables. They must be unset before, so that nothing uses that memory any more."""
    import ctypes  # only roles erase variables

    start, size = _region(ENVIRONMENT_START)
    wanted = {name.encode() for name in names}
    at = start
    for entry in ctypes.string_at(start, size).split(b"\0") if size else ():
        name, equals, value = entry.partition(b"=")
        if equals and name in wanted:
            ctypes.memset(at + len(name) + 1, FILLER, len(value))
        at += len(entry) + 1


def show_arguments(words: Sequence[str]) -> None:
    """Overwrites the command line that ``ps`` shows; cuts it off at the length of the old one."""
    import ctypes

    start, size = _region(ARGUMENTS_START)
    if size:
        shown = os.fsencode("\0".join(words))[: size - 1]
        ctypes.memmove(start, shown.ljust(size, b"\0"), size)


def _region(index: int) -> tuple[int, int]:
    """The start and size of the region at ``index`` of ``/proc/self/stat``; 0 if unknown."""
    try:
        numbers = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        start, end = (int(number) for number in numbers[index : index + 2])
    except (OSError, ValueError):
        return 0, 0
    return start, end - start


_OF_SERVERS: Final = frozenset(
    {
        NATS_URL_VARIABLE,
        NKEY_VARIABLE,
        *NATS_FOLDERS,
        POSTGRES_VARIABLE,
        SERVER_POSTGRES_VARIABLE,
        GATEWAY_POSTGRES_VARIABLE,
        READ_VARIABLE,
        SETTINGS_VARIABLE,
    }
)
"""The variables that name the servers to use, and the identity for them."""

_OF_BUCKETS: Final = ("AWS_", "AZURE_", "GOOGLE_")
"""The prefixes of the variables that configure object storage."""

_OF_STREAMS: Final = frozenset(
    {REPLICAS_VARIABLE, PLACEMENT_VARIABLE, LOGS_MAX_BYTES_VARIABLE, LOGS_MAX_AGE_VARIABLE, PARTITIONS_VARIABLE}
)
"""The variables for the creation of streams."""


def settings_to_set_up() -> dict[str, str]:
    """The settings of this environment for servers to set up: their addresses, the keys, and the settings of streams.

    Raises:
        UsageError: it names only this process's identity, or a file of it cannot be read.
    """
    found = with_files({name: value for name, value in os.environ.items() if value}, ENGINE_VARIABLES)
    if NKEY_VARIABLE in found:
        hint = "unset it, and name with --seeds the folder of `noetl-stream nats accounts`, which has one for each"
        raise UsageError(f"{NKEY_VARIABLE} is the seed of one identity: a setup needs all", hint=hint)
    taken = (_OF_SERVERS - {SETTINGS_VARIABLE}) | {
        keys.SERVER_KEY_VARIABLE,
        keys.ACCESS_KEY_VARIABLE,
        *keys.KEY_VARIABLES,
    }
    taken |= _OF_STREAMS | {OBJECTS_VARIABLE, *keys.SECRET_VARIABLES}
    return {name: value for name, value in found.items() if name in taken}


def home_to_set_up(home: Path | None) -> Path:
    """The home to set up: the given one, or that of the environment.

    Raises:
        UsageError: there is no home.
    """
    folder = home.expanduser().absolute() if home is not None else read_home(HOME_VARIABLE, os.environ)
    if folder is None:
        raise UsageError(f"neither {HOME_VARIABLE} nor HOME is set", hint="name a folder with --home")
    return folder


def variable_before_the_home() -> str | None:
    """The variable of this environment that makes commands without ``--home`` ignore the home's file."""
    names = (NATS_URL_VARIABLE, NATS_URL_VARIABLE + FILE_SUFFIX, SETTINGS_VARIABLE)
    return next((name for name in names if os.environ.get(name)), None)


def settings_place(home: Path | None) -> tuple[Path, Path | None] | None:
    """The settings file to read, and its home, if the file exists; ``None``: all settings are in the environment.

    Args:
        home: The requested home: servers that this environment names are forgotten.
    """
    if home is not None:
        for name in [name for name in os.environ if name.removesuffix(FILE_SUFFIX) in _OF_SERVERS]:
            del os.environ[name]
    elif any(os.environ.get(NATS_URL_VARIABLE + suffix) for suffix in ("", FILE_SUFFIX)):
        return None
    elif named := os.environ.get(SETTINGS_VARIABLE):
        if not os.access(named, os.F_OK):
            raise UsageError(f"{SETTINGS_VARIABLE} names {named}, which does not exist", hint="unset it, or write it")
        return Path(named).absolute(), None
    folder = home or read_home(HOME_VARIABLE, os.environ)
    file = None if folder is None else folder / SETTINGS_FILE
    return (file, folder) if file is not None and os.access(file, os.F_OK) else None


def take_settings(found: Mapping[str, str], file: Path, home: Path | None, *, worker: bool) -> None:
    """Sets the variables of a settings file. Existing variables stay, except the engine's, which belong together.

    Args:
        home: The home of the file; ``None``: the environment names the file.
        worker: Whether to leave variables that a worker may not have.
    """
    for name, value in found.items():
        if not _is_for_the_engine(name):
            os.environ[name] = os.environ.get(name) or value
        elif not worker or name in (*WORKER_VARIABLES, *NATS_FOLDERS):
            os.environ.pop(name + FILE_SUFFIX, None)
            os.environ[name] = value
    os.environ[SETTINGS_VARIABLE] = str(file)
    if home is not None:
        os.environ[HOME_VARIABLE] = str(home)


def drop_engine_variables() -> list[str]:
    """Removes variables that only the engine may read from this process's environment, once the settings are read.

    Tasks, their children and other processes of the same user could read it there.

    Returns:
        The removed variables that no worker needs, and that should not have been set for one.
    """
    found = sorted(filter(_is_for_the_engine, os.environ))
    for name in found:
        del os.environ[name]
    erase_variables(found)
    return [name for name in found if name.removesuffix(FILE_SUFFIX) in ENGINE_VARIABLES - WORKER_VARIABLES]


def drop_bucket_variables() -> None:
    """Removes the credentials of object storage from a worker's environment. Only servers and gateways have them."""
    found = [name for name in os.environ if name.startswith(_OF_BUCKETS)] if OBJECTS_VARIABLE in os.environ else []
    for name in found:
        del os.environ[name]
    erase_variables(found)


def _is_for_the_engine(name: str) -> bool:
    is_key = name.removesuffix(FILE_SUFFIX) in ENGINE_VARIABLES or name in (*NATS_FOLDERS, *HEADERS_VARIABLES)
    return is_key or name.startswith(keys.CREDENTIAL_PREFIX)


def holds_engine_variables() -> bool:
    """Whether this process's environment has engine variables, which a child must not get."""
    return any(map(_is_for_the_engine, os.environ))


def inherited_environment() -> dict[str, str]:
    """The part of this environment that a child process gets: all but the engine's variables."""
    return {name: value for name, value in os.environ.items() if not _is_for_the_engine(name)}


def set_environment(told: Mapping[str, str]) -> None:
    """Adds to this process's environment the variables that its parent sends (:func:`identity_environment`)."""
    os.environ.update(told)


def identity_environment(
    *,
    nats_url: str,
    nats_nkey: str | None = None,
    nats_certificate: Path | None = None,
    postgres_dsn: str | None = None,
    credentials: Mapping[str, str] | None = None,
    credential_keys: Sequence[str] = (),
    server_keys: Sequence[str] = (),
    access_keys: Sequence[str] = (),
    archive_signing_key: str = "",
    lineage_url: str = "",
) -> dict[str, str]:
    """The variables that a child process with an identity gets in addition: only these addresses and keys."""
    held = {
        NATS_URL_VARIABLE: nats_url,
        NKEY_VARIABLE: nats_nkey,
        CERTIFICATE_VARIABLE: str(nats_certificate or ""),
        POSTGRES_VARIABLE: postgres_dsn,
        keys.KEY_VARIABLE: next(iter(credential_keys), None),
        keys.OLD_KEYS_VARIABLE: ",".join(credential_keys[1:]),
        keys.SERVER_KEY_VARIABLE: ",".join(server_keys),
        keys.ACCESS_KEY_VARIABLE: ",".join(access_keys),
        keys.ARCHIVE_SIGNING_VARIABLE: archive_signing_key,
        LINEAGE_VARIABLE: lineage_url,
    }
    found = {name: value for name, value in held.items() if value}
    return found | {keys.CREDENTIAL_PREFIX + name.upper(): value for name, value in (credentials or {}).items()}


def callers_traceparent() -> str:
    """The W3C trace in which this command is called, as set by a CI job or a playbook's task."""
    return os.environ.get("TRACEPARENT", "")


def environment_variable(name: str) -> str | None:
    """An environment variable named by a playbook's keychain (``kind: env``, LANGUAGE §11) or by a context."""
    return os.environ.get(name)


def object_endpoints() -> list[str]:
    """The addresses of object storage: see :func:`~noetl_stream.settings.places.read_endpoints`."""
    return read_endpoints(os.environ)


def object_encryption(scheme: str) -> list[str]:
    """The variables for encryption at rest: see :func:`~noetl_stream.settings.places.read_encryption`."""
    return read_encryption(scheme, os.environ)
