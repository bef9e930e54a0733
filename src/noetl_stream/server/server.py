"""The server's main loop: read, fold, commit one tick, publish (DESIGN §2, PROTOCOL §2)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Final

from noetl_stream.concurrency import end_tasks, result_until
from noetl_stream.engine.advance import UNLOADED, InvalidPlan, Unloaded
from noetl_stream.engine.effects import SendMessage, ended_message
from noetl_stream.engine.state import RecordedFact
from noetl_stream.errors import (
    Fenced,
    JournalConflict,
    NewerFormat,
    NotReady,
    OutcomeUnknown,
    PayloadRefused,
    ReaderBroken,
    RequestAnswered,
    StreamLost,
    Unreachable,
)
from noetl_stream.model import codec
from noetl_stream.model.aggregates import StreamEventRead, StreamSeen, is_aggregate
from noetl_stream.model.events import ExecutionRequested, Origin
from noetl_stream.model.ids import partition_of
from noetl_stream.model.limits import DEFAULT_LIMITS, Limits
from noetl_stream.model.messages import AggregateRequest, Request
from noetl_stream.model.status import ENDED
from noetl_stream.playbook.compile.compiler import Checker, check_again
from noetl_stream.playbook.kinds.spec import Kinds
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports import subjects
from noetl_stream.ports.event_log import ReportedMessage
from noetl_stream.ports.limits import LEFT_AT_ONCE
from noetl_stream.ports.reaching import until_reached
from noetl_stream.ports.store import InboxItem, PlaybookRow
from noetl_stream.server.aggregates.aggregates import DueTimer
from noetl_stream.server.aggregates.stream_readers import StreamInput
from noetl_stream.server.answers.credentials import with_credentials
from noetl_stream.server.answers.grants import granted
from noetl_stream.server.answers.responder import RequestResponder
from noetl_stream.server.answers.schemas import with_schemas
from noetl_stream.server.formats import Formats
from noetl_stream.server.inputs.client_requests import (
    Bodies,
    before,
    reject_unanswered,
    reject_unreadable,
    without_repeated,
    without_unsigned,
)
from noetl_stream.server.inputs.inputs import Input as OwnInput
from noetl_stream.server.inputs.quarantine import InputKind, Quarantine
from noetl_stream.server.memory.execution_cache import LOADED_AT_ONCE, OwedCommand
from noetl_stream.server.memory.plan_cache import KnownPlaybook, PlanCache, bounded
from noetl_stream.server.ownership.housekeeping import UPKEEP, Housekeeping, PartitionAssignment
from noetl_stream.server.ownership.leases import PartitionLeaseKeeper
from noetl_stream.server.ownership.recovery import Recovery
from noetl_stream.server.parts import ServerParts, ServerPorts, ServerTimes, StateBounds
from noetl_stream.server.ticks.commit import Committer
from noetl_stream.server.ticks.fold import FREEING, Fold
from noetl_stream.server.ticks.reconcile import Reconciler
from noetl_stream.server.ticks.tick import PendingTick

log = logging.getLogger(__name__)

LEFT_MS: Final = 60_000
"""A slot of an execution that ended this long ago was left behind."""

SLOW_TURN_S: Final = 1.0
"""A turn that took longer is logged."""

_aggregate_of: Final = attrgetter("aggregate_id")
_execution_of: Final = attrgetter("execution_id")
_partition_of: Final = attrgetter("partition")


class Server(ServerParts):
    """Owns partitions and folds their executions. All state changes happen in one task.

    Attributes:
        lasting: What runs beside the loop as long as it does, by name; empty before that.
        turned_s: When the loop began its last turn, by the monotonic clock.
        waits_for: The store that the start waits for, if any.
    """

    def __init__(
        self,
        owner: str,
        ports: ServerPorts,
        kinds: Kinds,
        times: ServerTimes | None = None,
        limits: Limits = DEFAULT_LIMITS,
        checker: Checker = check_again,
        states: StateBounds | None = None,
        formats: Formats | None = None,
    ) -> None:
        plans = PlanCache(ports.store, ports.blobs, kinds, limits, checker)
        times, states, formats = times or ServerTimes(), states or StateBounds(), formats or Formats()
        super().__init__(owner, ports, plans, times, states, formats)
        self.committer = Committer(self)
        self.responder = RequestResponder(self)
        self.reconciler = Reconciler(ports.queue, ports.log)
        self.leases = PartitionLeaseKeeper(self)
        self.recovery = Recovery(self, self.committer, self.leases)
        self.assignment = PartitionAssignment(self, self.committer, self.leases, self.recovery)
        self.housekeeping = Housekeeping(self, self.committer, self.leases, self.assignment, self.reconciler)
        self.quarantine = quarantine = Quarantine(self, self.committer)
        self._messages = InputKind(self._fold_reported, _execution_of, _partition_of, quarantine.refuse_message)
        self._inbox_items = InputKind(self._fold_items, _execution_of, _partition_of, quarantine.refuse_inbox)
        self._own_inputs: InputKind[OwnInput] = InputKind(
            self._fold_ready, itemgetter(0), lambda one: partition_of(one[0]), quarantine.refuse_own
        )
        self._due_timers = InputKind(
            self._fold_due, _aggregate_of, lambda one: partition_of(one.aggregate_id), quarantine.refuse_timer
        )
        self._stream_inputs = InputKind(
            self._fold_read, _aggregate_of, lambda one: partition_of(one.aggregate_id), quarantine.refuse_stream
        )
        self._owed = InputKind(
            self._fold_missing, _execution_of, lambda one: partition_of(one.execution_id), quarantine.refuse_own
        )
        self._stopping = asyncio.Event()
        self.waits_for = ""
        self.lasting: dict[str, asyncio.Future[None]] = {}
        self.turned_s = 0.0
        self._gave_back_s = ports.clock.monotonic_s()

    def stop(self) -> None:
        """Ends :meth:`run` after the current tick; leases are released."""
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    async def run(self) -> None:
        """Runs until :meth:`stop`.

        Raises:
            StreamLost, NotReady, LoginRefused: errors no waiting repairs; leases are released.
            JournalConflict: a tick cannot be committed, and no execution is to blame. Leases are then left to expire,
                as after a defect, so that the next owner can tell a crash from a departure (PROTOCOL §5 *Poison*).
        """
        opening = until_reached(self.ports.clock, self._look_at_stores, self._note_waiting)
        if await result_until(opening, self._stopping.wait()) is None:
            return
        presence, _, _ = await asyncio.gather(
            self.ports.bus.listen(subjects.SERVERS, self._on_presence), self.inbox.open(), self.responder.open()
        )
        if self.ports.upkeep is not None:
            upkeep = self.ports.upkeep.run(self.times.feed_keep_s, lambda: self.ownership.get(UPKEEP) is not None)
            self.lasting["upkeep of the stores"] = asyncio.ensure_future(upkeep)
        refusals = self.ports.secrets.refusals if self.ports.secrets is not None else None
        if refusals is not None:
            self.lasting["audit of refusals"] = asyncio.ensure_future(refusals.record_left_out())
        if self.traces is not None:
            self.lasting["spans"] = asyncio.ensure_future(self.traces.run())
        self.lasting["leases"] = keeping = asyncio.ensure_future(self.leases.run())
        in_order = False
        try:
            while not self._stopping.is_set():
                if keeping.done():
                    keeping.result()
                await self._turn()
            in_order = True
        except (StreamLost, NotReady, asyncio.CancelledError):
            in_order = True
            raise
        finally:
            await end_tasks(self.lasting.values())
            await self.responder.close()
            if refusals is not None:
                await refusals.finish_sample()
            await self.inbox.close()
            await presence.close()
            if self.streams is not None:
                await self.streams.close()
            await self.reader.close()
            await self.inputs.close()
            await self.plans.close()
            await self.ports.evaluator.close()
            if in_order:
                await self.assignment.release_all()
                await self.leases.leave()
            if self.traces is not None:  # last: an absent collector must keep no partition from others
                await self.traces.close()

    async def _look_at_stores(self) -> bool:
        """Whether they are as they should be; raises otherwise, also if they can only be read."""
        await self.ports.store.verify()
        await asyncio.gather(self.ports.log.verify(), self.ports.queue.verify(), self.leases.open())
        for warning in await self.ports.store.durability_warnings():
            log.warning("%s", warning)
        return True

    def _note_waiting(self, why: str) -> None:
        self.waits_for = why

    async def _turn(self) -> None:
        clock = self.ports.clock
        try:
            self.turned_s = clock.monotonic_s()
            await self.housekeeping.run(self.turned_s)
            if self.ownership.condemned:
                await self.quarantine.set_condemned_aside()
            if self.executions.unloadable:
                await self.quarantine.set_unloadable_aside()
            if self.publications.is_full:
                await self.publications.drain(self.times.housekeeping_s)
                return
            wait_s = self.inputs.next_in_s(self.times.housekeeping_s)
            messages = await self.reader.take(self.timers.next_in_s(self.inputs.now_ms(), wait_s))
            began_s, ticks = clock.monotonic_s(), self.committer.ticks
            if messages:
                await self._fold_messages(messages)
            await self._fold_inbox()
            await self._fold_inputs()
            await self._fold_timers()
            await self._fold_streams()
            await self._give_back_left()
            await self._issue_missing()
            if self.committer.ticks > ticks:
                self._measure(clock.monotonic_s() - began_s, len(messages))
            self.ownership.turn_ended()
            self.executions.trim()
        except NewerFormat as error:
            self.assignment.leave(error)
            await self._reload()
        except (Fenced, OutcomeUnknown) as error:
            log.warning("a tick failed: %s", error)
            await self._reload()
        except ReaderBroken as error:
            log.info("reopening the reader: %s", error)
            if clock.monotonic_s() - self.assignment.read_since_s < self.times.retry_s:
                await clock.sleep(self.times.retry_s)
            await self.assignment.retry_until_reached(self.assignment.reconnect, self._stopping.is_set)
        except Unreachable as error:
            log.warning("stores unreachable or missing, will retry: %s", error)
            await clock.sleep(self.times.retry_s)
            await self._reload()

    def _measure(self, took_s: float, messages: int) -> None:
        """Counts a turn that committed something."""
        self.counts.turns.add(took_s)
        if took_s >= SLOW_TURN_S:
            about = {"seconds": round(took_s, 3), "messages": messages, "behind": self.reader.held_bytes}
            log.warning("slow tick: folding, committing and publishing took %.1f s", took_s, extra=about)

    async def _fold_messages(self, messages: Sequence[ReportedMessage]) -> None:
        """Folds messages from EVENTS."""
        own = [message for message in messages if self._is_next(message)]
        now = own[: self._loaded_at_once(own)] if self.executions.evicted else own
        if now:
            self.counts.inputs["events"] += len(now)
            self.reader.put_back([*await self.quarantine.fold(now, self._messages), *own[len(now) :]])

    def _loaded_at_once(self, messages: Sequence[ReportedMessage]) -> int:
        """How many of these a turn takes: their executions are loaded, and together in memory."""
        evicted: set[str] = set()
        for number, message in enumerate(messages):
            if self.executions.is_evicted(message.execution_id):
                evicted.add(message.execution_id)
                if len(evicted) > LOADED_AT_ONCE:
                    return number
        return len(messages)

    async def _fold_reported(self, own: Sequence[ReportedMessage]) -> Sequence[ReportedMessage]:
        try:
            return await self._fold_requests(own, starts_may_repeat=False)
        except RequestAnswered:  # which is rare, and asking beforehand would cost each start a round trip
            await self.executions.reload({message.execution_id for message in own})
            return await self._fold_requests(own, starts_may_repeat=True)

    async def _fold_requests(
        self, own: Sequence[ReportedMessage], *, starts_may_repeat: bool
    ) -> Sequence[ReportedMessage]:
        fold = Fold(self.executions, self.ports.capabilities, self.formats, self.ends)
        bodies: Bodies = [(message, body) for message in own if (body := fold.decode(message)) is not None]
        signed = without_unsigned(bodies, self.ports.signer)
        folded = await without_repeated(signed, self.ports.store, starts_may_repeat)
        await self._prepare(folded, fold.tick)
        count = fold.messages(folded)
        rest: Sequence[ReportedMessage] = ()
        if count < len(folded):
            cut = own.index(folded[count][0])
            own, rest = own[:cut], own[cut:]
            bodies, signed = before(rest, bodies), before(rest, signed)
            fold.tick.leave_letters(rest)
        left = {message.sequence for message in rest}
        asked = [
            (one.at_ms, body) for one, body in folded if isinstance(body, AggregateRequest) and one.sequence not in left
        ]
        await self.aggregates.requests(asked, fold.tick)
        await reject_unanswered(bodies, signed, self.executions, self.ports.store, fold.tick)
        if fold.tick.dead_letters:
            await reject_unreadable(own, self.ports.store, fold.tick)
        await self._commit(fold, {message.partition: (message.sequence, message.at_ms) for message in own})
        return rest

    def _is_next(self, message: ReportedMessage) -> bool:
        lease = self.ownership.get(message.partition)
        return lease is not None and message.sequence > lease.last_seq

    async def _prepare(self, bodies: Bodies, tick: PendingTick) -> None:
        """Loads what the fold needs: executions, and the playbooks of new ones."""
        ids = {
            message.execution_id
            for message, body in bodies
            if self.executions.get(message.execution_id) is None and not isinstance(body, AggregateRequest)
        }
        if ids:
            await self.executions.load(ids)
        if self.executions.has_stubs:
            for message, body in bodies:
                if isinstance(body, Request) and isinstance(body.fact, FREEING):
                    await self.executions.load_freed(message.execution_id)
        if not ids:
            return
        for message, body in bodies:
            fact = body.fact if isinstance(body, Request) else None
            if isinstance(fact, ExecutionRequested) and not self.executions.is_known(message.execution_id):
                row = await self._begin(message.execution_id, fact)
                if row is not None:
                    tick.playbooks[row.digest] = row

    async def _begin(self, execution_id: str, request: ExecutionRequested) -> PlaybookRow | None:
        """Adds a requested execution with its playbook; returns the source to store, if any."""
        known = await self.plans.at_hand(request.digest)
        if known is None:
            self.executions.begin(execution_id, UNLOADED)
            return None
        self.executions.begin(execution_id, await self._checked(known.plan, request))
        return known.row

    async def _checked(self, known: Plan | InvalidPlan, request: ExecutionRequested) -> Plan | InvalidPlan:
        """The playbook of a request with everything else it needs; or why it may not run."""
        grants = self.ports.grants.current() if self.ports.grants is not None else None
        caller = await self._caller_of(request) if grants is not None else None
        plan = granted(bounded(known), grants, caller)
        if request.rerun is None:  # which has the schemas of its original
            plan = await with_schemas(plan, self.ports.catalog, grants)
        return self.formats.written(await with_credentials(plan, self.ports.secrets, grants))

    async def _take_playbook(self, execution_id: str, recorded: RecordedFact, tick: PendingTick) -> None:
        """Gives an execution that was parked for its playbook the loaded one."""
        cached, known = self.executions.get(execution_id), recorded.value
        if cached is None or not isinstance(cached.plan, Unloaded) or not isinstance(known, KnownPlaybook):
            return
        if cached.state is not None and cached.state.request is not None:
            cached.plan = await self._checked(known.plan, cached.state.request)
            if known.row is not None:
                tick.playbooks[known.row.digest] = known.row

    async def _caller_of(self, request: ExecutionRequested) -> str | None:
        """The path of the playbook that called this one; ``None`` if none did."""
        if request.parent is None:
            return None
        row = await self.ports.store.execution(request.parent.execution_id)
        return row.path if row is not None else ""

    async def _fold_inbox(self) -> None:
        """Folds messages between executions (PROTOCOL §1 *Inbox*)."""
        items = await self.inbox.take(self.ownership.ids)
        if await self.catching_up.look(item.execution_id for item in items):
            self.inbox.expect_messages()
            items = await self.inbox.take(self.ownership.ids)
        self.catching_up.note_read(items)
        self.counts.inputs["inbox"] += len(items)
        if items and await self.quarantine.fold(self.aggregates.in_order(items), self._inbox_items):
            self.inbox.expect_messages()
            self.reader.nudge()

    async def _fold_items(self, items: Sequence[InboxItem]) -> Sequence[InboxItem]:
        rest: Sequence[InboxItem] = ()
        fold = Fold(self.executions, self.ports.capabilities, self.formats, self.ends)
        at_ms = self.inputs.now_ms()
        told = [item for item in items if is_aggregate(item.execution_id)]
        items = [item for item in items if not is_aggregate(item.execution_id)]
        await self.aggregates.messages(told, at_ms, fold.tick)
        await self.executions.load({item.execution_id for item in items})
        for number, item in enumerate(items, start=1):
            message = fold.decode_inbox(item, at_ms)
            if message is None:
                continue
            if isinstance(message.fact, ExecutionRequested) and not self.executions.is_known(message.execution_id):
                await self._begin(message.execution_id, message.fact)
            elif isinstance(message.fact, ExecutionRequested) and message.fact.origin is not None:
                await self._end_again(item, message.fact.origin, fold.tick)
            elif isinstance(message.fact, FREEING):
                await self.executions.load_freed(message.execution_id)
            fold.inbox_message(item, message, at_ms)
            if fold.is_full:
                items, rest = items[:number], items[number:]
                break
        partitions = {item.partition for item in (*items, *told)} | fold.tick.partitions
        await self._commit(fold, self.committer.cursors(partitions))
        return rest

    async def _end_again(self, item: InboxItem, origin: Origin, tick: PendingTick) -> None:
        """Repeats an execution's end, if any, to an aggregate that started it twice, since Postgres was put back."""
        row = await self.ports.store.execution(item.execution_id)
        for status in ENDED:
            if row is not None and row.status == status:
                error = None if row.error is None else codec.decode_error(row.error)
                told = SendMessage(row.position, ended_message(row.execution_id, origin, status, error))
                tick.send(told, row.execution_id, 0, item.seq)  # one number is what it sent as it ended

    async def _fold_inputs(self) -> None:
        """Folds timers that are due and results that were loaded."""
        ready = await self.inputs.ready(self.executions)
        if ready:
            self.counts.inputs["own"] += len(ready)
            self.inputs.put_back(await self.quarantine.fold(ready, self._own_inputs))

    async def _fold_ready(self, ready: Sequence[OwnInput]) -> Sequence[OwnInput]:
        rest: Sequence[OwnInput] = ()
        fold = Fold(self.executions, self.ports.capabilities, self.formats, self.ends)
        for number, (execution_id, recorded) in enumerate(ready, start=1):
            await self._take_playbook(execution_id, recorded, fold.tick)
            fold.own_input(execution_id, recorded)
            if fold.is_full:
                rest = ready[number:]
                break
        if fold.tick.segments:
            await self._commit(fold, self.committer.cursors(fold.tick.partitions))
        return rest

    async def _fold_timers(self) -> None:
        """Folds timers of aggregates that are due."""
        due = self.timers.take(self.inputs.now_ms())
        if due:
            if await self.catching_up.look(one.aggregate_id for one in due):
                self.inbox.expect_messages()
            self.counts.inputs["own"] += len(due)
            self.timers.put_back(await self.quarantine.fold(due, self._due_timers))

    async def _fold_due(self, due: Sequence[DueTimer]) -> Sequence[DueTimer]:
        fold = Fold(self.executions, self.ports.capabilities, self.formats, self.ends)
        await self.aggregates.timers(due, self.inputs.now_ms(), fold.tick)
        if fold.tick.partitions:
            await self._commit(fold, self.committer.cursors(fold.tick.partitions))
        return ()

    async def _fold_streams(self) -> None:
        """Folds what was read of streams for triggers. What was found out about a stream is nobody's poison."""
        offered = self.streams.offered() if self.streams is not None else []
        read = [one for one in offered if isinstance(one.fact, StreamEventRead)]
        self.counts.inputs["own"] += len(offered)
        if len(read) < len(offered):
            await self._fold_read([one for one in offered if isinstance(one.fact, StreamSeen)])
        if read:
            await self.quarantine.fold(read, self._stream_inputs)

    async def _fold_read(self, read: Sequence[StreamInput]) -> Sequence[StreamInput]:
        fold = Fold(self.executions, self.ports.capabilities, self.formats, self.ends)
        states = await self.aggregates.read(read, self.inputs.now_ms(), fold.tick)
        if fold.tick.partitions:
            await self._commit(fold, self.committer.cursors(fold.tick.partitions))
        if self.streams is not None:
            self.streams.folded(read, states)
        return ()

    async def _give_back_left(self) -> None:
        """Gives back slots of executions that are over: the message that should have was lost."""
        now_s = self.ports.clock.monotonic_s()
        if now_s - self._gave_back_s < self.times.slots_s or not self.ownership.ids:
            return
        self._gave_back_s, at_ms = now_s, self.inputs.now_ms()
        rows = await self.ports.store.limit_slots_left(at_ms - LEFT_MS, LEFT_AT_ONCE)
        left = [row for row in rows if partition_of(row.limit_id) in self.ownership.ids]
        if left:
            log.warning("giving back %d slots of limits whose executions are over", len(left))
            fold = Fold(self.executions, self.ports.capabilities, self.formats, self.ends)
            await self.aggregates.give_back(left, at_ms, fold.tick)
            await self._commit(fold, self.committer.cursors(fold.tick.partitions))

    async def _issue_missing(self) -> None:
        """Reissues owed commands that the queue has lost (PROTOCOL §2 *Reconcile*)."""
        missing = await self.reconciler.take_missing(self.executions, self._folded)
        if missing:
            await self.quarantine.fold(missing, self._owed)

    async def _fold_missing(self, missing: Sequence[OwedCommand]) -> Sequence[OwedCommand]:
        fold = Fold(self.executions, self.ports.capabilities, self.formats, self.ends)
        for owed in missing:
            fold.issue_again(owed.execution_id, owed.command_id, "absent from the queue")
        if fold.tick.segments:
            self.counts.reconciled += len(fold.tick.commands)
            log.info("reissued %d commands", len(fold.tick.commands))
            await self._commit(fold, self.committer.cursors(fold.tick.partitions))
        return ()

    async def _commit(self, fold: Fold, moved: Mapping[int, tuple[int, int]]) -> None:
        fold.refuse_oversized()
        try:
            await self.committer.commit(fold.tick, moved)
        except (PayloadRefused, RequestAnswered) as error:
            log.warning("a tick of %d executions is refused: %s", len(fold.tick.touched), error)
            raise
        except JournalConflict as error:
            executions = ", ".join(fold.tick.touched)
            log.error("stopping: cannot commit a tick of executions %s: %s", executions, error)
            raise

    async def _reload(self) -> None:
        self.reconciler.forget()
        await self.assignment.reload(self._stopping.is_set)

    def _folded(self) -> int:
        """The sequence up to which all owned partitions are folded."""
        through = self.reader.folded_through()
        return min((max(lease.last_seq, through.get(lease.id, 0)) for lease in self.ownership), default=0)

    async def _on_presence(self, subject: str, body: bytes, reply: str) -> None:
        server = self.ports.capabilities.server_in(body)
        if server is not None:
            self.ownership.record_presence(server, self.ports.clock.monotonic_s())
        elif (gone := self.ports.capabilities.server_left(body)) is not None:
            self.ownership.record_departure(gone)
