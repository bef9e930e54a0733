"""Gathers a loop's result from the journal: the list of iteration results in index order (LANGUAGE §6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from noetl_stream.errors import BlobMissing
from noetl_stream.model import codec
from noetl_stream.model.events import LoopDone, LoopIterationDone, LoopStarted, Path, TaskProcessed
from noetl_stream.model.outcome import Payload
from noetl_stream.ports.blobs import Blobs
from noetl_stream.ports.store import Store


@dataclass(slots=True)
class _Found:
    """A loop in the journal: results by path, and how many iterations of each level succeeded."""

    last: dict[Path, Payload] = field(default_factory=dict)
    results: dict[Path, Payload] = field(default_factory=dict)
    counts: dict[Path, int] = field(default_factory=dict)


async def gather_iterations(store: Store, blobs: Blobs, execution_id: str, step_run_id: str) -> bytes:
    """The JSON of a loop's result: failed and skipped iterations are null, inner loops are nested lists.

    Raises:
        BlobMissing: the journal has no such loop, or a result of its iterations is lost.
    """
    found = _Found()
    for row in await store.iteration_results(execution_id, step_run_id):
        fact = codec.decode_fact(row.data)
        if isinstance(fact, TaskProcessed):
            found.last[fact.path] = fact.outcome.result
        elif isinstance(fact, LoopIterationDone):
            found.results[fact.path] = found.last.get(fact.path, Payload())
        elif isinstance(fact, LoopDone) or (isinstance(fact, LoopStarted) and not fact.path):
            found.counts[fact.path] = fact.count
    if () not in found.counts:
        raise BlobMissing(f"the journal of execution {execution_id} has no loop of step run {step_run_id}")
    return await _level((), found.counts, found.results, blobs)


async def _level(path: Path, counts: Mapping[Path, int], results: Mapping[Path, Payload], blobs: Blobs) -> bytes:
    parts = []
    for index in range(counts[path]):
        inner = (*path, index)
        if inner in counts:
            parts.append(await _level(inner, counts, results, blobs))
            continue
        payload = results.get(inner, Payload())
        parts.append(await blobs.get(payload.reference.key) if payload.reference else bytes(payload.value))
    return b"[" + b",".join(parts) + b"]"
