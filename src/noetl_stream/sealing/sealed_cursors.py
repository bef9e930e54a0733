"""Cursors of lists that leave entries out: encrypted, since a cursor names the last entry that was looked at."""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from typing import Final

from noetl_stream.errors import UsageError
from noetl_stream.sealing.keys import NONCE_BYTES, KeyRing

MARK: Final = "~"
"""The start of a sealed cursor. Other cursors come from callers, who may make their own: they know what they name."""


class CursorSealer:
    """Seals cursors with AES-256-GCM, under a key derived from the current one of a ring; every key of the ring opens
    them.
    """

    def __init__(self, keys: KeyRing) -> None:
        self._keys = tuple(hmac.digest(key.value, b"noetl cursors", "sha256") for key in keys.all)

    def seal(self, cursor: str, reader: str) -> str:
        """Seals the cursor for this ``reader`` alone: a text of its permissions."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = secrets.token_bytes(NONCE_BYTES)
        sealed = nonce + AESGCM(self._keys[0]).encrypt(nonce, cursor.encode(), reader.encode())
        return MARK + base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    def open(self, cursor: str, reader: str) -> str:
        """Opens a sealed cursor.

        Raises:
            UsageError: the cursor was sealed for another reader, elsewhere, or is damaged.
        """
        if not cursor.startswith(MARK):
            return cursor
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        text = cursor.removeprefix(MARK)
        try:
            sealed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            sealed = b""
        for key in self._keys:
            try:
                opened = AESGCM(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], reader.encode())
                return opened.decode()
            except (InvalidTag, ValueError):
                continue
        raise UsageError("this is not a cursor of this list", hint="use `next` of the previous page unchanged")
