"""Subjects that NATS does not permit a user to publish or subscribe.

NATS reports a refusal in a message that nats-py passes to a callback only, so that a call about that subject would wait
in vain. Here it waits for the refusal too.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from noetl_stream.errors import Unreachable

log = logging.getLogger(__name__)

RIGHTS_HINT = "write the accounts of its configuration anew with `noetl-stream nats accounts`, and reload it"

RefusalHook = Callable[[str], None]

_REFUSAL = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"', re.IGNORECASE)
_VERBS = {"publish": "publish", "subscription": "subscribe"}


class NotPermitted(Unreachable):
    """NATS does not permit this user to publish or subscribe a subject."""


class Refusals:
    """The refusals of one connection. NATS names their subjects in lower case."""

    def __init__(self, shown_url: str, user: str) -> None:
        self.on_publish: list[RefusalHook] = []
        self._shown_url = shown_url
        self._user = user
        self._waiting: dict[tuple[str, str], list[asyncio.Future[None]]] = {}
        self._shown: set[tuple[str, str]] = set()

    def error(self, verb: str, subject: str) -> NotPermitted:
        """Returns the error of a call about a subject. ``verb`` is ``publish`` or ``subscribe``."""
        return NotPermitted(f"NATS at {self._shown_url} does not let {self._user} {verb} {subject}", hint=RIGHTS_HINT)

    @contextmanager
    def until_refused(self, verb: str, subject: str, *, quiet: bool = False) -> Iterator[asyncio.Future[None]]:
        """Yields a future that is done once NATS refuses the subject; ``quiet`` keeps the refusal out of the log."""
        if quiet:
            self._shown.add((verb, subject.lower()))
        refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault((verb, subject.lower()), [])
        waiting.append(refused)
        try:
            yield refused
        finally:
            waiting.remove(refused)
            if not waiting:
                self._waiting.pop((verb, subject.lower()), None)

    def take(self, error: Exception) -> bool:
        """Returns whether ``error`` is a refusal. Each is logged once per connection, and ends the calls about it."""
        found = _REFUSAL.search(str(error))
        if found is None:
            return False
        verb, subject = _VERBS[found[1].lower()], found[2].lower()
        for refused in self._waiting.get((verb, subject), ()):
            if not refused.done():
                refused.set_result(None)
        if verb == "publish":
            for hook in list(self.on_publish):
                hook(subject)
        if (verb, subject) not in self._shown:
            self._shown.add((verb, subject))
            log.error("%s", self.error(verb, subject))
        return True

    def forget(self, hook: RefusalHook) -> None:
        """Removes a hook of :attr:`on_publish`."""
        self.on_publish[:] = [one for one in self.on_publish if one != hook]

    def restart(self) -> None:
        """Forgets which refusals were logged, on a new connection."""
        self._shown.clear()
