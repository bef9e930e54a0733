"""Inputs that a server finds itself: timers and values that states wait for, and commands that the queue has lost."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import ClassVar

from noetl_stream.server.assembly import ServerParts
from noetl_stream.server.inputs.execution_starter import ExecutionStarter
from noetl_stream.server.inputs.source import InputSource
from noetl_stream.server.inputs.waits import Input
from noetl_stream.server.memory.execution_cache import OwedCommand
from noetl_stream.server.ticks.commit import Committer
from noetl_stream.server.ticks.fold import Fold
from noetl_stream.server.ticks.reconcile import Reconciler

log = logging.getLogger(__name__)


class OwnInputs(InputSource[Input]):
    """Due timers of executions, and values that were loaded or evaluated for them."""

    origin: ClassVar[str] = "own"

    def __init__(self, parts: ServerParts, committer: Committer) -> None:
        super().__init__(parts, committer)
        self._starter = ExecutionStarter(parts)

    async def take(self) -> Sequence[Input]:
        return await self._parts.waits.ready(self._parts.executions)

    async def fold(self, inputs: Sequence[Input]) -> Sequence[Input]:
        rest: Sequence[Input] = ()
        fold = self._parts.new_fold()
        for number, (execution_id, recorded) in enumerate(inputs, start=1):
            await self._starter.take_playbook(execution_id, recorded, fold.tick)
            fold.own_input(execution_id, recorded)
            if fold.is_full:
                rest = inputs[number:]
                break
        if fold.tick.segments:
            await self.commit(fold)
        return rest

    async def refuse(self, fold: Fold, one: Input, reason: str) -> None:
        """Keeps no dead letter: the state still waits for the timer or value, and finds it when it is resumed."""

    def restore(self, inputs: Sequence[Input]) -> None:
        self._parts.waits.restore(inputs)

    def execution_of(self, one: Input) -> str:
        return one[0]


class LostCommands(InputSource[OwedCommand]):
    """Owed commands that the queue has lost: they are issued again (PROTOCOL §2 *Reconcile*)."""

    def __init__(self, parts: ServerParts, committer: Committer, reconciler: Reconciler) -> None:
        super().__init__(parts, committer)
        self._reconciler = reconciler

    async def take(self) -> Sequence[OwedCommand]:
        return await self._reconciler.take_missing(self._parts.executions, self._folded_sequence)

    async def fold(self, inputs: Sequence[OwedCommand]) -> Sequence[OwedCommand]:
        fold = self._parts.new_fold()
        for owed in inputs:
            fold.issue_again(owed.execution_id, owed.command_id, "absent from the queue")
        if fold.tick.segments:
            self._parts.counts.reconciled += len(fold.tick.commands)
            log.info("reissued %d commands", len(fold.tick.commands))
            await self.commit(fold)
        return ()

    async def refuse(self, fold: Fold, one: OwedCommand, reason: str) -> None:
        """Keeps no dead letter: the state still owes the command."""

    def execution_of(self, one: OwedCommand) -> str:
        return one.execution_id

    def _folded_sequence(self) -> int:
        """Returns the sequence up to which all owned partitions are folded."""
        through = self._parts.reader.folded_through()
        leases = self._parts.ownership
        return min((max(lease.last_seq, through.get(lease.id, 0)) for lease in leases), default=0)
