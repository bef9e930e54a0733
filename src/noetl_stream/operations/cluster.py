"""Servers, workers, pools, partitions, limits by key, dead letters and readiness, directly on NATS and Postgres, and by
the reports of servers and workers about themselves.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec.structs import asdict

from noetl_stream.concurrency import SharedLoads
from noetl_stream.errors import Conflict, NoetlError, NotFound, NotReady, PayloadRefused
from noetl_stream.model.aggregates import LIMIT, LimitSlot, LimitState, limit_id
from noetl_stream.model.aggregates.key_limits import row_key
from noetl_stream.model.envelope import iso, iso_or_none
from noetl_stream.model.ids import is_valid_id
from noetl_stream.model.json import codec
from noetl_stream.model.messages import MemoryUse, WorkerPresence
from noetl_stream.model.rights import covers
from noetl_stream.operations.paging import page_of, page_size, read_cursor
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations import cluster as answers
from noetl_stream.ports.operations.verbs import document_from
from noetl_stream.ports.stores.aggregates import AggregateRow, LimitSlotRow
from noetl_stream.ports.stores.dead_letters import MAX_LETTER_BYTES, DeadLetter, DeadLetters
from noetl_stream.ports.stores.idempotency import Living
from noetl_stream.ports.stores.store import Store
from noetl_stream.ports.streams.bus import Bus
from noetl_stream.ports.streams.command_queue import CommandQueue, QueuedPool
from noetl_stream.ports.streams.event_log import EventLog
from noetl_stream.protocol import subjects
from noetl_stream.storage.used_secrets import UsedSecrets

log = logging.getLogger(__name__)

WAIT_S: Final = 0.3
"""The time in which answers are collected."""

_Answer = TypeVar("_Answer")


async def server_uses(bus: Bus) -> list[MemoryUse]:
    """The memory that each server reports."""
    return await _answers(bus, subjects.ASK_MEMORY, codec.decode_memory_use)


async def pool_labels(bus: Bus) -> Mapping[str, Mapping[str, str]]:
    """The labels of pools reported by servers; where they differ, those of the last server by name."""
    said = sorted(await server_uses(bus), key=lambda server: server.process)
    return {pool: labels for server in said for pool, labels in server.pool_labels.items()}


async def workers_of(bus: Bus, pools: Collection[str]) -> list[WorkerPresence]:
    """The workers of these pools, by pool and name. One that names another pool than the requested one is omitted."""
    asked = [_answers(bus, f"{subjects.ASK_WORKERS}.{pool}", codec.decode_presence) for pool in pools]
    answered = zip(pools, await asyncio.gather(*asked), strict=True)
    found = [worker for pool, workers in answered for worker in workers if worker.pool == pool]
    return sorted(found, key=lambda worker: (worker.pool, worker.name))


async def _answers(bus: Bus, subject: str, decode: Callable[[bytes], _Answer]) -> list[_Answer]:
    found = []
    for answer in await bus.ask_all(subject, b"", WAIT_S):
        try:
            found.append(decode(answer))
        except PayloadRefused as error:
            log.warning("cannot read an answer on %s: %s", subject, error)
    return found


class DirectMemory:
    """:class:`~noetl_stream.ports.stores.idempotency.Memory` of all processes, over NATS, shared by callers."""

    def __init__(self, queue: CommandQueue, bus: Bus) -> None:
        self._queue = queue
        self._bus = bus
        self._asked: SharedLoads[str, list[MemoryUse]] = SharedLoads()

    async def uses(self) -> list[MemoryUse]:
        return await self._asked.get("uses", self._ask_all)

    async def _ask_all(self) -> list[MemoryUse]:
        try:
            pools = [pool.pool for pool in await self._queue.pools()]
            uses, workers = await asyncio.gather(server_uses(self._bus), workers_of(self._bus, pools))
        except NoetlError as error:
            log.debug("cannot see what others hold in memory: %s", error)
            return []
        return [*uses, *(MemoryUse("worker", one.name, {"commands": one.held_bytes}) for one in workers)]


COUNT_S: Final = 2.0
"""The time in which Postgres must count."""

KEPT_S: Final = 5.0
"""The time for which a count, which reads each unfinished execution, is kept."""

MOST_STUCK: Final = 100
MOST_LETTERS: Final = 100


class DirectLiving:
    """:class:`~noetl_stream.ports.stores.idempotency.LivingExecutions`, counted once for all concurrent callers.

    Args:
        kept_s: The time for which a count is kept.
    """

    def __init__(self, store: Store, letters: DeadLetters, clock: Clock, kept_s: float = KEPT_S) -> None:
        self._kept_s = kept_s
        self._store = store
        self._letters = letters
        self._clock = clock
        self._counts: SharedLoads[str, Living | None] = SharedLoads()
        self._last: Living | None = None
        self._counted_s = float("-inf")

    async def count(self) -> Living | None:
        if self._clock.monotonic_s() - self._counted_s < self._kept_s:
            return self._last
        return await self._counts.get("", self._count)

    async def _count(self) -> Living | None:
        store, letters = self._store, self._letters.page(MOST_LETTERS, None)
        found = asyncio.gather(store.living_by_status(), store.stuck(MOST_STUCK), letters)
        try:
            by_status, stuck, waiting = await asyncio.wait_for(found, COUNT_S)
        except (NoetlError, TimeoutError) as error:
            log.debug("cannot count the living executions: %s", error)
            return None
        sources = Counter(letter.row.source for letter in waiting)
        self._last, self._counted_s = Living(by_status, len(stuck), sources), self._clock.monotonic_s()
        return self._last


SLOTS_SHOWN: Final = 100
"""The most shown holders of a key, and the most shown waiters."""

NAMESPACES_NAMED: Final = 20
"""The most limits with a key of one name."""

ROWS_READ: Final = 1_000
"""The rows that are read to find the namespaces of a key, and at once for a restricted caller."""

PAGES_READ: Final = 10
"""The rows that are read for one page of a restricted caller."""

HOLDERS_NAMED: Final = 10
"""The rows that are read up to a waiter."""

SLOTS_EXPLAINED: Final = 50
"""The most awaited slots of an execution whose place is shown."""


async def limit_page(store: Store, limit: int, cursor: str | None, paths: Sequence[str] = ()) -> answers.LimitPage:
    """A page of the keys in use, without those that a caller with these ``paths`` may not see."""
    size, after = page_size(limit), read_cursor(cursor, str)
    at_once, seen = ROWS_READ if paths else size + 1, list[tuple[str, LimitState]]()
    for _ in range(PAGES_READ):
        rows = await store.list_aggregates(LIMIT, "", at_once, after)
        seen += [(row.key, state) for row in rows if _is_seen(state := _state(row), paths)]
        if len(seen) > size or len(rows) < at_once:
            break
        after = rows[-1].key
    # The cursor names the last limit that is shown: another one might have a key that the caller may not see.
    shown, following = page_of(seen[: size + 1], size, lambda one: one[0])
    return answers.LimitPage([_document(state, paths) for _, state in shown], following)


async def limit_with_slots(
    store: Store, key: str, namespace: str | None = None, paths: Sequence[str] = ()
) -> answers.LimitWithSlotsDocument:
    """A key in use, with its holders and waiters, as far as a caller with these ``paths`` may see it.

    Raises:
        NotFound: it is not in use.
        Conflict: it is in use in several namespaces, and none is given.
    """
    state = await _find_limit(store, key, namespace, paths)
    id = limit_id(key, state.namespace)
    holders, waiting = await asyncio.gather(
        store.limit_slots_page(id, True, SLOTS_SHOWN), store.limit_slots_page(id, False, SLOTS_SHOWN)
    )
    return document_from(
        answers.LimitWithSlotsDocument,
        _document(state, paths),
        holders=_slots(holders, paths),
        waiting=_slots(waiting, paths),
    )


async def _find_limit(store: Store, key: str, namespace: str | None, paths: Sequence[str]) -> LimitState:
    """The limit of a key in this namespace, or in the only one that has it."""
    found = await _limits_named(store, key) if namespace is None else await _limits_of(store, key, namespace)
    seen = [state for state in found if _is_seen(state, paths)]
    if not seen:
        hint = "keys in use: `noetl-stream limit list`"
        raise NotFound(f"nobody holds key {key}, and nobody waits for it", hint=hint)
    if len(seen) > 1:
        names = ", ".join(state.namespace or "none, as they share it" for state in seen[:NAMESPACES_NAMED])
        hint = "say which: --namespace on the command line, `namespace` over HTTP; empty for that which they share"
        raise Conflict(f"key {key} is in use in {len(seen)} namespaces: {names}", hint=hint)
    return seen[0]


async def _limits_of(store: Store, key: str, namespace: str) -> list[LimitState]:
    rows = await store.aggregates([limit_id(key, namespace)])
    return [_state(row) for row in rows.values()]


async def _limits_named(store: Store, key: str) -> list[LimitState]:
    """The limits of a key in all namespaces, except in case of more than :data:`ROWS_READ` keys with this prefix."""
    shared = await _limits_of(store, key, "")
    rows = await store.list_aggregates(LIMIT, row_key(key), ROWS_READ, None)
    named = (_state(row) for row in rows)
    return shared + [state for state in named if state.key == key and state.namespace]


async def awaited_slots(
    store: Store, execution_id: str, paths: Sequence[str] = ()
) -> Mapping[str, answers.AwaitedSlotDocument]:
    """The slots that an execution waits for, by step run, those of tasks by their own ids; ``""`` for that of the whole
    execution. A caller with these ``paths`` sees only its own among their holders.
    """
    placed = [(one.place, one.row) for one in await store.limit_slots_of(execution_id, SLOTS_EXPLAINED) if one.place]
    ids = {row.limit_id for _, row in placed}
    if not ids:
        return {}
    limits = await store.aggregates(ids)
    pages = await asyncio.gather(*(store.limit_slots_page(id, True, HOLDERS_NAMED) for id in limits))
    holders = dict(zip(limits, pages, strict=True))
    found = {}
    for place, row in placed:
        if (limit := limits.get(row.limit_id)) is not None:
            slot, document = codec.decode_as(LimitSlot, row.body), _document(_state(limit), paths)
            held_by = _slots(holders[row.limit_id], paths)
            found[slot.slot_id or slot.step_run_id] = document_from(
                answers.AwaitedSlotDocument, document, place=place, holders=held_by
            )
    return found


def _state(row: AggregateRow) -> LimitState:
    return codec.decode_as(LimitState, row.state)


def _is_seen(state: LimitState, paths: Sequence[str]) -> bool:
    """Whether a caller with these paths sees the limit: they cover its namespace, or a playbook that uses it."""
    is_own = bool(state.namespace) and covers(paths, state.namespace)
    return not paths or is_own or any(covers(paths, path) for path in (state.set_by, *state.used_by))


def _document(state: LimitState, paths: Sequence[str] = ()) -> answers.LimitDocument:
    is_own = bool(state.namespace) and covers(paths, state.namespace)
    return document_from(
        answers.LimitDocument,
        state,
        set_at=iso(state.set_ms),
        set_by=state.set_by if covers(paths, state.set_by) else "",
        replaced=state.replaced if is_own or not paths else "",  # it names playbooks
        used_by=[path for path in state.used_by if covers(paths, path)],
        next_at=iso_or_none(state.timer_ms or None if state.queued and not state.catching_up else None),
    )


def _slots(rows: Sequence[LimitSlotRow], paths: Sequence[str]) -> list[answers.SlotDocument]:
    """The slots whose executions a caller with these paths may see."""
    slots = (codec.decode_as(LimitSlot, row.body) for row in rows)
    return [_slot(slot) for slot in slots if covers(paths, slot.path)]


def _slot(slot: LimitSlot) -> answers.SlotDocument:
    named = {"step": slot.step or None, "step_run_id": slot.step_run_id or None, "task": slot.task or None}
    return document_from(answers.SlotDocument, slot, since=iso(slot.granted_ms or slot.asked_ms), **named)


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

    async def workers(self) -> list[answers.WorkerDocument]:
        async def workers() -> Sequence[WorkerPresence]:
            return await self._workers_of(await self._ports.queue.pools())

        # Both wait a fixed time for all answers, hence at once.
        found, labels = await asyncio.gather(workers(), pool_labels(self._ports.bus))
        return [document_from(answers.WorkerDocument, one, labels=dict(labels.get(one.pool, {}))) for one in found]

    async def pools(self) -> list[answers.PoolDocument]:
        queued = await self._ports.queue.pools()
        workers, oldest, labels = await asyncio.gather(
            self._workers_of(queued), self._oldest_ms(queued), pool_labels(self._ports.bus)
        )
        counts = {pool.pool: pool for pool in queued}
        documents: list[answers.PoolDocument] = []
        for name in sorted({*counts, *labels, *(worker.pool for worker in workers)}):
            here = [worker for worker in workers if worker.pool == name]
            pool = counts.get(name, QueuedPool(name, 0, 0, 0))
            documents.append(
                answers.PoolDocument(
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

    async def partitions(self) -> list[answers.PartitionDocument]:
        views = await self._ports.store.read_partitions()
        # NATS counts by reading: only for what no server counts.
        left = {view.id: view.last_seq for view in views if not view.live}
        counted = await self._ports.log.beyond(left) if left else {}
        return [
            document_from(
                answers.PartitionDocument,
                view,
                partition=view.id,
                folded=view.last_seq,
                behind=counted.get(view.id, view.behind),
            )
            for view in views
        ]

    async def limits(self, limit: int, cursor: str | None, paths: Sequence[str] = ()) -> answers.LimitPage:
        return await limit_page(self._ports.store, limit, cursor, paths)

    async def limit(
        self, key: str, namespace: str | None = None, paths: Sequence[str] = ()
    ) -> answers.LimitWithSlotsDocument:
        return await limit_with_slots(self._ports.store, key, namespace, paths)

    async def dead_letters(self, limit: int, cursor: str | None) -> answers.DeadLetterPage:
        size = page_size(limit)
        found = await self._ports.dead_letters.page(size + 1, read_cursor(cursor, int))
        letters, following = page_of(found, size, lambda letter: letter.number)
        documents = [_letter_document(letter) for letter in letters]
        return answers.DeadLetterPage(await self._secrets.hide_each(documents), following)

    async def dead_letter(self, letter_id: str) -> answers.DeadLetterWithBodyDocument:
        letter = await self._letter(letter_id)
        shown, body = asdict(_letter_document(letter)), letter.row.body
        try:
            document = answers.DeadLetterWithBodyDocument(**shown, body=body.decode(), encoding="text")
        except UnicodeDecodeError:
            document = answers.DeadLetterWithBodyDocument(
                **shown, body=base64.b64encode(body).decode(), encoding="base64"
            )
        return await self._secrets.hide(document.execution_id, document)

    async def requeue(self, letter_id: str, by: str, reason: str = "") -> answers.DeadLetterDocument:
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
        hint = f"when the execution has ended, run the step again: `noetl-stream execution retry {row.execution_id}`"
        raise Conflict(f"the step run of command {row.id} has failed, so a copy would be dropped", hint=hint)
    if row.size > len(row.body):
        hint = f"letters larger than {MAX_LETTER_BYTES} bytes can only be discarded"
        raise Conflict(f"only {len(row.body)} of the {row.size} bytes of dead letter {row.id} were stored", hint=hint)
    if row.source == "events" and not is_valid_id(row.execution_id):
        hint = f"it can only be discarded: `noetl-stream dead-letter discard {row.id}`"
        raise Conflict(f"dead letter {row.id} belongs to no execution: {row.subject}", hint=hint)


def _settled(letter: DeadLetter) -> Conflict:
    at = f" at {iso(letter.settled_ms)}" if letter.settled_ms is not None else ""
    return Conflict(f"dead letter {letter.row.id} was {letter.state} by {letter.settled_by}{at}")


def _letter_document(letter: DeadLetter) -> answers.DeadLetterDocument:
    settled_at = iso_or_none(letter.settled_ms)
    return document_from(
        answers.DeadLetterDocument, letter.row, letter, sequence=letter.row.source_seq, settled_at=settled_at
    )


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
