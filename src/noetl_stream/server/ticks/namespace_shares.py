"""Shares of namespaces: what all executions of one may take of LOGS (PROTOCOL §7)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from noetl_stream.errors import NoetlError
from noetl_stream.model.messages import NamespaceShare
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.streams.task_logs import TaskLogs

log = logging.getLogger(__name__)

LOOK_S: Final = 10.0
"""How often a server looks at the bounds of what namespaces share."""

LOGS_PART: Final = 64
"""Which part of LOGS a namespace may write in a minute through one worker: it takes 16 of them to fill a quarter of the
stream at once, and the oldest lines of who has the most are trimmed every few seconds.
"""

LEAST_LOG_BYTES: Final = 128 * 1024


class NamespaceShares:
    """The shares of namespaces, looked up beside the loop of a server.

    Args:
        namespace_of: The namespace of a playbook's path.
    """

    def __init__(self, logs: TaskLogs, clock: Clock, namespace_of: Callable[[str], str]) -> None:
        self._logs = logs
        self._clock = clock
        self._namespace_of = namespace_of
        self._log_bytes = 0

    def of(self, path: str) -> NamespaceShare:
        """Returns the share of the namespace of a playbook's path."""
        return NamespaceShare(self._namespace_of(path), self._log_bytes)

    async def run(self) -> None:
        """Looks at the bounds until cancelled."""
        while True:
            try:
                await self.look()
            except NoetlError as error:
                log.warning("cannot look at what namespaces share, will retry: %s", error)
            await self._clock.sleep(LOOK_S)

    async def look(self) -> None:
        """Looks at the bounds.

        Raises:
            StoreMissing: there is no stream LOGS.
            Unreachable: no answer in time.
        """
        most = (await self._logs.extent()).max_bytes
        self._log_bytes = 0 if most is None else max(LEAST_LOG_BYTES, most // LOGS_PART)
