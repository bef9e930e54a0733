"""The output of an execution's tasks: read from LOGS, without the secrets that the execution was given."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import msgspec

from noetl_stream.errors import PayloadRefused
from noetl_stream.model.envelope import iso
from noetl_stream.model.json import codec
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations.reading.events import LogFilter, LogLineDocument, LogPage
from noetl_stream.ports.operations.verbs import document_from
from noetl_stream.ports.stores.store import ExecutionRow
from noetl_stream.ports.streams.task_logs import StoredBatch, TaskLogs
from noetl_stream.storage.used_secrets import UsedSecrets, hidden

log = logging.getLogger(__name__)

SCANNED_BYTES: Final = 8 * 1024 * 1024
"""The bytes that are searched for one page. A page may be short, or empty, without being the last."""

SHOWN_CHARACTERS: Final = 1024 * 1024
"""The number of lines after which a page ends."""

LINGER_MS: Final = 1_000
"""The time after the end of an execution in which its lines may still arrive."""


class LogPlace(msgspec.Struct, frozen=True, gc=False):
    """The place after the line ``number`` of the batch ``sequence``; without a number, after the whole batch."""

    sequence: int
    number: int | None

    @classmethod
    def read(cls, text: str) -> LogPlace:
        sequence, dot, number = text.partition(".")
        return cls(int(sequence), int(number) if dot else None)

    def __str__(self) -> str:
        return str(self.sequence) if self.number is None else f"{self.sequence}.{self.number}"

    @property
    def first(self) -> int:
        """The sequence to read from."""
        return self.sequence + 1 if self.number is None else self.sequence


class ExecutionLogs:
    """Pages of the lines of an execution.

    Args:
        secrets: Hides the values that an execution was given. Lines are searched in the form that is shown.
    """

    def __init__(self, logs: TaskLogs, secrets: UsedSecrets, clock: Clock) -> None:
        self._logs = logs
        self._secrets = secrets
        self._clock = clock

    async def page(self, row: ExecutionRow, chosen: LogFilter, after: str, limit: int) -> LogPage:
        """At most ``limit`` lines after the id ``after``. Raises like :meth:`TaskLogs.read`."""
        has_ended = row.finished_ms is not None and row.finished_ms < self._clock.now_ms() - LINGER_MS
        place, scanned, shown = LogPlace.read(after), 0, 0
        redactor = (await self._secrets.redactors((row.execution_id,))).get(row.execution_id)
        items: list[LogLineDocument] = []
        while len(items) < limit and scanned < SCANNED_BYTES:
            batches = await self._logs.read(row.execution_id, place.first)
            if not batches:
                return LogPage(items, str(place), "ended" if has_ended else "live")
            for batch in batches:
                scanned += len(batch.body)
                lines = _lines(batch, place)
                if redactor is not None:
                    lines = await asyncio.to_thread(hidden, redactor, lines)
                for line in lines:
                    place = LogPlace.read(line.id)
                    if _is_chosen(line, chosen):
                        items.append(line)
                        shown += len(line.text)
                    if len(items) == limit or shown > SHOWN_CHARACTERS:
                        return LogPage(items, str(place), "more")
                place = LogPlace(batch.sequence, None)
        return LogPage(items, str(place), "more")


def _lines(stored: StoredBatch, after: LogPlace) -> list[LogLineDocument]:
    """The lines of a batch after a place; none of an unreadable one."""
    try:
        batch = codec.decode_log_batch(stored.body)
    except PayloadRefused as error:
        log.warning("batch %d of LOGS is passed over: %s", stored.sequence, error)
        return []
    begun = after.number + 1 if after.sequence == stored.sequence and after.number is not None else 0
    last = len(batch.lines) - 1
    return [
        document_from(
            LogLineDocument, line, batch, stored, id=str(LogPlace(stored.sequence, number if number < last else None))
        )
        for number, line in enumerate(batch.lines[begun:], begun)
    ]


def _is_chosen(line: LogLineDocument, chosen: LogFilter) -> bool:
    within = chosen.iteration
    return (
        chosen.step in (None, line.step)
        and chosen.task in (None, line.task)
        and (within is None or tuple(line.iteration[: len(within)]) == within)
        and (chosen.since_ms is None or line.at >= iso(chosen.since_ms))
        and (chosen.grep is None or chosen.grep in line.text)
    )
