"""Rules of the protocol, each broken by a small patch: what the simulation must find."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest

from noetl_stream.adapters.memory.stores.store import MemoryStore
from noetl_stream.engine import advance as advance_module
from noetl_stream.engine.evolve import worker_facts
from noetl_stream.engine.evolve.step_runs import classify
from noetl_stream.errors import Fenced, OutcomeUnknown
from noetl_stream.model.messages import Report
from noetl_stream.server.inputs import messages
from noetl_stream.server.inputs.own_inputs import Reconciler
from noetl_stream.server.inputs.reader import PartitionReader
from noetl_stream.server.inputs.waits import Waits
from noetl_stream.server.memory.execution_cache import ExecutionCache, OwedCommand
from noetl_stream.server.ownership.housekeeping import PartitionAssignment
from noetl_stream.server.ticks.commit import Committer
from noetl_stream.server.ticks.publications import Publications
from noetl_stream.server.ticks.tick import PendingTick
from noetl_stream.worker.command import run as run_module
from noetl_stream.worker.command.reporter import Channel
from noetl_stream.worker.dependencies import Nonces
from noetl_testkit.memory.broker import StagedCommandQueue

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, slots=True)
class Mutation:
    """A broken rule. ``kinds``: the faults that it is found under, if the seeds' own show it too rarely."""

    rule: str
    section: str
    patch: Patch
    kinds: tuple[str, ...] | None = None

    def __str__(self) -> str:
        return self.rule


def _no_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryStore, "_pass_fence", lambda *_: None)


def _no_queue_fence(patch: pytest.MonkeyPatch) -> None:
    issue = StagedCommandQueue.issue

    def without(self: StagedCommandQueue, commands: Any, fences: Any) -> Any:
        return issue(self, commands, self.fences)

    patch.setattr(StagedCommandQueue, "issue", without)


def _published_although_failed(patch: pytest.MonkeyPatch) -> None:
    commit = Committer.commit

    async def publishing(self: Committer, tick: PendingTick, partitions: Collection[int] = ()) -> None:
        leases = [lease for lease in self._ownership if lease.id in {*tick.partitions, *tick.moved, *partitions}]
        try:
            await commit(self, tick, partitions)
        except (Fenced, OutcomeUnknown):
            ticks = {lease.id: lease.tick + 1 for lease in leases}
            decided = tick.journal_records(ticks, {lease.id: lease.epoch for lease in leases}, self._ownership.owner)
            self._publications.publish(ticks, decided, tick.commands, self._ownership.fences)
            raise

    patch.setattr(Committer, "commit", publishing)


def _memory_outlives_a_failed_tick(patch: pytest.MonkeyPatch) -> None:
    async def reload(self: PartitionAssignment) -> None:
        await self._parts.ownership.reload()
        await self.reopen()

    patch.setattr(PartitionAssignment, "_reload", reload)


def _queue_listed_last(patch: pytest.MonkeyPatch) -> None:
    async def list_missing(self: Reconciler, executions: ExecutionCache, under_way: Collection[str]) -> None:
        self.forget()
        candidates = [owed for owed in executions.owed_commands() if owed.command_id not in under_way]
        if candidates:
            self._through = await self._log.last_sequence()
            present = await self._queue.present()
            self._missing = [owed for owed in candidates if owed.command_id not in present]

    patch.setattr(Reconciler, "list_missing", list_missing)


def _not_folded_to_the_end(patch: pytest.MonkeyPatch) -> None:
    take_missing = Reconciler.take_missing

    def at_once(self: Reconciler, executions: Any, folded: Callable[[], int]) -> Sequence[OwedCommand]:
        return take_missing(self, executions, lambda: self._through)

    patch.setattr(Reconciler, "take_missing", at_once)


def _no_reconcile(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Reconciler, *_: Any) -> None:
        self.forget()

    patch.setattr(Reconciler, "list_missing", nothing)


def _what_is_under_way_counts_as_missing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Publications, "commands_under_way", lambda self: set())


def _no_nonce(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Nonces, "draw", lambda self: "000000000000")


def _no_claim(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(run_module, "may_be_a_copy", lambda *_: False)


def _taken_as_next(classification: str) -> Patch:
    def mutate(patch: pytest.MonkeyPatch) -> None:
        def mistaken(state: Any, recorded: Any) -> Any:
            found = classify(state, recorded)
            return "next" if found == classification else found

        patch.setattr(advance_module, "classify", mistaken)
        patch.setattr(worker_facts, "classify", mistaken)

    return mutate


def _next_report_without_waiting(patch: pytest.MonkeyPatch) -> None:
    publish = Channel.publish

    async def at_once(self: Channel, report: Report) -> None:
        asyncio.ensure_future(publish(self, report))  # noqa: RUF006
        await asyncio.sleep(0)

    patch.setattr(Channel, "publish", at_once)


def _cursor_ahead(patch: pytest.MonkeyPatch) -> None:
    def folded_through(self: PartitionReader) -> dict[int, int]:
        return {partition: consumer.reader.high_water for partition, consumer in self._consumer_of.items()}

    patch.setattr(PartitionReader, "folded_through", folded_through)


def _requests_evaluated_again(patch: pytest.MonkeyPatch) -> None:
    async def all_of_them(bodies: Any, *_: Any) -> Any:
        return bodies

    patch.setattr(messages, "without_repeated", all_of_them)


def _inbox_emptied_before_the_tick(patch: pytest.MonkeyPatch) -> None:
    inbox = MemoryStore.inbox

    async def taken(self: MemoryStore, partitions: Collection[int], limit: int) -> Any:
        items = await inbox(self, partitions, limit)
        for item in items:
            del self.tables.inbox[item.seq]
        return items

    patch.setattr(MemoryStore, "inbox", taken)


def _timers_forgotten_at_a_takeover(patch: pytest.MonkeyPatch) -> None:
    track, forget = Waits.track, Waits.forget

    def not_when_loaded(self: Waits, state: Any) -> None:
        if not getattr(self, "_loads", False):
            track(self, state)

    def forgetting(self: Waits) -> None:
        forget(self)
        self._loads = True  # type: ignore[attr-defined]

    patch.setattr(Waits, "track", not_when_loaded)
    patch.setattr(Waits, "forget", forgetting)


MUTATIONS: Final = (
    Mutation("a tick is committed without its fence", "PROTOCOL §2", _no_fence),
    Mutation(
        "commands are taken without a fence at the queue",
        "PROTOCOL §5",
        _no_queue_fence,
        ("frozen at publish", "server frozen"),
    ),
    Mutation("a tick that failed is published", "PROTOCOL §2", _published_although_failed),
    Mutation("memory outlives a failed tick", "PROTOCOL §2", _memory_outlives_a_failed_tick),
    Mutation(
        "reconcile lists the queue after it has read the log's end",
        "PROTOCOL §2",
        _queue_listed_last,
        ("reconcile always",),
    ),
    Mutation("reconcile does not fold to the log's end", "PROTOCOL §2", _not_folded_to_the_end, ("reconcile always",)),
    Mutation("there is no reconcile", "PROTOCOL §2", _no_reconcile),
    Mutation(
        "what is being published counts as missing",
        "PROTOCOL §2",
        _what_is_under_way_counts_as_missing,
        ("commands late", "reconcile always"),
    ),
    Mutation("a cursor passes messages that are read and not folded", "PROTOCOL §2", _cursor_ahead),
    Mutation("runs have no nonce", "PROTOCOL §1", _no_nonce, ("queue restored", "worker frozen")),
    Mutation("copies run without a claim", "PROTOCOL §3", _no_claim),
    Mutation(
        "events of a run that was replaced are folded",
        "PROTOCOL §3",
        _taken_as_next("stale"),
        ("worker frozen", "leases end"),
    ),
    Mutation("events are folded twice", "PROTOCOL §3", _taken_as_next("duplicate")),
    Mutation("events are folded with earlier ones missing", "PROTOCOL §3", _taken_as_next("gap"), ("tail lost",)),
    Mutation("the next report does not wait for the one before", "PROTOCOL §3", _next_report_without_waiting),
    Mutation("a repeated request is evaluated again", "PROTOCOL §1", _requests_evaluated_again),
    Mutation("an inbox message is deleted before its tick", "PROTOCOL §1", _inbox_emptied_before_the_tick),
    Mutation("timers are not tracked after a takeover", "PROTOCOL §3", _timers_forgotten_at_a_takeover),
)
