"""Presence: each worker answers for itself, so that a drained or dead one drops off the list by its silence."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import islice

import noetl_stream
from noetl_stream.model import codec
from noetl_stream.model.messages import RunningCommand, WorkerPresence
from noetl_stream.ports import subjects
from noetl_stream.ports.bus import Bus, Subscription
from noetl_stream.worker.limits import MAX_RUNNING_SHOWN


class Presence:
    """Answers on :data:`~noetl_stream.ports.subjects.ASK_WORKERS`; costs nothing between requests.

    Args:
        since_ms: When the worker started.
        running: The commands it holds, longest held first.
        draining: Whether it takes no new commands.
    """

    def __init__(
        self,
        *,
        name: str,
        pool: str,
        slots: int,
        since_ms: int,
        kinds: Iterable[str],
        running: Callable[[], Collection[RunningCommand]],
        draining: Callable[[], bool],
    ) -> None:
        self._name = name
        self._pool = pool
        self._slots = slots
        self._since_ms = since_ms
        self._kinds = sorted(kinds)
        self._running = running
        self._draining = draining

    async def listen(self, bus: Bus) -> Subscription:
        """Starts answering."""

        async def answer(_subject: str, _body: bytes, reply: str) -> None:
            if reply:
                bus.send(reply, codec.encode(self.shown()))

        return await bus.listen(subjects.ASK_WORKERS, answer)

    def shown(self) -> WorkerPresence:
        """This worker's presence now."""
        running = self._running()
        return WorkerPresence(
            name=self._name,
            pool=self._pool,
            slots=self._slots,
            busy=len(running),
            since_ms=self._since_ms,
            kinds=self._kinds,
            version=noetl_stream.__version__,
            draining=self._draining(),
            running=list(islice(running, MAX_RUNNING_SHOWN)),
        )
