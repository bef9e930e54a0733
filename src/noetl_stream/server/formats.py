"""Tracks which formats the servers of an installation read, and which one is written (PROTOCOL §5 *Poison*)."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from msgspec.structs import replace

from noetl_stream.engine.advance import InvalidPlan
from noetl_stream.errors import NotReady
from noetl_stream.model.messages import AGGREGATES_FORMAT, FORMAT
from noetl_stream.model.status import Rejection
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.stores.store import KnownServer

log = logging.getLogger(__name__)

LOWEST_WRITTEN: Final = 2
"""The lowest format that this version can write: servers that do not read it cannot run beside this one."""

OLDER_SERVERS: Final = Rejection(
    "older_servers", "a server of an older version still runs, and could not go on with it: stop it, and ask again"
)


class Formats:
    """The formats that servers of this installation read and write.

    Attributes:
        reads: The newest format that this server reads.
        writes: The format in which it writes: the lowest that all living servers read.
        know_aggregates: Whether all living servers can read messages to aggregates.
    """

    def __init__(self, reads: int = AGGREGATES_FORMAT) -> None:
        self.reads = reads
        self.writes = LOWEST_WRITTEN
        self.know_aggregates = False
        self._newest = reads

    def learn(self, servers: Collection[KnownServer]) -> None:
        """Notes the formats of all servers, past and present, this one included.

        Raises:
            NotReady: a living server cannot read the formats that this one writes.
        """
        self._newest = max([self.reads, *(one.reads for one in servers)])
        living = [one for one in servers if one.live]
        older = [one for one in living if one.reads < LOWEST_WRITTEN]
        if older:
            names = ", ".join(f"{one.name} (version {one.version})" for one in older)
            raise NotReady(
                f"servers that read formats up to {older[0].reads} still run, this one writes {LOWEST_WRITTEN} and "
                f"later: {names}",
                hint="stop them first; a server that was killed counts until its lease ends",
            )
        lowest = min([self.reads, *(one.reads for one in living)])
        self.know_aggregates = lowest >= AGGREGATES_FORMAT
        writes = FORMAT if lowest == AGGREGATES_FORMAT else lowest  # they are otherwise the same
        if writes != self.writes:
            log.info("writing format %d, which all living servers read", writes)
            self.writes = writes

    def with_format(self, plan: Plan | InvalidPlan) -> Plan | InvalidPlan:
        """Returns ``plan`` with the format that its execution is written in; or why it cannot run while a server lives
        that does not read that format.
        """
        if isinstance(plan, InvalidPlan) or not plan.newer:
            return plan if isinstance(plan, InvalidPlan) else replace(plan, format=self.writes)
        if self.know_aggregates:
            return replace(plan, format=AGGREGATES_FORMAT)
        text = f"the playbook {plan.newer}, and a server of an older version still runs: stop it, and start again"
        return InvalidPlan(text, [{"code": "older_servers", "message": text}])

    def is_read_by_another(self, written: int) -> bool:
        """Returns whether this format is too new for this server, but not for another known one."""
        return self.reads < written <= self._newest
