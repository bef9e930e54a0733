"""The folder of ``noetl-stream nats accounts``: a seed for each identity, and the names of the streams of triggers.

It remembers pools and streams, so that naming one more drops no other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from nkeys import NkeysError

from noetl_stream.errors import UsageError
from noetl_stream.local.home import read_private, write_private
from noetl_stream.local.secrets import new_seed, public_nkey
from noetl_stream.model.ids import is_valid_id
from noetl_stream.protocol.nats_accounts import nats_accounts
from noetl_stream.protocol.nats_permissions import (
    ADMIN,
    GATEWAY,
    PUBLISHER,
    SERVER,
    WORKER,
    stream_rights,
    worker_identity,
)

SUFFIX: Final = ".nk"
STREAMS_FILE: Final = "trigger-streams"
"""The file with the streams that triggers read, one name per line."""

DEFAULT_POOL: Final = "default"


class Changed(NamedTuple):
    """The kept, added and removed pools or streams of a call."""

    kept: Sequence[str]
    added: Sequence[str]
    removed: Sequence[str]

    @property
    def present(self) -> Sequence[str]:
        return (*self.kept, *self.added)

    def __str__(self) -> str:
        parts = (f"{what} {', '.join(names)}" for what, names in self._asdict().items() if names)
        return "; ".join(parts) or "none"


class Accounts(NamedTuple):
    """The ``accounts`` block of a nats-server's configuration, and the changes."""

    text: str
    pools: Changed
    streams: Changed


def write_seeds(
    folder: Path,
    pools: Collection[str],
    streams: Collection[str],
    *,
    without_pools: Collection[str] = (),
    without_streams: Collection[str] = (),
) -> Accounts:
    """Creates missing seeds, and returns the accounts of all identities in the folder.

    Args:
        pools, streams: Names to add, if they are missing. A folder without any pool gets ``default``.
        without_pools, without_streams: Names to remove. The seed of a removed pool is deleted.

    Raises:
        UsageError: a name is invalid or missing for its removal, a file is not a seed, or the folder cannot be written.
    """
    known = _pools_in(folder)
    found = _changed("pool", known, pools or (() if known else (DEFAULT_POOL,)), without_pools)
    read = _changed("trigger stream", _streams_in(folder, streams), streams, without_streams)
    stream_rights(read.present)  # an invalid name is refused before a seed is made
    publishers = (PUBLISHER,) if read.present else ()
    identities = (ADMIN, SERVER, GATEWAY, *publishers, *map(worker_identity, found.present))
    keys = {identity: _public_key(folder / f"{identity}{SUFFIX}") for identity in identities}
    text = nats_accounts(keys, read.present)
    if read.added or read.removed:
        _write(folder / STREAMS_FILE, "".join(f"{name}\n" for name in read.present))
    for pool in found.removed:
        file = folder / f"{worker_identity(pool)}{SUFFIX}"
        with _writing(file):
            file.unlink()
    return Accounts(text, found, read)


def _changed(noun: str, known: Sequence[str], named: Collection[str], without: Collection[str]) -> Changed:
    for name in without:
        if name in named:
            raise UsageError(f"{noun} {name} is to be added and removed", hint="name it once")
        if name not in known:
            raise UsageError(f"there is no {noun} {name}", hint=f"there are: {', '.join(known) or 'none'}")
    kept = [name for name in known if name not in without]
    return Changed(kept, [name for name in dict.fromkeys(named) if name not in known], list(dict.fromkeys(without)))


def _pools_in(folder: Path) -> list[str]:
    prefix = f"{WORKER}-"
    names = (file.name[len(prefix) : -len(SUFFIX)] for file in folder.glob(f"{prefix}*{SUFFIX}"))
    return sorted(filter(is_valid_id, names))


def _streams_in(folder: Path, named: Collection[str]) -> list[str]:
    try:
        return (folder / STREAMS_FILE).read_text(encoding="utf-8").split()
    except FileNotFoundError:
        pass
    if (folder / f"{PUBLISHER}{SUFFIX}").exists() and not named:  # written by 0.3, which did not remember the streams
        hint = "name all of them once with --trigger-stream; if there are none any more, remove publisher.nk"
        message = f"{folder} has the seed of a publisher, and does not say which streams triggers read"
        raise UsageError(message, hint=hint)
    return []


def _public_key(file: Path) -> str:
    if not file.exists():
        _write(file, new_seed() + "\n")
    try:
        return public_nkey(read_private(file).strip())
    except (ValueError, NkeysError):
        raise UsageError(f"{file} holds no seed of a NATS user", hint="remove it to make another") from None


def _write(file: Path, text: str) -> None:
    with _writing(file):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(file, text)


@contextmanager
def _writing(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}", hint="use --seeds") from None
