"""The transfer of one file's bytes, from a place or a reference to a place or a reference, in bounded memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple

from noetl_stream.sealing.data_references import PARQUET, DataReference
from noetl_stream.tools.contract import ToolCall, ToolFailure
from noetl_stream_files.errors import Conflict, FileNotThere, conflict, failures_of
from noetl_stream_files.listing import tag_text, time_text
from noetl_stream_files.places import Place
from noetl_stream_files.stores import Storage

ABSENT: Final = "absent"
"""The condition that no file exists yet; any other condition is the etag of the replaced file."""
WHOLE_BYTES: Final = 8 << 20
"""Files up to this size are written by one request, which also compares the condition."""
MAX_PARTS: Final = 9_000
"""S3 takes 10,000."""
MAX_PART_BYTES: Final = 64 << 20
SERVER_COPY_BYTES: Final = 5 * 10**9
"""The maximum size of a file that S3 copies by itself."""
_READ_BYTES: Final = 1 << 20
_WRITTEN_BY: Final = "noetlrun"
"""The key of an object's metadata with the task run that wrote it."""


class Target(NamedTuple):
    """A place in its storage."""

    place: Place
    storage: Storage

    @property
    def identity(self) -> str:
        """The identity of the file under all its names."""
        return self.storage.identity(self.place)


class StoredFile(NamedTuple):
    """A file as its storage describes it."""

    size: int
    etag: str
    modified: str
    version: str | None
    attributes: Mapping[str, str]
    raw_etag: str | None

    @property
    def media_type(self) -> str:
        """The media type; empty if the storage keeps none."""
        return self.attributes.get("Content-Type", "")

    @property
    def as_replaced(self) -> dict[str, str]:
        """The condition under which a storage overwrites this version of the file."""
        given = {"e_tag": self.raw_etag, "version": self.version}
        return {name: value for name, value in given.items() if value is not None}

    def shown(self, place: Place) -> dict[str, Any]:
        """The file as a value of the language."""
        about = {"size": self.size, "modified": self.modified, "etag": self.etag}
        return {
            "path": str(place),
            "name": place.path.rpartition("/")[2],
            **about,
            "media_type": self.media_type,
            "version": self.version,
        }


class Body(NamedTuple):
    """The bytes of a file, with its stored properties."""

    pieces: AsyncIterator[bytes]
    size: int
    attributes: Mapping[str, str]


async def stat(target: Target) -> StoredFile:
    """Reads the description of a file.

    Raises:
        FileNotThere: It does not exist.
    """
    with failures_of(target.place):
        return _stored(await target.storage.get(target.storage.path_of(target.place), head=True))


async def stat_or_none(target: Target) -> StoredFile | None:
    """Reads the description of a file that may be missing."""
    try:
        return await stat(target)
    except FileNotThere:
        return None


async def open_body(source: Target) -> tuple[StoredFile, Body]:
    """Opens a file for reading. All bytes are of the version that was found, or reading fails.

    Raises:
        FileNotThere: It does not exist.
    """
    with failures_of(source.place):
        got = await source.storage.get(source.storage.path_of(source.place))
        found = _stored(got)
    return found, Body(_pieces(got, source.place, found.size), found.size, found.attributes)


def body_of(call: ToolCall, reference: DataReference) -> Body:
    """The body of a file or table that the task may read."""
    kind = reference.media_type or ("" if reference.columns is None else PARQUET)
    attributes = {"Content-Type": kind} if kind else {}
    return Body(call.data.read(reference), reference.size, attributes)


async def write(call: ToolCall, target: Target, body: Body, condition: str | None) -> None:
    """Writes a file completely or not at all; does nothing if this task run has already written it.

    Raises:
        Conflict: The condition does not hold.
    """
    try:
        await _write(target, body, condition, run_of(call))
    except Conflict:
        if await own_file(call, target) is None:
            raise


async def own_file(call: ToolCall, target: Target) -> StoredFile | None:
    """The file at a place if an earlier delivery of this task run wrote it."""
    found = await stat_or_none(target)
    return found if found is not None and found.attributes.get(_WRITTEN_BY) == run_of(call) else None


def run_of(call: ToolCall) -> str:
    """The run of a task, the same when it is delivered again."""
    return sha256(call.idempotency_key.encode()).hexdigest()[:32]


async def _write(target: Target, body: Body, condition: str | None, run: str) -> None:
    place, storage = target
    path, mode = storage.path_of(place), await _mode(target, condition)
    attributes = None if storage.is_folder else {**body.attributes, _WRITTEN_BY: run}
    if body.size <= WHOLE_BYTES:
        data = b"".join([piece async for piece in body.pieces])
        with failures_of(place):
            await storage.put(path, data, attributes, mode)
        return
    part = max(WHOLE_BYTES, -(-body.size // MAX_PARTS))
    if part > MAX_PART_BYTES:
        message = f"{place}: a file may have {MAX_PART_BYTES * MAX_PARTS:,} bytes at most"
        raise ToolFailure.of("limit_exceeded", message)
    with failures_of(place):
        try:
            async with storage.writer(path, attributes, mode, part) as writer:
                async for piece in body.pieces:
                    await writer.write(piece)
                await _mode(target, condition)
        except Exception as error:
            if isinstance(error.__context__, ToolFailure):  # the storage has refused to drop the parts after it
                raise error.__context__ from None
            raise


async def _mode(target: Target, condition: str | None) -> Any:
    """Compares a condition with the present file, and returns the condition for the storage's own comparison on
    writing.
    """
    if condition is None:
        return "overwrite"
    found = await stat_or_none(target)
    if condition == ABSENT:
        if found is not None:
            raise conflict(target.place)
        return "create"
    if found is None or found.etag != condition:
        raise conflict(target.place)
    # A folder compares nothing itself.
    return "overwrite" if target.storage.is_folder else found.as_replaced


async def _pieces(got: Any, place: Place, size: int) -> AsyncIterator[bytes]:
    seen = 0
    with failures_of(place):
        async for piece in got.stream(min_chunk_size=_READ_BYTES):
            seen += len(piece)
            yield bytes(piece)
    if seen != size:
        message = f"{place}: {seen:,} bytes came, where the storage says {size:,}"
        raise ToolFailure.of("connection", message, retryable=True)


def _stored(got: Any) -> StoredFile:
    meta = got.meta
    etag, modified = meta["e_tag"], time_text(meta["last_modified"])
    return StoredFile(meta["size"], tag_text(etag), modified, meta["version"], dict(got.attributes), etag)
