"""The source of a worker's plans."""

from __future__ import annotations

from typing import Protocol

from noetl_stream.errors import NoetlError
from noetl_stream.playbook.plan import Plan


class PlanUnknown(NoetlError):
    """The servers do not know a playbook with this digest, or sent a different one."""


class PlanUnusable(NoetlError):
    """The playbook does not compile on this worker: a tool kind is missing, or the versions differ."""


class PlanSource(Protocol):
    def cached(self, digest: str) -> Plan | None:
        """The plan, if it is cached."""
        ...

    async def load(self, digest: str) -> Plan:
        """The plan of this digest; waits until a server answers.

        Raises:
            PlanUnknown: a server answered, but not with this playbook. Worth retrying later.
            PlanUnusable: the playbook cannot run here, now or later.
        """
        ...
