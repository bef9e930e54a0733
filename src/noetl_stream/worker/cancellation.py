"""Cancellation: which runs a stop order ends, and which commands must not run when another copy arrives."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal

from noetl_stream.errors import PayloadRefused
from noetl_stream.lru import LruCache
from noetl_stream.model import codec
from noetl_stream.model.messages import Stop
from noetl_stream.worker.limits import MAX_STOPPED_REMEMBERED

if TYPE_CHECKING:
    from noetl_stream.worker.command.run import CommandRun

log = logging.getLogger(__name__)

Interruption = Literal["cancelled", "stale", "relinquished", "closed"]
"""Why a run ends early: it was cancelled; another run has its command; it is returned; the worker closes."""


class Cancellations:
    """The runs of this worker by command, and the commands that were stopped."""

    def __init__(self, *, remembered: int = MAX_STOPPED_REMEMBERED) -> None:
        self._runs: dict[str, list[CommandRun]] = {}
        self._stopped: LruCache[str, Stop] = LruCache(remembered)

    def enter(self, running: CommandRun) -> None:
        self._runs.setdefault(running.run.command_id, []).append(running)

    def leave(self, running: CommandRun) -> None:
        command_id = running.run.command_id
        runs = self._runs[command_id]
        runs.remove(running)
        if not runs:
            del self._runs[command_id]

    def reason_of(self, command_id: str) -> str | None:
        """Why this command was cancelled; ``None`` if it was not."""
        stop = self._stopped.get(command_id)
        return None if stop is None or stop.pausing else stop.reason

    def is_pausing(self, command_id: str) -> bool:
        """Whether local loops of this command must begin no further iteration."""
        stop = self._stopped.get(command_id)
        return stop is not None and stop.pausing

    async def on_stop(self, _subject: str, body: bytes, _reply: str) -> None:
        """Handles a :class:`~noetl_stream.model.messages.Stop`. A nonce restricts it to the run that has it."""
        try:
            stop = codec.decode_stop(body)
        except PayloadRefused as error:
            log.warning("cannot read a stop order: %s", error)
            return
        for command_id in stop.command_ids:
            for running in tuple(self._runs.get(command_id, ())):
                if stop.pausing:
                    running.pause()
                elif not stop.nonce:
                    running.interrupt("cancelled", stop.reason)
                elif running.run.nonce == stop.nonce:
                    running.interrupt("stale", stop.reason)
            if not stop.nonce:
                self._remember(command_id, stop)

    def _remember(self, command_id: str, stop: Stop) -> None:
        if stop.pausing and self.reason_of(command_id) is not None:
            return
        self._stopped.put(command_id, stop)
