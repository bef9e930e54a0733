"""The result of a loop that is too large for an event, read from the journal (LANGUAGE §6).

Law: the role's loop is blocked by no loop of a playbook, however many iterations it has. Entries are read piece by
piece, and long ones are decoded and joined beside the loop. Of results beyond the bound, only the places are kept.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from noetl_stream.concurrency import beside, for_each
from noetl_stream.errors import BlobMissing, PayloadRefused
from noetl_stream.model.events import LoopDone, LoopIterationDone, LoopIterationFailed, LoopStarted, Path, TaskProcessed
from noetl_stream.model.outcome import Payload
from noetl_stream.ports.stores.store import Store, StoredEntry
from noetl_stream.ports.streams.blobs import Blobs, read_object
from noetl_stream.storage.journal import FIRST_READ, READ_BYTES, facts_about, next_count

PIECE_BYTES: Final = READ_BYTES
"""The approximate bytes of a piece of the result; a larger iteration is a piece by itself."""

REFERENCE_BYTES: Final = 512
"""The memory of a reference to a result."""

MAX_GATHERED_BYTES: Final = 256 * 1024 * 1024
"""The most bytes of a loop's result that are gathered, as many as a worker loads."""


async def gather_iterations(
    store: Store, blobs: Blobs, execution_id: str, step_run_id: str, max_bytes: int = MAX_GATHERED_BYTES
) -> bytes:
    """The JSON of a loop's result; see :meth:`LoopResult.pieces`.

    Raises:
        BlobMissing: the journal has no such loop, or a result of its iterations is lost.
        PayloadRefused: the results have more than ``max_bytes``.
    """
    loop = await LoopResult.read(store, blobs, execution_id, step_run_id, kept_bytes=max_bytes)
    if loop.size > max_bytes:
        message = f"the results of the loop have {loop.size:,} bytes, and at most {max_bytes:,} are gathered"
        raise PayloadRefused(message)
    pieces = [piece async for piece in loop.pieces()]
    return await beside(partial(b"".join, pieces), loop.size)


class _Place(NamedTuple):
    """The place of an iteration's result in the journal."""

    path: Path
    position: int


_Part: TypeAlias = bytes | Payload | _Place
"""A part of a loop's list: its brackets and commas, or the result of an iteration."""


class LoopResult:
    """The results of a loop's iterations.

    Attributes:
        size: Bytes of all results.
    """

    def __init__(self, store: Store, blobs: Blobs, execution_id: str, step_run_id: str, kept_bytes: int) -> None:
        self._store = store
        self._blobs = blobs
        self._execution_id = execution_id
        self._step_run_id = step_run_id
        self._room = kept_bytes
        self._last: dict[Path, tuple[Payload | int, int]] = {}
        self._counts: dict[Path, int] = {}
        self._results: dict[Path, Payload | int] = {}
        self.size = 0

    @classmethod
    async def read(
        cls, store: Store, blobs: Blobs, execution_id: str, step_run_id: str, kept_bytes: int = PIECE_BYTES
    ) -> LoopResult:
        """Reads the journal of a loop.

        Args:
            kept_bytes: The bytes of results that are kept; the others are read once more, for :meth:`pieces`.

        Raises:
            BlobMissing: the journal has no such loop.
        """
        loop = cls(store, blobs, execution_id, step_run_id, kept_bytes)
        after, limit = 0, FIRST_READ
        while entries := await store.iteration_results(execution_id, step_run_id, after, limit):
            size = _size_of(entries)
            await beside(partial(loop._learn, entries), size)
            after, limit = entries[-1].position, next_count(len(entries), size)
        if () not in loop._counts:
            raise BlobMissing(f"the journal of execution {execution_id} has no loop of step run {step_run_id}")
        return loop

    async def pieces(self, shown: Callable[[bytes], bytes] = bytes) -> AsyncIterator[bytes]:
        """The JSON of its result, in index order: failed and skipped iterations are null, inner loops nested lists.

        Args:
            shown: Converts the JSON of one iteration's result to the form that is shown.

        Raises:
            BlobMissing: a result of its iterations is lost.
        """
        parts, limit = self._parts(()), FIRST_READ
        while batch := list(islice(parts, limit)):
            found, size = await self._read_places([part for part in batch if isinstance(part, _Place)])
            limit = next_count(len(batch), size)
            for group in _groups(found[part] if isinstance(part, _Place) else part for part in batch):
                yield await self._joined(group, shown)

    def _learn(self, entries: Sequence[StoredEntry]) -> None:
        for entry in entries:
            for fact in facts_about(self._execution_id, entry, self._step_run_id):
                if isinstance(fact, TaskProcessed):
                    self._forget(fact.path)
                    self._last[fact.path] = self._kept(fact.outcome.result, entry.position)
                elif isinstance(fact, LoopIterationFailed):
                    self._forget(fact.path)
                elif isinstance(fact, LoopIterationDone) and fact.path in self._last:
                    self._results[fact.path], size = self._last.pop(fact.path)
                    self.size += size
                elif isinstance(fact, LoopDone) or (isinstance(fact, LoopStarted) and not fact.path):
                    self._counts[fact.path] = fact.count

    def _kept(self, result: Payload, position: int) -> tuple[Payload | int, int]:
        """A result, or its position if there is no room for it; and its bytes."""
        if (takes := _memory_of(result)) > self._room:
            return position, _bytes_of(result)
        self._room -= takes
        return replace(result, value=result.value.copy()), _bytes_of(result)  # a slice would keep its whole entry alive

    def _forget(self, path: Path) -> None:
        result, _ = self._last.pop(path, (0, 0))
        self._room += _memory_of(result) if isinstance(result, Payload) else 0

    def _parts(self, path: Path) -> Iterator[_Part]:
        yield b"["
        for index in range(self._counts[path]):
            inner = (*path, index)
            if index:
                yield b","
            if inner in self._counts:
                yield from self._parts(inner)
            else:
                found = self._results.get(inner, Payload())
                yield _Place(inner, found) if isinstance(found, int) else found
        yield b"]"

    async def _read_places(self, places: Sequence[_Place]) -> tuple[dict[_Place, Payload], int]:
        """The results at these places, and the bytes that were read for them."""
        if not places:
            return {}, 0
        entries = await self._store.entries_at(self._execution_id, sorted({place.position for place in places}))
        size, wanted = _size_of(entries), set(places)

        def found() -> dict[_Place, Payload]:
            return {
                place: fact.outcome.result
                for entry in entries
                for fact in facts_about(self._execution_id, entry, self._step_run_id)
                if isinstance(fact, TaskProcessed) and (place := _Place(fact.path, entry.position)) in wanted
            }

        results = await beside(found, size)
        if len(results) < len(wanted):
            raise BlobMissing(f"the journal of execution {self._execution_id} is being deleted")
        return results, size

    async def _joined(self, group: Sequence[bytes | Payload], shown: Callable[[bytes], bytes]) -> bytes:
        loaded: dict[int, bytes] = {}

        async def load(number: int) -> None:
            part = group[number]
            assert isinstance(part, Payload) and part.reference is not None
            loaded[number] = await read_object(self._blobs, part.reference)

        await for_each([number for number, part in enumerate(group) if _is_reference(part)], load)

        def joined() -> bytes:
            return b"".join(
                part if isinstance(part, bytes) else shown(loaded.get(number) or bytes(part.value))
                for number, part in enumerate(group)
            )

        return await beside(joined, sum(map(_bytes_of, group)))


def _memory_of(result: Payload) -> int:
    return REFERENCE_BYTES if result.reference else len(result.value)


def _is_reference(part: bytes | Payload) -> bool:
    return isinstance(part, Payload) and part.reference is not None


def _bytes_of(part: bytes | Payload) -> int:
    if isinstance(part, bytes):
        return len(part)
    return part.reference.size if part.reference else len(part.value)


def _groups(parts: Iterator[bytes | Payload]) -> Iterator[list[bytes | Payload]]:
    """Yields these parts in groups of about :data:`PIECE_BYTES`."""
    group, size = list[bytes | Payload](), 0
    for part in parts:
        group.append(part)
        size += _bytes_of(part)
        if size >= PIECE_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _size_of(entries: Sequence[StoredEntry]) -> int:
    return sum(len(entry.data) + len(entry.decisions or b"") for entry in entries)
