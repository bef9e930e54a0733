"""Sampling of refusals for the audit: the first few of a minute, and an entry that counts the others."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec.structs import replace

from noetl_stream.errors import NoetlError
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.identities import Audit, AuditedAnswer, AuditedCall

log = logging.getLogger(__name__)

SAMPLE_S: Final = 60.0
ENTRIES_OF_ONE: Final = 5
"""The entries in a minute for refusals of one principal or address, before further ones are only counted."""

ENTRIES_IN_ALL: Final = 60
CALLERS_COUNTED: Final = 30
"""The callers whose further refusals are counted separately; those of all others are counted together."""

OTHERS: Final = ""


class Refusal(NamedTuple):
    """A refused call. ``caller`` is its principal, or its address if it has none."""

    caller: str
    attempt: AuditedCall
    answer: AuditedAnswer


class RefusalSample:
    """The refusals of one minute: at most :data:`ENTRIES_IN_ALL` and :data:`CALLERS_COUNTED` + 1 entries."""

    def __init__(self) -> None:
        self._entered: Counter[str] = Counter()
        self._left_out: dict[str, tuple[Refusal, int]] = {}

    def takes(self, refusal: Refusal) -> bool:
        """Whether this refusal gets an entry now; otherwise it is counted for :meth:`rest`."""
        caller = refusal.caller
        if self._entered[caller] < ENTRIES_OF_ONE and self._entered.total() < ENTRIES_IN_ALL:
            self._entered[caller] += 1
            return True
        if caller not in self._left_out and len(self._left_out) >= CALLERS_COUNTED:
            caller = OTHERS
        _, count = self._left_out.get(caller, (refusal, 0))
        self._left_out[caller] = (refusal, count + 1)
        return False

    def rest(self) -> list[Refusal]:
        """An entry for each caller with further refusals: the last one, with the number of those left out before it."""
        found = []
        for caller, (refusal, count) in self._left_out.items():
            attempt = refusal.attempt
            if caller == OTHERS:
                attempt = replace(attempt, principal="", role="", remote="")
            found.append(Refusal(caller, attempt, replace(refusal.answer, left_out=count - 1)))
        return found


class RefusalAudit:
    """Writes refusals to the audit, at most those of a :class:`RefusalSample` in a minute.

    Args:
        count_left_out: Called for each refusal that gets no entry of its own.
    """

    def __init__(self, audit: Audit, clock: Clock, count_left_out: Callable[[], None] = lambda: None) -> None:
        self._audit = audit
        self._clock = clock
        self._count_left_out = count_left_out
        self._sample = RefusalSample()

    async def add(self, refusal: Refusal) -> None:
        """Records or counts it."""
        if self._sample.takes(refusal):
            await self._write(refusal)
        else:
            self._count_left_out()

    async def record_left_out(self) -> None:
        """Once a minute, records how many refusals were left out; never returns."""
        while True:
            await self._clock.sleep(SAMPLE_S)
            await self.finish_sample()

    async def finish_sample(self) -> None:
        """Records how many refusals were left out, and begins a new sample."""
        sample, self._sample = self._sample, RefusalSample()
        for refusal in sample.rest():
            await self._write(refusal)

    async def _write(self, refusal: Refusal) -> None:
        try:
            await self._audit.add(refusal.attempt, refusal.answer)
        except NoetlError as error:
            log.error("a refusal was not recorded: %s by %s: %s", refusal.attempt.operation, refusal.caller, error)
