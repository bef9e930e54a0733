"""Keys and key rings; and the encryption of the credential store: AES-256-GCM, bound to name and version."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import mmap
import os
import secrets
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from noetl_stream.errors import NoetlError, UsageError

KEY_BYTES: Final = 32
KEY_HINT: Final = "use 32 random bytes as base64, for example from `openssl rand -base64 32`"
ID_CHARACTERS: Final = 12
NONCE_BYTES: Final = 12
_BLOCK_BYTES: Final = 16
SEAL_BYTES: Final = NONCE_BYTES + _BLOCK_BYTES
"""What an encrypted value is longer than the value: the nonce, and the tag."""
_HUGE_PAGE_BYTES: Final = 2 * 1024 * 1024


class Unprinted(msgspec.Struct, frozen=True):
    """Base of structs with secrets: ``repr``, and therefore logs and errors, show none of their fields."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class Key(Unprinted, frozen=True):
    """A key and its id, which is derived from it and safe to show."""

    id: str
    value: bytes

    def __repr__(self) -> str:
        return f"Key(id={self.id!r})"


class KeyRing(msgspec.Struct, frozen=True):
    """The keys for one purpose. ``current`` encrypts and signs; ``old`` keys decrypt and verify after a rotation."""

    current: Key
    old: tuple[Key, ...] = ()

    @property
    def all(self) -> tuple[Key, ...]:
        """All keys of the ring, the current one first."""
        return (self.current, *self.old)

    def find(self, key_id: str) -> Key | None:
        return next((key for key in self.all if key.id == key_id), None)


def read_key(text: str, where: str) -> Key:
    """Parses a key from base64 text, standard or URL-safe.

    Raises:
        UsageError: The text is not a key. The message names ``where`` it is from, without the text.
    """
    try:
        plain = text.strip().replace("-", "+").replace("_", "/")
        value = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise UsageError(f"{where} is not base64", hint=KEY_HINT) from None
    if len(value) != KEY_BYTES:
        raise UsageError(f"{where} is {len(value)} bytes long, not {KEY_BYTES}", hint=KEY_HINT)
    return Key(hashlib.sha256(b"noetl credential key" + value).hexdigest()[:ID_CHARACTERS], value)


def key_ring(texts: Sequence[str], where: str) -> KeyRing | None:
    """Makes the ring of these keys, the current one first; ``None`` if there are none.

    Raises:
        UsageError: A text is not a key.
    """
    if not texts:
        return None
    current, *old = (read_key(text, where) for text in texts)
    return KeyRing(current, tuple(old))


def new_key() -> str:
    """Generates a random key, as text for :func:`read_key`."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def seal_bytes(key: bytes, value: bytes, context: bytes, *, nonce: bytes | None = None) -> bytes:
    """Encrypts a value with AES-256-GCM: a nonce, random unless given, the encrypted value and its tag."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = nonce or os.urandom(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, value, context)


def seal_large(key: bytes, value: bytes | memoryview, context: bytes, into: memoryview | None = None) -> memoryview:
    """Encrypts a value as :func:`seal_bytes` does, without a copy of the result.

    Args:
        into: The memory of the result, of :data:`SEAL_BYTES` more than the value; by default, new memory.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    nonce, end = os.urandom(NONCE_BYTES), NONCE_BYTES + len(value)
    sealed = (into or memoryview(large_buffer(len(value) + SEAL_BYTES)))[: end + _BLOCK_BYTES]
    encryptor = Cipher(algorithms.AES(key), modes.GCM(nonce)).encryptor()
    encryptor.authenticate_additional_data(context)
    sealed[:NONCE_BYTES] = nonce
    encryptor.update_into(value, sealed[NONCE_BYTES:])
    encryptor.finalize()
    sealed[end:] = encryptor.tag
    return sealed


def large_buffer(size: int) -> mmap.mmap:
    """Makes a buffer of memory that the system provides as it is written, in large pages where it has them."""
    buffer = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= _HUGE_PAGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages
            buffer.madvise(mmap.MADV_HUGEPAGE)
    return buffer


def open_bytes(key: bytes, sealed: bytes | memoryview, context: bytes) -> bytes | None:
    """Decrypts a result of :func:`seal_bytes`; ``None`` if it has another key or context, or was modified."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(key).decrypt(sealed[:NONCE_BYTES], memoryview(sealed)[NONCE_BYTES:], context)
    except (InvalidTag, ValueError):
        return None


class CannotDecrypt(NoetlError):
    """A stored value cannot be decrypted: its key is missing, or it was modified."""


class SealedEnvelope(NamedTuple):
    """An encrypted value. ``sealed`` is the nonce, the encrypted value and its tag; ``key_id`` names the key."""

    key_id: str
    sealed: bytes


def encrypt(keys: KeyRing, name: str, version: int, value: bytes) -> SealedEnvelope:
    """Encrypts ``value`` with the current key. Decryption needs the same ``name`` and ``version``."""
    return SealedEnvelope(keys.current.id, seal_bytes(keys.current.value, value, _bound_to(name, version)))


def decrypt(keys: KeyRing, name: str, version: int, envelope: SealedEnvelope) -> bytes:
    """Decrypts an envelope of :func:`encrypt`.

    Raises:
        CannotDecrypt: The key is missing, or the envelope was modified.
    """
    key = keys.find(envelope.key_id)
    if key is None:
        hint = f"add it to NOETL_CREDENTIAL_OLD_KEYS, then rotate; the current key is {keys.current.id}"
        message = f"credential {name!r} is encrypted with key {envelope.key_id}, which is not configured"
        raise CannotDecrypt(message, hint=hint)
    value = open_bytes(key.value, envelope.sealed, _bound_to(name, version))
    if value is None:
        message = f"credential {name!r}, version {version}, was modified in the store: key {key.id} cannot decrypt it"
        raise CannotDecrypt(message, hint="set the credential again")
    return value


def _bound_to(name: str, version: int) -> bytes:
    return f"noetl credential\0{name}\0{version}".encode()
