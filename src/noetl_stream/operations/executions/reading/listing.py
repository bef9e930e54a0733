"""What a filter of executions asks the store for."""

from __future__ import annotations

from noetl_stream.errors import UsageError
from noetl_stream.model.search_terms import label_terms, word_terms
from noetl_stream.model.status import STATUSES
from noetl_stream.ports.operations.executions import ExecutionFilter
from noetl_stream.ports.stores.store import ListingFilter


def listing_of(chosen: ExecutionFilter) -> ListingFilter:
    """A filter as the store takes it.

    Raises:
        UsageError: one of its conditions is impossible.
    """
    unknown = set(chosen.status) - set(STATUSES)
    if unknown:
        raise UsageError(f"{min(unknown)!r} is not a status", hint=f"use one of {', '.join(STATUSES)}")
    words = word_terms(chosen.error or "")
    if chosen.error is not None and not words:
        raise UsageError(f"{chosen.error!r} contains no word to search errors for")
    return ListingFilter(
        chosen.status,
        None if chosen.path is None else chosen.path.strip("/"),
        sorted(label_terms(chosen.labels) | words),
        chosen.started_from_ms,
        chosen.started_before_ms,
    )
