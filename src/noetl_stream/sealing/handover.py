"""A value on its way to one receiver: sealed to the public key of the question it answers (X25519, HKDF, AES-GCM).

Each question has a key of its own, so whoever records the messages can open none of them, not even later.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from noetl_stream.errors import NoetlError
from noetl_stream.sealing.envelope import NONCE_BYTES

PUBLIC_KEY_BYTES: Final = 32
_KEY_BYTES: Final = 32


class CannotOpen(NoetlError):
    """An answer that was not sealed to this question, or was changed on its way."""


class Sealed(NamedTuple):
    """``public_key``: the sender's, made for this one value. ``body``: the nonce, the encrypted value and its tag."""

    public_key: bytes
    body: bytes


class Question:
    """The receiver's side: a fresh pair of keys, of which only :attr:`public_key` leaves this process."""

    def __init__(self) -> None:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self._private = X25519PrivateKey.generate()
        self.public_key = self._private.public_key().public_bytes_raw()

    def open(self, sealed: Sealed, about: bytes) -> bytes:
        """The value that was sealed to this question, about this very thing.

        Raises:
            CannotOpen: it was not.
        """
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce, body = sealed.body[:NONCE_BYTES], sealed.body[NONCE_BYTES:]
        try:
            shared = self._private.exchange(X25519PublicKey.from_public_bytes(sealed.public_key))
            key = _derived(shared, self.public_key, sealed.public_key)
            return AESGCM(key).decrypt(nonce, body, about)
        except (InvalidTag, ValueError):
            raise CannotOpen("the answer to a question for a secret cannot be opened: it is not for us") from None


def seal(value: bytes, receiver: bytes, about: bytes) -> Sealed:
    """``value`` for the holder of the private key of ``receiver`` alone; it opens only with the same ``about``.

    Raises:
        CannotOpen: ``receiver`` is no public key.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    private = X25519PrivateKey.generate()
    public = private.public_key().public_bytes_raw()
    try:
        shared = private.exchange(X25519PublicKey.from_public_bytes(receiver))
    except ValueError:
        raise CannotOpen(f"a public key is {PUBLIC_KEY_BYTES} bytes of X25519") from None
    nonce = os.urandom(NONCE_BYTES)
    return Sealed(public, nonce + AESGCM(_derived(shared, receiver, public)).encrypt(nonce, value, about))


def _derived(shared: bytes, receiver: bytes, sender: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), _KEY_BYTES, salt=receiver + sender, info=b"noetl secret").derive(shared)
