"""The result of a loop that is too large for an event, gathered from the journal (LANGUAGE §6).

Law: the role's loop stands still for no loop of a playbook, however many iterations it has. Entries are read piece by
piece, and what is long is decoded and joined beside the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from noetl_stream.concurrency import beside, for_each
from noetl_stream.errors import BlobMissing, PayloadRefused
from noetl_stream.model.events import LoopDone, LoopIterationDone, LoopStarted, Path, TaskProcessed
from noetl_stream.model.outcome import Payload
from noetl_stream.ports.stores.store import Store, StoredEntry
from noetl_stream.ports.streams.blobs import Blobs, read_object
from noetl_stream.storage.journal import facts_about

ENTRIES_AT_ONCE: Final = 500

MAX_GATHERED_BYTES: Final = 256 * 1024 * 1024
"""The most bytes of a loop's result that are gathered, as many as a worker loads."""


async def gather_iterations(
    store: Store, blobs: Blobs, execution_id: str, step_run_id: str, max_bytes: int = MAX_GATHERED_BYTES
) -> bytes:
    """The JSON of a loop's result, in index order: failed and skipped iterations are null, inner loops nested lists.

    Raises:
        BlobMissing: the journal has no such loop, or a result of its iterations is lost.
        PayloadRefused: the results have more than ``max_bytes``.
    """
    loop, after = _Iterations(execution_id, step_run_id), 0
    while entries := await store.iteration_results(execution_id, step_run_id, after, ENTRIES_AT_ONCE):
        await beside(partial(loop.read, entries), _size_of(entries))
        after = entries[-1].position
    if () not in loop.counts:
        raise BlobMissing(f"the journal of execution {execution_id} has no loop of step run {step_run_id}")
    if loop.stored > max_bytes:
        raise PayloadRefused(
            f"the results of the loop have {loop.stored:,} bytes, and at most {max_bytes:,} are gathered"
        )

    async def load(path: Path) -> None:
        reference = loop.results[path].reference
        assert reference is not None
        loop.loaded[path] = await read_object(blobs, reference)

    await for_each([path for path, payload in loop.results.items() if payload.reference], load)
    return await beside(lambda: b"".join(loop.json(())), loop.size)


def _size_of(entries: Sequence[StoredEntry]) -> int:
    return sum(len(entry.data) + len(entry.decisions or b"") for entry in entries)


class _Iterations:
    """What came of the iterations of a loop, as far as its journal was read.

    Attributes:
        counts: How many iterations the loop and each inner one has.
        results: What they resulted in.
        loaded: Those of them that the object store has.
    """

    def __init__(self, execution_id: str, step_run_id: str) -> None:
        self._execution_id = execution_id
        self._step_run_id = step_run_id
        self._last: dict[Path, Payload] = {}
        self.counts: dict[Path, int] = {}
        self.results: dict[Path, Payload] = {}
        self.loaded: dict[Path, bytes] = {}

    @property
    def size(self) -> int:
        """Bytes of the results that are there."""
        values = sum(len(payload.value) for payload in self.results.values() if payload.reference is None)
        return values + sum(map(len, self.loaded.values()))

    @property
    def stored(self) -> int:
        """Bytes of all results, as far as its journal was read."""
        return sum(one.reference.size if one.reference else len(bytes(one.value)) for one in self.results.values())

    def read(self, entries: Sequence[StoredEntry]) -> None:
        """Reads more of the journal."""
        for entry in entries:
            for fact in facts_about(self._execution_id, entry, self._step_run_id):
                if isinstance(fact, TaskProcessed):
                    self._last[fact.path] = fact.outcome.result
                elif isinstance(fact, LoopIterationDone):
                    self.results[fact.path] = self._last.get(fact.path, Payload())
                elif isinstance(fact, LoopDone) or (isinstance(fact, LoopStarted) and not fact.path):
                    self.counts[fact.path] = fact.count

    def json(self, path: Path) -> Iterator[bytes]:
        """The JSON of a loop's list, in parts."""
        yield b"["
        for index in range(self.counts[path]):
            inner = (*path, index)
            if index:
                yield b","
            if inner in self.counts:
                yield from self.json(inner)
            else:
                yield self.loaded.get(inner) or bytes(self.results.get(inner, Payload()).value)
        yield b"]"
