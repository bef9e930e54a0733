"""Signatures by keys derived from those of a ring for one purpose (PROTOCOL §7).

A signature is a keyed BLAKE2b (RFC 7693) over texts. It names its key, so that signatures of old keys remain valid.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from noetl_stream.sealing.keys import KeyRing

SEPARATOR: Final = "."
MAC_BYTES: Final = 16
"""The bytes of a signature. Every command and every report carries one, in hex."""


class Signer:
    """Signs with the current key of a ring, and checks signatures of all its keys.

    Args:
        purpose: The purpose of the signatures. A signature for one purpose never holds for another.
    """

    def __init__(self, keys: KeyRing, purpose: str) -> None:
        self._current = keys.current.id
        self._macs = {
            key.id: hashlib.blake2b(
                key=hmac.digest(key.value, f"noetl {purpose}".encode(), "sha256"), digest_size=MAC_BYTES
            )
            for key in keys.all
        }

    def sign(self, *names: str, body: bytes = b"") -> str:
        """Signs these names in this order, none with a NUL, and the body: ``<key id>.<MAC>``."""
        return f"{self._current}{SEPARATOR}{_mac(self._macs[self._current], _join(names), body)}"

    def holds(self, signature: str, *names: str, body: bytes = b"") -> bool:
        """Whether ``signature`` is one of these names and this body, by any key of the ring."""
        key_id, _, given = signature.partition(SEPARATOR)
        mac = self._macs.get(key_id)
        text = _join(names)
        if text.count("\0") != len(names) + 1:
            return False  # it would be read as a separator, making the signature of other names valid
        return mac is not None and given.isascii() and hmac.compare_digest(given, _mac(mac, text, body))


def _join(names: tuple[str, ...]) -> str:
    """Joins names unambiguously, with their number and a NUL after each, since names contain none."""
    return "\0".join((str(len(names)), *names, ""))


def _mac(mac: hashlib.blake2b, text: str, body: bytes) -> str:
    mac = mac.copy()
    mac.update(text.encode(errors="replace") + body)
    return mac.hexdigest()
