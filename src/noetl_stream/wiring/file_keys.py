"""The keys of backups and archives: those of the settings, and those of a home."""

from __future__ import annotations

import contextlib
import getpass
import os
import platform

from msgspec.structs import replace

from noetl_stream.local.home import Home, read_private
from noetl_stream.sealing.file_keys import FileKeys, public_key_of
from noetl_stream.settings.sources.environment import Settings


def backup_keys(settings: Settings) -> FileKeys:
    """Returns the keys of backups, including that of the embedded stack's home if it has one."""
    return with_own_key(settings.backup_keys, _kept_key(settings, "backup_key"))


def archive_keys(settings: Settings) -> FileKeys:
    """Returns the keys of archives, like :func:`backup_keys`."""
    return with_own_key(settings.archive_keys, _kept_key(settings, "archive_key"))


def with_own_key(keys: FileKeys, own: str) -> FileKeys:
    """Adds a home's own signing key, which is trusted, and used if there is no other."""
    if not own or keys.signing_key == own:
        return keys
    if not keys.signing_key:
        return replace(keys, signing_key=own)
    return replace(keys, trusted_keys=(*keys.trusted_keys, public_key_of(own)))


def maker() -> str:
    """Returns the maker of backups and archives here, as ``user@host``; for a user without a name, by number."""
    user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    with contextlib.suppress(KeyError, OSError):
        user = getpass.getuser()
    return f"{user}@{platform.node()}"


def _kept_key(settings: Settings, name: str) -> str:
    if settings.nats_url is not None or settings.home_folder is None:
        return ""
    try:
        return read_private(getattr(Home(settings.home_folder), name)).strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
