"""Turns of namespaces in the pools: a namespace with few commands in a pool passes one with many.

A queue delivers one priority in the order of issue, so a namespace with thousands of commands would hold up all others
until they are done. Meanwhile, commands of the others wait at another priority at which it has no line: one higher, or
lower if all higher ones are as crowded (LANGUAGE §15 *Flow control*). A pool that is used by one namespace alone stays
unchanged.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Final, TypeAlias

from msgspec.structs import replace

from noetl_stream.engine.state import Execution
from noetl_stream.model.ids import partition_of
from noetl_stream.model.priorities import HIGHEST_PRIORITY, LOWEST_PRIORITY
from noetl_stream.ports.streams.command_queue import QueuedCommand

CROWD: Final = 32
"""The number of owed commands of one priority in a pool from which a namespace holds others up."""

LESS: Final = 8
"""The factor by which another namespace must have fewer commands in the pool to pass it."""


_Line: TypeAlias = tuple[str, int]
"""The commands that wait for the same workers, in the order of issue: their pool and priority."""


class NamespaceTurns:
    """Counts the commands that a server has issued and is owed, by pool, priority and namespace.

    After a takeover it counts from zero: the former owner's commands stay where they were placed.

    Args:
        state_of: The execution with an id, if it is in memory.
    """

    def __init__(self, state_of: Callable[[str], Execution | None]) -> None:
        self._state_of = state_of
        self._owed: dict[str, dict[str, tuple[_Line, str]]] = {}
        self._counts: defaultdict[_Line, Counter[str]] = defaultdict(Counter)

    @property
    def owed(self) -> int:
        """The number of counted commands."""
        return sum(counts.total() for counts in self._counts.values())

    def place(self, commands: Sequence[QueuedCommand], namespace_of: Callable[[str], str]) -> Sequence[QueuedCommand]:
        """Returns the commands of a tick, each with the priority at which it waits.

        Args:
            namespace_of: The namespace of a playbook's path.
        """
        namespaces: dict[str, str] = {}
        placed = []
        for command in commands:
            state = self._state_of(command.execution_id)
            if state is not None:
                namespace = namespaces.get(state.path)
                if namespace is None:
                    namespace = namespaces[state.path] = namespace_of(state.path)
                command = self._placed(command, namespace)
            placed.append(command)
        return placed

    def settle(self, states: Collection[Execution]) -> None:
        """Removes from the count the commands that these executions, after a tick, are no longer owed."""
        for state in states:
            owed = self._owed.get(state.execution_id)
            if owed is not None:
                living = () if state.ended else state.assignments
                self._count_out(state.execution_id, [one for one in owed if one not in living])

    def forget(self, partitions: Collection[int]) -> None:
        """Forgets the commands of partitions that are lost or reloaded."""
        for execution_id in [id for id in self._owed if partition_of(id) in partitions]:
            self._count_out(execution_id, list(self._owed[execution_id]))

    def forget_all(self) -> None:
        self._owed.clear()
        self._counts.clear()

    def _placed(self, command: QueuedCommand, namespace: str) -> QueuedCommand:
        line = (command.pool, command.priority)
        counts = self._counts.get(line)
        if counts is not None and self._is_crowded(command.pool, counts, namespace):
            command = replace(command, priority=self._free_priority(*line, namespace))
            line = (command.pool, command.priority)
        owed = self._owed.get(command.execution_id)
        if owed is None:
            owed = self._owed[command.execution_id] = {}
        if command.command_id not in owed:
            owed[command.command_id] = (line, namespace)
            self._counts[line][namespace] += 1
        return command

    def _free_priority(self, pool: str, own: int, namespace: str) -> int:
        """The priority nearest to a command's own at which nobody holds its namespace up, a higher one first."""
        others = (*range(own + 1, HIGHEST_PRIORITY + 1), *range(own - 1, LOWEST_PRIORITY - 1, -1))
        counts = {priority: self._counts.get((pool, priority)) for priority in others}
        free = (one for one, of in counts.items() if of is None or not self._is_crowded(pool, of, namespace))
        return next(free, own)

    def _is_crowded(self, pool: str, counts: Counter[str], namespace: str) -> bool:
        """Whether another namespace holds this one up in a line with these counts."""
        if (len(counts) == 1 and namespace in counts) or counts.total() < CROWD:
            return False
        most = max((count for other, count in counts.items() if other != namespace), default=0)
        if most < CROWD:
            return False
        own = sum(of_line[namespace] for line, of_line in self._counts.items() if line[0] == pool)
        return own * LESS < most

    def _count_out(self, execution_id: str, command_ids: Collection[str]) -> None:
        owed = self._owed[execution_id]
        for command_id in command_ids:
            line, namespace = owed.pop(command_id)
            counts = self._counts[line]
            counts[namespace] -= 1
            if not counts[namespace]:
                del counts[namespace]
                if not counts:
                    del self._counts[line]
        if not owed:
            del self._owed[execution_id]
