"""The command queue on the JetStream stream COMMANDS: issuing, listing and withdrawing."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from noetl_stream.adapters.nats.api_errors import CHECK_UNDER_WAY, STORE_REFUSED, WRONG_LAST_SEQUENCE
from noetl_stream.adapters.nats.commands.command_source import ACK_WAIT_S, NatsCommandSource
from noetl_stream.adapters.nats.commands.fences import Turns, fence_headers, raise_fences
from noetl_stream.adapters.nats.commands.pool_consumer import (
    consumer_of,
    find_consumer,
    make_consumer,
    make_consumer_of_priority,
    pool_in,
)
from noetl_stream.adapters.nats.commands.priority_requests import LOOK_AGAIN_S
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.outbox import MESSAGE_ID, RESEND_AFTER_S, HeldBatch, Outbox, OutboxPort, PendingPublish
from noetl_stream.adapters.nats.protocol import ApiError, PublishAck, milliseconds
from noetl_stream.adapters.nats.streams import (
    ConsumerInfo,
    list_consumers,
    stored_message,
    stream_info,
    verify_stream,
)
from noetl_stream.concurrency import for_each, start_among
from noetl_stream.errors import NoetlError, UsageError
from noetl_stream.model.ids import partition_of
from noetl_stream.model.priorities import DEFAULT_PRIORITY
from noetl_stream.ports.streams.command_queue import QueuedCommand, QueuedPool
from noetl_stream.protocol.subjects import (
    COMMANDS,
    FENCES,
    command_in,
    command_patterns,
    command_subject,
    commands_of,
    place_in_queue,
)
from noetl_stream.retries import pauses

log = logging.getLogger(__name__)

PURGES_AT_ONCE = 64
PASSED_OVER_AT_ONCE = 1_000
"""The number of commands passed over by consumers that are issued again at once."""
LOOKUP_AGAIN_AFTER_S = 0.5
SCANNED_COMMANDS = 1_000
"""The length up to which the queue is scanned whenever its pools are listed: 10,000 commands would take 50 ms."""

_ALREADY_THERE = "maximum messages per subject exceeded"


class NatsCommandQueue(OutboxPort):
    """:class:`~noetl_stream.ports.streams.command_queue.CommandQueue` over COMMANDS; the port documents each method."""

    def __init__(self, connection: NatsConnection, outbox: Outbox, ack_wait_s: float, look_again_s: float) -> None:
        super().__init__(connection, outbox)
        self._turns = Turns(outbox)
        self._ack_wait_s = ack_wait_s
        self._look_again_s = look_again_s
        self._has_consumer: set[tuple[str, int]] = set()

    @classmethod
    async def open(
        cls,
        connection: NatsConnection,
        *,
        acknowledge_within_s: float = RESEND_AFTER_S,
        ack_wait_s: float = ACK_WAIT_S,
        look_again_s: float = LOOK_AGAIN_S,
    ) -> NatsCommandQueue:
        """Opens the command queue.

        Args:
            acknowledge_within_s: The time without an answer after which a command is sent again.
            ack_wait_s: The lease of a delivery.
            look_again_s: See :data:`~noetl_stream.adapters.nats.commands.priority_requests.LOOK_AGAIN_S`.
        """
        outbox = await Outbox.open(connection, resend_after_s=acknowledge_within_s)
        return cls(connection, outbox, ack_wait_s, look_again_s)

    def issue(self, commands: Sequence[QueuedCommand], fences: Mapping[int, int]) -> Awaitable[Collection[int]]:
        """Publishes commands. A copy already in the queue, of any issue, counts as acknowledged.

        Commands wait for the consumer of their priority: without one, workers would not see them.
        """
        others = {(one.pool, one.priority) for one in commands if one.priority != DEFAULT_PRIORITY}
        if others <= self._has_consumer:
            return self._issue(commands, fences)
        return asyncio.ensure_future(self._issue_with_consumers(commands, fences, others))

    async def _issue_with_consumers(
        self, commands: Sequence[QueuedCommand], fences: Mapping[int, int], wanted: Collection[tuple[str, int]]
    ) -> Collection[int]:
        usable = {place for place in wanted if await self._ensure_consumer(*place)}
        placed = [
            one if (one.pool, one.priority) in usable else replace(one, priority=DEFAULT_PRIORITY) for one in commands
        ]
        return await self._issue(placed, fences)

    async def _ensure_consumer(self, pool: str, priority: int) -> bool:
        """Returns whether commands of the pool may have this priority; waits without limit for the answer."""
        place, waits = (pool, priority), pauses(LOOKUP_AGAIN_AFTER_S)
        while place not in self._has_consumer:
            try:
                if not await make_consumer_of_priority(self._connection, pool, priority, self._ack_wait_s):
                    return False
                self._has_consumer.add(place)
            except UsageError:
                return False  # the subject of the command is refused
            except NoetlError as error:
                log.warning("pool %s has no queue for priority %d yet: %s", pool, priority, error)
                await asyncio.sleep(next(waits))
        return True

    def _issue(self, commands: Sequence[QueuedCommand], fences: Mapping[int, int]) -> Awaitable[Collection[int]]:
        batch = _Issue(self._outbox, self._turns, self._connection)
        for command in commands:
            partition = partition_of(command.execution_id)
            batch.add(command, partition, fences.get(partition, 0))
        return batch.seal()

    async def fence(self, owner: str, epochs: Mapping[int, int]) -> dict[int, int]:
        """Fences the queue for partitions.

        Raises:
            StoreMissing: the stream does not exist.
            Unreachable: no answer in time; some fences may be new.
        """
        return await raise_fences(self._connection, self._outbox, owner, epochs)

    async def add_pool(self, pool: str) -> None:
        """Makes the pool's durable consumer.

        Raises:
            StoreMissing: the stream does not exist.
            UsageError: the pool's name is not valid.
            Unreachable: no answer in time.
        """
        await make_consumer(self._connection, pool, self._ack_wait_s)

    async def open_source(self, pool: str) -> NatsCommandSource:
        """Opens the source of a pool's commands.

        Raises:
            UsageError: the pool's name is not valid.
            Unreachable: no answer in time, or no server has made the pool's consumer.
        """
        return await NatsCommandSource.open(self._connection, pool, look_again_s=self._look_again_s)

    async def reach(self, pool: str) -> None:
        await find_consumer(self._connection, pool)

    async def present(self, *, mends: bool = False) -> dict[str, str]:
        """Lists the commands in the queue. Above 100,000 NATS answers in pages, between which the queue may change. A
        command missed that way is reissued, and its claim removes it.
        """
        if mends:
            consumers = [one async for *_, one in self._consumers()]
            await self._purge_to_consumers(consumers)
            await self._purge_passed_over(consumers)
        found: dict[str, str] = {}
        places: set[tuple[str, int]] = set()
        async for subject in self._subjects():
            execution_id, command_id = command_in(subject)
            found[command_id] = execution_id
            places.add(place_in_queue(subject))
        # A deleted consumer is made again; otherwise nobody would get the commands there.
        for pool, priority in places:
            if priority != DEFAULT_PRIORITY:
                try:
                    await make_consumer_of_priority(self._connection, pool, priority, self._ack_wait_s)
                except NoetlError as error:
                    log.warning("pool %s may have no queue for priority %d: %s", pool, priority, error)
        return found

    async def _purge_to_consumers(self, consumers: Iterable[ConsumerInfo]) -> None:
        """Purges the stream up to what a consumer has delivered, if that is beyond its end: NATS has lost that end, and
        assigns its sequences again, which the consumer would pass over.
        """
        delivered = max((one.delivered.stream_seq for one in consumers), default=0)
        if delivered <= await self._last_sequence():
            return
        await asyncio.sleep(LOOKUP_AGAIN_AFTER_S)  # the leader of a consumer may be ahead of the stream's for a moment
        if delivered > (last := await self._last_sequence()):
            log.error(
                "COMMANDS ends at %d, and a consumer has delivered up to %d: NATS has lost its end. "
                "It is purged, and what it lacks is issued again",
                last,
                delivered,
            )
            await self._connection.api(f"STREAM.PURGE.{COMMANDS}", {"seq": delivered + 1})

    async def _purge_passed_over(self, consumers: Iterable[ConsumerInfo]) -> None:
        """Purges the commands that their consumer has passed over, since the stream has grown beyond it again."""
        passed = await self._passed_over(consumers)
        if not passed:
            return
        await asyncio.sleep(LOOKUP_AGAIN_AFTER_S)  # a command that was just acknowledged stays for a moment
        for subject in passed & await self._passed_over([one async for *_, one in self._consumers()]):
            log.error("%s was passed over by its consumer: NATS had lost its place. It is issued again", subject)
            await self._connection.api(f"STREAM.PURGE.{COMMANDS}", {"filter": subject})

    async def _passed_over(self, consumers: Iterable[ConsumerInfo]) -> set[str]:
        """Returns the commands, by subject, that are stored before the position up to which their consumer is done."""
        found: set[str] = set()
        for one in consumers:
            done = one.ack_floor.stream_seq if one.num_ack_pending else one.delivered.stream_seq
            for pattern in one.subjects:
                following = 1
                while len(found) < PASSED_OVER_AT_ONCE:
                    wanted = {"seq": following, "next_by_subj": pattern}
                    stored = await stored_message(self._connection, COMMANDS, wanted)
                    if stored is None or stored.seq > done:
                        break
                    found.add(stored.subject)
                    following = stored.seq + 1
        return found

    async def _last_sequence(self) -> int:
        return (await stream_info(self._connection, COMMANDS)).state.last_seq

    async def pools(self) -> list[QueuedPool]:
        """Lists the pools' consumers. A pool that never had a worker has no consumer: the queue is scanned if it is
        short, or has commands that no consumer counts. What consumers count as leased alone would not do: withdrawn
        commands stay in it until their lease ends.
        """
        found: dict[str, QueuedPool] = {}
        waiting: dict[str, Counter[int]] = defaultdict(Counter)
        offline: dict[str, str] = {}
        async for pool, priority, one in self._consumers(offline):
            before = found.get(pool, QueuedPool(pool, 0, 0, 0))
            found[pool] = QueuedPool(
                pool,
                before.queued + one.num_pending,
                before.given + one.num_ack_pending,
                before.again + one.num_redelivered,
            )
            waiting[pool][priority] += one.num_pending
        unread = {place[0]: f"consumer {name}: {why}" for name, why in offline.items() if (place := pool_in(name))}
        if unread:  # NATS reports nothing else of such a stream
            found |= {pool: QueuedPool(pool, 0, 0, 0, unreadable=why) for pool, why in unread.items()}
            return [found[pool] for pool in sorted(found)]
        state = (await stream_info(self._connection, COMMANDS, {"subjects_filter": FENCES})).state
        stored = state.messages - len(state.subjects or {})
        if stored <= SCANNED_COMMANDS or stored > sum(pool.queued + pool.given for pool in found.values()):
            stored_in = Counter([place_in_queue(subject) async for subject in self._subjects()])
            for (pool, priority), count in stored_in.items():
                if pool not in found:
                    waiting[pool][priority] += count
            found |= {
                pool: QueuedPool(pool, counts.total(), 0, 0) for pool, counts in waiting.items() if pool not in found
            }
        highest_first = {
            pool: {priority: count for priority, count in sorted(counts.items(), reverse=True) if count}
            for pool, counts in waiting.items()
        }
        return [replace(found[pool], by_priority=highest_first[pool]) for pool in sorted(found)]

    async def oldest_queued_ms(self, pools: Collection[str]) -> dict[str, int]:
        """Returns the time at which the oldest undelivered command of each pool was queued, by consumer."""
        delivered: dict[str, dict[int, int]] = {pool: {DEFAULT_PRIORITY: 0} for pool in pools if consumer_of(pool)}
        async for pool, priority, one in self._consumers():
            if pool in delivered:
                delivered[pool][priority] = one.delivered.stream_seq
        found: dict[str, int] = {}

        async def read(place: tuple[str, int]) -> None:
            pool, priority = place
            is_alone = len(delivered[pool]) == 1
            pattern = f"noetl.commands.{pool}.>" if is_alone else commands_of(pool, priority)
            wanted = {"seq": delivered[pool][priority] + 1, "next_by_subj": pattern}
            stored = await stored_message(self._connection, COMMANDS, wanted)
            if stored is not None:
                at_ms = milliseconds(stored.time)
                found[pool] = min(at_ms, found.get(pool, at_ms))

        await for_each([(pool, priority) for pool, known in delivered.items() for priority in known], read)
        return found

    async def _consumers(self, offline: dict[str, str] | None = None) -> AsyncIterator[tuple[str, int, ConsumerInfo]]:
        """Lists the pools' consumers, with pool and priority. ``offline``: see :func:`list_consumers`."""
        async for one in list_consumers(self._connection, COMMANDS, offline=offline):
            place = pool_in(one.name)
            if place is not None:
                yield *place, one

    async def _subjects(self) -> AsyncIterator[str]:
        offset = 0
        while True:
            request = {"subjects_filter": "noetl.commands.>", "offset": offset}
            listing = await stream_info(self._connection, COMMANDS, request)
            subjects = listing.state.subjects or {}
            for subject in subjects:
                yield subject
            offset += len(subjects)
            if not subjects or offset >= listing.total:
                return

    async def withdraw(self, commands: Collection[tuple[str, str]]) -> None:
        """Removes commands from the queue.

        Raises:
            Unreachable: no answer in time; some commands may be gone.
        """
        free = asyncio.Semaphore(PURGES_AT_ONCE)

        async def purge(subject: str) -> None:
            async with free:
                await self._connection.api(f"STREAM.PURGE.{COMMANDS}", {"filter": subject})

        subjects = {pattern for command in commands for pattern in command_patterns(*command)}
        await asyncio.gather(*(purge(subject) for subject in sorted(subjects)))

    async def verify(self) -> None:
        await verify_stream(self._connection, COMMANDS)


class _Issue(HeldBatch[set[int]]):
    """Commands being published. The result is the partitions whose fence has changed.

    If JetStream calls a later issue a duplicate, the queue is checked: its deduplication remembers ids of messages that
    are gone (PROTOCOL §2). If the command is gone, it is stored again under another Msg-Id; that duplicates no work,
    because a copy of a later issue must be claimed before it runs. A first issue is left to reconcile, because its copy
    would run without a claim.
    """

    def __init__(self, outbox: Outbox, turns: Turns, connection: NatsConnection) -> None:
        super().__init__(outbox, set())
        self._turns = turns
        self._connection = connection
        self._issues: dict[str, int] = {}
        self._lookups: set[asyncio.Task[None]] = set()

    def add(self, command: QueuedCommand, partition: int, fence: int) -> None:
        message_id = f"{command.command_id}.{command.issue}"
        self._issues[message_id] = command.issue
        self._missing += 1
        headers = {MESSAGE_ID: message_id, **fence_headers(partition, fence)}
        subject = command_subject(command.pool, command.execution_id, command.command_id, command.priority)
        self._turns.put(subject, command.body, headers, self)

    def on_acknowledged(self, sent: PendingPublish, ack: PublishAck) -> None:
        self._turns.send_next(sent)
        if ack.duplicate and self._issues[sent.headers[MESSAGE_ID]] > 1:
            start_among(self._lookups, self._look_up(sent, ack))
        else:
            super().on_acknowledged(sent, ack)

    def on_refused(self, sent: PendingPublish, error: ApiError) -> bool:
        if error.err_code in CHECK_UNDER_WAY:
            self._turns.send_later(sent)
            return False
        is_there = error.err_code == STORE_REFUSED and error.description == _ALREADY_THERE
        if not is_there and error.err_code != WRONG_LAST_SEQUENCE:
            return super().on_refused(sent, error)
        if not is_there:
            self._result.add(partition_of(sent.subject.split(".")[4]))
        self._turns.send_next(sent)
        super().on_acknowledged(sent, PublishAck(duplicate=is_there))
        return False

    async def _look_up(self, sent: PendingPublish, ack: PublishAck) -> None:
        waits = pauses(LOOKUP_AGAIN_AFTER_S)
        while not self.all_acknowledged.done():
            try:
                stored = await stored_message(self._connection, COMMANDS, {"last_by_subj": sent.subject})
            except NoetlError:
                await asyncio.sleep(next(waits))
                continue
            if stored is not None:
                super().on_acknowledged(sent, ack)
                return
            first_id = sent.headers[MESSAGE_ID].partition(".after-")[0]
            again = f"{first_id}.after-{ack.seq}"
            self._issues[again] = self._issues[first_id]
            self._turns.put(sent.subject, sent.body, {**sent.headers, MESSAGE_ID: again}, self)
            return
