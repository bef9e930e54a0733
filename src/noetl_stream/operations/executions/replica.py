"""Reading and counting executions on a replica of Postgres, which may be behind; the primary does the rest."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from noetl_stream.errors import NotFound, NotReady, Unreachable
from noetl_stream.lru import LruCache
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations.executions import ExecutionDocument
from noetl_stream.ports.operations.verbs import EXECUTIONS, Verb, Verbs

log = logging.getLogger(__name__)

READ_S: Final = 5.0
"""The time in which the replica must answer; then the primary is asked too."""

AWAY_MS: Final = 10_000
"""The time for which a replica that did not answer is not asked."""

ACTED_ON_MS: Final = 60_000
"""The time for which an execution is read from the primary after a change here."""

ACTED_ON_KEPT: Final = 10_000


class Replicated(Verbs):
    """A port whose reading verbs are answered by a replica.

    The primary is asked while the replica does not answer, for executions that were just started, changed or awaited
    here, and for what the replica does not know.

    Args:
        replica: Returns the verbs over the replica; connects to it on first use.
    """

    def __init__(self, port: type, primary: Any, replica: Callable[[], Awaitable[object]], clock: Clock) -> None:
        super().__init__(port)
        self._primary = primary
        self._replica = replica
        self._clock = clock
        self._away_until_ms = 0
        self._acted_on: LruCache[str, int] = LruCache(ACTED_ON_KEPT)

    async def wait(self, execution_id: str, timeout_s: float) -> ExecutionDocument:
        """Waits; an execution that has ended is then read as ended by later calls."""
        found: ExecutionDocument = await self._primary.wait(execution_id, timeout_s)
        self._acted_on.put(execution_id, self._clock.now_ms())
        return found

    async def _ask(self, verb: Verb, *args: Any, **options: Any) -> Any:
        given = verb.arguments(args, options)
        about = [given[name] for name in EXECUTIONS if name in given]
        if verb.replica and not any(map(self._is_acted_on, about)):
            return await self._read(verb, *args, **options)
        answer = await getattr(self._primary, verb.name)(*args, **options)
        if verb.changes:
            for execution_id in filter(None, (*about, getattr(answer, "execution_id", None))):
                self._acted_on.put(execution_id, self._clock.now_ms())
        return answer

    def _is_acted_on(self, execution_id: str) -> bool:
        acted_ms = self._acted_on.get(execution_id)
        return acted_ms is not None and self._clock.now_ms() < acted_ms + ACTED_ON_MS

    async def _read(self, verb: Verb, *args: Any, **options: Any) -> Any:
        now_ms = self._clock.now_ms()
        if now_ms >= self._away_until_ms:
            try:
                async with asyncio.timeout(READ_S):
                    return await getattr(await self._replica(), verb.name)(*args, **options)
            except NotFound:
                pass
            except (Unreachable, NotReady, TimeoutError) as error:
                self._away_until_ms = now_ms + AWAY_MS
                why = error or "no answer in time"
                log.warning("reading from the primary, since the replica does not answer: %s", why)
        return await getattr(self._primary, verb.name)(*args, **options)
