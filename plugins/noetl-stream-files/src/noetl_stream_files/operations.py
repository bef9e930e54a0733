"""The operations of ``kind: files``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from noetl_stream.sealing.data_references import DataReference
from noetl_stream.tools.contract import ToolCall, ToolFailure
from noetl_stream.tools.inputs import Auth, invalid_input
from noetl_stream_files.errors import Conflict, FileNotThere, failures_of
from noetl_stream_files.inputs import FilesInputs
from noetl_stream_files.listing import (
    MAX_WRITERS,
    FoundFile,
    Marker,
    files_below,
    page_by_arrival,
    page_by_path,
    read_marker,
    shown_marker,
)
from noetl_stream_files.places import Place, read_place
from noetl_stream_files.stores import Storages
from noetl_stream_files.transfer import (
    ABSENT,
    SERVER_COPY_BYTES,
    Body,
    StoredFile,
    Target,
    body_of,
    open_body,
    own_file,
    run_of,
    stat,
    stat_or_none,
    write,
)

MAX_SHOWN: Final = 1_000
"""The number of paths of each sort in the result of ``sync``."""
SMALL_BYTES: Final = 1 << 20
SMALL_AT_ONCE: Final = 8
MAX_MARKER_BYTES: Final = 1 << 20


class Operation:
    """The operation of one task."""

    def __init__(self, call: ToolCall, inputs: FilesInputs, storages: Storages, max_files: int) -> None:
        self._call = call
        self._inputs = inputs
        self._storages = storages
        self._max_files = max_files

    async def result(self) -> dict[str, Any]:
        inputs = self._inputs
        if inputs.listed is not None:
            return await self._list(inputs.listed)
        if inputs.asked is not None:
            target = await self._target(inputs.asked)
            return (await stat(target)).shown(target.place)
        if inputs.copied is not None:
            return await self._copy(inputs.copied)
        if inputs.moved is not None:
            return await self._move(inputs.moved)
        if inputs.deleted is not None:
            return await self._delete([inputs.deleted] if isinstance(inputs.deleted, str) else inputs.deleted)
        if inputs.synced is not None:
            return await self._sync(inputs.synced)
        return await self._mark(inputs.marked or "")

    async def _target(self, text: str, auth: Auth | None = None) -> Target:
        place = read_place(text)
        return Target(place, await self._storages.open(place, self._inputs.auth if auth is None else auth))

    async def _goal(self) -> Target:
        """The place ``to``."""
        return await self._target(self._inputs.to or "", self._inputs.to_auth)

    async def _file_goal(self) -> Target:
        text = self._inputs.to or ""
        if text.endswith("/") or not read_place(text).path:
            raise invalid_input("to: must name one file, not a folder or a bucket")
        return await self._goal()

    async def _list(self, text: str) -> dict[str, Any]:
        inputs, (place, storage) = self._inputs, await self._target(text)
        if inputs.arrived is None:
            after = None if inputs.after is None else _path_below(place, inputs.after)
            page = await page_by_path(storage, place, inputs.pattern, inputs.limit, self._max_files, after)
            following = None if page.next is None else str(Place(place.scheme, place.bucket, page.next))
            return {"files": [one.shown(place) for one in page.files], "next": following}
        marker = await self._read_marker(await self._target(inputs.arrived, inputs.marker_auth))
        page, marker = await page_by_arrival(
            storage, place, inputs.pattern, inputs.limit, self._max_files, marker, inputs.late_s
        )
        files = [one.shown(place) for one in page.files]
        return {"files": files, "more": page.next is not None, "marker": shown_marker(marker)}

    async def _read_marker(self, source: Target) -> Marker:
        try:
            found, body = await open_body(source)
        except FileNotThere:
            return Marker()
        if found.size <= MAX_MARKER_BYTES:
            data = b"".join([piece async for piece in body.pieces])
            with suppress(ValueError, RecursionError):
                return read_marker(json.loads(data)).model_copy(update={"etag": found.etag})
        raise ToolFailure.of("refused", f"{source.place} is not a marker of `list`", code="marker")

    async def _mark(self, text: str) -> dict[str, Any]:
        try:
            marker = read_marker(self._inputs.marker or {})
        except ValueError:
            raise invalid_input("marker: is not the `marker` of a list with `arrived`") from None
        target, run = await self._target(text), run_of(self._call)
        written = {**shown_marker(marker), "etag": None, "writers": [*marker.writers, run][-MAX_WRITERS:]}
        data = json.dumps(written).encode()
        body = Body(_once(data), len(data), {"Content-Type": "application/json"})
        condition = ABSENT if marker.etag is None else marker.etag
        try:
            await write(self._call, target, body, condition)
        except Conflict:  # or it was written before this task was delivered again
            if run not in (await self._read_marker(target)).writers:
                raise
        return (await stat(target)).shown(target.place)

    async def _copy(self, source: str | dict[str, Any]) -> dict[str, Any]:
        if isinstance(source, dict):
            reference = self._call.data.reference(source)
            if reference is None:
                raise invalid_input("copy: is neither a place nor a file or table that this task may read")
            return await self._copy_reference(reference)
        start = await self._target(source)
        if self._inputs.into is not None:
            found, body = await open_body(start)
            name, kind = start.place.path.rpartition("/")[2], self._inputs.media_type or found.media_type
            saved = await self._call.data.save(body.pieces, name=name, media_type=kind)
            return {**found.shown(start.place), "media_type": kind, "file": saved}
        goal = await self._file_goal()
        await self._copy_file(start, goal, self._inputs.condition)
        return (await stat(goal)).shown(goal.place)

    async def _copy_reference(self, reference: DataReference) -> dict[str, Any]:
        if self._inputs.into is not None:
            raise invalid_input("copy: is a stored file already; write it `to` a place")
        goal = await self._file_goal()
        body = self._typed(body_of(self._call, reference))
        await write(self._call, goal, body, self._inputs.condition)
        return (await stat(goal)).shown(goal.place)

    async def _copy_file(self, start: Target, goal: Target, condition: str | None = None) -> None:
        if start.identity == goal.identity:
            raise invalid_input("to: is the same file")
        if start.storage is goal.storage and condition is None and self._inputs.media_type is None:
            found = await stat(start)
            if found.size <= SERVER_COPY_BYTES:
                with failures_of(goal.place):
                    paths = start.storage.path_of(start.place), goal.storage.path_of(goal.place)
                    is_copied = await start.storage.copy(*paths)
                if is_copied and (await stat(goal)).media_type == found.media_type:
                    return  # not every server keeps it
        _, body = await open_body(start)
        await write(self._call, goal, self._typed(body), condition)

    def _typed(self, body: Body) -> Body:
        kind = self._inputs.media_type
        return body if kind is None else body._replace(attributes={**body.attributes, "Content-Type": kind})

    async def _move(self, source: str) -> dict[str, Any]:
        start, goal = await self._target(source), await self._file_goal()
        try:
            await self._copy_file(start, goal, self._inputs.condition)
        except FileNotThere:
            before = await own_file(self._call, goal) or await self._moved_before(goal)
            if before is None:
                raise
            return before.shown(goal.place)
        moved = await stat(goal)
        self._call.beat({"moved": str(goal.place), "etag": moved.etag})
        await self._remove(start)
        return moved.shown(goal.place)

    async def _moved_before(self, goal: Target) -> StoredFile | None:
        """The file if an earlier delivery of this run has copied it and still has to delete the source."""
        found = await stat_or_none(goal)
        same = None if found is None else {"moved": str(goal.place), "etag": found.etag}
        return found if same is not None and self._call.previous_details == same else None

    async def _delete(self, sources: list[str]) -> dict[str, Any]:
        targets = [await self._target(source) for source in sources]
        if self._inputs.missing == "fail":
            for target in targets:
                await stat(target)
        await _each(targets, self._remove)
        return {"deleted": len(targets)}

    async def _remove(self, target: Target) -> None:
        try:
            with failures_of(target.place):
                await target.storage.delete(target.storage.path_of(target.place))
        except FileNotThere:
            pass

    async def _sync(self, source: str) -> dict[str, Any]:
        start, goal = await self._target(source), await self._goal()
        if _overlap(start.identity, goal.identity):
            raise invalid_input("to: lies in the place that `sync` reads, or around it")
        there = {goal.place.relative(one.path): one async for one in self._all(goal)}
        here = {start.place.relative(one.path): one async for one in self._all(start)}
        due = {path: one for path, one in here.items() if not _is_current(one, there.get(path))}
        done = _Progress(self._call, len(here) - len(due))

        async def copy(path: str) -> None:
            pair = Target(start.place.below(path), start.storage), Target(goal.place.below(path), goal.storage)
            await self._copy_file(*pair)
            done.copy(path, due[path].size)

        async def remove(path: str) -> None:
            await self._remove(Target(goal.place.below(path), goal.storage))
            done.delete(path)

        try:
            await _each([path for path, one in due.items() if one.size <= SMALL_BYTES], copy)
            for path in [path for path, one in due.items() if one.size > SMALL_BYTES]:
                await copy(path)
            if self._inputs.extra == "delete":
                await _each([path for path in there if path not in here], remove)
        except ToolFailure as failed:
            raise ToolFailure(failed.error, result=done.shown()) from None
        return done.shown()

    async def _all(self, target: Target) -> Any:
        async for batch in files_below(target.storage, target.place, self._inputs.pattern, self._max_files):
            for one in batch:
                yield one


class _Progress:
    """The progress of ``sync``, as its heartbeats report it."""

    def __init__(self, call: ToolCall, skipped: int) -> None:
        self._call = call
        self._skipped = skipped
        self._copied: list[str] = []
        self._deleted: list[str] = []
        self._counts = {"copied": 0, "deleted": 0, "bytes": 0}

    def copy(self, path: str, size: int) -> None:
        self._counts["bytes"] += size
        self._add("copied", self._copied, path)

    def delete(self, path: str) -> None:
        self._add("deleted", self._deleted, path)

    def shown(self) -> dict[str, Any]:
        """The result, with the first of the kept paths by name."""
        counts = self._counts
        return {
            "copied": {"count": counts["copied"], "bytes": counts["bytes"], "paths": sorted(self._copied)},
            "skipped": {"count": self._skipped},
            "deleted": {"count": counts["deleted"], "paths": sorted(self._deleted)},
        }

    def _add(self, what: str, paths: list[str], path: str) -> None:
        self._counts[what] += 1
        if len(paths) < MAX_SHOWN:
            paths.append(path)
        self._call.beat(dict(self._counts))


async def _each(items: Iterable[Any], work: Any) -> None:
    """Works on a few items at a time; the first failure ends all."""
    rest = iter(items)

    async def some() -> None:
        for item in rest:
            await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(SMALL_AT_ONCE):
                group.create_task(some())
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None


def _is_current(source: FoundFile, copy: FoundFile | None) -> bool:
    if copy is None or copy.size != source.size:
        return False
    return (bool(source.etag) and source.etag == copy.etag) or copy.modified >= source.modified


def _overlap(one: str, other: str) -> bool:
    paths = [path.rstrip("/") + "/" for path in (one, other)]
    return paths[0].startswith(paths[1]) or paths[1].startswith(paths[0])


def _path_below(place: Place, text: str) -> str:
    try:
        found = read_place(text)
    except ValueError as error:
        raise invalid_input(f"after: {error}") from None
    if (found.scheme, found.bucket) != (place.scheme, place.bucket):
        raise invalid_input("after: must be in the place that is listed")
    return found.path


async def _once(data: bytes) -> Any:
    yield data
