"""Encrypts values at rest with AES-256-GCM, bound to their name and version."""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from noetl_stream.errors import NoetlError
from noetl_stream.sealing.keys import KeyRing

NONCE_BYTES: Final = 12


class CannotDecrypt(NoetlError):
    """A stored value cannot be decrypted: its key is missing, or it was modified."""


class SealedEnvelope(NamedTuple):
    """``sealed`` is the nonce, the encrypted value and its tag; ``key_id`` names the key."""

    key_id: str
    sealed: bytes


def encrypt(keys: KeyRing, name: str, version: int, value: bytes) -> SealedEnvelope:
    """Encrypts ``value`` with the current key. Decryption needs the same ``name`` and ``version``."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(NONCE_BYTES)
    sealed = AESGCM(keys.current.value).encrypt(nonce, value, _bound_to(name, version))
    return SealedEnvelope(keys.current.id, nonce + sealed)


def decrypt(keys: KeyRing, name: str, version: int, envelope: SealedEnvelope) -> bytes:
    """Decrypts an envelope of :func:`encrypt`.

    Raises:
        CannotDecrypt: The key is missing, or the envelope was modified.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    key = keys.find(envelope.key_id)
    if key is None:
        raise CannotDecrypt(
            f"credential {name!r} is encrypted with key {envelope.key_id}, which is not configured",
            hint=f"add it to NOETL_CREDENTIAL_OLD_KEYS, then rotate; the current key is {keys.current.id}",
        )
    nonce, sealed = envelope.sealed[:NONCE_BYTES], envelope.sealed[NONCE_BYTES:]
    try:
        return AESGCM(key.value).decrypt(nonce, sealed, _bound_to(name, version))
    except (InvalidTag, ValueError):
        raise CannotDecrypt(
            f"credential {name!r}, version {version}, was modified in the store: key {key.id} cannot decrypt it",
            hint="set the credential again",
        ) from None


def _bound_to(name: str, version: int) -> bytes:
    return f"noetl credential\0{name}\0{version}".encode()
