"""Events as they happen (PROTOCOL §4): every event once, in order, across the switch from history to live."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol

from noetl_stream.ports.operations.documents import Document


class Heard(NamedTuple):
    """An event and the id to go on after it: its position in one execution's feed; in the whole feed ``None`` where the
    feed cannot be resumed right here, but only after a later event.
    """

    id: str | None
    event: Document


class Feed(Protocol):
    def execution(self, execution_id: str, after: int) -> AsyncIterator[Heard]:
        """The journal of one execution above the position ``after``, then live; ends with ``playbook.processed``.

        Raises:
            NotFound: there is no such execution.
        """
        ...

    def everything(self, after: str | None) -> AsyncIterator[Heard]:
        """The events of all executions: from the id ``after``, or from now on. It never ends.

        Raises:
            UsageError: the id is none of this feed, or too old to go on from.
        """
        ...
