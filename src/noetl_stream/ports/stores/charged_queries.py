"""The queries of a request: each is bounded, and their total time is charged to the caller, who has few at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Final


class ChargedQueries:
    """The queries of one request.

    Args:
        turn: Held during a query, and during its wait for a connection.
        longest_s: The longest time of a read-only query, in seconds; ``None``: that of any statement.

    Attributes:
        spent_s: The time of all queries, in seconds, without waits for turns and connections.
        ended: Whether the request has ended: later queries are charged to nobody.
    """

    __slots__ = ("ended", "longest_s", "spent_s", "turn")

    def __init__(self, turn: AbstractAsyncContextManager[Any], longest_s: float | None) -> None:
        self.turn, self.longest_s = turn, longest_s
        self.spent_s = 0.0
        self.ended = False

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Adds the time of the block."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            yield
        finally:
            self.spent_s += loop.time() - began_s


CHARGED: Final[ContextVar[ChargedQueries | None]] = ContextVar("charged_queries", default=None)


def charged_queries() -> ChargedQueries:
    """The queries of the current request; outside of a request, neither bounded nor charged."""
    found = CHARGED.get()
    return ChargedQueries(nullcontext(), None) if found is None or found.ended else found
