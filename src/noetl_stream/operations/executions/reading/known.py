"""Lookups for verbs about executions: the filter of a list, a row, and the plan of its playbook."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from noetl_stream.errors import NotFound, PlaybookRefused, UsageError
from noetl_stream.model import search_terms
from noetl_stream.model.ids import is_valid_id
from noetl_stream.model.status import STATUSES
from noetl_stream.operations.executions.prepare import PlaybookChecker
from noetl_stream.ports.operations.executions import ExecutionFilter
from noetl_stream.ports.stores.store import ExecutionRow, ListingFilter, Store

if TYPE_CHECKING:
    from noetl_stream.playbook.plan import Plan


async def known_row(store: Store, execution_id: str) -> ExecutionRow:
    """The row of an execution.

    Raises:
        NotFound: the execution does not exist.
    """
    row = await store.execution(execution_id) if is_valid_id(execution_id) else None
    if row is None:
        raise NotFound(f"execution {execution_id} not found")
    return row


async def known_plan(store: Store, checking: PlaybookChecker, row: ExecutionRow) -> Plan | None:
    """The plan of its playbook; ``None`` if that does not compile here."""
    known = checking.known(row.digest)
    if known is not None:
        return known
    playbook = await store.playbook(row.digest)
    if playbook is not None:
        with contextlib.suppress(PlaybookRefused):
            return await checking.plan(playbook.source, row.path)
    return None


def listing_of(chosen: ExecutionFilter) -> ListingFilter:
    """A filter in the form of the store.

    Raises:
        UsageError: one of its conditions is impossible.
    """
    unknown = set(chosen.status) - set(STATUSES)
    if unknown:
        raise UsageError(f"{min(unknown)!r} is not a status", hint=f"use one of {', '.join(STATUSES)}")
    if "" in (chosen.key, chosen.failed_step, chosen.worker):  # it would select nothing, or everything
        raise UsageError("the business key, the step or the worker to search for is empty")
    words = search_terms.word_terms(chosen.error or "")
    if chosen.error is not None and not words:
        raise UsageError(f"{chosen.error!r} contains no word to search errors for")
    longest = max((one for one in search_terms.LONGER_THAN_S if one <= (chosen.longer_than_s or 0)), default=None)
    if chosen.longer_than_s is not None and longest is None:
        raise UsageError("executions are found by a duration of at least 1s")
    try:
        due = None if chosen.due is None else search_terms.due_range(chosen.due)
    except ValueError as error:
        hint = "write a day, as 2026-12-20, or a range of days, as 2026-12-01..2026-12-20"
        raise UsageError(f"{chosen.due!r} is not a time at which executions are due: {error}", hint=hint) from None
    terms = (
        search_terms.label_terms(chosen.labels)
        | search_terms.key_terms(chosen.key or "")
        | search_terms.input_terms(chosen.inputs)
    )
    terms |= search_terms.step_terms(chosen.failed_step or "") | words | ({f"took:{longest}"} if longest else set())
    terms |= search_terms.worker_terms(() if chosen.worker is None else (chosen.worker,))
    terms |= {due.term} if due else set()
    path = None if chosen.path is None else chosen.path.strip("/")
    return ListingFilter(
        statuses=chosen.status,
        path=path,
        terms=sorted(terms),
        started_from_ms=chosen.started_from_ms,
        started_before_ms=chosen.started_before_ms,
        scope=(path,) if path is not None and chosen.scope else tuple(chosen.scope),
        longer_than_ms=None if chosen.longer_than_s is None else round(chosen.longer_than_s * 1000),
        due=due,
    )
