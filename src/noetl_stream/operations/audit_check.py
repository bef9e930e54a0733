"""The check of the audit's chains for changed, removed or inserted entries."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from typing import Final

from noetl_stream.operations.paging import cursor_of, read_cursor
from noetl_stream.ports.operations.access import MOST_SEARCHED, AuditCheckDocument, AuditFault, AuditFaultDocument
from noetl_stream.ports.stores.identities import AUDIT_CHAINS, Audit, AuditChain, AuditLink, AuditTable

READ_AT_ONCE: Final = 1_000


async def check_audit(audit: Audit, cursor: str | None) -> AuditCheckDocument:
    """Checks the audit from the cursor on, about :data:`MOST_SEARCHED` rows of its chains.

    Raises:
        UsageError: the cursor is not of this list.
    """
    number, after = _read_cursor(cursor)
    checked, older, faults = 0, 0, list[AuditFaultDocument]()
    if cursor is None:
        unchained = await audit.unchained()
        older = unchained.older
        faults += [_fault(table, at, "inserted", "it is in no chain") for table, at in unchained.others]
    while number < len(AUDIT_CHAINS) and checked < MOST_SEARCHED:
        name = AUDIT_CHAINS[number]
        part = ChainPart(name.table, await audit.chain(name, after, READ_AT_ONCE), after)
        faults += part.faults()
        checked += part.checked
        number, after = (number + 1, 0) if part.ends else (number, part.checked_through)
    following = cursor_of([number, after]) if number < len(AUDIT_CHAINS) else None
    return AuditCheckDocument(checked=checked, unchained=older, faults=faults, next=following)


def _read_cursor(cursor: str | None) -> tuple[int, int]:
    """The index of a chain in :data:`AUDIT_CHAINS`, and the position up to which it is checked."""
    value = read_cursor(cursor, list)
    match value:
        case None:
            return 0, 0
        case [int(number), int(after)] if 0 <= number < len(AUDIT_CHAINS) and 0 <= after < 2**63:
            return number, after
    return read_cursor("", list)  # type: ignore[no-any-return]  # raises


class ChainPart:
    """Consecutive rows of a chain, after those that are already checked.

    The hash of a row proves that it was not changed: the next row, or the end of the chain, has that hash. The last row
    that was read is therefore left to the next part, unless the chain ends with it.

    Attributes:
        ends: Whether this is the last part.
        checked: The number of checked rows.
        checked_through: The position of the last of them.
    """

    def __init__(self, table: AuditTable, chain: AuditChain, after: int) -> None:
        self._table, self._chain, self._after = table, chain, after
        self._groups = [list(links) for _, links in groupby(chain.links, attrgetter("position"))]
        self.ends = len(chain.links) < READ_AT_ONCE
        count = len(self._groups) if self.ends or len(self._groups) == 1 else len(self._groups) - 1
        self._checked = self._groups[:count]
        self.checked = sum(map(len, self._checked))
        self.checked_through = self._checked[-1][0].position if self._checked else after

    def faults(self) -> Iterator[AuditFaultDocument]:
        """The faults of the rows, in order."""
        anchor, head = self._chain.anchor, self._chain.head
        expected, last = max(self._after, anchor.position) + 1, 0
        for place, group in enumerate(self._checked):
            position = group[0].position
            if not anchor.position < position <= head.position:
                yield from (self._fault(link, "inserted", "the chain does not reach that far") for link in group)
                continue
            if position > expected:
                yield self._fault(group[0], "missing", f"{position - expected} before it are gone")
            yield from self._of_group(group, self._hashes_expected(place))
            expected, last = position + 1, group[0].number
        if self.ends and expected <= head.position:
            yield _fault(self._table, last, "missing", f"{head.position + 1 - expected} after it are gone")

    def _of_group(self, group: list[AuditLink], hashes: set[bytes] | None) -> Iterator[AuditFaultDocument]:
        """The faults of the rows at one position, of which one belongs there."""
        genuine = next((link for link in group if hashes is None or link.hash in hashes), None)
        first = genuine or group[0]
        anchor = self._chain.anchor
        if genuine is None or (first.position == anchor.position + 1 and first.previous != anchor.hash):
            yield self._fault(first, "changed", "it does not have the hash that stands after it in its chain")
        for link in group:
            if link is not first:
                yield self._fault(link, "inserted", "another has its place in the chain")

    def _hashes_expected(self, place: int) -> set[bytes] | None:
        """The hashes that the chain has for a row; ``None`` if its successor is gone."""
        position = self._checked[place][0].position
        if position == self._chain.head.position:
            return {self._chain.head.hash}
        following = self._groups[place + 1] if place + 1 < len(self._groups) else []
        if not following or following[0].position != position + 1:
            return None
        return {link.previous for link in following}

    def _fault(self, link: AuditLink, fault: AuditFault, says: str) -> AuditFaultDocument:
        return _fault(self._table, link.number, fault, says)


def _fault(table: AuditTable, number: int, fault: AuditFault, says: str) -> AuditFaultDocument:
    return AuditFaultDocument(number=number, part=table, fault=fault, says=says)
