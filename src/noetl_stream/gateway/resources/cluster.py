"""What runs the executions: workers, pools, partitions, and messages that could not be taken."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from pydantic import Field

from noetl_stream.gateway.http.parameters import InPath, Nothing, Paged, Parameters
from noetl_stream.gateway.http.routes import API, Answer, AnyRoute, Call, Reply, Route
from noetl_stream.ports.operations.cluster import (
    DeadLetterDocument,
    DeadLetterPage,
    DeadLetterWithBodyDocument,
    PartitionsDocument,
    PoolsDocument,
    WorkersDocument,
)

LETTERS: Final = f"{API}/dead-letters"
LETTER: Final = LETTERS + "/{letter_id}"
READ: Final = "read dead letters"
SETTLE: Final = "settle dead letters"


class LetterAt(Parameters):
    letter_id: Annotated[str, InPath(), Field(min_length=1, max_length=256)]


async def workers(call: Call[Nothing, None]) -> Reply:
    workers = await call.operations.cluster.workers()
    if call.caller.paths:  # what others run is not for this caller to see
        workers = [msgspec.structs.replace(worker, running=[]) for worker in workers]
    return Reply(WorkersDocument(workers))


async def pools(call: Call[Nothing, None]) -> Reply:
    return Reply(PoolsDocument(await call.operations.cluster.pools()))


async def partitions(call: Call[Nothing, None]) -> Reply:
    return Reply(PartitionsDocument(await call.operations.cluster.partitions()))


async def dead_letters(call: Call[Paged, None]) -> Reply:
    call.require_all_paths(READ)
    return call.page(await call.operations.cluster.dead_letters(call.parameters.limit, call.parameters.cursor))


async def dead_letter(call: Call[LetterAt, None]) -> Reply:
    call.require_all_paths(READ)
    return Reply(await call.operations.cluster.dead_letter(call.parameters.letter_id))


async def requeue(call: Call[LetterAt, None]) -> Reply:
    call.require_all_paths(SETTLE)
    return Reply(await call.operations.cluster.requeue(call.parameters.letter_id, call.caller.principal))


async def discard(call: Call[LetterAt, None]) -> Reply:
    call.require_all_paths(SETTLE)
    await call.operations.cluster.discard(call.parameters.letter_id, call.caller.principal)
    return Reply(None, 204)


CLUSTER_ROUTES: Final[tuple[AnyRoute, ...]] = (
    Route(
        "GET",
        f"{API}/workers",
        "listWorkers",
        "Workers that are alive",
        role="viewer",
        handler=workers,
        answers={200: Answer("Those that answer", WorkersDocument)},
    ),
    Route(
        "GET",
        f"{API}/pools",
        "listPools",
        "Pools, with what waits and runs in each",
        role="viewer",
        handler=pools,
        answers={200: Answer("All of them", PoolsDocument)},
    ),
    Route(
        "GET",
        f"{API}/partitions",
        "listPartitions",
        "Partitions: who folds them, and how far behind",
        role="viewer",
        handler=partitions,
        answers={200: Answer("All of them", PartitionsDocument)},
    ),
    Route(
        "GET",
        LETTERS,
        "listDeadLetters",
        "Messages and commands that were given up, newest first",
        role="admin",
        handler=dead_letters,
        answers={200: Answer("A page of them, without bodies", DeadLetterPage, ("Link",))},
        parameters=Paged,
    ),
    Route(
        "GET",
        LETTER,
        "getDeadLetter",
        "One with its body",
        role="admin",
        handler=dead_letter,
        answers={200: Answer("It", DeadLetterWithBodyDocument)},
        parameters=LetterAt,
    ),
    Route(
        "POST",
        f"{LETTER}/requeue",
        "requeueDeadLetter",
        "Send it again where it came from",
        role="admin",
        handler=requeue,
        answers={200: Answer("It is sent, and off the list", DeadLetterDocument)},
        parameters=LetterAt,
        refuses=("conflict",),
    ),
    Route(
        "DELETE",
        LETTER,
        "discardDeadLetter",
        "Take it off the list for good",
        role="admin",
        handler=discard,
        answers={204: Answer("It is off the list")},
        parameters=LetterAt,
        refuses=("conflict",),
    ),
)
