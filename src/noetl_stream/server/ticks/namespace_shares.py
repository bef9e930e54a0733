"""Shares of namespaces: what all executions of a namespace may use of LOGS and of the object store (PROTOCOL §7)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from noetl_stream.errors import NoetlError
from noetl_stream.model.messages import NamespaceShare
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.store import Store
from noetl_stream.ports.streams.task_logs import TaskLogs

log = logging.getLogger(__name__)

LOOK_S: Final = 10.0
"""The interval at which a server measures what namespaces hold; its workers know no later what others store."""

LOGS_PART: Final = 64
"""The part of LOGS that a namespace may write in a minute through one worker: 16 of them would fill a quarter of the
stream at once, and the oldest lines of the largest owner are trimmed every few seconds.
"""

LEAST_LOG_BYTES: Final = 128 * 1024

NEARLY_FULL: Final = 0.8
"""The part of its bound from which a namespace is shown to have little room."""

MOST_SHOWN: Final = 100

MOST_KNOWN: Final = 10_000
"""The most paths whose shares are remembered until the next look."""


class NamespaceShares:
    """The shares of namespaces, measured beside the loop of a server.

    Args:
        namespace_of: The namespace of a playbook's path.
        max_stored_bytes: The most bytes of a namespace's executions in the object store; ``None``: unbounded.
    """

    def __init__(
        self,
        store: Store,
        logs: TaskLogs,
        clock: Clock,
        namespace_of: Callable[[str], str],
        max_stored_bytes: int | None,
    ) -> None:
        self.max_stored_bytes = max_stored_bytes
        self._store = store
        self._logs = logs
        self._clock = clock
        self._namespace_of = namespace_of
        self._log_bytes = 0
        self._stored: Counter[str] = Counter()
        self._at_ms = 0
        self._known: dict[str, NamespaceShare] = {}

    def of(self, path: str) -> NamespaceShare:
        """Returns the share of the namespace of a playbook's path, as of the last look."""
        share = self._known.get(path)
        if share is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            share = self._known[path] = self._share_of(self._namespace_of(path))
        return share

    def namespace_of(self, path: str) -> str:
        """Returns the namespace of a playbook's path, as of the last look."""
        return self.of(path).namespace

    def _share_of(self, namespace: str) -> NamespaceShare:
        if self.max_stored_bytes is None:
            return NamespaceShare(namespace, log_bytes=self._log_bytes)
        return NamespaceShare(namespace, self._at_ms, self._log_bytes, self._stored[namespace], self.max_stored_bytes)

    def nearly_full(self) -> dict[str, int]:
        """Returns the bytes that namespaces with little room have in the object store, the largest first."""
        least = NEARLY_FULL * (self.max_stored_bytes or 0)
        return {name: size for name, size in self._stored.most_common(MOST_SHOWN) if size >= least}

    async def run(self) -> None:
        """Measures what namespaces hold until cancelled."""
        while True:
            try:
                await self.look()
            except NoetlError as error:
                log.warning("cannot look at what namespaces hold, will retry: %s", error)
            await self._clock.sleep(LOOK_S)

    async def look(self) -> None:
        """Measures what namespaces hold.

        Raises:
            StoreMissing: there is no stream LOGS.
            Unreachable: no answer in time.
        """
        if self.max_stored_bytes is not None:
            at_ms, stored = self._clock.now_ms(), Counter[str]()
            for path, size in (await self._store.stored_by_path()).items():
                stored[self._namespace_of(path)] += size
            self._at_ms, self._stored = at_ms, stored
        most = (await self._logs.extent()).max_bytes
        self._log_bytes = 0 if most is None else max(LEAST_LOG_BYTES, most // LOGS_PART)
        self._known.clear()
