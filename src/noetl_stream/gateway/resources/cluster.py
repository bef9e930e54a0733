"""What runs the executions: workers, pools, partitions, and messages that could not be processed."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from pydantic import Field

from noetl_stream.gateway.http.parameters import Explained, InPath, Nothing, Paged, Parameters
from noetl_stream.gateway.http.routes import Call, Routes
from noetl_stream.model.aggregates import MAX_KEY_CHARS
from noetl_stream.ports.operations.cluster import (
    Cluster,
    DeadLetterDocument,
    DeadLetterPage,
    DeadLetterWithBodyDocument,
    PartitionsDocument,
    PoolsDocument,
    WorkersDocument,
)
from noetl_stream.ports.operations.limits import LimitPage, LimitWithSlotsDocument
from noetl_stream.ports.operations.verbs import address_of

READ: Final = "read dead letters"
SETTLE: Final = "settle dead letters"
LIMITS: Final = "read limits"

routes = Routes()


class LetterAt(Parameters):
    letter_id: Annotated[str, InPath(), Field(min_length=1, max_length=256)]


class LimitAt(Parameters):
    key: Annotated[str, InPath(), Field(min_length=1, max_length=MAX_KEY_CHARS)]


class SettledLetter(Explained, LetterAt):
    """One that is requeued or discarded."""


@routes(*address_of(Cluster.workers), "listWorkers", "viewer")
async def workers(call: Call[Nothing, None]) -> WorkersDocument:
    """List the workers that are alive."""
    workers = await call.operations.cluster.workers()
    if call.caller.paths:  # what others run is not for this caller to see
        workers = [msgspec.structs.replace(worker, running=[]) for worker in workers]
    return WorkersDocument(workers)


@routes(*address_of(Cluster.pools), "listPools", "viewer")
async def pools(call: Call[Nothing, None]) -> PoolsDocument:
    """List pools, with what is queued and running in each."""
    return PoolsDocument(await call.operations.cluster.pools())


@routes(*address_of(Cluster.partitions), "listPartitions", "viewer")
async def partitions(call: Call[Nothing, None]) -> PartitionsDocument:
    """List partitions: which server folds them, and how far behind it is."""
    return PartitionsDocument(await call.operations.cluster.partitions())


@routes(*address_of(Cluster.limits), "listLimits", "viewer")
async def limits(call: Call[Paged, None]) -> LimitPage:
    """List the keys of limits that are held or waited for."""
    call.require_all_paths(LIMITS)
    return await call.operations.cluster.limits(call.parameters.limit, call.parameters.cursor)


@routes(*address_of(Cluster.limit), "getLimit", "viewer")
async def limit(call: Call[LimitAt, None]) -> LimitWithSlotsDocument:
    """Get the limit of a key, with who holds it and who waits."""
    call.require_all_paths(LIMITS)
    return await call.operations.cluster.limit(call.parameters.key)


@routes(*address_of(Cluster.dead_letters), "listDeadLetters", "admin")
async def dead_letters(call: Call[Paged, None]) -> DeadLetterPage:
    """List messages and commands that were given up, newest first, without bodies."""
    call.require_all_paths(READ)
    return await call.operations.cluster.dead_letters(call.parameters.limit, call.parameters.cursor)


@routes(*address_of(Cluster.dead_letter), "getDeadLetter", "admin")
async def dead_letter(call: Call[LetterAt, None]) -> DeadLetterWithBodyDocument:
    """Get a dead letter with its body."""
    call.require_all_paths(READ)
    return await call.operations.cluster.dead_letter(call.parameters.letter_id)


@routes(*address_of(Cluster.requeue), "requeueDeadLetter", "admin", refuses=("conflict",))
async def requeue(call: Call[SettledLetter, None]) -> DeadLetterDocument:
    """Send it again where it came from, and take it off the list."""
    call.require_all_paths(SETTLE)
    at = call.parameters
    return await call.operations.cluster.requeue(at.letter_id, call.caller.principal, at.reason)


@routes(*address_of(Cluster.discard), "discardDeadLetter", "admin", refuses=("conflict",))
async def discard(call: Call[SettledLetter, None]) -> None:
    """Take it off the list for good."""
    call.require_all_paths(SETTLE)
    at = call.parameters
    await call.operations.cluster.discard(at.letter_id, call.caller.principal, at.reason)
