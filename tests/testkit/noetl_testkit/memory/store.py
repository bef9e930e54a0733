"""A store in memory that tests copy, restore, and take leases from."""

from __future__ import annotations

import copy
from collections.abc import Collection
from dataclasses import fields
from typing import NamedTuple

from noetl_stream.adapters.memory.stores.store import MemoryStore
from noetl_stream.adapters.memory.stores.tables import NEVER_S, MemoryTables
from noetl_stream.ports.stores.dead_letters import DeadLetter


class MemoryDump(NamedTuple):
    """The contents of a :class:`StagedStore`."""

    tables: MemoryTables
    fed: dict[tuple[int, int], tuple[int, bytes]]
    fed_floor: dict[int, int]
    letters: dict[str, DeadLetter]


class StagedStore(MemoryStore):
    """A store in memory as stages of tests need it."""

    def dump(self) -> MemoryDump:
        """Returns a copy of the store's contents."""
        return copy.deepcopy(MemoryDump(self.tables, self.fed, self.fed_floor, self.dead_letters.letters))

    def restore(self, dump: MemoryDump) -> None:
        """Restores the store's contents from a copy."""
        tables, self.fed, self.fed_floor, self.dead_letters.letters = copy.deepcopy(dump)
        for table in fields(tables):
            setattr(self.tables, table.name, getattr(tables, table.name))

    def end_leases(self, partitions: Collection[int]) -> None:
        """Ends these leases now, as if they had not been renewed."""
        for id in partitions:
            self.tables.partitions[id].lease_until_s = NEVER_S
