"""The server's main loop: read, fold, commit one tick, publish (DESIGN §2, PROTOCOL §2)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from noetl_stream.concurrency import end_tasks, let_loop_switch_soon, result_until
from noetl_stream.errors import (
    Fenced,
    NewerFormat,
    NotReady,
    OutcomeUnknown,
    ReaderBroken,
    StreamLost,
    Unreachable,
)
from noetl_stream.model.limits import DEFAULT_LIMITS, Limits
from noetl_stream.playbook.compile.compiler import Checker, check_again
from noetl_stream.playbook.kinds.spec import Kinds
from noetl_stream.protocol import subjects
from noetl_stream.retries import backoff_s
from noetl_stream.server.answers.responder import RequestResponder
from noetl_stream.server.assembly import ServerParts, ServerPorts, ServerTimes, StateBounds
from noetl_stream.server.formats import Formats
from noetl_stream.server.inputs.inbox_messages import InboxMessages
from noetl_stream.server.inputs.messages import Messages
from noetl_stream.server.inputs.own_inputs import (
    DueTimers,
    LeftSlots,
    LostCommands,
    OwnInputs,
    Reconciler,
    StreamInputs,
)
from noetl_stream.server.inputs.quarantine import Quarantine
from noetl_stream.server.inputs.source import InputSource
from noetl_stream.server.memory.plan_cache import PlanCache
from noetl_stream.server.ownership.housekeeping import LONGEST_RETRY_S, UPKEEP, Housekeeping, PartitionAssignment
from noetl_stream.server.ownership.leases import PartitionLeaseKeeper
from noetl_stream.server.ownership.recovery import Recovery
from noetl_stream.server.ticks.commit import Committer
from noetl_stream.storage.availability import until_reached
from noetl_stream.storage.grants import keep_fresh

log = logging.getLogger(__name__)

SLOW_TURN_S: Final = 1.0
"""The duration from which a turn of the loop is logged as slow."""

T = TypeVar("T")


class Server(ServerParts):
    """Owns partitions and folds their executions. All state changes happen in one task.

    Attributes:
        lasting: The tasks beside the loop, by name; empty before it runs.
        turned_s: The time at which the loop began its last turn, by the monotonic clock.
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
        self.quarantine = Quarantine(self, self.committer)
        self.messages = Messages(self, self.committer)
        self.other_inputs: Sequence[InputSource[Any]] = (
            InboxMessages(self, self.committer),
            OwnInputs(self, self.committer),
            DueTimers(self, self.committer),
            StreamInputs(self, self.committer),
            LeftSlots(self, self.committer),
            LostCommands(self, self.committer, self.reconciler),
        )
        self._stopping = asyncio.Event()
        self.waits_for = ""
        self.lasting: dict[str, asyncio.Future[None]] = {}
        self.turned_s = 0.0
        self._failed_turns = 0

    def stop(self) -> None:
        """Makes :meth:`run` end after the current tick; leases are released."""
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    async def run(self) -> None:
        """Runs the server until :meth:`stop`.

        Raises:
            StreamLost, NotReady, LoginRefused: errors that no waiting repairs; leases are released.
            UsageError: the registered grants are invalid.
            JournalConflict: a tick cannot be committed, and no execution is to blame. Leases are then left to expire,
                as after a defect, so that the next owner can tell a crash from a departure (PROTOCOL §5 *Poison*).
        """
        let_loop_switch_soon()
        opening = until_reached(self.ports.clock, self._look_at_stores, self._note_waiting)
        if await result_until(opening, self._stopping.wait()) is None:
            return
        presence, _, _ = await asyncio.gather(
            self.ports.bus.listen(subjects.SERVERS, self._on_presence), self.inbox.open(), self.responder.open()
        )
        if self.ports.upkeep is not None:
            upkeep = self.ports.upkeep.run(self.times.feed_keep_s, lambda: self.ownership.get(UPKEEP) is not None)
            self.lasting["upkeep of the stores"] = asyncio.ensure_future(upkeep)
        self.lasting["shares of namespaces"] = asyncio.ensure_future(self.shares.run())
        refusals = self.ports.secrets.refusals if self.ports.secrets is not None else None
        if refusals is not None:
            self.lasting["audit of refusals"] = asyncio.ensure_future(refusals.record_left_out())
        if self.traces is not None:
            self.lasting["spans"] = asyncio.ensure_future(self.traces.run())
        if self.lineage is not None:
            telling = self.lineage.run(lambda: self.ownership.get(UPKEEP) is not None)
            self.lasting["lineage"] = asyncio.ensure_future(telling)
        if self.ports.grants is not None:
            fresh = keep_fresh(self.ports.grants, self.ports.clock)
            self.lasting["grants"] = asyncio.ensure_future(fresh)
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
            await self.waits.close()
            await self.plans.close()
            await self.ports.evaluator.close()
            if in_order:
                await self.assignment.release_all()
                await self.leases.leave()
            if self.lineage is not None:
                await self.lineage.close()
            if self.traces is not None:  # last: an absent collector must keep no partition from others
                await self.traces.close()

    async def _look_at_stores(self) -> bool:
        """Verifies the stores and that they can be written."""
        await self.ports.store.verify()
        await asyncio.gather(self.ports.log.verify(), self.ports.queue.verify(), self.leases.open())
        if self.ports.grants is not None:
            await self.ports.grants.refresh()
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
            messages = await self.messages.take()
            began_s, ticks = clock.monotonic_s(), self.committer.ticks
            await self._fold(self.messages, messages)
            for source in self.other_inputs:
                await self._fold(source, await source.take())
            if self.committer.ticks > ticks:
                self._failed_turns = 0
                self._measure(clock.monotonic_s() - began_s, len(messages))
            self.ownership.count_turn()
            self.executions.trim()
        except NewerFormat as error:
            self.assignment.leave(error)
            await self._reload()
        except (Fenced, OutcomeUnknown) as error:
            log.warning("a tick failed: %s", error)
            await self._reload()
        except ReaderBroken as error:
            log.info("reopening the reader: %s", error)
            if clock.monotonic_s() - self.assignment.read_since_s < LONGEST_RETRY_S:
                await self._pause()
            await self.assignment.retry_until_reached(self.assignment.reconnect, self._stopping.is_set)
        except Unreachable as error:
            log.warning("stores unreachable or missing, will retry: %s", error)
            self.note_failure(error)
            await self._pause()
            await self._reload()

    async def _pause(self) -> None:
        """Waits before the next turn, longer with each failed turn since the last tick."""
        await self.ports.clock.sleep(backoff_s(self.times.retry_s, self._failed_turns, LONGEST_RETRY_S))
        self._failed_turns += 1

    def _measure(self, took_s: float, messages: int) -> None:
        """Measures a turn that committed a tick, and logs a slow one."""
        self.counts.turns.add(took_s)
        if took_s >= SLOW_TURN_S:
            about = {"seconds": round(took_s, 3), "messages": messages, "behind": self.reader.held_bytes}
            log.warning("slow tick: folding, committing and publishing took %.1f s", took_s, extra=about)

    async def _fold(self, source: InputSource[T], inputs: Sequence[T]) -> None:
        """Folds inputs of one kind, in as many ticks as needed."""
        if not inputs:
            return
        if source.origin:
            self.counts.inputs[source.origin] += len(inputs)
        if rest := await self.quarantine.fold(inputs, source):
            source.restore(rest)

    async def _reload(self) -> None:
        self.reconciler.forget()
        await self.assignment.reload(self._stopping.is_set)

    async def _on_presence(self, subject: str, body: bytes, reply: str) -> None:
        server = self.ports.capabilities.server_in(body)
        if server is not None:
            self.ownership.record_presence(server, self.ports.clock.monotonic_s())
        elif (gone := self.ports.capabilities.server_left(body)) is not None:
            self.ownership.record_departure(gone)
