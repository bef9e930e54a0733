"""The server's one loop: read what is there, fold, commit one tick, publish, go on (DESIGN §2, PROTOCOL §2)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from noetl_stream.engine.state import RecordedFact
from noetl_stream.errors import (
    Fenced,
    JournalConflict,
    NoetlError,
    NotReady,
    OutcomeUnknown,
    PayloadRefused,
    ReaderBroken,
    StreamLost,
    Unreachable,
)
from noetl_stream.model.events import ExecutionRequested
from noetl_stream.model.ids import PARTITIONS
from noetl_stream.model.limits import DEFAULT_LIMITS, Limits
from noetl_stream.model.messages import Report, Request
from noetl_stream.playbook.kinds.spec import Kinds
from noetl_stream.ports import subjects
from noetl_stream.ports.blobs import Blobs
from noetl_stream.ports.bus import Bus
from noetl_stream.ports.catalog import Catalog
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.command_queue import CommandQueue
from noetl_stream.ports.event_log import EventLog, ReportedMessage
from noetl_stream.ports.feed import FeedStore
from noetl_stream.ports.store import PlaybookRow, Store
from noetl_stream.server.client_requests import first_told, refuse_others
from noetl_stream.server.commit import Committer
from noetl_stream.server.execution_cache import ExecutionCache
from noetl_stream.server.fold import Fold, decode
from noetl_stream.server.inbox import Inbox
from noetl_stream.server.inbox import decode as decode_inbox
from noetl_stream.server.inputs import ServerInputs
from noetl_stream.server.keychain_check import with_credentials
from noetl_stream.server.partitions import OwnedPartition, PartitionOwnership
from noetl_stream.server.plan_cache import PlanCache
from noetl_stream.server.publications import Publications
from noetl_stream.server.reader import MAX_READERS, PartitionReader
from noetl_stream.server.reconcile import OwedCommand, Reconciler
from noetl_stream.server.reruns import RerunLoader
from noetl_stream.server.responders.catalog import CatalogResponder
from noetl_stream.server.responders.requests import RequestResponder
from noetl_stream.server.responders.secrets import SecretsResponder
from noetl_stream.server.tick import PendingTick
from noetl_stream.server.trimming import trim_feed

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerPorts:
    """Everything a server needs from outside. Without ``secrets`` it hands out none, without ``feed`` it trims none."""

    log: EventLog
    queue: CommandQueue
    store: Store
    blobs: Blobs
    bus: Bus
    clock: Clock
    catalog: Catalog
    secrets: SecretsResponder | None = None
    feed: FeedStore | None = None


@dataclass(frozen=True, slots=True)
class ServerTimes:
    """Seconds. A lease is renewed every third of its length; reconcile also runs after every takeover.

    ``mark_s``: how soon what has been published, and how far idle partitions are read, is written down.
    ``feed_keep_s``: how long the whole feed can be gone on from; what is older is trimmed.
    """

    lease_s: float = 6.0
    housekeeping_s: float = 0.5
    mark_s: float = 1.0
    reconcile_s: float = 10.0
    silence_s: float = 7.0
    retry_s: float = 0.5
    feed_keep_s: float = 86_400.0


class Server:
    """Owns partitions and folds their executions. Everything that changes state happens in one task."""

    def __init__(
        self,
        owner: str,
        ports: ServerPorts,
        kinds: Kinds,
        times: ServerTimes | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.owner = owner
        self.times = times or ServerTimes()
        self.ports = ports
        self.plans = PlanCache(ports.store, ports.blobs, kinds, limits)
        self.reading = PartitionReader(ports.log, ports.clock)
        reusing = RerunLoader(ports.store, self.plans)
        self.waits = ServerInputs(ports.store, ports.blobs, ports.clock, reusing, self.reading.nudge)
        self.executions = ExecutionCache(ports.store, self.plans, self._cursor_of, self.waits.note)
        self.fold = Fold(self.executions)
        self.publications = Publications(ports.log, ports.queue, ports.clock)
        self.ownership = PartitionOwnership(
            owner, ports.store, ports.log, partitions=PARTITIONS, lease_s=self.times.lease_s
        )
        self.inbox = Inbox(ports.store, ports.bus, lambda id: self.ownership.get(id) is not None, self.reading.nudge)
        self.committer = Committer(ports, self.ownership, self.publications, self.executions, self.waits, self.inbox)
        catalog = CatalogResponder(ports.catalog)
        self.answers = RequestResponder(ports.bus, ports.store, ports.blobs, self.plans, owner, catalog, ports.secrets)
        self.reconcile = Reconciler(ports.queue, ports.log)
        self._missing: tuple[list[OwedCommand], int] | None = None
        self._in_vain = 0
        self._stopping = asyncio.Event()
        self._housekept_s = self._renewed_s = self._marked_s = self._reconciled_s = float("-inf")
        self._read_since_s = self._abstains_until_s = float("-inf")

    def stop(self) -> None:
        """Ends :meth:`run` after the present tick; leases are given back."""
        self._stopping.set()

    async def run(self) -> None:
        """Works until :meth:`stop`.

        Raises:
            StreamLost, NotReady: what no waiting mends; leases are given back.
            JournalConflict, PayloadRefused: a tick cannot be committed. Leases run out by themselves then, so that the
                next owner can tell a crash from a departure (PROTOCOL §5 *Poison*); so they do after a defect.
        """
        await self.ports.store.verify()
        await self.ports.log.verify()
        await self.ports.queue.verify()
        presence = await self.ports.bus.listen(subjects.SERVERS, self._on_presence)
        await self.inbox.open()
        await self.answers.open()
        trimming = asyncio.ensure_future(trim_feed(self.ports.feed, self.ports.clock, self.times.feed_keep_s))
        in_order = False
        try:
            while not self._stopping.is_set():
                await self._turn()
            in_order = True
        except (StreamLost, NotReady, asyncio.CancelledError):
            in_order = True
            raise
        finally:
            trimming.cancel()
            await self.answers.close()
            await self.inbox.close()
            await presence.close()
            await self.reading.close()
            await self.waits.close()
            if in_order:
                await self._leave()

    async def _turn(self) -> None:
        try:
            now_s = self.ports.clock.monotonic_s()
            if now_s - self._housekept_s >= self.times.housekeeping_s:
                self._housekept_s = now_s
                await self._housekeep(now_s)
            messages = await self.reading.take(self.waits.next_in_s(self.times.housekeeping_s))
            if messages:
                await self._tick(messages)
            await self._fold_inbox()
            await self._fold_waits()
            await self._order_missing()
        except (Fenced, OutcomeUnknown) as error:
            log.warning("a tick failed: %s", error)
            await self._recover()
        except ReaderBroken as error:
            log.info("reading again: %s", error)
            if self.ports.clock.monotonic_s() - self._read_since_s < self.times.retry_s:
                await self.ports.clock.sleep(self.times.retry_s)
            await self._restore(self._read_again)
        except Unreachable as error:
            log.warning("waiting: %s", error)
            await self.ports.clock.sleep(self.times.retry_s)
            await self._recover()

    async def _tick(self, messages: list[ReportedMessage]) -> None:
        tick = PendingTick()
        moved: dict[int, tuple[int, int]] = {}
        bodies = []
        for message in messages:
            owned = self.ownership.get(message.partition)
            if owned is None or message.sequence <= owned.cursor:
                continue
            moved[message.partition] = (message.sequence, message.at_ms)
            body = decode(message, tick)
            if body is not None:
                bodies.append((message, body))
        if not moved:
            return
        bodies = list(await first_told(bodies, self.ports.store))
        await self._prepare(bodies, tick)
        for message, body in bodies:
            self.fold.message(message, body, tick)
        await refuse_others(bodies, self.executions, self.ports.store, tick)
        await self._commit(tick, moved)

    async def _prepare(self, bodies: Collection[tuple[ReportedMessage, Request | Report]], tick: PendingTick) -> None:
        """Everything the fold needs in memory: executions, and the playbooks of new ones."""
        ids = {message.execution_id for message, _ in bodies if self.executions.get(message.execution_id) is None}
        if not ids:
            return
        await self.executions.load(ids)
        for message, body in bodies:
            known_here = self.executions.get(message.execution_id) or self.executions.has_ended(message.execution_id)
            fact = body.fact if isinstance(body, Request) else None
            if known_here or not isinstance(fact, ExecutionRequested):
                continue
            row = await self._begin(message.execution_id, fact.digest)
            if row is not None:
                tick.playbooks[row.digest] = row

    async def _begin(self, execution_id: str, digest: str) -> PlaybookRow | None:
        """A place for an execution that was asked for, with its playbook: the source to keep, if there is one."""
        known = await self.plans.load(digest)
        self.executions.begin(execution_id, await with_credentials(known.plan, self.ports.secrets))
        return known.row

    async def _fold_inbox(self) -> None:
        """What other executions say to those owned here (PROTOCOL §1 *Inbox*)."""
        items = await self.inbox.take(self.ownership.ids)
        if not items:
            return
        tick = PendingTick()
        at_ms = self.waits.now_ms()
        messages = [(item, decode_inbox(item, at_ms, tick)) for item in items]
        await self.executions.load({message.execution_id for _, message in messages if message is not None})
        for item, message in messages:
            tick.inbox_folded.append(item.seq)
            if message is None:
                continue
            known = self.executions.get(message.execution_id) or self.executions.has_ended(message.execution_id)
            if not known and isinstance(message.fact, ExecutionRequested):
                await self._begin(message.execution_id, message.fact.digest)
            self.fold.own_input(message.execution_id, RecordedFact(message.fact, at_ms=at_ms), tick)
        await self._commit(tick, self.committer.standing({item.partition for item in items} | tick.partitions))

    async def _fold_waits(self) -> None:
        """Timers that are due, and results that were looked into."""
        ready = self.waits.ready(self.executions)
        if not ready:
            return
        tick = PendingTick()
        for execution_id, recorded in ready:
            self.fold.own_input(execution_id, recorded, tick)
        if tick.events:
            await self._commit(tick, self.committer.standing(tick.partitions))

    async def _commit(self, tick: PendingTick, moved: dict[int, tuple[int, int]]) -> None:
        self.fold.refuse_oversized(tick)
        try:
            await self.committer.commit(tick, moved)
        except (JournalConflict, PayloadRefused) as error:
            log.error("stopping, a tick of executions %s cannot be committed: %s", ", ".join(tick.touched), error)
            raise

    async def _housekeep(self, now_s: float) -> None:
        self.publications.settle()
        self.ports.bus.send(subjects.SERVERS, self.owner.encode())
        if now_s - self._renewed_s >= self.times.lease_s / 3 and len(self.ownership):
            await self._renew(now_s)
        if now_s - self._marked_s >= self.times.mark_s:
            self._marked_s = now_s
            self.inbox.look_again()
            await self.committer.mark(self.reading.folded_through())
        if now_s >= self._abstains_until_s:
            await self._balance(now_s)
        if now_s - self._reconciled_s >= self.times.reconcile_s and len(self.ownership):
            self._reconciled_s = now_s
            await self.ownership.verify_stream()
            await self._reconcile()

    async def _renew(self, now_s: float) -> None:
        """Renews only leases whose partitions are being read; twice in vain, all are given back (PROTOCOL §2)."""
        self._renewed_s = now_s
        await self.waits.synchronize()
        if self.reading.silent_s(now_s) > self.times.silence_s:
            self._in_vain += 1
            if self._in_vain == 2:
                log.warning("nothing heard from EVENTS for %.0f s: giving all partitions back", self.times.silence_s)
                self._in_vain = 0
                self._abstains_until_s = now_s + self.times.lease_s  # others first: they may hear more
                await self._give_back(list(self.ownership.ids))
            return
        self._in_vain = 0
        lost = await self.ownership.renew()
        if lost:
            log.warning("lost %d partitions to another server", len(lost))
            await self._forget(lost)

    async def _balance(self, now_s: float) -> None:
        share = self.ownership.fair_share(now_s)
        extra = len(self.ownership) - share
        if extra > 0:
            surplus = sorted(self.ownership.ids)[-extra:]
            await self._give_back(surplus)
            log.info("gave back %d partitions, %d left", extra, len(self.ownership))
            return
        taken = await self.ownership.take(share - len(self.ownership))
        if taken:
            log.info("took over %d partitions, %d now", len(taken), len(self.ownership))
            await self._adopt(taken)

    async def _adopt(self, taken: Collection[OwnedPartition]) -> None:
        ids = {owned.id for owned in taken}
        await self.waits.synchronize()
        self.inbox.look_again()
        await self.executions.load_partitions(ids)
        if self.reading.readers >= MAX_READERS:
            await self._read_again()
        else:
            await self.reading.add(ids, min(owned.cursor for owned in taken))
        self._reconciled_s = self.ports.clock.monotonic_s()
        await self._reconcile()

    async def _reconcile(self) -> None:
        """Lists what is owed and missing; :meth:`_order_missing` goes on once the log is folded far enough."""
        candidates = self.reconcile.candidates(self.executions, self.publications.commands_under_way())
        self._missing = await self.reconcile.missing(candidates) if candidates else None

    async def _order_missing(self) -> None:
        """What was missing, and is still owed after the fold to the log's end, is issued again."""
        if self._missing is None or self._folded() < self._missing[1]:
            return
        (missing, _), self._missing = self._missing, None
        tick = PendingTick()
        for owed in missing:
            if self.reconcile.still_owed(self.executions, owed):
                self.fold.order_again(owed.execution_id, owed.command_id, "absent from the queue", tick)
        if tick.events:
            log.info("issued %d commands again", len(tick.commands))
            await self._commit(tick, self.committer.standing(tick.partitions))

    def _folded(self) -> int:
        """The sequence up to which all owned partitions are folded."""
        through = self.reading.folded_through()
        return min((max(owned.cursor, through.get(owned.id, 0)) for owned in self.ownership), default=0)

    async def _recover(self) -> None:
        """After a failed tick, or one of unknown outcome: fold nothing more until the ticks have been read anew."""
        await self.reading.close()
        self.executions.forget_all()
        self.waits.forget()
        self._missing = None
        await self._restore(self._reload)

    async def _restore(self, restore: Callable[[], Awaitable[None]]) -> None:
        """Tries until both stores can be reached."""
        while not self._stopping.is_set():
            try:
                await restore()
                return
            except (Unreachable, ReaderBroken) as error:
                log.warning("waiting: %s", error)
                await self.ports.clock.sleep(self.times.retry_s)

    async def _reload(self) -> None:
        await self.ownership.reload()
        await self._read_again()

    async def _read_again(self) -> None:
        await self.reading.close()
        self._read_since_s = self.ports.clock.monotonic_s()
        await self.ownership.verify_stream()
        if len(self.ownership):
            await self.executions.load_partitions(set(self.ownership.ids))
            await self.reading.add(self.ownership.ids, min(owned.cursor for owned in self.ownership))
            self._reconciled_s = float("-inf")

    async def _give_back(self, partitions: Collection[int]) -> None:
        await self.publications.drain(self.times.lease_s / 3)
        await self.ownership.give_back(partitions, self.committer.published(partitions))
        await self._forget(partitions)

    async def _forget(self, partitions: Collection[int]) -> None:
        self.executions.forget_partitions(partitions)
        await self.reading.drop(partitions)

    async def _leave(self) -> None:
        try:
            await self._give_back(list(self.ownership.ids))
        except NoetlError as error:
            log.warning("leases not given back, they run out by themselves: %s", error)

    def _cursor_of(self, partition: int) -> int:
        owned = self.ownership.get(partition)
        return owned.cursor if owned is not None else 0

    async def _on_presence(self, subject: str, body: bytes, reply: str) -> None:
        self.ownership.heard_of(body.decode(errors="replace"), self.ports.clock.monotonic_s())
