"""Events as they happen (PROTOCOL §4): every event once, in order, across the switch from history to live."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import cached_property
from typing import Final, Protocol

from noetl_stream.model import codec
from noetl_stream.model.envelope import EventDocument

LAST_EVENT: Final = "playbook.processed"
"""What every journal ends with."""


class FeedEvent:
    """An event that was heard, by as many readers as there are.

    Attributes:
        id: Where to go on after it; never a sequence of a stream, which may be rebuilt.
        event: Its envelope (LANGUAGE §13); ``None`` where only the place is told, of what is not for this reader.
        path: That of its execution's playbook; empty where it came over HTTP.
    """

    def __init__(self, id: str, event: EventDocument | None, path: str) -> None:
        self.id: Final = id
        self.event: Final = event
        self.path: Final = path

    @property
    def name(self) -> str:
        """Of the event; empty where only the place is told."""
        return "" if self.event is None else self.event.name

    @cached_property
    def json(self) -> str:
        """The event as one line of JSON, made once for all readers."""
        return codec.encode(self.event).decode()


def only(heard: list[FeedEvent], shown: Callable[[FeedEvent], bool]) -> list[FeedEvent]:
    """Those that are to be shown; of the last, if it is not, its place: who comes back goes on from there."""
    found = [one for one in heard if one.event is not None and shown(one)]
    if heard and (not found or found[-1] is not heard[-1]):
        found.append(FeedEvent(heard[-1].id, None, ""))
    return found


class Feed(Protocol):
    """Both return when the feed is open: what cannot be is said before the first event.

    Events come as many at a time as are there, at least one.
    """

    async def execution(self, execution_id: str, after: int) -> AsyncIterator[list[FeedEvent]]:
        """The journal of one execution above the position ``after``, then live; ends with ``playbook.processed``.

        Raises:
            NotFound: there is no such execution.
        """
        ...

    async def everything(self, after: str | None) -> AsyncIterator[list[FeedEvent]]:
        """The events of all executions: from the id ``after``, or from now on. It never ends.

        Events of one execution come in their order; those of different executions need not.

        Raises:
            UsageError: the id is none of this feed, or too old to go on from.
        """
        ...
