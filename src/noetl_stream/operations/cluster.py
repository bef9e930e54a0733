"""Workers, pools, partitions, dead letters and readiness, directly on NATS and Postgres."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Collection, Sequence
from typing import Final

import msgspec
from msgspec.structs import asdict

from noetl_stream.concurrency import SharedLoads
from noetl_stream.errors import Conflict, NoetlError, NotFound, NotReady
from noetl_stream.model.envelope import iso, iso_or_none
from noetl_stream.model.ids import is_valid_id
from noetl_stream.model.json import codec
from noetl_stream.model.messages import WorkerPresence
from noetl_stream.operations.limits import limit_page, limit_with_slots
from noetl_stream.operations.paging import page_of, page_size, read_cursor
from noetl_stream.operations.presence import pool_labels, workers_of
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations.cluster import (
    DeadLetterDocument,
    DeadLetterPage,
    DeadLetterWithBodyDocument,
    LimitPage,
    LimitWithSlotsDocument,
    PartitionDocument,
    PoolDocument,
    WorkerDocument,
)
from noetl_stream.ports.operations.verbs import document_from
from noetl_stream.ports.stores.dead_letters import MAX_LETTER_BYTES, DeadLetter, DeadLetters
from noetl_stream.ports.stores.store import Store
from noetl_stream.ports.streams.bus import Bus
from noetl_stream.ports.streams.command_queue import CommandQueue, QueuedPool
from noetl_stream.ports.streams.event_log import EventLog
from noetl_stream.protocol import subjects
from noetl_stream.storage.used_secrets import UsedSecrets

OLDEST_S: Final = 0.5
"""The time in which a server must report how long commands have waited."""

PROBE_S: Final = 5.0
"""The time in which each part of the stack must answer a readiness probe."""


class ClusterPorts(msgspec.Struct, frozen=True):
    log: EventLog
    queue: CommandQueue
    bus: Bus
    store: Store
    dead_letters: DeadLetters
    clock: Clock


class DirectCluster:
    """:class:`~noetl_stream.ports.operations.cluster.Cluster`, where each method is described.

    Args:
        secrets: Hides the secrets of an execution in its dead letters.
    """

    def __init__(self, ports: ClusterPorts, secrets: UsedSecrets) -> None:
        self._ports = ports
        self._secrets = secrets

    async def workers(self) -> list[WorkerDocument]:
        async def workers() -> Sequence[WorkerPresence]:
            return await self._workers_of(await self._ports.queue.pools())

        # Both wait a fixed time for all answers, hence at once.
        found, labels = await asyncio.gather(workers(), pool_labels(self._ports.bus))
        return [document_from(WorkerDocument, one, labels=dict(labels.get(one.pool, {}))) for one in found]

    async def pools(self) -> list[PoolDocument]:
        queued = await self._ports.queue.pools()
        workers, oldest, labels = await asyncio.gather(
            self._workers_of(queued), self._oldest_ms(queued), pool_labels(self._ports.bus)
        )
        counts = {pool.pool: pool for pool in queued}
        documents: list[PoolDocument] = []
        for name in sorted({*counts, *labels, *(worker.pool for worker in workers)}):
            here = [worker for worker in workers if worker.pool == name]
            pool = counts.get(name, QueuedPool(name, 0, 0, 0))
            documents.append(
                PoolDocument(
                    pool=name,
                    workers=len(here),
                    slots=sum(worker.slots for worker in here),
                    busy=sum(worker.busy for worker in here),
                    queued=pool.queued,
                    running=pool.given,
                    again=pool.again,
                    oldest=iso_or_none(oldest.get(name)),
                    by_priority={str(priority): count for priority, count in pool.by_priority.items()},
                    unreadable=pool.unreadable or None,
                    labels=dict(labels.get(name, {})),
                )
            )
        return documents

    async def partitions(self) -> list[PartitionDocument]:
        views = await self._ports.store.read_partitions()
        # NATS counts by reading: only for what no server counts.
        left = {view.id: view.last_seq for view in views if not view.live}
        counted = await self._ports.log.beyond(left) if left else {}
        return [
            document_from(
                PartitionDocument,
                view,
                partition=view.id,
                folded=view.last_seq,
                behind=counted.get(view.id, view.behind),
            )
            for view in views
        ]

    async def limits(self, limit: int, cursor: str | None, paths: Sequence[str] = ()) -> LimitPage:
        return await limit_page(self._ports.store, limit, cursor, paths)

    async def limit(self, key: str, namespace: str | None = None, paths: Sequence[str] = ()) -> LimitWithSlotsDocument:
        return await limit_with_slots(self._ports.store, key, namespace, paths)

    async def dead_letters(self, limit: int, cursor: str | None) -> DeadLetterPage:
        size = page_size(limit)
        found = await self._ports.dead_letters.page(size + 1, read_cursor(cursor, int))
        letters, following = page_of(found, size, lambda letter: letter.number)
        documents = [_letter_document(letter) for letter in letters]
        return DeadLetterPage(await self._secrets.hide_each(documents), following)

    async def dead_letter(self, letter_id: str) -> DeadLetterWithBodyDocument:
        letter = await self._letter(letter_id)
        shown, body = asdict(_letter_document(letter)), letter.row.body
        try:
            document = DeadLetterWithBodyDocument(**shown, body=body.decode(), encoding="text")
        except UnicodeDecodeError:
            document = DeadLetterWithBodyDocument(**shown, body=base64.b64encode(body).decode(), encoding="base64")
        return await self._secrets.hide(document.execution_id, document)

    async def requeue(self, letter_id: str, by: str, reason: str = "") -> DeadLetterDocument:
        """Publishes a message of EVENTS before its letter is settled, under an id derived from the letter's: a second
        attempt, after a crash or by someone else, publishes nothing twice.
        """
        letter = await self._letter(letter_id)
        _check_requeue(letter)
        row, ports = letter.row, self._ports
        if row.source == "events":
            await ports.log.publish_again(row.execution_id, f"requeue-{row.id}", row.body)
        if not await ports.dead_letters.requeue(letter_id, by, ports.clock.now_ms()):
            raise _settled(await self._letter(letter_id))
        if row.source == "inbox":
            ports.bus.send(subjects.INBOX, codec.encode([row.partition]))
        document = _letter_document(await self._letter(letter_id))
        return await self._secrets.hide(document.execution_id, document)

    async def discard(self, letter_id: str, by: str, reason: str = "") -> None:
        if not await self._ports.dead_letters.discard(letter_id, by, self._ports.clock.now_ms()):
            raise _settled(await self._letter(letter_id))

    async def _workers_of(self, pools: Collection[QueuedPool]) -> list[WorkerPresence]:
        return await workers_of(self._ports.bus, [pool.pool for pool in pools])

    async def _oldest_ms(self, pools: Collection[QueuedPool]) -> dict[str, int]:
        """The oldest command by pool. Of very many pools, only those in which most commands wait."""
        waiting = sorted((pool for pool in pools if pool.queued), key=lambda pool: -pool.queued)
        names = [pool.pool for pool in waiting[: subjects.MOST_POOLS_ASKED]]
        answer = await self._ports.bus.ask(subjects.ASK_OLDEST, codec.encode(names), OLDEST_S) if names else None
        found = None if answer is None else codec.decode_json(answer)
        if not isinstance(found, dict):
            return {}
        return {name: at_ms for name, at_ms in found.items() if isinstance(at_ms, int)}

    async def _letter(self, letter_id: str) -> DeadLetter:
        letter = await self._ports.dead_letters.get(letter_id)
        if letter is None:
            raise NotFound(f"dead letter {letter_id} not found", hint="list them: `noetl-stream dead-letter list`")
        return letter


def _check_requeue(letter: DeadLetter) -> None:
    """Raises :class:`~noetl_stream.errors.Conflict` for a letter that cannot be requeued."""
    row = letter.row
    if letter.state != "waiting":
        raise _settled(letter)
    if row.source == "command":
        raise Conflict(
            f"the step run of command {row.id} has failed, so a copy would be dropped",
            hint=f"when the execution has ended, run the step again: `noetl-stream execution retry {row.execution_id}`",
        )
    if row.size > len(row.body):
        raise Conflict(
            f"only {len(row.body)} of the {row.size} bytes of dead letter {row.id} were stored",
            hint=f"letters larger than {MAX_LETTER_BYTES} bytes can only be discarded",
        )
    if row.source == "events" and not is_valid_id(row.execution_id):
        raise Conflict(
            f"dead letter {row.id} belongs to no execution: {row.subject}",
            hint=f"it can only be discarded: `noetl-stream dead-letter discard {row.id}`",
        )


def _settled(letter: DeadLetter) -> Conflict:
    at = f" at {iso(letter.settled_ms)}" if letter.settled_ms is not None else ""
    return Conflict(f"dead letter {letter.row.id} was {letter.state} by {letter.settled_by}{at}")


def _letter_document(letter: DeadLetter) -> DeadLetterDocument:
    settled_at = iso_or_none(letter.settled_ms)
    return document_from(DeadLetterDocument, letter.row, letter, sequence=letter.row.source_seq, settled_at=settled_at)


class DirectReadiness:
    """A :class:`~noetl_stream.ports.stores.idempotency.Readiness`. Callers are anonymous: no message contains an
    address, and each store is asked once for all concurrent callers.
    """

    def __init__(self, log: EventLog, store: Store, bus: Bus) -> None:
        self._log = log
        self._store = store
        self._bus = bus
        self._probes: SharedLoads[str, list[str]] = SharedLoads()

    async def missing(self) -> list[str]:
        return await self._probes.get("missing", self._probe)

    async def _probe(self) -> list[str]:
        probes = (
            _fault("NATS", self._log.verify()),
            _fault("Postgres", self._store.verify()),
            self._server(),
        )
        return [fault for fault in await asyncio.gather(*probes) if fault is not None]

    async def _server(self) -> str | None:
        try:
            alive = await self._bus.ask(subjects.PING, b"", PROBE_S) is not None
        except NoetlError:
            alive = False
        return None if alive else "no server answers: start one with `noetl-stream server`"


async def _fault(name: str, probe: Awaitable[object]) -> str | None:
    try:
        await asyncio.wait_for(probe, PROBE_S)
    except TimeoutError:
        return f"{name} does not answer within {PROBE_S:g} s"
    except NotReady as error:
        return f"{name} is not prepared" + (f": {error.hint}" if error.hint else "")
    except NoetlError:
        return f"{name} does not answer"
    return None
