"""Failed authentications: whoever shows one wrong credential after another must wait.

Only different credentials count, so that a program with an old token keeps out nobody else at its address; one that
was right before never counts.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from noetl_stream.errors import TooBusy
from noetl_stream.gateway.http.buckets import REMEMBERED, LeakyBuckets
from noetl_stream.lru import LruCache
from noetl_stream.ports.clock import Clock

MOST_AT_ONCE: Final = 30
FORGOTTEN_PER_S: Final = 0.5


class CredentialAttempts:
    """The credentials shown at each address. Each new one counts until it turns out to be right."""

    def __init__(self, clock: Clock) -> None:
        self._wrong = LeakyBuckets(clock, MOST_AT_ONCE, FORGOTTEN_PER_S)
        self._right: LruCache[bytes, bool] = LruCache(REMEMBERED)
        self._counted: LruCache[tuple[str, bytes], bool] = LruCache(REMEMBERED)

    def begin(self, address: str, authorization: str | None) -> None:
        """Call this before looking at a credential.

        Raises:
            TooBusy: too many at this address were wrong.
        """
        if authorization is None:
            return
        credential = _digest(authorization)
        if self._right.get(credential) or self._counted.get((address, credential)):
            return
        self.require_room(address)
        self._wrong.add(address)
        self._counted.put((address, credential), True)

    def require_room(self, address: str) -> None:
        """Raises :class:`~noetl_stream.errors.TooBusy` if too many credentials at this address were wrong."""
        wait_s = self._wrong.full_for_s(address)
        if wait_s:
            raise TooBusy("too many wrong credentials were sent from this address", wait_s, hint="check the token")

    def guessed(self, address: str) -> None:
        """A credential that cannot be right later was wrong."""
        self._wrong.add(address)

    def right(self, address: str, authorization: str | None) -> None:
        """The credential was right."""
        if authorization is None:
            return
        credential = _digest(authorization)
        self._right.put(credential, True)
        if self._counted.get((address, credential)):
            self._counted.drop((address, credential))
            self._wrong.add(address, -1)

    def wrong(self, authorization: str | None) -> None:
        """The credential was wrong, or is no longer right."""
        if authorization is not None:
            self._right.drop(_digest(authorization))


def _digest(authorization: str) -> bytes:
    return sha256(authorization.encode(errors="surrogateescape")).digest()
