"""Which refusals get an entry in the audit: the first few of a minute, and one that counts the others."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from noetl_stream.ports.access import AuditedAnswer, AuditedCall

ENTRIES_OF_ONE: Final = 5
"""Entries in a minute for refusals of one principal or address, before they are only counted."""

ENTRIES_IN_ALL: Final = 60
CALLERS_COUNTED: Final = 30
"""Callers whose further refusals are counted one by one; those of all others are counted together."""

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
        """Whether this one gets an entry now; otherwise it is counted for :meth:`rest`."""
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
        """An entry for each caller that had more: its last refusal, with how many were left out before it."""
        found = []
        for caller, (refusal, count) in self._left_out.items():
            attempt = refusal.attempt
            if caller == OTHERS:
                attempt = attempt._replace(principal="", role="", remote="")
            found.append(Refusal(caller, attempt, refusal.answer._replace(left_out=count - 1)))
        return found
