"""Cancellation: which runs a stop order ends, and which commands must not run when another copy arrives."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection

from noetl_stream.errors import PayloadRefused
from noetl_stream.lru import LruCache
from noetl_stream.model.json import codec
from noetl_stream.model.messages import Stop
from noetl_stream.worker.command.run import CommandRun
from noetl_stream.worker.worker_limits import MAX_STOPPED_REMEMBERED

log = logging.getLogger(__name__)


class Cancellations:
    """Remembers the commands that were stopped.

    Args:
        runs: The present runs of this worker.
    """

    def __init__(self, runs: Collection[CommandRun] = (), *, remembered: int = MAX_STOPPED_REMEMBERED) -> None:
        self._runs = runs
        self._stopped: LruCache[str, Stop] = LruCache(remembered)

    def stop_of(self, command_id: str) -> Stop | None:
        """Returns the order that stopped this command or paused its local loops; ``None`` if there was none."""
        return self._stopped.get(command_id)

    async def on_stop(self, _subject: str, body: bytes, _reply: str) -> None:
        """Handles a :class:`~noetl_stream.model.messages.Stop`. One with a nonce stops only the run with that nonce."""
        try:
            stop = codec.decode_stop(body)
        except PayloadRefused as error:
            log.warning("cannot read a stop order: %s", error)
            return
        runs = defaultdict(list)
        for running in self._runs:
            runs[running.run.command_id].append(running)
        for command_id in stop.command_ids:
            for running in runs.get(command_id, ()):
                if stop.pausing:
                    running.pause()
                elif not stop.nonce:
                    running.interrupt("cancelled", stop.reason)
                elif running.run.nonce == stop.nonce:
                    running.interrupt("stale", stop.reason)
            if not stop.nonce:
                self._remember(command_id, stop)

    def _remember(self, command_id: str, stop: Stop) -> None:
        before = self.stop_of(command_id)
        if not stop.pausing or before is None or before.pausing:
            self._stopped.put(command_id, stop)
