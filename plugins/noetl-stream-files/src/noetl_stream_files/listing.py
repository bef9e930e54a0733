"""Lists of files below a place, in pages of a stable order: by path, or by arrival after a marker."""

from __future__ import annotations

import asyncio
import base64
import heapq
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Annotated, Any, Final, NamedTuple

from pydantic import AwareDatetime, Field

from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.inputs import Inputs
from noetl_stream_files.errors import failures_of
from noetl_stream_files.places import Place, is_match
from noetl_stream_files.stores import Storage

MAX_LISTED: Final = 10_000
MAX_SEEN: Final = 10_000
MAX_WRITERS: Final = 100
_BATCH: Final = 1_000
_DIGEST_BYTES: Final = 9


class FoundFile(NamedTuple):
    """A listed file; files are ordered by their time of writing.

    Attributes:
        path: The path of its place.
    """

    modified: datetime
    path: str
    size: int
    etag: str

    @property
    def digest(self) -> str:
        """The identity of this version of the file, in 12 characters: a rewritten file has another one."""
        text = f"{self.path}\0{self.etag}\0{self.size}".encode()
        return base64.urlsafe_b64encode(sha256(text).digest()[:_DIGEST_BYTES]).decode()

    def shown(self, place: Place) -> dict[str, Any]:
        """The file as a value of the language."""
        return {
            "path": str(Place(place.scheme, place.bucket, self.path)),
            "name": self.path.rpartition("/")[2],
            "size": self.size,
            "modified": time_text(self.modified),
            "etag": self.etag,
        }


class Marker(Inputs):
    """How far a list of arrivals has come.

    A file becomes visible later than its time says, as when a long upload ends. So the marker has a time, and the files
    of the while before it that were listed.
    """

    since: Annotated[AwareDatetime, Field(strict=False)] = datetime(1970, 1, 1, tzinfo=UTC)
    seen: list[str] = Field(default=[], max_length=MAX_SEEN)
    etag: str | None = None
    """That of the file which the marker was read from; ``None`` if there is none yet."""
    writers: list[str] = Field(default=[], max_length=MAX_WRITERS)
    """The task runs that wrote it last: one that is delivered again may find the marker of the next."""


class Page(NamedTuple):
    """A page of files, and the path of the last one if more follow."""

    files: Sequence[FoundFile]
    next: str | None


async def files_below(
    storage: Storage, place: Place, pattern: str | None, most: int, *, after: str | None = None
) -> AsyncIterator[list[FoundFile]]:
    """Yields the files below a place that match a pattern, in the batches of the storage.

    Raises:
        ToolFailure: ``limit_exceeded``: there are more than ``most``, whether they match or not.
    """
    seen = 0
    with failures_of(place):
        async for batch in storage.batches(storage.path_of(place), after, _BATCH):
            seen += len(batch)
            found = (
                FoundFile(one["last_modified"], storage.place_path(one["path"]), one["size"], tag_text(one["e_tag"]))
                for one in batch
            )
            chosen = [one for one in found if pattern is None or is_match(pattern, place.relative(one.path))]
            if storage.is_local:
                chosen = await asyncio.to_thread(_inside, storage, chosen)
            yield chosen
            if seen > most:
                message = f"{place} has over {most:,} files (NOETL_TOOL_FILES, max_files); name a place below it"
                raise ToolFailure.of("limit_exceeded", message, code="max_files")


async def page_by_path(
    storage: Storage, place: Place, pattern: str | None, limit: int, most: int, after: str | None
) -> Page:
    """Lists the first ``limit`` files by path, behind ``after``."""
    start = None if after is None else storage.path_of(Place(place.scheme, place.bucket, after))
    best: list[FoundFile] = []
    async for batch in files_below(storage, place, pattern, most, after=start):
        behind = (one for one in batch if after is None or one.path > after)  # some services list from the beginning
        best = heapq.nsmallest(limit + 1, [*best, *behind], key=lambda one: one.path)
        if not storage.is_folder and len(best) > limit:
            break  # clouds list by path
    files = best[:limit]
    return Page(files, files[-1].path if len(best) > limit else None)


async def page_by_arrival(
    storage: Storage, place: Place, pattern: str | None, limit: int, most: int, marker: Marker, late_s: float
) -> tuple[Page, Marker]:
    """Lists the first ``limit`` files, by time of writing, that the marker does not have, and moves it behind them.

    Raises:
        ToolFailure: ``limit_exceeded``: there are too many files within ``late_s``.
    """
    late, listed = timedelta(seconds=late_s), frozenset(marker.seen)
    begin = _before(marker.since, late)
    best: list[FoundFile] = []
    known: list[FoundFile] = []
    async for batch in files_below(storage, place, pattern, most):
        recent = [one for one in batch if one.modified >= begin]
        known.extend(one for one in recent if one.digest in listed)
        best = heapq.nsmallest(limit + 1, [*best, *(one for one in recent if one.digest not in listed)])
    files = best[:limit]
    since = max([marker.since, *(one.modified for one in files)])
    begin = _before(since, late)
    seen = [one.digest for one in (*known, *files) if one.modified >= begin]
    if len(seen) > MAX_SEEN:
        message = f"{place}: over {MAX_SEEN:,} files were written within `late_s`; make it shorter"
        raise ToolFailure.of("limit_exceeded", message, code="late_s")
    return Page(files, files[-1].path if len(best) > limit else None), marker.model_copy(
        update={"since": since, "seen": seen}
    )


def shown_marker(marker: Marker) -> dict[str, Any]:
    """The marker as a value of the language."""
    of_file = {"etag": marker.etag, "writers": list(marker.writers)}
    return {"since": time_text(marker.since), "seen": list(marker.seen), **of_file}


def read_marker(value: Mapping[str, Any]) -> Marker:
    """Reads the text of a marker.

    Raises:
        ValueError: It is none.
    """
    return Marker.model_validate(value)


def time_text(time: datetime) -> str:
    """A time in ISO 8601, in UTC."""
    return time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def tag_text(etag: str | None) -> str:
    """The etag without quotes, which only some storages send; empty without one."""
    return (etag or "").strip('"')


def _before(time: datetime, late: timedelta) -> datetime:
    return time - min(late, time - datetime.min.replace(tzinfo=UTC))


def _inside(storage: Storage, files: list[FoundFile]) -> list[FoundFile]:
    return [one for one in files if storage.holds(one.path)]
