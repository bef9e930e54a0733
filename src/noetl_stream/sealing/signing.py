"""Signatures: HMAC-SHA256 over texts, by a key that is derived from a ring's for one purpose (PROTOCOL §7).

A signature names its key, so that what old keys have signed still holds.
"""

from __future__ import annotations

import base64
import hmac
from typing import Final

from noetl_stream.sealing.keys import KeyRing

SEPARATOR: Final = "."


class Signer:
    """Signs with the current key of a ring, and checks signatures of all its keys.

    Args:
        purpose: What is signed. A signature for one purpose never holds for another.
    """

    def __init__(self, keys: KeyRing, purpose: str) -> None:
        derived = {key.id: hmac.digest(key.value, f"noetl {purpose}".encode(), "sha256") for key in keys.all}
        self._current = keys.current.id
        self._keys = derived

    def sign(self, *parts: str | bytes) -> str:
        """The signature of these parts in this order: ``<key id>.<MAC in base64url>``."""
        return f"{self._current}{SEPARATOR}{_mac(self._keys[self._current], parts)}"

    def holds(self, signature: str, *parts: str | bytes) -> bool:
        """Whether this is a signature of these parts, by any key of the ring."""
        key_id, _, mac = signature.partition(SEPARATOR)
        key = self._keys.get(key_id)
        return key is not None and hmac.compare_digest(mac.encode(), _mac(key, parts).encode())


def _mac(key: bytes, parts: tuple[str | bytes, ...]) -> str:
    """Each part goes with its length, so that no other parts give the same bytes."""
    encoded = [part.encode() if isinstance(part, str) else part for part in parts]
    text = b"".join([b"%d:%b" % (len(part), part) for part in encoded])
    return base64.urlsafe_b64encode(hmac.digest(key, text, "sha256")).rstrip(b"=").decode()
