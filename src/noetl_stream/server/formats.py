"""The formats that the servers of an installation read, and the format that is written (PROTOCOL §5 *Poison*)."""

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
"""The lowest format that this version can write; servers that cannot read it cannot run next to this one."""

OLDER_SERVERS: Final = Rejection(
    "older_servers", "a server of an older version still runs, and could not go on with it: stop it, and ask again"
)


class Formats:
    """The formats that servers of this installation read and write.

    Attributes:
        reads: The newest format that this server reads.
        writes: The format that this server writes: the lowest that all living servers read.
        know_aggregates: Whether all living servers can read messages to aggregates.
    """

    def __init__(self, reads: int = AGGREGATES_FORMAT) -> None:
        self.reads = reads
        self.writes = LOWEST_WRITTEN
        self.know_aggregates = False
        self._newest = reads

    def learn(self, servers: Collection[KnownServer]) -> None:
        """Notes the formats of all past and present servers, this one included.

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
        writes = FORMAT if lowest == AGGREGATES_FORMAT else lowest  # otherwise both are the same
        if writes != self.writes:
            log.info("writing format %d, which all living servers read", writes)
            self.writes = writes

    def with_format(self, plan: Plan | InvalidPlan) -> Plan | InvalidPlan:
        """Returns ``plan`` with its execution's format, or an invalid plan while a living server cannot read that."""
        if isinstance(plan, InvalidPlan) or not plan.newer:
            return plan if isinstance(plan, InvalidPlan) else replace(plan, format=self.writes)
        if self.know_aggregates:
            return replace(plan, format=AGGREGATES_FORMAT)
        text = f"the playbook {plan.newer}, and a server of an older version still runs: stop it, and start again"
        return InvalidPlan(text, [{"code": "older_servers", "message": text}])

    def is_read_by_another(self, written: int) -> bool:
        """Returns whether this format is too new for this server, but known to another one."""
        return self.reads < written <= self._newest
