"""Where a worker finds the plan of a digest."""

from __future__ import annotations

from typing import Protocol

from noetl_stream.errors import NoetlError
from noetl_stream.playbook.plan import Plan


class PlanUnknown(NoetlError):
    """No server knows a playbook of this digest, or what it sent is not that playbook."""


class PlanUnusable(NoetlError):
    """The playbook does not compile on this worker: a kind is not installed, or the versions differ."""


class PlanSource(Protocol):
    def cached(self, digest: str) -> Plan | None:
        """The plan if it is at hand."""
        ...

    async def load(self, digest: str) -> Plan:
        """The plan of this digest; waits as long as no server answers.

        Raises:
            PlanUnknown: a server answered, but not with this playbook. Worth another try later.
            PlanUnusable: it cannot run here, now or later.
        """
        ...
