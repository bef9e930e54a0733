"""Live events (PROTOCOL §4): every event once, in order, across the switch from history to live."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import cached_property
from typing import Final, Protocol

from noetl_stream.model.envelope import EventDocument
from noetl_stream.model.json import codec

LAST_EVENT: Final = "playbook.processed"
"""The name of the last event of every journal."""


class FeedEvent:
    """An event of a feed, shared by its readers.

    Attributes:
        id: Where to resume after it; never a sequence of a stream, which may be rebuilt.
        event: Its envelope (LANGUAGE §13); ``None`` for one this reader may not see: it has the place only.
        path: That of its execution's playbook; empty where it came over HTTP.
    """

    def __init__(self, id: str, event: EventDocument | None, path: str) -> None:
        self.id: Final = id
        self.event: Final = event
        self.path: Final = path

    @property
    def name(self) -> str:
        """Of the event; empty where it has the place only."""
        return "" if self.event is None else self.event.name

    @cached_property
    def json(self) -> str:
        """The event as one line of JSON, made once for all readers."""
        return codec.encode(self.event).decode()


def only(events: list[FeedEvent], shown: Callable[[FeedEvent], bool]) -> list[FeedEvent]:
    """The shown ones; if the last is not shown, its place alone, so that a reader can resume from there."""
    found = [one for one in events if one.event is not None and shown(one)]
    if events and (not found or found[-1] is not events[-1]):
        found.append(FeedEvent(events[-1].id, None, ""))
    return found


class Feed(Protocol):
    """Both return when the feed is open: errors are raised before the first event.

    Events come as many at a time as are there, at least one.
    """

    async def execution(self, execution_id: str, after: int) -> AsyncIterator[list[FeedEvent]]:
        """The journal of one execution above the position ``after``, then live; ends with ``playbook.processed``.

        Raises:
            NotFound: no such execution.
        """

    async def everything(self, after: str | None) -> AsyncIterator[list[FeedEvent]]:
        """The events of all executions: from the id ``after``, or from now on. It never ends.

        The place where it begins comes first. Events of one execution come in their order; those of different
        executions need not.

        Raises:
            UsageError: the id is not of this feed, or too old to resume from.
        """
