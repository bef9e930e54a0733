"""Sealing of a value in transit to the public key of its receiver (X25519, HKDF, AES-GCM).

A request has its own key, and a server process one for the values it receives, which it never stores: recorded messages
can therefore not be opened later.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from noetl_stream.errors import NoetlError
from noetl_stream.sealing.keys import open_bytes, seal_bytes

PUBLIC_KEY_BYTES: Final = 32
_KEY_BYTES: Final = 32


class CannotOpen(NoetlError):
    """A value that was sealed to another key, or modified in transit."""


class Sealed(NamedTuple):
    """A sealed value. ``public_key`` is the sender's, for this value only; ``body`` is nonce, ciphertext and tag."""

    public_key: bytes
    body: bytes


class HandoverKey:
    """The receiver's key pair. Only :attr:`public_key` leaves this process."""

    def __init__(self) -> None:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self._private = X25519PrivateKey.generate()
        self.public_key = self._private.public_key().public_bytes_raw()

    def open(self, sealed: Sealed, context: bytes) -> bytes:
        """Opens a value that was sealed to this key in the same ``context``.

        Raises:
            CannotOpen: The value was sealed to another key or context, or modified.
        """
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        try:
            shared = self._private.exchange(X25519PublicKey.from_public_bytes(sealed.public_key))
        except ValueError:
            value = None
        else:
            value = open_bytes(_derive_key(shared, self.public_key, sealed.public_key), sealed.body, context)
        if value is None:
            raise CannotOpen("cannot open the secret: it is sealed to another key")
        return value


def seal(value: bytes, receiver: bytes, context: bytes) -> Sealed:
    """Seals ``value`` to the public key ``receiver``. Opening it needs the private key and the same ``context``.

    Raises:
        CannotOpen: ``receiver`` is not a public key.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    private = X25519PrivateKey.generate()
    public = private.public_key().public_bytes_raw()
    try:
        shared = private.exchange(X25519PublicKey.from_public_bytes(receiver))
    except ValueError:
        raise CannotOpen(f"not an X25519 public key of {PUBLIC_KEY_BYTES} bytes") from None
    return Sealed(public, seal_bytes(_derive_key(shared, receiver, public), value, context))


def _derive_key(shared: bytes, receiver: bytes, sender: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), _KEY_BYTES, salt=receiver + sender, info=b"noetl secret").derive(shared)
