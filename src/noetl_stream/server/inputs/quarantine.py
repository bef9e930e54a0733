"""Quarantine: isolates an execution that cannot be folded, so that its inputs do not stop others (PROTOCOL §5).

A tick that Postgres refuses for its data, or whose values cannot be walked, is folded again in halves until one input
is left. An execution whose journal or playbook cannot be read is quarantined when it is loaded. After two crashes of a
partition its inputs are folded one at a time, and the name of the execution is committed first, so that the next owner
finds the suspect. An execution that is suspected repeatedly, with none of its inputs folded since, is quarantined.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, TypeVar

from noetl_stream.engine.state import RecordedFact
from noetl_stream.errors import VALUE_FAULTS, NoetlError, RequestAnswered, fault_text
from noetl_stream.model.events import ExecutionQuarantined
from noetl_stream.model.ids import partition_of
from noetl_stream.ports.stores.dead_letters import storable_text
from noetl_stream.server.assembly import ServerParts
from noetl_stream.server.inputs.source import InputSource
from noetl_stream.server.memory.execution_cache import LOADED_AT_ONCE
from noetl_stream.server.ownership.partitions import LOADING, SUSPICIONS
from noetl_stream.server.ticks.commit import Committer
from noetl_stream.server.ticks.fold import Fold

log = logging.getLogger(__name__)

SUSPECTED: Final = f"{SUSPICIONS} servers in a row ended while they folded an input of it"

UNLOADABLE: Final = f"{SUSPICIONS} servers in a row ended while they loaded it"

CARE_SHARE: Final = 12
"""The part of a lease in which inputs of one kind are folded one at a time; the rest is for renewing it."""

_Input = TypeVar("_Input")


class Quarantine:
    """Folds inputs in such a way that an execution that cannot be folded is found, and quarantines it."""

    def __init__(self, parts: ServerParts, committer: Committer) -> None:
        self._parts = parts
        self._committer = committer

    async def fold(self, inputs: Sequence[_Input], source: InputSource[_Input]) -> Sequence[_Input]:
        """Folds ``inputs`` in as many ticks as needed; returns those left to a later tick.

        Raises:
            TickRefused: Postgres refuses to write even that an execution is quarantined.
        """
        ownership = self._parts.ownership
        if not ownership.unsound:
            return await self._in_halves(inputs, source)
        alone = [one for one in inputs if ownership.is_careful(source.partition_of(one))]
        together = [one for one in inputs if not ownership.is_careful(source.partition_of(one))]
        if together and (rest := await self._in_halves(together, source)):
            return [*rest, *alone]
        return await self._with_care(alone, source)

    async def _with_care(self, inputs: Sequence[_Input], source: InputSource[_Input]) -> Sequence[_Input]:
        """Folds each input in a tick of its own for as long as the leases allow; returns the remaining inputs."""
        ownership, clock = self._parts.ownership, self._parts.ports.clock
        until_s = clock.monotonic_s() + self._parts.times.lease_s / CARE_SHARE
        for number, one in enumerate(inputs, start=1):
            execution_id = source.execution_of(one)
            rest: Sequence[_Input] = ()
            if source.is_misdirected(one):
                rest = await self._in_halves([one], source)
            else:
                async with ownership.folding_alone(execution_id):
                    if ownership.is_condemned(execution_id):
                        await self._refuse(one, source, SUSPECTED)
                        ownership.acquit(execution_id)
                    else:
                        rest = await self._in_halves([one], source)
            if rest or clock.monotonic_s() >= until_s:
                return [*rest, *inputs[number:]]
        return ()

    async def set_condemned_aside(self) -> None:
        """Quarantines executions that crashed their owners. One that has not begun is left to :meth:`fold`."""
        ownership, executions = self._parts.ownership, self._parts.executions
        for partition, named in list(ownership.condemned.items()):
            execution_id = named.removeprefix(LOADING)
            if named.startswith(LOADING):
                await self._set_deadly_aside(partition, execution_id)
                continue
            await executions.load([execution_id])
            if executions.state(execution_id) is not None:
                fold = self._parts.new_fold()
                self._quarantine(fold, execution_id, SUSPECTED)
                async with ownership.folding_alone(execution_id):  # so that the tick clears its suspicions
                    await self._committer.commit(fold.tick, {partition})
                ownership.acquit(execution_id)

    async def set_unloadable_aside(self) -> None:
        """Quarantines executions that proved unloadable. The owners of other partitions quarantine theirs."""
        ownership, executions = self._parts.ownership, self._parts.executions
        found, executions.unloadable = list(executions.unloadable.items()), {}
        for at in range(0, len(found), LOADED_AT_ONCE):
            fold = self._parts.new_fold()
            for execution_id, reason in found[at : at + LOADED_AT_ONCE]:
                owns = ownership.get(partition_of(execution_id)) is not None
                if owns and await executions.load_stub(execution_id):
                    self._quarantine(fold, execution_id, storable_text(reason))
            if fold.tick.segments:
                await self._committer.commit(fold.tick)

    async def _set_deadly_aside(self, partition: int, execution_id: str) -> None:
        """Quarantines an execution by its row alone: servers have crashed reading its journal."""
        ownership, executions = self._parts.ownership, self._parts.executions
        fold = self._parts.new_fold()
        if await executions.load_stub(execution_id):
            self._quarantine(fold, execution_id, UNLOADABLE)
        await ownership.note_loading(execution_id)  # so that the tick clears its suspicions
        if fold.tick.segments:
            await self._committer.commit(fold.tick, {partition})
        await ownership.note_loaded(partition)
        ownership.acquit(execution_id)

    async def _in_halves(self, inputs: Sequence[_Input], source: InputSource[_Input]) -> Sequence[_Input]:
        try:
            return await source.fold(inputs)
        except (*VALUE_FAULTS, RequestAnswered) as error:
            await self._parts.executions.reload([source.execution_of(one) for one in inputs])
            if len(inputs) == 1:
                await self._refuse(inputs[0], source, fault_text(error))
                return ()
        middle = len(inputs) // 2
        if rest := await self._in_halves(inputs[:middle], source):
            return [*rest, *inputs[middle:]]
        return await self._in_halves(inputs[middle:], source)

    async def _refuse(self, one: _Input, source: InputSource[_Input], reason: str) -> None:
        try:
            await self._set_input_aside(one, source, storable_text(reason))
        except VALUE_FAULTS as error:  # its values prevent even that; its row is enough
            if not await self._parts.executions.load_stub(source.execution_of(one)):
                raise
            log.warning("cannot quarantine it with its values: %s", fault_text(error))
            await self._set_input_aside(one, source, storable_text(reason))

    async def _set_input_aside(self, one: _Input, source: InputSource[_Input], reason: str) -> None:
        execution_id = source.execution_of(one)
        fold = self._parts.new_fold()
        await source.refuse(fold, one, reason)
        if not source.is_misdirected(one):
            self._quarantine(fold, execution_id, reason)
        try:
            await self._committer.commit(fold.tick, {source.partition_of(one)})
        except NoetlError as error:
            log.error("cannot quarantine: %s", error, extra={"execution": execution_id})
            raise

    def _quarantine(self, fold: Fold, execution_id: str, reason: str) -> None:
        self._parts.counts.quarantined += 1
        log.error("quarantined: %s", reason, extra={"execution": execution_id})
        fold.own_input(execution_id, RecordedFact(ExecutionQuarantined(reason), at_ms=self._parts.waits.now_ms()))
